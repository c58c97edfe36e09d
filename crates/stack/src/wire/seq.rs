//! Sequence numbers (RFC 9293 section 3.4): places in a stream of bytes, modulo 2^32.

use core::ops::{Add, AddAssign, Sub};

/// A place in a stream. There is no order among all of them, but two that are less than 2^31 apart
/// are one before the other.
///
/// At 2^31 exactly each is before the other; nobody has a window that large.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether it lies before `other`.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether it lies behind `other`.
    #[inline]
    pub fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// The one that lies further on.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The one that lies further back.
    #[inline]
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// Bytes from `earlier` to here; 0 if `earlier` is not earlier.
    #[inline]
    pub fn since(self, earlier: Self) -> u32 {
        if earlier.is_before(self) {
            self - earlier
        } else {
            0
        }
    }
}

impl core::fmt::Debug for Seq {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl Sub for Seq {
    type Output = u32;

    /// Bytes from `other` on to here, going forward: almost 2^32 if `other` lies behind.
    #[inline]
    fn sub(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

/// A stretch of a stream, from `start` up to `end`, which belongs to it no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeqRange {
    /// The first byte.
    pub start: Seq,
    /// The one behind the last.
    pub end: Seq,
}

impl SeqRange {
    /// Its length in bytes; 0 if it ends before it starts.
    #[inline]
    pub fn len(self) -> u32 {
        self.end.since(self.start)
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether a place lies in it.
    #[inline]
    pub fn contains(self, seq: Seq) -> bool {
        !seq.is_before(self.start) && seq.is_before(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_round() {
        for base in [0, 1, 0x7fff_fff0, 0x8000_0000, 0xffff_fff0, u32::MAX] {
            let here = Seq(base);
            for distance in [1, 2, 0x20, 0x1_0000, 0x7fff_ffff] {
                let there = here + distance;
                assert!(here.is_before(there) && there.is_after(here));
                assert!(!there.is_before(here) && !here.is_after(there));
                assert_eq!((here.max(there), here.min(there)), (there, here));
                assert_eq!((there.max(here), there.min(here)), (there, here));
                assert_eq!((there - here, there - distance), (distance, here));
                assert_eq!((there.since(here), here.since(there)), (distance, 0));
            }
            assert!(!here.is_before(here) && !here.is_after(here));
        }
    }

    #[test]
    fn ranges() {
        for base in [0, 0x7fff_fffe, u32::MAX - 1] {
            let range = |from: u32, to: u32| SeqRange {
                start: Seq(base) + from,
                end: Seq(base) + to,
            };
            assert_eq!((range(0, 4).len(), range(4, 0).len()), (4, 0));
            assert!(range(3, 3).is_empty() && range(3, 2).is_empty());
            let inside = |n: u32| range(1, 4).contains(Seq(base) + n);
            assert_eq!([0, 1, 3, 4].map(inside), [false, true, true, false]);
        }
    }
}
