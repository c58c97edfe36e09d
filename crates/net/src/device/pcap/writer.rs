//! Captures out: little-endian, in nanoseconds.

use std::io::{self, Write};

use forebay_stack::packet::Packet;

use super::reader::MAX_RECORD;
use super::{LinkType, classic, ng};

/// Which of the two formats to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaptureFormat {
    /// What every tool reads.
    #[default]
    Pcap,
    /// What Wireshark writes.
    Pcapng,
}

/// Writes a capture of frames that all have one link type.
///
/// Each record is several small writes: give it a [`BufWriter`](io::BufWriter).
pub struct CaptureWriter<W: Write> {
    output: W,
    format: CaptureFormat,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn new(mut output: W, format: CaptureFormat, link_type: LinkType) -> io::Result<Self> {
        match format {
            CaptureFormat::Pcap => start_pcap(&mut output, link_type)?,
            CaptureFormat::Pcapng => start_pcapng(&mut output, link_type)?,
        }
        Ok(Self { output, format })
    }

    /// Writes one frame; `timestamp` is in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// What writing says; `InvalidInput` for a frame of more than 262,144 bytes, which no reader
    /// takes.
    pub fn write(&mut self, timestamp: u64, frame: &[u8]) -> io::Result<()> {
        self.write_chunks(timestamp, frame.len(), [frame].into_iter())
    }

    /// Writes one packet from its buffers, as [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_packet(&mut self, timestamp: u64, packet: &Packet) -> io::Result<()> {
        self.write_chunks(timestamp, packet.total_len(), packet.chunks())
    }

    /// Has everything written so far reach the file.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn write_chunks<'a>(
        &mut self,
        timestamp: u64,
        len: usize,
        chunks: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if len > MAX_RECORD {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self.format {
            CaptureFormat::Pcap => self.write_record(timestamp, len, chunks),
            CaptureFormat::Pcapng => self.write_block(timestamp, len, chunks),
        }
    }

    fn write_record<'a>(
        &mut self,
        timestamp: u64,
        len: u32,
        chunks: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let seconds = u32::try_from(timestamp / 1_000_000_000).unwrap_or(u32::MAX);
        let nanos = (timestamp % 1_000_000_000) as u32;
        write_words(&mut self.output, &[seconds, nanos, len, len])?;
        write_all(&mut self.output, chunks)
    }

    fn write_block<'a>(
        &mut self,
        timestamp: u64,
        len: u32,
        chunks: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let padded = len.next_multiple_of(4);
        let block = ng::BLOCK_FRAME + 20 + padded;
        let (high, low) = ((timestamp >> 32) as u32, timestamp as u32);
        write_words(
            &mut self.output,
            &[ng::ENHANCED_PACKET, block, 0, high, low, len, len],
        )?;
        write_all(&mut self.output, chunks)?;
        let padding = [0; 3];
        self.output
            .write_all(padding.get(..(padded - len) as usize).unwrap_or_default())?;
        write_words(&mut self.output, &[block])
    }
}

fn start_pcap(output: &mut impl Write, link_type: LinkType) -> io::Result<()> {
    let version = 2 | 4 << 16;
    let words = [
        classic::MAGIC_NANOS,
        version,
        0,
        0,
        MAX_RECORD,
        u32::from(link_type.0),
    ];
    write_words(output, &words)
}

fn start_pcapng(output: &mut impl Write, link_type: LinkType) -> io::Result<()> {
    // Version 1.0; the length of a section that is still being written is not known.
    let section = ng::BLOCK_FRAME + 16;
    let words = [
        ng::SECTION_HEADER,
        section,
        ng::BYTE_ORDER,
        1,
        u32::MAX,
        u32::MAX,
        section,
    ];
    write_words(output, &words)?;
    let interface = ng::BLOCK_FRAME + 20;
    let resolution = u32::from(ng::OPTION_RESOLUTION) | 1 << 16;
    let nanoseconds = 9;
    let words = [
        ng::INTERFACE,
        interface,
        u32::from(link_type.0),
        MAX_RECORD,
        resolution,
        nanoseconds,
        u32::from(ng::OPTION_END),
        interface,
    ];
    write_words(output, &words)
}

fn write_words(output: &mut impl Write, words: &[u32]) -> io::Result<()> {
    words
        .iter()
        .try_for_each(|word| output.write_all(&word.to_le_bytes()))
}

fn write_all<'a>(
    output: &mut impl Write,
    mut chunks: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    chunks.try_for_each(|chunk| output.write_all(chunk))
}
