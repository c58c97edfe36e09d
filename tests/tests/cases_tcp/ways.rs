//! Segments on their way in: early demux, routes that change under a connection, fragments, headers
//! that are cut off.

use std::net::SocketAddr;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::fib::{RouteKind, RuleAction, TableId};
use forebay_stack::socket::SocketId;
use forebay_stack::tcp::{TcpOption, TcpState};
use forebay_stack::wire::protocol;
use forebay_tests::packets;

use crate::peer::{ACK, PSH, Peer, SYN, Segment};
use crate::world::{OWN_PORT, PEER_PORT, World, everywhere};

/// A connection by which segments have come, so that its input route is cached if early demux is on.
fn warm(world: &mut World) -> (Peer, SocketId) {
    let (mut peer, id) = world.connection();
    for _ in 0..3 {
        peer.say(&mut world.rig, b"warm");
    }
    assert_eq!(world.read_all(id), b"warmwarmwarm");
    let hits = world.rig.count(Counter::ForebayEarlyDemuxHits);
    assert_eq!(hits > 0, is_early(world), "the connection is warm");
    (peer, id)
}

fn is_early(world: &World) -> bool {
    let value = world.rig.stack.sysctl("net.ipv4.ip_early_demux");
    value.expect("a knob") != "0"
}

/// Whether the peer's next bytes arrive. If not, it will send them again.
#[track_caller]
fn expect(world: &mut World, peer: &mut Peer, id: SocketId, arrives: bool, what: &str) {
    let segment = peer.segment(0, ACK | PSH).with(b"next");
    peer.send(&mut world.rig, &segment);
    if arrives {
        peer.seq = peer.seq.wrapping_add(4);
        assert_eq!(world.read_all(id), b"next", "{what}");
    } else {
        assert_eq!(world.read(id), Ok(None), "{what}");
    }
    assert!(world.rig.output("tun1").is_empty(), "{what}");
    world.rig.output("tun0");
}

/// With early demux on, Linux loses such a segment between its socket and a route that says forward.
/// Here transit is told apart before any connection is looked for.
#[test]
fn segments_to_an_address_that_is_gone_are_forwarded() {
    everywhere(|world| {
        let tun0 = world.rig.ifindex("tun0");
        let net = world.net;
        let second = net.pick("10.0.0.9", "fd00::9").parse().expect("an address");
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let added = stack.add_address(tun0, second, net.prefix_len);
        added.expect("a new address");
        let (mut peer, id) = warm(world);
        let removed = stack.remove_address(tun0, net.own, net.prefix_len);
        removed.expect("an address that is there");
        let segment = peer.segment(0, ACK | PSH).with(b"next");
        peer.send(&mut world.rig, &segment);
        assert_eq!(world.read(id), Ok(None));
        let output = world.rig.output("tun0");
        let forwarded = packets::parse(output.last().expect("the segment"));
        assert_eq!((forwarded.dst, forwarded.ttl), (net.own, 63));
        let added = stack.add_address(tun0, net.own, net.prefix_len);
        added.expect("a new address");
        expect(world, &mut peer, id, true, "the address is back");
    });
}

#[test]
fn a_change_of_routing_is_in_force_for_the_next_segment() {
    everywhere(|world| {
        let (mut peer, id) = warm(world);
        let (net, tun0) = (world.net, world.rig.ifindex("tun0"));
        let stack = std::sync::Arc::clone(&world.rig.stack);

        let removed = stack.remove_address(tun0, net.own, net.prefix_len);
        removed.expect("an address that is there");
        expect(world, &mut peer, id, false, "the address is gone");
        let added = stack.add_address(tun0, net.own, net.prefix_len);
        added.expect("a new address");
        expect(world, &mut peer, id, true, "the address is back");

        // A host whose packets are refused before table local is asked.
        world
            .rig
            .add_rule_from(100, net.peer, RuleAction::Blackhole);
        expect(world, &mut peer, id, true, "table local comes first");
        world
            .rig
            .add_rule(200, net.own, RuleAction::Lookup(TableId::LOCAL));
        world.rig.delete_rule(0, net.own);
        expect(world, &mut peer, id, false, "the rule comes first");
        world.rig.delete_rule(100, net.own);
        expect(world, &mut peer, id, true, "the rule is gone");
        world
            .rig
            .add_rule(0, net.own, RuleAction::Lookup(TableId::LOCAL));
        world.rig.delete_rule(200, net.own);
        expect(world, &mut peer, id, true, "the rules are as they were");

        // The address is still the interface's, but its route is another.
        let host = (net.own, net.pick(32, 128));
        world.rig.delete_route(TableId::LOCAL, host);
        world
            .rig
            .add_route(TableId::LOCAL, RouteKind::Blackhole, host, None);
        expect(world, &mut peer, id, false, "a blackhole");
        world.rig.delete_route(TableId::LOCAL, host);
        world
            .rig
            .add_route(TableId::LOCAL, RouteKind::Local, host, Some("tun0"));
        expect(world, &mut peer, id, true, "local again");
    });
}

/// RFC 3704 on a connection whose segments come another way. As of UDP, a cached route is good for
/// its interface only.
#[test]
fn rp_filter_holds_for_warm_connections_too() {
    for warm_on_tun1 in [false, true] {
        everywhere(|world| {
            if !world.net.is_v4() {
                return;
            }
            let (mut peer, id) = warm(world);
            if warm_on_tun1 {
                peer.interface = "tun1";
                for _ in 0..2 {
                    peer.send(&mut world.rig, &peer.segment(0, ACK | PSH).with(b"x"));
                    peer.seq = peer.seq.wrapping_add(1);
                }
                assert_eq!(world.read_all(id), b"xx");
                world.rig.output("tun0");
            }
            world.rig.set("net.ipv4.conf.tun1.rp_filter", 1);
            peer.interface = "tun1";
            expect(world, &mut peer, id, false, "a wrong way in");
            assert_eq!(world.rig.dropped(DropReason::IpRpfilter), 1);
            peer.interface = "tun0";
            expect(world, &mut peer, id, true, "the right way in");
        });
    }
}

/// Bound to an interface, a connection takes only what comes by it (`SO_BINDTODEVICE`).
#[test]
fn a_connection_may_be_bound_to_an_interface() {
    everywhere(|world| {
        let tun0 = world.rig.ifindex("tun0");
        let listener = world.open();
        world.set(listener, TcpOption::Device(Some(tun0)));
        let own = world.net.own(OWN_PORT);
        world.rig.stack.tcp_bind(listener, own).expect("an address");
        world.rig.stack.tcp_listen(listener, 8).expect("a listener");
        let mut peer = world.peer();
        let id = peer.connect(&mut world.rig, listener);
        peer.say(&mut world.rig, b"mine");
        assert_eq!(world.read_all(id), b"mine");
        peer.interface = "tun1";
        peer.send(&mut world.rig, &peer.segment(0, ACK | PSH).with(b"not"));
        assert_eq!(world.read(id), Ok(None));
        world.rig.output("tun0");
        world.rig.output("tun1");
        let mut stranger = world.peer_at(PEER_PORT + 1);
        stranger.interface = "tun1";
        stranger.send(&mut world.rig, &stranger.syn());
        assert_eq!(world.states(), [TcpState::Established]);
    });
}

/// The bytes of a later fragment are no header, and what was put together is looked up afterwards.
#[test]
fn fragments_wait_for_the_whole_segment() {
    everywhere(|world| {
        let (mut peer, id) = warm(world);
        let mut payload = vec![7; 3_000];
        // What later fragments begin with: another connection's ports.
        for at in [1_000 - 20, 2_000 - 20] {
            payload[at..at + 2].copy_from_slice(&(PEER_PORT + 1).to_be_bytes());
            payload[at + 2..at + 4].copy_from_slice(&OWN_PORT.to_be_bytes());
        }
        let hits = world.rig.count(Counter::ForebayEarlyDemuxHits);
        for (n, reversed) in [(1, false), (2, true)] {
            let packet = peer
                .segment(0, ACK | PSH)
                .with(&payload)
                .packet(peer.addr, peer.host);
            let mut pieces = packets::fragments(&packet, n, 1_000);
            if reversed {
                pieces.reverse();
            }
            world.rig.inject_all("tun0", pieces);
            assert!(world.read_all(id) == payload);
            peer.seq = peer.seq.wrapping_add(3_000);
            let answers = peer.answers(&mut world.rig);
            assert_eq!(answers.last().expect("an acknowledgement").ack, peer.seq);
        }
        assert_eq!(world.rig.count(Counter::ForebayEarlyDemuxHits), hits);
    });
}

/// What has no whole header is no segment, and nobody hears of it.
#[test]
fn a_cut_off_header_is_dropped_in_silence() {
    everywhere(|world| {
        let (peer, id) = warm(world);
        world.listen(8);
        for (from, to) in [
            (PEER_PORT, OWN_PORT),
            (PEER_PORT + 1, OWN_PORT),
            (PEER_PORT, OWN_PORT + 1),
        ] {
            for flags in [SYN, ACK | PSH] {
                let (src, dst) = (world.net.peer(from), world.net.own(to));
                let whole = Segment {
                    seq: peer.seq,
                    ..Segment::new(0, peer.ack, flags)
                };
                let whole = whole.bytes(src, dst);
                let offset = |words: u8| {
                    let mut bytes = whole.clone();
                    bytes[12] = words << 4;
                    bytes[16..18].fill(0);
                    let sum =
                        packets::transport_checksum(src.ip(), dst.ip(), protocol::TCP, &bytes);
                    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
                    bytes
                };
                let mut bad_sum = whole.clone();
                bad_sum[16] ^= 1;
                for bytes in [
                    whole[..0].to_vec(),
                    whole[..2].to_vec(),
                    whole[..4].to_vec(),
                    whole[..13].to_vec(),
                    whole[..19].to_vec(),
                    offset(0),
                    offset(4),
                    offset(6),
                    offset(15),
                    bad_sum,
                ] {
                    let drops = world.rig.counters().dropped_total();
                    let packet = packets::ip(src.ip(), dst.ip(), protocol::TCP, &bytes);
                    world.rig.inject("tun0", packet);
                    assert!(world.rig.is_silent(), "{bytes:02x?}");
                    assert_eq!(world.rig.counters().dropped_total(), drops + 1);
                }
            }
        }
        assert_eq!(world.read(id), Ok(None));
        assert_eq!(world.states(), [TcpState::Established]);
    });
}

/// A batch of several connections, interleaved and each in runs.
#[test]
fn a_batch_is_sorted_by_connection() {
    everywhere(|world| {
        let listener = world.listen(16);
        let mut ends: Vec<_> = (0..8)
            .map(|n| {
                let mut peer = world.peer_at(PEER_PORT + n);
                let id = peer.connect(&mut world.rig, listener);
                (peer, id)
            })
            .collect();
        for run in [1, 2, 5] {
            let mut batch = Vec::new();
            for round in 0..6_u8 {
                for (n, (peer, _)) in ends.iter_mut().enumerate() {
                    for _ in 0..run {
                        let segment = peer.segment(0, ACK | PSH).with(&[round, n as u8]);
                        peer.seq = peer.seq.wrapping_add(2);
                        batch.push(segment.packet(peer.addr, peer.host));
                    }
                }
            }
            world.rig.inject_all("tun0", batch);
            world.rig.output("tun0");
            for (n, (_, id)) in ends.iter().enumerate() {
                let expected: Vec<u8> = (0..6_u8)
                    .flat_map(|round| [round, n as u8].repeat(run))
                    .collect();
                assert_eq!(world.read_all(*id), expected);
            }
        }
    });
}

/// The knob of TCP alone (IPv6 obeys it, too).
#[test]
fn the_knob_gates_early_demux() {
    everywhere(|world| {
        let (mut peer, id) = warm(world);
        let is_early = is_early(world);
        for (knob, value, expected) in [
            ("tcp_early_demux", 0, false),
            ("tcp_early_demux", 255, is_early),
            ("udp_early_demux", 0, is_early),
        ] {
            world.rig.set(&format!("net.ipv4.{knob}"), value);
            // A knob makes cached routes stale, so the first segment only warms its connection.
            expect(world, &mut peer, id, true, knob);
            let before = world.rig.count(Counter::ForebayEarlyDemuxHits);
            expect(world, &mut peer, id, true, knob);
            let hits = world.rig.count(Counter::ForebayEarlyDemuxHits) - before;
            assert_eq!(hits > 0, expected, "{knob} = {value}");
        }
    });
}

/// A port of another connection, of a listener, of nobody: each segment finds just its own.
#[test]
fn all_of_the_four_numbers_count() {
    everywhere(|world| {
        let (peer, id) = warm(world);
        let net = world.net;
        let others = [
            (net.peer(PEER_PORT + 1), net.own(OWN_PORT)),
            (net.peer(PEER_PORT), net.own(OWN_PORT + 1)),
            (SocketAddr::new(net.other, PEER_PORT), net.own(OWN_PORT)),
            (net.peer(PEER_PORT), SocketAddr::new(net.own1, OWN_PORT)),
        ];
        for (from, to) in others {
            let mut stranger = Peer {
                addr: from,
                host: to,
                ..peer.clone()
            };
            let segment = stranger.segment(0, ACK | PSH).with(b"not mine");
            let answer = world.answered(&mut stranger, &segment);
            assert_eq!(answer.seq, peer.ack);
            assert_eq!(world.read(id), Ok(None));
        }
    });
}
