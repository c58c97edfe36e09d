//! What differs between IPv4 and IPv6, and nothing more: the one generic of the packet path.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, IntoBytes};

use crate::batch::{Sorted, Tally, TransitLanes};
use crate::core::Context;
use crate::counters::{IpMib, MIB_V4, MIB_V6};
use crate::devices::{InConf, InDevice};
use crate::fib::{self, Address, RpFilter};
use crate::interface::LOOPBACK;
use crate::ip::forward::{Leaving, Way};
use crate::ip::{ext_headers, reassembly};
use crate::packet::{IpVersion, Packet};
use crate::stack::{Generations, View};
use crate::sysctl::{ConfKnob, Knob};
use crate::transmit::IpParams;
use crate::wire::{Checksum, Ipv4Header, Ipv6Header, checksum, ipv4, protocol};

/// IPv4 or IPv6.
pub(crate) trait Family: Copy + Send + Sync + 'static {
    /// Its addresses.
    type Addr: Address + Into<IpAddr>;

    /// Which one it is, for values that outlive the generic.
    const VERSION: IpVersion;
    /// Protocol number of its ICMP.
    const ICMP: u8;
    /// Bytes of its header without options or extension headers.
    const HEADER_LEN: usize;
    /// Where the addresses begin, source first; they end its header without options.
    const ADDRESSES: usize;
    /// The all-zero address.
    const UNSPECIFIED: Self::Addr;
    /// Its IP counters.
    const MIB: &'static IpMib;
    /// Seconds that fragments wait.
    const FRAG_TIME: Knob;
    /// Bytes that fragments may take.
    const FRAG_HIGH_THRESH: Knob;

    /// Source address of a validated packet.
    fn src(packet: &Packet) -> Self::Addr;
    /// Destination address of a validated packet.
    fn dst(packet: &Packet) -> Self::Addr;
    /// TTL or hop limit of a validated packet.
    fn hop_limit(packet: &Packet) -> u8;
    /// Type of service or traffic class of a validated packet.
    fn traffic_class(packet: &Packet) -> u8;
    /// The sum that transport checksums start from; `len` counts transport header and payload.
    fn pseudo_header(src: Self::Addr, dst: Self::Addr, protocol: u8, len: usize) -> Checksum;
    /// Whether the address is one host's: not unspecified, not a group, not the limited broadcast.
    fn is_unicast(addr: Self::Addr) -> bool;
    /// Whether the address is a group's.
    fn is_multicast(addr: Self::Addr) -> bool;
    /// The address, if it is of this family; an IPv4-mapped IPv6 address is IPv4.
    fn from_ip(addr: IpAddr) -> Option<Self::Addr>;

    /// Which of two own addresses suits a destination better: the greater rank.
    fn source_rank(addr: Self::Addr, towards: Self::Addr) -> u32;
    /// Makes a packet that is for this host whole and finds its transport header: fragments,
    /// extension headers. `None` if it waits, or went no further.
    fn local_in(cx: &mut Context<'_>, packet: Packet) -> Option<Packet>;
    /// Writes an IP header in front of transport header and payload. `id` identifies an IPv4
    /// datagram that may be fragmented. `false` if the packet would be too large.
    fn push_header(
        packet: &mut Packet,
        src: Self::Addr,
        dst: Self::Addr,
        ip: &IpParams,
        id: u32,
    ) -> bool;
    /// One hop less to go.
    fn decrement_hop_limit(packet: &mut Packet);

    /// TTL or hop limit of packets that leave by the interface.
    fn default_ttl(view: &View<'_>, oif: u32) -> u8;
    /// Whether packets that claim to come from this host are refused on the interface.
    fn checks_own_source(view: &View<'_>, iif: u32) -> bool;
    /// The family's routes as this batch sees them.
    fn routes<'a>(view: &'a View<'_>) -> &'a fib::View<'a, Self::Addr>;
    /// The generations of those routes.
    fn generations(view: &View<'_>) -> Generations;
    /// Whether packets that come in by the interface may go out by another.
    fn forwards(view: &View<'_>, iif: u32) -> bool;
    /// How strictly sources are checked on the interface.
    fn rp_filter(view: &View<'_>, iif: u32) -> RpFilter;
    /// The packets of a batch to somebody else.
    fn transit(sorted: &Sorted) -> &TransitLanes<Self::Addr>;

    /// Packets of a batch that have come in.
    fn arrived(sorted: &mut Sorted) -> &mut Tally;
    /// What the knobs of the interface that a batch came in by say.
    fn in_conf<'a>(device: &'a InDevice<'_>) -> &'a InConf;
    /// How its packets leave.
    fn way<'a, 'g>(leaving: &'a mut Leaving<'g>) -> &'a mut Way<'g, Self>;
}

/// IPv4.
#[derive(Debug, Clone, Copy)]
pub(crate) struct V4;

/// IPv6.
#[derive(Debug, Clone, Copy)]
pub(crate) struct V6;

impl Family for V4 {
    type Addr = Ipv4Addr;

    const VERSION: IpVersion = IpVersion::V4;
    const ICMP: u8 = protocol::ICMP;
    const HEADER_LEN: usize = Ipv4Header::LEN;
    const ADDRESSES: usize = 12;
    const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
    const MIB: &'static IpMib = &MIB_V4;
    const FRAG_TIME: Knob = Knob::IpfragTime;
    const FRAG_HIGH_THRESH: Knob = Knob::IpfragHighThresh;

    fn src(packet: &Packet) -> Ipv4Addr {
        Ipv4Header::ref_from_prefix(packet.data()).map_or(Self::UNSPECIFIED, |(ip, _)| ip.src())
    }

    fn dst(packet: &Packet) -> Ipv4Addr {
        Ipv4Header::ref_from_prefix(packet.data()).map_or(Self::UNSPECIFIED, |(ip, _)| ip.dst())
    }

    fn hop_limit(packet: &Packet) -> u8 {
        Ipv4Header::ref_from_prefix(packet.data()).map_or(0, |(ip, _)| ip.ttl)
    }

    fn traffic_class(packet: &Packet) -> u8 {
        Ipv4Header::ref_from_prefix(packet.data()).map_or(0, |(ip, _)| ip.tos)
    }

    fn pseudo_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: usize) -> Checksum {
        let mut sum = Checksum::new();
        sum.add_u32(src.to_bits());
        sum.add_u32(dst.to_bits());
        sum.add_u16(u16::from(protocol));
        sum.add_u16(u16::try_from(len).unwrap_or(u16::MAX));
        sum
    }

    fn is_unicast(addr: Ipv4Addr) -> bool {
        !addr.is_unspecified() && !addr.is_multicast() && !addr.is_broadcast()
    }

    fn is_multicast(addr: Ipv4Addr) -> bool {
        addr.is_multicast()
    }

    fn from_ip(addr: IpAddr) -> Option<Ipv4Addr> {
        match addr.to_canonical() {
            IpAddr::V4(addr) => Some(addr),
            IpAddr::V6(_) => None,
        }
    }

    fn source_rank(addr: Ipv4Addr, towards: Ipv4Addr) -> u32 {
        (addr.to_bits() ^ towards.to_bits()).leading_zeros()
    }

    fn local_in(cx: &mut Context<'_>, packet: Packet) -> Option<Packet> {
        if packet.is_fragment {
            reassembly::local_in_v4(cx, packet)
        } else {
            Some(packet)
        }
    }

    fn push_header(
        packet: &mut Packet,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        ip: &IpParams,
        id: u32,
    ) -> bool {
        let Ok(len) = u16::try_from(packet.total_len() + Ipv4Header::LEN) else {
            return false;
        };
        let ttl = ip.ttl.unwrap_or(64);
        let mut header = Ipv4Header::new(src, dst, ip.protocol, ttl, len);
        header.tos = ip.tos;
        let [.., high, low] = id.to_be_bytes();
        header.id = u16::from_be_bytes([high, low]).into();
        header.fragment = if ip.dont_fragment { ipv4::FLAG_DF } else { 0 }.into();
        header.checksum = checksum::checksum(header.as_bytes()).into();
        let Some(bytes) = packet.push(Ipv4Header::LEN) else {
            return false;
        };
        bytes.copy_from_slice(header.as_bytes());
        true
    }

    fn decrement_hop_limit(packet: &mut Packet) {
        if let Ok((ip, _)) = Ipv4Header::mut_from_prefix(packet.data_mut()) {
            ip.decrement_ttl();
        }
    }

    fn default_ttl(view: &View<'_>, _oif: u32) -> u8 {
        u8::try_from(view.sysctls.get(Knob::IpDefaultTtl)).unwrap_or(64)
    }

    fn checks_own_source(view: &View<'_>, iif: u32) -> bool {
        iif != LOOPBACK && !view.sysctls.conf_or(iif, ConfKnob::AcceptLocal)
    }

    fn routes<'a>(view: &'a View<'_>) -> &'a fib::View<'a, Ipv4Addr> {
        &view.fib4
    }

    fn generations(view: &View<'_>) -> Generations {
        view.generations4
    }

    fn forwards(view: &View<'_>, iif: u32) -> bool {
        view.sysctls.conf(iif, ConfKnob::V4Forwarding) != 0
    }

    fn rp_filter(view: &View<'_>, iif: u32) -> RpFilter {
        match view.sysctls.conf_max(iif, ConfKnob::RpFilter) {
            0 => RpFilter::Off,
            1 => RpFilter::Strict,
            _ => RpFilter::Loose,
        }
    }

    fn transit(sorted: &Sorted) -> &TransitLanes<Ipv4Addr> {
        &sorted.transit4
    }

    fn arrived(sorted: &mut Sorted) -> &mut Tally {
        &mut sorted.arrived4
    }

    fn in_conf<'a>(device: &'a InDevice<'_>) -> &'a InConf {
        &device.v4
    }

    fn way<'a, 'g>(leaving: &'a mut Leaving<'g>) -> &'a mut Way<'g, Self> {
        &mut leaving.v4
    }
}

impl Family for V6 {
    type Addr = Ipv6Addr;

    const VERSION: IpVersion = IpVersion::V6;
    const ICMP: u8 = protocol::ICMPV6;
    const HEADER_LEN: usize = Ipv6Header::LEN;
    const ADDRESSES: usize = 8;
    const UNSPECIFIED: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
    const MIB: &'static IpMib = &MIB_V6;
    const FRAG_TIME: Knob = Knob::Ip6fragTime;
    const FRAG_HIGH_THRESH: Knob = Knob::Ip6fragHighThresh;

    fn src(packet: &Packet) -> Ipv6Addr {
        Ipv6Header::ref_from_prefix(packet.data()).map_or(Self::UNSPECIFIED, |(ip, _)| ip.src())
    }

    fn dst(packet: &Packet) -> Ipv6Addr {
        Ipv6Header::ref_from_prefix(packet.data()).map_or(Self::UNSPECIFIED, |(ip, _)| ip.dst())
    }

    fn hop_limit(packet: &Packet) -> u8 {
        Ipv6Header::ref_from_prefix(packet.data()).map_or(0, |(ip, _)| ip.hop_limit)
    }

    fn traffic_class(packet: &Packet) -> u8 {
        Ipv6Header::ref_from_prefix(packet.data()).map_or(0, |(ip, _)| ip.traffic_class())
    }

    fn pseudo_header(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: usize) -> Checksum {
        let mut sum = Checksum::new();
        sum.add_u128(src.to_bits());
        sum.add_u128(dst.to_bits());
        sum.add_u32(u32::try_from(len).unwrap_or(u32::MAX));
        sum.add_u32(u32::from(protocol));
        sum
    }

    fn is_unicast(addr: Ipv6Addr) -> bool {
        !addr.is_unspecified() && !addr.is_multicast()
    }

    fn is_multicast(addr: Ipv6Addr) -> bool {
        addr.is_multicast()
    }

    fn from_ip(addr: IpAddr) -> Option<Ipv6Addr> {
        match addr.to_canonical() {
            IpAddr::V6(addr) => Some(addr),
            IpAddr::V4(_) => None,
        }
    }

    fn source_rank(addr: Ipv6Addr, towards: Ipv6Addr) -> u32 {
        // RFC 6724 section 5: same scope first, then the longest common prefix.
        let same_scope = addr.is_unicast_link_local() == towards.is_unicast_link_local();
        let common = (addr.to_bits() ^ towards.to_bits()).leading_zeros();
        u32::from(same_scope) * 256 + common
    }

    fn local_in(cx: &mut Context<'_>, packet: Packet) -> Option<Packet> {
        ext_headers::walk(cx, packet)
    }

    fn push_header(
        packet: &mut Packet,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        ip: &IpParams,
        _id: u32,
    ) -> bool {
        let Ok(len) = u16::try_from(packet.total_len()) else {
            return false;
        };
        let hop_limit = ip.ttl.unwrap_or(64);
        let mut header = Ipv6Header::new(src, dst, ip.protocol, hop_limit, len);
        header.set_traffic_class(ip.tos);
        let Some(bytes) = packet.push(Ipv6Header::LEN) else {
            return false;
        };
        bytes.copy_from_slice(header.as_bytes());
        true
    }

    fn decrement_hop_limit(packet: &mut Packet) {
        if let Ok((ip, _)) = Ipv6Header::mut_from_prefix(packet.data_mut()) {
            ip.hop_limit = ip.hop_limit.wrapping_sub(1);
        }
    }

    fn default_ttl(view: &View<'_>, oif: u32) -> u8 {
        u8::try_from(view.sysctls.conf(oif, ConfKnob::HopLimit)).unwrap_or(64)
    }

    fn checks_own_source(_view: &View<'_>, _iif: u32) -> bool {
        // Linux has no such check for IPv6.
        false
    }

    fn routes<'a>(view: &'a View<'_>) -> &'a fib::View<'a, Ipv6Addr> {
        &view.fib6
    }

    fn generations(view: &View<'_>) -> Generations {
        view.generations6
    }

    fn forwards(view: &View<'_>, _iif: u32) -> bool {
        view.sysctls.conf_all(ConfKnob::V6Forwarding) != 0
    }

    fn rp_filter(_view: &View<'_>, _iif: u32) -> RpFilter {
        // Linux has the knob for IPv4 only; IPv6 filters by netfilter.
        RpFilter::Off
    }

    fn transit(sorted: &Sorted) -> &TransitLanes<Ipv6Addr> {
        &sorted.transit6
    }

    fn arrived(sorted: &mut Sorted) -> &mut Tally {
        &mut sorted.arrived6
    }

    fn in_conf<'a>(device: &'a InDevice<'_>) -> &'a InConf {
        &device.v6
    }

    fn way<'a, 'g>(leaving: &'a mut Leaving<'g>) -> &'a mut Way<'g, Self> {
        &mut leaving.v6
    }
}
