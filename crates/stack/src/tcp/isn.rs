//! Where a connection's numbers begin, so that strangers can't guess them and old segments don't fit
//! the next connection: initial sequence numbers (RFC 6528) and timestamps (RFC 7323 section 5.4).

use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::time::Instant;
use crate::wire::seq::Seq;

/// Nanoseconds of a step of the clock that sequence numbers follow (RFC 9293 section 3.4.1).
const STEP: u64 = 4_000;

/// The secrets that numbers are drawn with.
#[derive(Debug, Clone)]
pub(crate) struct FirstNumbers {
    sequence: Key,
    timestamp: Key,
}

impl FirstNumbers {
    /// What nobody foresees who does not know the key.
    pub(crate) fn new(key: Key) -> Self {
        let derive = |nth| Key([key.hash([nth, 0], 0, 0), key.hash([nth, 1], 0, 0)]);
        Self {
            sequence: derive(1),
            timestamp: derive(2),
        }
    }

    /// The initial sequence number of a connection that begins now: a clock, and what only the
    /// flow's connections add to it. So each of them begins behind the last one's, if that sent less
    /// than 250 kB a second.
    pub(crate) fn iss(&self, flow: &Flow, now: Instant) -> Seq {
        let clock = (now.as_nanos() / STEP) as u32;
        Seq(clock.wrapping_add(flow.secret(self.sequence) as u32))
    }

    /// What the timestamps of the flow's connections are ahead of [`timestamp`]. All that go between
    /// two hosts have it in common, so that timestamps go on from one to the next, and the peer
    /// tells them by it (RFC 6191).
    pub(crate) fn timestamp_offset(&self, flow: &Flow) -> u32 {
        flow.hash_of_hosts(self.timestamp) as u32
    }
}

/// The clock of timestamps, without an offset: milliseconds.
pub(crate) fn timestamp(now: Instant) -> u32 {
    now.as_millis() as u32
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::wire::protocol;

    fn flow(local: u16, last: u8) -> Flow {
        let remote = ([198, 51, 100, last].into(), 80);
        Flow::new(protocol::TCP, ([192, 0, 2, 1].into(), local), remote)
    }

    #[test]
    fn a_flow_s_numbers_go_on_with_time() {
        for seed in 0..20 {
            let numbers = FirstNumbers::new(Key([seed, 7]));
            let flow = flow(5_000, 1);
            // Goes round about every four hours and three quarters.
            let mut now = Instant::ZERO;
            let mut last = numbers.iss(&flow, now);
            for _ in 0..1_000 {
                now += Duration::from_secs(60);
                let next = numbers.iss(&flow, now);
                assert_eq!(next - last, 15_000_000);
                last = next;
            }
        }
    }

    #[test]
    fn flows_and_secrets_differ() {
        let numbers = FirstNumbers::new(Key([1, 2]));
        let others = FirstNumbers::new(Key([1, 3]));
        let (a, b) = (flow(5_000, 1), flow(5_001, 1));
        let sequence = |numbers: &FirstNumbers, flow| numbers.iss(flow, Instant::ZERO);
        assert_ne!(sequence(&numbers, &a), sequence(&numbers, &b));
        assert_ne!(sequence(&numbers, &a), sequence(&others, &a));

        let offset = |flow| numbers.timestamp_offset(&flow);
        assert_eq!(offset(a), offset(b));
        assert_ne!(offset(a), offset(flow(5_000, 2)));
        assert_ne!(offset(a), others.timestamp_offset(&a));
    }
}
