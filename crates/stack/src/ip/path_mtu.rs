//! What paths take in one piece, where routers have told us (RFC 1191, RFC 8201): Linux's route
//! exceptions, by destination.

use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use forebay_sync::cache_line::CacheLine;

use crate::core::Context;
use crate::family::Family;
use crate::ip::icmp::Quoted;
use crate::packet::IpVersion;
use crate::siphash::Key;
use crate::socket::lock;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::transmit;

const SHARDS: usize = 64;

/// Most destinations of a shard: strangers can make us learn no more than 4,096 in all.
const PER_SHARD: usize = 64;

/// What is known of the path to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest packet that goes in one piece, in bytes.
    pub mtu: u32,
    /// When that is forgotten.
    pub expires: Instant,
    /// A router wanted less than `net.ipv4.route.min_pmtu`: packets go without DF, so that routers
    /// do the rest.
    pub locked: bool,
}

type Shard = Vec<(IpAddr, PathMtu)>;

/// The paths that take less than their first link.
pub(crate) struct PathMtus {
    key: Key,
    shards: Box<[CacheLine<Mutex<Shard>>]>,
    /// How many there are, so that nobody takes a lock for none.
    len: AtomicUsize,
}

impl PathMtus {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self {
            key: Key(seed),
            shards: (0..SHARDS).map(|_| CacheLine::default()).collect(),
            len: AtomicUsize::new(0),
        }
    }

    /// What is known of the path to `dst`; what has expired is forgotten.
    #[inline]
    pub(crate) fn get(&self, dst: IpAddr, now: Instant) -> Option<PathMtu> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut shard = self.shard(dst);
        let at = shard.iter().position(|(other, _)| *other == dst)?;
        let (_, path) = shard[at];
        if path.expires > now {
            return Some(path);
        }
        shard.swap_remove(at);
        self.len.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Learns what the path to `dst` takes. In a full shard, what would be forgotten first goes.
    pub(crate) fn learn(&self, dst: IpAddr, path: PathMtu) {
        let mut shard = self.shard(dst);
        if let Some((_, known)) = shard.iter_mut().find(|(other, _)| *other == dst) {
            *known = path;
            return;
        }
        if shard.len() < PER_SHARD {
            shard.push((dst, path));
            self.len.fetch_add(1, Ordering::Relaxed);
        } else if let Some(first) = shard.iter_mut().min_by_key(|(_, path)| path.expires) {
            *first = (dst, path);
        }
    }

    fn shard(&self, dst: IpAddr) -> MutexGuard<'_, Shard> {
        let bits = match dst {
            IpAddr::V4(dst) => u128::from(dst.to_bits()),
            IpAddr::V6(dst) => dst.to_bits(),
        };
        let hash = self.key.hash([bits as u64, (bits >> 64) as u64], 0, 0);
        lock(&self.shards[hash as usize % SHARDS])
    }
}

/// Whether routers may tell what a path takes.
pub(crate) fn is_heard<F: Family>(cx: &Context<'_>) -> bool {
    F::VERSION == IpVersion::V6 || cx.view.sysctls.get(Knob::IpNoPmtuDisc) < 2
}

/// Learns from a router what the path of a packet takes, which a socket of ours may have sent.
pub(crate) fn hear<F: Family>(cx: &Context<'_>, quoted: &Quoted<F>, announced: u32) {
    let Ok(route) = transmit::route_output::<F>(cx, quoted.remote, Some(quoted.local), None) else {
        return;
    };
    let is_v6 = F::VERSION == IpVersion::V6;
    let sysctls = cx.view.sysctls;
    let (min, expires) = match is_v6 {
        true => (1_280, Knob::Ip6MtuExpires),
        false => {
            let min = sysctls.get(Knob::MinPmtu);
            (u32::try_from(min).unwrap_or(u32::MAX), Knob::MtuExpires)
        }
    };
    let announced = match sysctls.get(Knob::IpNoPmtuDisc) {
        1 if !is_v6 => 0,
        _ => announced,
    };
    if let Some((mtu, locked)) = told(announced, route.mtu, min, is_v6) {
        let path = PathMtu {
            mtu,
            expires: expiry(cx.now, sysctls.get(expires)),
            locked,
        };
        cx.stack.path_mtus.learn(quoted.remote.into(), path);
    }
}

/// What a router's message makes of a path that takes `now_takes`: none if it is no news. IPv6 has
/// no MTU below 1,280 (RFC 8201 section 4); IPv4's floor is `min`, below which routers must fragment.
fn told(announced: u32, now_takes: u32, min: u32, is_v6: bool) -> Option<(u32, bool)> {
    if announced >= now_takes {
        return None;
    }
    if announced >= min {
        return Some((announced, false));
    }
    (!is_v6).then(|| (now_takes.min(min), true))
}

/// How long it is remembered, from a knob in seconds.
fn expiry(now: Instant, seconds: i64) -> Instant {
    now + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mtu: u32, expires: u64) -> PathMtu {
        PathMtu {
            mtu,
            expires: Instant::from_nanos(expires),
            locked: false,
        }
    }

    #[test]
    fn is_learnt_lowered_and_forgotten() {
        let paths = PathMtus::new([1, 2]);
        let at = Instant::from_nanos;
        let dsts = ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.2"];
        let dsts = dsts.map(|dst| dst.parse::<IpAddr>().expect("an address"));
        for dst in dsts {
            assert_eq!(paths.get(dst, at(0)), None);
            paths.learn(dst, path(1_400, 10));
            assert_eq!(paths.get(dst, at(9)), Some(path(1_400, 10)));
            paths.learn(dst, path(1_300, 20));
            assert_eq!(paths.get(dst, at(19)), Some(path(1_300, 20)));
            assert_eq!(paths.get(dst, at(20)), None);
            assert_eq!(paths.len.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_crowd_makes_it_forget_and_not_grow() {
        let paths = PathMtus::new([1, 2]);
        for n in 0..100_000_u32 {
            paths.learn(IpAddr::from(n.to_be_bytes()), path(1_000, u64::from(n) + 1));
        }
        assert_eq!(paths.len.load(Ordering::Relaxed), SHARDS * PER_SHARD);
        let last = IpAddr::from(99_999_u32.to_be_bytes());
        assert!(paths.get(last, Instant::ZERO).is_some());
    }

    #[test]
    fn only_less_is_news_and_too_little_is_locked() {
        // Announced, the path so far, floor, IPv6; what comes of it.
        let cases = [
            (1_400, 1_500, 552, false, Some((1_400, false))),
            (1_500, 1_500, 552, false, None),
            (9_000, 1_500, 552, false, None),
            (552, 1_500, 552, false, Some((552, false))),
            (551, 1_500, 552, false, Some((552, true))),
            (0, 1_500, 552, false, Some((552, true))),
            (100, 500, 552, false, Some((500, true))),
            (1_280, 1_500, 1_280, true, Some((1_280, false))),
            (1_279, 1_500, 1_280, true, None),
        ];
        for (announced, so_far, min, is_v6, expected) in cases {
            assert_eq!(told(announced, so_far, min, is_v6), expected, "{announced}");
        }
    }
}
