//! Echo and timestamp requests, and what else comes in by ICMP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::wire::icmp::{v4, v6};
use forebay_stack::wire::{FragmentHeader, protocol};
use forebay_tests::packets::{self, Parsed, parse};
use forebay_tests::{Rig, V4, V6};
use zerocopy::IntoBytes;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn echo(src: impl Into<IpAddr>, dst: impl Into<IpAddr>, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    let kind = if src.is_ipv4() { v4::ECHO } else { v6::ECHO };
    packets::icmp(src, dst, kind, 0, 0x1234_5678, payload)
}

fn answer(rig: &mut Rig, packet: impl AsRef<[u8]>) -> Option<Parsed> {
    rig.inject("tun0", packet);
    let mut output = rig.output("tun0");
    assert!(output.len() <= 1, "one answer at most: {output:02x?}");
    output.pop().map(|packet| parse(&packet))
}

#[test]
fn echo_is_answered_from_the_address_asked() {
    let mut rig = Rig::new();
    let addresses: [(IpAddr, IpAddr); 4] = [
        (V4::PEER.into(), V4::OWN.into()),
        (V4::PEER.into(), V4::OWN1.into()),
        (V6::PEER.into(), V6::OWN.into()),
        (V6::PEER.into(), V6::OWN1.into()),
    ];
    for (peer, own) in addresses {
        for payload in [&b""[..], b"x", b"odd", b"even", &[0xff; 1_400]] {
            let reply = answer(&mut rig, echo(peer, own, payload)).expect("a reply");
            let kind = if peer.is_ipv4() {
                v4::ECHO_REPLY
            } else {
                v6::ECHO_REPLY
            };
            assert_eq!((reply.src, reply.dst, reply.icmp()), (own, peer, (kind, 0)));
            assert_eq!((reply.icmp_rest(), reply.ttl), (0x1234_5678, 64));
            assert_eq!(&reply.payload[8..], payload);
        }
    }
    for (counter, expected) in [
        (Counter::IcmpInMsgs, 10),
        (Counter::IcmpInEchos, 10),
        (Counter::IcmpOutMsgs, 10),
        (Counter::IcmpOutEchoReps, 10),
        (Counter::Icmp6InMsgs, 10),
        (Counter::Icmp6InEchos, 10),
        (Counter::Icmp6OutMsgs, 10),
        (Counter::Icmp6OutEchoReplies, 10),
    ] {
        assert_eq!(rig.count(counter), expected, "{}", counter.name());
    }
    assert_eq!(rig.drops(), []);
    assert_eq!(rig.buffers_in_use(), 0);
}

#[test]
fn the_reply_keeps_the_traffic_class() {
    let mut rig = Rig::new();
    let mut packet = echo(V4::PEER, V4::OWN, b"");
    packet[1] = 0xb8;
    forebay_stack::wire::ipv4::fill_checksum(&mut packet);
    rig.inject("tun0", packet);
    assert_eq!(rig.output("tun0")[0][1], 0xb8);

    let mut packet = echo(V6::PEER, V6::OWN, b"");
    packet[0..2].copy_from_slice(&[0x6b, 0x80]);
    rig.inject("tun0", packet);
    assert_eq!(rig.output("tun0")[0][0..2], [0x6b, 0x80]);
}

#[test]
fn a_request_in_several_buffers_is_turned_round_in_them() {
    let mut rig = Rig::new();
    rig.stack
        .set_mtu(rig.ifindex("tun0"), 9_000)
        .expect("an MTU");
    for packet in [
        echo(V4::PEER, V4::OWN, &[5; 5_001]),
        echo(V6::PEER, V6::OWN, &[5; 5_001]),
    ] {
        let reply = answer(&mut rig, &packet).expect("a reply");
        assert_eq!(
            reply.payload[4..],
            packet[packet.len() - reply.payload.len() + 4..]
        );
    }
    // The message's header itself lies across two buffers.
    let packet = echo(V4::PEER, V4::OWN, b"payload");
    let mut head = rig.packet(&packet[..23]);
    head.push_frag(rig.packet(&packet[23..]));
    let mut queue = forebay_stack::packet::PacketQueue::new();
    queue.push(head);
    rig.receive("tun0", &mut queue);
    assert_eq!(parse(&rig.output("tun0")[0]).payload[8..], *b"payload");
    assert_eq!(rig.buffers_in_use(), 0);
}

/// `ping -s 3000`: the request comes in fragments, the reply leaves in fragments.
#[test]
fn a_request_in_fragments_is_answered_in_fragments() {
    let mut rig = Rig::new();
    let payload: Vec<u8> = (0..3_000_u16).map(|i| i.to_le_bytes()[0]).collect();
    let request = echo(V4::PEER, V4::OWN, &payload);
    for order in [[0, 1, 2], [2, 0, 1]] {
        for at in order {
            rig.inject("tun0", fragment_v4(&request, at * 1_480));
        }
        let mut message = Vec::new();
        for piece in rig.output("tun0") {
            assert!(piece.len() <= 1_500);
            message.extend(parse(&piece).payload);
        }
        let reply = packets::ip(V4::OWN, V4::PEER, protocol::ICMP, &message);
        let reply = parse(&reply);
        assert_eq!(reply.icmp(), (v4::ECHO_REPLY, 0));
        assert_eq!(reply.payload[4..], request[24..]);
    }
    assert_eq!(rig.count(Counter::IcmpOutEchoReps), 2);

    let request = echo(V6::PEER, V6::OWN, &payload);
    for at in [0, 1_448, 2_896] {
        rig.inject("tun0", fragment_v6(&request, at));
    }
    let mut message = Vec::new();
    for piece in rig.output("tun0") {
        assert!(piece.len() <= 1_500);
        message.extend_from_slice(&parse(&piece).payload[8..]);
    }
    let reply = parse(&packets::ip(V6::OWN, V6::PEER, protocol::ICMPV6, &message));
    assert_eq!(reply.icmp(), (v6::ECHO_REPLY, 0));
    assert_eq!(reply.payload[4..], request[44..]);
    assert_eq!(rig.drops(), []);
    assert_eq!(rig.buffers_in_use(), 0);
}

/// The fragment of up to 1,480 bytes at an offset of the payload.
fn fragment_v4(packet: &[u8], at: usize) -> Vec<u8> {
    let payload = &packet[20..];
    let end = payload.len().min(at + 1_480);
    let mut fragment = packets::ipv4(V4::PEER, V4::OWN, protocol::ICMP, &payload[at..end]);
    let more = if end < payload.len() { 0x2000 } else { 0 };
    let field = more | u16::try_from(at / 8).expect("an offset");
    fragment[6..8].copy_from_slice(&field.to_be_bytes());
    forebay_stack::wire::ipv4::fill_checksum(&mut fragment);
    fragment
}

/// The fragment of up to 1,448 bytes at an offset of the payload.
fn fragment_v6(packet: &[u8], at: usize) -> Vec<u8> {
    let payload = &packet[40..];
    let end = payload.len().min(at + 1_448);
    let offset = u16::try_from(at).expect("an offset");
    let header = FragmentHeader::new(protocol::ICMPV6, offset, end < payload.len(), 7);
    let bytes = [header.as_bytes(), &payload[at..end]].concat();
    packets::ipv6(V6::PEER, V6::OWN, protocol::FRAGMENT, &bytes)
}

#[test]
fn a_neighbour_is_answered_on_its_link() {
    let mut rig = Rig::new();
    let own = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let peer = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    for interface in ["tun0", "tun1"] {
        let ifindex = rig.ifindex(interface);
        rig.stack
            .add_address(ifindex, own.into(), 64)
            .expect("a new address");
    }
    for interface in ["tun0", "tun1"] {
        for dst in [own, ALL_NODES] {
            rig.inject(interface, echo(peer, dst, b"who is there?"));
            let reply = parse(&rig.output(interface).pop().expect("a reply"));
            assert_eq!((reply.src, reply.dst), (own.into(), peer.into()));
        }
        rig.inject(interface, packets::ipv6(peer, own, 253, b"unknown"));
        let error = parse(&rig.output(interface).pop().expect("parameter problem"));
        assert_eq!((error.src, error.dst), (own.into(), peer.into()));
    }
}

#[test]
fn broadcast_echo_is_answered_only_if_asked_so() {
    let mut rig = Rig::new();
    let broadcasts = [
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
    ];
    for dst in broadcasts {
        assert_eq!(answer(&mut rig, echo(V4::PEER, dst, b"all")), None);
    }
    assert_eq!(rig.dropped(DropReason::IcmpBroadcast), 3);
    rig.set("net.ipv4.icmp_echo_ignore_broadcasts", 0);
    for dst in broadcasts {
        let reply = answer(&mut rig, echo(V4::PEER, dst, b"all")).expect("a reply");
        assert_eq!(reply.src, IpAddr::from(V4::OWN));
    }
    // Nothing but requests may come that way.
    let reply = packets::icmp(V4::PEER, broadcasts[0], v4::ECHO_REPLY, 0, 0, b"");
    assert_eq!(answer(&mut rig, reply), None);
    assert_eq!(rig.dropped(DropReason::IcmpBroadcast), 4);
}

#[test]
fn multicast_echo_over_ipv6_is_answered_from_a_unicast_address() {
    let mut rig = Rig::new();
    let reply = answer(&mut rig, echo(V6::PEER, ALL_NODES, b"all")).expect("a reply");
    assert_eq!((reply.src, reply.dst), (V6::OWN.into(), V6::PEER.into()));
    assert_eq!(reply.payload[8..], *b"all");
    rig.set("net.ipv6.icmp.echo_ignore_multicast", 1);
    assert_eq!(answer(&mut rig, echo(V6::PEER, ALL_NODES, b"all")), None);
    assert!(answer(&mut rig, echo(V6::PEER, V6::OWN, b"one")).is_some());
    assert_eq!(rig.dropped(DropReason::IcmpEchoIgnored), 1);
}

#[test]
fn echo_can_be_switched_off() {
    let mut rig = Rig::new();
    rig.set("net.ipv4.icmp_echo_ignore_all", 1);
    assert_eq!(answer(&mut rig, echo(V4::PEER, V4::OWN, b"")), None);
    assert!(answer(&mut rig, echo(V6::PEER, V6::OWN, b"")).is_some());
    rig.set("net.ipv6.icmp.echo_ignore_all", 1);
    assert_eq!(answer(&mut rig, echo(V6::PEER, V6::OWN, b"")), None);
    assert_eq!(rig.count(Counter::IcmpInErrors), 0);
}

#[test]
fn damaged_messages_are_silent() {
    let mut rig = Rig::new();
    for (packet, header_len, csum, errors) in [
        (
            echo(V4::PEER, V4::OWN, b"payload"),
            20,
            Counter::IcmpInCsumErrors,
            Counter::IcmpInErrors,
        ),
        (
            echo(V6::PEER, V6::OWN, b"payload"),
            40,
            Counter::Icmp6InCsumErrors,
            Counter::Icmp6InErrors,
        ),
    ] {
        for at in header_len..packet.len() {
            let mut damaged = packet.clone();
            damaged[at] ^= 0x10;
            assert_eq!(answer(&mut rig, damaged), None, "byte {at}");
        }
        let damaged = (packet.len() - header_len) as u64;
        assert_eq!((rig.count(csum), rig.count(errors)), (damaged, damaged));
    }
    // IPv6's covers the addresses.
    let mut packet = echo(V6::PEER, V6::OWN, b"payload");
    packet[23] ^= 1;
    assert_eq!(answer(&mut rig, packet), None);
}

#[test]
fn short_messages_are_silent() {
    let mut rig = Rig::new();
    for len in 0..8 {
        let bytes = [v4::ECHO, 0, 0xf7, 0xff, 0, 0, 0, 0];
        let packet = packets::ipv4(V4::PEER, V4::OWN, protocol::ICMP, &bytes[..len]);
        assert_eq!(answer(&mut rig, packet), None);
        let packet = packets::ipv6(V6::PEER, V6::OWN, protocol::ICMPV6, &bytes[..len]);
        assert_eq!(answer(&mut rig, packet), None);
    }
    assert_eq!(rig.dropped(DropReason::IcmpInvalid), 16);
    assert_eq!(rig.count(Counter::IcmpInErrors), 8);
    assert_eq!(rig.count(Counter::Icmp6InErrors), 8);
}

#[test]
fn a_timestamp_says_that_it_is_none_of_the_day() {
    let mut rig = Rig::new();
    let request = |payload: &[u8]| packets::icmp(V4::PEER, V4::OWN, v4::TIMESTAMP, 0, 77, payload);
    let reply = answer(
        &mut rig,
        request(&[1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9]),
    );
    let reply = reply.expect("a reply");
    assert_eq!(
        (reply.icmp(), reply.icmp_rest()),
        ((v4::TIMESTAMP_REPLY, 0), 77)
    );
    // The rig's clock stands at one second.
    let now = (1_u32 << 31 | 1_000).to_be_bytes();
    assert_eq!(reply.payload[8..], [[1, 2, 3, 4], now, now].concat());
    assert_eq!(answer(&mut rig, request(&[0; 11])), None);
    assert_eq!(rig.dropped(DropReason::IcmpInvalid), 1);
}

#[test]
fn what_asks_nothing_is_counted_and_ignored() {
    let mut rig = Rig::new();
    let cases = [
        (
            v4::REDIRECT,
            DropReason::IcmpIgnored,
            Counter::IcmpInRedirects,
        ),
        (
            v4::SOURCE_QUENCH,
            DropReason::IcmpIgnored,
            Counter::IcmpInSrcQuenchs,
        ),
        (
            v4::ECHO_REPLY,
            DropReason::IcmpIgnored,
            Counter::IcmpInEchoReps,
        ),
        (40, DropReason::IcmpUnknownType, Counter::IcmpInErrors),
    ];
    for (kind, reason, counter) in cases {
        let (dropped, count) = (rig.dropped(reason), rig.count(counter));
        let packet = packets::icmp(V4::PEER, V4::OWN, kind, 1, 0, &[0x45; 28]);
        assert_eq!(answer(&mut rig, packet), None, "type {kind}");
        assert_eq!(
            (rig.dropped(reason), rig.count(counter)),
            (dropped + 1, count + 1)
        );
    }
    let cases = [
        (
            v6::REDIRECT,
            DropReason::IcmpIgnored,
            Counter::Icmp6InRedirects,
        ),
        (
            v6::ROUTER_ADVERTISEMENT,
            DropReason::IcmpIgnored,
            Counter::Icmp6InRouterAdvertisements,
        ),
        (
            v6::NEIGHBOUR_SOLICITATION,
            DropReason::IcmpIgnored,
            Counter::Icmp6InNeighborSolicits,
        ),
        (
            v6::MLD2_REPORT,
            DropReason::ProtocolIgnored,
            Counter::Icmp6InMLDv2Reports,
        ),
        (
            v6::ECHO_REPLY,
            DropReason::IcmpIgnored,
            Counter::Icmp6InEchoReplies,
        ),
        (99, DropReason::IcmpIgnored, Counter::Icmp6InMsgs),
        (200, DropReason::IcmpIgnored, Counter::Icmp6InMsgs),
    ];
    for (kind, reason, counter) in cases {
        let (dropped, count) = (rig.dropped(reason), rig.count(counter));
        let packet = packets::icmp(V6::PEER, V6::OWN, kind, 0, 0, &[0x60; 48]);
        assert_eq!(answer(&mut rig, packet), None, "type {kind}");
        assert_eq!(
            (rig.dropped(reason), rig.count(counter)),
            (dropped + 1, count + 1)
        );
    }
}

#[test]
fn an_error_with_a_bad_quote_is_invalid_and_one_about_nobody_is_ignored() {
    let mut rig = Rig::new();
    let quote4 = packets::ipv4(V4::OWN, V4::PEER1, protocol::TCP, &[0; 20]);
    let quote6 = packets::ipv6(V6::OWN, V6::PEER1, protocol::TCP, &[0; 20]);
    for len in 0..=quote4.len() {
        let packet = packets::icmp(V4::PEER, V4::OWN, v4::DEST_UNREACH, 3, 0, &quote4[..len]);
        let reason = if len < 28 {
            DropReason::IcmpInvalid
        } else {
            DropReason::IcmpNoSocket
        };
        let before = rig.dropped(reason);
        assert_eq!(answer(&mut rig, packet), None);
        assert_eq!(rig.dropped(reason), before + 1, "{len} bytes");
    }
    for len in 0..=quote6.len() {
        let packet = packets::icmp(V6::PEER, V6::OWN, v6::DEST_UNREACH, 4, 0, &quote6[..len]);
        let reason = if len < 48 {
            DropReason::IcmpInvalid
        } else {
            DropReason::IcmpNoSocket
        };
        let before = rig.dropped(reason);
        assert_eq!(answer(&mut rig, packet), None);
        assert_eq!(rig.dropped(reason), before + 1, "{len} bytes");
    }
}
