//! HyStart (Ha and Rhee, "Taming the elephants: new TCP slow start", 2011): ends slow start ahead
//! of the loss that would.
//!
//! Either of two signs says that the path is full, or about to be: acknowledgements of a round that
//! come close upon each other for as long as half a round trip, and round trips that grow longer.

use core::time::Duration;

use super::AckSample;
use crate::time::Instant;

/// Packets below which no window is too large.
const LEAST_WINDOW: u32 = 16;

/// Acknowledgements no further apart belong to the same train.
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Samples of a round that say what its round trip is.
const SAMPLES: u8 = 8;

/// By how much round trips must have grown at least, and need to grow at most.
const GROWN: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));

/// Bytes that may come in one burst, and their acknowledgements with them: segments that leave in
/// one piece, a few of these.
const BURST: u64 = 4 * 65_536;

/// What is known of a round of slow start.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    round_start: Instant,
    last_ack: Instant,
    /// Packets to be acknowledged before the next round begins.
    left: u32,
    /// The least round trip of this round.
    least: Option<Duration>,
    samples: u8,
    is_done: bool,
}

impl HyStart {
    /// Whether slow start has to end. Says so once.
    pub(super) fn is_enough(&mut self, sample: &AckSample, cwnd: u32) -> bool {
        let (Some(rtt), Some(min_rtt)) = (sample.rtt, sample.min_rtt) else {
            self.left = self.left.saturating_sub(sample.acked);
            return false;
        };
        if self.is_done || cwnd < LEAST_WINDOW {
            return false;
        }
        if sample.acked > self.left {
            self.begin_round(sample);
        } else {
            self.left -= sample.acked;
        }
        self.is_done = self.is_train(sample, min_rtt, cwnd) || self.is_delayed(rtt, min_rtt);
        self.is_done
    }

    /// A round ends with the first packet that left after it had begun.
    fn begin_round(&mut self, sample: &AckSample) {
        self.round_start = sample.now;
        self.last_ack = sample.now;
        self.left = sample.in_flight.saturating_sub(sample.acked);
        self.least = None;
        self.samples = 0;
    }

    /// A train that takes half a round trip to come was sent as one of a whole round trip: each
    /// acknowledgement lets two packets go.
    fn is_train(&mut self, sample: &AckSample, min_rtt: Duration, cwnd: u32) -> bool {
        if sample.now - self.last_ack > TRAIN_GAP {
            return false;
        }
        self.last_ack = sample.now;
        let threshold = (min_rtt + ack_delay(sample, cwnd)) / 2;
        sample.now - self.round_start > threshold
    }

    fn is_delayed(&mut self, rtt: Duration, min_rtt: Duration) -> bool {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        least > min_rtt + (min_rtt / 8).clamp(GROWN.0, GROWN.1)
    }
}

/// How long acknowledgements may have waited for each other: what a burst takes at twice the
/// window in a round trip, a millisecond at most.
fn ack_delay(sample: &AckSample, cwnd: u32) -> Duration {
    let window = 2 * u64::from(cwnd) * u64::from(sample.mss.max(1));
    let srtt = sample.srtt.unwrap_or_default().as_nanos();
    let nanos = u128::from(BURST) * srtt / u128::from(window);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Acknowledges `packets` of a window of `cwnd`, `gap` apart, each with `rtt`; returns how many
    /// it takes to be enough.
    fn round(
        hystart: &mut HyStart,
        now: &mut Instant,
        (cwnd, packets): (u32, u32),
        gap: Duration,
        rtt: impl Fn(u32) -> Duration,
    ) -> Option<u32> {
        (0..packets).find(|&i| {
            *now += gap;
            let sample = AckSample {
                now: *now,
                acked: 1,
                in_flight: cwnd,
                rtt: Some(rtt(i)),
                min_rtt: Some(40 * MS),
                srtt: Some(40 * MS),
                mss: 1448,
                rate: None,
                is_cwnd_limited: true,
                in_recovery: false,
            };
            hystart.is_enough(&sample, cwnd)
        })
    }

    #[test]
    fn a_train_of_half_a_round_trip_is_enough() {
        let mut hystart = HyStart::default();
        let mut now = Instant::ZERO;
        // 15 ms of train, at 0.5 ms each.
        assert_eq!(
            round(&mut hystart, &mut now, (31, 31), MS / 2, |_| 40 * MS),
            None
        );
        now += 25 * MS;
        // (40 ms + 1 ms) / 2 are over after 41 gaps and a half.
        assert_eq!(
            round(&mut hystart, &mut now, (62, 62), MS / 2, |_| 40 * MS),
            Some(42)
        );
    }

    #[test]
    fn slow_acknowledgements_are_no_train() {
        let mut hystart = HyStart::default();
        let mut now = Instant::ZERO;
        assert_eq!(
            round(&mut hystart, &mut now, (40, 200), 3 * MS, |_| 40 * MS),
            None
        );
    }

    #[test]
    fn longer_round_trips_are_enough_after_eight() {
        let mut hystart = HyStart::default();
        let mut now = Instant::ZERO;
        // An eighth of 40 ms is 5.
        let fine = |_| 45 * MS;
        assert_eq!(round(&mut hystart, &mut now, (20, 20), 3 * MS, fine), None);
        let grown = |_| 46 * MS;
        assert_eq!(
            round(&mut hystart, &mut now, (20, 20), 3 * MS, grown),
            Some(8)
        );
    }

    #[test]
    fn one_short_round_trip_clears_a_round() {
        let mut hystart = HyStart::default();
        let mut now = Instant::ZERO;
        let mostly = |i| if i == 3 { 41 * MS } else { 60 * MS };
        assert_eq!(
            round(&mut hystart, &mut now, (20, 20), 3 * MS, mostly),
            None
        );
    }

    #[test]
    fn small_windows_are_never_too_large() {
        let mut hystart = HyStart::default();
        let mut now = Instant::ZERO;
        let long = |_| 500 * MS;
        assert_eq!(round(&mut hystart, &mut now, (15, 99), MS, long), None);
        assert_eq!(round(&mut hystart, &mut now, (16, 99), MS, long), Some(8));
        assert_eq!(round(&mut hystart, &mut now, (16, 99), MS, long), None);
    }
}
