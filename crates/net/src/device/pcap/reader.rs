//! Either format, record by record.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::input::Input;
use super::{LinkType, classic, ng};

/// Bytes of a record that are believed (libpcap's `MAXIMUM_SNAPLEN`): a length above is corrupt.
pub(super) const MAX_RECORD: u32 = 262_144;

/// What was captured of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970, UTC. A record without a time of its own (pcapng's simple packet
    /// block) has the time of the one before.
    pub timestamp: u64,
    /// Bytes that the frame had; more than those of `data` if it was cut.
    pub original_len: u32,
    /// What the frame starts with.
    pub link_type: LinkType,
    /// The frame from its link header on.
    pub data: &'a [u8],
}

/// Why a capture can't be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file starts with no number that is known.
    #[error("neither a pcap nor a pcapng file")]
    NotACapture,
    /// The file ends inside of something: it was cut, or is still being written.
    #[error("the capture is cut off at byte {at}")]
    Truncated {
        /// Length of the file.
        at: u64,
    },
    /// The file contradicts itself or the format.
    #[error("the capture is corrupt at byte {at}: {what}")]
    Corrupt {
        /// Where, in bytes from the front.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads a capture record by record, and never more than one of them into memory.
pub struct CaptureReader<R> {
    input: Input<R>,
    format: Format,
    is_over: bool,
}

enum Format {
    Classic(classic::Classic),
    Ng(ng::Section),
}

impl CaptureReader<File> {
    /// Reads the capture at `path`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads a capture from `source`, of which it buffers what it reads.
    ///
    /// # Errors
    ///
    /// What reading says, and that this is no capture.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(source)?;
        let format = if input.starts_with(&ng::MAGIC) {
            Format::Ng(ng::Section::default())
        } else {
            Format::Classic(classic::Classic::read_header(&mut input)?)
        };
        Ok(Self {
            input,
            format,
            is_over: false,
        })
    }

    /// The next record; `None` behind the last one, and after an error.
    ///
    /// # Errors
    ///
    /// What reading says, and where the capture is cut off or corrupt.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if self.is_over {
            return Ok(None);
        }
        self.is_over = true;
        let record = match &mut self.format {
            Format::Classic(classic) => classic.next_record(&mut self.input)?,
            Format::Ng(section) => section.next_record(&mut self.input)?,
        };
        self.is_over = record.is_none();
        Ok(record)
    }
}
