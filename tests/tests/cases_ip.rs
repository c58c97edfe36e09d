//! The Internet Protocol's own rules: headers, options, TTL, sources and destinations that may not
//! be.

use std::net::IpAddr;
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::socket::SocketId;
use forebay_stack::wire::{icmp, ipv4, protocol};
use forebay_tests::{Net, Rig, V4, V6, both, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A datagram to the open port.
fn datagram(src: impl Into<IpAddr>, dst: impl Into<IpAddr>) -> Vec<u8> {
    packets::udp(src, dst, PEER_PORT, OWN_PORT, b"payload")
}

/// An unconnected socket on the open port, for everybody.
fn listen(rig: &Rig) -> SocketId {
    rig.bind(Net::V6.any(OWN_PORT))
}

/// RFC 1812 sections 4.2.2.9 and 5.3.1: who a packet is for does not ask how long it may still
/// travel; who sends it on does.
#[test]
fn ttl_counts_for_forwarding_and_not_for_delivery() {
    everywhere(|mut rig, net| {
        let connected = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        for ttl in [0, 1, 2, 255] {
            let packet = packets::with_ttl(datagram(net.peer, net.own), ttl);
            rig.inject_all("tun0", [&packet, &packet]);
            assert_eq!(rig.drain(connected).len(), 2, "TTL {ttl}");
        }
        for (ttl, forwarded) in [
            (0, None),
            (1, None),
            (2, Some(1)),
            (64, Some(63)),
            (255, Some(254)),
        ] {
            rig.inject(
                "tun0",
                packets::with_ttl(datagram(net.peer, net.peer1), ttl),
            );
            let out = rig
                .output("tun1")
                .first()
                .map(|packet| packets::parse(packet).ttl);
            assert_eq!(out, forwarded, "TTL {ttl}");
            let answer = rig
                .output("tun0")
                .first()
                .map(|packet| packets::parse(packet).icmp());
            let exceeded = net.pick((icmp::v4::TIME_EXCEEDED, 0), (icmp::v6::TIME_EXCEEDED, 0));
            assert_eq!(answer, forwarded.is_none().then_some(exceeded), "TTL {ttl}");
        }
    });
}

/// RFC 1624: the checksum is changed by what changed, so that damage done before stays visible; and
/// damage is seen before anything else is done.
#[test]
fn the_header_checksum_is_updated_for_every_ttl_and_damage_is_dropped() {
    both(|mut rig| {
        for ttl in 2..=255 {
            for id in [0_u16, 1, 0x7fff, 0xfffe, 0xffff] {
                let mut packet = datagram(V4::PEER, V4::PEER1);
                packet[4..6].copy_from_slice(&id.to_be_bytes());
                packet = packets::with_ttl(packet, ttl);
                rig.inject("tun0", &packet);
                let output = rig.output("tun1");
                assert_eq!(packets::parse(&output[0]).ttl, ttl - 1);
                // Both zeros are right for a sum; a header that is not all zeros sums to 0xffff.
                assert_ne!(output[0][10..12], [0xff, 0xff]);
            }
        }
        for byte in 0..20 {
            let mut packet = datagram(V4::PEER, V4::PEER1);
            packet[byte] ^= 0x10;
            rig.inject("tun0", packet);
            assert!(rig.is_silent(), "byte {byte}");
        }
    });
}

/// RFC 1122 section 3.2.1, RFC 1812 section 5.2.2; with and without options.
#[test]
fn a_header_that_contradicts_itself_is_dropped_in_silence() {
    both(|mut rig| {
        let socket = listen(&rig);
        let udp = packets::udp_datagram(Net::V4.peer, Net::V4.own, PEER_PORT, OWN_PORT, b"payload");
        let through = packets::udp_datagram(Net::V4.peer, Net::V4.peer1, PEER_PORT, OWN_PORT, b"");
        for options in [&[][..], &[1, 1, 1, 0], &[148, 4, 0, 0]] {
            for (dst, udp) in [(V4::OWN, &udp), (V4::PEER1, &through)] {
                let good = packets::ipv4_with_options(V4::PEER, dst, protocol::UDP, options, udp);
                let len = good.len() as u16;
                let header_len = usize::from(good[0] & 0xf) * 4;
                let change = |f: &dyn Fn(&mut Vec<u8>)| {
                    let mut packet = good.clone();
                    f(&mut packet);
                    if usize::from(packet[0] & 0xf) * 4 >= 20 && packet.len() > 60 {
                        ipv4::fill_checksum(&mut packet);
                    }
                    packet
                };
                let with_total_len = |total_len: u16| {
                    let mut packet = good.clone();
                    packet[2..4].copy_from_slice(&total_len.to_be_bytes());
                    ipv4::fill_checksum(&mut packet);
                    packet
                };
                let mut fifteen_words = good.clone();
                fifteen_words[0] = 0x4f;
                fifteen_words[10..12].fill(0);
                let bad: Vec<(&str, Vec<u8>)> = vec![
                    ("4 words of header", change(&|p| p[0] = 0x44)),
                    ("no header", change(&|p| p[0] = 0x40)),
                    ("a header longer than the packet", fifteen_words),
                    ("checksum", change(&|p| p[10] ^= 0x55)),
                    ("checksum 0", change(&|p| p[10..12].fill(0))),
                    ("checksum 0xffff", change(&|p| p[10..12].fill(0xff))),
                    ("longer than the packet", with_total_len(len + 1)),
                    ("the longest", with_total_len(65_535)),
                    (
                        "shorter than its header",
                        with_total_len(header_len as u16 - 1),
                    ),
                    ("length 19", with_total_len(19)),
                    ("length 0", with_total_len(0)),
                    ("cut in the header", good[..header_len - 1].to_vec()),
                ];
                for (what, packet) in bad {
                    let before = rig.counters().dropped_total();
                    rig.inject("tun0", packet);
                    assert_eq!(rig.counters().dropped_total(), before + 1, "{what}");
                    assert!(rig.is_silent(), "{what}");
                    assert!(!rig.has_received(socket), "{what}");
                }
                let reserved_flag = packets::with_fragment_field(good, 0x8000);
                rig.inject("tun0", reserved_flag);
                let went = (rig.has_received(socket), rig.output("tun1").len());
                let expected = if dst == V4::OWN {
                    (true, 0)
                } else {
                    (false, 1)
                };
                assert_eq!(went, expected, "the reserved flag");
            }
        }
    });
}

#[test]
fn an_ipv6_header_that_contradicts_itself_is_dropped_in_silence() {
    both(|mut rig| {
        let socket = listen(&rig);
        for dst in [V6::OWN, V6::PEER1] {
            let good = datagram(V6::PEER, dst);
            let with_len = |len: u16| {
                let mut packet = good.clone();
                packet[4..6].copy_from_slice(&len.to_be_bytes());
                packet
            };
            let len = (good.len() - 40) as u16;
            for packet in [with_len(len + 1), with_len(65_535), good[..39].to_vec()] {
                let before = rig.counters().dropped_total();
                rig.inject("tun0", packet);
                assert_eq!(rig.counters().dropped_total(), before + 1);
                assert!(rig.is_silent() && !rig.has_received(socket));
            }
            let mut padded = good.clone();
            padded.extend_from_slice(&[0; 18]);
            rig.inject("tun0", padded);
            match dst {
                V6::OWN => assert!(rig.has_received(socket)),
                _ => assert_eq!(
                    rig.output("tun1")[0].len(),
                    good.len(),
                    "padding stays behind"
                ),
            }
        }
    });
}

/// What no device should hand over: nothing, stubs, other versions, the longest there can be.
#[test]
fn frames_that_are_no_packets_are_dropped_and_counted() {
    both(|mut rig| {
        let mut frames: Vec<Vec<u8>> = vec![vec![], vec![0x45], vec![0x60, 0, 0]];
        for version in (0..16).filter(|version| ![4, 6].contains(version)) {
            let mut packet = datagram(V4::PEER, V4::OWN);
            packet[0] = version << 4 | 5;
            frames.push(packet);
        }
        frames.push(vec![0; 65_535]);
        frames.push(vec![0xff; 65_535]);
        let count = frames.len() as u64;
        rig.inject_all("tun0", frames);
        assert_eq!(rig.counters().dropped_total(), count);
        assert!(rig.is_silent());

        // Longer than the interface's MTU: whoever sent it, it is there.
        let socket = listen(&rig);
        for net in [Net::V4, Net::V6] {
            let payload = vec![7; 60_000];
            rig.inject(
                "tun0",
                packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &payload),
            );
            assert_eq!(rig.drain(socket), [payload]);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// RFC 791 section 3.1, RFC 1122 section 3.2.1.8. Linux answers what contradicts itself, passes over
/// what it does not know, and drops source routes.
#[test]
fn ipv4_options_are_passed_over_answered_or_dropped() {
    enum Fate {
        Goes,
        /// Parameter problem at this byte of the options.
        Problem(u32),
        Silence,
    }
    use Fate::{Goes, Problem, Silence};
    let cases: [(&str, &[u8], Fate); 17] = [
        ("unknown", &[30, 4, 1, 2], Goes),
        ("unknown, copied", &[158, 4, 1, 2], Goes),
        ("router alert", &[148, 4, 0, 0], Goes),
        ("security", &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Goes),
        ("end of list, then anything", &[0, 7, 0, 0], Goes),
        ("record route", &[7, 7, 4, 0, 0, 0, 0, 0], Goes),
        ("timestamp", &[68, 8, 5, 0, 0, 0, 0, 0], Goes),
        ("length 0", &[30, 0, 0, 0], Problem(0)),
        ("length 1", &[30, 1, 0, 0], Problem(0)),
        ("beyond the header", &[30, 5, 0, 0], Problem(0)),
        ("no length", &[1, 1, 1, 30], Problem(3)),
        ("record route too short", &[7, 2, 0, 0], Problem(1)),
        (
            "record route's pointer",
            &[7, 7, 3, 0, 0, 0, 0, 0],
            Problem(2),
        ),
        (
            "record route twice",
            &[7, 7, 4, 0, 0, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 0],
            Problem(7),
        ),
        (
            "timestamp's pointer",
            &[68, 8, 4, 0, 0, 0, 0, 0],
            Problem(2),
        ),
        ("loose source route", &[131, 7, 4, 10, 1, 0, 2, 0], Silence),
        ("strict source route", &[137, 7, 4, 10, 1, 0, 2, 0], Silence),
    ];
    both(|mut rig| {
        let socket = listen(&rig);
        for (what, options, fate) in &cases {
            // To an open port, to a closed one, and through.
            for (dst, port) in [(V4::OWN, OWN_PORT), (V4::OWN, 9), (V4::PEER1, OWN_PORT)] {
                let udp = packets::udp_datagram(Net::V4.peer, dst.into(), PEER_PORT, port, b"");
                let packet =
                    packets::ipv4_with_options(V4::PEER, dst, protocol::UDP, options, &udp);
                rig.inject("tun0", &packet);
                rig.advance(Duration::from_secs(2));
                let answer = rig.output("tun0").first().map(|answer| {
                    let answer = packets::parse(answer);
                    assert_eq!(answer.payload[8..], packet, "{what}: quoted whole");
                    (answer.icmp(), answer.icmp_rest() >> 24)
                });
                let arrived = rig.has_received(socket) || !rig.output("tun1").is_empty();
                let is_closed = port == 9;
                let expected = match fate {
                    Goes if is_closed => (false, Some(((3, 3), 0))),
                    Goes => (true, None),
                    Problem(at) => (false, Some(((icmp::v4::PARAMETER_PROBLEM, 0), 20 + at))),
                    Silence => (false, None),
                };
                assert_eq!((arrived, answer), expected, "{what} to {dst} port {port}");
            }
        }
    });
}

/// RFC 1122 section 3.2.1.3, RFC 1812 section 5.3.7, as Linux draws the line.
#[test]
fn martian_sources_are_dropped_and_odd_ones_are_not() {
    both(|mut rig| {
        let socket = listen(&rig);
        let transit = V4::PEER1;
        let cases: [(&str, bool); 13] = [
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("10.0.0.1", false),
            ("10.1.0.1", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("239.1.2.3", false),
            ("0.0.0.0", false),
            // All but the first of 0.0.0.0/8 are addresses like others, since Linux 5.3.
            ("0.1.2.3", true),
            ("10.0.0.255", true),
            ("10.0.0.0", true),
            ("240.0.0.1", true),
            ("192.0.2.1", true),
        ];
        for (src, good) in cases {
            let before = rig.counters().dropped_total();
            rig.inject("tun0", datagram(addr(src), V4::OWN));
            assert_eq!(rig.has_received(socket), good, "{src}");
            assert_eq!(
                rig.counters().dropped_total() - before,
                u64::from(!good),
                "{src}"
            );
            rig.inject("tun0", datagram(addr(src), transit));
            assert_eq!(
                rig.output("tun1").len(),
                usize::from(good),
                "{src} in transit"
            );
            rig.inject("tun0", packets::udp(addr(src), V4::OWN, 1, 9, b""));
            if !good {
                assert!(rig.is_silent(), "{src}");
            }
            rig.output("tun0");
        }
        // The address that we ourselves sent from, once the knob allows it.
        rig.set("net.ipv4.conf.tun0.accept_local", 1);
        rig.inject("tun0", datagram(V4::OWN1, V4::OWN));
        assert!(rig.has_received(socket));
    });
}

/// RFC 4291 sections 2.5.2, 2.5.3, 2.7.
#[test]
fn ipv6_martian_sources_are_dropped() {
    both(|mut rig| {
        let socket = listen(&rig);
        for src in ["::1", "ff02::1", "ff0e::1", "::ffff:10.0.0.2"] {
            for dst in [V6::OWN, V6::PEER1] {
                rig.inject("tun0", datagram(addr(src), dst));
                assert!(!rig.has_received(socket), "{src}");
                assert!(rig.is_silent(), "{src}");
            }
        }
        // Neighbours without an address may speak to a neighbour, not through it.
        for src in ["::", "fe80::1"] {
            rig.inject("tun0", datagram(addr(src), V6::PEER1));
            assert!(rig.output("tun1").is_empty(), "{src} is not forwarded");
        }
        rig.inject("tun0", datagram(addr("2001:db8::1"), V6::OWN));
        assert!(rig.has_received(socket), "an unrouted source");
    });
}

/// What this host sends to itself was routed when it was sent: that its address is gone by the time
/// it arrives changes nothing.
#[test]
fn what_is_on_the_loopback_has_arrived() {
    everywhere(|mut rig, net| {
        let socket = listen(&rig);
        let sender = rig.bind(net.any(0));
        rig.stack
            .udp_send(rig.now(), sender, b"hello", Some(net.own(OWN_PORT)))
            .expect("a route");
        let tun0 = rig.ifindex("tun0");
        rig.stack
            .remove_address(tun0, net.own, net.prefix_len)
            .expect("its own");
        rig.poll();
        assert!(rig.has_received(socket));
    });
}

/// RFC 4293: octets count as they come in, padding and packets in error included; groups and
/// broadcasts where somebody is to have them.
#[test]
fn what_comes_in_counts_before_it_is_checked() {
    let mut rig = Rig::new();
    let whole = datagram(V4::PEER, V4::OWN);
    let padded = [&whole[..], &[0; 18]].concat();
    let mut damaged = whole.clone();
    damaged[10] ^= 1;
    rig.inject_all("tun0", [&whole, &padded, &damaged]);
    let octets = 3 * whole.len() + 18;
    assert_eq!(rig.count(Counter::IpExtInOctets), octets as u64);
    assert_eq!(rig.count(Counter::IpInReceives), 3);

    // Nobody is in the group, and the broadcast claims to come from this host.
    rig.inject("tun0", datagram(V4::PEER, addr("239.1.2.3")));
    rig.inject("tun0", datagram(V4::OWN, addr("255.255.255.255")));
    assert_eq!(rig.count(Counter::IpExtInMcastPkts), 0);
    assert_eq!(rig.count(Counter::IpExtInBcastPkts), 0);
    rig.inject("tun0", datagram(V4::PEER, addr("255.255.255.255")));
    assert_eq!(rig.count(Counter::IpExtInBcastPkts), 1);

    let whole = datagram(V6::PEER, V6::OWN);
    let cut = &whole[..whole.len() - 1];
    rig.inject_all("tun0", [&whole[..], cut]);
    assert_eq!(
        rig.count(Counter::Ip6InOctets),
        (2 * whole.len() - 1) as u64
    );
    rig.inject("tun0", datagram(V6::PEER, addr("ff02::1234")));
    assert_eq!(rig.count(Counter::Ip6InMcastPkts), 1);
    assert_eq!(rig.count(Counter::Ip6InDiscards), 0);
}
