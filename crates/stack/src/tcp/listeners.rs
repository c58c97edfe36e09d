//! Which socket a new connection is for: listeners by local address and port.
//!
//! One on the address itself goes before one on every address, that before one that takes whatever
//! nobody else does. On one address, a listener that is bound to the interface goes before one that
//! is not (Linux's `compute_score`); of those that share all of it by `SO_REUSEPORT`, the flow's hash
//! picks one.

use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use super::ports::{InUse, Place, PortClaim};
use crate::siphash::Key;
use crate::socket::SocketId;

const SHARDS: usize = 64;

/// Every socket that listens.
pub(crate) struct Listeners {
    shards: Box<[CacheLine<ShortLock<Rows>>]>,
    /// Those that take what nobody else does.
    any: ShortLock<Vec<Listener>>,
    /// How many there are, so that nobody takes the lock for none.
    any_len: AtomicUsize,
}

type Rows = HashMap<Place, Vec<Listener>, Key>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    id: SocketId,
    device: u32,
    /// In a group with those of the same interface and family that say so, too.
    is_grouped: bool,
    is_ipv6: bool,
}

impl Listeners {
    pub(crate) fn new(key: Key) -> Self {
        let shard = || CacheLine(ShortLock::new(HashMap::with_hasher(key)));
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            any: ShortLock::default(),
            any_len: AtomicUsize::new(0),
        }
    }

    /// Adds a listener where it is bound. `is_ipv6`: an `AF_INET6` socket. Port 0 stands for every
    /// address and every port; of those, `Ports` knows nothing.
    ///
    /// # Errors
    ///
    /// [`InUse`] if another takes every address and port, and they are no group.
    pub(crate) fn add(&self, claim: &PortClaim, is_ipv6: bool, id: SocketId) -> Result<(), InUse> {
        let listener = Listener {
            id,
            device: claim.device,
            is_grouped: claim.reuse_port,
            is_ipv6,
        };
        if claim.port == 0 {
            let mut any = self.any.lock();
            if any.iter().any(|other| listener.conflicts(other)) {
                return Err(InUse);
            }
            any.push(listener);
            self.any_len.store(any.len(), Ordering::Release);
            return Ok(());
        }
        for place in claim.places() {
            self.rows(claim.port)
                .entry(place)
                .or_default()
                .push(listener);
        }
        Ok(())
    }

    /// Removes a listener from where it was bound.
    pub(crate) fn remove(&self, claim: &PortClaim, id: SocketId) {
        if claim.port == 0 {
            let mut any = self.any.lock();
            any.retain(|listener| listener.id != id);
            self.any_len.store(any.len(), Ordering::Release);
            return;
        }
        for place in claim.places() {
            let mut rows = self.rows(claim.port);
            if let Some(row) = rows.get_mut(&place) {
                row.retain(|listener| listener.id != id);
                if row.is_empty() {
                    rows.remove(&place);
                }
            }
        }
    }

    /// The listener of a connection to a local address and port that came in by `iif`; of a group,
    /// the one that the flow's hash picks.
    pub(crate) fn lookup(&self, local: (IpAddr, u16), iif: u32, hash: u64) -> Option<SocketId> {
        let (addr, port) = local;
        let rows = self.rows(port);
        let best_at = |place| best(rows.get(&place)?, addr, iif, hash);
        let found = best_at(Place { addr, port }).or_else(|| best_at(Place::every(addr, port)));
        drop(rows);
        found.or_else(|| {
            if self.any_len.load(Ordering::Acquire) == 0 {
                return None;
            }
            best(&self.any.lock(), addr, iif, hash)
        })
    }

    fn rows(&self, port: u16) -> ShortGuard<'_, Rows> {
        self.shards[usize::from(port) % SHARDS].lock()
    }
}

/// The listener that fits best. Of equals, the last one counts, unless they are a group.
fn best(row: &[Listener], local: IpAddr, iif: u32, hash: u64) -> Option<SocketId> {
    let score = |listener: &Listener| {
        let device = listener.device;
        let fits = (device == 0 || device == iif) && (listener.is_ipv6 || local.is_ipv4());
        let same_family = listener.is_ipv6 == local.is_ipv6();
        fits.then_some(u8::from(device != 0) * 2 + u8::from(same_family))
    };
    let scored = row
        .iter()
        .filter_map(|listener| Some((score(listener)?, listener)));
    let (_, found) = scored.max_by_key(|(score, _)| *score)?;
    let members = || row.iter().filter(|other| found.is_grouped_with(other));
    let count = members().count();
    let nth = ((u128::from(hash) * count as u128) >> 64) as usize;
    Some(members().nth(nth).unwrap_or(found).id)
}

impl Listener {
    /// Whether the two can't both take everything.
    fn conflicts(&self, other: &Self) -> bool {
        let share = |of: &Self| (of.device, of.is_ipv6);
        share(self) == share(other) && !self.is_grouped_with(other)
    }

    fn is_grouped_with(&self, other: &Self) -> bool {
        let share = |of: &Self| (of.is_grouped, of.device, of.is_ipv6);
        self.is_grouped && share(self) == share(other)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
