//! Which sources a packet may come from.

use core::net::Ipv4Addr;

use crate::core::Context;
use crate::drop::DropReason;
use crate::family::{Family, V4};
use crate::fib::{ReversePath, RpFilter};
use crate::interface::LOOPBACK;
use crate::packet::{Destination, Packet};
use crate::sysctl::ConfKnob;

use super::route::query_of;

/// IPv4 addresses that no packet may carry, whatever the routes say (RFC 1122 section 3.2.1.3,
/// RFC 1812 section 5.3.7; Linux: the head of `ip_route_input_slow`).
pub(crate) fn check_martians_v4(cx: &Context<'_>, packet: &Packet) -> Result<(), DropReason> {
    let (src, dst) = (V4::src(packet), V4::dst(packet));
    let is_zeronet = |addr: Ipv4Addr| addr.octets()[0] == 0;
    if src.is_multicast() || src.is_broadcast() {
        return Err(DropReason::IpInvalidSource);
    }
    if packet.destination == Destination::LimitedBroadcast {
        // A host that has no address yet asks for one from 0.0.0.0.
        return Ok(());
    }
    if packet.destination == Destination::Multicast {
        return match () {
            () if src.is_loopback() => Err(DropReason::IpLocalnet),
            // Groups of the link only (224.0.0.0/24): IGMP of a host that has no address yet.
            () if is_zeronet(src) && dst.octets()[..3] != [224, 0, 0] => {
                Err(DropReason::IpInvalidSource)
            }
            () => Ok(()),
        };
    }
    if is_zeronet(src) {
        return Err(DropReason::IpInvalidSource);
    }
    if is_zeronet(dst) {
        return Err(DropReason::IpInvalidDest);
    }
    let loopback_allowed =
        packet.iif == LOOPBACK || cx.view.sysctls.conf_or(packet.iif, ConfKnob::RouteLocalnet);
    if (src.is_loopback() || dst.is_loopback()) && !loopback_allowed {
        return Err(DropReason::IpLocalnet);
    }
    Ok(())
}

/// Checks a source against addresses and routes (Linux's `fib_validate_source`).
///
/// An address of our own comes from nobody else. Linux asks for a local route instead; a local
/// 0.0.0.0/0, as transparent proxies have it, would then shut everybody out.
pub(crate) fn validate_source<F: Family>(
    cx: &Context<'_>,
    packet: &Packet,
) -> Result<(), DropReason> {
    let src = F::src(packet);
    if F::checks_own_source(cx.view, packet.iif)
        && F::routes(cx.view).is_own(src)
        && cx.view.interfaces.has_address(src.into())
    {
        return Err(DropReason::IpLocalSource);
    }
    let mode = match F::rp_filter(cx.view, packet.iif) {
        0 => return Ok(()),
        1 => RpFilter::Strict,
        _ => RpFilter::Loose,
    };
    // Rules see the answer as one of our own: Linux passes the outgoing interface, if there is one.
    match F::routes(cx.view).reverse_path(&query_of::<F>(packet), 0, mode) {
        ReversePath::Valid => Ok(()),
        _ => Err(DropReason::IpRpfilter),
    }
}
