//! IPv6 extension headers (RFC 8200 section 4): what is passed over, what is answered, with which
//! pointer, and what is dropped.

use std::net::Ipv6Addr;
use std::time::Duration;

use forebay_stack::socket::SocketId;
use forebay_stack::wire::icmp::v6;
use forebay_stack::wire::protocol::{
    DESTINATION_OPTIONS as DST, FRAGMENT, HOP_BY_HOP as HBH, NO_NEXT_HEADER, ROUTING, UDP,
};
use forebay_tests::{Net, Rig, V6, both, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;
/// A protocol that nobody speaks (RFC 3692).
const UNKNOWN: u8 = 253;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Delivered,
    Silence,
    /// A parameter problem with this code and pointer.
    Problem(u8, u32),
}
use Fate::{Delivered, Problem, Silence};

/// Headers of 8 bytes each: (what it is, what follows its first byte).
type Chain<'a> = &'a [(u8, [u8; 7])];

const PADDING: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];

/// An option of this type with 4 bytes of data.
fn option(kind: u8) -> [u8; 7] {
    [0, kind, 4, 9, 9, 9, 9]
}

/// A packet to `dst` with these headers in front of `last`'s bytes.
fn chained(dst: Ipv6Addr, chain: Chain<'_>, last: u8, bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (index, (_, rest)) in chain.iter().enumerate() {
        payload.push(chain.get(index + 1).map_or(last, |next| next.0));
        payload.extend_from_slice(rest);
    }
    payload.extend_from_slice(bytes);
    let first = chain.first().map_or(last, |first| first.0);
    packets::ipv6(V6::PEER, dst, first, &payload)
}

fn datagram(dst: Ipv6Addr) -> Vec<u8> {
    packets::udp_datagram(V6::PEER.into(), dst.into(), PEER_PORT, OWN_PORT, b"behind")
}

fn fate(rig: &mut Rig, socket: SocketId, packet: &[u8]) -> Fate {
    rig.inject("tun0", packet);
    let delivered = rig.has_received(socket);
    let output = rig.output("tun0");
    assert!(
        output.len() <= usize::from(!delivered),
        "one answer, or none"
    );
    assert!(rig.output("tun1").is_empty());
    rig.advance(Duration::from_secs(2));
    match output.first() {
        None if delivered => Delivered,
        None => Silence,
        Some(answer) => {
            let answer = packets::parse(answer);
            let (kind, code) = answer.icmp();
            assert_eq!(kind, v6::PARAMETER_PROBLEM);
            assert_eq!(answer.payload[8..], *packet, "quoted as it came");
            Problem(code, answer.icmp_rest())
        }
    }
}

fn listen(rig: &Rig) -> SocketId {
    rig.bind_and_connect(Net::V6.own(OWN_PORT), Net::V6.peer(PEER_PORT))
}

#[test]
fn each_header_is_passed_over_or_answered() {
    let cases: [(&str, Chain<'_>, u8, Fate); 19] = [
        ("none", &[], UDP, Delivered),
        ("padding", &[(HBH, PADDING)], UDP, Delivered),
        (
            "both kinds of options",
            &[(HBH, PADDING), (DST, PADDING)],
            UDP,
            Delivered,
        ),
        (
            "destination options twice",
            &[(DST, PADDING), (DST, PADDING)],
            UDP,
            Delivered,
        ),
        // The two highest bits of an unknown option's type: skip, drop, answer, answer.
        (
            "hop-by-hop option 00",
            &[(HBH, option(0x1e))],
            UDP,
            Delivered,
        ),
        ("hop-by-hop option 01", &[(HBH, option(0x5e))], UDP, Silence),
        (
            "hop-by-hop option 10",
            &[(HBH, option(0x9e))],
            UDP,
            Problem(2, 42),
        ),
        (
            "hop-by-hop option 11",
            &[(HBH, option(0xde))],
            UDP,
            Problem(2, 42),
        ),
        (
            "destination option 00",
            &[(DST, option(0x1e))],
            UDP,
            Delivered,
        ),
        (
            "destination option 01",
            &[(DST, option(0x5e))],
            UDP,
            Silence,
        ),
        (
            "destination option 10",
            &[(DST, option(0x9e))],
            UDP,
            Problem(2, 42),
        ),
        (
            "destination option 11, further behind",
            &[(HBH, PADDING), (DST, PADDING), (DST, option(0xde))],
            UDP,
            Problem(2, 58),
        ),
        (
            "hop-by-hop options not at the front",
            &[(DST, PADDING), (HBH, PADDING)],
            UDP,
            Problem(1, 40),
        ),
        (
            "hop-by-hop options twice",
            &[(HBH, PADDING), (HBH, PADDING)],
            UDP,
            Problem(1, 40),
        ),
        (
            "a route that is at its end",
            &[(ROUTING, [0, 0, 0, 0, 0, 0, 0])],
            UDP,
            Delivered,
        ),
        (
            "an unknown route at its end",
            &[(ROUTING, [0, 250, 0, 0, 0, 0, 0])],
            UDP,
            Delivered,
        ),
        ("an unknown header", &[], UNKNOWN, Problem(1, 6)),
        (
            "an unknown header behind options",
            &[(HBH, PADDING), (DST, PADDING)],
            UNKNOWN,
            Problem(1, 48),
        ),
        ("nothing next", &[(DST, PADDING)], NO_NEXT_HEADER, Silence),
    ];
    both(|mut rig| {
        let socket = listen(&rig);
        // Twice: the flow is cold, then warm.
        for _ in 0..2 {
            for (what, chain, last, expected) in cases {
                let packet = chained(V6::OWN, chain, last, &datagram(V6::OWN));
                assert_eq!(fate(&mut rig, socket, &packet), expected, "{what}");
            }
        }
    });
}

/// RFC 5095 for type 0, RFC 8200 section 4.4 for those nobody knows.
#[test]
fn a_route_with_segments_left_is_answered_with_its_type() {
    both(|mut rig| {
        let socket = listen(&rig);
        for kind in [0, 1, 250, 255] {
            for left in [1, 2, 255] {
                let header = [0, kind, left, 0, 0, 0, 0];
                let packet = chained(V6::OWN, &[(ROUTING, header)], UDP, &datagram(V6::OWN));
                assert_eq!(
                    fate(&mut rig, socket, &packet),
                    Problem(0, 42),
                    "{kind}, {left}"
                );
            }
        }
    });
}

/// What may be told to one sender must not be told by a crowd: type 11 is silent for groups, type 10
/// is not.
#[test]
fn options_in_a_packet_to_a_group() {
    both(|mut rig| {
        let socket = listen(&rig);
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let cases = [(0x5e, Silence), (0x9e, Problem(2, 42)), (0xde, Silence)];
        for header in [HBH, DST] {
            for (kind, expected) in cases {
                let datagram = datagram(all_nodes);
                let packet = chained(all_nodes, &[(header, option(kind))], UDP, &datagram);
                assert_eq!(fate(&mut rig, socket, &packet), expected, "{kind:#x}");
            }
        }
    });
}

/// Routers look at hop-by-hop options and at nothing else.
#[test]
fn a_router_looks_at_hop_by_hop_options_alone() {
    both(|mut rig| {
        let cases: [(&str, Chain<'_>, u8, bool); 7] = [
            ("padding", &[(HBH, PADDING)], UDP, true),
            ("a router alert", &[(HBH, [0, 5, 2, 0, 0, 1, 0])], UDP, true),
            ("hop-by-hop option 01", &[(HBH, option(0x5e))], UDP, false),
            ("hop-by-hop option 10", &[(HBH, option(0x9e))], UDP, false),
            ("destination option 10", &[(DST, option(0x9e))], UDP, true),
            (
                "a route with segments left",
                &[(ROUTING, [0, 0, 1, 0, 0, 0, 0])],
                UDP,
                true,
            ),
            ("an unknown header", &[], UNKNOWN, true),
        ];
        for (what, chain, last, forwarded) in cases {
            let packet = chained(V6::PEER1, chain, last, &datagram(V6::PEER1));
            rig.inject("tun0", packet);
            assert_eq!(rig.output("tun1").len(), usize::from(forwarded), "{what}");
            let told = !rig.output("tun0").is_empty();
            assert_eq!(told, what == "hop-by-hop option 10", "{what}");
        }
    });
}

/// Every length byte in every header: the walk never leaves the packet, and what ends behind it is
/// dropped.
#[test]
fn no_length_leads_out_of_the_packet() {
    both(|mut rig| {
        rig.set("net.ipv6.icmp.ratelimit", 0);
        let socket = listen(&rig);
        for header in [HBH, DST, ROUTING, FRAGMENT, UDP] {
            for len in 0..=255 {
                for option_len in [0, 4, 5, 255] {
                    let rest = [len, 1, option_len, 0, 0, 0, 0];
                    let chain = [(header, rest), (DST, PADDING)];
                    let packet = chained(V6::OWN, &chain, UDP, &datagram(V6::OWN));
                    rig.inject("tun0", &packet);
                    let received = rig.drain(socket);
                    let is_right = header != FRAGMENT && header != UDP && len == 0;
                    assert!(
                        received.is_empty() || is_right,
                        "{header}: {len}, {option_len}"
                    );
                    for cut in 41..packet.len() {
                        let mut cut_off = packet[..cut].to_vec();
                        cut_off[5] = (cut - 40) as u8;
                        rig.inject("tun0", cut_off);
                    }
                    assert!(
                        rig.drain(socket).is_empty(),
                        "{header}: {len}, {option_len}"
                    );
                    rig.output("tun0");
                }
            }
        }
        rig.advance(Duration::from_secs(100));
        rig.output("tun0");
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// Padding aligns, and no more; the rest Linux drops without a word (RFC 8504 section 5.3).
#[test]
fn options_are_limited_in_number_and_padding_in_size() {
    both(|mut rig| {
        let socket = listen(&rig);
        let packet = |options: &[u8]| {
            let units = (options.len() + 2) / 8 - 1;
            let header = [&[UDP, units as u8], options, &datagram(V6::OWN)].concat();
            packets::ipv6(V6::PEER, V6::OWN, DST, &header)
        };
        // Of two bytes each, so that they fill the header.
        for (count, expected) in [(3, Delivered), (7, Delivered), (11, Silence)] {
            let options = [0x1e, 0].repeat(count);
            let fate = fate(&mut rig, socket, &packet(&options));
            assert_eq!(fate, expected, "{count} options");
        }
        rig.set("net.ipv6.max_dst_opts_number", 16);
        let options = [0x1e, 0].repeat(11);
        assert_eq!(fate(&mut rig, socket, &packet(&options)), Delivered);

        let too_much = [1, 6, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(
            fate(&mut rig, socket, &packet(&too_much)),
            Silence,
            "14 bytes of padding"
        );
        let carries = [1, 4, 0, 0, 0, 1];
        assert_eq!(
            fate(&mut rig, socket, &packet(&carries)),
            Silence,
            "padding that says something"
        );
    });
}
