//! When ICMP answers, and when it must not.

use std::net::IpAddr;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::wire::{icmp, protocol};
use forebay_tests::packets::{self, Fragment};
use forebay_tests::{Net, Rig, V4, V6, both, everywhere};

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn unlimited(rig: &Rig) {
    rig.set("net.ipv4.icmp_ratelimit", 0);
    rig.set("net.ipv6.icmp.ratelimit", 0);
}

/// What comes back by tun0: type and code of each answer.
fn answers(rig: &mut Rig, packet: impl AsRef<[u8]>) -> Vec<(u8, u8)> {
    rig.inject("tun0", packet);
    let output = rig.output("tun0");
    output
        .iter()
        .map(|packet| packets::parse(packet).icmp())
        .collect()
}

/// RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e): whatever is wrong with an error, nobody says so;
/// about a request somebody does.
#[test]
fn no_error_answers_an_error_whatever_is_wrong_with_it() {
    everywhere(|mut rig, net| {
        unlimited(&rig);
        let about = packets::udp(net.peer1, net.peer, 1, 2, b"");
        for kind in 0..=255 {
            let is_error = match net.is_v4() {
                true => !matches!(kind, 0 | 8 | 13..=18),
                false => kind < 128 || kind == icmp::v6::REDIRECT,
            };
            let to = |dst| packets::icmp(net.peer, dst, kind, 0, 0, &about);
            let late = packets::with_ttl(to(net.peer1), 1);
            assert_eq!(
                answers(&mut rig, late).is_empty(),
                is_error,
                "late, type {kind}"
            );
            let lost = to(net.nowhere);
            assert_eq!(
                answers(&mut rig, lost).is_empty(),
                is_error,
                "lost, type {kind}"
            );
            assert!(rig.output("tun1").is_empty());
        }
    });
}

#[test]
fn no_error_about_a_later_fragment_in_ipv4() {
    everywhere(|mut rig, net| {
        unlimited(&rig);
        let exceeded = net.pick((icmp::v4::TIME_EXCEEDED, 0), (icmp::v6::TIME_EXCEEDED, 0));
        for (offset, in_ipv4) in [(0, true), (8, false), (1_480, false)] {
            let fragment = Fragment {
                protocol: protocol::UDP,
                id: 7,
                offset,
                more: true,
                data: &[0; 16],
            };
            let packet = packets::fragment(net.peer, net.peer1, &fragment);
            let late = answers(&mut rig, packets::with_ttl(packet, 1));
            // ICMPv6 names no such exception: a router says so of any fragment.
            let expected = if in_ipv4 || !net.is_v4() {
                &[exceeded][..]
            } else {
                &[]
            };
            assert_eq!(late, expected, "offset {offset}");
        }
    });
}

/// Neither on the way nor at the end: about a packet to many, many would answer.
#[test]
fn no_error_about_a_packet_to_many() {
    both(|mut rig| {
        unlimited(&rig);
        let groups = [
            "10.0.0.255",
            "10.1.0.255",
            "255.255.255.255",
            "224.0.0.1",
            "239.1.1.1",
        ];
        for dst in groups {
            for protocol in [protocol::UDP, protocol::TCP, 253] {
                let packet = packets::ip(V4::PEER, addr_v4(dst), protocol, &[0; 24]);
                assert_eq!(
                    answers(&mut rig, packets::with_ttl(&packet[..], 1)),
                    [],
                    "{dst}"
                );
                assert_eq!(answers(&mut rig, packet), [], "{dst}");
            }
        }
        for dst in ["ff02::1", "ff02::2", "ff05::1:3", "ff0e::1"] {
            for protocol in [protocol::UDP, protocol::TCP, 253] {
                let packet = packets::ip(V6::PEER, addr(dst), protocol, &[0; 24]);
                // RFC 4443 makes an exception for options alone.
                assert_eq!(
                    answers(&mut rig, packets::with_ttl(&packet[..], 1)),
                    [],
                    "{dst}"
                );
                assert_eq!(answers(&mut rig, packet), [], "{dst}");
            }
        }
        assert!(rig.output("tun1").is_empty());
    });
}

fn addr_v4(text: &str) -> std::net::Ipv4Addr {
    text.parse().expect("an address")
}

/// Nobody in particular can be told anything.
#[test]
fn no_answer_of_any_kind_to_a_source_that_is_no_single_host() {
    both(|mut rig| {
        unlimited(&rig);
        let sources = [
            "0.0.0.0",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "10.0.0.255",
            "10.1.0.255",
        ];
        for src in sources.map(addr) {
            let dst = IpAddr::from(V4::OWN);
            let packets = [
                packets::udp(src, dst, 1, 9, b"closed"),
                packets::tcp((src, 1), (dst, 9), 1, 0, 2, b""),
                packets::icmp(src, dst, icmp::v4::ECHO, 0, 1, b"ping"),
                packets::ip(src, dst, 253, b"unknown"),
                packets::with_ttl(packets::udp(src, V4::PEER1, 1, 9, b"late"), 1),
                packets::udp(src, Net::V4.nowhere, 1, 9, b"lost"),
            ];
            for packet in packets {
                rig.inject("tun0", &packet);
                assert!(rig.is_silent(), "{src}: {packet:02x?}");
            }
        }
        for src in ["::", "::1", "ff02::1"].map(addr) {
            let packets = [
                packets::udp(src, V6::OWN, 1, 9, b"closed"),
                packets::tcp((src, 1), (V6::OWN.into(), 9), 1, 0, 2, b""),
                packets::icmp(src, V6::OWN, icmp::v6::ECHO, 0, 1, b"ping"),
                packets::ip(src, V6::OWN, 253, b"unknown"),
                packets::with_ttl(packets::udp(src, V6::PEER1, 1, 9, b"late"), 1),
            ];
            for packet in packets {
                rig.inject("tun0", &packet);
                assert!(rig.is_silent(), "{src}: {packet:02x?}");
            }
        }
    });
}

/// RFC 1122 section 3.2.2.6, RFC 4443 section 4.2.
#[test]
fn echo_is_answered_to_one_host_by_one_host() {
    both(|mut rig| {
        let ping = |dst: &str| {
            let dst = addr(dst);
            let (src, kind) = match dst {
                IpAddr::V4(_) => (V4::PEER.into(), icmp::v4::ECHO),
                IpAddr::V6(_) => (IpAddr::from(V6::PEER), icmp::v6::ECHO),
            };
            packets::icmp(src, dst, kind, 0, 0x0102_0304, b"ping")
        };
        // Whom it is sent to, and who answers.
        let cases = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("10.1.0.1", Some("10.1.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("fd01::1", Some("fd01::1")),
            ("10.0.0.255", None),
            ("255.255.255.255", None),
            ("224.0.0.1", None),
            // From a unicast address: a group's would be no source (RFC 4443 section 2.2).
            ("ff02::1", Some("fd00::1")),
        ];
        for (dst, answerer) in cases {
            rig.inject("tun0", ping(dst));
            let output = rig.output("tun0");
            let answer = output.first().map(|packet| {
                let answer = packets::parse(packet);
                assert_eq!(answer.icmp_rest(), 0x0102_0304, "{dst}");
                assert_eq!(answer.payload[8..], *b"ping", "{dst}");
                answer.src
            });
            assert_eq!(answer, answerer.map(addr), "{dst}");
        }
        let before = rig.drops();
        for dst in ["10.0.0.1", "fd00::1"] {
            let mut damaged = ping(dst);
            *damaged.last_mut().expect("a payload") ^= 1;
            assert_eq!(answers(&mut rig, damaged), [], "{dst}");
        }
        assert_ne!(rig.drops(), before);
        assert_eq!(rig.dropped(DropReason::IcmpCsum), 2);
        assert_eq!(rig.count(Counter::IcmpInCsumErrors), 1);
        assert_eq!(rig.count(Counter::Icmp6InCsumErrors), 1);

        rig.set("net.ipv4.icmp_echo_ignore_broadcasts", 0);
        rig.inject("tun0", ping("10.0.0.255"));
        let answer = packets::parse(&rig.output("tun0")[0]);
        assert_eq!(answer.src, addr("10.0.0.1"), "from one of its own");
    });
}

/// An answer to a large request leaves in fragments, as the request came.
#[test]
fn a_large_echo_comes_back_whole() {
    everywhere(|mut rig, net| {
        let payload: Vec<u8> = (0..3_000).map(|n| n as u8).collect();
        let kind = net.pick(icmp::v4::ECHO, icmp::v6::ECHO);
        let request = packets::icmp(net.peer, net.own, kind, 0, 1, &payload);
        let mut pieces = packets::fragments(&request, 7, 1_200);
        pieces.reverse();
        rig.inject_all("tun0", pieces);
        let answer = rig.output("tun0");
        assert_eq!(answer.len(), 3);
        // Handed to the stack at the other end, it makes the same payload again.
        let header = net.pick(20, 48);
        let whole: Vec<u8> = answer.iter().flat_map(|p| p[header..].to_vec()).collect();
        assert_eq!(whole[8..], payload);
    });
}
