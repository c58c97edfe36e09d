//! Randomness from a seed, so that a run can be repeated.

use crate::siphash::Key;

/// A stream of pseudo-random numbers (SplitMix64), for jitter and choice. Whoever sees a few of them
/// can tell the rest.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 if `bound` is 0), by multiplication instead of division.
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = (self.next_u64() >> 32) * u64::from(bound);
        u32::try_from(wide >> 32).unwrap_or(0)
    }
}

/// A stream that nobody foresees who does not know the key, however much of it he has seen: a keyed
/// hash of a counter. For what strangers must not guess: identifications (RFC 7739), ports
/// (RFC 6056).
#[derive(Debug, Clone)]
pub(crate) struct SecretRandom {
    key: Key,
    counter: u64,
}

impl SecretRandom {
    /// One of 2^16 streams under `key`, each 2^48 numbers long before it runs into the next.
    pub(crate) fn new(key: Key, stream: u16) -> Self {
        Self {
            key,
            counter: u64::from(stream) << 48,
        }
    }

    /// The next 32 bits.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.counter = self.counter.wrapping_add(1);
        let [a, b, c, d, ..] = self.key.hash([self.counter], 0, 0).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}
