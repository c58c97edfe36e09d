//! How many flows there are, of packets that go by: about, in 2 KiB.

use std::time::Duration;

use forebay_stack::time::Instant;

const BITS: usize = 1 << 14;

/// How long flows are counted before it begins anew.
const WINDOW: Duration = Duration::from_secs(1);

/// A bit for each group of flows, set when a packet of one comes; by the bits that are still clear,
/// one can tell how many flows there must have been (linear counting). Within 2 % up to some 50,000
/// flows; at most 158,991.
pub(crate) struct FlowSketch {
    bits: Box<[u64]>,
    /// Number of the window that the bits are of.
    window: u64,
}

/// The flows of a window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlowCount {
    window: u64,
    flows: usize,
}

impl FlowSketch {
    pub(crate) fn new() -> Self {
        Self {
            bits: vec![0; BITS / 64].into(),
            window: 0,
        }
    }

    /// Packets of flows with these hashes came. Returns how many flows the last window had, when it
    /// has just ended.
    pub(crate) fn count(&mut self, now: Instant, hashes: &[u32]) -> Option<FlowCount> {
        let window = window(now);
        let ended = (window != self.window).then(|| FlowCount {
            window: self.window,
            flows: self.estimate(),
        });
        if ended.is_some() {
            self.bits.fill(0);
            self.window = window;
        }
        for hash in hashes {
            let bit = *hash as usize % BITS;
            if let Some(word) = self.bits.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        ended
    }

    fn estimate(&self) -> usize {
        let clear: u32 = self.bits.iter().map(|word| word.count_zeros()).sum();
        let bits = BITS as f64;
        (bits * (bits / f64::from(clear.max(1))).ln()).round() as usize
    }
}

impl FlowCount {
    /// How many flows there were lately. A window that ended long ago says nothing any more.
    pub(crate) fn at(self, now: Instant) -> usize {
        if window(now).saturating_sub(self.window) <= 2 {
            self.flows
        } else {
            0
        }
    }
}

fn window(now: Instant) -> u64 {
    now.as_nanos() / WINDOW.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    /// The finalizer of MurmurHash3.
    fn mixed(n: u32) -> u32 {
        let n = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b);
        let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35);
        n ^ n >> 16
    }

    #[test]
    fn flows_are_counted_within_a_few_percent() {
        for flows in [0, 1, 10, 1_000, 50_000_u32] {
            let mut sketch = FlowSketch::new();
            // Hashes as a hash function gives them, each of them twice.
            let hashes: Vec<u32> = (0..flows).map(mixed).collect();
            assert!(sketch.count(second(1), &[]).is_some(), "of second 0");
            assert!(sketch.count(second(1), &hashes).is_none());
            assert!(sketch.count(second(1), &hashes).is_none());
            let counted = sketch.count(second(2), &[]).unwrap().at(second(2));
            let off = (counted as f64 - f64::from(flows)).abs();
            assert!(off <= f64::from(flows) * 0.04, "{counted} of {flows}");
        }
    }

    #[test]
    fn what_was_counted_goes_out_of_date() {
        let mut sketch = FlowSketch::new();
        sketch.count(second(7), &[1, 2, 3]);
        let count = sketch.count(second(8), &[]).unwrap();
        assert_eq!(count.at(second(8)), 3);
        assert_eq!(count.at(second(9)), 3);
        assert_eq!(count.at(second(10)), 0);
    }

    #[test]
    fn more_flows_than_can_be_told_apart_are_many() {
        let mut sketch = FlowSketch::new();
        let hashes: Vec<u32> = (0..BITS as u32).collect();
        sketch.count(second(1), &hashes);
        let count = sketch.count(second(2), &[]).unwrap();
        assert_eq!(count.at(second(2)), 158_991);
    }
}
