//! Datagrams that come in: checked, then queued on the socket that takes them.

use core::net::IpAddr;

use zerocopy::FromBytes;

use super::filter;
use super::multicast;
use super::queue::Refusal;
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::early::remember_route;
use crate::demux::flow::Flow;
use crate::drop::DropReason;
use crate::family::Family;
use crate::ip::destination;
use crate::ip::icmp::{self, IcmpError};
use crate::packet::{ChecksumState, Destination, IpVersion, Packet};
use crate::segment;
use crate::socket::SocketId;
use crate::wire::{UdpHeader, protocol};

/// Takes a datagram for this host.
pub(crate) fn receive<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    if packet.gso.is_some() {
        return receive_segments::<F>(cx, packet);
    }
    if let Err(reason) = check::<F>(&mut packet) {
        return cx.drop(packet, reason);
    }
    if is_for_one::<F>(cx, &packet) {
        deliver::<F>(cx, packet);
    } else {
        deliver_to_all::<F>(cx, packet);
    }
}

/// A packet that stands for several datagrams, one after the other.
fn receive_segments<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    let mut datagrams = segment::segment(cx, packet);
    while let Some(datagram) = datagrams.pop() {
        receive::<F>(cx, datagram);
    }
}

/// The header's rules; trims the packet to the datagram and notes its ports.
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
    match (checksum, F::VERSION) {
        // The sender computed none, as RFC 768 allows and RFC 8200 section 8.1 does not.
        (0, IpVersion::V4) => {}
        (0, IpVersion::V6) => return Err(DropReason::UdpCsum),
        _ => verify::<F>(packet, offset, len)?,
    }
    packet.src_port = src_port;
    packet.dst_port = dst_port;
    Ok(())
}

/// Verifies the checksum, unless somebody has, or this host itself sent the datagram and left the
/// checksum to a device.
fn verify<F: Family>(packet: &mut Packet, offset: usize, len: usize) -> Result<(), DropReason> {
    if packet.checksum != ChecksumState::None {
        return Ok(());
    }
    let (src, dst) = (F::src(packet), F::dst(packet));
    let mut sum = F::pseudo_header(src, dst, protocol::UDP, len);
    let mut skip = offset;
    for chunk in packet.chunks() {
        let from = skip.min(chunk.len());
        skip -= from;
        sum.add_bytes(&chunk[from..]);
    }
    if !sum.is_valid() {
        return Err(DropReason::UdpCsum);
    }
    packet.checksum = ChecksumState::Verified;
    Ok(())
}

/// Whether the destination is one host's address, and not a group's or a broadcast.
fn is_for_one<F: Family>(cx: &Context<'_>, packet: &Packet) -> bool {
    // No route was looked up for a packet that a socket's own route delivered: that is never a
    // broadcast's.
    let by_socket = packet.route.is_none() && packet.socket.is_some();
    by_socket || !destination::is_to_many::<F>(cx, packet)
}

/// To the socket that early demux found, if that is still where it was, else to the one that the
/// ordinary lookup finds.
fn deliver<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    let flow = Flow::of_packet::<F>(&packet);
    let demux = &cx.stack.demux;
    let local = local::<F>(&packet);
    let mut candidate = packet.socket.take();
    loop {
        let Some(id) = candidate.or_else(|| demux.lookup(&flow, local, packet.iif)) else {
            return no_socket::<F>(cx, packet);
        };
        let (iif, was_routed) = (packet.iif, packet.route.is_some());
        match filter::deliver(cx, id, &flow, packet) {
            Ok(()) => {
                if was_routed {
                    remember_route::<F>(cx, id, &flow, iif);
                }
                return;
            }
            // Each turn, a socket has moved meanwhile.
            Err((again, Refusal::Moved)) => {
                packet = again;
                candidate = None;
            }
            Err((packet, refusal)) => return cx.drop(packet, reason_of(refusal)),
        }
    }
}

/// Every socket that wants it gets a copy, the last one the datagram itself.
fn deliver_to_all<F: Family>(cx: &mut Context<'_>, packet: Packet) {
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
    for id in takers {
        match segment::copy_part(cx, &packet, &[], 0, packet.total_len()) {
            Some(copy) => offer(cx, id, &flow, copy),
            None => cx.core.count(mem_errors(F::VERSION)),
        }
    }
    offer(cx, last, &flow, packet);
}

fn offer(cx: &mut Context<'_>, id: SocketId, flow: &Flow, packet: Packet) {
    if let Err((packet, refusal)) = filter::deliver(cx, id, flow, packet) {
        cx.drop(packet, reason_of(refusal));
    }
}

fn no_socket<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    icmp::send_error::<F>(cx, &packet, IcmpError::PortUnreachable);
    cx.drop(packet, DropReason::UdpNoSocket);
}

fn mem_errors(version: IpVersion) -> Counter {
    match version {
        IpVersion::V4 => Counter::UdpMemErrors,
        IpVersion::V6 => Counter::Udp6MemErrors,
    }
}

fn reason_of(refusal: Refusal) -> DropReason {
    match refusal {
        Refusal::Moved => DropReason::SocketClosed,
        Refusal::QueueFull => DropReason::SocketRcvbuff,
        Refusal::NoMemory => DropReason::ProtoMem,
        Refusal::Filtered => DropReason::SocketFilter,
    }
}

fn local<F: Family>(packet: &Packet) -> (IpAddr, u16) {
    (F::dst(packet).into(), packet.dst_port)
}
