//! What BBR remembers of the path: the greatest bandwidth of late, and by how much acknowledgements
//! come in lumps.

use crate::time::Instant;

/// Rounds that a bandwidth is remembered for.
const ROUNDS: usize = 10;

/// Rounds that a half of the memory of lumps spans.
const LUMP_ROUNDS: u32 = 5;

/// Packets in a lump at most, before counting begins anew.
const MOST_LUMP: u64 = 1 << 20;

/// The greatest bandwidth of the last rounds, in bytes a second.
///
/// Time passes with samples: a path that nothing is known of stays as it was.
#[derive(Debug, Clone, Default)]
pub(super) struct MaxBandwidth {
    /// The greatest of each round.
    rounds: [u64; ROUNDS],
    /// The round of the last sample.
    round: u64,
    max: u64,
}

impl MaxBandwidth {
    pub(super) fn get(&self) -> u64 {
        self.max
    }

    pub(super) fn update(&mut self, round: u64, rate: u64) {
        for passed in (self.round + 1..=round).take(ROUNDS) {
            self.rounds[place(passed)] = 0;
        }
        self.round = round;
        let best = &mut self.rounds[place(round)];
        *best = rate.max(*best);
        self.max = self.rounds.iter().copied().max().unwrap_or(0);
    }
}

fn place(round: u64) -> usize {
    (round % ROUNDS as u64) as usize
}

/// How many packets more than the bandwidth explains come acknowledged at a time, as with radio
/// links and receivers that merge segments (draft-cardwell-iccrg-bbr-congestion-control-02 section
/// 4.5.9).
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    since: Instant,
    acked: u64,
    /// The most of this half of the memory and of the one before.
    most: [u32; 2],
    rounds: u32,
}

impl Aggregation {
    /// The most packets of late.
    pub(super) fn get(&self) -> u32 {
        self.most[0].max(self.most[1])
    }

    /// Takes in `acked` packets, with `bandwidth` in packets a second.
    pub(super) fn update(
        &mut self,
        now: Instant,
        is_round_start: bool,
        (acked, cwnd): (u32, u32),
        bandwidth: f64,
    ) {
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= LUMP_ROUNDS {
                self.rounds = 0;
                self.most = [0, self.most[0]];
            }
        }
        let expected = |since| (bandwidth * (now - since).as_secs_f64()) as u64;
        // Where no more has come than the bandwidth explains, a new lump may begin.
        if self.acked <= expected(self.since) || self.acked + u64::from(acked) >= MOST_LUMP {
            (self.since, self.acked) = (now, 0);
        }
        self.acked += u64::from(acked);
        let extra = self.acked.saturating_sub(expected(self.since));
        let extra = u32::try_from(extra).unwrap_or(u32::MAX).min(cwnd);
        self.most[0] = self.most[0].max(extra);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bandwidth_is_forgotten_after_ten_rounds() {
        let mut max = MaxBandwidth::default();
        max.update(0, 7);
        max.update(3, 5);
        max.update(9, 1);
        assert_eq!(max.get(), 7);
        max.update(10, 1);
        assert_eq!(max.get(), 5);
        max.update(13, 1);
        assert_eq!(max.get(), 1);
        max.update(1_000, 0);
        assert_eq!(max.get(), 0);
    }

    proptest! {
        #[test]
        fn is_the_greatest_of_all_in_the_window(
            mut round in 0u64..1000,
            samples in prop::collection::vec((0u64..4, 0u64..100), 1..100),
        ) {
            let mut max = MaxBandwidth::default();
            let mut model = VecDeque::new();
            for (passed, rate) in samples {
                round += passed;
                model.push_back((round, rate));
                model.retain(|(at, _)| at + ROUNDS as u64 > round);
                max.update(round, rate);
                prop_assert_eq!(Some(max.get()), model.iter().map(|it| it.1).max());
            }
        }
    }

    #[test]
    fn lumps_are_what_the_bandwidth_does_not_explain() {
        let mut aggregation = Aggregation::default();
        let mut now = Instant::ZERO;
        // A thousand a second, one by one.
        for _ in 0..100 {
            now += Duration::from_millis(1);
            aggregation.update(now, false, (1, 100), 1000.0);
        }
        assert!(aggregation.get() <= 1, "{}", aggregation.get());
        // The same in lumps of twenty.
        for _ in 0..10 {
            now += Duration::from_millis(20);
            aggregation.update(now, false, (20, 100), 1000.0);
        }
        assert_eq!(aggregation.get(), 20);
        // Ten rounds after the last of them has passed they are forgotten.
        now += Duration::from_millis(20);
        for round in 0..10 {
            assert_eq!(aggregation.get(), 20, "{round}");
            now += Duration::from_millis(1);
            aggregation.update(now, true, (1, 100), 1000.0);
        }
        assert!(aggregation.get() <= 1, "{}", aggregation.get());
    }

    #[test]
    fn no_lump_is_larger_than_the_window() {
        let mut aggregation = Aggregation::default();
        aggregation.update(Instant::ZERO, false, (u32::MAX, 40), 0.0);
        aggregation.update(Instant::ZERO, false, (u32::MAX, 40), f64::INFINITY);
        assert_eq!(aggregation.get(), 40);
    }
}
