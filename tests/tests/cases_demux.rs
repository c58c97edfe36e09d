//! Early demux: what it may take, when a cached route is stale, and that nobody can tell it from the
//! ordinary lookup by what comes of a packet.

use std::net::SocketAddr;

use forebay_stack::core::Core;
use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::fib::{RouteKind, RuleAction, TableId};
use forebay_stack::packet::PacketQueue;
use forebay_stack::socket::SocketId;
use forebay_stack::wire::{icmp, protocol};
use forebay_tests::{Net, Rig, both, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

/// A connected socket that has received already, so that its input route is cached if early demux
/// is on.
fn warm_flow(rig: &mut Rig, net: &Net) -> SocketId {
    let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
    for _ in 0..2 {
        from_peer(rig, net);
    }
    assert_eq!(rig.drain(socket).len(), 2);
    assert_eq!(hits(rig) > 0, is_early_demux_on(rig), "the flow is warm");
    socket
}

fn from_peer(rig: &mut Rig, net: &Net) {
    rig.deliver(net.peer(PEER_PORT), net.own(OWN_PORT), b"flow");
}

fn hits(rig: &Rig) -> u64 {
    rig.count(Counter::ForebayEarlyDemuxHits)
}

fn is_early_demux_on(rig: &Rig) -> bool {
    let value = rig.stack.sysctl("net.ipv4.ip_early_demux").expect("a knob");
    value != "0"
}

/// Linux differs with early demux on: the packet finds its socket, its route says forward, and it
/// is lost between the two. Here transit is told apart before any socket is looked for.
#[test]
fn a_flow_whose_address_is_gone_is_forwarded() {
    everywhere(|mut rig, net| {
        let tun0 = rig.ifindex("tun0");
        let second = net.pick("10.0.0.9", "fd00::9").parse().expect("an address");
        rig.stack
            .add_address(tun0, second, net.prefix_len)
            .expect("a new address");
        let socket = warm_flow(&mut rig, &net);

        rig.stack
            .remove_address(tun0, net.own, net.prefix_len)
            .expect("an address that is there");
        from_peer(&mut rig, &net);
        assert!(!rig.has_received(socket));
        let output: Vec<_> = rig
            .output("tun0")
            .iter()
            .map(|p| packets::parse(p))
            .collect();
        let forwarded = output.last().expect("the packet");
        assert_eq!((forwarded.dst, forwarded.ttl), (net.own, 63));
        if net.is_v4() {
            // IPv6 has no link-local address here to say it from (RFC 4861 section 8.2).
            assert_eq!(output[0].icmp(), (icmp::v4::REDIRECT, 1));
        }
        assert_eq!(output.len(), net.pick(2, 1));

        rig.stack
            .add_address(tun0, net.own, net.prefix_len)
            .expect("a new address");
        from_peer(&mut rig, &net);
        assert!(rig.has_received(socket));
    });
}

/// RFC 3704 on a flow that changes its way in. Linux's connected UDP sockets let it pass while their
/// cached route is warm; a cached route is good for its interface only.
#[test]
fn rp_filter_holds_for_warm_flows_too() {
    #[derive(Debug, PartialEq)]
    enum Before {
        Cold,
        WarmOnTun0,
        WarmOnTun1,
        UdpOff,
    }
    for before in [
        Before::Cold,
        Before::WarmOnTun0,
        Before::WarmOnTun1,
        Before::UdpOff,
    ] {
        both(|mut rig| {
            let net = Net::V4;
            let (from, to) = (net.peer(PEER_PORT), net.own(OWN_PORT));
            let socket = match before {
                Before::Cold => rig.bind_and_connect(to, from),
                _ => warm_flow(&mut rig, &net),
            };
            if before == Before::UdpOff {
                rig.set("net.ipv4.udp_early_demux", 0);
            }
            if before == Before::WarmOnTun1 {
                for _ in 0..2 {
                    rig.deliver_by("tun1", from, to, b"any way in will do");
                }
                assert_eq!(rig.drain(socket).len(), 2);
            }
            rig.set("net.ipv4.conf.tun1.rp_filter", 1);
            rig.deliver_by("tun1", from, to, b"a wrong way in");
            assert!(!rig.has_received(socket), "{before:?}");
            assert_eq!(rig.drops(), [(DropReason::IpRpfilter, 1)], "{before:?}");
            rig.deliver(from, to, b"the right way in");
            assert!(rig.has_received(socket), "{before:?}");
        });
    }
}

#[test]
fn without_rp_filter_a_flow_may_come_by_any_interface() {
    everywhere(|mut rig, net| {
        let socket = warm_flow(&mut rig, &net);
        for (interface, expected) in [("tun1", 2), ("tun0", 2), ("tun1", 2)] {
            let iif = rig.ifindex(interface);
            for _ in 0..expected {
                rig.deliver_by(interface, net.peer(PEER_PORT), net.own(OWN_PORT), b"either");
            }
            for _ in 0..expected {
                let datagram = rig.recv(socket).expect("no error").expect("a datagram");
                assert_eq!(datagram.iif, iif);
            }
        }
    });
}

#[test]
fn the_most_specific_socket_gets_the_datagram_and_transit_none() {
    everywhere(|mut rig, net| {
        let connected = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let specific = rig.bind(net.own(OWN_PORT));
        let wildcard = rig.bind(net.any(OWN_PORT));
        // Twice: cold and warm.
        for _ in 0..2 {
            let cases = [
                (net.peer(PEER_PORT), net.own(OWN_PORT), Some(connected)),
                (net.peer(PEER_PORT + 1), net.own(OWN_PORT), Some(specific)),
                (
                    SocketAddr::new(net.other, PEER_PORT),
                    net.own(OWN_PORT),
                    Some(specific),
                ),
                (
                    net.peer(PEER_PORT),
                    SocketAddr::new(net.own1, OWN_PORT),
                    Some(wildcard),
                ),
                (
                    net.peer(PEER_PORT),
                    SocketAddr::new(net.peer1, OWN_PORT),
                    None,
                ),
            ];
            for (from, to, taker) in cases {
                rig.deliver(from, to, b"whose?");
                for socket in [connected, specific, wildcard] {
                    let expected = usize::from(taker == Some(socket));
                    assert_eq!(rig.drain(socket).len(), expected, "{from} to {to}");
                }
                let forwarded = rig.output("tun1");
                assert_eq!(
                    forwarded.len(),
                    usize::from(taker.is_none()),
                    "{from} to {to}"
                );
            }
        }
        assert_eq!(hits(&rig), u64::from(is_early_demux_on(&rig)));
        assert!(rig.drops().is_empty());
    });
}

#[test]
fn a_change_of_routing_is_in_force_for_the_next_packet_of_a_warm_flow() {
    everywhere(|mut rig, net| {
        let socket = warm_flow(&mut rig, &net);
        let expect = |rig: &mut Rig, delivered: bool, what: &str| {
            from_peer(rig, &net);
            assert_eq!(rig.has_received(socket), delivered, "{what}");
            assert!(rig.output("tun1").is_empty(), "{what}");
            rig.output("tun0");
        };
        let tun0 = rig.ifindex("tun0");

        rig.stack
            .remove_address(tun0, net.own, net.prefix_len)
            .expect("an address that is there");
        expect(&mut rig, false, "the address is gone");
        rig.stack
            .add_address(tun0, net.own, net.prefix_len)
            .expect("a new address");
        expect(&mut rig, true, "the address is back");

        // A host whose packets are refused before table local is asked.
        rig.add_rule_from(100, net.peer, RuleAction::Blackhole);
        expect(&mut rig, true, "table local comes first");
        rig.add_rule(200, net.own, RuleAction::Lookup(TableId::LOCAL));
        rig.delete_rule(0, net.own);
        expect(&mut rig, false, "the rule comes first");
        rig.delete_rule(100, net.own);
        expect(&mut rig, true, "the rule is gone");
        rig.add_rule(0, net.own, RuleAction::Lookup(TableId::LOCAL));
        rig.delete_rule(200, net.own);
        expect(&mut rig, true, "the rules are as they were");

        // The address is still the interface's, but its route is another.
        let host = (net.own, net.pick(32, 128));
        rig.delete_route(TableId::LOCAL, host);
        rig.add_route(TableId::LOCAL, RouteKind::Blackhole, host, None);
        expect(&mut rig, false, "a blackhole");
        rig.delete_route(TableId::LOCAL, host);
        rig.add_route(TableId::LOCAL, RouteKind::Local, host, Some("tun0"));
        expect(&mut rig, true, "local again");
        if !net.is_v4() {
            rig.set("net.ipv6.conf.tun0.disable_ipv6", 1);
            expect(&mut rig, false, "no IPv6");
            rig.set("net.ipv6.conf.tun0.disable_ipv6", 0);
            expect(&mut rig, true, "IPv6 again");
        }
    });
}

#[test]
fn with_rp_filter_a_change_of_the_way_back_is_in_force_for_the_next_packet() {
    both(|mut rig| {
        let net = Net::V4;
        rig.set("net.ipv4.conf.tun0.rp_filter", 1);
        let socket = warm_flow(&mut rig, &net);
        rig.route_dev(net.peer, "tun1");
        from_peer(&mut rig, &net);
        assert!(!rig.has_received(socket));
        assert_eq!(rig.drops(), [(DropReason::IpRpfilter, 1)]);
        rig.delete_route(TableId::MAIN, (net.peer, 32));
        from_peer(&mut rig, &net);
        assert!(rig.has_received(socket));
    });
}

/// A full routing feed must not make every flow look its route up again all the time.
#[test]
fn routes_to_elsewhere_leave_cached_routes_valid() {
    everywhere(|mut rig, net| {
        warm_flow(&mut rig, &net);
        let stale = rig.count(Counter::ForebayEarlyDemuxStale);
        let before = hits(&rig);
        for _ in 0..10 {
            rig.route_dev(net.nowhere, "tun1");
            from_peer(&mut rig, &net);
            rig.delete_route(TableId::MAIN, (net.nowhere, net.pick(32, 128)));
            from_peer(&mut rig, &net);
        }
        assert_eq!(rig.count(Counter::ForebayEarlyDemuxStale), stale);
        let expected = if is_early_demux_on(&rig) { 20 } else { 0 };
        assert_eq!(hits(&rig) - before, expected);
    });
}

/// The bytes of a later fragment are no header: where ports would be, they may say anything.
#[test]
fn fragments_wait_for_the_whole_datagram_before_any_socket_is_looked_for() {
    everywhere(|mut rig, net| {
        let socket = warm_flow(&mut rig, &net);
        let victim = rig.bind_and_connect(net.own(OWN_PORT + 1), net.peer(PEER_PORT + 1));
        let before = hits(&rig);
        let mut payload = vec![7; 3_000];
        // What the second and the third fragment begin with: another flow's ports, a good length.
        for at in [1_000 - 8, 2_000 - 8] {
            payload[at..at + 2].copy_from_slice(&(PEER_PORT + 1).to_be_bytes());
            payload[at + 2..at + 4].copy_from_slice(&(OWN_PORT + 1).to_be_bytes());
            payload[at + 4..at + 8].copy_from_slice(&[3, 232, 0, 0]);
        }
        let packet = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &payload);
        for (id, reversed) in [(1, false), (2, true)] {
            let mut pieces = packets::fragments(&packet, id, 1_000);
            if reversed {
                pieces.reverse();
            }
            rig.inject_all("tun0", pieces);
            assert_eq!(rig.drain(socket), [payload.clone()]);
        }
        assert!(!rig.has_received(victim));
        assert_eq!(hits(&rig), before, "early demux has taken no fragment");
        assert!(rig.is_silent() && rig.drops().is_empty());
    });
}

/// What a datagram was cut into says nothing of what it is: fragments that came while one socket had
/// the flow go to the one that has it when the last arrives.
#[test]
fn a_reassembled_datagram_goes_to_who_has_the_flow_by_then() {
    everywhere(|mut rig, net| {
        let first = warm_flow(&mut rig, &net);
        let packet = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &[1; 100]);
        let pieces = packets::fragments(&packet, 1, 64);
        rig.inject("tun0", &pieces[0]);
        rig.close(first);
        let second = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        rig.inject("tun0", &pieces[1]);
        assert_eq!(rig.drain(second), [vec![1; 100]]);
    });
}

#[test]
fn a_cut_off_transport_header_is_dropped_in_silence() {
    everywhere(|mut rig, net| {
        let open = warm_flow(&mut rig, &net);
        let ports = |to: u16| [PEER_PORT.to_be_bytes(), to.to_be_bytes()].concat();
        let tcp = |to: u16, data_offset: u8| {
            let rest = [
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                data_offset << 4,
                2,
                0,
                9,
                0,
                0,
                0,
                0,
            ];
            let mut segment = [&ports(to)[..], &rest].concat();
            let sum = packets::transport_checksum(net.peer, net.own, protocol::TCP, &segment);
            segment[16..18].copy_from_slice(&sum.to_be_bytes());
            (protocol::TCP, segment)
        };
        let mut drops = 0;
        for to in [OWN_PORT, OWN_PORT + 1] {
            let cases = [
                (protocol::UDP, vec![]),
                (protocol::UDP, ports(to)[..2].to_vec()),
                (protocol::UDP, ports(to)),
                (protocol::UDP, [&ports(to)[..], &[0, 8, 0]].concat()),
                (protocol::TCP, vec![]),
                (protocol::TCP, ports(to)),
                (protocol::TCP, tcp(to, 5).1[..19].to_vec()),
                tcp(to, 0),
                tcp(to, 4),
                tcp(to, 15),
            ];
            for (protocol, header) in cases {
                rig.inject("tun0", packets::ip(net.peer, net.own, protocol, &header));
                drops += 1;
                assert_eq!(rig.counters().dropped_total(), drops, "{header:02x?}");
                assert!(rig.is_silent(), "{header:02x?}");
            }
        }
        assert!(!rig.has_received(open));
    });
}

/// IPv6 obeys the knobs of IPv4, and each stack has its own.
#[test]
fn the_knobs_gate_early_demux_of_their_own_stack() {
    for net in [Net::V4, Net::V6] {
        let (mut rig, mut neighbour) = (Rig::new(), Rig::new());
        warm_flow(&mut rig, &net);
        warm_flow(&mut neighbour, &net);
        let is_taken = |rig: &mut Rig| {
            // A knob makes cached routes stale, so the first packet only warms its flow.
            from_peer(rig, &net);
            let before = hits(rig);
            from_peer(rig, &net);
            hits(rig) > before
        };
        let cases = [
            ("net.ipv4.udp_early_demux", 0, false),
            ("net.ipv4.udp_early_demux", 2, true),
            ("net.ipv4.tcp_early_demux", 0, true),
            ("net.ipv4.ip_early_demux", 0, false),
            ("net.ipv4.udp_early_demux", 255, false),
            ("net.ipv4.ip_early_demux", 1, true),
        ];
        for (knob, value, expected) in cases {
            rig.set(knob, value);
            assert_eq!(is_taken(&mut rig), expected, "{knob} = {value}");
            assert!(is_taken(&mut neighbour), "{knob} = {value}");
        }
        for value in ["-1", "256"] {
            for knob in ["ip", "udp", "tcp"] {
                let name = format!("net.ipv4.{knob}_early_demux");
                assert!(
                    rig.stack.set_sysctl(&name, value).is_err(),
                    "{name} = {value}"
                );
            }
        }
        assert!(is_taken(&mut rig));
    }
}

/// Sockets of IPv6 that talk IPv4 are found by packets of IPv4.
#[test]
fn early_demux_finds_the_dual_stack_sockets_flows() {
    both(|mut rig| {
        let peer: SocketAddr = "[::ffff:10.0.0.2]:3000".parse().expect("an address");
        let own: SocketAddr = "[::ffff:10.0.0.1]:2000".parse().expect("an address");
        let socket = rig.bind_and_connect(Net::V6.any(OWN_PORT), peer);
        for _ in 0..3 {
            from_peer(&mut rig, &Net::V4);
        }
        for _ in 0..3 {
            let datagram = rig.recv(socket).expect("no error").expect("a datagram");
            assert_eq!((datagram.from, datagram.local), (peer, own));
        }
        assert_eq!(hits(&rig), if is_early_demux_on(&rig) { 2 } else { 0 });
    });
}

/// Sockets come and go on one core while packets of their flows come in on another.
#[test]
fn a_closed_sockets_flow_falls_back_to_the_port() {
    everywhere(|mut rig, net| {
        let connected = warm_flow(&mut rig, &net);
        let wildcard = rig.bind(net.any(OWN_PORT));
        rig.close(connected);
        from_peer(&mut rig, &net);
        assert!(rig.has_received(wildcard));
        rig.close(wildcard);
        from_peer(&mut rig, &net);
        assert_eq!(rig.dropped(DropReason::UdpNoSocket), 1);

        // A batch that was read before: another core must not get at a closed socket either.
        let socket = warm_flow(&mut rig, &net);
        let mut core: Core = rig.stack.core();
        let mut queue = PacketQueue::new();
        let bytes = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, b"late");
        queue.push(rig.packet(&bytes));
        rig.close(socket);
        let tun0 = rig.ifindex("tun0");
        rig.stack.receive(&mut core, rig.now(), tun0, &mut queue);
        assert_eq!(rig.dropped(DropReason::UdpNoSocket), 2);
    });
}
