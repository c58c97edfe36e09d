//! What kind of destination a received packet has, once it matters.

use crate::core::Context;
use crate::family::Family;
use crate::fib::{Query, RouteKind};
use crate::packet::{Destination, Packet};

/// How the packet came to this host: [`RouteKind::Local`] to an address of ours,
/// [`RouteKind::Broadcast`] or [`RouteKind::Multicast`] to many, [`RouteKind::Unicast`] to somebody
/// else.
///
/// A directed broadcast is told apart by its route. Where routing has not looked yet (an error found
/// by validation, a packet on the loopback), this looks.
pub(crate) fn kind<F: Family>(cx: &Context<'_>, packet: &Packet) -> RouteKind {
    match packet.destination {
        Destination::Transit => return RouteKind::Unicast,
        Destination::Multicast => return RouteKind::Multicast,
        Destination::LimitedBroadcast => return RouteKind::Broadcast,
        Destination::Own => {}
    }
    let routes = F::routes(cx.view);
    if let Some(next_hop) = packet.route.and_then(|route| routes.next_hop(route)) {
        return next_hop.kind;
    }
    let query = Query {
        dst: F::dst(packet),
        src: F::src(packet),
        iif: packet.iif,
        own: Some(true),
    };
    routes
        .lookup(&query)
        .map_or(RouteKind::Unicast, |found| found.next_hop.kind)
}

/// Whether the packet went to many hosts: a group or a broadcast address.
pub(crate) fn is_to_many<F: Family>(cx: &Context<'_>, packet: &Packet) -> bool {
    matches!(
        kind::<F>(cx, packet),
        RouteKind::Broadcast | RouteKind::Multicast
    )
}
