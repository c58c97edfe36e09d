//! ICMP errors that the stack sends: types and codes, when to keep silent, quotes, sources, limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::fib::{Prefix, Route, RouteKind, TableId};
use forebay_stack::wire::icmp::{v4, v6};
use forebay_stack::wire::{ipv4, protocol};
use forebay_tests::packets::{self, Parsed, parse, with_fragment_field, with_ttl};
use forebay_tests::{Rig, V4, V6};

/// A protocol that nobody speaks (RFC 3692).
const UNKNOWN: u8 = 253;

/// A rig whose limits are out of the way.
fn unlimited() -> Rig {
    let rig = Rig::new();
    rig.set("net.ipv4.icmp_ratelimit", 0);
    rig.set("net.ipv6.icmp.ratelimit", 0);
    rig.set("net.ipv4.icmp_msgs_per_sec", 1_000_000_000);
    rig.set("net.ipv4.icmp_msgs_burst", 1_000_000_000);
    rig
}

/// What comes back out of tun0 for a packet that came in there.
fn answer(rig: &mut Rig, packet: &[u8]) -> Option<Parsed> {
    rig.inject("tun0", packet);
    let mut output = rig.output("tun0");
    assert!(output.len() <= 1, "one answer at most: {output:02x?}");
    output.pop().map(|packet| parse(&packet))
}

fn is_answered(rig: &mut Rig, packet: &[u8]) -> bool {
    answer(rig, packet).is_some()
}

#[test]
fn time_exceeded_tells_a_traceroute_where_it_is() {
    let mut rig = unlimited();
    let cases: [(Vec<u8>, IpAddr, (u8, u8)); 2] = [
        (
            packets::udp(V4::PEER, V4::PEER1, 1, 2, &[7; 30]),
            V4::OWN.into(),
            (v4::TIME_EXCEEDED, 0),
        ),
        (
            packets::udp(V6::PEER, V6::PEER1, 1, 2, &[7; 30]),
            V6::OWN.into(),
            (v6::TIME_EXCEEDED, 0),
        ),
    ];
    for (packet, from, kind) in cases {
        for ttl in [0, 1] {
            let probe = with_ttl(packet.clone(), ttl);
            let error = answer(&mut rig, &probe).expect("time exceeded");
            assert_eq!((error.src, error.icmp(), error.ttl), (from, kind, 64));
            assert_eq!(error.icmp_rest(), 0);
            assert_eq!(
                error.payload[8..],
                probe,
                "the whole packet fits, as it came"
            );
        }
        rig.inject("tun0", with_ttl(packet, 2));
        assert_eq!(rig.output("tun0").len(), 0);
        assert_eq!(rig.output("tun1").len(), 1);
    }
    assert_eq!(rig.count(Counter::IcmpOutTimeExcds), 2);
    assert_eq!(rig.count(Counter::Icmp6OutTimeExcds), 2);
    assert_eq!(rig.count(Counter::IcmpOutMsgs), 2);
    assert_eq!(rig.count(Counter::Icmp6OutMsgs), 2);
}

#[test]
fn no_error_about_an_icmp_error() {
    let mut rig = unlimited();
    for kind in 0..=u8::MAX {
        let quote = [0x45; 28];
        let packet = packets::icmp(V4::PEER, V4::PEER1, kind, 0, 0, &quote);
        let is_informational = matches!(kind, 0 | 8 | 13..=18);
        assert_eq!(
            is_answered(&mut rig, &with_ttl(packet, 1)),
            is_informational,
            "type {kind}"
        );

        let packet = packets::icmp(V6::PEER, V6::PEER1, kind, 0, 0, &quote);
        let is_informational = kind >= 128 && kind != v6::REDIRECT;
        assert_eq!(
            is_answered(&mut rig, &with_ttl(packet, 1)),
            is_informational,
            "type {kind}"
        );
    }
}

#[test]
fn an_icmpv6_error_behind_extension_headers_is_one_too() {
    let mut rig = unlimited();
    let padding = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let error = [v6::DEST_UNREACH, 0, 0, 0, 0, 0, 0, 0];
    let echo = [v6::ECHO, 0, 0, 0, 0, 0, 0, 0];
    let later_fragment = [protocol::ICMPV6, 0, 0, 8, 0, 0, 0, 1];
    let first_fragment = [protocol::ICMPV6, 0, 0, 1, 0, 0, 0, 1];
    let cases: [(u8, Vec<u8>, bool); 8] = [
        (
            protocol::DESTINATION_OPTIONS,
            [padding(58), error].concat(),
            false,
        ),
        (
            protocol::DESTINATION_OPTIONS,
            [padding(58), echo].concat(),
            true,
        ),
        (
            protocol::DESTINATION_OPTIONS,
            [padding(60), padding(58), error].concat(),
            false,
        ),
        // Without its type it may be an error.
        (protocol::DESTINATION_OPTIONS, padding(58).to_vec(), false),
        (protocol::FRAGMENT, [first_fragment, error].concat(), false),
        (protocol::FRAGMENT, [first_fragment, echo].concat(), true),
        // ICMPv6, unlike ICMP, answers later fragments.
        (protocol::FRAGMENT, [later_fragment, error].concat(), true),
        // The chain is cut: there is no ICMPv6 that could be an error.
        (
            protocol::DESTINATION_OPTIONS,
            vec![58, 9, 1, 4, 0, 0, 0, 0],
            true,
        ),
    ];
    for (next_header, payload, expected) in cases {
        let packet = with_ttl(packets::ipv6(V6::PEER, V6::PEER1, next_header, &payload), 1);
        assert_eq!(
            is_answered(&mut rig, &packet),
            expected,
            "{next_header} {payload:02x?}"
        );
    }
}

#[test]
fn no_error_about_a_later_ipv4_fragment() {
    let mut rig = unlimited();
    let packet = with_ttl(
        packets::ipv4(V4::PEER, V4::PEER1, protocol::UDP, &[0; 64]),
        1,
    );
    for (field, expected) in [(0, true), (0x2000, true), (0x2001, false), (0x0001, false)] {
        let fragment = with_fragment_field(packet.clone(), field);
        assert_eq!(is_answered(&mut rig, &fragment), expected, "{field:04x}");
    }
}

#[test]
fn no_error_to_or_about_a_crowd() {
    let mut rig = unlimited();
    let to = |src: Ipv4Addr, dst: Ipv4Addr| packets::ipv4(src, dst, UNKNOWN, &[0; 8]);
    let cases = [
        (to(V4::PEER, V4::OWN), true),
        (to(V4::PEER, V4::OWN1), true),
        (to(V4::PEER, Ipv4Addr::new(10, 0, 0, 255)), false),
        (to(V4::PEER, Ipv4Addr::BROADCAST), false),
        (to(V4::PEER, Ipv4Addr::new(224, 0, 0, 1)), false),
        (to(Ipv4Addr::UNSPECIFIED, V4::OWN), false),
        (to(Ipv4Addr::new(127, 0, 0, 1), V4::OWN), false),
        (to(Ipv4Addr::new(224, 0, 0, 9), V4::OWN), false),
        (to(Ipv4Addr::BROADCAST, V4::OWN), false),
    ];
    for (packet, expected) in cases {
        assert_eq!(is_answered(&mut rig, &packet), expected, "{packet:02x?}");
    }
    let to = |src: Ipv6Addr, dst: Ipv6Addr| packets::ipv6(src, dst, UNKNOWN, &[0; 8]);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let cases = [
        (to(V6::PEER, V6::OWN), true),
        (to(V6::PEER, V6::OWN1), true),
        (to(V6::PEER, all_nodes), false),
        (to(Ipv6Addr::UNSPECIFIED, V6::OWN), false),
        (to(Ipv6Addr::LOCALHOST, V6::OWN), false),
        (to(all_nodes, V6::OWN), false),
    ];
    for (packet, expected) in cases {
        assert_eq!(is_answered(&mut rig, &packet), expected, "{packet:02x?}");
    }
}

#[test]
fn an_unknown_protocol_is_answered_from_the_address_asked() {
    let mut rig = unlimited();
    let packet = packets::ipv4(V4::PEER, V4::OWN1, UNKNOWN, &[0; 8]);
    let error = answer(&mut rig, &packet).expect("protocol unreachable");
    assert_eq!(error.src, IpAddr::from(V4::OWN1));
    assert_eq!(error.icmp(), (v4::DEST_UNREACH, v4::UNREACH_PROTOCOL));

    let packet = packets::ipv6(V6::PEER, V6::OWN1, UNKNOWN, &[0; 8]);
    let error = answer(&mut rig, &packet).expect("parameter problem");
    assert_eq!(error.src, IpAddr::from(V6::OWN1));
    assert_eq!(error.icmp(), (v6::PARAMETER_PROBLEM, v6::PARAM_NEXT_HEADER));
    assert_eq!(error.icmp_rest(), 6);
}

#[test]
fn refusals_say_why() {
    let mut rig = unlimited();
    let host = Ipv4Addr::new(203, 0, 113, 1);
    let packet = packets::ipv4(V4::PEER, host, UNKNOWN, &[0; 8]);
    let error = answer(&mut rig, &packet).expect("net unreachable");
    assert_eq!(error.icmp(), (v4::DEST_UNREACH, v4::UNREACH_NET));
    let host6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let packet6 = packets::ipv6(V6::PEER, host6, UNKNOWN, &[0; 8]);
    let error = answer(&mut rig, &packet6).expect("no route");
    assert_eq!(error.icmp(), (v6::DEST_UNREACH, v6::UNREACH_NO_ROUTE));

    let cases = [
        (
            RouteKind::Unreachable,
            Some(v4::UNREACH_HOST),
            Some(v6::UNREACH_NO_ROUTE),
        ),
        (
            RouteKind::Prohibit,
            Some(v4::UNREACH_PROHIBITED),
            Some(v6::UNREACH_PROHIBITED),
        ),
        (RouteKind::Blackhole, None, None),
    ];
    for (kind, code, code6) in cases {
        let route = Route::new(kind, Prefix::host(host));
        rig.stack
            .fib4()
            .replace(TableId::MAIN, route)
            .expect("a route");
        let route = Route::new(kind, Prefix::host(host6));
        rig.stack
            .fib6()
            .replace(TableId::MAIN, route)
            .expect("a route");
        let error = answer(&mut rig, &packet).map(|error| error.icmp());
        assert_eq!(error, code.map(|code| (v4::DEST_UNREACH, code)), "{kind:?}");
        let error = answer(&mut rig, &packet6).map(|error| error.icmp());
        assert_eq!(
            error,
            code6.map(|code| (v6::DEST_UNREACH, code)),
            "{kind:?}"
        );
    }
}

#[test]
fn too_big_names_the_next_hops_mtu() {
    let mut rig = unlimited();
    let tun1 = rig.ifindex("tun1");
    rig.stack.set_mtu(tun1, 1_000).expect("an MTU");
    let packet = packets::ipv4(V4::PEER, V4::PEER1, UNKNOWN, &[0; 1_200]);
    let packet = with_fragment_field(packet, ipv4::FLAG_DF);
    let error = answer(&mut rig, &packet).expect("fragmentation needed");
    assert_eq!(error.icmp(), (v4::DEST_UNREACH, v4::UNREACH_FRAG_NEEDED));
    assert_eq!(error.icmp_rest(), 1_000);

    rig.stack.set_mtu(tun1, 1_300).expect("an MTU");
    let packet = packets::ipv6(V6::PEER, V6::PEER1, UNKNOWN, &[0; 1_400]);
    let error = answer(&mut rig, &packet).expect("packet too big");
    assert_eq!(error.icmp(), (v6::PACKET_TOO_BIG, 0));
    assert_eq!(error.icmp_rest(), 1_300);
}

#[test]
fn quotes_as_much_as_fits() {
    let mut rig = unlimited();
    let payload: Vec<u8> = (0..1_400_u16).map(|i| i.to_le_bytes()[0]).collect();
    let probe = with_ttl(packets::ipv4(V4::PEER, V4::PEER1, UNKNOWN, &payload), 1);
    let error = answer(&mut rig, &probe).expect("time exceeded");
    assert_eq!(error.payload.len() + 20, 576);
    assert!(probe.starts_with(&error.payload[8..]));

    let probe = with_ttl(packets::ipv6(V6::PEER, V6::PEER1, UNKNOWN, &payload), 1);
    let error = answer(&mut rig, &probe).expect("time exceeded");
    assert_eq!(error.payload.len() + 40, 1_280);
    assert!(probe.starts_with(&error.payload[8..]));

    rig.stack.set_mtu(rig.ifindex("tun0"), 300).expect("an MTU");
    let probe = with_ttl(packets::ipv4(V4::PEER, V4::PEER1, UNKNOWN, &payload), 1);
    let error = answer(&mut rig, &probe).expect("time exceeded");
    assert_eq!(error.payload.len() + 20, 300, "never in fragments");
}

#[test]
fn a_packet_in_several_buffers_is_quoted_across_them() {
    let mut rig = unlimited();
    let probe = with_ttl(packets::ipv6(V6::PEER, V6::PEER1, UNKNOWN, &[9; 1_400]), 1);
    let mut head = rig.packet(&probe[..50]);
    head.push_frag(rig.packet(&probe[50..63]));
    head.push_frag(rig.packet(&probe[63..]));
    let mut queue = forebay_stack::packet::PacketQueue::new();
    queue.push(head);
    rig.receive("tun0", &mut queue);
    let output = rig.output("tun0");
    let error = parse(output.first().expect("time exceeded"));
    assert!(probe.starts_with(&error.payload[8..]));
    assert_eq!(error.payload.len() + 40, 1_280);
}

#[test]
fn errors_take_precedence_and_keep_the_type_of_service() {
    let mut rig = unlimited();
    let tos_of = |rig: &mut Rig, mut probe: Vec<u8>, tos: u8| {
        probe[1] = tos;
        rig.inject("tun0", with_ttl(probe, 1));
        rig.output("tun0").pop().expect("time exceeded")[1]
    };
    for (tos, expected) in [(0, 0xc0), (0x10, 0xd0), (0xff, 0xdc), (0x03, 0xc0)] {
        let probe = packets::ipv4(V4::PEER, V4::PEER1, UNKNOWN, &[0; 8]);
        assert_eq!(tos_of(&mut rig, probe, tos), expected, "{tos:02x}");
    }
}

#[test]
fn a_router_answers_from_the_way_back_or_if_asked_from_the_way_in() {
    let mut rig = unlimited();
    let far = Ipv4Addr::new(192, 0, 2, 1);
    rig.route_dev(far.into(), "tun1");
    let probe = with_ttl(packets::ipv4(far, V4::PEER1, UNKNOWN, &[0; 8]), 1);
    for (use_inbound, expected) in [(0, V4::OWN1), (1, V4::OWN)] {
        rig.set("net.ipv4.icmp_errors_use_inbound_ifaddr", use_inbound);
        rig.inject("tun0", &probe);
        let error = parse(&rig.output("tun1").pop().expect("time exceeded"));
        assert_eq!(error.src, IpAddr::from(expected));
        assert_eq!(error.dst, IpAddr::from(far));
    }
}

#[test]
fn each_host_gets_six_errors_and_then_one_a_second() {
    let probes = [
        packets::ipv4(V4::PEER, V4::OWN, UNKNOWN, &[0; 8]),
        packets::ipv6(V6::PEER, V6::OWN, UNKNOWN, &[0; 8]),
    ];
    let counters = [
        Counter::IcmpOutRateLimitHost,
        Counter::Icmp6OutRateLimitHost,
    ];
    for (probe, counter) in probes.iter().zip(counters) {
        let mut rig = Rig::new();
        let answers = |rig: &mut Rig| (0..10).filter(|_| is_answered(rig, probe)).count();
        assert_eq!(answers(&mut rig), 6);
        assert_eq!(rig.count(counter), 4);
        rig.advance(Duration::from_secs(1));
        assert_eq!(answers(&mut rig), 1);
        let other = Ipv4Addr::new(10, 0, 0, 77);
        assert!(is_answered(
            &mut rig,
            &packets::ipv4(other, V4::OWN, UNKNOWN, &[0; 8])
        ));
    }
}

#[test]
fn the_mask_says_which_types_are_limited_and_too_big_never_is() {
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    rig.stack.set_mtu(tun1, 1_300).expect("an MTU");
    let big = packets::ipv4(V4::PEER, V4::PEER1, UNKNOWN, &[0; 1_400]);
    let big = with_fragment_field(big, ipv4::FLAG_DF);
    let big6 = packets::ipv6(V6::PEER, V6::PEER1, UNKNOWN, &[0; 1_400]);
    let probe = packets::ipv4(V4::PEER, V4::OWN, UNKNOWN, &[0; 8]);
    for packet in [&big, &big6] {
        assert!((0..20).all(|_| is_answered(&mut rig, packet)));
    }
    rig.set("net.ipv4.icmp_ratemask", 1 << v4::TIME_EXCEEDED);
    assert!((0..20).all(|_| is_answered(&mut rig, &probe)));
    rig.set("net.ipv4.icmp_ratemask", 1 << v4::ECHO_REPLY);
    let echo = packets::icmp(V4::PEER, V4::OWN, v4::ECHO, 0, 0, &[]);
    assert_eq!((0..20).filter(|_| is_answered(&mut rig, &echo)).count(), 6);
}

#[test]
fn all_hosts_together_have_a_limit() {
    let mut rig = Rig::new();
    rig.set("net.ipv4.icmp_msgs_per_sec", 100);
    rig.set("net.ipv4.icmp_msgs_burst", 20);
    let probe = |i: u32| {
        let src = Ipv4Addr::from_bits(u32::from(V4::PEER) + i);
        packets::ipv4(src, V4::OWN, UNKNOWN, &[0; 8])
    };
    let answers = (0..100)
        .filter(|i| is_answered(&mut rig, &probe(*i)))
        .count();
    assert!((18..=20).contains(&answers), "{answers} answers");
    assert_eq!(
        rig.count(Counter::IcmpOutRateLimitGlobal),
        100 - answers as u64
    );
    assert_eq!(rig.count(Counter::IcmpOutRateLimitHost), 0);
}

#[test]
fn an_empty_pool_costs_the_error_and_nothing_else() {
    let mut rig = unlimited();
    let probe = packets::ipv4(V4::PEER, V4::OWN, UNKNOWN, &[0; 8]);
    for _ in 0..20_000 {
        assert!(is_answered(&mut rig, &probe));
    }
    assert_eq!(rig.buffers_in_use(), 0);
}
