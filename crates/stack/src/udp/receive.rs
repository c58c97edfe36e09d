//! Datagrams that come in: checked, then queued on the socket that takes them.

use core::net::IpAddr;

use zerocopy::FromBytes;

use super::burst::{self, Taker};
use super::{checksum, filter, gso, multicast};
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::early::remember_route;
use crate::demux::flow::Flow;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::ip::destination;
use crate::ip::icmp::{self, IcmpError};
use crate::packet::{ChecksumState, Destination, IpVersion, Packet};
use crate::segment;
use crate::socket::{Flag, Slot, SocketId};
use crate::wire::UdpHeader;

/// Takes a datagram for this host. It is in its socket's queue when the batch ends
/// ([`burst::flush`]).
pub(crate) fn receive<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    if let Err(reason) = check::<F>(&mut packet) {
        return cx.drop(packet, reason);
    }
    packet.timestamp = cx.now;
    if packet.gso.is_some() {
        return gso::receive::<F>(cx, packet);
    }
    if is_for_one::<F>(cx, &packet) {
        deliver::<F>(cx, packet);
    } else {
        deliver_to_all::<F>(cx, packet);
    }
}

/// The header's rules, and the checksum of a short datagram; trims the packet to the datagram and
/// notes its ports.
#[inline]
fn check<F: Family>(packet: &mut Packet) -> Result<(), DropReason> {
    let offset = usize::from(packet.l4_offset);
    if !packet.linearize(offset + UdpHeader::LEN) {
        return Err(DropReason::UdpLength);
    }
    let bytes = packet.data().get(offset..).unwrap_or_default();
    let (header, _) = UdpHeader::ref_from_prefix(bytes).map_err(|_| DropReason::UdpLength)?;
    let (len, checksum) = (usize::from(header.len.get()), header.checksum.get());
    let (src_port, dst_port) = (header.src_port.get(), header.dst_port.get());
    if len < UdpHeader::LEN || offset + len > packet.total_len() {
        return Err(DropReason::UdpLength);
    }
    packet.truncate(offset + len);
    packet.src_port = src_port;
    packet.dst_port = dst_port;
    match (checksum, F::VERSION) {
        // The sender computed none, as RFC 768 allows and RFC 8200 section 8.1 does not.
        (0, IpVersion::V4) => packet.checksum = ChecksumState::Verified,
        (0, IpVersion::V6) => return Err(DropReason::UdpCsum),
        _ if len <= checksum::MAX_ON_ARRIVAL => verify::<F>(packet)?,
        _ => {}
    }
    Ok(())
}

#[inline]
fn verify<F: Family>(packet: &mut Packet) -> Result<(), DropReason> {
    if !checksum::is_good_of::<F>(packet) {
        return Err(DropReason::UdpCsum);
    }
    packet.checksum = ChecksumState::Verified;
    Ok(())
}

/// Whether the destination is one host's address, and not a group's or a broadcast.
pub(super) fn is_for_one<F: Family>(cx: &Context<'_>, packet: &Packet) -> bool {
    // No route was looked up for a packet that a socket's own route delivered: that is never a
    // broadcast's.
    let by_socket = packet.route.is_none() && packet.socket.is_some();
    by_socket || !destination::is_to_many::<F>(cx, packet)
}

/// To the socket that early demux found, if that is still where it was, else to the one that the
/// ordinary lookup finds; in one burst with the datagrams before it that are for the same.
#[inline]
fn deliver<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    let found = packet.socket.take();
    // A group's program may send the datagrams of one flow to different members.
    let is_by_flow = found.is_some() || !cx.stack.demux.group_programs().is_enabled();
    if is_by_flow && burst::continues::<F>(cx, &packet, found) {
        return cx.core.burst.push(packet);
    }
    deliver_to_another::<F>(cx, packet, found);
}

/// To another socket than the last one, or so it seems.
#[inline(never)]
fn deliver_to_another<F: Family>(cx: &mut Context<'_>, packet: Packet, found: Option<SocketId>) {
    let Some(taker) = taker_of::<F>(cx, &packet, found) else {
        return no_socket::<F>(cx, packet);
    };
    if taker.slot.options().has(Flag::Filter) {
        // What came before goes before.
        burst::flush(cx);
        return deliver_to::<F>(cx, taker, packet);
    }
    burst::add(cx, &taker, packet);
}

/// The datagram's socket: `found` by early demux, or by the ordinary lookup. It learns the
/// datagram's route.
#[inline]
pub(super) fn taker_of<'a, F: Family>(
    cx: &mut Context<'a>,
    packet: &Packet,
    found: Option<SocketId>,
) -> Option<Taker<'a>> {
    let early = found.and_then(|id| Taker::found::<F>(cx, id, packet));
    let taker = early.or_else(|| find::<F>(cx, packet))?;
    if packet.route.is_some() {
        remember_route::<F>(cx, &taker, packet);
    }
    Some(taker)
}

/// Finds the datagram's socket by the ordinary lookup.
#[inline(never)]
fn find<'a, F: Family>(cx: &mut Context<'a>, packet: &Packet) -> Option<Taker<'a>> {
    let stack = cx.stack;
    let flow = Flow::of_packet::<F>(packet);
    // Each turn, a socket has moved meanwhile.
    loop {
        let ask = |slot: &Slot, _count: usize| filter::pick(cx, slot, packet);
        let best = stack
            .demux
            .lookup(&flow, local::<F>(packet), packet.iif, ask)?;
        if let Some(taker) = Taker::of(cx, best.id, &flow, packet.iif) {
            let is_member = best.is_member;
            return Some(Taker { is_member, ..taker });
        }
    }
}

/// For a datagram whose socket has moved while it was under way.
pub(super) fn deliver_alone(cx: &mut Context<'_>, packet: Packet) {
    if packet.gso.is_some() {
        return gso::deliver_alone(cx, packet);
    }
    match packet.version {
        IpVersion::V4 => deliver_at_once::<V4>(cx, packet),
        IpVersion::V6 => deliver_at_once::<V6>(cx, packet),
    }
}

fn deliver_at_once<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    match find::<F>(cx, &packet) {
        Some(taker) => deliver_to::<F>(cx, taker, packet),
        None => no_socket::<F>(cx, packet),
    }
}

/// To this socket at once, or where else the flow's datagrams go if it moves.
fn deliver_to<'a, F: Family>(cx: &mut Context<'a>, mut taker: Taker<'a>, mut packet: Packet) {
    while let Err(again) = filter::enqueue(cx, taker.slot, taker.status, packet) {
        let Some(other) = find::<F>(cx, &again) else {
            return no_socket::<F>(cx, again);
        };
        (taker, packet) = (other, again);
    }
}

/// Every socket that wants it gets a copy, the last one the datagram itself.
#[inline(never)]
fn deliver_to_all<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    let flow = Flow::of_packet::<F>(&packet);
    let demux = &cx.stack.demux;
    let mut takers = demux.takers(&flow, local::<F>(&packet), packet.iif);
    if packet.destination == Destination::Multicast {
        let place = (packet.iif, F::dst(&packet).into());
        let source = F::src(&packet).into();
        takers.retain(|id| multicast::allows(cx, *id, place, source));
    }
    let Some(last) = takers.pop() else {
        // Nobody is told that a group or broadcast found no socket (RFC 1122 section 3.2.2).
        return cx.drop(packet, DropReason::UdpIgnoredMulti);
    };
    // What came before goes before.
    burst::flush(cx);
    if !takers.is_empty()
        && let Err(reason) = verify::<F>(&mut packet)
    {
        // Each reader of a copy would find it out for himself.
        return cx.drop(packet, reason);
    }
    for id in takers {
        match segment::copy_part(cx, &packet, &[], 0, packet.total_len()) {
            Some(copy) => offer(cx, id, &flow, copy),
            None => cx.core.count(mem_errors(F::VERSION)),
        }
    }
    offer(cx, last, &flow, packet);
}

fn offer(cx: &mut Context<'_>, id: SocketId, flow: &Flow, mut packet: Packet) {
    let stack = cx.stack;
    let slot = stack.demux.sockets().slot(id.slot);
    while let Some(slot) = slot
        && let Some(status) = slot.takes(id, flow, packet.iif)
    {
        match filter::enqueue(cx, slot, status, packet) {
            Ok(()) => return,
            Err(again) => packet = again,
        }
    }
    cx.drop(packet, DropReason::SocketClosed);
}

fn no_socket<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    // Nobody answers what may never have been sent.
    if let Err(reason) = verify::<F>(&mut packet) {
        return cx.drop(packet, reason);
    }
    icmp::send_error::<F>(cx, &packet, IcmpError::PortUnreachable);
    cx.drop(packet, DropReason::UdpNoSocket);
}

fn mem_errors(version: IpVersion) -> Counter {
    match version {
        IpVersion::V4 => Counter::UdpMemErrors,
        IpVersion::V6 => Counter::Udp6MemErrors,
    }
}

fn local<F: Family>(packet: &Packet) -> (IpAddr, u16) {
    (F::dst(packet).into(), packet.dst_port)
}
