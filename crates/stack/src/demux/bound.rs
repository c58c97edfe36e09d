//! The bind table: sockets by local address and port.
//!
//! A datagram that no connected socket takes goes to the socket that is bound to its destination
//! address and port, else to one bound to the port on every address, else to one that takes
//! whatever no other does. Connected sockets stay in the table, out of packets' sight, for their
//! port is taken.
//!
//! IPv4-mapped IPv6 addresses are IPv4 here. An IPv6 socket that is bound to `::` and takes IPv4,
//! too, stands under both wildcards.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use forebay_sync::cache_line::CacheLine;
use forebay_sync::rcu::{Domain, Guard};

use super::flow::{hash_of_local, split_addr};
use super::places::{Places, Table, Who};
use super::row::{self, Best, Class, Listener, Occupant, Row};
use crate::siphash::Key;
use crate::socket::{Flag, Options, SocketId, lock};

const SHARDS: usize = 256;

/// Where and how a socket is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The local address; a mapped one is held as IPv4.
    pub(crate) addr: IpAddr,
    /// The local port. 0 stands for every address and every port.
    pub(crate) port: u16,
    pub(crate) class: Class,
    /// An `AF_INET6` socket.
    pub(crate) inet6: bool,
    /// Bound to `::` and open to IPv4.
    pub(crate) dual_stack: bool,
}

/// The port is taken (EADDRINUSE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse;

/// Every bound socket of one protocol.
pub(crate) struct Bound {
    key: Key,
    /// What most rows are, to be read without a lock. Written under the port's lock.
    places: Places,
    rows: Box<[CacheLine<Mutex<Rows>>]>,
    /// Everybody on a port, whatever the address. Held for the whole of a bind, so that two binds
    /// to one port take turns; taken before a row's lock.
    ports: Box<[CacheLine<Mutex<PortUses>>]>,
    /// Sockets that take what no other does.
    any: Mutex<Vec<Listener>>,
    /// How many there are, so that nobody takes the lock for none.
    any_len: AtomicUsize,
}

type Rows = HashMap<Place, Row, Key>;

/// How many sockets use a port in one way.
type PortUses = Vec<(PortUse, u32)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    addr: IpAddr,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortUse {
    port: u16,
    is_ipv6: bool,
    class: Class,
}

impl Bound {
    pub(crate) fn new(key: Key, domain: &Domain) -> Self {
        let rows = || CacheLine(Mutex::new(HashMap::with_hasher(key)));
        Self {
            key,
            places: Places::new(domain),
            rows: (0..SHARDS).map(|_| rows()).collect(),
            ports: (0..SHARDS).map(|_| CacheLine::default()).collect(),
            any: Mutex::default(),
            any_len: AtomicUsize::new(0),
        }
    }

    /// The socket that takes a datagram to `addr` and `port` from anybody: the best of the most
    /// specific row that has any. `score` says how well a socket fits, or that it does not; of
    /// equals, the last one bound wins, or of a group the one that `choose` picks from its members.
    pub(crate) fn find(
        &self,
        addr: IpAddr,
        port: u16,
        mut score: impl FnMut(&Listener) -> Option<u32>,
        mut choose: impl FnMut(&mut dyn Iterator<Item = &Listener>, usize) -> usize,
    ) -> Option<Best> {
        let places = [
            Place { addr, port },
            Place {
                addr: wildcard(addr),
                port,
            },
        ];
        let rows = self.rows(port);
        let mut best_of = |place| row::best(rows.get(place)?.listeners(), &mut score, &mut choose);
        let found = places.iter().find_map(&mut best_of);
        drop(rows);
        found.or_else(|| {
            if self.any_len.load(Ordering::Acquire) == 0 {
                return None;
            }
            row::best(&lock(&self.any), &mut score, &mut choose)
        })
    }

    /// Who is at each place, as it is plain to see under a guard.
    #[inline]
    pub(crate) fn places<'g>(&'g self, guard: &'g Guard<'_>) -> &'g Table {
        self.places.table(guard)
    }

    /// Calls `f` with each socket that takes datagrams to `addr` and `port`: those bound to the
    /// address, then those bound to every one.
    pub(crate) fn for_each(&self, addr: IpAddr, port: u16, mut f: impl FnMut(&Listener)) {
        for place in [
            Place { addr, port },
            Place {
                addr: wildcard(addr),
                port,
            },
        ] {
            if let Some(row) = self.rows(place.port).get(&place) {
                row.listeners().iter().rev().for_each(&mut f);
            }
        }
    }

    /// Binds a socket.
    ///
    /// # Errors
    ///
    /// If another socket has the port on an overlapping address and device, and not both share it.
    pub(crate) fn bind(&self, binding: &Binding, id: SocketId) -> Result<(), InUse> {
        let mut port = self.port(binding.port);
        if self.conflicts(&port, binding, binding.class) {
            return Err(InUse);
        }
        self.insert(&mut port, binding, id, false);
        Ok(())
    }

    /// Binds a socket to a free port of a range, looking from the one `start` places (modulo its
    /// length) behind `first` (RFC 6056 section 3.3.1). `found` is told the binding with its port
    /// before packets can find the socket.
    ///
    /// # Errors
    ///
    /// If no port is free; a port that somebody would share is not.
    pub(crate) fn bind_ephemeral(
        &self,
        binding: &Binding,
        id: SocketId,
        (first, last): (u16, u16),
        start: u32,
        found: impl FnOnce(&Binding),
    ) -> Result<(), InUse> {
        let ports = u32::from(last).saturating_sub(u32::from(first)) + 1;
        let alone = Class {
            share: false,
            group: false,
            ..binding.class
        };
        for step in 0..ports {
            let offset = (start % ports + step) % ports;
            let candidate = Binding {
                port: first.wrapping_add(offset as u16),
                ..*binding
            };
            let mut port = self.port(candidate.port);
            if !self.conflicts(&port, &candidate, alone) {
                found(&candidate);
                self.insert(&mut port, &candidate, id, false);
                return Ok(());
            }
        }
        Err(InUse)
    }

    /// Adds a socket that is known to fit: one that moves within the table.
    pub(crate) fn add(&self, binding: &Binding, id: SocketId, connected: bool) {
        if binding.port == 0 {
            let mut any = lock(&self.any);
            any.push(binding.listener(id));
            self.any_len.store(any.len(), Ordering::Release);
            return;
        }
        let mut port = self.port(binding.port);
        self.insert(&mut port, binding, id, connected);
    }

    /// Removes a socket.
    pub(crate) fn remove(&self, binding: &Binding, id: SocketId, connected: bool) {
        if binding.port == 0 {
            let mut any = lock(&self.any);
            any.retain(|listener| listener.id != id);
            self.any_len.store(any.len(), Ordering::Release);
            return;
        }
        let mut port = self.port(binding.port);
        let occupant = Occupant {
            listener: binding.listener(id),
            connected,
        };
        for place in binding.places() {
            row::remove(&mut port, PortUse::of(&place, binding.class));
            self.change(place, |rows| {
                if rows
                    .get_mut(&place)
                    .is_some_and(|row| row.remove(&occupant))
                {
                    rows.remove(&place);
                }
            });
        }
    }

    fn insert(&self, port: &mut PortUses, binding: &Binding, id: SocketId, connected: bool) {
        let occupant = Occupant {
            listener: binding.listener(id),
            connected,
        };
        for place in binding.places() {
            row::add(port, PortUse::of(&place, binding.class));
            self.change(place, |rows| {
                rows.entry(place)
                    .and_modify(|row| row.add(occupant))
                    .or_insert(Row::One(occupant));
            });
        }
    }

    /// Changes a place's row, and what is plain to see of it. The caller holds the port's lock.
    fn change(&self, place: Place, change: impl FnOnce(&mut Rows)) {
        let mut rows = self.rows(place.port);
        let old = who(rows.get(&place));
        change(&mut rows);
        let new = who(rows.get(&place));
        // Packets wait for rows under a guard, and who writes waits for guards.
        drop(rows);
        self.places.set(place.hash(self.key), old, new);
    }

    /// Whether somebody keeps a socket of this class off the binding's addresses.
    fn conflicts(&self, port: &[(PortUse, u32)], binding: &Binding, class: Class) -> bool {
        binding.places().any(|place| {
            if place.addr.is_unspecified() {
                return port.iter().any(|(used, _)| {
                    (used.port, used.is_ipv6) == (place.port, place.addr.is_ipv6())
                        && used.class.conflicts(class)
                });
            }
            let everywhere = Place {
                addr: wildcard(place.addr),
                ..place
            };
            [place, everywhere].iter().any(|place| {
                self.rows(place.port)
                    .get(place)
                    .is_some_and(|row| row.conflicts(class))
            })
        })
    }

    /// The rows of a port, and others.
    fn rows(&self, port: u16) -> MutexGuard<'_, Rows> {
        lock(&self.rows[usize::from(port) % SHARDS])
    }

    fn port(&self, port: u16) -> MutexGuard<'_, PortUses> {
        lock(&self.ports[usize::from(port) % SHARDS])
    }
}

impl Binding {
    /// How a socket with these options stands at an address; a mapped one is IPv4.
    pub(crate) fn new(addr: IpAddr, port: u16, class: Class, options: &Options) -> Self {
        let addr = addr.to_canonical();
        let inet6 = options.has(Flag::Inet6);
        let is_every_ipv6 = addr == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let dual_stack = inet6 && is_every_ipv6 && !options.has(Flag::V6Only);
        Self {
            addr,
            port,
            class,
            inet6,
            dual_stack,
        }
    }

    fn listener(&self, id: SocketId) -> Listener {
        Listener {
            id,
            class: self.class,
            inet6: self.inet6,
        }
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
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
}

impl PortUse {
    fn of(place: &Place, class: Class) -> Self {
        Self {
            port: place.port,
            is_ipv6: place.addr.is_ipv6(),
            class,
        }
    }
}

impl Place {
    fn hash(&self, key: Key) -> u32 {
        hash_of_local(key, split_addr(self.addr), self.port)
    }
}

/// What is plain to see of a row.
fn who(row: Option<&Row>) -> Who {
    match row.map_or(&[][..], Row::listeners) {
        [] => Who::Nobody,
        [alone] if alone.class.device == 0 => Who::Alone(alone.id.slot),
        _ => Who::Others,
    }
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

pub(super) fn wildcard(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests;
