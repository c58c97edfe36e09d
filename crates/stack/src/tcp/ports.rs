//! Which local ports are taken, and how.
//!
//! Whoever has a port is counted by what decides whether another may have it, too: the address, the
//! interface, the options by which it shares. So a million connections of one listener are one
//! number. Who may share with whom is Linux's choice (`inet_csk_bind_conflict`); how a free port is
//! found for `connect` is RFC 6056 section 3.3.4.
//!
//! IPv4-mapped IPv6 addresses are IPv4 here. An IPv6 socket on `::` that takes IPv4, too, stands on
//! both wildcards.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use crate::siphash::Key;

const SHARDS: usize = 64;
/// Counters of connections begun, each for some of all peers (RFC 6056's table T). What somebody
/// sees of his own tells him little of how often others were called.
const COUNTERS: usize = 4096;
/// A counter moves on by up to so many pairs of ports that it need not.
const NOISE: u32 = 8;

/// Where a socket stands or is to stand, and how it shares that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortClaim {
    /// The local address; a mapped one is held as IPv4.
    pub(crate) addr: IpAddr,
    pub(crate) port: u16,
    /// The interface that the socket is bound to, or 0.
    pub(crate) device: u32,
    /// On `::`, and open to IPv4.
    pub(crate) dual_stack: bool,
    /// `SO_REUSEADDR`: beside others that say so and don't listen.
    pub(crate) reuse_addr: bool,
    /// `SO_REUSEPORT`: beside others that say so.
    pub(crate) reuse_port: bool,
}

/// What a port is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortUse {
    /// `bind` took it, or a listener passed it on to a connection.
    Bound,
    Listening,
    /// `connect` chose it: others that `connect` chooses for may have it, too, with other peers.
    Chosen,
}

/// The port is taken (EADDRINUSE), or none is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse;

/// All local ports.
pub(crate) struct Ports {
    shards: Box<[CacheLine<ShortLock<Shard>>]>,
    key: Key,
    counters: Box<[AtomicU32]>,
    /// How many ports were looked for.
    searches: AtomicU64,
}

struct Shard {
    /// Who stands where.
    rows: HashMap<Place, Counts, Key>,
    /// Who stands on a port at all, by port and whether it is IPv6.
    totals: HashMap<(u16, bool), Counts, Key>,
}

/// How many hold something in one way.
type Counts = Vec<(Holder, u32)>;

/// What decides whether two can hold the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    device: u32,
    reuse_addr: bool,
    reuse_port: bool,
    is: PortUse,
}

/// A local address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
}

impl Ports {
    pub(crate) fn new(key: Key) -> Self {
        let shard = || {
            CacheLine(ShortLock::new(Shard {
                rows: HashMap::with_hasher(key),
                totals: HashMap::with_hasher(key),
            }))
        };
        // Nobody knows from where a counter starts.
        let counter = |nth| AtomicU32::new(key.hash([nth], 0, 0) as u32);
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            key,
            counters: (0..COUNTERS as u64).map(counter).collect(),
            searches: AtomicU64::new(0),
        }
    }

    /// Takes a port for a socket ([`PortUse::Bound`]).
    ///
    /// # Errors
    ///
    /// If another has it, and the two don't share it.
    pub(crate) fn bind(&self, claim: &PortClaim) -> Result<(), InUse> {
        let mut shard = self.shard(claim.port);
        let holder = claim.holder(PortUse::Bound);
        if shard.is_any(claim, |other| holder.conflicts(other)) {
            return Err(InUse);
        }
        shard.add(claim, holder);
        Ok(())
    }

    /// Takes a free port of a range (first and last) for a socket that did not name one; one that
    /// somebody would share is not free. The search leaves to `connect` what it prefers.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub(crate) fn bind_ephemeral(
        &self,
        claim: &PortClaim,
        range: (u16, u16),
    ) -> Result<u16, InUse> {
        let nth = self.searches.fetch_add(1, Ordering::Relaxed);
        let start = self.key.hash([nth, 1], 0, 0) as u32;
        let holder = claim.holder(PortUse::Bound);
        for (port, _) in search(range, start, 1) {
            let claim = PortClaim { port, ..*claim };
            let mut shard = self.shard(port);
            if !shard.is_any(&claim, |other| holder.meets(other)) {
                shard.add(&claim, holder);
                return Ok(port);
            }
        }
        Err(InUse)
    }

    /// Has a socket listen where it is bound.
    ///
    /// # Errors
    ///
    /// If another listens there, and the two don't share it: sockets that share a port only until one
    /// of them listens (`SO_REUSEADDR`) learn it here.
    pub(crate) fn listen(&self, claim: &PortClaim) -> Result<(), InUse> {
        let mut shard = self.shard(claim.port);
        let (bound, holder) = (
            claim.holder(PortUse::Bound),
            claim.holder(PortUse::Listening),
        );
        shard.remove(claim, bound);
        let is_taken = shard.is_any(claim, |other| holder.conflicts(other));
        shard.add(claim, if is_taken { bound } else { holder });
        if is_taken { Err(InUse) } else { Ok(()) }
    }

    /// Counts another socket where there is one by right: a connection that a listener passes its port
    /// on to.
    pub(crate) fn inherit(&self, claim: &PortClaim) {
        let holder = claim.holder(PortUse::Bound);
        self.shard(claim.port).add(claim, holder);
    }

    /// Counts a socket in another place on its port, or as sharing it in another way.
    pub(crate) fn move_to(&self, from: &PortClaim, to: &PortClaim, held: PortUse) {
        debug_assert_eq!(from.port, to.port);
        let mut shard = self.shard(from.port);
        shard.remove(from, from.holder(held));
        shard.add(to, to.holder(held));
    }

    /// Gives a port back.
    pub(crate) fn release(&self, claim: &PortClaim, held: PortUse) {
        self.shard(claim.port).remove(claim, claim.holder(held));
    }

    /// Takes a port of a range for a connection to `peer` ([`PortUse::Chosen`]): the first that
    /// nobody is bound to and `enter` can enter the connection under. `enter` is called without a
    /// lock.
    ///
    /// Where the search begins depends on both addresses and the peer's port, so that a port comes
    /// back as late as can be, and strangers can't foresee it (RFC 6056 section 3.3.4).
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn connect(
        &self,
        claim: &PortClaim,
        peer: (IpAddr, u16),
        range: (u16, u16),
        mut enter: impl FnMut(u16) -> bool,
    ) -> Result<u16, InUse> {
        let hash = self.hash_of(claim.addr, peer);
        let counter = &self.counters[hash as usize % COUNTERS];
        let start = (hash >> 32) as u32;
        let start = start.wrapping_add(counter.load(Ordering::Relaxed));
        for (port, steps) in search(range, start, 0) {
            let claim = PortClaim { port, ..*claim };
            if !self.choose(&claim) {
                continue;
            }
            if enter(port) {
                let nth = self.searches.fetch_add(1, Ordering::Relaxed);
                let noise = self.key.hash([nth, 2], 0, 0) as u32 % NOISE;
                counter.fetch_add(steps.max(noise * 2) + 2, Ordering::Relaxed);
                return Ok(port);
            }
            self.release(&claim, PortUse::Chosen);
        }
        Err(InUse)
    }

    /// Takes a port unless somebody is bound to it, on whatever address.
    fn choose(&self, claim: &PortClaim) -> bool {
        let mut shard = self.shard(claim.port);
        let is_bound = [false, true].iter().any(|is_ipv6| {
            let counts = shard.totals.get(&(claim.port, *is_ipv6));
            let mut holders = counts.into_iter().flatten();
            holders.any(|(holder, _)| holder.is != PortUse::Chosen)
        });
        if !is_bound {
            shard.add(claim, claim.holder(PortUse::Chosen));
        }
        !is_bound
    }

    fn hash_of(&self, local: IpAddr, peer: (IpAddr, u16)) -> u64 {
        let words = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => [u64::from(addr.to_bits()), 4],
            IpAddr::V6(addr) => [addr.to_bits() as u64, (addr.to_bits() >> 64) as u64],
        };
        let ([l0, l1], [p0, p1]) = (words(local), words(peer.0));
        self.key.hash([l0, l1, p0, p1], u64::from(peer.1), 2)
    }

    fn shard(&self, port: u16) -> ShortGuard<'_, Shard> {
        self.shards[usize::from(port) % SHARDS].lock()
    }
}

/// The ports of a range from the one on that `start` says, those of one parity first, and how far
/// from there each is. `connect` and `bind` begin with one each, and so keep out of each other's
/// way, as on Linux.
fn search((first, last): (u16, u16), start: u32, parity: u32) -> impl Iterator<Item = (u16, u32)> {
    let ports = u32::from(last).saturating_sub(u32::from(first)) + 1;
    let of_parity = move |parity: u32| {
        let count = (ports + 1 - parity) / 2;
        (0..count).map(move |step| {
            let nth = (start / 2 % count + step) % count;
            (first.wrapping_add((nth * 2 + parity) as u16), step * 2)
        })
    };
    of_parity(parity).chain(of_parity(1 - parity))
}

impl PortClaim {
    /// Where it stands.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let own = Place {
            addr: self.addr,
            port: self.port,
        };
        let ipv4 = Place {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: self.port,
        };
        [Some(own), self.dual_stack.then_some(ipv4)]
            .into_iter()
            .flatten()
    }

    fn holder(&self, is: PortUse) -> Holder {
        Holder {
            device: self.device,
            reuse_addr: self.reuse_addr,
            reuse_port: self.reuse_port,
            is,
        }
    }
}

impl Place {
    /// Every address of the same family.
    pub(super) fn every(addr: IpAddr, port: u16) -> Self {
        let addr = match addr {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { addr, port }
    }
}

impl Holder {
    /// Whether the other keeps this one off, if their addresses overlap.
    fn conflicts(self, other: Self) -> bool {
        let shares_addr = self.reuse_addr && other.reuse_addr && other.is != PortUse::Listening;
        let shares_port = self.reuse_port && other.reuse_port;
        self.meets(other) && !shares_addr && !shares_port
    }

    /// Whether packets could be for either.
    fn meets(self, other: Self) -> bool {
        self.device == 0 || other.device == 0 || self.device == other.device
    }
}

impl Shard {
    /// Whether `is_it` says yes to one whose addresses overlap with the claim's.
    fn is_any(&self, claim: &PortClaim, is_it: impl Fn(Holder) -> bool) -> bool {
        let any_of = |counts: Option<&Counts>| {
            let mut holders = counts.into_iter().flatten();
            holders.any(|(holder, _)| is_it(*holder))
        };
        claim.places().any(|place| {
            if place.addr.is_unspecified() {
                return any_of(self.totals.get(&(place.port, place.addr.is_ipv6())));
            }
            let every = Place::every(place.addr, place.port);
            any_of(self.rows.get(&place)) || any_of(self.rows.get(&every))
        })
    }

    fn add(&mut self, claim: &PortClaim, holder: Holder) {
        for place in claim.places() {
            let row = self.rows.entry(place).or_default();
            let total = self.totals.entry((place.port, place.addr.is_ipv6()));
            for counts in [row, total.or_default()] {
                match counts.iter_mut().find(|(other, _)| *other == holder) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((holder, 1)),
                }
            }
        }
    }

    fn remove(&mut self, claim: &PortClaim, holder: Holder) {
        for place in claim.places() {
            if let Some(row) = self.rows.get_mut(&place)
                && remove(row, holder)
            {
                self.rows.remove(&place);
            }
            let port = (place.port, place.addr.is_ipv6());
            if let Some(total) = self.totals.get_mut(&port)
                && remove(total, holder)
            {
                self.totals.remove(&port);
            }
        }
    }
}

/// Counts one less. True if nobody is left.
fn remove(counts: &mut Counts, holder: Holder) -> bool {
    let found = counts.iter_mut().enumerate();
    let mut of_kind = found.filter(|(_, (other, _))| *other == holder);
    if let Some((at, (_, count))) = of_kind.next() {
        *count -= 1;
        if *count == 0 {
            counts.swap_remove(at);
        }
    }
    counts.is_empty()
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let port = u64::from(self.port);
        match self.addr {
            IpAddr::V4(addr) => state.write_u64(u64::from(addr.to_bits()) | port << 32),
            IpAddr::V6(addr) => {
                let addr = addr.to_bits();
                state.write_u64(addr as u64);
                state.write_u64((addr >> 64) as u64);
                state.write_u64(port);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
