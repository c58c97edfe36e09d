//! How long a round trip takes, and how long to wait for an acknowledgement (RFC 6298).
//!
//! As on Linux, the timeout is the smoothed round trip plus a variance that never counts for less
//! than `rto_min`, 200 ms; so a steady path of 100 ms has a timeout of 300 ms, not of 200. The
//! variance is the largest of the round trips of one window, and forgets a quarter of what was
//! larger before in each: a path that becomes steady gets a shorter timeout in a few windows, not
//! within one that has hundreds of samples.

use core::time::Duration;

use crate::time::Instant;
use crate::wire::seq::Seq;

/// The timeout while there is no sample (RFC 6298 section 2.1).
pub(crate) const RTO_INITIAL: Duration = Duration::from_secs(1);
/// The timeout if the handshake was retransmitted and gave no sample (RFC 6298 section 5.7).
pub(crate) const RTO_FALLBACK: Duration = Duration::from_secs(3);

/// Smoothed round trip and its variance; in microseconds, scaled as RFC 6298 appendix A of its
/// forerunner suggests, so that nothing is lost to rounding.
#[derive(Debug, Clone)]
pub(crate) struct RttEstimator {
    /// Eight times the smoothed round trip; 0 until there is a sample.
    srtt8: u32,
    /// Four times the mean deviation.
    mdev4: u32,
    /// The largest `mdev4` of the window under way, at least `rto_min`.
    mdev4_max: u32,
    /// The variance of which the timeout is made.
    variance: u32,
    /// The window under way ends when this is acknowledged.
    window_end: Seq,
    rto_min: u32,
    rto_max: u32,
}

impl RttEstimator {
    /// No sample yet; a timeout lies between `rto_min` and `rto_max`.
    pub(crate) fn new(rto_min: Duration, rto_max: Duration) -> Self {
        Self {
            srtt8: 0,
            mdev4: 0,
            mdev4_max: 0,
            variance: micros(RTO_INITIAL),
            window_end: Seq(0),
            rto_min: micros(rto_min),
            rto_max: micros(rto_max),
        }
    }

    /// The handshake gave no sample and was retransmitted: waits longer until there is one.
    pub(crate) fn fall_back(&mut self) {
        if self.srtt8 == 0 {
            self.variance = micros(RTO_FALLBACK);
        }
    }

    /// Takes a sample. `una` and `next` are the connection's, to tell windows apart.
    pub(crate) fn sample(&mut self, rtt: Duration, una: Seq, next: Seq) {
        let rtt = micros(rtt).clamp(1, u32::MAX / 16);
        if self.srtt8 == 0 {
            self.srtt8 = 8 * rtt;
            self.mdev4 = 2 * rtt;
            self.variance = self.mdev4.max(self.rto_min);
            self.mdev4_max = self.variance;
            self.window_end = next;
            return;
        }
        let srtt = self.srtt8 / 8;
        let error = rtt.abs_diff(srtt);
        let mdev = self.mdev4 / 4;
        if rtt < srtt && error > mdev {
            // A round trip that got much shorter is no reason to wait longer (RFC 6298 would); so
            // it counts for little.
            self.mdev4 += (error - mdev) / 8;
        } else {
            self.mdev4 = self.mdev4 - mdev + error;
        }
        self.srtt8 = self.srtt8 - srtt + rtt;
        self.mdev4_max = self.mdev4_max.max(self.mdev4);
        self.variance = self.variance.max(self.mdev4_max);
        if una.is_after(self.window_end) {
            self.variance -= (self.variance - self.mdev4_max) / 4;
            self.window_end = next;
            self.mdev4_max = self.rto_min;
        }
    }

    /// The smoothed round trip, once there was a sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        (self.srtt8 > 0).then(|| Duration::from_micros(u64::from(self.srtt8) / 8))
    }

    /// The mean deviation, as `ss` shows it behind the round trip.
    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_micros(u64::from(self.mdev4) / 4)
    }

    /// How long to wait for an acknowledgement, after `backoff` timeouts in a row (RFC 6298
    /// section 5.5).
    pub(crate) fn rto(&self, backoff: u8) -> Duration {
        let base = u64::from(
            (self.srtt8 / 8)
                .saturating_add(self.variance)
                .min(self.rto_max),
        );
        let backed_off = base << u32::from(backoff.min(32));
        Duration::from_micros(backed_off.min(u64::from(self.rto_max)))
    }

    /// The shortest and the longest timeout.
    pub(crate) fn rto_bounds(&self) -> (Duration, Duration) {
        let duration = |us| Duration::from_micros(u64::from(us));
        (duration(self.rto_min), duration(self.rto_max))
    }
}

/// The shortest round trip of the last while.
///
/// Two windows of which each begins where the one before ends: what it says is at least one
/// window old and less than two.
#[derive(Debug, Clone)]
pub(crate) struct MinRtt {
    /// The least of the window before, and of the one under way, in microseconds.
    least: [u32; 2],
    /// Seconds.
    window: u32,
    /// When the window under way began.
    since: Instant,
}

impl MinRtt {
    /// No sample yet; forgets after `window` (`tcp_min_rtt_wlen`), of which seconds count.
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            least: [u32::MAX; 2],
            window: u32::try_from(window.as_secs()).unwrap_or(u32::MAX),
            since: Instant::ZERO,
        }
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration) {
        if now - self.since > Duration::from_secs(self.window.into()) {
            self.least = [self.least[1], u32::MAX];
            self.since = now;
        }
        self.least[1] = self.least[1].min(micros(rtt));
    }

    /// The shortest, once there was a sample.
    pub(crate) fn get(&self) -> Option<Duration> {
        let least = self.least[0].min(self.least[1]);
        (least < u32::MAX).then(|| Duration::from_micros(least.into()))
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn estimator() -> RttEstimator {
        RttEstimator::new(200 * MS, 120_000 * MS)
    }

    /// Takes samples, one in each window.
    fn sample(rtt: &mut RttEstimator, una: &mut Seq, ms: u32) {
        *una += 10;
        rtt.sample(ms * MS, *una, *una + 5);
    }

    #[test]
    fn what_is_waited_before_there_is_a_sample() {
        let mut rtt = estimator();
        assert_eq!((rtt.srtt(), rtt.rto(0)), (None, 1_000 * MS));
        rtt.fall_back();
        assert_eq!(rtt.rto(0), 3_000 * MS);
        rtt.sample(10 * MS, Seq(0), Seq(0));
        assert_eq!(rtt.rto(0), 210 * MS);
        rtt.fall_back();
        assert_eq!(rtt.rto(0), 210 * MS);
    }

    #[test]
    fn the_first_sample() {
        // The round trip and four times its half, which is never less than 200 ms.
        for (ms, rto) in [
            (0, 200),
            (1, 201),
            (50, 250),
            (100, 300),
            (200, 600),
            (1_000, 3_000),
        ] {
            let mut rtt = estimator();
            rtt.sample(ms * MS, Seq(0), Seq(0));
            assert_eq!(rtt.rto(0).as_millis(), rto, "{ms}");
        }
    }

    #[test]
    fn a_steady_path_has_a_steady_timeout() {
        for first in [0, u32::MAX - 500, 0x7fff_ff00] {
            let (mut rtt, mut una) = (estimator(), Seq(first));
            for _ in 0..100 {
                sample(&mut rtt, &mut una, 300);
            }
            assert_eq!(rtt.srtt(), Some(300 * MS));
            assert_eq!(rtt.rto(0).as_millis(), 500);
            assert!(rtt.rttvar() < MS);
            // One that takes longer counts at once, and is forgotten by and by.
            sample(&mut rtt, &mut una, 900);
            let high = rtt.rto(0);
            assert!(high > 900 * MS, "{high:?}");
            for _ in 0..3 {
                let before = rtt.rto(0);
                sample(&mut rtt, &mut una, 300);
                assert!(rtt.rto(0) < before);
            }
            for _ in 0..60 {
                sample(&mut rtt, &mut una, 300);
            }
            assert!(rtt.rto(0) < 520 * MS, "{:?}", rtt.rto(0));
        }
    }

    #[test]
    fn a_path_that_became_shorter_is_no_reason_to_wait_longer() {
        let (mut rtt, mut una) = (estimator(), Seq(0));
        for _ in 0..50 {
            sample(&mut rtt, &mut una, 1_000);
        }
        let before = rtt.rto(0);
        for _ in 0..20 {
            sample(&mut rtt, &mut una, 100);
            assert!(rtt.rto(0) <= before + 50 * MS);
        }
    }

    #[test]
    fn doubling_ends() {
        let mut rtt = estimator();
        rtt.sample(100 * MS, Seq(0), Seq(0));
        let seen = [0, 1, 2, 8, 9, 30, u8::MAX].map(|backoff| rtt.rto(backoff).as_millis());
        assert_eq!(seen, [300, 600, 1_200, 76_800, 120_000, 120_000, 120_000]);
    }

    #[test]
    fn samples_out_of_all_proportion() {
        let (mut rtt, mut una) = (estimator(), Seq(0));
        for ms in [u32::MAX, 0, u32::MAX, 1, 0] {
            sample(&mut rtt, &mut una, ms);
            assert!((200 * MS..=120_000 * MS).contains(&rtt.rto(0)));
        }
    }

    #[test]
    fn the_shortest_of_two_windows() {
        let mut least = MinRtt::new(Duration::from_secs(10));
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        assert_eq!(least.get(), None);
        let mut seen = Vec::new();
        for (seconds, ms) in [
            (100, 30),
            (101, 20),
            (105, 40),
            (111, 50),
            (122, 60),
            (133, 70),
        ] {
            least.sample(at(seconds), ms * MS);
            seen.push(least.get().unwrap().as_millis());
        }
        assert_eq!(seen, [30, 20, 20, 20, 50, 60]);
    }
}
