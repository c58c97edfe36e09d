//! Forwarding (RFC 1812 section 5, Linux's `ip_forward` and `ip6_forward`).

use core::mem::take;

use zerocopy::FromBytes;

use super::icmp::{self, IcmpError};
use super::{fragment, options};
use crate::batch::Tally;
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::{Address, FoundNextHops, NextHop};
use crate::interface::Interface;
use crate::packet::{Gso, GsoKind, IpVersion, Packet, PacketQueue, Refusal, Verdict};
use crate::segment;
use crate::sysctl::ConfKnob;
use crate::transmit;
use crate::wire::{Ipv4Header, TcpHeader, UdpHeader};

/// [Plain](super::plain) packets on their way out: all that follow each other to one interface, to be
/// counted and queued together. Whatever [`forward`] would do more to a packet than that keeps it out.
pub(crate) struct Leaving<'g> {
    iif: u32,
    /// The interface that they leave by, 0 at first.
    oif: u32,
    packets: PacketQueue,
    pub(crate) v4: Way<'g, V4>,
    pub(crate) v6: Way<'g, V6>,
}

/// A family's part of [`Leaving`].
pub(crate) struct Way<'g, F: Family> {
    next_hops: FoundNextHops<'g, F::Addr>,
    /// Largest packet that may leave by the interface without a closer look, in bytes.
    mtu: usize,
    sent: Tally,
}

impl<'g, F: Family> Way<'g, F> {
    fn new(cx: &Context<'g>) -> Self {
        Self {
            next_hops: F::routes(cx.view).found_next_hops(),
            mtu: 0,
            sent: Tally::default(),
        }
    }
}

impl<'g> Leaving<'g> {
    /// For packets that have come in by `iif`, when all routes are looked up.
    pub(crate) fn new(cx: &Context<'g>, iif: u32) -> Self {
        Self {
            iif,
            oif: 0,
            packets: PacketQueue::new(),
            v4: Way::new(cx),
            v6: Way::new(cx),
        }
    }

    /// Whether a packet is one of them; it is then one hop older, counted, and to be
    /// [pushed](Self::push) next.
    #[inline(always)]
    pub(crate) fn admits(&mut self, cx: &mut Context<'g>, packet: &mut Packet) -> bool {
        packet.verdict == Verdict::Forward
            && packet.is_plain
            && match packet.version {
                IpVersion::V4 => self.admits_plain::<V4>(cx, packet),
                IpVersion::V6 => self.admits_plain::<V6>(cx, packet),
            }
    }

    /// Takes a packet that was admitted.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    #[inline(always)]
    fn admits_plain<F: Family>(&mut self, cx: &mut Context<'g>, packet: &mut Packet) -> bool {
        let Some(next_hop) = F::way(self).next_hops.get(packet.route) else {
            return false;
        };
        if next_hop.oif != self.oif {
            self.turn_to(cx, next_hop.oif);
        }
        let way = F::way(self);
        let len = packet.len();
        let is_admitted = len <= way.mtu
            && next_hop.mtu.is_none()
            && next_hop.adjacency.is_empty()
            && F::hop_limit(packet) > 1;
        if is_admitted {
            F::decrement_hop_limit(packet);
            way.sent.add(len);
        }
        is_admitted
    }

    /// The next ones leave by another interface.
    #[inline(never)]
    fn turn_to(&mut self, cx: &mut Context<'g>, oif: u32) {
        self.flush(cx);
        // Who goes back to where he came from may be told of a better way.
        let device = cx.out_device(oif).filter(|_| oif != self.iif);
        self.oif = oif;
        self.v4.mtu = device.map_or(0, |device| device.mtu::<V4>());
        self.v6.mtu = device.map_or(0, |device| device.mtu::<V6>());
    }

    /// Counts and queues what was taken: before anything else is sent, for the order.
    #[inline(always)]
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        if !self.packets.is_empty() {
            self.send(cx);
        }
    }

    #[inline(never)]
    fn send(&mut self, cx: &mut Context<'_>) {
        cx.core.queue_all_tx(self.oif, &mut self.packets);
        count::<V4>(cx, take(&mut self.v4.sent));
        count::<V6>(cx, take(&mut self.v6.sent));
    }
}

fn count<F: Family>(cx: &Context<'_>, sent: Tally) {
    cx.core.add(F::MIB.forwarded, sent.packets.into());
    cx.core.add(F::MIB.out_octets, sent.octets);
}

/// Sends a packet on by the next hop that routing chose, one hop older. Any packet; most go by
/// [`Leaving`].
#[inline(never)]
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
    let sent = Tally {
        packets: 1,
        octets: len as u64,
    };
    count::<F>(cx, sent);
    if too_big {
        in_fragments::<F>(cx, packet, next_hop, interface, mtu);
    } else {
        transmit::to_interface(cx, interface, &next_hop.adjacency, packet);
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
