//! Input routing: where a packet that validation let through is to go.

use core::net::IpAddr;

use super::icmp::IcmpError;
use super::options;
use super::source::validate_source;
use crate::batch::{Sorted, Train};
use crate::core::Context;
use crate::counters::Counter;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::{LookupError, NextHop, NextHopIndex, Query, Resolved, RouteKind, RpFilter};
use crate::packet::{Destination, IpVersion, Packet, Refusal, Verdict};
use crate::sysctl::ConfKnob;
use crate::wire::protocol;

/// Decides for every packet of the batch that is undecided yet: first transit all together, then the
/// others one by one.
pub(crate) fn route(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &Sorted,
    trains: &mut [Train],
    batch: &mut [Packet],
) {
    route_transit::<V4>(cx, device, sorted, batch);
    route_transit::<V6>(cx, device, sorted, batch);
    for lane in sorted.others.iter() {
        if let Some(packet) = batch.get_mut(lane) {
            route_undecided(cx, device, packet);
        }
    }
    if trains.iter().any(|train| train.state.is_none()) {
        route_trains(cx, device, trains, batch);
    }
    if sorted.has_options {
        check_options(batch);
    }
}

/// Of a train, the first packet is looked up. Where the destination alone decides, so is the first
/// train to an address.
#[inline(never)]
fn route_trains(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    trains: &mut [Train],
    batch: &mut [Packet],
) {
    let (mut last4, mut last6) = (None, None);
    for train in trains.iter_mut().filter(|train| train.state.is_none()) {
        let packets = batch.get_mut(train.lanes()).unwrap_or_default();
        train.is_local = match packets.first().map(|first| first.version) {
            Some(IpVersion::V4) => route_train::<V4>(cx, device, &mut last4, packets),
            Some(IpVersion::V6) => route_train::<V6>(cx, device, &mut last6, packets),
            None => false,
        };
    }
}

/// Whether the train is to be delivered, by a route to this address alone. `last` has an address of
/// ours and its route, if the route of all packets to it is the same.
#[inline]
fn route_train<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    last: &mut Option<(F::Addr, NextHopIndex)>,
    packets: &mut [Packet],
) -> bool {
    let Some((first, others)) = packets.split_first_mut() else {
        return false;
    };
    let dst = F::dst(first);
    match *last {
        Some((addr, route)) if addr == dst => {
            first.route = Some(route);
            first.verdict = Verdict::Deliver;
        }
        _ => {
            route_undecided(cx, device, first);
            let Some(route) = local_route::<F>(cx, first) else {
                for packet in others {
                    route_undecided(cx, device, packet);
                }
                return false;
            };
            // A plain datagram's source is none of ours.
            let is_by_dst = F::in_conf(device).rp_filter == RpFilter::Off
                && F::routes(cx.view).goes_by_destination();
            *last = is_by_dst.then_some((dst, route));
        }
    }
    for packet in others {
        packet.route = first.route;
        packet.verdict = Verdict::Deliver;
    }
    true
}

/// The route by which a packet is delivered, if that is one to an address of ours.
fn local_route<F: Family>(cx: &Context<'_>, packet: &Packet) -> Option<NextHopIndex> {
    let route = packet
        .route
        .filter(|_| packet.verdict == Verdict::Deliver)?;
    let next_hop = F::routes(cx.view).next_hop(route)?;
    (next_hop.kind == RouteKind::Local).then_some(route)
}

#[inline]
fn route_undecided(cx: &Context<'_>, device: &InDevice<'_>, packet: &mut Packet) {
    if packet.verdict == Verdict::Undecided {
        packet.verdict = match packet.version {
            IpVersion::V4 => route_one::<V4>(cx, device, packet),
            IpVersion::V6 => route_one::<V6>(cx, device, packet),
        };
    }
}

fn route_transit<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &Sorted,
    batch: &mut [Packet],
) {
    let lanes = F::transit(sorted).lanes();
    if lanes.is_empty() {
        return;
    }
    let Some(transit) = F::routes(cx.view).transit() else {
        for lane in lanes {
            if let Some(packet) = batch.get_mut(usize::from(*lane)) {
                packet.verdict = route_one::<F>(cx, device, packet);
            }
        }
        return;
    };
    let conf = F::in_conf(device);
    // No source of transit is ours.
    let forwards_all = conf.forwards && conf.rp_filter == RpFilter::Off;
    let found = transit.lookup_many(F::transit(sorted).dsts(), lanes.len());
    for (lane, found) in lanes.iter().zip(found.iter()) {
        let Some(packet) = batch.get_mut(usize::from(*lane)) else {
            continue;
        };
        if forwards_all && found.is_some_and(NextHopIndex::is_unicast) {
            packet.route = found;
            packet.verdict = Verdict::Forward;
        } else {
            packet.verdict = after_lookup::<F>(cx, device, packet, transit.resolve(found));
        }
    }
}

/// A packet that takes its own way: to us, to many, or by rules.
#[inline(never)]
fn route_one<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &mut Packet) -> Verdict {
    // Groups and broadcasts are decided by the interface, not by a route.
    let verdict = match packet.destination {
        Destination::Multicast => group::<F>(cx, device, packet),
        Destination::LimitedBroadcast => broadcast::<F>(cx, device, packet),
        Destination::Own | Destination::Transit => {
            let answer = F::routes(cx.view).lookup(&query_of::<F>(packet));
            after_lookup::<F>(cx, device, packet, answer)
        }
    };
    if verdict != Verdict::Deliver {
        // Rules can send the packets of a flow elsewhere whose socket early demux has found.
        packet.socket = None;
    }
    verdict
}

pub(crate) fn query_of<F: Family>(packet: &Packet) -> Query<F::Addr> {
    let own = Some(packet.destination == Destination::Own);
    Query {
        dst: F::dst(packet),
        src: F::src(packet),
        iif: packet.iif,
        own,
    }
}

fn group<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    if F::VERSION == IpVersion::V6 {
        // Linux's `ip6_mc_input` counts what comes, IPv4 what has somewhere to go.
        count_group::<F>(cx, packet);
    }
    let group: IpAddr = F::dst(packet).into();
    let is_router = F::in_conf(device).forwards;
    // Those who ask about a group are not the sources that anybody has asked for.
    let source = match packet.protocol {
        protocol::IGMP | protocol::ICMPV6 | protocol::HOP_BY_HOP => None,
        _ => Some(F::src(packet).into()),
    };
    let is_joined = || {
        let place = (packet.iif, group);
        cx.stack.multicast.is_joined(cx.view.guard, place, source)
    };
    if !device.interface.is_member(group, is_router) && !is_joined() {
        return Verdict::Drop(DropReason::MulticastNotJoined);
    }
    let src_is_unspecified = F::src(packet) == F::UNSPECIFIED;
    match validate_source::<F>(cx, device, packet) {
        Err(reason) if !src_is_unspecified => return Verdict::Drop(reason),
        _ => {}
    }
    if F::VERSION == IpVersion::V4 {
        count_group::<F>(cx, packet);
    }
    Verdict::Deliver
}

fn count_group<F: Family>(cx: &Context<'_>, packet: &Packet) {
    cx.core.count(F::MIB.in_mcast_pkts);
    cx.core
        .add(F::MIB.in_mcast_octets, packet.total_len() as u64);
}

fn broadcast<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    let src_is_unspecified = F::src(packet) == F::UNSPECIFIED;
    match validate_source::<F>(cx, device, packet) {
        Err(reason) if !src_is_unspecified => return Verdict::Drop(reason),
        _ => {}
    }
    cx.core.count(Counter::IpExtInBcastPkts);
    cx.core
        .add(Counter::IpExtInBcastOctets, packet.total_len() as u64);
    Verdict::Deliver
}

#[inline(never)]
fn after_lookup<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    packet: &mut Packet,
    answer: Result<Resolved<'_, F::Addr>, LookupError>,
) -> Verdict {
    match answer {
        Ok(Resolved { index, next_hop }) => {
            packet.route = Some(index);
            match next_hop.kind {
                RouteKind::Unicast if F::in_conf(device).forwards => {
                    to_forward::<F>(cx, device, packet)
                }
                _ => to_here::<F>(cx, device, packet, next_hop),
            }
        }
        Err(error) => packet.refuse(without_route::<F>(device, error)),
    }
}

#[inline(never)]
fn without_route<F: Family>(device: &InDevice<'_>, error: LookupError) -> Refusal {
    match error {
        LookupError::Blackhole => Refusal::silent(DropReason::Blackhole),
        // Who does not forward owes nobody an explanation (Linux's `ip_error`).
        _ if !F::in_conf(device).forwards => Refusal::silent(DropReason::IpNotForwarding),
        LookupError::NoRoute => Refusal::told(DropReason::IpInNoRoutes, IcmpError::NetUnreachable),
        LookupError::Unreachable => {
            Refusal::told(DropReason::Unreachable, IcmpError::HostUnreachable)
        }
        LookupError::Prohibit => Refusal::told(DropReason::Prohibit, IcmpError::Prohibited),
    }
}

/// A route that ends here, or one to somebody else who is not served.
#[inline(never)]
fn to_here<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    packet: &Packet,
    next_hop: &NextHop<F::Addr>,
) -> Verdict {
    match next_hop.kind {
        RouteKind::Local => match validate_source::<F>(cx, device, packet) {
            Ok(()) => Verdict::Deliver,
            Err(reason) => Verdict::Drop(reason),
        },
        RouteKind::Broadcast if next_hop.oif == packet.iif => broadcast::<F>(cx, device, packet),
        // A directed broadcast to another of our subnets (RFC 2644).
        RouteKind::Broadcast => {
            let forwards = F::in_conf(device).forwards;
            match forwards && cx.view.sysctls.conf_and(packet.iif, ConfKnob::BcForwarding) {
                true => to_forward::<F>(cx, device, packet),
                false => broadcast::<F>(cx, device, packet),
            }
        }
        RouteKind::Unicast => Verdict::Drop(DropReason::IpNotForwarding),
        // Routes that refuse come as errors of the lookup.
        _ => Verdict::Drop(DropReason::NotForwardable),
    }
}

#[inline(always)]
fn to_forward<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    match validate_source::<F>(cx, device, packet) {
        Ok(()) => Verdict::Forward,
        Err(reason) => Verdict::Drop(reason),
    }
}

/// IPv4 options are looked at once the packet is known to go somewhere (Linux's `ip_rcv_options`):
/// a martian with bad options gets no answer.
fn check_options(batch: &mut [Packet]) {
    let is_wanted = |packet: &Packet| matches!(packet.verdict, Verdict::Deliver | Verdict::Forward);
    for packet in batch
        .iter_mut()
        .filter(|packet| packet.has_options && is_wanted(packet))
    {
        if let Err(refusal) = options::check(packet) {
            packet.verdict = packet.refuse(refusal);
        }
    }
}
