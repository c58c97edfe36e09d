//! Which socket a packet is for.
//!
//! Connected sockets are found by all four addresses and ports in the `established` table, without
//! a lock; others by their local address and port in the bind table, `bound`. The ordinary lookup
//! asks one, then the other; the `early` look asks the first alone.
//!
//! # A socket that moves is never out of sight
//!
//! `connect` on a socket that takes datagrams from anybody, one that is connected elsewhere, and
//! the way back, all go the same way:
//!
//! 1. The socket enters the table where it will be found. Lookups find it there and pass it over,
//!    for they ask the slot.
//! 2. The slot's state changes, under the lock of its queue: from this moment on it takes or refuses
//!    datagrams by its new address, wherever they find it. Before it is no longer found by the old
//!    one, the count of moves goes up.
//! 3. The socket leaves the table where it was.
//!
//! A lookup that asked the first table before step 2 and the second after it has missed it in
//! both. It sees the count changed, and looks again.

pub(crate) mod bound;
pub(crate) mod early;
pub(crate) mod established;
pub(crate) mod flow;
pub(crate) mod places;
pub(crate) mod row;
pub(crate) mod train;

use core::net::IpAddr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::MutexGuard;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::prefetch::prefetch_read;
use forebay_sync::rcu::Domain;
use forebay_sync::static_key::StaticKey;

use self::bound::{Binding, Bound, InUse};
use self::established::{Established, Line};
use self::flow::{Flow, KeySet};
use self::row::{Best, Class, Listener};
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet};
use crate::siphash::Key;
use crate::socket::{Control, Flag, Mode, Slot, SocketError, SocketId, Sockets, Status};
use crate::udp::memory::SocketMemory;
use crate::wire::protocol;

/// Everything that sockets share.
pub struct Demux {
    domain: Domain,
    key: Key,
    sockets: Sockets,
    established: Established,
    bound: Bound,
    /// How often a socket has moved from one table to another, or within one.
    moves: CacheLine<AtomicU64>,
    memory: SocketMemory,
    /// On while there is a connected socket.
    early_key: StaticKey,
    /// On while a connected socket is bound to an interface.
    device_key: StaticKey,
    /// On while a socket has a program for its group.
    group_programs: StaticKey,
    /// On while a socket takes joined datagrams.
    gro: StaticKey,
    /// How many ephemeral ports were looked for.
    ephemeral: AtomicU64,
}

/// Where a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) binding: Binding,
    /// The peer, of the same family as the local address, if the socket is connected.
    pub(crate) peer: Option<(IpAddr, u16)>,
}

impl Demux {
    /// Tables without sockets. `seed` is what strangers must not know; all sockets together hold
    /// at most `socket_memory` bytes of buffers.
    pub(crate) fn new(domain: &Domain, seed: [u64; 2], socket_memory: usize) -> Self {
        let key = Key(seed);
        Self {
            domain: domain.clone(),
            key,
            sockets: Sockets::new(domain),
            established: Established::new(),
            bound: Bound::new(key, domain),
            moves: CacheLine::default(),
            memory: SocketMemory::new(socket_memory),
            early_key: StaticKey::new(),
            device_key: StaticKey::new(),
            group_programs: StaticKey::new(),
            gro: StaticKey::new(),
            ephemeral: AtomicU64::new(0),
        }
    }

    /// On while there is a connected socket.
    pub(crate) fn early_key(&self) -> &StaticKey {
        &self.early_key
    }

    /// On while a socket has a program for its group.
    pub(crate) fn group_programs(&self) -> &StaticKey {
        &self.group_programs
    }

    /// On while a socket takes joined datagrams (`UDP_GRO`).
    pub(crate) fn gro_key(&self) -> &StaticKey {
        &self.gro
    }

    /// How often a socket has moved: who looks into several tables has missed none if that is so often
    /// before as after.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    pub(crate) fn memory(&self) -> &SocketMemory {
        &self.memory
    }

    /// A number that packets of one flow have in common, and that strangers can't foretell.
    pub(crate) fn flow_hash(&self, packet: &Packet) -> u32 {
        let flow = match packet.version {
            IpVersion::V4 => Flow::of_packet::<V4>(packet),
            IpVersion::V6 => Flow::of_packet::<V6>(packet),
        };
        (flow.hash(self.key) >> 32) as u32
    }
}

/// A connected socket, and the key set that says so.
#[derive(Debug, Clone, Copy)]
struct Hit<'a> {
    id: SocketId,
    keys: &'a KeySet,
    /// Which of the socket's two that is.
    which: usize,
}

/// A socket that may be connected as a packet wants it, before anybody has looked at its keys.
#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    slot: u32,
    which: usize,
    keys: &'a KeySet,
}

impl<'a> Candidate<'a> {
    /// The socket, if it is connected as its keys say.
    #[inline]
    fn hit(self) -> Option<Hit<'a>> {
        let Self { slot, which, keys } = self;
        let generation = NonZeroU32::new(keys.connected())?;
        let id = SocketId { slot, generation };
        Some(Hit { id, keys, which })
    }
}

/// Looking packets up. To be called under a guard.
impl Demux {
    /// The socket that takes the flow's packets: the connected one, else the best that takes
    /// datagrams from anybody. Of a group, the member whose place `ask` says, if it is told the slot
    /// that has the group's program, and how many there are; else one by the flow.
    pub(crate) fn lookup(
        &self,
        flow: &Flow,
        local: (IpAddr, u16),
        iif: u32,
        mut ask: impl FnMut(&Slot, usize) -> Option<usize>,
    ) -> Option<Best> {
        let mut choose = |members: &mut dyn Iterator<Item = &Listener>, count| {
            let by_program = self
                .group_program(members)
                .and_then(|slot| ask(slot, count));
            by_program
                .filter(|nth| *nth < count)
                .unwrap_or_else(|| scale(flow.hash(self.key), count))
        };
        let mut moves = self.moves.load(Ordering::Acquire);
        loop {
            if let Some(id) = self.connected(flow, iif) {
                let is_member = false;
                return Some(Best { id, is_member });
            }
            let score = |listener: &Listener| self.score(listener, local.0, flow, iif);
            let found = self.bound.find(local.0, local.1, score, &mut choose);
            let now = self.moves.load(Ordering::Acquire);
            if now == moves {
                return found;
            }
            moves = now;
        }
    }

    /// Whether a connected socket takes the flow's packets.
    #[inline]
    pub(crate) fn is_connected(&self, flow: &Flow, iif: u32) -> bool {
        let mut moves = self.moves.load(Ordering::Acquire);
        loop {
            let found = self.connected(flow, iif);
            let now = self.moves.load(Ordering::Acquire);
            if found.is_some() || now == moves {
                return found.is_some();
            }
            moves = now;
        }
    }

    /// The socket that is connected so. The table is asked only if somebody is in it: a socket that
    /// moves there turns the key before it counts the move.
    #[inline]
    fn connected(&self, flow: &Flow, iif: u32) -> Option<SocketId> {
        if !self.early_key.is_enabled() {
            return None;
        }
        let hit = self.find_connected(flow, flow.hash(self.key), iif)?;
        Some(hit.id)
    }

    /// The first member that has a program for its group.
    fn group_program(&self, members: &mut dyn Iterator<Item = &Listener>) -> Option<&Slot> {
        if !self.group_programs.is_enabled() {
            return None;
        }
        let mut slots = members.filter_map(|member| self.sockets.get(member.id));
        slots.find(|slot| slot.options().has(Flag::GroupProgram))
    }

    /// Every socket that takes the flow's packets, each of them once: for broadcasts and groups.
    pub(crate) fn takers(&self, flow: &Flow, local: (IpAddr, u16), iif: u32) -> Vec<SocketId> {
        let mut takers = Vec::new();
        let mut moves = self.moves.load(Ordering::Acquire);
        loop {
            takers.clear();
            takers.extend(self.connected(flow, iif));
            self.bound.for_each(local.0, local.1, |listener| {
                if self.score(listener, local.0, flow, iif).is_some() {
                    takers.push(listener.id);
                }
            });
            let now = self.moves.load(Ordering::Acquire);
            if now == moves {
                break;
            }
            moves = now;
        }
        // One that moves stands in two places for a moment.
        takers.sort_unstable();
        takers.dedup();
        takers
    }

    /// The socket that is connected so.
    #[inline]
    fn find_connected(&self, flow: &Flow, hash: u64, iif: u32) -> Option<Hit<'_>> {
        // One bound to the interface goes before one that is not; of equals, the last one counts.
        let mut second = None;
        let first = self.established.find(hash, |word| {
            let hit = self.hit(word, |keys| keys.is(flow, iif))?;
            if hit.keys.device() != 0 {
                return Some(hit);
            }
            second = Some(hit);
            None
        });
        first.or(second)
    }

    /// The socket that a word of the table leads to, if it is connected as `is_right` says.
    #[inline]
    fn hit(&self, word: u32, is_right: impl FnOnce(&KeySet) -> bool) -> Option<Hit<'_>> {
        let (slot, which) = unpack_word(word);
        let keys = self.sockets.slot(slot)?.key_set(which);
        if !is_right(keys) {
            return None;
        }
        Candidate { slot, which, keys }.hit()
    }

    /// The word that [`find_connected`](Self::find_connected) will ask about last, if one look tells.
    /// The keys that it will compare are fetched, and, if `prefetch_rmem` says so, the line with the
    /// socket's receive memory: whoever reads has written to it, and filter and checksum come before
    /// it is needed.
    #[inline]
    fn candidate(&self, line: &Line, hash: u64, prefetch_rmem: bool) -> Option<Candidate<'_>> {
        let (word, is_last) = line.candidate(hash)?;
        let (slot, which) = unpack_word(word);
        let socket = self.sockets.slot(slot)?;
        let keys = socket.key_set(which);
        prefetch_read(keys);
        if prefetch_rmem {
            socket.queue.prefetch();
        }
        is_last.then_some(Candidate { slot, which, keys })
    }

    /// The [candidate](Self::candidate), if it is the packet's, and no other can go before it.
    #[inline]
    fn check_candidate<'a, F: Family>(
        &self,
        candidate: &Candidate<'a>,
        packet: &Packet,
    ) -> Option<Hit<'a>> {
        if self.device_key.is_enabled() || !candidate.keys.is_of_packet::<F>(packet) {
            return None;
        }
        candidate.hit()
    }

    /// How well a socket fits, as Linux's `compute_score`: one bound to the interface goes before
    /// one that is not, an IPv4 socket before an IPv6 one.
    fn score(&self, listener: &Listener, local: IpAddr, flow: &Flow, iif: u32) -> Option<u32> {
        let device = listener.class.device;
        if device != 0 && device != iif {
            return None;
        }
        let slot = self.sockets.slot(listener.id.slot)?;
        slot.takes(listener.id, flow, iif)?;
        let same_family = listener.inet6 == local.is_ipv6();
        Some(u32::from(device != 0) * 4 + u32::from(same_family))
    }

    /// Tells the socket that is connected so of an error.
    pub(crate) fn report(&self, flow: &Flow, iif: u32, error: SocketError) {
        let hit = self.find_connected(flow, flow.hash(self.key), iif);
        if let Some(slot) = hit.and_then(|hit| self.sockets.get(hit.id)) {
            slot.queue.set_error(error);
        }
    }
}

/// Placing sockets. To be called without a guard: these may wait for a grace period.
impl Demux {
    /// The socket's slot with its control lock, unless the socket is closed.
    pub(crate) fn control(&self, id: SocketId) -> Option<(&Slot, MutexGuard<'_, Control>)> {
        let slot = self.sockets.get(id)?;
        let control = slot.control();
        // Again, for it may have been closed while we waited.
        slot.status_of(id)?;
        Some((slot, control))
    }

    /// Gives an open socket its first address. With port 0, one of the range is chosen; with
    /// `any`, it takes every address and every port.
    pub(crate) fn bind(
        &self,
        id: SocketId,
        slot: &Slot,
        control: &mut Control,
        binding: &Binding,
        how: Bind,
    ) -> Result<(), InUse> {
        let status = slot.status();
        debug_assert_eq!(status.mode, Mode::Open);
        // Nobody reads the key set of a socket without an address.
        let place = |binding: &Binding| {
            let seat = Seat {
                binding: *binding,
                peer: None,
            };
            slot.key_set(status.keys)
                .write(&seat.flow(), binding.class.device);
            slot.set_status(Status {
                mode: Mode::Bound,
                ..status
            });
        };
        // The socket is findable from here on, so it is ready before.
        match how {
            Bind::Port => {
                place(binding);
                self.bound
                    .bind(binding, id)
                    .inspect_err(|InUse| slot.set_status(status))?;
            }
            Bind::Ephemeral { range } => {
                let start = self.ephemeral_start();
                self.bound
                    .bind_ephemeral(binding, id, range, start, place)?;
            }
            Bind::Any => {
                place(binding);
                self.bound.add(binding, id, false);
            }
        }
        control.class = binding.class;
        Ok(())
    }

    /// Moves a socket that has an address to another one, or connects it, or both.
    pub(crate) fn reseat(&self, id: SocketId, slot: &Slot, control: &mut Control, to: &Seat) {
        let Some(from) = self.seat(slot, control) else {
            return;
        };
        if from == *to {
            return;
        }
        let status = slot.status();
        let keys = status.keys ^ 1;
        if control
            .retired
            .is_some_and(|retired| !self.domain.elapsed(&retired))
        {
            self.domain.synchronize();
        }
        slot.key_set(keys)
            .write(&to.flow(), to.binding.class.device);
        self.enter(id, slot, keys, to);
        let mode = if to.peer.is_some() {
            Mode::Connected
        } else {
            Mode::Bound
        };
        let moved = Status {
            mode,
            keys,
            ..status
        };
        slot.move_to(moved, || {
            self.moves.fetch_add(1, Ordering::Release);
        });
        self.leave(id, slot, status.keys, &from);

        control.retired = Some(self.domain.ticket());
        control.class = to.binding.class;
    }

    /// Takes an address from a socket.
    pub(crate) fn unseat(&self, id: SocketId, slot: &Slot, control: &Control) {
        let Some(from) = self.seat(slot, control) else {
            return;
        };
        let status = slot.status();
        slot.set_status(Status {
            mode: Mode::Open,
            ..status
        });
        self.leave(id, slot, status.keys, &from);
        // The next bind writes the key set that packets may still be reading.
        self.domain.synchronize();
    }

    /// Closes a socket: nothing finds it any more, nothing gets into its queue. Returns false if it
    /// is closed already.
    pub(crate) fn close(&self, id: SocketId, free: impl FnOnce(&Slot)) -> bool {
        let Some((slot, control)) = self.control(id) else {
            return false;
        };
        let seat = self.seat(slot, &control);
        let keys = slot.status().keys;
        self.sockets.close(slot);
        if let Some(seat) = seat {
            self.leave(id, slot, keys, &seat);
        }
        free(slot);
        drop(control);
        self.sockets.rest(id.slot);
        true
    }

    /// Where a socket is, if it has an address.
    pub(crate) fn seat(&self, slot: &Slot, control: &Control) -> Option<Seat> {
        let status = slot.status();
        let is_connected = match status.mode {
            Mode::Bound => false,
            Mode::Connected => true,
            Mode::Open | Mode::Closed => return None,
        };
        let keys = slot.key_set(status.keys);
        let (addr, port) = keys.local();
        let class = Class {
            device: keys.device(),
            ..control.class
        };
        let binding = Binding::new(addr, port, class, slot.options());
        Some(Seat {
            binding,
            peer: is_connected.then(|| keys.remote()),
        })
    }

    /// Puts a socket into the tables by the key set that it is about to have.
    fn enter(&self, id: SocketId, slot: &Slot, keys: usize, to: &Seat) {
        if to.peer.is_some() {
            let hash = slot.key_set(keys).flow().hash(self.key);
            let word = pack_word(id.slot, keys);
            self.established
                .insert(hash, word, |word| self.hash_of(word));
            if to.binding.class.device != 0 {
                self.device_key.inc();
            }
            self.early_key.inc();
        }
        self.bound.add(&to.binding, id, to.peer.is_some());
    }

    /// Takes a socket out of the tables.
    fn leave(&self, id: SocketId, slot: &Slot, keys: usize, from: &Seat) {
        if from.peer.is_some() {
            let hash = slot.key_set(keys).flow().hash(self.key);
            let word = pack_word(id.slot, keys);
            if self
                .established
                .remove(hash, word, |word| self.hash_of(word))
            {
                self.early_key.dec();
                if from.binding.class.device != 0 {
                    self.device_key.dec();
                }
            }
        }
        self.bound.remove(&from.binding, id, from.peer.is_some());
    }

    /// Where to begin to look for a free port: nobody who has seen others can tell (RFC 6056), for
    /// the key is secret.
    fn ephemeral_start(&self) -> u32 {
        let nth = self.ephemeral.fetch_add(1, Ordering::Relaxed);
        self.key.hash([nth], 0, 0) as u32
    }

    fn hash_of(&self, word: u32) -> u64 {
        let (index, keys) = unpack_word(word);
        let slot = self.sockets.slot(index);
        slot.map_or(0, |slot| slot.key_set(keys).flow().hash(self.key))
    }
}

/// How a socket comes by its port.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bind {
    /// It is given.
    Port,
    /// The first free one of the range (first and last), from a random start on.
    Ephemeral { range: (u16, u16) },
    /// It needs none: it takes every address and every port that no other socket does.
    Any,
}

impl Seat {
    /// The flow of its packets; from anybody, if there is no peer.
    fn flow(&self) -> Flow {
        let local = (self.binding.addr, self.binding.port);
        let nobody = (bound::wildcard(self.binding.addr), 0);
        Flow::new(protocol::UDP, local, self.peer.unwrap_or(nobody))
    }
}

/// A flow's place among so many, each alike likely (Linux's `reciprocal_scale`).
fn scale(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// A word of the established table: slot, a bit for TCP's time-wait, key set.
fn pack_word(slot: u32, keys: usize) -> u32 {
    slot << 2 | (keys & 1) as u32
}

#[inline]
fn unpack_word(word: u32) -> (u32, usize) {
    (word >> 2, (word & 1) as usize)
}
