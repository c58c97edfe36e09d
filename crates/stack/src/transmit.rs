//! The way out, top to bottom.
//!
//! ```text
//! socket, ICMP ─▶ route_output ─▶ send ─┬▶ loopback
//!                  (and source)  (header,└▶ to_interface ─▶ interface's queue ─▶ device
//! forward ─────────────────────  fragments) ─▶┘ (checksum, segments, link header)
//! ```

use core::net::IpAddr;

use crate::core::Context;
use crate::counters::Counter;
use crate::drop::DropReason;
use crate::family::Family;
use crate::fib::{Address as _, Adjacency, LookupError, NextHop, Query, Resolved, RouteKind};
use crate::interface::{Interface, LOOPBACK};
use crate::ip::validate::carries;
use crate::ip::{forward, fragment};
use crate::packet::{ChecksumState, GsoKind, IpVersion, Packet};
use crate::segment;

/// Why a packet of our own could not be sent; the names of the errors that Linux returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// ENETUNREACH: no route.
    #[error("network is unreachable")]
    NetworkUnreachable,
    /// EHOSTUNREACH: an `unreachable` route.
    #[error("no route to host")]
    HostUnreachable,
    /// EACCES: a `prohibit` route, or a broadcast that the socket may not send.
    #[error("permission denied")]
    AccessDenied,
    /// EINVAL: a `blackhole` route, or an address that can't be a destination.
    #[error("invalid argument")]
    InvalidArgument,
    /// EMSGSIZE.
    #[error("message too long")]
    MessageTooLong,
    /// ENOBUFS: the packet pool is empty.
    #[error("no buffer space available")]
    NoBuffers,
    /// EADDRNOTAVAIL: no source address fits.
    #[error("cannot assign requested address")]
    AddressNotAvailable,
    /// ENETDOWN: the interface is down.
    #[error("network is down")]
    NetworkDown,
}

/// Where a packet of our own will go, and from which address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputRoute<'g, F: Family> {
    pub(crate) src: F::Addr,
    pub(crate) dst: F::Addr,
    /// Interface that it leaves by: the loopback for our own addresses.
    pub(crate) oif: u32,
    /// Largest IP packet that goes in one piece, as far as is known.
    pub(crate) mtu: u32,
    /// The same for the first link alone.
    pub(crate) link_mtu: u32,
    /// Nothing of the path's MTU is to be discovered: routers may fragment.
    pub(crate) mtu_locked: bool,
    pub(crate) kind: RouteKind,
    /// Members of the group on this host get a copy (`IP_MULTICAST_LOOP`).
    pub(crate) loops: bool,
    /// What is written in front; `None` for groups and broadcasts, which have no next hop.
    next_hop: Option<&'g NextHop<F::Addr>>,
}

/// The IP header's fields that the sender chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpParams {
    pub(crate) protocol: u8,
    /// TTL or hop limit; `None` takes the knob's.
    pub(crate) ttl: Option<u8>,
    pub(crate) tos: u8,
    /// IPv4: set DF if the packet fits in one piece.
    pub(crate) dont_fragment: bool,
}

/// Finds the way to `dst` and a source address, unless the sender has one (RFC 1122 section 3.3.4.3,
/// RFC 6724 in short).
pub(crate) fn route_output<'g, F: Family>(
    cx: &Context<'g>,
    dst: F::Addr,
    src: Option<F::Addr>,
    oif: Option<u32>,
) -> Result<OutputRoute<'g, F>, SendError> {
    if dst == F::UNSPECIFIED {
        return Err(SendError::NetworkUnreachable);
    }
    let is_link_local = dst.is_on_link_by_definition() && oif.is_some();
    if F::is_multicast(dst) || is_limited_broadcast(dst.into()) || is_link_local {
        return on_link::<F>(cx, dst, src, oif);
    }
    let src_or_none = src.unwrap_or(F::UNSPECIFIED);
    let query = Query {
        dst,
        src: src_or_none,
        iif: LOOPBACK,
        own: None,
    };
    let next_hop = match F::routes(cx.view).lookup(&query) {
        Ok(Resolved { next_hop, .. }) => next_hop,
        Err(LookupError::NoRoute) if oif.is_some() => return on_link::<F>(cx, dst, src, oif),
        Err(error) => return Err(refused::<F>(cx, error)),
    };
    if next_hop.kind == RouteKind::Local {
        let loopback = up_interface::<F>(cx, LOOPBACK)?;
        let src = src.unwrap_or(dst);
        let (oif, mtu) = (LOOPBACK, loopback.mtu);
        return Ok(OutputRoute {
            src,
            dst,
            oif,
            mtu,
            link_mtu: mtu,
            mtu_locked: false,
            kind: next_hop.kind,
            loops: false,
            next_hop: Some(next_hop),
        });
    }
    if oif.is_some_and(|oif| oif != next_hop.oif) {
        return on_link::<F>(cx, dst, src, oif);
    }
    let interface = up_interface::<F>(cx, next_hop.oif)?;
    let src = match src.or(next_hop.pref_src) {
        Some(src) => src,
        None => select_source::<F>(cx, interface, next_hop.gateway.unwrap_or(dst))?,
    };
    let link_mtu = forward::path_mtu(next_hop, interface);
    let learnt = cx.stack.path_mtus.get(dst.into(), cx.now);
    Ok(OutputRoute {
        src,
        dst,
        oif: next_hop.oif,
        mtu: learnt.map_or(link_mtu, |path| path.mtu.min(link_mtu)),
        link_mtu,
        mtu_locked: learnt.is_some_and(|path| path.locked),
        kind: next_hop.kind,
        loops: false,
        next_hop: Some(next_hop),
    })
}

/// Finds the way back to who sent a packet that came in by `iif`, for an answer from `src`.
///
/// A subnet's broadcast address looks like any other; only its route tells. Nobody answers a packet
/// that claims to come from one (RFC 1122 section 3.2.2): a crowd would get the answer.
pub(crate) fn route_back<'g, F: Family>(
    cx: &Context<'g>,
    peer: F::Addr,
    src: Option<F::Addr>,
    iif: u32,
) -> Result<OutputRoute<'g, F>, SendError> {
    // Link-local addresses mean something on their link only.
    let link = peer.is_on_link_by_definition().then_some(iif);
    let route = route_output::<F>(cx, peer, src, link)?;
    if route.kind == RouteKind::Broadcast {
        return Err(SendError::AccessDenied);
    }
    Ok(route)
}

/// Sends a transport header and payload, its checksum filled, by `route`. Counts; packets too large
/// for the path leave in fragments.
pub(crate) fn send<F: Family>(
    cx: &mut Context<'_>,
    mut packet: Packet,
    route: &OutputRoute<'_, F>,
    ip: &IpParams,
) -> Result<(), SendError> {
    cx.core.count(F::MIB.out_requests);
    packet.version = F::VERSION;
    packet.protocol = ip.protocol;
    let fits = packet.total_len() + F::HEADER_LEN <= route.mtu as usize || packet.gso.is_some();
    let ttl = ip.ttl.unwrap_or_else(|| F::default_ttl(cx.view, route.oif));
    let dont_fragment = ip.dont_fragment && fits;
    let id = match dont_fragment {
        // It means nothing (RFC 6864 section 4.1), and if it is always the same, receivers can join
        // the packets of a flow.
        true => 0,
        false => cx.core.random.next_u32(),
    };
    let ip = IpParams {
        ttl: Some(ttl),
        dont_fragment,
        ..*ip
    };
    if !F::push_header(&mut packet, route.src, route.dst, &ip, id) {
        cx.core.consume(packet);
        return Err(SendError::MessageTooLong);
    }
    packet.l4_offset = u16::try_from(F::HEADER_LEN).unwrap_or(u16::MAX);
    if let ChecksumState::Partial { start, offset } = packet.checksum {
        let start = start.saturating_add(packet.l4_offset);
        packet.checksum = ChecksumState::Partial { start, offset };
    }
    cx.core.add(F::MIB.out_octets, packet.total_len() as u64);
    if F::is_multicast(route.dst) {
        cx.core.count(F::MIB.out_mcast_pkts);
        cx.core
            .add(F::MIB.out_mcast_octets, packet.total_len() as u64);
        if route.loops {
            loop_back(cx, &packet, route);
        }
        if ttl == 0 {
            // Not beyond this host (Linux's `ip_mc_output`).
            cx.core.consume(packet);
            return Ok(());
        }
    }
    if route.kind == RouteKind::Broadcast {
        // IPv6 has none.
        cx.core.count(Counter::IpExtOutBcastPkts);
        cx.core
            .add(Counter::IpExtOutBcastOctets, packet.total_len() as u64);
    }
    if fits {
        dispatch(cx, packet, route);
        return Ok(());
    }
    let Some(mut fragments) = fragment::fragment::<F>(cx, packet, route.mtu) else {
        return Err(SendError::NoBuffers);
    };
    while let Some(piece) = fragments.pop() {
        dispatch(cx, piece, route);
    }
    Ok(())
}

/// A copy for members of the group on this host, which they get as if it had come in by the
/// interface that the packet leaves by.
fn loop_back<F: Family>(cx: &mut Context<'_>, packet: &Packet, route: &OutputRoute<'_, F>) {
    if route.oif == LOOPBACK || !is_member::<F>(cx, route.oif, route.dst) {
        return;
    }
    if let Some(mut copy) = segment::copy_part(cx, packet, &[], 0, packet.total_len()) {
        copy.gso = packet.gso;
        copy.from_host = true;
        copy.iif = route.oif;
        cx.core.queue_tx(LOOPBACK, copy);
    }
}

fn is_member<F: Family>(cx: &Context<'_>, ifindex: u32, group: F::Addr) -> bool {
    let is_router = F::forwards(cx.view, ifindex);
    let interface = cx.view.interfaces.get(ifindex);
    let place = (ifindex, group.into());
    interface.is_some_and(|interface| interface.is_member(group.into(), is_router))
        || cx.stack.multicast.is_joined(cx.view.guard, place, None)
}

fn dispatch<F: Family>(cx: &mut Context<'_>, mut packet: Packet, route: &OutputRoute<'_, F>) {
    if route.oif == LOOPBACK {
        if F::is_multicast(route.dst) && !is_member::<F>(cx, LOOPBACK, route.dst) {
            return cx.drop(packet, DropReason::MulticastNotJoined);
        }
        packet.from_host = true;
        packet.iif = LOOPBACK;
        cx.core.queue_tx(LOOPBACK, packet);
        return;
    }
    let Some(interface) = cx.view.interfaces.get(route.oif) else {
        return cx.drop(packet, DropReason::DevReady);
    };
    let adjacency = route
        .next_hop
        .map_or(Adjacency::default(), |next_hop| next_hop.adjacency);
    to_interface(cx, interface, &adjacency, packet);
}

/// Does what the device can't, writes the link header, and queues the packet for the device.
pub(crate) fn to_interface(
    cx: &mut Context<'_>,
    interface: &Interface,
    adjacency: &Adjacency,
    packet: Packet,
) {
    match packet.gso {
        Some(gso) if !segments_itself(interface, gso.kind) => {
            in_segments(cx, interface, adjacency, packet);
        }
        _ => to_device(cx, interface, adjacency, packet),
    }
}

fn segments_itself(interface: &Interface, kind: GsoKind) -> bool {
    match kind {
        GsoKind::Tcp { .. } => interface.offload.tcp_segmentation,
        GsoKind::Udp => interface.offload.udp_segmentation,
    }
}

#[inline(never)]
fn in_segments(cx: &mut Context<'_>, interface: &Interface, adjacency: &Adjacency, packet: Packet) {
    let mut segments = segment::segment(cx, packet);
    while let Some(piece) = segments.pop() {
        to_device(cx, interface, adjacency, piece);
    }
}

/// As a single packet, or one that the device segments.
pub(crate) fn to_device(
    cx: &mut Context<'_>,
    interface: &Interface,
    adjacency: &Adjacency,
    mut packet: Packet,
) {
    if matches!(packet.checksum, ChecksumState::Partial { .. }) && !interface.offload.checksum {
        segment::complete_checksum(&mut packet);
    }
    if !adjacency.is_empty() && !push_link_header(&mut packet, adjacency) {
        return cx.drop(packet, DropReason::NoBuffer);
    }
    cx.core.queue_tx(interface.index, packet);
}

/// False if there is no room.
fn push_link_header(packet: &mut Packet, adjacency: &Adjacency) -> bool {
    let header = adjacency.bytes();
    let Some(bytes) = packet.push(header.len()) else {
        return false;
    };
    bytes.copy_from_slice(header);
    true
}

/// Groups and the limited broadcast, and destinations on the link of an interface that the sender
/// insists on: no next hop, the interface is enough.
fn on_link<'g, F: Family>(
    cx: &Context<'g>,
    dst: F::Addr,
    src: Option<F::Addr>,
    oif: Option<u32>,
) -> Result<OutputRoute<'g, F>, SendError> {
    let oif = match oif {
        Some(oif) => oif,
        None => group_interface::<F>(cx, dst, src).ok_or(SendError::NetworkUnreachable)?,
    };
    let interface = up_interface::<F>(cx, oif)?;
    let src = match src {
        Some(src) => src,
        None => select_source::<F>(cx, interface, dst)?,
    };
    let kind = match () {
        () if F::is_multicast(dst) => RouteKind::Multicast,
        () if is_limited_broadcast(dst.into()) => RouteKind::Broadcast,
        () => RouteKind::Unicast,
    };
    Ok(OutputRoute {
        src,
        dst,
        oif,
        mtu: interface.mtu,
        link_mtu: interface.mtu,
        mtu_locked: false,
        kind,
        loops: false,
        next_hop: None,
    })
}

/// The interface for a group: the source's, else what a route says, else the first one that is up.
pub(crate) fn group_interface<F: Family>(
    cx: &Context<'_>,
    dst: F::Addr,
    src: Option<F::Addr>,
) -> Option<u32> {
    let has_source = |interface: &&Interface| {
        src.is_some_and(|src| interface.addresses.iter().any(|own| own.addr == src.into()))
    };
    if let Some(interface) = cx.view.interfaces.iter().find(has_source) {
        return Some(interface.index);
    }
    let query = Query {
        dst,
        src: F::UNSPECIFIED,
        iif: LOOPBACK,
        own: None,
    };
    if let Ok(found) = F::routes(cx.view).lookup(&query) {
        return Some(found.next_hop.oif);
    }
    let mut devices = cx
        .view
        .interfaces
        .iter()
        .filter(|interface| interface.index != LOOPBACK);
    devices
        .find(|interface| interface.up)
        .map(|interface| interface.index)
}

/// An address of the interface that shares most with the destination, else one of any interface
/// (the weak host model of RFC 1122 section 3.3.4.2).
fn select_source<F: Family>(
    cx: &Context<'_>,
    interface: &Interface,
    towards: F::Addr,
) -> Result<F::Addr, SendError> {
    let others = cx
        .view
        .interfaces
        .iter()
        .filter(|other| other.index != LOOPBACK);
    core::iter::once(interface)
        .chain(others)
        .find_map(|interface| best_source::<F>(interface, towards))
        .ok_or(SendError::AddressNotAvailable)
}

fn best_source<F: Family>(interface: &Interface, towards: F::Addr) -> Option<F::Addr> {
    let own = interface
        .addresses
        .iter()
        .filter_map(|own| F::from_ip(own.addr));
    // The first of equals: `max_by_key` would take the last.
    own.rev().max_by_key(|addr| F::source_rank(*addr, towards))
}

fn up_interface<'g, F: Family>(cx: &Context<'g>, ifindex: u32) -> Result<&'g Interface, SendError> {
    let interface = cx
        .view
        .interfaces
        .get(ifindex)
        .filter(|interface| carries::<F>(cx.view, interface))
        .ok_or(SendError::NetworkUnreachable)?;
    if interface.up {
        Ok(interface)
    } else {
        Err(SendError::NetworkDown)
    }
}

fn is_limited_broadcast(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(addr) if addr.is_broadcast())
}

fn refused<F: Family>(cx: &Context<'_>, error: LookupError) -> SendError {
    match error {
        LookupError::NoRoute => {
            let counter = match F::VERSION {
                IpVersion::V4 => Counter::IpOutNoRoutes,
                IpVersion::V6 => Counter::Ip6OutNoRoutes,
            };
            cx.core.count(counter);
            SendError::NetworkUnreachable
        }
        LookupError::Unreachable => SendError::HostUnreachable,
        LookupError::Prohibit => SendError::AccessDenied,
        LookupError::Blackhole => SendError::InvalidArgument,
    }
}
