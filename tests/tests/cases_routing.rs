//! Where packets go: own addresses and others, filters of sources, forwarding, the longest prefix.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::fib::{RouteKind, TableId};
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::socket::SocketId;
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

/// RFC 3704. The larger of `all` and the interface's value counts; 1 is strict, 2 loose.
#[test]
fn rp_filter_is_the_larger_of_two_values() {
    both(|mut rig| {
        let socket = rig.bind(Net::V4.own(OWN_PORT));
        rig.route_dev(addr("198.51.100.1"), "tun1");
        for all in 0..=2 {
            for own in 0..=2 {
                rig.set("net.ipv4.conf.all.rp_filter", all);
                rig.set("net.ipv4.conf.tun0.rp_filter", own);
                let mode = all.max(own);
                let sources = [
                    ("10.0.0.2", true),
                    ("198.51.100.1", mode != 1),
                    ("192.0.2.1", mode == 0),
                ];
                for (src, good) in sources {
                    rig.inject("tun0", datagram(addr(src), V4::OWN));
                    assert_eq!(
                        rig.has_received(socket),
                        good,
                        "{src}: all {all}, tun0 {own}"
                    );
                    rig.inject("tun0", datagram(addr(src), V4::PEER1));
                    let forwarded = rig.output("tun1").len();
                    assert_eq!(forwarded, usize::from(good), "{src}: all {all}, tun0 {own}");
                    assert!(rig.is_silent());
                }
            }
        }
        assert_eq!(rig.drops(), [(DropReason::IpRpfilter, 2 * (3 + 8))]);
    });
}

/// The weak host model of RFC 1122 section 3.3.4.2; loopback addresses stay inside.
#[test]
fn any_own_address_may_be_asked_by_any_interface_but_not_the_loopback() {
    both(|mut rig| {
        let socket = listen(&rig);
        let cases: [(&str, &str, bool); 7] = [
            ("10.0.0.2", "10.1.0.1", true),
            ("fd00::2", "fd01::1", true),
            ("10.0.0.2", "127.0.0.1", false),
            ("10.0.0.2", "127.1.2.3", false),
            ("10.0.0.2", "0.0.0.0", false),
            ("fd00::2", "::1", false),
            ("fd00::2", "::", false),
        ];
        for (src, dst, good) in cases {
            rig.inject("tun0", datagram(addr(src), addr(dst)));
            assert_eq!(rig.has_received(socket), good, "{dst}");
            if dst != "::" {
                assert!(rig.is_silent(), "{dst}");
            }
            assert!(rig.output("tun1").is_empty(), "{dst}");
            rig.output("tun0");
        }
    });
}

/// RFC 1812 section 5.3.5, RFC 2644, RFC 1122 section 3.2.1.3.
#[test]
fn forwarding_refuses_broadcasts_and_martians_and_says_where_there_is_no_way() {
    both(|mut rig| {
        let tun1 = |rig: &mut Rig, dst: &str| {
            rig.inject("tun0", datagram(V4::PEER, addr(dst)));
            rig.output("tun1").len()
        };
        assert_eq!(tun1(&mut rig, "10.1.0.255"), 0, "directed broadcast");
        assert_eq!(tun1(&mut rig, "10.1.0.2"), 1);
        assert!(rig.is_silent(), "about a broadcast nobody is told");
        rig.inject("tun0", datagram(addr("127.0.0.1"), V4::PEER1));
        assert!(rig.is_silent());
        for dst in ["255.255.255.255", "224.0.0.5", "239.1.2.3"] {
            assert_eq!(tun1(&mut rig, dst), 0, "{dst}");
            assert!(rig.is_silent(), "{dst}");
        }
        for dst in ["192.0.2.1", "240.0.0.1"] {
            rig.inject("tun0", datagram(V4::PEER, addr(dst)));
            let answer = packets::parse(&rig.output("tun0")[0]);
            assert_eq!(answer.icmp(), (3, 0), "{dst}: net unreachable");
        }
        for dst in ["ff02::5", "ff0e::5"] {
            rig.inject("tun0", datagram(V6::PEER, addr(dst)));
            assert!(rig.is_silent(), "{dst}");
        }

        // Two knobs allow directed broadcasts.
        rig.set("net.ipv4.conf.all.bc_forwarding", 1);
        rig.set("net.ipv4.conf.tun0.bc_forwarding", 1);
        assert_eq!(tun1(&mut rig, "10.1.0.255"), 1);
        assert_eq!(
            tun1(&mut rig, "10.0.0.255"),
            0,
            "the link that it came from has had it"
        );
    });
}

/// RFC 1191, RFC 8201, RFC 791: told, or cut into pieces.
#[test]
fn what_is_too_big_is_told_or_fragmented() {
    both(|mut rig| {
        let tun1 = rig.ifindex("tun1");
        rig.stack.set_mtu(tun1, 1_000).expect("an MTU");
        let payload: Vec<u8> = (0..1_200).map(|n| n as u8).collect();
        let packet = packets::udp(V4::PEER, V4::PEER1, PEER_PORT, OWN_PORT, &payload);

        rig.inject("tun0", packets::with_fragment_field(&packet[..], 0x4000));
        assert!(rig.output("tun1").is_empty());
        let answer = packets::parse(&rig.output("tun0")[0]);
        assert_eq!((answer.icmp(), answer.icmp_rest()), ((3, 4), 1_000));

        rig.inject("tun0", &packet);
        let pieces: Vec<(usize, u16, Vec<u8>)> = rig
            .output("tun1")
            .iter()
            .map(|piece| {
                let parsed = packets::parse(piece);
                assert_eq!((parsed.ttl, &piece[4..6]), (63, &packet[4..6]));
                let field = u16::from_be_bytes([piece[6], piece[7]]);
                (parsed.payload.len(), field, parsed.payload)
            })
            .collect();
        let shapes: Vec<_> = pieces
            .iter()
            .map(|(len, field, _)| (*len, *field))
            .collect();
        assert_eq!(shapes, [(976, 0x2000), (232, 122)]);
        let whole: Vec<u8> = pieces.into_iter().flat_map(|(_, _, data)| data).collect();
        assert_eq!(whole, packet[20..]);
        assert!(rig.is_silent());

        rig.stack.set_mtu(tun1, 1_300).expect("an MTU");
        rig.inject("tun0", packets::udp(V6::PEER, V6::PEER1, 1, 2, &[0; 1_300]));
        assert!(rig.output("tun1").is_empty());
        let answer = packets::parse(&rig.output("tun0")[0]);
        assert_eq!((answer.icmp(), answer.icmp_rest()), ((2, 0), 1_300));
        // To the last byte.
        for (len, fits) in [(1_300 - 48, true), (1_300 - 47, false)] {
            rig.inject(
                "tun0",
                packets::udp(V6::PEER, V6::PEER1, 1, 2, &vec![0; len]),
            );
            assert_eq!(rig.output("tun1").len(), usize::from(fits));
        }
    });
}

/// Longest prefix first, whatever was added and deleted before; a host route is as good as any.
#[test]
fn the_longest_prefix_wins_in_whatever_order_routes_come_and_go() {
    everywhere(|mut rig, net| {
        // Each leads elsewhere: nowhere, to ourselves, out of tun1, back by tun0.
        let bits = net.pick([0, 8, 24, 32], [0, 16, 64, 128]);
        let kinds = [
            (RouteKind::Unreachable, None),
            (RouteKind::Local, Some("tun0")),
            (RouteKind::Unicast, Some("tun1")),
            (RouteKind::Unicast, Some("tun0")),
        ];
        let dst = net
            .pick("198.51.100.7", "2001:db8::7")
            .parse()
            .expect("an address");
        let networks = bits.map(|len| (masked(dst, len), len));
        let socket = rig.bind(net.any(OWN_PORT));
        let seen = |rig: &mut Rig| {
            rig.advance(Duration::from_secs(2));
            rig.inject("tun0", datagram(net.peer, dst));
            let is_datagram = |packet: &Vec<u8>| packets::parse(packet).dst == dst;
            if rig.has_received(socket) {
                Some(1)
            } else if !rig.output("tun1").is_empty() {
                Some(2)
            } else {
                let output = rig.output("tun0");
                let icmp = output.iter().any(|p| packets::parse(p).dst == net.peer);
                match output.iter().any(is_datagram) {
                    true => Some(3),
                    false => icmp.then_some(0),
                }
            }
        };
        for order in permutations() {
            let mut present = [false; 4];
            for on in [true, false] {
                for index in order {
                    let (kind, interface) = kinds[index];
                    match on {
                        true => rig.add_route(TableId::MAIN, kind, networks[index], interface),
                        false => rig.delete_route(TableId::MAIN, networks[index]),
                    }
                    present[index] = on;
                    // With no route at all the answer is the same as with the unreachable one.
                    let longest = (0..4).rev().find(|index| present[*index]).unwrap_or(0);
                    assert_eq!(seen(&mut rig), Some(longest), "{order:?}: {present:?}");
                }
            }
        }
    });
}

fn masked(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            Ipv4Addr::from_bits(addr.to_bits() & mask).into()
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(addr.to_bits() & mask).into()
        }
    }
}

fn permutations() -> Vec<[usize; 4]> {
    let mut all = Vec::new();
    for n in 0..256_usize {
        let order = [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6];
        if (0..4).all(|index| order.contains(&index)) {
            all.push(order);
        }
    }
    all
}

/// RFC 8200 section 5: links with a smaller MTU than 1,280 carry no IPv6.
#[test]
fn ipv6_is_off_where_the_mtu_is_below_1280() {
    both(|mut rig| {
        for (name, mtu, on) in [("tun2", 1_279, false), ("tun3", 1_280, true)] {
            let mut config = InterfaceConfig::new(name);
            config.mtu = mtu;
            let ifindex = rig.stack.add_interface(config).expect("a new name");
            let own = addr("fd02::1");
            let added = rig.stack.add_address(ifindex, own, 64);
            assert_eq!(added.is_ok(), on, "{mtu}: {added:?}");
            rig.inject(
                name,
                packets::icmp(addr("fd02::2"), V6::OWN, 128, 0, 1, b"ping"),
            );
            assert_eq!(!rig.output(name).is_empty(), on, "{mtu}");
        }
        // An MTU that shrinks under an address.
        let tun0 = rig.ifindex("tun0");
        for (mtu, on) in [(1_279, false), (1_280, true)] {
            rig.stack.set_mtu(tun0, mtu).expect("an MTU");
            rig.inject("tun0", packets::icmp(V6::PEER, V6::OWN, 128, 0, 1, b"ping"));
            assert_eq!(rig.output("tun0").len(), usize::from(on), "{mtu}");
            rig.inject("tun1", packets::udp(V6::PEER1, V6::PEER, 1, 2, b"through"));
            assert_eq!(rig.output("tun0").len(), usize::from(on), "{mtu}");
            let socket = rig.bind(Net::V6.any(0));
            let sent = rig
                .stack
                .udp_send(rig.now(), socket, b"", Some(Net::V6.peer(9)));
            assert_eq!(sent.is_ok(), on, "{mtu}: {sent:?}");
            rig.output("tun0");
        }
        // The knob does the same.
        rig.set("net.ipv6.conf.tun0.disable_ipv6", 1);
        rig.inject("tun1", packets::udp(V6::PEER1, V6::PEER, 1, 2, b"through"));
        assert!(rig.is_silent());
        let reason = DropReason::Ipv6Disabled;
        assert!(rig.dropped(reason) >= 2 && rig.count(Counter::Ip6InDiscards) >= 2);
        let v4 = packets::icmp(V4::PEER, V4::OWN, 8, 0, 1, b"ping");
        rig.stack.set_mtu(tun0, 68).expect("an MTU");
        rig.inject("tun0", v4);
        assert_eq!(rig.output("tun0").len(), 1, "IPv4 needs no more than 68");
    });
}
