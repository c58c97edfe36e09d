//! Datagrams that an application reads.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::io::IoSliceMut;

use super::checksum;
use super::datagram::Datagram;
use super::info::present_v6;
use super::queue::Reading;
use super::socket::NotOpen;
use crate::core::Local;
use crate::counters::{Counter, MIB_V4, MIB_V6};
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, PacketQueue};
use crate::socket::{Flag, Slot, SocketError, SocketId};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::UdpHeader;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// What the network said about an earlier datagram; told once.
    #[error(transparent)]
    Pending(#[from] SocketError),
}

/// What is known of a datagram that was received: addresses, and what Linux tells in control
/// messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes copied.
    pub len: usize,
    /// Bytes that the datagram had; if more than were copied, the rest is lost (`MSG_TRUNC`).
    pub full_len: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent to (`IP_PKTINFO`, `IPV6_RECVPKTINFO`).
    pub local: SocketAddr,
    /// Index of the interface that it came in by.
    pub iif: u32,
    /// Its TTL or hop limit when it came (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    pub ttl: u8,
    /// Its type of service or traffic class (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub tos: u8,
    /// When it came (`SO_TIMESTAMPNS`), by the clock that drives the stack.
    pub timestamp: Instant,
    /// Set if these are several datagrams, joined for a socket that has asked for that (`UDP_GRO`):
    /// payload bytes of each but the last, which may be shorter.
    pub segment_size: Option<u16>,
}

/// A place for one datagram of [`Stack::udp_recv_batch`].
#[derive(Debug)]
pub struct RecvSlot<'a> {
    /// Where its payload goes.
    pub buf: &'a mut [u8],
    /// What came; nothing yet, or any more, in a place that was not filled.
    pub received: Option<Received>,
}

impl<'a> RecvSlot<'a> {
    /// A place without a datagram.
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self {
            buf,
            received: None,
        }
    }
}

/// Receiving.
impl Stack {
    /// Takes the datagram at the front of the queue, or with `peek` looks at it: copies what fits
    /// into `buf`. `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_recv(
        &self,
        id: SocketId,
        buf: &mut [u8],
        peek: bool,
    ) -> Result<Option<Received>, RecvError> {
        let copy = |packet: &Packet, offset| packet.copy_to(offset, buf);
        match peek {
            true => self.peek_with(id, copy),
            false => self.recv_with(id, copy),
        }
    }

    /// As [`udp_recv`](Self::udp_recv) without `peek`, and tells no more than recvfrom(2): how many
    /// bytes were copied, and who sent them. It takes less time to tell.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    #[inline]
    pub fn udp_recv_from(
        &self,
        id: SocketId,
        buf: &mut [u8],
    ) -> Result<Option<(usize, SocketAddr)>, RecvError> {
        self.recv_with(id, |packet, offset| packet.copy_to(offset, buf))
    }

    /// As [`udp_recv`](Self::udp_recv), into several buffers, each of which is filled before the
    /// next.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_recv_vectored(
        &self,
        id: SocketId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<Received>, RecvError> {
        let copy = |packet: &Packet, mut offset| {
            let start = offset;
            for buf in bufs {
                offset += packet.copy_to(offset, buf);
            }
            offset - start
        };
        match peek {
            true => self.peek_with(id, copy),
            false => self.recv_with(id, copy),
        }
    }

    /// Looks at the datagram at the front of the queue: copies what fits into `bufs`, from byte
    /// `offset` of its payload on (`SO_PEEK_OFF`). `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_peek_at(
        &self,
        id: SocketId,
        offset: usize,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Received>, RecvError> {
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        Ok(self.first_good(slot, id, |packet| {
            let begin = payload_offset(packet).saturating_add(offset);
            let mut len = 0;
            for buf in bufs {
                len += packet.copy_to(begin.saturating_add(len), buf);
            }
            about(packet, inet6, len)
        }))
    }

    /// Takes as many datagrams as there are, and places for them: what recvmmsg(2) does without
    /// waiting. Returns how many.
    ///
    /// # Errors
    ///
    /// [`RecvError`]; nothing was received.
    pub fn udp_recv_batch(
        &self,
        id: SocketId,
        slots: &mut [RecvSlot<'_>],
    ) -> Result<usize, RecvError> {
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        let mut places = slots.iter_mut();
        let mut filled = 0;
        self.with_idle_core(|core| {
            while places.len() > 0 {
                let mut packets = take_many(slot, id, places.len());
                let Some(first) = packets.peek() else {
                    break;
                };
                self.sock_rps_record_flow(core, slot, first.hash);
                let core = &mut core.local;
                // A bad one leaves its place to the next.
                while let Some(packet) = packets.pop() {
                    if !checksum::is_good(&packet) {
                        drop_bad(core, slot, packet);
                    } else if let Some(place) = places.next() {
                        let len = packet.copy_to(payload_offset(&packet), place.buf);
                        place.received = Some(about(&packet, inet6, len));
                        consume(core, packet);
                        filled += 1;
                    }
                }
            }
        });
        places.for_each(|place| place.received = None);
        Ok(filled)
    }

    /// Takes the datagram at the front of the queue as it is, without a copy. `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_take(&self, id: SocketId) -> Result<Option<Datagram>, RecvError> {
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        Ok(self.take(slot, id).map(|packet| {
            self.with_idle_core(|core| {
                self.sock_rps_record_flow(core, slot, packet.hash);
                core.local.count(in_datagrams(packet.version));
            });
            let about = about(&packet, inet6, 0);
            Datagram::new(packet, about, self.demux.memory())
        }))
    }

    /// Gives a datagram's buffers back by the short way; dropping it takes a longer one.
    pub fn udp_recycle(&self, datagram: Datagram) {
        if let Some(packet) = datagram.into_packet() {
            self.with_local(|core| {
                core.allowance.uncharge(packet.truesize());
                core.consume(packet);
            });
        }
    }

    /// Bytes of the datagram that a read would return (`FIONREAD`): 0 for an empty one, and if
    /// there is none.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_next_len(&self, id: SocketId) -> Result<usize, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        let len = self.first_good(slot, id, |packet| {
            packet.total_len().saturating_sub(payload_offset(packet))
        });
        Ok(len.unwrap_or(0))
    }

    /// The error that the network has reported, if any; told once (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_take_error(&self, id: SocketId) -> Result<Option<SocketError>, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        Ok(slot.queue.take_error())
    }

    /// Has the datagram at the front copied from an offset on, and takes it; `copy` says how much it
    /// did.
    #[inline(always)]
    fn recv_with<T: Told>(
        &self,
        id: SocketId,
        copy: impl FnOnce(&Packet, usize) -> usize,
    ) -> Result<Option<T>, RecvError> {
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        let Some(packet) = self.take(slot, id) else {
            return Ok(None);
        };
        let len = copy(&packet, payload_offset(&packet));
        // Apart for each kind: merged, they would write the same words byte by byte.
        Ok(Some(match (packet.version, inet6) {
            (IpVersion::V4, false) => self.finish::<PlainV4, T>(slot, packet, len),
            (IpVersion::V4, true) => self.finish::<MappedV4, T>(slot, packet, len),
            (IpVersion::V6, _) => self.finish::<PlainV6, T>(slot, packet, len),
        }))
    }

    /// The same, and leaves it where it is.
    fn peek_with(
        &self,
        id: SocketId,
        copy: impl FnOnce(&Packet, usize) -> usize,
    ) -> Result<Option<Received>, RecvError> {
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        Ok(self.first_good(slot, id, |packet| {
            let len = copy(packet, payload_offset(packet));
            about(packet, inet6, len)
        }))
    }

    /// Frees a datagram whose payload was copied, and tells of it.
    #[inline(always)]
    fn finish<S: Shown, T: Told>(&self, slot: &Slot, packet: Packet, len: usize) -> T {
        let told = T::of::<S>(&packet, len);
        self.with_idle_core(|core| {
            self.sock_rps_record_flow(core, slot, packet.hash);
            consume(&mut core.local, packet);
        });
        told
    }

    /// The slot of a socket that has no error to tell.
    #[inline]
    fn readable(&self, id: SocketId) -> Result<&Slot, RecvError> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        match slot.queue.take_error() {
            Some(error) => Err(error.into()),
            None => Ok(slot),
        }
    }

    /// The first good datagram; bad ones before it are dropped.
    #[inline]
    fn take(&self, slot: &Slot, id: SocketId) -> Option<Packet> {
        loop {
            let packet = slot.queue.pop(|| slot.status_of(id).is_some())?;
            if checksum::is_good(&packet) {
                return Some(packet);
            }
            self.with_local(|core| drop_bad(core, slot, packet));
        }
    }

    /// Looks at the first good datagram, which is verified and stays; bad ones before it are
    /// dropped (Linux's `first_packet_length`).
    pub(super) fn first_good<R>(
        &self,
        slot: &Slot,
        id: SocketId,
        look: impl FnOnce(&Packet) -> R,
    ) -> Option<R> {
        let mut bad = PacketQueue::new();
        let mut reading = read(slot, id)?;
        let looked = loop {
            let Some(is_good) = reading.front().map(checksum::is_good) else {
                break None;
            };
            if is_good {
                break reading.verified_front().map(look);
            }
            if let Some(packet) = reading.pop() {
                bad.push(packet);
            }
        };
        drop(reading);
        if !bad.is_empty() {
            self.with_local(|core| {
                while let Some(packet) = bad.pop() {
                    drop_bad(core, slot, packet);
                }
            });
        }
        looked
    }
}

pub(super) fn read(slot: &Slot, id: SocketId) -> Option<Reading<'_>> {
    slot.queue.read(|| slot.status_of(id).is_some())
}

fn take_many(slot: &Slot, id: SocketId, most: usize) -> PacketQueue {
    let mut packets = PacketQueue::new();
    let Some(mut reading) = read(slot, id) else {
        return packets;
    };
    while packets.len() < most
        && let Some(packet) = reading.pop()
    {
        packets.push(packet);
    }
    packets
}

/// A datagram that the application has is done, and counted, as in Linux only now.
#[inline(always)]
fn consume(core: &mut Local, packet: Packet) {
    core.count(in_datagrams(packet.version));
    core.allowance.uncharge(packet.truesize());
    core.consume(packet);
}

#[cold]
fn drop_bad(core: &mut Local, slot: &Slot, packet: Packet) {
    slot.add_drops(1);
    core.allowance.uncharge(packet.truesize());
    core.drop(packet, DropReason::UdpCsum);
}

/// What is told of a datagram of which so many bytes were copied.
#[inline]
fn about(packet: &Packet, inet6: bool, len: usize) -> Received {
    match (packet.version, inet6) {
        (IpVersion::V4, false) => PlainV4::about(packet, len),
        (IpVersion::V4, true) => MappedV4::about(packet, len),
        (IpVersion::V6, _) => PlainV6::about(packet, len),
    }
}

/// What a read tells of a datagram.
trait Told {
    /// Of one whose addresses are shown so, and of which so many bytes were copied.
    fn of<S: Shown>(packet: &Packet, len: usize) -> Self;
}

impl Told for Received {
    #[inline(always)]
    fn of<S: Shown>(packet: &Packet, len: usize) -> Self {
        S::about(packet, len)
    }
}

/// Bytes copied, and who sent them.
impl Told for (usize, SocketAddr) {
    #[inline(always)]
    fn of<S: Shown>(packet: &Packet, len: usize) -> Self {
        let src = S::Family::src(packet);
        (len, S::show(src, packet.src_port, packet.iif))
    }
}

/// How addresses of a family are shown to a socket.
trait Shown {
    type Family: Family;

    fn show(addr: <Self::Family as Family>::Addr, port: u16, iif: u32) -> SocketAddr;

    #[inline]
    fn about(packet: &Packet, len: usize) -> Received {
        let (src, dst) = (Self::Family::src(packet), Self::Family::dst(packet));
        Received {
            len,
            full_len: packet.total_len().saturating_sub(payload_offset(packet)),
            from: Self::show(src, packet.src_port, packet.iif),
            local: Self::show(dst, packet.dst_port, packet.iif),
            iif: packet.iif,
            ttl: Self::Family::hop_limit(packet),
            tos: Self::Family::traffic_class(packet),
            timestamp: packet.timestamp,
            segment_size: packet.gso.map(|gso| gso.size.get()),
        }
    }
}

/// IPv4 on an IPv4 socket.
struct PlainV4;

impl Shown for PlainV4 {
    type Family = V4;

    #[inline]
    fn show(addr: Ipv4Addr, port: u16, _iif: u32) -> SocketAddr {
        SocketAddrV4::new(addr, port).into()
    }
}

/// IPv4 on an IPv6 socket.
struct MappedV4;

impl Shown for MappedV4 {
    type Family = V4;

    #[inline]
    fn show(addr: Ipv4Addr, port: u16, iif: u32) -> SocketAddr {
        present_v6(addr.to_ipv6_mapped(), port, iif)
    }
}

/// IPv6.
struct PlainV6;

impl Shown for PlainV6 {
    type Family = V6;

    #[inline]
    fn show(addr: Ipv6Addr, port: u16, iif: u32) -> SocketAddr {
        present_v6(addr, port, iif)
    }
}

/// Where a datagram's payload begins.
pub(super) fn payload_offset(packet: &Packet) -> usize {
    usize::from(packet.l4_offset) + UdpHeader::LEN
}

fn in_datagrams(version: IpVersion) -> Counter {
    match version {
        IpVersion::V4 => MIB_V4.udp_in_datagrams,
        IpVersion::V6 => MIB_V6.udp_in_datagrams,
    }
}
