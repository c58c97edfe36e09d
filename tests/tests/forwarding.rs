//! Forwarding, as a neighbour on either side sees it.

use std::net::IpAddr;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::IpVersion;
use forebay_stack::transmit::SendError;
use forebay_stack::wire::{icmp, protocol};
use forebay_tests::{Rig, V4, V6, packets};

/// Both families' peers: sender behind tun0, receiver behind tun1.
fn pairs() -> [(IpAddr, IpAddr); 2] {
    [
        (V4::PEER.into(), V4::PEER1.into()),
        (V6::PEER.into(), V6::PEER1.into()),
    ]
}

#[test]
fn a_packet_leaves_one_hop_older_and_otherwise_the_same() {
    for (src, dst) in pairs() {
        let mut rig = Rig::new();
        let packet = packets::udp(src, dst, 1000, 2000, b"through");
        rig.inject("tun0", &packet);
        let output = rig.output("tun1");
        let [out] = &output[..] else {
            panic!("one packet: {output:?}, {:?}", rig.drops())
        };
        let (before, after) = (packets::parse(&packet), packets::parse(out));
        assert_eq!(after.ttl, before.ttl - 1);
        assert_eq!(
            (after.src, after.dst, &after.payload),
            (src, dst, &before.payload)
        );
        assert!(rig.output("tun0").is_empty());
    }
}

#[test]
fn the_last_hop_is_told_to_the_sender() {
    for (src, dst) in pairs() {
        for ttl in [0, 1] {
            let mut rig = Rig::new();
            rig.inject(
                "tun0",
                packets::with_ttl(packets::udp(src, dst, 1000, 2000, b"late"), ttl),
            );
            assert!(rig.output("tun1").is_empty());
            let answer = packets::parse(&rig.output("tun0")[0]);
            let expected = if src.is_ipv4() {
                (icmp::v4::TIME_EXCEEDED, 0)
            } else {
                (icmp::v6::TIME_EXCEEDED, 0)
            };
            assert_eq!((answer.icmp(), answer.dst), (expected, src));
            assert_eq!(rig.drops(), [(DropReason::TtlExceeded, 1)]);
        }
    }
}

#[test]
fn ip_forward_off_stops_the_next_packet_in_silence() {
    for (src, dst) in pairs() {
        let mut rig = Rig::new();
        rig.set("net.ipv4.ip_forward", 0);
        rig.set("net.ipv6.conf.all.forwarding", 0);
        rig.inject("tun0", packets::udp(src, dst, 1000, 2000, b""));
        assert!(rig.output("tun1").is_empty() && rig.output("tun0").is_empty());
        assert_eq!(rig.drops(), [(DropReason::IpNotForwarding, 1)]);
    }
}

#[test]
fn no_route_is_told_to_the_sender() {
    let cases = [
        (
            V4::PEER.into(),
            "192.0.2.1",
            (icmp::v4::DEST_UNREACH, icmp::v4::UNREACH_NET),
        ),
        (
            V6::PEER.into(),
            "2001:db8::1",
            (icmp::v6::DEST_UNREACH, icmp::v6::UNREACH_NO_ROUTE),
        ),
    ];
    for (src, dst, expected) in cases {
        let mut rig = Rig::new();
        let dst: IpAddr = dst.parse().expect("an address");
        let src: IpAddr = src;
        rig.inject("tun0", packets::udp(src, dst, 1000, 2000, b""));
        assert_eq!(packets::parse(&rig.output("tun0")[0]).icmp(), expected);
        assert_eq!(rig.drops(), [(DropReason::IpInNoRoutes, 1)]);
    }
}

#[test]
fn echo_is_answered_from_the_address_that_was_asked() {
    let cases: [(IpAddr, IpAddr, u8, u8); 3] = [
        (
            V4::PEER.into(),
            V4::OWN.into(),
            icmp::v4::ECHO,
            icmp::v4::ECHO_REPLY,
        ),
        (
            V4::PEER.into(),
            V4::OWN1.into(),
            icmp::v4::ECHO,
            icmp::v4::ECHO_REPLY,
        ),
        (
            V6::PEER.into(),
            V6::OWN.into(),
            icmp::v6::ECHO,
            icmp::v6::ECHO_REPLY,
        ),
    ];
    for (src, dst, request, reply) in cases {
        let mut rig = Rig::new();
        rig.inject(
            "tun0",
            packets::icmp(src, dst, request, 0, 0x1234_0001, b"payload"),
        );
        let answer = packets::parse(&rig.output("tun0")[0]);
        assert_eq!(
            (answer.src, answer.dst, answer.icmp()),
            (dst, src, (reply, 0))
        );
        assert_eq!(
            (answer.icmp_rest(), &answer.payload[8..]),
            (0x1234_0001, &b"payload"[..])
        );
        assert!(rig.drops().is_empty());
    }
}

#[test]
fn a_corrupt_header_is_neither_mended_nor_forwarded() {
    let mut rig = Rig::new();
    let mut packet = packets::udp(V4::PEER, V4::PEER1, 1, 2, b"");
    packet[10] ^= 0xff;
    rig.inject("tun0", packet);
    assert_eq!(rig.drops(), [(DropReason::IpCsum, 1)]);
    assert_eq!(rig.count(Counter::IpInHdrErrors), 1);
    assert!(rig.output("tun1").is_empty());
}

#[test]
fn routes_decide_by_longest_prefix_and_kind() {
    use forebay_stack::fib::{Route, RouteKind, RouteMatch, TableId};
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    let add = |rig: &Rig, kind, prefix: &str, via: Option<&str>| {
        let mut route = Route::new(kind, prefix.parse().expect("a prefix"));
        if kind == RouteKind::Unicast {
            route = route.dev(tun1);
        }
        if let Some(via) = via {
            route = route.via(via.parse().expect("an address"));
        }
        rig.stack
            .fib4()
            .add(TableId::MAIN, route)
            .expect("a new route");
    };
    add(&rig, RouteKind::Unicast, "0.0.0.0/0", Some("10.1.0.2"));
    add(&rig, RouteKind::Prohibit, "192.0.2.0/24", None);
    add(&rig, RouteKind::Blackhole, "192.0.2.128/25", None);
    add(&rig, RouteKind::Unicast, "192.0.2.200/32", None);
    add(&rig, RouteKind::Unreachable, "192.0.2.201/32", None);
    let mut send = |dst: &str| {
        let dst: IpAddr = dst.parse().expect("an address");
        rig.inject("tun0", packets::udp(V4::PEER, dst, 1, 2, b""));
        let told = rig
            .output("tun0")
            .first()
            .map(|answer| packets::parse(answer).icmp());
        rig.advance(std::time::Duration::from_secs(10));
        (rig.output("tun1").len(), told)
    };
    assert_eq!(send("198.51.100.1"), (1, None));
    assert_eq!(send("192.0.2.1"), (0, Some((3, 13))));
    assert_eq!(send("192.0.2.129"), (0, None));
    assert_eq!(send("192.0.2.200"), (1, None));
    assert_eq!(send("192.0.2.201"), (0, Some((3, 1))));
    let blackhole = RouteMatch::prefix("192.0.2.128/25".parse().expect("a prefix"));
    rig.stack
        .fib4()
        .delete(TableId::MAIN, &blackhole)
        .expect("it is there");
    let dst: IpAddr = "192.0.2.129".parse().expect("an address");
    rig.inject("tun0", packets::udp(V4::PEER, dst, 1, 2, b""));
    assert_eq!(packets::parse(&rig.output("tun0")[0]).icmp(), (3, 13));
}

#[test]
fn a_packet_for_the_same_link_is_redirected_and_forwarded() {
    let mut rig = Rig::new();
    let neighbour: IpAddr = "10.0.0.7".parse().expect("an address");
    rig.inject("tun0", packets::udp(V4::PEER, neighbour, 1, 2, b""));
    let output = rig.output("tun0");
    assert_eq!(output.len(), 2);
    let redirect = packets::parse(&output[0]);
    assert_eq!(
        (redirect.protocol, redirect.icmp()),
        (protocol::ICMP, (icmp::v4::REDIRECT, 1))
    );
    assert_eq!(packets::parse(&output[1]).dst, neighbour);
}

#[test]
fn a_broadcast_of_our_own_needs_leave_and_is_counted() {
    let mut rig = Rig::new();
    let id = rig.stack.udp_open(IpVersion::V4).expect("a socket");
    let to = Some("10.0.0.255:9".parse().expect("an address and port"));
    let refused = rig.stack.udp_send(rig.now(), id, b"all", to);
    assert_eq!(refused, Err(SendError::AccessDenied.into()));
    rig.stack.udp_set_broadcast(id, true).expect("it is open");
    rig.stack
        .udp_send(rig.now(), id, b"all", to)
        .expect("allowed");
    assert_eq!(rig.output("tun0").len(), 1);
    assert_eq!(rig.count(Counter::IpExtOutBcastPkts), 1);
    assert_eq!(rig.count(Counter::IpExtOutBcastOctets), 20 + 8 + 3);
}
