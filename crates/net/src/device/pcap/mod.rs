//! Capture files: read, written, and played into a stack.
//!
//! Both formats are read, pcap (micro- and nanoseconds, either byte order) and pcapng (several
//! sections and interfaces), and every link type that carries IP.
//!
//! ```
//! use forebay::device::pcap::{
//!     CaptureFormat, CaptureReader, CaptureWriter, LinkType, strip_link_header,
//! };
//!
//! let mut file = Vec::new();
//! let mut writer = CaptureWriter::new(&mut file, CaptureFormat::Pcap, LinkType::RAW)?;
//! writer.write(1_000_000_001, &[0x45, 0, 0, 20])?;
//!
//! let mut reader = CaptureReader::new(&file[..])?;
//! while let Some(record) = reader.next_record()? {
//!     let packet = strip_link_header(record.link_type, record.data)?;
//!     println!("{} ns: {} bytes", record.timestamp, packet.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod classic;
mod fields;
mod input;
mod link;
mod ng;
mod reader;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

pub use link::{LinkType, NotIp, strip_link_header};
pub use reader::{CaptureError, CaptureReader, Record};
pub use replay::{Pace, PcapConfig, PcapDevice, PcapOpenError};
pub use writer::{CaptureFormat, CaptureWriter};
