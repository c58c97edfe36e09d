//! Forwarding (RFC 1812 section 5, Linux's `ip_forward` and `ip6_forward`).

use zerocopy::FromBytes;

use super::icmp::{self, IcmpError};
use super::{fragment, options};
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::Family;
use crate::fib::{Address, NextHop};
use crate::interface::Interface;
use crate::packet::{Gso, GsoKind, IpVersion, Packet, Refusal};
use crate::segment;
use crate::sysctl::ConfKnob;
use crate::transmit;
use crate::wire::{Ipv4Header, TcpHeader, UdpHeader};

/// Sends a packet on by the next hop that routing chose, one hop older.
#[inline(always)]
pub(crate) fn forward<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    let Some(next_hop) = packet
        .route
        .and_then(|route| F::routes(cx.view).next_hop(route))
    else {
        return cx.drop(packet, DropReason::IpInNoRoutes);
    };
    let Some(device) = cx.out_device(next_hop.oif) else {
        return cx.drop(packet, DropReason::DevReady);
    };
    if !device.carries::<F>() {
        return cx.drop(packet, DropReason::Ipv6Disabled);
    }
    let interface = device.interface;
    if !is_forwardable::<F>(&packet) {
        let error = is_beyond_scope::<F>(&packet).then_some(IcmpError::BeyondScope);
        let reason = DropReason::NotForwardable;
        return icmp::refuse::<F>(cx, packet, Refusal { reason, error });
    }
    if F::hop_limit(&packet) <= 1 {
        let refusal = Refusal::told(DropReason::TtlExceeded, IcmpError::TimeExceeded);
        return icmp::refuse::<F>(cx, packet, refusal);
    }
    let mtu = path_mtu(next_hop, interface);
    let len = packet.total_len();
    let largest = packet.gso.map_or(len, |gso| segment_len(&packet, gso));
    let too_big = largest > mtu as usize;
    if too_big && !may_fragment::<F>(&packet) {
        let refusal = Refusal::told(DropReason::PktTooBig, IcmpError::PacketTooBig { mtu });
        return icmp::refuse::<F>(cx, packet, refusal);
    }
    if next_hop.oif == packet.iif {
        redirect::<F>(cx, &packet, next_hop, interface);
    }
    if packet.has_options {
        options::forward(cx, &mut packet, interface);
    }
    F::decrement_hop_limit(&mut packet);
    cx.core.count(F::MIB.forwarded);
    cx.core.add(F::MIB.out_octets, len as u64);
    if too_big {
        in_fragments::<F>(cx, packet, next_hop, interface, mtu);
    } else if packet.gso.is_some() {
        transmit::to_interface(cx, interface, &next_hop.adjacency, packet);
    } else {
        transmit::to_device(cx, interface, &next_hop.adjacency, packet);
    }
}

#[inline(never)]
fn in_fragments<F: Family>(
    cx: &mut Context<'_>,
    packet: Packet,
    next_hop: &NextHop<F::Addr>,
    interface: &Interface,
    mtu: u32,
) {
    // What stands for several is cut into those first (Linux's `ip_finish_output_gso`).
    let mut segments = segment::segment(cx, packet);
    while let Some(segment) = segments.pop() {
        if segment.total_len() <= mtu as usize {
            transmit::to_device(cx, interface, &next_hop.adjacency, segment);
            continue;
        }
        let Some(mut fragments) = fragment::fragment::<F>(cx, segment, mtu) else {
            continue;
        };
        while let Some(piece) = fragments.pop() {
            transmit::to_device(cx, interface, &next_hop.adjacency, piece);
        }
    }
}

/// The packet goes back to the link that it came from: its sender may know a better way next time.
#[inline(never)]
fn redirect<F: Family>(
    cx: &mut Context<'_>,
    packet: &Packet,
    next_hop: &NextHop<F::Addr>,
    interface: &Interface,
) {
    if let Some(gateway) = better_first_hop::<F>(cx, packet, next_hop, interface) {
        icmp::send_redirect::<F>(cx, packet, gateway);
    }
}

/// Addresses that have no meaning behind the next router (RFC 4291 sections 2.5.2, 2.5.6; IPv4's are
/// martians and never come this far).
#[inline]
fn is_forwardable<F: Family>(packet: &Packet) -> bool {
    let (src, dst) = (F::src(packet), F::dst(packet));
    F::VERSION == IpVersion::V4
        || !(src == F::UNSPECIFIED
            || src.is_on_link_by_definition()
            || dst.is_on_link_by_definition())
}

/// Whether a neighbour sent this to somebody further away by an address that means nothing there; it
/// is told to take another (RFC 4007 section 9, RFC 4443 section 3.1).
fn is_beyond_scope<F: Family>(packet: &Packet) -> bool {
    F::src(packet).is_on_link_by_definition() && !F::dst(packet).is_on_link_by_definition()
}

pub(crate) fn path_mtu<A>(next_hop: &NextHop<A>, interface: &Interface) -> u32 {
    next_hop
        .mtu
        .map_or(interface.mtu, |mtu| mtu.min(interface.mtu))
}

/// The size that counts against the MTU of a packet that stands for several: each one's.
#[inline(never)]
fn segment_len(packet: &Packet, gso: Gso) -> usize {
    let transport = packet.transport_offset();
    let l4_len = match gso.kind {
        GsoKind::Udp => UdpHeader::LEN,
        GsoKind::Tcp { .. } => {
            let header = packet.data().get(transport..).unwrap_or_default();
            TcpHeader::ref_from_prefix(header).map_or(TcpHeader::LEN, |(tcp, _)| tcp.header_len())
        }
    };
    transport + l4_len + usize::from(gso.size.get())
}

/// IPv6 routers never fragment (RFC 8200 section 4.5), IPv4 ones unless told not to.
fn may_fragment<F: Family>(packet: &Packet) -> bool {
    F::VERSION == IpVersion::V4
        && Ipv4Header::ref_from_prefix(packet.data()).is_ok_and(|(ip, _)| !ip.dont_fragment())
}

/// The router, or the destination itself, that the sender could have reached directly (RFC 1812
/// section 5.2.7.2, RFC 4861 section 8.2).
fn better_first_hop<F: Family>(
    cx: &Context<'_>,
    packet: &Packet,
    next_hop: &NextHop<F::Addr>,
    interface: &Interface,
) -> Option<F::Addr> {
    if packet.has_options {
        return None;
    }
    if F::VERSION == IpVersion::V4 && !cx.view.sysctls.conf_or(packet.iif, ConfKnob::SendRedirects)
    {
        return None;
    }
    let first_hop = next_hop.gateway.unwrap_or_else(|| F::dst(packet));
    let is_neighbour =
        interface.on_link(F::src(packet).into()) && interface.on_link(first_hop.into());
    is_neighbour.then_some(first_hop)
}
