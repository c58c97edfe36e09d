//! Bytes that are put in at the end and dropped from the front: what a sender keeps until it is
//! acknowledged.

use super::{CHUNK, ChunkRow, Chunks};

/// A queue of bytes, of which any can be read. It must be emptied with [`clear`](Self::clear)
/// before it goes, or its chunks stay charged.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    row: ChunkRow,
    /// The place of the first byte, in the first chunk.
    head: usize,
    len: usize,
}

impl ByteQueue {
    /// Bytes in it.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the chunks that it holds.
    #[inline]
    pub(crate) fn charged(&self) -> usize {
        self.row.held() * CHUNK
    }

    /// Puts bytes at the end, as far as there is memory for them; returns how many.
    #[inline]
    pub(crate) fn push(&mut self, chunks: &mut Chunks, bytes: &[u8]) -> usize {
        let pushed = self.row.write(chunks, self.head + self.len, bytes);
        self.len += pushed;
        pushed
    }

    /// Drops `count` bytes from the front, or all if there are no more.
    #[inline]
    pub(crate) fn drop_front(&mut self, chunks: &mut Chunks, count: usize) {
        if count >= self.len {
            return self.clear(chunks);
        }
        self.len -= count;
        self.head += count;
        self.row.drop_front(chunks, self.head / CHUNK);
        self.head %= CHUNK;
    }

    /// `len` bytes from the one at `offset` on, chunk by chunk, as far as they are there.
    #[inline]
    pub(crate) fn slices(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let offset = offset.min(self.len);
        let mut at = self.head + offset;
        let end = at + len.min(self.len - offset);
        core::iter::from_fn(move || {
            let bytes = self.row.bytes_at(at);
            let bytes = &bytes[..bytes.len().min(end - at)];
            at += bytes.len();
            (!bytes.is_empty()).then_some(bytes)
        })
    }

    /// Drops all bytes.
    #[inline]
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        self.row.clear(chunks);
        (self.head, self.len) = (0, 0);
    }
}
