//! Reassembly: what makes a datagram whole, what ends it, and what it may cost.

use std::net::IpAddr;
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::socket::SocketId;
use forebay_stack::wire::{icmp, protocol};
use forebay_tests::packets::Fragment;
use forebay_tests::{Net, Rig, V6, both, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

/// A datagram to the open port, header and 232 bytes of payload: 240 bytes that begin with ports.
fn datagram(net: &Net) -> Vec<u8> {
    let payload: Vec<u8> = (0..232).collect();
    packets::udp_datagram(net.peer, net.own, PEER_PORT, OWN_PORT, &payload)
}

/// The bytes `from..to` of the datagram as a fragment.
fn piece(net: &Net, id: u32, from: usize, to: usize) -> Vec<u8> {
    let datagram = datagram(net);
    let fragment = Fragment {
        protocol: protocol::UDP,
        id,
        offset: from,
        more: to < datagram.len(),
        data: &datagram[from..to],
    };
    packets::fragment(net.peer, net.own, &fragment)
}

/// A connected socket that waits for the datagram.
fn wait(rig: &Rig, net: &Net) -> SocketId {
    rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT))
}

fn fails(rig: &Rig, net: &Net) -> u64 {
    rig.count(net.pick(Counter::IpReasmFails, Counter::Ip6ReasmFails))
}

fn oks(rig: &Rig, net: &Net) -> u64 {
    rig.count(net.pick(Counter::IpReasmOKs, Counter::Ip6ReasmOKs))
}

#[test]
fn fragments_make_a_datagram_in_any_order_and_duplicates_do_no_harm() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        let cuts = [(0, 80), (80, 160), (160, 240)];
        let orders: [&[usize]; 8] = [
            &[0, 1, 2],
            &[0, 2, 1],
            &[1, 0, 2],
            &[1, 2, 0],
            &[2, 0, 1],
            &[2, 1, 0],
            &[0, 0, 1, 1, 2],
            &[2, 1, 2, 1, 0],
        ];
        for order in orders {
            // The same id each time: a datagram that is complete is gone.
            for index in order {
                let (from, to) = cuts[*index];
                rig.inject("tun0", piece(&net, 7, from, to));
            }
            assert_eq!(
                rig.drain(socket),
                [datagram(&net)[8..].to_vec()],
                "{order:?}"
            );
        }
        assert!(rig.is_silent());
        assert_eq!((oks(&rig, &net), fails(&rig, &net)), (8, 0));
        assert_eq!(rig.drops(), [(DropReason::FragDuplicate, 4)]);
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// RFC 5722, RFC 8200 section 4.5; Linux does so in IPv4, too.
#[test]
fn an_overlap_ends_the_datagram_and_its_id_is_free_again() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        let overlaps: [&[(usize, usize)]; 6] = [
            &[(0, 80), (72, 160), (160, 240)],
            &[(0, 80), (160, 240), (80, 168)],
            &[(0, 80), (0, 88), (160, 240), (80, 160)],
            &[(0, 160), (80, 160), (160, 240)],
            &[(80, 160), (0, 200)],
            &[(160, 240), (80, 240), (0, 80)],
        ];
        for (round, cuts) in overlaps.iter().enumerate() {
            for (from, to) in *cuts {
                rig.inject("tun0", piece(&net, 7, *from, *to));
            }
            assert!(!rig.has_received(socket), "{cuts:?}");
            assert!(fails(&rig, &net) > round as u64, "{cuts:?}");
            // What came behind the overlap may have begun a new datagram: it waits for nothing.
            rig.advance(Duration::from_secs(100));
            rig.output("tun0");
            for (from, to) in [(0, 120), (120, 240)] {
                rig.inject("tun0", piece(&net, 7, from, to));
            }
            assert!(rig.has_received(socket), "{cuts:?}: the id works again");
        }
    });
}

#[test]
fn the_id_works_again_right_after_an_overlap() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        rig.inject("tun0", piece(&net, 7, 0, 80));
        rig.inject("tun0", piece(&net, 7, 72, 160));
        for (from, to) in [(0, 80), (80, 240)] {
            rig.inject("tun0", piece(&net, 7, from, to));
        }
        assert!(rig.has_received(socket));
        assert!(rig.is_silent());
    });
}

/// Two last fragments that end at different places, or a piece behind the end.
#[test]
fn ends_that_contradict_each_other_end_the_datagram() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        let data = datagram(&net);
        let fragment = |from: usize, to: usize, more: bool| {
            let fragment = Fragment {
                protocol: protocol::UDP,
                id: 7,
                offset: from,
                more,
                data: &data[from..to],
            };
            packets::fragment(net.peer, net.own, &fragment)
        };
        let contradictions = [
            [fragment(80, 160, false), fragment(160, 240, false)],
            [fragment(160, 240, false), fragment(80, 120, false)],
            [fragment(80, 120, false), fragment(120, 200, true)],
        ];
        for pair in contradictions {
            rig.inject_all("tun0", pair);
            rig.inject("tun0", fragment(0, 80, true));
            assert!(!rig.has_received(socket));
            rig.advance(Duration::from_secs(100));
            rig.output("tun0");
        }
        assert!(fails(&rig, &net) >= 3);
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// Sizes that cannot be: IPv4 is silent, IPv6 says which field it was (RFC 8200 section 4.5).
#[test]
fn impossible_fragments_are_dropped_and_in_ipv6_answered() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        let fragment = |offset: usize, more: bool, len: usize| {
            let fragment = Fragment {
                protocol: protocol::UDP,
                id: 7,
                offset,
                more,
                data: &vec![1; len],
            };
            packets::fragment(net.peer, net.own, &fragment)
        };
        let beyond = net.pick(65_536 - 20 - 65_504, 65_536 - 65_504);
        let cases = [
            ("no multiple of 8", fragment(80, true, 81), Some(4)),
            ("no multiple of 8, first", fragment(0, true, 20), Some(4)),
            ("beyond 65,535", fragment(65_504, false, beyond), Some(42)),
            ("far beyond 65,535", fragment(65_528, true, 800), Some(42)),
            ("no data", fragment(80, true, 0), None),
        ];
        for (what, packet, pointer) in cases {
            // Whatever waits under the id is not harmed.
            rig.inject("tun0", piece(&net, 7, 0, 80));
            rig.inject("tun0", packet);
            let output = rig.output("tun0");
            let answer = output.first().map(|packet| {
                let answer = packets::parse(packet);
                assert_eq!(answer.icmp(), (icmp::v6::PARAMETER_PROBLEM, 0), "{what}");
                answer.icmp_rest()
            });
            assert_eq!(answer, pointer.filter(|_| !net.is_v4()), "{what}");
            rig.inject("tun0", piece(&net, 7, 80, 240));
            assert!(rig.has_received(socket), "{what}");
            rig.advance(Duration::from_secs(2));
        }
        // The longest that can be.
        let longest = net.pick(65_535 - 20, 65_535);
        let payload = vec![7; longest - 8];
        if !net.is_v4() {
            return;
        }
        let whole = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &payload);
        rig.inject_all("tun0", packets::fragments(&whole, 9, 1_480));
        assert_eq!(rig.drain(socket), [payload]);
    });
}

/// RFC 7112: all headers in the first fragment. Linux does not ask it of IPv4.
#[test]
fn an_ipv6_first_fragment_without_its_headers_is_answered() {
    both(|mut rig| {
        let net = Net::V6;
        let first = |protocol: u8, data: &[u8]| {
            let fragment = Fragment {
                protocol,
                id: 7,
                offset: 0,
                more: true,
                data,
            };
            packets::fragment(net.peer, net.own, &fragment)
        };
        let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let cases = [
            (first(protocol::TCP, &[0; 16]), true),
            (first(protocol::TCP, &[0; 24]), false),
            (first(protocol::UDP, &[0; 8]), false),
            (
                first(protocol::DESTINATION_OPTIONS, &padding(protocol::UDP)),
                true,
            ),
            (
                first(
                    protocol::DESTINATION_OPTIONS,
                    &[padding(protocol::UDP), [0; 8]].concat(),
                ),
                false,
            ),
            (
                first(protocol::ROUTING, &[protocol::UDP, 2, 0, 0, 0, 0, 0, 0]),
                true,
            ),
        ];
        for (packet, is_refused) in cases {
            rig.inject("tun0", &packet);
            let answer = rig.output("tun0").first().map(|answer| {
                let answer = packets::parse(answer);
                (answer.icmp(), answer.icmp_rest())
            });
            let refusal = ((icmp::v6::PARAMETER_PROBLEM, 3), 0);
            assert_eq!(answer, is_refused.then_some(refusal), "{packet:02x?}");
            rig.advance(Duration::from_secs(100));
            rig.output("tun0");
        }
    });
}

/// RFC 8200 section 4.5: what comes next is what the first fragment says.
#[test]
fn later_ipv6_fragments_may_name_any_next_header() {
    both(|mut rig| {
        let net = Net::V6;
        let socket = wait(&rig, &net);
        let data = datagram(&net);
        for later in [0, protocol::TCP, protocol::NO_NEXT_HEADER, 253] {
            for reversed in [false, true] {
                let mut pieces = [(protocol::UDP, 0, 80), (later, 80, 240)];
                if reversed {
                    pieces.reverse();
                }
                for (protocol, from, to) in pieces {
                    let fragment = Fragment {
                        protocol,
                        id: 7,
                        offset: from,
                        more: to < data.len(),
                        data: &data[from..to],
                    };
                    rig.inject("tun0", packets::fragment(net.peer, net.own, &fragment));
                }
                assert!(rig.has_received(socket), "{later}");
            }
        }
        assert!(rig.is_silent());
    });
}

/// RFC 6946.
#[test]
fn an_atomic_fragment_is_whole_by_itself() {
    both(|mut rig| {
        let net = Net::V6;
        let socket = wait(&rig, &net);
        rig.inject("tun0", piece(&net, 7, 0, 80));
        let atomic = Fragment {
            protocol: protocol::UDP,
            id: 7,
            offset: 0,
            more: false,
            data: &packets::udp_datagram(net.peer, net.own, PEER_PORT, OWN_PORT, b"atomic"),
        };
        rig.inject("tun0", packets::fragment(net.peer, net.own, &atomic));
        assert_eq!(rig.drain(socket), [b"atomic"]);
        rig.inject("tun0", piece(&net, 7, 80, 240));
        assert_eq!(rig.drain(socket), [datagram(&net)[8..].to_vec()]);
    });
}

/// Source, destination, id and in IPv4 the protocol say what belongs together.
#[test]
fn fragments_of_different_datagrams_never_meet() {
    everywhere(|mut rig, net| {
        let socket = rig.bind(net.any(OWN_PORT));
        let data = datagram(&net);
        rig.inject("tun0", piece(&net, 7, 0, 80));
        let last = Fragment {
            protocol: protocol::UDP,
            id: 7,
            offset: 80,
            more: false,
            data: &data[80..],
        };
        let foreign = [
            packets::fragment(net.other, net.own, &last),
            packets::fragment(net.peer, net.own1, &last),
            packets::fragment(net.peer, net.own, &Fragment { id: 8, ..last }),
        ];
        for packet in foreign {
            rig.inject("tun0", packet);
            assert!(!rig.has_received(socket));
        }
        if net.is_v4() {
            let other_protocol = Fragment {
                protocol: 253,
                ..last
            };
            rig.inject(
                "tun0",
                packets::fragment(net.peer, net.own, &other_protocol),
            );
            assert!(!rig.has_received(socket));
        }
        // By whichever interface its own piece comes.
        rig.inject("tun1", packets::fragment(net.peer, net.own, &last));
        assert!(rig.has_received(socket));
    });
}

/// Time is up by the clock, not when the next packet comes; only who sent the first fragment is
/// told, for nothing else could be quoted (RFC 792, RFC 8200 section 4.5).
#[test]
fn what_stays_incomplete_expires_and_the_sender_of_the_first_fragment_is_told() {
    everywhere(|mut rig, net| {
        let timeout = Duration::from_secs(net.pick(30, 60));
        let socket = wait(&rig, &net);
        for (first_came, cut) in [(true, (0, 80)), (false, (80, 160))] {
            rig.inject("tun0", piece(&net, 7, cut.0, cut.1));
            let deadline = rig.poll().expect("a deadline");
            assert_eq!(deadline, rig.now() + timeout);
            rig.advance(timeout - Duration::from_millis(1));
            assert!(rig.is_silent());
            rig.advance(Duration::from_millis(1));
            let output = rig.output("tun0");
            let answer = output.first().map(|packet| packets::parse(packet).icmp());
            let exceeded = net.pick(
                (icmp::v4::TIME_EXCEEDED, icmp::v4::TIME_EXCEEDED_REASSEMBLY),
                (icmp::v6::TIME_EXCEEDED, icmp::v6::TIME_EXCEEDED_REASSEMBLY),
            );
            assert_eq!(answer, first_came.then_some(exceeded));
            assert_eq!(rig.poll(), None);
            assert_eq!(rig.buffers_in_use(), 0);
            // The rest comes too late.
            rig.inject("tun0", piece(&net, 7, 80, 240));
            assert!(!rig.has_received(socket));
            rig.advance(2 * timeout);
            rig.output("tun0");
        }
        let timeouts = net.pick(Counter::IpReasmTimeout, Counter::Ip6ReasmTimeout);
        assert_eq!(rig.count(timeouts), 4);
    });
}

/// A flood of first fragments costs what the limit says, and a good datagram still passes.
#[test]
fn a_flood_of_first_fragments_takes_no_more_than_its_share() {
    everywhere(|mut rig, net| {
        let socket = wait(&rig, &net);
        let share = 8_192 / 16;
        for round in 0..20 {
            let flood = (0..200_u32).map(|n| {
                let src: IpAddr = net.pick(net.peer, IpAddr::V6(V6::PEER));
                let fragment = Fragment {
                    protocol: protocol::UDP,
                    id: 1_000 + round * 200 + n,
                    offset: 0,
                    more: true,
                    data: &[1; 16],
                };
                packets::fragment(src, net.own, &fragment)
            });
            rig.inject_all("tun0", flood.collect::<Vec<_>>());
            assert!(
                rig.buffers_in_use() <= share,
                "{} buffers",
                rig.buffers_in_use()
            );
            for (from, to) in [(0, 80), (80, 240)] {
                rig.inject("tun0", piece(&net, 7, from, to));
            }
            assert!(rig.has_received(socket), "round {round}");
        }
        assert!(rig.dropped(DropReason::FragLimit) > 3_000);
        // Those still there expire, and a few are told so.
        rig.advance(Duration::from_secs(100));
        rig.output("tun0");
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// One datagram in more pieces than any link would cut it into.
#[test]
fn a_datagram_in_tiny_pieces_does_not_hold_more_than_its_share() {
    everywhere(|mut rig, net| {
        let pieces = (0..8_000_usize).map(|n| {
            let fragment = Fragment {
                protocol: protocol::UDP,
                id: 7,
                offset: n * 8,
                more: true,
                data: &[1; 8],
            };
            packets::fragment(net.peer, net.own, &fragment)
        });
        rig.inject_all("tun0", pieces.collect::<Vec<_>>());
        assert!(rig.buffers_in_use() <= 8_192 / 16);
        let socket = wait(&rig, &net);
        for (from, to) in [(0, 80), (80, 240)] {
            rig.inject("tun0", piece(&net, 8, from, to));
        }
        assert!(rig.has_received(socket));
    });
}

/// Fragments in transit are nobody's business but their destination's.
#[test]
fn fragments_in_transit_are_forwarded_one_by_one() {
    everywhere(|mut rig, net| {
        let packet = packets::udp(net.peer, net.peer1, PEER_PORT, OWN_PORT, &[7; 1_000]);
        let pieces = packets::fragments(&packet, 7, 400);
        for piece in pieces.iter().rev() {
            rig.inject("tun0", piece);
            let out = rig.output("tun1");
            assert_eq!(out.len(), 1);
            assert_eq!(
                packets::parse(&out[0]).payload,
                packets::parse(piece).payload
            );
        }
        assert!(rig.drops().is_empty());
        let asked = net.pick(Counter::IpReasmReqds, Counter::Ip6ReasmReqds);
        assert_eq!(rig.count(asked), 0);
    });
}
