//! Which sources a packet may come from.

use core::net::Ipv4Addr;

use crate::core::Context;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::Family;
use crate::fib::{ReversePath, RpFilter};
use crate::packet::{Destination, Packet};

use super::route::query_of;

/// IPv4 addresses that no packet may carry, whatever the routes say (RFC 1122 section 3.2.1.3,
/// RFC 1812 section 5.3.7; Linux: the head of `ip_route_input_slow`).
#[inline(always)]
pub(crate) fn check_martians_v4(
    device: &InDevice<'_>,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    destination: Destination,
) -> Result<(), DropReason> {
    // Neither is in 0.0.0.0/8, of which one address is special, in 127.0.0.0/8, or beyond the unicast
    // addresses.
    let (src0, dst0) = (src.octets()[0], dst.octets()[0]);
    let highest = src0.wrapping_sub(1).max(dst0.wrapping_sub(1));
    if highest < 223 && src0 != 127 && dst0 != 127 {
        return Ok(());
    }
    check_special(device, src, dst, destination)
}

/// The first octet is 0, 127, or a group's or above.
#[inline(never)]
fn check_special(
    device: &InDevice<'_>,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    destination: Destination,
) -> Result<(), DropReason> {
    if src.is_multicast() || src.is_broadcast() {
        return Err(DropReason::IpInvalidSource);
    }
    if destination == Destination::LimitedBroadcast {
        // A host that has no address yet asks for one from 0.0.0.0.
        return Ok(());
    }
    if destination == Destination::Multicast {
        return match () {
            () if src.is_loopback() => Err(DropReason::IpLocalnet),
            // Groups of the link only (224.0.0.0/24): IGMP of a host that has no address yet.
            () if src.is_unspecified() && dst.octets()[..3] != [224, 0, 0] => {
                Err(DropReason::IpInvalidSource)
            }
            () => Ok(()),
        };
    }
    if src.is_unspecified() {
        return Err(DropReason::IpInvalidSource);
    }
    if dst.is_unspecified() {
        return Err(DropReason::IpInvalidDest);
    }
    if (src.is_loopback() || dst.is_loopback()) && !device.routes_localnet {
        return Err(DropReason::IpLocalnet);
    }
    Ok(())
}

/// Checks a source against addresses and routes (Linux's `fib_validate_source`).
///
/// An address of our own comes from nobody else. Linux asks for a local route instead; a local
/// 0.0.0.0/0, as transparent proxies have it, would then shut everybody out.
#[inline(always)]
pub(crate) fn validate_source<F: Family>(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    packet: &Packet,
) -> Result<(), DropReason> {
    let conf = F::in_conf(device);
    if conf.checks_own_source && is_own_source::<F>(cx, F::src(packet)) {
        return Err(DropReason::IpLocalSource);
    }
    match conf.rp_filter {
        RpFilter::Off => Ok(()),
        mode => check_reverse_path::<F>(cx, packet, mode),
    }
}

/// Each address has a local route, so the routes are asked first: they know most strangers at a
/// glance.
#[inline(always)]
fn is_own_source<F: Family>(cx: &Context<'_>, src: F::Addr) -> bool {
    F::routes(cx.view).may_be_own_host(src) && cx.view.interfaces.has_address(src.into())
}

#[inline(never)]
fn check_reverse_path<F: Family>(
    cx: &Context<'_>,
    packet: &Packet,
    mode: RpFilter,
) -> Result<(), DropReason> {
    // Rules see the answer as one of our own: Linux passes the outgoing interface, if there is one.
    match F::routes(cx.view).reverse_path(&query_of::<F>(packet), 0, mode) {
        ReversePath::Valid => Ok(()),
        _ => Err(DropReason::IpRpfilter),
    }
}
