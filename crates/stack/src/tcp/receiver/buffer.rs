//! Bytes that have come, in order and ahead of it, until they are read.
//!
//! Each byte has its place by its sequence number, wherever the segment that brought it began: one
//! that comes ahead of others is written where it will be read. So putting in order costs nothing
//! later, and what a peer can make us hold is bounded by the window, not by how it cuts segments.
//!
//! Where segments overlap, bytes that are in order, or come so, win: over what came again, and over
//! what waits ahead of them. Of two that are ahead, the byte that came first stays.

use crate::tcp::chunks::{CHUNK, ChunkRow, Chunks};
use crate::wire::seq::{Seq, SeqRange};

/// Stretches ahead that one connection may have. At 20 % loss a window of 10,000 segments has not
/// half as many; a peer that sends every other byte gets no further.
const MOST_AHEAD: usize = 4_096;

/// The bytes of a segment, or of several joined ones, in pieces.
pub(crate) type Pieces<'a> = &'a [&'a [u8]];

#[derive(Debug)]
pub(super) struct Buffer {
    row: ChunkRow,
    /// The byte at the row's place 0.
    origin: Seq,
    /// The first byte that was not read.
    read: Seq,
    /// The first byte that has not come.
    next: Seq,
    /// Stretches behind `next` that have come: in order, apart from each other.
    ahead: Vec<SeqRange>,
}

impl Buffer {
    /// A buffer that waits for the byte at `next`.
    pub(super) fn new(next: Seq) -> Self {
        Self {
            row: ChunkRow::default(),
            origin: next,
            read: next,
            next,
            ahead: Vec::new(),
        }
    }

    /// The first byte that was not read.
    #[inline]
    pub(super) fn read_at(&self) -> Seq {
        self.read
    }

    /// The first byte that has not come.
    #[inline]
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// Bytes in order.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.next - self.read
    }

    #[inline]
    pub(super) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Bytes of the chunks that it holds.
    #[inline]
    pub(super) fn charged(&self) -> usize {
        self.row.held() * CHUNK
    }

    /// Adds `len` bytes of `pieces` from the one at `skip` on, which come next in order, as far as
    /// there is memory for them; returns how many. What they reach of the stretches ahead is in
    /// order then, too.
    #[inline]
    pub(super) fn append(
        &mut self,
        chunks: &mut Chunks,
        pieces: Pieces<'_>,
        skip: usize,
        len: usize,
    ) -> usize {
        let added = self.write(chunks, self.next, pieces, skip, len);
        self.next += added as u32;
        if self.has_ahead() {
            self.join();
        }
        added
    }

    /// Puts bytes where they belong ahead of what has come: `len` of `pieces` from the one at `skip`
    /// on, the first of them `at`. Returns the stretch they are in now, if there was memory for it.
    pub(super) fn insert(
        &mut self,
        chunks: &mut Chunks,
        at: Seq,
        pieces: Pieces<'_>,
        skip: usize,
        len: usize,
    ) -> Option<SeqRange> {
        let end = at + len as u32;
        // Those that it touches or overlaps become one with it.
        let first = self.ahead.partition_point(|had| had.end.is_before(at));
        let behind = self.ahead[first..].partition_point(|had| !had.start.is_after(end));
        let touched = first..first + behind;
        if touched.is_empty() && self.ahead.len() >= MOST_AHEAD {
            return None;
        }
        // Only what had not come is written.
        let mut from = at;
        let mut merged = SeqRange { start: at, end: at };
        for index in touched.start..=touched.end {
            let had = match index < touched.end {
                true => self.ahead[index],
                false => SeqRange { start: end, end },
            };
            let gap = had.start.since(from) as usize;
            let written = self.write(chunks, from, pieces, skip + (from - at) as usize, gap);
            if written < gap {
                // As far as memory goes. The stretches behind stay apart.
                merged.end = from + written as u32;
                self.ahead.splice(touched.start..index, keep(merged));
                return keep(merged);
            }
            merged.start = merged.start.min(had.start);
            from = from.max(had.end);
            merged.end = from;
        }
        self.ahead.splice(touched, [merged]);
        Some(merged)
    }

    /// The first stretch ahead that the range shares bytes with, as far as it shares them.
    pub(super) fn shared(&self, range: SeqRange) -> Option<SeqRange> {
        let first = self
            .ahead
            .partition_point(|had| !had.end.is_after(range.start));
        let had = self.ahead.get(first)?;
        let shared = SeqRange {
            start: had.start.max(range.start),
            end: had.end.min(range.end),
        };
        (!shared.is_empty()).then_some(shared)
    }

    /// Forgets the stretch that is furthest ahead, and returns it: the peer sends it again.
    pub(super) fn forget_last(&mut self, chunks: &mut Chunks) -> Option<SeqRange> {
        let last = self.ahead.pop()?;
        let end = self.ahead.last().map_or(self.next, |had| had.end);
        self.row.truncate(chunks, (end - self.origin) as usize);
        if self.ahead.is_empty() {
            self.ahead = Vec::new();
            self.restart_if_empty(chunks);
        }
        Some(last)
    }

    /// The bytes from the one at `from` on, as far as they are in order and lie in one chunk.
    #[inline]
    pub(super) fn bytes_from(&self, from: Seq) -> &[u8] {
        let len = self.next.since(from) as usize;
        let bytes = self.row.bytes_at((from - self.origin) as usize);
        &bytes[..bytes.len().min(len)]
    }

    /// Everything before `read` has been read: at most all that is in order.
    #[inline]
    pub(super) fn advance(&mut self, chunks: &mut Chunks, read: Seq) {
        self.read = read;
        if read == self.next && !self.has_ahead() {
            return self.restart_if_empty(chunks);
        }
        let full = (read - self.origin) as usize / CHUNK;
        self.row.drop_front(chunks, full);
        self.origin += (full * CHUNK) as u32;
    }

    /// Gives all memory back. What was not read is gone.
    pub(super) fn clear(&mut self, chunks: &mut Chunks) {
        self.ahead = Vec::new();
        self.read = self.next;
        self.restart_if_empty(chunks);
    }

    /// What comes next is written at the beginning of a chunk, if nothing is there any more.
    #[inline]
    fn restart_if_empty(&mut self, chunks: &mut Chunks) {
        if self.read == self.next {
            self.row.clear(chunks);
            self.origin = self.next;
        }
    }

    /// Writes `len` bytes of `pieces`, from the one at `skip` on, to their place; returns how many.
    #[inline]
    fn write(
        &mut self,
        chunks: &mut Chunks,
        at: Seq,
        pieces: Pieces<'_>,
        skip: usize,
        len: usize,
    ) -> usize {
        let start = (at - self.origin) as usize;
        if let [piece] = pieces
            && let Some(bytes) = piece.get(skip..skip + len)
        {
            return self.row.write(chunks, start, bytes);
        }
        let (mut skip, mut left) = (skip, len);
        for piece in pieces {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let piece = &piece[skip..];
            skip = 0;
            let piece = &piece[..piece.len().min(left)];
            let written = self.row.write(chunks, start + len - left, piece);
            left -= written;
            if written < piece.len() || left == 0 {
                break;
            }
        }
        len - left
    }

    /// Takes the stretches ahead that are reached into what is in order.
    fn join(&mut self) {
        let reached = self
            .ahead
            .partition_point(|had| !had.start.is_after(self.next));
        for had in self.ahead.drain(..reached) {
            self.next = self.next.max(had.end);
        }
        if self.ahead.is_empty() {
            self.ahead = Vec::new();
        }
    }
}

/// A stretch, unless it is empty.
fn keep(range: SeqRange) -> Option<SeqRange> {
    (!range.is_empty()).then_some(range)
}
