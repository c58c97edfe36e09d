//! On which queue of a device a flow's replies came, for its packets to go out by the same
//! (what Linux's TUN driver calls its flow table).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use forebay_sync::cache_line::CacheLine;

use crate::time::Instant;

/// How long a flow is remembered that nothing comes of (`TUN_FLOW_EXPIRE`).
const EXPIRE: Duration = Duration::from_secs(3);

const BUCKETS: usize = 512;
const WAYS: usize = 8;

/// Entries tell time in ticks of 2^27 ns, about an eighth of a second.
const TICK_SHIFT: u32 = 27;
const EXPIRE_TICKS: u16 = (EXPIRE.as_nanos() >> TICK_SHIFT) as u16 + 1;

/// The queue that each of some flows came by last.
///
/// At most 4,096 flows are remembered (Linux's `MAX_TAP_FLOWS`), and none for longer than three
/// seconds after its last packet. A flow's entry is in one of eight places, which lie on one cache
/// line: when all are taken by flows that live, another is not remembered. Any core may write,
/// without order.
pub struct QueueAffinity {
    buckets: Box<[CacheLine<[AtomicU64; WAYS]>]>,
}

impl Default for QueueAffinity {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| CacheLine::default()).collect(),
        }
    }
}

impl fmt::Debug for QueueAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueAffinity").finish_non_exhaustive()
    }
}

/// A word: the flow's hash, the queue, and when it came last. 0 is nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u32,
    queue: u16,
    tick: u16,
}

impl Entry {
    fn unpack(word: u64) -> Self {
        Self {
            hash: (word >> 32) as u32,
            queue: (word >> 16) as u16,
            tick: word as u16,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.queue) << 16 | u64::from(self.tick)
    }

    /// No entry is, or its flow has been quiet for too long.
    fn is_free(self, now: u16) -> bool {
        self.hash == 0 || now.wrapping_sub(self.tick) > EXPIRE_TICKS
    }
}

impl QueueAffinity {
    /// A packet of the flow came by `queue` (Linux's `tun_flow_update`). A flow without a hash is
    /// not remembered.
    pub(crate) fn update(&self, hash: u32, queue: u16, now: Instant) {
        let tick = tick(now);
        let new = Entry { hash, queue, tick };
        let Some(bucket) = self.bucket(hash).filter(|_| hash != 0) else {
            return;
        };
        let mut free = None;
        for place in bucket {
            let word = place.load(Ordering::Relaxed);
            let entry = Entry::unpack(word);
            if entry.hash == hash {
                // Most packets bring no news, and write no line.
                if entry != new {
                    place.store(new.pack(), Ordering::Relaxed);
                }
                return;
            }
            if entry.is_free(tick) {
                free.get_or_insert((place, word));
            }
        }
        if let Some((place, word)) = free {
            // Whoever was faster may keep it: the next packet tries again.
            let relaxed = Ordering::Relaxed;
            let _ = place.compare_exchange(word, new.pack(), relaxed, relaxed);
        }
    }

    /// The queue that the flow came by last, if it is remembered (`tun_automq_select_queue`).
    pub(crate) fn queue_of(&self, hash: u32, now: Instant) -> Option<u16> {
        let tick = tick(now);
        let mut entries = self
            .bucket(hash)?
            .iter()
            .map(|place| Entry::unpack(place.load(Ordering::Relaxed)));
        let found = entries.find(|entry| entry.hash == hash && !entry.is_free(tick))?;
        Some(found.queue)
    }

    /// How many flows are remembered at `now`.
    pub fn flows(&self, now: Instant) -> usize {
        let tick = tick(now);
        let places = self.buckets.iter().flat_map(|bucket| &bucket.0);
        places
            .filter(|place| !Entry::unpack(place.load(Ordering::Relaxed)).is_free(tick))
            .count()
    }

    fn bucket(&self, hash: u32) -> Option<&[AtomicU64; WAYS]> {
        let index = hash as usize % BUCKETS;
        self.buckets.get(index).map(|bucket| &bucket.0)
    }
}

fn tick(now: Instant) -> u16 {
    (now.as_nanos() >> TICK_SHIFT) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_flow_goes_out_where_it_came_in_last() {
        let flows = QueueAffinity::default();
        assert_eq!(flows.queue_of(7, at(0)), None);
        flows.update(7, 3, at(0));
        assert_eq!(flows.queue_of(7, at(0)), Some(3));
        flows.update(7, 1, at(10));
        assert_eq!(flows.queue_of(7, at(10)), Some(1));
        assert_eq!(flows.queue_of(7 + BUCKETS as u32, at(10)), None);
        assert_eq!(flows.flows(at(10)), 1);
    }

    #[test]
    fn a_quiet_flow_is_forgotten() {
        let flows = QueueAffinity::default();
        flows.update(7, 3, at(0));
        assert_eq!(flows.queue_of(7, at(2_900)), Some(3));
        flows.update(7, 3, at(2_900));
        assert_eq!(flows.queue_of(7, at(5_800)), Some(3));
        assert_eq!(flows.queue_of(7, at(6_500)), None);
        assert_eq!(flows.flows(at(6_500)), 0);
    }

    #[test]
    fn a_million_flows_take_no_more_places_than_there_are() {
        let flows = QueueAffinity::default();
        for hash in 0..1_000_000 {
            flows.update(hash, 1, at(0));
        }
        // Hash 0 is none, the first to come have the places.
        assert_eq!(flows.flows(at(0)), BUCKETS * WAYS);
        assert_eq!(flows.queue_of(0, at(0)), None);
        assert_eq!(flows.queue_of(1, at(0)), Some(1));
        assert_eq!(flows.queue_of(999_999, at(0)), None);
        // Who has a place moves while all are taken.
        flows.update(1, 2, at(0));
        assert_eq!(flows.queue_of(1, at(0)), Some(2));
        // And places come free.
        flows.update(999_999, 4, at(4_000));
        assert_eq!(flows.queue_of(999_999, at(4_000)), Some(4));
    }
}
