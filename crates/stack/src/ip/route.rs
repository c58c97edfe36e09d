//! Input routing: where a packet that validation let through is to go.

use core::net::IpAddr;

use super::icmp::IcmpError;
use super::options;
use super::source::{check_martians_v4, validate_source};
use crate::core::Context;
use crate::counters::Counter;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::{LookupError, NextHop, Query, Resolved, RouteKind};
use crate::packet::{Destination, IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::sysctl::ConfKnob;
use crate::wire::protocol;

/// Decides for every packet of the batch that is undecided yet.
pub(crate) fn route(cx: &mut Context<'_>, batch: &mut [Packet]) {
    route_family::<V4>(cx, batch);
    route_family::<V6>(cx, batch);
    check_options(batch);
}

/// The packets of one family: first what needs no route, then all lookups at once, then decisions.
fn route_family<F: Family>(cx: &mut Context<'_>, batch: &mut [Packet]) {
    if undecided::<F>(batch).next().is_none() {
        return;
    }
    let nobody = Query {
        dst: F::UNSPECIFIED,
        src: F::UNSPECIFIED,
        iif: 0,
        own: None,
    };
    let mut queries = [nobody; MAX_BATCH];
    let mut answers = [Err(LookupError::NoRoute); MAX_BATCH];
    let mut asked = 0;
    for packet in undecided::<F>(batch) {
        packet.verdict = before_lookup::<F>(cx, packet);
        if packet.verdict == Verdict::Undecided
            && let Some(query) = queries.get_mut(asked)
        {
            *query = query_of::<F>(packet);
            asked += 1;
        }
    }
    if asked == 0 {
        return;
    }
    F::routes(cx.view).lookup_many(&queries[..asked], &mut answers[..asked]);
    for (packet, answer) in undecided::<F>(batch).zip(&answers[..asked]) {
        packet.verdict = after_lookup::<F>(cx, packet, answer);
        if packet.verdict != Verdict::Deliver {
            // Rules can send the packets of a flow elsewhere whose socket early demux has found.
            packet.socket = None;
        }
    }
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

fn undecided<F: Family>(batch: &mut [Packet]) -> impl Iterator<Item = &mut Packet> {
    let is_undecided =
        |packet: &&mut Packet| packet.version == F::VERSION && packet.verdict == Verdict::Undecided;
    batch.iter_mut().filter(is_undecided)
}

/// Groups and broadcasts are decided by the interface, not by a route; martians not at all.
fn before_lookup<F: Family>(cx: &mut Context<'_>, packet: &Packet) -> Verdict {
    if F::VERSION == IpVersion::V4
        && let Err(reason) = check_martians_v4(cx, packet)
    {
        return Verdict::Drop(reason);
    }
    match packet.destination {
        Destination::Multicast => group::<F>(cx, packet),
        Destination::LimitedBroadcast => broadcast::<F>(cx, packet),
        Destination::Own | Destination::Transit => Verdict::Undecided,
    }
}

fn group<F: Family>(cx: &Context<'_>, packet: &Packet) -> Verdict {
    let group: IpAddr = F::dst(packet).into();
    let interface = cx.view.interfaces.get(packet.iif);
    let is_router = F::forwards(cx.view, packet.iif);
    // Those who ask about a group are not the sources that anybody has asked for.
    let source = match packet.protocol {
        protocol::IGMP | protocol::ICMPV6 | protocol::HOP_BY_HOP => None,
        _ => Some(F::src(packet).into()),
    };
    let is_joined = || {
        let place = (packet.iif, group);
        cx.stack.multicast.is_joined(cx.view.guard, place, source)
    };
    if !interface.is_some_and(|interface| interface.is_member(group, is_router)) && !is_joined() {
        return Verdict::Drop(DropReason::MulticastNotJoined);
    }
    let src_is_unspecified = F::src(packet) == F::UNSPECIFIED;
    match validate_source::<F>(cx, packet) {
        Err(reason) if !src_is_unspecified => Verdict::Drop(reason),
        _ => Verdict::Deliver,
    }
}

fn broadcast<F: Family>(cx: &Context<'_>, packet: &Packet) -> Verdict {
    cx.core.count(Counter::IpExtInBcastPkts);
    cx.core
        .add(Counter::IpExtInBcastOctets, packet.total_len() as u64);
    let src_is_unspecified = F::src(packet) == F::UNSPECIFIED;
    match validate_source::<F>(cx, packet) {
        Err(reason) if !src_is_unspecified => Verdict::Drop(reason),
        _ => Verdict::Deliver,
    }
}

fn after_lookup<F: Family>(
    cx: &mut Context<'_>,
    packet: &mut Packet,
    answer: &Result<Resolved<'_, F::Addr>, LookupError>,
) -> Verdict {
    match answer {
        Ok(Resolved { index, next_hop }) => {
            packet.route = Some(*index);
            by_kind::<F>(cx, packet, next_hop)
        }
        Err(LookupError::Blackhole) => Verdict::Drop(DropReason::Blackhole),
        // Who does not forward owes nobody an explanation (Linux's `ip_error`).
        Err(_) if !F::forwards(cx.view, packet.iif) => Verdict::Drop(DropReason::IpNotForwarding),
        Err(LookupError::NoRoute) => {
            Verdict::Reject(DropReason::IpInNoRoutes, IcmpError::NetUnreachable)
        }
        Err(LookupError::Unreachable) => {
            Verdict::Reject(DropReason::Unreachable, IcmpError::HostUnreachable)
        }
        Err(LookupError::Prohibit) => Verdict::Reject(DropReason::Prohibit, IcmpError::Prohibited),
    }
}

fn by_kind<F: Family>(cx: &Context<'_>, packet: &Packet, next_hop: &NextHop<F::Addr>) -> Verdict {
    let forwards = F::forwards(cx.view, packet.iif);
    match next_hop.kind {
        RouteKind::Local => match validate_source::<F>(cx, packet) {
            Ok(()) => Verdict::Deliver,
            Err(reason) => Verdict::Drop(reason),
        },
        RouteKind::Broadcast if next_hop.oif == packet.iif => broadcast::<F>(cx, packet),
        // A directed broadcast to another of our subnets (RFC 2644).
        RouteKind::Broadcast => {
            match forwards && cx.view.sysctls.conf_and(packet.iif, ConfKnob::BcForwarding) {
                true => to_forward::<F>(cx, packet),
                false => broadcast::<F>(cx, packet),
            }
        }
        RouteKind::Unicast if forwards => to_forward::<F>(cx, packet),
        RouteKind::Unicast => Verdict::Drop(DropReason::IpNotForwarding),
        // Routes that refuse come as errors of the lookup.
        _ => Verdict::Drop(DropReason::NotForwardable),
    }
}

fn to_forward<F: Family>(cx: &Context<'_>, packet: &Packet) -> Verdict {
    match validate_source::<F>(cx, packet) {
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
        match options::check(packet) {
            Verdict::Undecided => {}
            verdict => packet.verdict = verdict,
        }
    }
}
