//! Randomness from a seed, so that a run can be repeated.

/// A stream of pseudo-random numbers (SplitMix64), for jitter and choice; nothing secret comes from
/// it.
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

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.next_u64().to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// A number below `bound` (0 if `bound` is 0), by multiplication instead of division.
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = u64::from(self.next_u32()) * u64::from(bound);
        u32::try_from(wide >> 32).unwrap_or(0)
    }
}
