//! How many ICMP messages may leave: to all together, and to each host.
//!
//! Both are token buckets. A bucket is kept as one number, the time at which it will be full again
//! (the generic cell rate algorithm), so that a core takes a token with one compare-and-swap and a
//! bucket that nobody has touched for a while needs no refilling.

use core::hash::{BuildHasher as _, Hash};
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use forebay_sync::cache_line::CacheLine;

use crate::core::Context;
use crate::counters::Counter;
use crate::family::Family;
use crate::packet::IpVersion;
use crate::siphash::Key;
use crate::sysctl::{Knob, Sysctls};
use crate::time::Instant;
use crate::wire::IcmpHeader;
use crate::wire::icmp::{v4, v6};

/// Messages that a host may be sent at once (Linux's `XRLIM_BURST_FACTOR`).
const HOST_BURST: u64 = 6;
/// Between redirects to one host, once it got the first few.
const REDIRECT_INTERVAL: Duration = Duration::from_secs(1);

/// Whether this message may go to `peer` now; takes the tokens and counts the refusal.
pub(super) fn may_send<F: Family>(cx: &Context<'_>, peer: F::Addr, message: &IcmpHeader) -> bool {
    let sysctls = cx.view.sysctls;
    if !is_limited::<F>(sysctls, message) {
        return true;
    }
    let (interval, host_counter) = match F::VERSION {
        IpVersion::V4 => (Knob::IcmpRatelimit, Counter::IcmpOutRateLimitHost),
        IpVersion::V6 => (Knob::Icmp6Ratelimit, Counter::Icmp6OutRateLimitHost),
    };
    let interval = Duration::from_millis(non_negative(sysctls.get(interval)));
    let rate = Rate {
        per_second: non_negative(sysctls.get(Knob::IcmpMsgsPerSec)),
        burst: non_negative(sysctls.get(Knob::IcmpMsgsBurst)),
    };
    let limiter = &cx.stack.icmp_limiter;
    let refusal = match () {
        () if !limiter.has_global(&rate, cx.now) => Counter::IcmpOutRateLimitGlobal,
        () if !limiter.take_host(Purpose::Message, peer.into(), interval, cx.now) => host_counter,
        () if !limiter.take_global(&rate, cx.now) => Counter::IcmpOutRateLimitGlobal,
        () => return true,
    };
    cx.core.count(refusal);
    false
}

/// Whether a redirect may go to `peer` now. They have buckets of their own, so that a host which
/// keeps to its first hop still hears of other things.
pub(super) fn may_redirect<F: Family>(cx: &Context<'_>, peer: F::Addr) -> bool {
    let limiter = &cx.stack.icmp_limiter;
    limiter.take_host(Purpose::Redirect, peer.into(), REDIRECT_INTERVAL, cx.now)
}

/// Path MTU discovery is never held up: Linux's `icmpv4_mask_allow`, `icmpv6_mask_allow` (whose mask
/// is all other errors).
fn is_limited<F: Family>(sysctls: &Sysctls, message: &IcmpHeader) -> bool {
    match F::VERSION {
        IpVersion::V4 => {
            let mask = sysctls.get(Knob::IcmpRatemask);
            let is_too_big =
                message.kind == v4::DEST_UNREACH && message.code == v4::UNREACH_FRAG_NEEDED;
            let bit = 1_i64.checked_shl(u32::from(message.kind)).unwrap_or(0);
            mask & bit != 0 && !is_too_big
        }
        IpVersion::V6 => {
            message.kind < v6::FIRST_INFORMATIONAL && message.kind != v6::PACKET_TOO_BIG
        }
    }
}

fn non_negative(knob: i64) -> u64 {
    u64::try_from(knob).unwrap_or(0)
}

/// The rate of all messages together.
#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: u64,
    burst: u64,
}

/// What a host's bucket is for.
#[derive(Debug, Clone, Copy, Hash)]
enum Purpose {
    Message,
    Redirect,
}

/// The buckets, shared by all cores.
///
/// Hosts share a table of fixed size: a set of eight buckets by a keyed hash, in it the host's own
/// or the one that has been full for longest. A crowd of senders can at worst make the limiter
/// forget a host, never keep another one's errors back.
pub(crate) struct RateLimiter {
    key: Key,
    /// When the bucket of all messages will be full, in nanoseconds.
    global: CacheLine<AtomicU64>,
    hosts: Box<[BucketSet]>,
}

/// One cache line. A bucket is 16 bits of the host's hash in front of 48 bits of milliseconds (9,000
/// years): when it will be full.
type BucketSet = CacheLine<[AtomicU64; 8]>;

const SETS: usize = 512;
const TAG_BITS: u32 = 16;
const MILLIS_BITS: u32 = 64 - TAG_BITS;
const MILLIS_MASK: u64 = (1 << MILLIS_BITS) - 1;

impl RateLimiter {
    /// Full buckets; `seed` keys the hash.
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        let full_set = || CacheLine([const { AtomicU64::new(0) }; 8]);
        Self {
            key: Key(seed),
            global: CacheLine(AtomicU64::new(0)),
            hosts: core::iter::repeat_with(full_set).take(SETS).collect(),
        }
    }

    /// Whether a message could leave as far as all together are concerned: asked first, so that a
    /// flood costs the hosts no tokens.
    fn has_global(&self, rate: &Rate, now: Instant) -> bool {
        self.after_global(self.global.load(Relaxed), rate, now)
            .is_some()
    }

    fn take_global(&self, rate: &Rate, now: Instant) -> bool {
        let take = |full_at| self.after_global(full_at, rate, now);
        self.global.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Linux holds back up to two tokens of the burst at random: a stranger who could count them
    /// exactly could tell which ports of ours had spent one (CVE-2020-25705).
    fn after_global(&self, full_at: u64, rate: &Rate, now: Instant) -> Option<u64> {
        let interval = 1_000_000_000_u64.checked_div(rate.per_second)?;
        let held_back = (self.hash(full_at) % 3).min(rate.burst.saturating_sub(1));
        take(
            full_at,
            now.as_nanos(),
            interval,
            rate.burst.saturating_sub(held_back),
        )
    }

    fn take_host(&self, purpose: Purpose, host: IpAddr, interval: Duration, now: Instant) -> bool {
        let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        if interval == 0 {
            return true;
        }
        let hash = self.hash((purpose, host));
        let tag = hash >> MILLIS_BITS;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "reduced to the table's size"
        )]
        let set = hash as usize % SETS;
        let Some(set) = self.hosts.get(set) else {
            return true;
        };
        loop {
            let Some((bucket, seen)) = find(set, tag) else {
                return true;
            };
            let full_at = if seen >> MILLIS_BITS == tag {
                seen & MILLIS_MASK
            } else {
                0
            };
            let Some(full_at) = take(full_at, now.as_millis(), interval, HOST_BURST) else {
                return false;
            };
            let taken = tag << MILLIS_BITS | full_at.min(MILLIS_MASK);
            if bucket
                .compare_exchange(seen, taken, Relaxed, Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    fn hash(&self, what: impl Hash) -> u64 {
        self.key.hash_one(what)
    }
}

/// The bucket with this tag, else the one that has been full for longest, with what it holds.
fn find(set: &BucketSet, tag: u64) -> Option<(&AtomicU64, u64)> {
    let buckets = || set.iter().map(|bucket| (bucket, bucket.load(Relaxed)));
    let own = buckets().find(|(_, seen)| seen >> MILLIS_BITS == tag);
    own.or_else(|| buckets().min_by_key(|(_, seen)| seen & MILLIS_MASK))
}

/// Takes a token, if there is one: from a bucket that will be full at `full_at`, gets a token each
/// `interval` and holds `burst`. Returns when it will be full then.
fn take(full_at: u64, now: u64, interval: u64, burst: u64) -> Option<u64> {
    let capacity = interval.saturating_mul(burst);
    // A bucket far emptier than this one can be was filled more slowly: the knob was changed.
    let is_of_another_rate = full_at > now.saturating_add(capacity.saturating_mul(2));
    let full_at = if is_of_another_rate {
        now
    } else {
        full_at.max(now)
    };
    let full_at = full_at.saturating_add(interval);
    (full_at - now <= capacity).then_some(full_at)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn limiter() -> RateLimiter {
        RateLimiter::new([1, 2])
    }

    fn host(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn a_host_gets_six_at_once_and_then_one_an_interval() {
        let limiter = limiter();
        let take = |millis| limiter.take_host(Purpose::Message, host(1), SECOND, at(millis));
        assert_eq!((0..10).filter(|_| take(5_000)).count(), 6);
        assert!(!take(5_999));
        assert!(take(6_000));
        assert!(!take(6_000));
        // A long rest gives six back, no more.
        assert_eq!((0..10).filter(|_| take(60_000)).count(), 6);
    }

    #[test]
    fn hosts_and_purposes_have_buckets_of_their_own() {
        let limiter = limiter();
        let take = |purpose, n| limiter.take_host(purpose, host(n), SECOND, at(0));
        while take(Purpose::Message, 1) {}
        assert!(take(Purpose::Message, 2));
        assert!(take(Purpose::Redirect, 1));
        assert!(!take(Purpose::Message, 1));
    }

    #[test]
    fn no_interval_is_no_limit() {
        let limiter = limiter();
        let take = || limiter.take_host(Purpose::Message, host(1), Duration::ZERO, at(0));
        assert!((0..100).all(|_| take()));
    }

    #[test]
    fn a_crowd_does_not_keep_others_messages_back() {
        let limiter = limiter();
        let take = |n| limiter.take_host(Purpose::Message, host(n), SECOND, at(0));
        for n in 0..100_000 {
            assert!(take(n), "host {n} is new");
        }
    }

    #[test]
    fn a_bucket_of_a_slower_rate_does_not_stay_empty() {
        let limiter = limiter();
        let take =
            |interval, millis| limiter.take_host(Purpose::Message, host(1), interval, at(millis));
        while take(1_000 * SECOND, 0) {}
        assert!(take(SECOND, 1));
    }

    #[test]
    fn all_together_keep_to_rate_and_burst() {
        let limiter = limiter();
        let rate = Rate {
            per_second: 100,
            burst: 50,
        };
        let take = |millis| {
            let has = limiter.has_global(&rate, at(millis));
            assert_eq!(has, limiter.take_global(&rate, at(millis)));
            has
        };
        let burst = (0..100).filter(|_| take(1_000)).count();
        assert!((48..=50).contains(&burst), "{burst} at once");
        let next = (0..100).filter(|_| take(1_500)).count();
        assert!((46..=52).contains(&next), "{next} half a second later");
    }

    #[test]
    fn a_rate_of_nothing_lets_nothing_through_and_a_burst_of_one_works() {
        let limiter = limiter();
        assert!(!limiter.take_global(
            &Rate {
                per_second: 0,
                burst: 50
            },
            at(9)
        ));
        assert!(!limiter.take_global(
            &Rate {
                per_second: 50,
                burst: 0
            },
            at(9)
        ));
        let rate = Rate {
            per_second: 1,
            burst: 1,
        };
        let taken = (0..10).filter(|second| limiter.take_global(&rate, at(second * 1_000)));
        assert_eq!(taken.count(), 10);
    }

    #[test]
    fn far_times_do_not_overflow() {
        let limiter = limiter();
        let end = Instant::from_nanos(u64::MAX);
        let rate = Rate {
            per_second: 1,
            burst: u64::MAX,
        };
        limiter.take_global(&rate, end);
        limiter.take_host(Purpose::Message, host(1), Duration::MAX, end);
        assert_eq!(take(u64::MAX, u64::MAX, u64::MAX, u64::MAX), Some(u64::MAX));
    }
}
