//! Input routing: where a packet that validation let through is to go.

use core::net::IpAddr;

use super::icmp::IcmpError;
use super::options;
use super::source::{check_martians_v4, validate_source};
use crate::core::Context;
use crate::counters::Counter;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::{LookupError, NextHop, Query, Resolved, RouteKind, Transit};
use crate::packet::{Destination, Packet, Refusal, Verdict};
use crate::receive::{MAX_BATCH, Mix};
use crate::sysctl::ConfKnob;
use crate::wire::protocol;

/// Decides for every packet of the batch that is undecided yet.
pub(crate) fn route(cx: &Context<'_>, device: &InDevice<'_>, mix: &Mix, batch: &mut [Packet]) {
    if mix.v4 {
        route_family::<V4>(cx, device, batch);
    }
    if mix.v6 {
        route_family::<V6>(cx, device, batch);
    }
    if mix.options {
        check_options(batch);
    }
}

/// The packets of one family: what needs no lookup and what takes its own way at once, then transit
/// all together.
fn route_family<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, batch: &mut [Packet]) {
    let transit = F::routes(cx.view).transit();
    let mut dsts = [F::UNSPECIFIED; MAX_BATCH];
    let mut lanes = [0_u8; MAX_BATCH];
    let mut asked = 0;
    for (at, packet) in (0..).zip(batch.iter_mut()) {
        if packet.version != F::VERSION || !matches!(packet.verdict, Verdict::Undecided) {
            continue;
        }
        packet.verdict = before_lookup::<F>(cx, device, packet);
        if !matches!(packet.verdict, Verdict::Undecided) {
            continue;
        }
        if transit.is_some() && packet.destination == Destination::Transit && asked < MAX_BATCH {
            (dsts[asked], lanes[asked]) = (F::dst(packet), at);
            asked += 1;
        } else {
            route_one::<F>(cx, device, packet);
        }
    }
    if let Some(transit) = transit
        && asked > 0
    {
        route_transit::<F>(cx, device, transit, &dsts, &lanes[..asked], batch);
    }
}

#[inline(never)]
fn route_one<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &mut Packet) {
    let answer = F::routes(cx.view).lookup(&query_of::<F>(packet));
    packet.verdict = after_lookup::<F>(cx, device, packet, answer);
    if !matches!(packet.verdict, Verdict::Deliver) {
        // Rules can send the packets of a flow elsewhere whose socket early demux has found.
        packet.socket = None;
    }
}

/// `lanes` says where in the batch the packet of each destination is.
#[inline(always)]
fn route_transit<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    transit: Transit<'_, '_, F::Addr>,
    dsts: &[F::Addr; MAX_BATCH],
    lanes: &[u8],
    batch: &mut [Packet],
) {
    transit.lookup_many(dsts, lanes.len(), |lane, answer| {
        let packet = lanes
            .get(lane)
            .and_then(|at| batch.get_mut(usize::from(*at)));
        if let Some(packet) = packet {
            packet.verdict = after_lookup::<F>(cx, device, packet, answer);
        }
    });
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

/// Groups and broadcasts are decided by the interface, not by a route; martians not at all.
#[inline(always)]
fn before_lookup<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (F::src(packet).into(), F::dst(packet).into())
        && let Err(reason) = check_martians_v4(device, src, dst, packet.destination)
    {
        return Verdict::Drop(reason);
    }
    if matches!(packet.destination, Destination::Transit | Destination::Own) {
        Verdict::Undecided
    } else {
        to_many::<F>(cx, device, packet)
    }
}

#[inline(never)]
fn to_many<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    match packet.destination {
        Destination::Multicast => group::<F>(cx, device, packet),
        _ => broadcast::<F>(cx, device, packet),
    }
}

fn group<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
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
        Err(reason) if !src_is_unspecified => Verdict::Drop(reason),
        _ => Verdict::Deliver,
    }
}

fn broadcast<F: Family>(cx: &Context<'_>, device: &InDevice<'_>, packet: &Packet) -> Verdict {
    cx.core.count(Counter::IpExtInBcastPkts);
    cx.core
        .add(Counter::IpExtInBcastOctets, packet.total_len() as u64);
    let src_is_unspecified = F::src(packet) == F::UNSPECIFIED;
    match validate_source::<F>(cx, device, packet) {
        Err(reason) if !src_is_unspecified => Verdict::Drop(reason),
        _ => Verdict::Deliver,
    }
}

#[inline(always)]
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
