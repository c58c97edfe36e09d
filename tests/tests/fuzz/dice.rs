//! Choice from a seed.

use std::cell::Cell;

/// A stream of choices that the seed decides (SplitMix64).
pub(crate) struct Dice(Cell<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds would make streams that are each other's, one step later.
        Self(Cell::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    pub(crate) fn u64(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn u32(&self) -> u32 {
        (self.u64() >> 32) as u32
    }

    pub(crate) fn u16(&self) -> u16 {
        (self.u64() >> 48) as u16
    }

    pub(crate) fn u8(&self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        ((u128::from(self.u64()) * bound as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn coin(&self) -> bool {
        self.once_in(2)
    }

    pub(crate) fn pick<T: Clone>(&self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Lengths and counts: mostly small, at times up to `max`.
    pub(crate) fn len(&self, max: usize) -> usize {
        let bound = match self.below(8) {
            0 => max + 1,
            1 => max.min(1_600) + 1,
            _ => max.min(100) + 1,
        };
        self.below(bound)
    }

    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u8()).collect()
    }
}
