//! Redirects to neighbours that could have taken a shorter way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::fib::{Prefix, Route, RouteKind, TableId};
use forebay_stack::wire::icmp::{v4, v6};
use forebay_stack::wire::protocol;
use forebay_tests::packets::{self, Parsed, parse};
use forebay_tests::{Rig, V4, V6};

const FAR4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 3);

/// What comes out of tun0 for a packet that came in there: a redirect perhaps, and the packet.
fn redirect_and_packet(rig: &mut Rig, packet: &[u8]) -> (Option<Parsed>, Vec<u8>) {
    rig.inject("tun0", packet);
    let mut output = rig.output("tun0");
    let forwarded = output.pop().expect("the packet goes on");
    assert!(output.len() <= 1, "{output:02x?}");
    (output.pop().map(|redirect| parse(&redirect)), forwarded)
}

fn rig_v4() -> Rig {
    let rig = Rig::new();
    let route = Route::new(RouteKind::Unicast, Prefix::host(FAR4)).via(GATEWAY4);
    rig.stack
        .fib4()
        .add(TableId::MAIN, route)
        .expect("a new route");
    rig
}

fn rig_v6(with_link_local: bool) -> Rig {
    let rig = Rig::new();
    let tun0 = rig.ifindex("tun0");
    if with_link_local {
        rig.stack
            .add_address(tun0, LINK_LOCAL.into(), 64)
            .expect("a new address");
    }
    let mut route = Route::new(RouteKind::Unicast, Prefix::host(FAR6))
        .via(GATEWAY6)
        .dev(tun0);
    route.onlink = true;
    rig.stack
        .fib6()
        .add(TableId::MAIN, route)
        .expect("a new route");
    rig
}

#[test]
fn a_neighbour_hears_of_the_other_router() {
    let mut rig = rig_v4();
    let packet = packets::udp(V4::PEER, FAR4, 1, 2, b"long way");
    let (redirect, forwarded) = redirect_and_packet(&mut rig, &packet);
    let redirect = redirect.expect("a redirect");
    assert_eq!(
        (redirect.src, redirect.dst),
        (V4::OWN.into(), V4::PEER.into())
    );
    assert_eq!(redirect.icmp(), (v4::REDIRECT, v4::REDIRECT_HOST));
    assert_eq!(redirect.icmp_rest(), GATEWAY4.to_bits());
    assert_eq!(redirect.payload[8..], packet);
    assert_eq!(parse(&forwarded).ttl, 63);
    assert_eq!(rig.count(Counter::IcmpOutRedirects), 1);
}

#[test]
fn a_neighbour_hears_that_the_destination_is_one_too() {
    let mut rig = Rig::new();
    let neighbour = Ipv4Addr::new(10, 0, 0, 9);
    let packet = packets::udp(V4::PEER, neighbour, 1, 2, b"next door");
    let (redirect, _) = redirect_and_packet(&mut rig, &packet);
    assert_eq!(
        redirect.expect("a redirect").icmp_rest(),
        neighbour.to_bits()
    );
}

#[test]
fn no_redirect_to_strangers_about_errors_or_if_switched_off() {
    let mut rig = rig_v4();
    let stranger = Ipv4Addr::new(192, 0, 2, 7);
    rig.route_dev(stranger.into(), "tun0");
    let packets = [
        packets::udp(stranger, FAR4, 1, 2, b""),
        packets::icmp(V4::PEER, FAR4, v4::DEST_UNREACH, 3, 0, &[0x45; 28]),
    ];
    for packet in packets {
        assert_eq!(redirect_and_packet(&mut rig, &packet).0, None);
    }
    rig.set("net.ipv4.conf.all.send_redirects", 0);
    rig.set("net.ipv4.conf.tun0.send_redirects", 0);
    let packet = packets::udp(V4::PEER, FAR4, 1, 2, b"");
    assert_eq!(redirect_and_packet(&mut rig, &packet).0, None);
}

#[test]
fn who_does_not_listen_is_told_less_and_less() {
    let mut rig = rig_v4();
    let packet = packets::udp(V4::PEER, FAR4, 1, 2, b"");
    let redirects = |rig: &mut Rig| {
        (0..20)
            .filter(|_| redirect_and_packet(rig, &packet).0.is_some())
            .count()
    };
    assert_eq!(redirects(&mut rig), 6);
    rig.advance(Duration::from_secs(1));
    assert_eq!(redirects(&mut rig), 1);
    // Other messages have buckets of their own.
    rig.inject("tun0", packets::ipv4(V4::PEER, V4::OWN, 253, &[0; 8]));
    assert_eq!(rig.output("tun0").len(), 1);
}

#[test]
fn ipv6_redirects_come_from_the_link_and_carry_the_packet() {
    let mut rig = rig_v6(true);
    let packet = packets::udp(V6::PEER, FAR6, 1, 2, &[3; 1_400]);
    let (redirect, _) = redirect_and_packet(&mut rig, &packet);
    let redirect = redirect.expect("a redirect");
    assert_eq!(
        (redirect.src, redirect.dst),
        (LINK_LOCAL.into(), V6::PEER.into())
    );
    assert_eq!((redirect.icmp(), redirect.ttl), ((v6::REDIRECT, 0), 255));
    let body = &redirect.payload[8..];
    assert_eq!(body[..16], GATEWAY6.octets());
    assert_eq!(body[16..32], FAR6.octets());
    let (option, quote) = body[32..].split_at(8);
    assert_eq!(option[0], 4, "redirected header");
    assert_eq!(usize::from(option[1]) * 8, 8 + quote.len());
    assert!(packet.starts_with(quote));
    assert!(redirect.payload.len() + 40 <= 1_280 && redirect.payload.len() + 40 > 1_272);
}

#[test]
fn ipv6_redirects_need_a_link_local_address() {
    let mut rig = rig_v6(false);
    let packet = packets::udp(V6::PEER, FAR6, 1, 2, b"");
    assert_eq!(redirect_and_packet(&mut rig, &packet).0, None);
    // The destination is a neighbour, but there is no address to say so from.
    let neighbour = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let packet = packets::udp(V6::PEER, neighbour, 1, 2, b"");
    assert_eq!(redirect_and_packet(&mut rig, &packet).0, None);
    let tun0 = rig.ifindex("tun0");
    rig.stack
        .add_address(tun0, LINK_LOCAL.into(), 64)
        .expect("a new address");
    let redirect = redirect_and_packet(&mut rig, &packet)
        .0
        .expect("a redirect");
    assert_eq!(redirect.payload[8..24], neighbour.octets());
    assert_eq!(redirect.protocol, protocol::ICMPV6);
    assert_eq!(redirect.src, IpAddr::from(LINK_LOCAL));
}
