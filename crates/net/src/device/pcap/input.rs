//! The bytes of a file in order, and never more memory than the file has bytes.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use super::CaptureError;

/// What the formats are told apart by.
const START: usize = 4;

pub(super) struct Input<R> {
    source: BufReader<Chain<Cursor<Vec<u8>>, R>>,
    /// The first bytes, to look at before they are read.
    start: Vec<u8>,
    /// Bytes read so far.
    position: u64,
    buffer: Vec<u8>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(mut source: R) -> io::Result<Self> {
        let mut start = Vec::with_capacity(START);
        source.by_ref().take(START as u64).read_to_end(&mut start)?;
        let source = BufReader::with_capacity(64 << 10, Cursor::new(start.clone()).chain(source));
        Ok(Self {
            source,
            start,
            position: 0,
            buffer: Vec::new(),
        })
    }

    pub(super) fn starts_with(&self, magic: &[u8]) -> bool {
        self.start == magic
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: u32) -> Result<&[u8], CaptureError> {
        match self.take_or_end(len)? {
            true => Ok(&self.buffer),
            false => Err(CaptureError::Truncated { at: self.position }),
        }
    }

    /// The next `len` bytes, or `None` at the end of the file.
    pub(super) fn take_unless_over(&mut self, len: u32) -> Result<Option<&[u8]>, CaptureError> {
        Ok(self.take_or_end(len)?.then_some(&self.buffer))
    }

    fn take_or_end(&mut self, len: u32) -> Result<bool, CaptureError> {
        // Not resized to `len` first: that may be a lie, and read_to_end grows with what is there.
        self.buffer.clear();
        let mut source = self.source.by_ref().take(u64::from(len));
        let read = source.read_to_end(&mut self.buffer)? as u64;
        self.position += read;
        match read {
            0 if len > 0 => Ok(false),
            read if read < u64::from(len) => Err(CaptureError::Truncated { at: self.position }),
            _ => Ok(true),
        }
    }

    /// Passes over `len` bytes.
    pub(super) fn skip(&mut self, len: u32) -> Result<(), CaptureError> {
        let mut left = u64::from(len);
        while left > 0 {
            let available = self.source.fill_buf()?.len() as u64;
            if available == 0 {
                return Err(CaptureError::Truncated { at: self.position });
            }
            let step = available.min(left);
            self.source
                .consume(usize::try_from(step).unwrap_or(usize::MAX));
            self.position += step;
            left -= step;
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, what: &'static str) -> CaptureError {
        CaptureError::Corrupt {
            at: self.position,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_by_what_is_there_and_not_by_what_is_said() {
        let mut input = Input::new(&[7; 1_000][..]).expect("memory can be read");
        let cut = input.take(u32::MAX);
        assert!(matches!(cut, Err(CaptureError::Truncated { at: 1_000 })));
        assert!(input.buffer.capacity() < 4_000);
    }
}
