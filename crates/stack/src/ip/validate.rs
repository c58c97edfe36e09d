//! Validation: every packet is parsed here, once, before anything is decided about it.

use core::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes;

use super::ext_headers;
use super::source::check_martians_v4;
use crate::batch::Sorted;
use crate::core::Context;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::interface::{Interface, LOOPBACK};
use crate::packet::{ChecksumState, Destination, IpVersion, Packet, Refusal, Verdict};
use crate::stack::View;
use crate::sysctl::ConfKnob;
use crate::wire::{Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, checksum, protocol};

/// Checks what an IP header may say (RFC 1122 section 3.2.1, RFC 8200 section 3) and writes down
/// what later stages need. [`Verdict::Undecided`] lets the packet go on, by the list of `sorted` that
/// its lane is put in.
#[inline(always)]
pub(crate) fn validate(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> Verdict {
    // What this host sent to itself says where it might have come from.
    if device.interface.index != LOOPBACK || !packet.from_host {
        packet.iif = device.interface.index;
    }
    packet.is_plain = false;
    let result = match packet.data().first().map(|byte| byte >> 4) {
        Some(4) => {
            packet.version = IpVersion::V4;
            validate_v4(cx, device, sorted, lane, packet)
        }
        Some(6) => {
            packet.version = IpVersion::V6;
            validate_v6(cx, device, sorted, lane, packet)
        }
        _ => Err(Refusal::silent(DropReason::NotIp)),
    };
    match result {
        // A packet of this host's own was routed when it was sent: on the loopback it has arrived.
        Ok(()) if packet.from_host => Verdict::Deliver,
        Ok(()) => Verdict::Undecided,
        Err(refusal) => packet.refuse(refusal),
    }
}

const BAD_HEADER: Refusal = Refusal::silent(DropReason::IpInHdr);

#[inline(always)]
fn validate_v4(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    let len = packet.total_len();
    // Whatever comes is counted, also what is wrong with it (RFC 4293, ipSystemStatsInOctets).
    sorted.arrived4.add(len);
    let (ip, _) = Ipv4Header::ref_from_prefix(packet.data()).map_err(|_| BAD_HEADER)?;
    let (src, dst) = (ip.src(), ip.dst());
    let (protocol, is_fragment) = (ip.protocol, ip.is_fragment());
    let is_usual =
        ip.has_no_options() && usize::from(ip.total_len.get()) == len && ip.checksum_is_right();
    let header_len = if is_usual {
        Ipv4Header::LEN
    } else {
        check_unusual_v4(sorted, packet)?
    };
    packet.protocol = protocol;
    packet.is_fragment = is_fragment;
    packet.l4_offset = header_len as u16;
    let strangers = device.strangers4;
    if strangers.has(src) && strangers.has(dst) && !packet.from_host {
        packet.destination = Destination::Transit;
        packet.is_plain = is_usual && is_single(packet);
        sorted.transit4.push(lane, dst);
        return Ok(());
    }
    sort_v4(cx, device, sorted, lane, packet, [src, dst])
}

/// A header with options, one that does not fit the packet, or one that is wrong. Returns its length.
#[inline(never)]
fn check_unusual_v4(sorted: &mut Sorted, packet: &mut Packet) -> Result<usize, Refusal> {
    let len = packet.total_len();
    let data = packet.data();
    let (ip, _) = Ipv4Header::ref_from_prefix(data).map_err(|_| BAD_HEADER)?;
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len.get()));
    if header_len < Ipv4Header::LEN {
        return Err(BAD_HEADER);
    }
    let header = data.get(..header_len).ok_or(BAD_HEADER)?;
    if checksum::checksum(header) != 0 {
        return Err(Refusal::silent(DropReason::IpCsum));
    }
    if total_len > len {
        return Err(Refusal::silent(DropReason::PktTooSmall));
    }
    if total_len < header_len {
        return Err(BAD_HEADER);
    }
    // Short Ethernet frames are padded: what lies behind the datagram is not part of it.
    packet.truncate(total_len);
    if header_len > Ipv4Header::LEN {
        packet.has_options = true;
        sorted.has_options = true;
    }
    Ok(header_len)
}

/// Packets with a group's address or the like, for us, or from us.
#[inline(never)]
fn sort_v4(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
    [src, dst]: [Ipv4Addr; 2],
) -> Result<(), Refusal> {
    packet.destination = if dst.is_multicast() {
        Destination::Multicast
    } else if dst.is_broadcast() {
        Destination::LimitedBroadcast
    } else {
        own_or_transit::<V4>(cx, dst)
    };
    if packet.from_host {
        return Ok(());
    }
    check_martians_v4(device, src, dst, packet.destination).map_err(Refusal::silent)?;
    match packet.destination {
        Destination::Transit if !cx.view.fib4.may_be_own_host(src) => {
            sorted.transit4.push(lane, dst);
        }
        _ => sort_other(sorted, lane, packet),
    }
    Ok(())
}

#[inline(always)]
fn validate_v6(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    let len = packet.total_len();
    sorted.arrived6.add(len);
    if !device.carries_v6 {
        return Err(Refusal::silent(DropReason::Ipv6Disabled));
    }
    let (ip, _) = Ipv6Header::ref_from_prefix(packet.data()).map_err(|_| BAD_HEADER)?;
    let (src, dst, next_header) = (ip.src(), ip.dst(), ip.next_header);
    let is_usual = Ipv6Header::LEN + usize::from(ip.payload_len.get()) == len
        && next_header != protocol::HOP_BY_HOP;
    let strangers = device.strangers6;
    if is_usual && strangers.is_ordinary(src) && strangers.has(dst) && !packet.from_host {
        packet.protocol = next_header;
        packet.l4_offset = Ipv6Header::LEN as u16;
        packet.destination = Destination::Transit;
        packet.is_plain = is_single(packet);
        sorted.transit6.push(lane, dst);
        return Ok(());
    }
    sort_v6(cx, device, sorted, lane, packet)
}

/// Packets with options for every node, or with padding; with a group's address or the like, or for
/// us; and those with a header that is wrong.
#[inline(never)]
fn sort_v6(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    let len = packet.total_len();
    let (ip, _) = Ipv6Header::ref_from_prefix(packet.data()).map_err(|_| BAD_HEADER)?;
    // As numbers: an address of 16 bytes, looked at here and there, is taken apart and put together
    // again in memory.
    let (src, dst) = (ip.src().to_bits(), ip.dst().to_bits());
    let next_header = ip.next_header;
    let total_len = Ipv6Header::LEN + usize::from(ip.payload_len.get());

    // RFC 4291 sections 2.5.3 and 2.7: loopback addresses and interface-local groups stay inside,
    // groups send nothing; nobody on a wire has an IPv4-mapped one (RFC 4942 section 2.2).
    let is_inside = device.interface.index == LOOPBACK;
    if !is_inside && (src == LOOPBACK_V6 || dst == LOOPBACK_V6) {
        return Err(Refusal::silent(DropReason::IpLocalnet));
    }
    if is_group_v6(src) || src >> 32 == MAPPED_V4 {
        return Err(Refusal::silent(DropReason::IpInvalidSource));
    }
    let is_reserved_scope = |scope| scope == 0 || (scope == 1 && !is_inside);
    if is_group_v6(dst) && is_reserved_scope(dst >> 112 & 0xf) {
        return Err(Refusal::silent(DropReason::IpInvalidDest));
    }
    // A jumbogram has its length in an option (RFC 2675); the option's own check refuses it.
    let has_options = next_header == protocol::HOP_BY_HOP;
    let is_jumbo = total_len == Ipv6Header::LEN && has_options;
    if total_len > len {
        return Err(Refusal::silent(DropReason::PktTooSmall));
    }
    if total_len < len && !is_jumbo {
        packet.truncate(total_len);
    }

    packet.protocol = next_header;
    packet.l4_offset = Ipv6Header::LEN as u16;
    packet.destination = if is_group_v6(dst) {
        Destination::Multicast
    } else {
        own_or_transit::<V6>(cx, Ipv6Addr::from_bits(dst))
    };
    if has_options {
        // Every node on the way looks at these (RFC 8200 section 4.3).
        ext_headers::hop_by_hop(cx, packet)?;
    }
    if packet.from_host {
        return Ok(());
    }
    match packet.destination {
        Destination::Transit => sorted.transit6.push(lane, Ipv6Addr::from_bits(dst)),
        _ => sort_other(sorted, lane, packet),
    }
    Ok(())
}

/// Whether the packet is one, in one buffer, with its checksums filled.
#[inline]
fn is_single(packet: &Packet) -> bool {
    let is_partial = matches!(packet.checksum, ChecksumState::Partial { .. });
    packet.gso.is_none() && !is_partial && !packet.has_frags()
}

fn sort_other(sorted: &mut Sorted, lane: usize, packet: &mut Packet) {
    parse_ports(packet);
    sorted.others.push(lane);
}

const LOOPBACK_V6: u128 = Ipv6Addr::LOCALHOST.to_bits();
/// What IPv4-mapped addresses begin with, 96 bits.
const MAPPED_V4: u128 = 0xffff;

fn is_group_v6(addr: u128) -> bool {
    addr >> 120 == 0xff
}

/// Whether the family's packets may pass an interface at all, in or out.
pub(crate) fn carries<F: Family>(view: &View<'_>, interface: &Interface) -> bool {
    let is_disabled = || view.sysctls.conf_or(interface.index, ConfKnob::DisableIpv6);
    F::VERSION == IpVersion::V4 || (interface.carries_ipv6() && !is_disabled())
}

fn own_or_transit<F: Family>(cx: &Context<'_>, dst: F::Addr) -> Destination {
    if F::routes(cx.view).is_own(dst) {
        Destination::Own
    } else {
        Destination::Transit
    }
}

/// Notes the ports, if the transport header has some and is there in one piece. Of packets that stay:
/// nobody asks for those of transit.
fn parse_ports(packet: &mut Packet) {
    let least = match packet.protocol {
        protocol::UDP => UdpHeader::LEN,
        protocol::TCP => TcpHeader::LEN,
        _ => return,
    };
    if packet.is_fragment {
        return;
    }
    let at = usize::from(packet.l4_offset);
    if let Some([s0, s1, d0, d1, ..]) = packet.data().get(at..at + least) {
        let ports = (
            u16::from_be_bytes([*s0, *s1]),
            u16::from_be_bytes([*d0, *d1]),
        );
        (packet.src_port, packet.dst_port) = ports;
        packet.has_ports = true;
    }
}
