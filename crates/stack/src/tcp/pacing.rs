//! Pacing: when the next segment may leave, so that a window goes out over a round trip and not at
//! once.
//!
//! By earliest departure times: each segment that leaves moves the time of the next by what it
//! takes at the pace. A queue on the way then never sees more than it can pass on.

use core::time::Duration;

use super::congestion::{Congestion, CongestionControl as _};
use crate::time::Instant;

/// No `SO_MAX_PACING_RATE`.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// Bytes that leave in one piece at most.
const MAX_BURST: u64 = 65_536;

/// Above this pace two segments may leave in one piece, whatever the round trip: 1.2 Mbit/s
/// (draft-cardwell-iccrg-bbr-congestion-control section 4.2.2).
const TWO_SEGMENTS: u64 = 150_000;

/// What pace follows from, if the congestion control does not set it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Packets sent and not acknowledged.
    pub(crate) packets_out: u32,
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    pub(crate) srtt: Option<Duration>,
    /// `tcp_pacing_ss_ratio`, percent of a window in a round trip.
    pub(crate) ss_ratio: u16,
    /// `tcp_pacing_ca_ratio`.
    pub(crate) ca_ratio: u16,
}

/// A connection's pace.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    earliest: Instant,
    max_rate: u64,
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            earliest: now,
            max_rate: NO_LIMIT,
        }
    }

    /// `SO_MAX_PACING_RATE`, bytes a second.
    pub(crate) fn set_max_rate(&mut self, rate: u64) {
        self.max_rate = rate;
    }

    /// Whether segments have to wait for [`Self::earliest`] at all.
    pub(crate) fn is_on(&self, congestion: &Congestion) -> bool {
        congestion.wants_pacing() || self.max_rate != NO_LIMIT
    }

    /// When the next segment may leave.
    pub(crate) fn earliest(&self) -> Instant {
        self.earliest
    }

    /// Bytes a second: the algorithm's, else somewhat more than a window in a round trip, so that
    /// the pace does not keep the window from growing. `None`: as fast as can be.
    pub(crate) fn rate(&self, congestion: &Congestion, load: &Load) -> Option<u64> {
        match congestion
            .pacing_rate()
            .or_else(|| rate_of_window(congestion, load))
        {
            Some(rate) => Some(rate.min(self.max_rate).max(1)),
            None => (self.max_rate != NO_LIMIT).then(|| self.max_rate.max(1)),
        }
    }

    /// `len` bytes have left. Who comes late to send, as timers are no finer than they are, makes up
    /// for it with the next segment, but by no more than half of what this one takes.
    pub(crate) fn sent(&mut self, now: Instant, len: u32, rate: u64) {
        let takes = time_of(u64::from(len), rate);
        let late = now - self.earliest;
        self.earliest = self.earliest.max(now) + (takes - late.min(takes / 2));
    }
}

/// Packets that may leave in one piece at this pace: a millisecond's worth, and over short round
/// trips more, as bursts do no harm there (Linux: `tcp_tso_rtt_log`).
pub(crate) fn burst(rate: u64, min_rtt: Option<Duration>, mss: u32) -> u32 {
    let micros = min_rtt.map_or(u128::MAX, |it| it.as_micros());
    let by_rtt = MAX_BURST >> (micros >> 9).min(63);
    let bytes = (rate / 1024 + by_rtt).min(MAX_BURST);
    let least = if rate < TWO_SEGMENTS { 1 } else { 2 };
    let packets = bytes / u64::from(mss.max(1));
    u32::try_from(packets).unwrap_or(u32::MAX).max(least)
}

/// The pace of slow start is higher, as the window doubles in a round trip; that of the last round
/// before the threshold is not.
fn rate_of_window(congestion: &Congestion, load: &Load) -> Option<u64> {
    let srtt = load.srtt?.as_nanos().max(1);
    let cwnd = congestion.cwnd();
    let ratio = match cwnd < congestion.ssthresh() / 2 {
        true => load.ss_ratio,
        false => load.ca_ratio,
    };
    let bytes = u128::from(cwnd.max(load.packets_out)) * u128::from(load.mss);
    let rate = bytes * u128::from(ratio) * 10_000_000 / srtt;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// How long `bytes` take.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::Algorithm;

    const MS: Duration = Duration::from_millis(1);

    fn load(packets_out: u32, srtt: Option<Duration>) -> Load {
        Load {
            packets_out,
            mss: 1000,
            srtt,
            ss_ratio: 200,
            ca_ratio: 120,
        }
    }

    #[test]
    fn a_window_in_a_round_trip_and_somewhat_more() {
        let now = Instant::ZERO;
        let pacer = Pacer::new(now);
        let mut congestion = Congestion::new(Algorithm::Reno, 10, now);
        let rtt = Some(100 * MS);
        assert_eq!(pacer.rate(&congestion, &load(0, None)), None);
        // Slow start: 10 packets of 1000 bytes in 100 ms, twice.
        assert_eq!(pacer.rate(&congestion, &load(0, rtt)), Some(200_000));
        assert_eq!(pacer.rate(&congestion, &load(30, rtt)), Some(600_000));
        congestion.set_cwnd(100);
        assert_eq!(congestion.ssthresh_after_loss(now), 50);
        congestion.set_cwnd(50);
        assert_eq!(pacer.rate(&congestion, &load(0, rtt)), Some(600_000));
        congestion.set_cwnd(24);
        assert_eq!(pacer.rate(&congestion, &load(0, rtt)), Some(480_000));
        congestion.set_cwnd(25);
        assert_eq!(pacer.rate(&congestion, &load(0, rtt)), Some(300_000));
    }

    #[test]
    fn the_limit_holds() {
        let now = Instant::ZERO;
        let mut pacer = Pacer::new(now);
        let congestion = Congestion::new(Algorithm::Cubic, 10, now);
        assert!(!pacer.is_on(&congestion));
        pacer.set_max_rate(50_000);
        assert!(pacer.is_on(&congestion));
        assert_eq!(pacer.rate(&congestion, &load(0, None)), Some(50_000));
        assert_eq!(
            pacer.rate(&congestion, &load(0, Some(100 * MS))),
            Some(50_000)
        );
        pacer.set_max_rate(0);
        assert_eq!(pacer.rate(&congestion, &load(0, None)), Some(1));
        pacer.set_max_rate(NO_LIMIT);
        assert!(!pacer.is_on(&congestion));
    }

    #[test]
    fn segments_leave_one_after_the_other() {
        let mut now = Instant::from_nanos(9_000_000_000);
        let mut pacer = Pacer::new(now);
        // A thousand bytes a millisecond.
        for _ in 0..10 {
            pacer.sent(now, 2_000, 1_000_000);
            assert_eq!(pacer.earliest() - now, 2 * MS);
            now = pacer.earliest();
        }
    }

    #[test]
    fn who_is_late_makes_up_for_it_but_not_for_idle_time() {
        let start = Instant::from_nanos(9_000_000_000);
        let mut pacer = Pacer::new(start);
        let mut now = start;
        for _ in 0..100 {
            pacer.sent(now, 1_000, 1_000_000);
            // The timer has ticks of 400 microseconds.
            let late = 400 - (pacer.earliest() - start).as_micros() % 400;
            now = pacer.earliest() + Duration::from_micros(u64::try_from(late).unwrap());
        }
        let mean = (now - start) / 100;
        assert!(mean < MS + MS / 100, "{mean:?}");

        now += 1_000 * MS;
        pacer.sent(now, 1_000, 1_000_000);
        assert_eq!(pacer.earliest() - now, MS / 2);
        pacer.sent(pacer.earliest(), 1_000, 1_000_000);
        assert_eq!(pacer.earliest() - now, MS / 2 + MS);
    }

    #[test]
    fn a_pace_of_next_to_nothing_ends_nowhere() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.sent(Instant::ZERO, u32::MAX, 0);
        pacer.sent(pacer.earliest(), u32::MAX, 0);
        assert!(pacer.earliest() > Instant::ZERO);
    }

    #[test]
    fn bursts_follow_pace_and_round_trip() {
        let long = Some(Duration::from_millis(100));
        for (rate, min_rtt, mss, packets) in [
            (100_000, long, 1448, 1),
            (1_000_000, long, 1448, 2),
            (12_500_000, long, 1448, 8),
            (125_000_000, long, 1448, 45),
            (125_000_000, long, 8948, 7),
            // Over less than half a millisecond a whole burst, however slow.
            (1_000_000, Some(Duration::from_micros(100)), 1448, 45),
            (1_000_000, Some(Duration::from_micros(1100)), 1448, 11),
            (1_000_000, None, 1448, 2),
            (u64::MAX, long, 0, 65_536),
        ] {
            assert_eq!(
                burst(rate, min_rtt, mss),
                packets,
                "{rate} {min_rtt:?} {mss}"
            );
        }
    }
}
