//! Datagrams that an application reads.

use core::net::{IpAddr, SocketAddr};
use std::io::IoSliceMut;

use super::checksum;
use super::datagram::Datagram;
use super::info::present;
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
        self.udp_recv_vectored(id, &mut [IoSliceMut::new(buf)], peek)
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
        if peek {
            return self.udp_peek_at(id, 0, bufs);
        }
        let slot = self.readable(id)?;
        let inet6 = slot.options().has(Flag::Inet6);
        Ok(self.take(slot, id).map(|packet| {
            let received = copy_out(&packet, inet6, 0, bufs);
            self.with_idle_core(|core| {
                self.sock_rps_record_flow(core, slot, packet.hash);
                consume(&mut core.local, packet);
            });
            received
        }))
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
        Ok(self.first_good(slot, id, |packet| copy_out(packet, inet6, offset, bufs)))
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
                        let bufs = &mut [IoSliceMut::new(place.buf)];
                        place.received = Some(copy_out(&packet, inet6, 0, bufs));
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
            let about = copy_out(&packet, inet6, 0, &mut []);
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

    /// The slot of a socket that has no error to tell.
    fn readable(&self, id: SocketId) -> Result<&Slot, RecvError> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        match slot.queue.take_error() {
            Some(error) => Err(error.into()),
            None => Ok(slot),
        }
    }

    /// The first good datagram; bad ones before it are dropped.
    fn take(&self, slot: &Slot, id: SocketId) -> Option<Packet> {
        loop {
            let packet = read(slot, id)?.pop()?;
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
fn consume(core: &mut Local, packet: Packet) {
    core.count(in_datagrams(packet.version));
    core.allowance.uncharge(packet.truesize());
    core.consume(packet);
}

fn drop_bad(core: &mut Local, slot: &Slot, packet: Packet) {
    slot.add_drops(1);
    core.allowance.uncharge(packet.truesize());
    core.drop(packet, DropReason::UdpCsum);
}

/// Copies the payload from byte `skip` on.
fn copy_out(packet: &Packet, inet6: bool, skip: usize, bufs: &mut [IoSliceMut<'_>]) -> Received {
    match packet.version {
        IpVersion::V4 => copy_from::<V4>(packet, inet6, skip, bufs),
        IpVersion::V6 => copy_from::<V6>(packet, inet6, skip, bufs),
    }
}

fn copy_from<F: Family>(
    packet: &Packet,
    inet6: bool,
    skip: usize,
    bufs: &mut [IoSliceMut<'_>],
) -> Received {
    let offset = payload_offset(packet);
    let begin = offset.saturating_add(skip);
    let mut len = 0;
    for buf in bufs {
        len += packet.copy_to(begin.saturating_add(len), buf);
    }
    let (from, local): (IpAddr, IpAddr) = (F::src(packet).into(), F::dst(packet).into());
    Received {
        len,
        full_len: packet.total_len().saturating_sub(offset),
        from: present(from, packet.src_port, inet6, packet.iif),
        local: present(local, packet.dst_port, inet6, packet.iif),
        iif: packet.iif,
        ttl: F::hop_limit(packet),
        tos: F::traffic_class(packet),
        timestamp: packet.timestamp,
        segment_size: packet.gso.map(|gso| gso.size.get()),
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
