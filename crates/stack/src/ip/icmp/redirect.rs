//! Telling a neighbour of a better first hop (RFC 1812 section 5.2.7.2, RFC 4861 section 8.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;

use super::quote::Headers;
use super::{count, error, fill_checksum, limit};
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::packet::Packet;
use crate::transmit;
use crate::wire::IcmpHeader;
use crate::wire::icmp::{v4, v6};

/// Neighbour discovery messages must not have passed a router (RFC 4861 section 8.1).
const HOP_LIMIT: u8 = 255;
/// Option type "redirected header" (RFC 4861 section 4.6.3).
const REDIRECTED_HEADER: u8 = 4;
/// Bytes in front of the quote in that option, and the unit that options are measured in.
const OPTION_UNIT: usize = 8;

/// Tells the sender of `about`, which is about to leave by the interface that it came in by, that
/// `gateway` is a better first hop; the destination itself if that is on the link. The caller has
/// made sure that all three are neighbours.
///
/// IPv6 redirects come from a link-local address (RFC 4861 section 4.5): an interface without one
/// sends none. Neither is a router told of that is not known by a link-local address.
pub(crate) fn send_redirect<F: Family>(cx: &mut Context<'_>, about: &Packet, gateway: F::Addr) {
    let headers = Headers::parse(F::VERSION, about.data());
    if !error::may_be_answered::<F>(cx, about, headers.as_ref(), false) {
        return;
    }
    match gateway.into() {
        IpAddr::V4(gateway) => redirect_v4(cx, about, gateway),
        IpAddr::V6(gateway) => redirect_v6(cx, about, gateway),
    }
}

fn redirect_v4(cx: &mut Context<'_>, about: &Packet, gateway: Ipv4Addr) {
    if !limit::may_redirect::<V4>(cx, V4::src(about)) {
        return;
    }
    let Ok(route) = error::route_back::<V4>(cx, about) else {
        return;
    };
    let header = IcmpHeader::new(v4::REDIRECT, v4::REDIRECT_HOST, gateway.to_bits());
    error::send_quoting::<V4>(cx, &header, about, &route);
}

fn redirect_v6(cx: &mut Context<'_>, about: &Packet, target: Ipv6Addr) {
    let (peer, dst) = (V6::src(about), V6::dst(about));
    let Some(src) = link_local_address(cx, about.iif) else {
        return;
    };
    if target != dst && !target.is_unicast_link_local() {
        return;
    }
    if !limit::may_redirect::<V6>(cx, peer) {
        return;
    }
    let Ok(route) = transmit::route_output::<V6>(cx, peer, Some(src), Some(about.iif)) else {
        return;
    };
    let room = error::room_for_message::<V6>(route.mtu).saturating_sub(MessageV6::LEN);
    let quoted = about.total_len().min(room) / OPTION_UNIT * OPTION_UNIT;
    let head = MessageV6::new(target, dst, quoted);
    let Some(mut message) = error::build(cx, &head.bytes, about, quoted) else {
        return count::out_error::<V6>(cx);
    };
    fill_checksum::<V6>(&mut message, route.src, route.dst);
    error::send::<V6>(cx, message, v6::REDIRECT, &route, 0, Some(HOP_LIMIT));
}

fn link_local_address(cx: &Context<'_>, ifindex: u32) -> Option<Ipv6Addr> {
    let interface = cx.view.interfaces.get(ifindex)?;
    interface.addresses.iter().find_map(|own| match own.addr {
        IpAddr::V6(addr) if addr.is_unicast_link_local() => Some(addr),
        _ => None,
    })
}

/// A redirect up to the quote: header, target, destination, and the head of an option.
struct MessageV6 {
    bytes: [u8; Self::LEN],
}

impl MessageV6 {
    const LEN: usize = IcmpHeader::LEN + 16 + 16 + OPTION_UNIT;

    /// `quoted` is the length of the quote in bytes, a multiple of 8.
    fn new(target: Ipv6Addr, dst: Ipv6Addr, quoted: usize) -> Self {
        let units = u8::try_from((OPTION_UNIT + quoted) / OPTION_UNIT).unwrap_or(u8::MAX);
        let option = [REDIRECTED_HEADER, units, 0, 0, 0, 0, 0, 0];
        let mut bytes = [0; Self::LEN];
        let header = IcmpHeader::new(v6::REDIRECT, 0, 0);
        let parts = [header.as_bytes(), &target.octets(), &dst.octets(), &option];
        for (byte, part) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *byte = *part;
        }
        Self { bytes }
    }
}
