//! A capture, read as a whole.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use forebay::device::pcap::{CaptureReader, NotIp, strip_link_header};

use super::mix::Mix;

/// What is played.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct CaptureArgs {
    /// The capture: pcap or pcapng
    #[arg(value_name = "FILE.pcap")]
    file: Option<PathBuf>,

    /// Instead of a capture, 10,000 UDP packets of 64 bytes, IPv4 and IPv6: so many parts in
    /// transit, and so many for connected sockets of this host, as in 90:10
    #[arg(long, value_name = "TRANSIT:LOCAL", conflicts_with_all = ["config", "host", "local"])]
    mix: Option<Mix>,
}

impl CaptureArgs {
    /// Reads or makes it.
    pub(crate) fn capture(&self) -> anyhow::Result<Capture> {
        match (&self.mix, &self.file) {
            (Some(mix), _) => Ok(mix.capture()),
            (None, Some(file)) => Capture::load(file),
            (None, None) => bail!("there is no capture to play"),
        }
    }
}

/// The frames of a capture in the order of the file.
pub(crate) struct Capture {
    /// The file's, or what it is.
    pub(crate) name: String,
    pub(crate) frames: Vec<Frame>,
    /// Addresses that are this host's, whatever else is.
    pub(crate) hosts: Vec<IpAddr>,
    /// What kept the rest from being read, if the file ends badly.
    pub(crate) fault: Option<String>,
}

/// A frame.
pub(crate) struct Frame {
    /// The first is 1, as tools that show captures count.
    pub(crate) number: usize,
    /// Nanoseconds since the capture began; never less than the frame before.
    pub(crate) at: u64,
    /// Whether the capture has less of it than was on the wire.
    pub(crate) is_cut: bool,
    /// From the IP header on.
    pub(crate) packet: Result<Vec<u8>, NotIp>,
}

impl Capture {
    /// Reads a file. What precedes a fault counts.
    fn load(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read the capture {}", path.display());
        let mut reader = CaptureReader::open(path).with_context(cannot)?;
        let mut frames = Vec::new();
        let (mut start, mut at) = (None, 0);
        let fault = loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    let start = *start.get_or_insert(record.timestamp);
                    at = record.timestamp.saturating_sub(start).max(at);
                    let packet = strip_link_header(record.link_type, record.data);
                    frames.push(Frame {
                        number: frames.len() + 1,
                        at,
                        is_cut: record.original_len as usize > record.data.len(),
                        packet: packet.map(<[u8]>::to_vec),
                    });
                }
                Ok(None) => break None,
                Err(error) if frames.is_empty() => return Err(error).with_context(cannot),
                Err(error) => break Some(error.to_string()),
            }
        };
        if frames.is_empty() {
            bail!("the capture {} has no packets", path.display());
        }
        Ok(Self {
            name: path.display().to_string(),
            frames,
            hosts: Vec::new(),
            fault,
        })
    }

    /// The packets, with their frames.
    pub(crate) fn packets(&self) -> impl Iterator<Item = (&Frame, &[u8])> {
        let packet = |frame: &'_ Frame| frame.packet.is_ok();
        let frames = self.frames.iter().filter(move |frame| packet(frame));
        frames.map(|frame| (frame, frame.packet.as_deref().unwrap_or_default()))
    }
}
