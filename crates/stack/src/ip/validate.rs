//! Validation: every packet is parsed here, once, before anything is decided about it.

use zerocopy::FromBytes;

use super::ext_headers;
use crate::core::Context;
use crate::counters::Counter;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::interface::{Interface, LOOPBACK};
use crate::packet::{Destination, IpVersion, Packet, Verdict};
use crate::sysctl::ConfKnob;
use crate::wire::{Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, checksum, protocol};

/// Checks what an IP header may say (RFC 1122 section 3.2.1, RFC 8200 section 3) and writes down
/// what later stages need. [`Verdict::Undecided`] lets the packet go on.
pub(crate) fn validate(cx: &mut Context<'_>, packet: &mut Packet) -> Verdict {
    let result = match packet.data().first().map(|byte| byte >> 4) {
        Some(4) => {
            packet.version = IpVersion::V4;
            validate_v4(cx, packet)
        }
        Some(6) => {
            packet.version = IpVersion::V6;
            validate_v6(cx, packet)
        }
        _ => Err(Verdict::Drop(DropReason::NotIp)),
    };
    match result {
        Err(verdict) => verdict,
        // A packet of this host's own was routed when it was sent: on the loopback it has arrived.
        Ok(()) if packet.from_host => Verdict::Deliver,
        Ok(()) => Verdict::Undecided,
    }
}

fn validate_v4(cx: &mut Context<'_>, packet: &mut Packet) -> Result<(), Verdict> {
    const BAD_HEADER: Verdict = Verdict::Drop(DropReason::IpInHdr);

    cx.core.count(Counter::IpInReceives);
    let len = packet.total_len();
    let Ok((ip, _)) = Ipv4Header::ref_from_prefix(packet.data()) else {
        return Err(BAD_HEADER);
    };
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len.get()));
    let (protocol, is_fragment, dst) = (ip.protocol, ip.is_fragment(), ip.dst());
    if header_len < Ipv4Header::LEN {
        return Err(BAD_HEADER);
    }
    let header = packet.data().get(..header_len).ok_or(BAD_HEADER)?;
    if checksum::checksum(header) != 0 {
        return Err(Verdict::Drop(DropReason::IpCsum));
    }
    if total_len > len {
        return Err(Verdict::Drop(DropReason::PktTooSmall));
    }
    if total_len < header_len {
        return Err(BAD_HEADER);
    }
    // Short Ethernet frames are padded: what lies behind the datagram is not part of it.
    if total_len < len {
        packet.truncate(total_len);
    }
    cx.core.add(Counter::IpExtInOctets, total_len as u64);

    packet.is_fragment = is_fragment;
    packet.has_options = header_len > Ipv4Header::LEN;
    parse_ports(packet, protocol, header_len);
    packet.destination = if dst.is_multicast() {
        cx.core.count(Counter::IpExtInMcastPkts);
        cx.core.add(Counter::IpExtInMcastOctets, total_len as u64);
        Destination::Multicast
    } else if dst.is_broadcast() {
        Destination::LimitedBroadcast
    } else {
        own_or_transit::<V4>(cx, dst)
    };
    Ok(())
}

fn validate_v6(cx: &mut Context<'_>, packet: &mut Packet) -> Result<(), Verdict> {
    const BAD_HEADER: Verdict = Verdict::Drop(DropReason::IpInHdr);

    cx.core.count(Counter::Ip6InReceives);
    let iif = packet.iif;
    if let Some(interface) = cx.view.interfaces.get(iif)
        && !carries::<V6>(cx, interface)
    {
        return Err(Verdict::Drop(DropReason::Ipv6Disabled));
    }
    let len = packet.total_len();
    let Ok((ip, _)) = Ipv6Header::ref_from_prefix(packet.data()) else {
        return Err(BAD_HEADER);
    };
    let (src, dst, next_header) = (ip.src(), ip.dst(), ip.next_header);
    let total_len = Ipv6Header::LEN + usize::from(ip.payload_len.get());

    // RFC 4291 sections 2.5.3 and 2.7: loopback addresses and interface-local groups stay inside,
    // groups send nothing; IPv4-mapped addresses never are on a wire (RFC 4942 section 2.2).
    if iif != LOOPBACK && (src.is_loopback() || dst.is_loopback()) {
        return Err(Verdict::Drop(DropReason::IpLocalnet));
    }
    if src.is_multicast() || src.to_ipv4_mapped().is_some() {
        return Err(Verdict::Drop(DropReason::IpInvalidSource));
    }
    let is_reserved_scope = |scope| scope == 0 || (scope == 1 && iif != LOOPBACK);
    if dst.is_multicast() && is_reserved_scope(dst.octets()[1] & 0xf) {
        return Err(Verdict::Drop(DropReason::IpInvalidDest));
    }
    // A jumbogram has its length in an option (RFC 2675); the option's own check refuses it.
    let is_jumbo = total_len == Ipv6Header::LEN && next_header == protocol::HOP_BY_HOP;
    if total_len > len {
        return Err(Verdict::Drop(DropReason::PktTooSmall));
    }
    if total_len < len && !is_jumbo {
        packet.truncate(total_len);
    }
    cx.core.add(Counter::Ip6InOctets, packet.total_len() as u64);

    parse_ports(packet, next_header, Ipv6Header::LEN);
    packet.destination = if dst.is_multicast() {
        cx.core.count(Counter::Ip6InMcastPkts);
        let octets = packet.total_len() as u64;
        cx.core.add(Counter::Ip6InMcastOctets, octets);
        Destination::Multicast
    } else {
        own_or_transit::<V6>(cx, dst)
    };
    if next_header == protocol::HOP_BY_HOP {
        // Every node on the way looks at these (RFC 8200 section 4.3).
        return match ext_headers::hop_by_hop(cx, packet) {
            Verdict::Undecided => Ok(()),
            verdict => Err(verdict),
        };
    }
    Ok(())
}

/// Whether the family's packets may pass an interface at all, in or out.
pub(crate) fn carries<F: Family>(cx: &Context<'_>, interface: &Interface) -> bool {
    let is_disabled = || {
        cx.view
            .sysctls
            .conf_or(interface.index, ConfKnob::DisableIpv6)
    };
    F::VERSION == IpVersion::V4 || (interface.carries_ipv6() && !is_disabled())
}

fn own_or_transit<F: Family>(cx: &Context<'_>, dst: F::Addr) -> Destination {
    if F::routes(cx.view).is_own(dst) {
        Destination::Own
    } else {
        Destination::Transit
    }
}

/// Notes where the transport header is, and its ports if it is there in one piece.
fn parse_ports(packet: &mut Packet, protocol: u8, l4_offset: usize) {
    packet.protocol = protocol;
    packet.l4_offset = u16::try_from(l4_offset).unwrap_or(u16::MAX);
    if packet.is_fragment {
        return;
    }
    let least = match protocol {
        protocol::UDP => UdpHeader::LEN,
        protocol::TCP => TcpHeader::LEN,
        _ => return,
    };
    if let Some([s0, s1, d0, d1, ..]) = packet.data().get(l4_offset..l4_offset + least) {
        let ports = (
            u16::from_be_bytes([*s0, *s1]),
            u16::from_be_bytes([*d0, *d1]),
        );
        (packet.src_port, packet.dst_port) = ports;
        packet.has_ports = true;
    }
}
