//! What the peer is told of bytes that are ahead (RFC 2018), or that came twice (RFC 2883).

use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

/// Blocks that are remembered: as many as an option can hold.
const BLOCKS: usize = 4;

/// The stretches ahead that changed last, and the one that came twice.
#[derive(Debug, Default)]
pub(super) struct Sack {
    /// The latest first; each is a stretch ahead, whole. What is unused is empty.
    latest: [SeqRange; BLOCKS],
    /// Told once (RFC 2883 section 4).
    twice: SeqRange,
}

impl Sack {
    /// A stretch ahead has come about, or grown: it comes first (RFC 2018 section 4).
    pub(super) fn note(&mut self, stretch: SeqRange) {
        let others = self.latest.into_iter();
        let others = others.filter(|block| !stretch.contains(block.start));
        self.latest = first_of(core::iter::once(stretch).chain(others));
    }

    /// Bytes came that had come before. The first such since the last acknowledgement is told.
    pub(super) fn note_twice(&mut self, range: SeqRange) {
        if self.twice.is_empty() {
            self.twice = range;
        }
    }

    /// Forgets what is not ahead any more: what begins before `next`, or at `end` or behind it.
    pub(super) fn retain(&mut self, next: Seq, end: Seq) {
        let is_ahead = |block: &SeqRange| block.start.is_after(next) && block.start.is_before(end);
        self.latest = first_of(self.latest.into_iter().filter(is_ahead));
    }

    /// The blocks of the next acknowledgement.
    #[inline]
    pub(super) fn blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        if self.latest[0].is_empty() && self.twice.is_empty() {
            return blocks;
        }
        for block in [self.twice].into_iter().chain(self.latest) {
            if !block.is_empty() {
                blocks.push(block);
            }
        }
        blocks
    }

    /// They were told.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.twice = SeqRange::default();
    }
}

/// The first blocks that are not empty.
fn first_of(blocks: impl Iterator<Item = SeqRange>) -> [SeqRange; BLOCKS] {
    let mut first = [SeqRange::default(); BLOCKS];
    let blocks = blocks.filter(|block| !block.is_empty());
    first
        .iter_mut()
        .zip(blocks)
        .for_each(|(place, block)| *place = block);
    first
}
