//! Validation: every packet is parsed here, once, before anything is decided about it.

use core::net::Ipv6Addr;

use zerocopy::FromBytes;

use super::ext_headers;
use super::source::check_martians_v4;
use crate::batch::Sorted;
use crate::core::Context;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::interface::{Interface, LOOPBACK};
use crate::packet::{Destination, IpVersion, Packet, Refusal, Verdict};
use crate::stack::View;
use crate::sysctl::ConfKnob;
use crate::wire::{Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, checksum, protocol};

/// Checks what an IP header may say (RFC 1122 section 3.2.1, RFC 8200 section 3) and writes down
/// what later stages need. [`Verdict::Undecided`] lets the packet go on, by the list of `sorted` that
/// its lane is put in.
#[inline(never)]
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

#[inline(always)]
fn validate_v4(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    const BAD_HEADER: Refusal = Refusal::silent(DropReason::IpInHdr);

    let len = packet.total_len();
    // Whatever comes is counted, also what is wrong with it (RFC 4293, ipSystemStatsInOctets).
    sorted.arrived4.add(len);
    let data = packet.data();
    let (ip, _) = Ipv4Header::ref_from_prefix(data).map_err(|_| BAD_HEADER)?;
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len.get()));
    let (protocol, is_fragment) = (ip.protocol, ip.is_fragment());
    let (src, dst) = (ip.src(), ip.dst());
    let is_intact = if header_len == Ipv4Header::LEN {
        ip.checksum_is_right()
    } else {
        match data.get(..header_len) {
            Some(header) if header_len > Ipv4Header::LEN => checksum::checksum(header) == 0,
            _ => return Err(BAD_HEADER),
        }
    };
    if !is_intact {
        return Err(Refusal::silent(DropReason::IpCsum));
    }
    if total_len > len {
        return Err(Refusal::silent(DropReason::PktTooSmall));
    }
    if total_len < header_len {
        return Err(BAD_HEADER);
    }
    // Short Ethernet frames are padded: what lies behind the datagram is not part of it.
    if total_len < len {
        packet.truncate(total_len);
    }

    packet.is_fragment = is_fragment;
    if header_len > Ipv4Header::LEN {
        packet.has_options = true;
        sorted.has_options = true;
    }
    packet.protocol = protocol;
    packet.l4_offset = u16::try_from(header_len).unwrap_or(u16::MAX);
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
    if packet.destination == Destination::Transit && !cx.view.fib4.may_be_own_host(src) {
        sorted.transit4.push(lane, dst);
    } else {
        parse_ports(packet);
        sorted.others.push(lane);
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
    let Ok((ip, _)) = Ipv6Header::ref_from_prefix(packet.data()) else {
        return Err(Refusal::silent(DropReason::IpInHdr));
    };
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
    let is_jumbo = total_len == Ipv6Header::LEN && next_header == protocol::HOP_BY_HOP;
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
    if next_header == protocol::HOP_BY_HOP {
        // Every node on the way looks at these (RFC 8200 section 4.3).
        ext_headers::hop_by_hop(cx, packet)?;
    }
    if packet.from_host {
        return Ok(());
    }
    if packet.destination == Destination::Transit {
        sorted.transit6.push(lane, Ipv6Addr::from_bits(dst));
    } else {
        parse_ports(packet);
        sorted.others.push(lane);
    }
    Ok(())
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

#[inline(always)]
fn own_or_transit<F: Family>(cx: &Context<'_>, dst: F::Addr) -> Destination {
    if F::routes(cx.view).is_own(dst) {
        Destination::Own
    } else {
        Destination::Transit
    }
}

/// Notes the ports, if the transport header has some and is there in one piece. Of packets that stay:
/// nobody asks for those of transit.
#[inline(always)]
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
