//! Sockets as packets see them: ids, and the slots that ids name.
//!
//! Slots are never freed, so an id can be followed without a reference count. A slot serves one
//! socket after the other, each under a generation of its own, and rests for a grace period between
//! them.

mod rare;

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_sync::cache_line::CacheLine;
use forebay_sync::rcu::{Domain, Ticket};
use forebay_sync::segments::Segments;

pub use self::rare::MulticastOptions;
pub(crate) use self::rare::{Membership, Rare};
use self::rare::{RareIndex, Rares};
use crate::demux::flow::{Flow, KeySet};
use crate::demux::row::Class;
use crate::family::Family;
use crate::packet::Packet;
use crate::udp::ErrorQueue;
use crate::udp::queue::ReceiveQueue;

/// A socket, by its slot and the slot's generation.
///
/// A packet may carry an id past the socket's end: slots are used again under a new generation, so
/// whoever follows an id checks the generation under the socket's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    /// Index of the slot.
    pub(crate) slot: u32,
    /// Odd while the slot is in use.
    pub(crate) generation: NonZeroU32,
}

impl SocketId {
    /// A number that no other socket of the stack has or had, as ss(8) shows an inode.
    pub fn as_u64(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.slot)
    }

    /// For models of what is above the sockets, which have no stack.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn of_model(slot: u32) -> Self {
        let generation = NonZeroU32::MIN;
        Self { slot, generation }
    }
}

/// What an ICMP error says to a socket; the errors that Linux makes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SocketError {
    /// ECONNREFUSED: no socket at the other end.
    #[error("connection refused")]
    ConnectionRefused,
    /// EHOSTUNREACH, for now.
    #[error("no route to host")]
    HostUnreachable,
    /// EHOSTUNREACH, for good: somebody on the way has a rule against it, or knows no such host.
    #[error("no route to host")]
    HostProhibited,
    /// ENETUNREACH, for now.
    #[error("network is unreachable")]
    NetworkUnreachable,
    /// ENETUNREACH, for good: somebody on the way has a rule against it, or knows no such network.
    #[error("network is unreachable")]
    NetworkProhibited,
    /// EACCES: somebody on the way has a rule against it (ICMPv6 says it so).
    #[error("permission denied")]
    PermissionDenied,
    /// EPROTO: somebody found a header of ours wrong.
    #[error("protocol error")]
    ProtocolError,
    /// ENOPROTOOPT: the other end does not speak the protocol.
    #[error("protocol not available")]
    ProtocolUnavailable,
    /// EMSGSIZE: larger than the path's MTU.
    #[error("message too long")]
    MessageTooLong,
}

impl SocketError {
    /// Whether it is final, so that a connected socket hears of it unasked. Soft errors may pass by
    /// themselves (RFC 1122 section 4.2.3.9, RFC 5461) and are told only to who asked (`IP_RECVERR`).
    pub fn is_hard(self) -> bool {
        !matches!(self, Self::HostUnreachable | Self::NetworkUnreachable)
    }
}

/// Locks, whether or not somebody panicked inside: no lock of ours guards what a panic could leave
/// half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one socket consists of: five cache lines. A delivery touches two of them, that of the key
/// set and the queue's first; a read the queue's first, too, and its second where datagrams wait behind
/// others.
///
/// Locks are taken in this order: control, reader's queue, producers' queue. Nobody who holds an RCU
/// guard takes the control lock, for its holder may wait for a grace period.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    keys: [KeySet; 2],
    pub(crate) queue: ReceiveQueue,
    rear: CacheLine<Rear>,
}

/// What no datagram touches on its good way.
#[derive(Debug, Default)]
struct Rear {
    control: Mutex<Control>,
    /// Datagrams that came and were not kept: `sk_drops`.
    drops: AtomicU32,
    /// What the network said, for a socket that asked for it.
    reports: Mutex<Option<Box<ErrorQueue>>>,
    /// What few sockets have.
    rare: RareIndex,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 5 * 64);

/// What the calls that bind, connect and close a socket know, and take turns by.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// When the key set that is not in use may be written again.
    pub(crate) retired: Option<Ticket>,
    /// The interface that the socket is bound to, or 0, and how it shares its port since the bind.
    pub(crate) class: Class,
    /// The application chose the local address (Linux's `SOCK_BINDADDR_LOCK`).
    pub(crate) chose_addr: bool,
    /// The application chose the local port (Linux's `SOCK_BINDPORT_LOCK`).
    pub(crate) chose_port: bool,
}

/// How far a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The slot has no socket.
    Closed,
    /// No address yet.
    Open,
    /// Takes datagrams from anybody.
    Bound,
    /// Takes the peer's.
    Connected,
}

/// A slot's state in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) generation: u32,
    pub(crate) mode: Mode,
    /// Which key set counts.
    pub(crate) keys: usize,
}

impl Status {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | (self.keys as u64) << 8 | self.mode as u64
    }

    fn unpack(word: u64) -> Self {
        let mode = match word & 0xff {
            1 => Mode::Open,
            2 => Mode::Bound,
            3 => Mode::Connected,
            _ => Mode::Closed,
        };
        Self {
            generation: (word >> 32) as u32,
            mode,
            keys: (word >> 8 & 1) as usize,
        }
    }
}

impl Slot {
    pub(crate) fn status(&self) -> Status {
        Status::unpack(self.queue.state())
    }

    /// The socket's state, or `None` if the slot's socket is another by now.
    pub(crate) fn status_of(&self, id: SocketId) -> Option<Status> {
        let status = self.status();
        (status.generation == id.generation.get()).then_some(status)
    }

    pub(crate) fn key_set(&self, which: usize) -> &KeySet {
        &self.keys[which & 1]
    }

    pub(crate) fn options(&self) -> &Options {
        self.queue.options()
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.rear.control)
    }

    /// The error queue.
    pub(crate) fn reports(&self) -> MutexGuard<'_, Option<Box<ErrorQueue>>> {
        lock(&self.rear.reports)
    }

    /// Datagrams that came and were not kept.
    pub(crate) fn drops(&self) -> u32 {
        self.rear.drops.load(Ordering::Relaxed)
    }

    pub(crate) fn add_drops(&self, datagrams: usize) {
        let more = u32::try_from(datagrams).unwrap_or(u32::MAX);
        self.rear.drops.fetch_add(more, Ordering::Relaxed);
    }

    /// The state in which the socket `id` takes datagrams of a flow that came in by `iif`, if it is
    /// in such a state. It holds until the state changes, and states do not come back while a guard
    /// is held.
    #[inline(always)]
    pub(crate) fn takes(&self, id: SocketId, flow: &Flow, iif: u32) -> Option<Status> {
        let status = self.status_of(id)?;
        let takes = match status.mode {
            Mode::Connected => self.key_set(status.keys).is(flow, iif),
            Mode::Bound => self.key_set(status.keys).covers(flow, iif),
            Mode::Open | Mode::Closed => false,
        };
        takes.then_some(status)
    }

    /// The same for a packet that the socket was connected to a moment ago.
    #[inline]
    pub(crate) fn still_takes<F: Family>(&self, id: SocketId, packet: &Packet) -> Option<Status> {
        let status = self.status_of(id)?;
        let is_connected = status.mode == Mode::Connected;
        let takes = is_connected && self.key_set(status.keys).is_of_packet::<F>(packet);
        takes.then_some(status)
    }

    /// Changes the state, with no datagram on its way into the queue. The key set that counts must
    /// be written.
    pub(crate) fn set_status(&self, status: Status) {
        self.move_to(status, || {});
    }

    /// The same for a socket that moves from one key set to the other. `moved` is called when the
    /// new one counts and the old one is still to be found.
    pub(crate) fn move_to(&self, status: Status, moved: impl FnOnce()) {
        self.queue.change_state(|store| {
            let old = self.status();
            let stays = status.mode == Mode::Connected && status.keys == old.keys;
            if status.mode == Mode::Connected {
                self.key_set(status.keys).set_connected(status.generation);
            }
            store(status.pack());
            moved();
            if !stays {
                self.key_set(old.keys).set_connected(0);
            }
        });
    }
}

/// Every socket of a stack.
pub(crate) struct Sockets {
    domain: Domain,
    slots: Segments<Slot>,
    /// Slots without a socket, each with the end of its rest, the longest at rest first.
    resting: Mutex<VecDeque<(Ticket, u32)>>,
    rares: Rares,
}

impl Sockets {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            slots: Segments::new(),
            resting: Mutex::default(),
            rares: Rares::new(domain),
        }
    }

    /// A new socket, without an address. `None` after 2^30 sockets at a time.
    pub(crate) fn open(&self) -> Option<(SocketId, &Slot)> {
        let index = self.rested().or_else(|| self.fresh())?;
        let slot = self.slots.get(index)?;
        // Only we know of the slot.
        let generation = slot.status().generation.wrapping_add(1) | 1;
        *slot.control() = Control::default();
        slot.options().reset();
        slot.rear.drops.store(0, Ordering::Relaxed);
        *slot.reports() = None;
        // Somebody may still have reported one to the slot's last socket.
        let _ = slot.queue.take_error();
        slot.set_status(Status {
            generation,
            mode: Mode::Open,
            keys: 0,
        });
        Some((
            SocketId {
                slot: index,
                generation: NonZeroU32::new(generation)?,
            },
            slot,
        ))
    }

    /// The slot of a socket, if the socket has not been closed. It may be at any moment.
    pub(crate) fn get(&self, id: SocketId) -> Option<&Slot> {
        self.slots
            .get(id.slot)
            .filter(|slot| slot.status_of(id).is_some())
    }

    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// What few slots have, if this one ever had any of it.
    pub(crate) fn rare(&self, slot: &Slot) -> Option<&Rare> {
        self.rares.of(slot)
    }

    /// The same, made if the slot has none.
    pub(crate) fn make_rare(&self, slot: &Slot) -> Option<&Rare> {
        self.rares.make(slot)
    }

    /// Payload bytes of each datagram that the socket's sends are cut into (`UDP_SEGMENT`); 0 if they
    /// are not.
    pub(crate) fn segment_size(&self, slot: &Slot) -> u16 {
        match slot.options().has(Flag::UdpSegment) {
            true => self.rare(slot).map_or(0, Rare::segment_size),
            false => 0,
        }
    }

    /// Marks a socket as closed: no datagram gets in any more. The caller holds its control lock.
    pub(crate) fn close(&self, slot: &Slot) {
        let status = slot.status();
        let generation = status.generation.wrapping_add(1);
        slot.set_status(Status {
            generation,
            mode: Mode::Closed,
            ..status
        });
    }

    /// Lays a closed socket's slot to rest, once nothing leads to it any more.
    pub(crate) fn rest(&self, index: u32) {
        lock(&self.resting).push_back((self.domain.ticket(), index));
    }

    /// The sockets that are open.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SocketId, &Slot)> {
        (0..self.slots.len()).filter_map(|index| {
            let slot = self.slots.get(index)?;
            let status = slot.status();
            let generation = NonZeroU32::new(status.generation)?;
            let is_open = status.mode != Mode::Closed;
            is_open.then_some((
                SocketId {
                    slot: index,
                    generation,
                },
                slot,
            ))
        })
    }

    fn rested(&self) -> Option<u32> {
        let mut resting = lock(&self.resting);
        let (ticket, index) = resting.front().copied()?;
        if !self.domain.elapsed(&ticket) {
            return None;
        }
        resting.pop_front();
        Some(index)
    }

    fn fresh(&self) -> Option<u32> {
        // Whoever grows the table has its new slot, so others must not be told of it.
        let _resting = lock(&self.resting);
        let index = self.slots.len();
        // Bits of a slot's word in the established table say other things.
        if index >= 1 << 30 {
            return None;
        }
        self.slots.grow_to(index + 1, Slot::default);
        Some(index)
    }
}

/// Where [`Options`] hold `IP_MTU_DISCOVER`.
const MTU_DISCOVER_SHIFT: u32 = 26;

/// A socket's options, each readable while another is set.
#[derive(Debug, Default)]
pub(crate) struct Options(AtomicU32);

/// An option that is on or off.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Flag {
    /// `SO_BROADCAST`.
    Broadcast = 1 << 16,
    /// `SO_REUSEADDR`.
    ReuseAddr = 1 << 17,
    /// `IPV6_V6ONLY`.
    V6Only = 1 << 18,
    /// `IP_TRANSPARENT`: any address will do as the local one.
    Transparent = 1 << 19,
    /// The socket was opened as `AF_INET6`.
    Inet6 = 1 << 20,
    /// A program decides what gets into the queue (`SO_ATTACH_FILTER`).
    Filter = 1 << 21,
    /// The program stays as it is (`SO_LOCK_FILTER`).
    LockFilter = 1 << 22,
    /// `IP_FREEBIND`: it may be bound to any address.
    Freebind = 1 << 25,
    /// A program picks members of the socket's group (`SO_ATTACH_REUSEPORT_CBPF`).
    GroupProgram = 1 << 31,
    /// `SO_REUSEPORT`.
    ReusePort = 1 << 23,
    /// `IP_RECVERR`: errors are kept with all that is known of them.
    RecvErr = 1 << 24,
    /// `UDP_GRO`: datagrams of one flow may come joined.
    UdpGro = 1 << 29,
    /// `UDP_SEGMENT`: what is sent is cut into datagrams.
    UdpSegment = 1 << 30,
}

impl Options {
    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.0.load(Ordering::Relaxed) & flag as u32 != 0
    }

    pub(crate) fn set(&self, flag: Flag, on: bool) {
        if on {
            self.0.fetch_or(flag as u32, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!(flag as u32), Ordering::Relaxed);
        }
    }

    /// TTL or hop limit of datagrams sent; `None` leaves it to the knob.
    pub(crate) fn ttl(&self) -> Option<u8> {
        let [.., ttl] = self.0.load(Ordering::Relaxed).to_be_bytes();
        (ttl != 0).then_some(ttl)
    }

    pub(crate) fn set_ttl(&self, ttl: Option<u8>) {
        self.set_byte(0, ttl.unwrap_or(0));
    }

    /// Type of service or traffic class of datagrams sent.
    pub(crate) fn tos(&self) -> u8 {
        let [.., tos, _] = self.0.load(Ordering::Relaxed).to_be_bytes();
        tos
    }

    pub(crate) fn set_tos(&self, tos: u8) {
        self.set_byte(8, tos);
    }

    /// How the path's MTU is dealt with, by Linux's number.
    pub(crate) fn mtu_discover(&self) -> u32 {
        self.0.load(Ordering::Relaxed) >> MTU_DISCOVER_SHIFT & 7
    }

    pub(crate) fn set_mtu_discover(&self, how: u32) {
        self.set_bits(MTU_DISCOVER_SHIFT, 7, how);
    }

    fn set_byte(&self, shift: u32, byte: u8) {
        self.set_bits(shift, 0xff, byte.into());
    }

    fn set_bits(&self, shift: u32, mask: u32, bits: u32) {
        let put = |word: u32| Some(word & !(mask << shift) | (bits & mask) << shift);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_rests_while_anybody_may_look_at_it() {
        let domain = Domain::new();
        let sockets = Sockets::new(&domain);
        let reader = domain.reader();
        let (first, slot) = sockets.open().expect("a slot");
        let guard = reader.guard();
        sockets.close(slot);
        sockets.rest(first.slot);
        assert!(sockets.get(first).is_none());
        let (second, _) = sockets.open().expect("a slot");
        assert_ne!(second.slot, first.slot);
        drop(guard);
        let (third, _) = sockets.open().expect("a slot");
        assert_eq!(third.slot, first.slot);
        assert_ne!(third, first);
        assert!(sockets.get(first).is_none() && sockets.get(third).is_some());
        let open: Vec<_> = sockets.iter().map(|(id, _)| id).collect();
        assert_eq!(open, [third, second]);
    }

    #[test]
    fn a_status_is_one_word() {
        for mode in [Mode::Closed, Mode::Open, Mode::Bound, Mode::Connected] {
            for (generation, keys) in [(0, 0), (1, 1), (u32::MAX, 1)] {
                let status = Status {
                    generation,
                    mode,
                    keys,
                };
                assert_eq!(Status::unpack(status.pack()), status);
            }
        }
    }

    #[test]
    fn options_do_not_disturb_each_other() {
        let options = Options::default();
        options.set(Flag::Inet6, true);
        options.set_ttl(Some(255));
        options.set_tos(0xb8);
        options.set(Flag::Broadcast, true);
        options.set_ttl(Some(1));
        options.set(Flag::Broadcast, false);
        assert_eq!((options.ttl(), options.tos()), (Some(1), 0xb8));
        assert!(options.has(Flag::Inet6) && !options.has(Flag::Broadcast));
        options.set_ttl(None);
        assert_eq!((options.ttl(), options.tos()), (None, 0xb8));
    }
}
