//! Choice from a seed.

use std::cell::RefCell;

use forebay_stack::random::Random;

/// A stream of choices that the seed decides.
pub(crate) struct Dice(RefCell<Random>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds would make streams that are each other's, one step later.
        Self(RefCell::new(Random::new(
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d),
        )))
    }

    pub(crate) fn u8(&self) -> u8 {
        self.0.borrow_mut().next_u64() as u8
    }

    pub(crate) fn u16(&self) -> u16 {
        self.0.borrow_mut().next_u64() as u16
    }

    pub(crate) fn u32(&self) -> u32 {
        self.0.borrow_mut().next_u32()
    }

    pub(crate) fn u64(&self) -> u64 {
        self.0.borrow_mut().next_u64()
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        self.0.borrow_mut().below(bound as u32) as usize
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
