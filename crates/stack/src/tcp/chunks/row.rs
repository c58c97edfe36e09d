//! Chunks in a row: bytes by their place, with holes where nothing has come yet.

use std::collections::VecDeque;

use super::{CHUNK, Chunk, Chunks, SLOTS};

/// Chunks behind the first, or holes.
pub(super) type Slots = VecDeque<Option<Chunk>>;

/// A stretch of bytes, the first at place 0. It takes chunks where bytes are written.
///
/// The first chunk has its place in here, so that little takes no memory beside the chunk itself;
/// the slots of others come from the core, too. Chunks must be given back with
/// [`clear`](Self::clear), or they stay charged.
#[derive(Debug, Default)]
pub(crate) struct ChunkRow {
    first: Option<Chunk>,
    rest: Slots,
    /// Chunks that are there.
    held: u32,
}

impl ChunkRow {
    /// Chunks that it holds.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held as usize
    }

    /// Writes bytes from place `at` on, as far as there are chunks for them; returns how many.
    #[inline]
    pub(crate) fn write(&mut self, chunks: &mut Chunks, at: usize, bytes: &[u8]) -> usize {
        // Most often the first chunk has room for all.
        if let Some(chunk) = &mut self.first
            && let Some(room) = chunk.get_mut(at..at + bytes.len())
        {
            room.copy_from_slice(bytes);
            return bytes.len();
        }
        self.write_across(chunks, at, bytes)
    }

    fn write_across(&mut self, chunks: &mut Chunks, at: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let Some(chunk) = self.chunk_for(at / CHUNK, chunks) else {
                break;
            };
            let room = &mut chunk[at % CHUNK..];
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            at += now.len();
            rest = later;
        }
        bytes.len() - rest.len()
    }

    /// The bytes from place `at` on, as far as they lie in one chunk; none if there is a hole.
    #[inline]
    pub(crate) fn bytes_at(&self, at: usize) -> &[u8] {
        let chunk = match at / CHUNK {
            0 => self.first.as_ref(),
            index => self.rest.get(index - 1).and_then(Option::as_ref),
        };
        chunk.map_or(&[], |chunk| &chunk[at % CHUNK..])
    }

    /// Gives back the first `count` chunks and holes: what lay behind them moves to place 0.
    #[inline]
    pub(crate) fn drop_front(&mut self, chunks: &mut Chunks, count: usize) {
        for _ in 0..count {
            self.held -= u32::from(self.first.is_some());
            if let Some(chunk) = self.first.take() {
                chunks.give(chunk);
            }
            self.first = self.rest.pop_front().flatten();
        }
        if self.held == 0 {
            self.give_slots(chunks);
        }
    }

    /// Gives back the chunks in which no place before `at` lies.
    pub(crate) fn truncate(&mut self, chunks: &mut Chunks, at: usize) {
        let keep = at.div_ceil(CHUNK);
        for chunk in self
            .rest
            .drain(keep.saturating_sub(1).min(self.rest.len())..)
        {
            self.held -= u32::from(chunk.is_some());
            chunk.into_iter().for_each(|chunk| chunks.give(chunk));
        }
        if keep == 0 {
            self.drop_front(chunks, 1);
        }
    }

    /// Gives back everything.
    #[inline]
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        if self.rest.capacity() > 0 {
            return self.drop_front(chunks, 1 + self.rest.len());
        }
        if let Some(chunk) = self.first.take() {
            chunks.give(chunk);
        }
        self.held = 0;
    }

    /// The chunk at `index`, taken if there is none yet.
    #[inline]
    fn chunk_for(&mut self, index: usize, chunks: &mut Chunks) -> Option<&mut Chunk> {
        let slot = match index {
            0 => &mut self.first,
            _ => {
                if self.rest.len() < index {
                    lengthen(&mut self.rest, chunks, index);
                }
                self.rest.get_mut(index - 1)?
            }
        };
        if slot.is_none() {
            *slot = match self.held {
                0 => chunks.take_first(),
                _ => chunks.take(),
            };
            self.held += u32::from(slot.is_some());
        }
        slot.as_mut()
    }

    fn give_slots(&mut self, chunks: &mut Chunks) {
        if self.rest.capacity() > 0 {
            chunks.give_slots(core::mem::take(&mut self.rest));
        }
    }
}

/// Makes it `len` slots, the new ones holes.
fn lengthen(slots: &mut Slots, chunks: &mut Chunks, len: usize) {
    if slots.capacity() == 0 {
        *slots = chunks.take_slots();
    }
    slots.resize_with(len, || None);
}

impl Chunks {
    fn take_slots(&mut self) -> Slots {
        self.slots.pop().unwrap_or_default()
    }

    fn give_slots(&mut self, mut slots: Slots) {
        slots.clear();
        // A few KiB for each; one that was very long is freed.
        if self.slots.len() < SLOTS && slots.capacity() <= CHUNK / size_of::<Option<Chunk>>() {
            self.slots.push(slots);
        }
    }
}
