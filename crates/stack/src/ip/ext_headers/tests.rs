use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::counters::Counter;
use crate::ip::bench::{Bench, bytes_of, pattern, v6};
use crate::packet::Verdict;
use crate::receive::act;

const UDP: u8 = protocol::UDP;
const HBH: u8 = protocol::HOP_BY_HOP;
const DST: u8 = protocol::DESTINATION_OPTIONS;
const ROUTING: u8 = protocol::ROUTING;
const FRAGMENT: u8 = protocol::FRAGMENT;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Protocol and place of what lies behind the extension headers.
    Arrives(u8, u16),
    Silence(DropReason),
    /// Code and pointer of the parameter problem.
    Told(u8, u32, DropReason),
    Waits,
}
use End::{Arrives, Silence, Told, Waits};

/// Validation's part and then the walk, as far as the packet gets.
fn end_of(bench: &mut Bench, bytes: &[u8]) -> End {
    let packet = bench.packet_in_chunks(bytes, 48);
    let before = bench.stack.counters();
    let arrived = match packet.verdict {
        Verdict::Undecided => bench.run(|cx| walk(cx, packet)),
        _ => {
            bench.run(|cx| act(cx, packet));
            None
        }
    };
    if let Some(packet) = arrived {
        return Arrives(packet.protocol, packet.l4_offset);
    }
    let after = bench.stack.counters();
    let is_new = |reason: &&DropReason| after.dropped(**reason) > before.dropped(**reason);
    let Some(reason) = DropReason::ALL.iter().find(is_new).copied() else {
        return Waits;
    };
    match bench.sent().as_slice() {
        [] => Silence(reason),
        [answer] => {
            assert_eq!((answer[6], answer[40]), (protocol::ICMPV6, 4));
            let pointer = answer[44..48].try_into().unwrap();
            Told(answer[41], u32::from_be_bytes(pointer), reason)
        }
        more => panic!("{} answers", more.len()),
    }
}

fn end(next_header: u8, payload: &[u8]) -> End {
    end_of(&mut Bench::new(), &v6(next_header, payload))
}

fn end_at_group(next_header: u8, payload: &[u8]) -> End {
    let mut bytes = v6(next_header, payload);
    bytes[24..40].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    end_of(&mut Bench::new(), &bytes)
}

/// An extension header that is `next` and whatever follows, behind it a UDP header.
fn before_udp(rest: &[u8]) -> Vec<u8> {
    [&[UDP], rest, &[0; 8]].concat()
}

#[test]
fn an_unknown_option_says_itself_what_to_do() {
    for (place, is_dst) in [(HBH, false), (DST, true)] {
        let option = |kind| before_udp(&[0, 1, 0, kind, 2, 9, 9]);
        assert_eq!(end(place, &option(0x3e)), Arrives(UDP, 48));
        assert_eq!(end(place, &option(0x7e)), Silence(DropReason::Ipv6Option));
        assert_eq!(
            end(place, &option(0xbe)),
            Told(2, 44, DropReason::Ipv6Option)
        );
        assert_eq!(
            end(place, &option(0xfe)),
            Told(2, 44, DropReason::Ipv6Option)
        );
        assert_eq!(
            end_at_group(place, &option(0xbe)),
            Told(2, 44, DropReason::Ipv6Option)
        );
        assert_eq!(
            end_at_group(place, &option(0xfe)),
            Silence(DropReason::Ipv6Option)
        );
        // A jumbo payload is known to hop-by-hop options only.
        let jumbo = before_udp(&[0, 194, 4, 0, 1, 0, 0]);
        let expected = match is_dst {
            true => Told(2, 42, DropReason::Ipv6Option),
            false => Told(0, 42, DropReason::Ipv6ExtHdr),
        };
        assert_eq!(end(place, &jumbo), expected);
    }
}

#[test]
fn options_are_padded_and_bounded() {
    let malformed = Silence(DropReason::Ipv6ExtHdr);
    for place in [HBH, DST] {
        let table: &[(&str, Vec<u8>, End)] = &[
            ("PadN", before_udp(&[0, 1, 4, 0, 0, 0, 0]), Arrives(UDP, 48)),
            (
                "six Pad1",
                before_udp(&[0, 0, 0, 0, 0, 0, 0]),
                Arrives(UDP, 48),
            ),
            (
                "padding that says something",
                before_udp(&[0, 1, 4, 0, 0, 1, 0]),
                malformed,
            ),
            (
                "eight bytes of padding",
                before_udp(&[1, 1, 6, 0, 0, 0, 0, 0, 0, 0x1e, 4, 0, 0, 0, 0]),
                malformed,
            ),
            (
                "length beyond the header",
                before_udp(&[0, 0x1e, 5, 0, 0, 0, 0]),
                malformed,
            ),
            (
                "no room for a length",
                before_udp(&[0, 1, 3, 0, 0, 0, 0x1e]),
                malformed,
            ),
            (
                "header beyond the packet",
                before_udp(&[2, 1, 4, 0, 0, 0, 0]),
                malformed,
            ),
            ("header cut", vec![UDP, 0, 1, 4], malformed),
            ("nothing at all", vec![], malformed),
        ];
        for (name, payload, expected) in table {
            assert_eq!(end(place, payload), *expected, "{name} in {place}");
        }
        let many = |count: usize| {
            let options = [0x1e, 0].repeat(count);
            let mut header = [&[UDP, 0][..], &options].concat();
            header.resize(header.len().next_multiple_of(8), 0);
            header[1] = (header.len() / 8 - 1) as u8;
            [header, vec![0; 8]].concat()
        };
        assert_eq!(end(place, &many(8)), Arrives(UDP, 64));
        assert_eq!(end(place, &many(9)), malformed);
        let mut bench = Bench::new();
        bench.set("net.ipv6.max_hbh_opts_number", 2);
        bench.set("net.ipv6.max_dst_opts_number", 2);
        assert_eq!(end_of(&mut bench, &v6(place, &many(2))), Arrives(UDP, 48));
        assert_eq!(end_of(&mut bench, &v6(place, &many(3))), malformed);
    }
}

#[test]
fn router_alert_and_jumbo_payload_have_rules() {
    let malformed = Silence(DropReason::Ipv6ExtHdr);
    assert_eq!(
        end(HBH, &before_udp(&[0, 5, 2, 0, 0, 1, 0])),
        Arrives(UDP, 48)
    );
    assert_eq!(end(HBH, &before_udp(&[0, 5, 1, 0, 1, 1, 0])), malformed);
    // A length that needs no jumbo payload; one beside a payload length; a misplaced option; and
    // one that is longer than what came.
    let too_short = before_udp(&[0, 194, 4, 0, 0, 0xff, 0xff]);
    assert_eq!(end(HBH, &too_short), Told(0, 44, DropReason::Ipv6ExtHdr));
    let misplaced = before_udp(&[1, 0, 194, 4, 0, 1, 0, 0, 1, 5, 0, 0, 0, 0, 0]);
    assert_eq!(end(HBH, &misplaced), malformed);
    let mut bytes = v6(HBH, &before_udp(&[0, 194, 4, 0, 1, 0, 0]));
    bytes[4..6].fill(0);
    assert_eq!(
        end_of(&mut Bench::new(), &bytes),
        Silence(DropReason::PktTooSmall)
    );
}

#[test]
fn headers_come_in_any_order_but_hop_by_hop_first() {
    let pad = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let chain = |headers: &[[u8; 8]]| [headers.concat(), vec![0; 8]].concat();
    let routing = |next, segments_left| [next, 0, 99, segments_left, 0, 0, 0, 0];

    assert_eq!(end(HBH, &chain(&[pad(DST), pad(UDP)])), Arrives(UDP, 56));
    let mixed = chain(&[pad(ROUTING), routing(DST, 0), pad(UDP)]);
    assert_eq!(end(DST, &mixed), Arrives(UDP, 64));
    let hop_by_hop_told = |pointer| Told(1, pointer, DropReason::Ipv6ExtHdr);
    assert_eq!(end(DST, &chain(&[pad(HBH), pad(UDP)])), hop_by_hop_told(40));
    assert_eq!(end(HBH, &chain(&[pad(HBH), pad(UDP)])), hop_by_hop_told(40));
    assert_eq!(
        end(HBH, &chain(&[pad(DST), pad(HBH), pad(UDP)])),
        hop_by_hop_told(48)
    );

    assert_eq!(end(ROUTING, &chain(&[routing(UDP, 0)])), Arrives(UDP, 48));
    for kind in [0, 2, 4, 99] {
        let mut header = routing(UDP, 1);
        header[2] = kind;
        assert_eq!(
            end(ROUTING, &chain(&[header])),
            Told(0, 42, DropReason::SourceRoute)
        );
    }
    let second = chain(&[pad(ROUTING), routing(UDP, 3)]);
    assert_eq!(end(DST, &second), Told(0, 50, DropReason::SourceRoute));

    let nothing = pad(protocol::NO_NEXT_HEADER);
    assert_eq!(end(DST, &nothing), Silence(DropReason::ProtocolIgnored));
    // What it arrives at is for delivery to judge.
    assert_eq!(end(DST, &chain(&[pad(253)])), Arrives(253, 48));
}

fn fragment_of(offset: u16, more: bool, next: u8, data: &[u8]) -> Vec<u8> {
    let header = FragmentHeader::new(next, offset, more, 77);
    [header.as_bytes(), data].concat()
}

#[test]
fn a_fragment_of_a_fragment_is_refused() {
    let told = Told(0, 48, DropReason::Ipv6ExtHdr);
    let inner = |offset| fragment_of(offset, offset == 0, UDP, &[0; 8]);
    // Both atomic, and a real one inside.
    for inner in [fragment_of(0, false, UDP, &[0; 8]), inner(0), inner(8)] {
        assert_eq!(
            end(FRAGMENT, &fragment_of(0, false, FRAGMENT, &inner)),
            told
        );
    }
}

#[test]
fn fragments_that_can_not_be_are_answered() {
    let told = |code, pointer| Told(code, pointer, DropReason::FragInvalid);
    let one = |offset, more, len| end(FRAGMENT, &fragment_of(offset, more, UDP, &pattern(len)));
    assert_eq!(one(0, true, 16), Waits);
    assert_eq!(one(0, true, 15), told(0, 4));
    assert_eq!(one(8, true, 15), told(0, 4));
    assert_eq!(one(65_528, false, 8), told(0, 42));
    assert_eq!(one(65_528, true, 8), told(0, 42));
    assert_eq!(one(65_528, false, 7), Waits);
    assert_eq!(one(8, true, 0), Silence(DropReason::FragInvalid));
    assert_eq!(one(0, false, 8), Arrives(UDP, 48));
    assert_eq!(
        end(FRAGMENT, &[UDP, 0, 0, 1, 0, 0]),
        Told(0, 40, DropReason::Ipv6ExtHdr)
    );

    // Behind another header the offset field lies farther back.
    let pad = [FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
    let far = [&pad[..], &fragment_of(65_528, false, UDP, &[0; 8])].concat();
    assert_eq!(end(DST, &far), told(0, 50));
}

#[test]
fn a_first_fragment_holds_all_headers() {
    let told = Told(3, 0, DropReason::FragInvalid);
    let first = |next, data: &[u8]| end(FRAGMENT, &fragment_of(0, true, next, data));
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(first(protocol::TCP, &[0; 16]), told);
    assert_eq!(first(protocol::TCP, &[0; 24]), Waits);
    assert_eq!(first(UDP, &[]), told);
    assert_eq!(first(UDP, &[0; 8]), Waits);
    assert_eq!(first(DST, &options(UDP)), told);
    assert_eq!(first(DST, &[options(UDP), [0; 8]].concat()), Waits);
    assert_eq!(first(DST, &[UDP, 9, 0, 0, 0, 0, 0, 0]), told);
    assert_eq!(first(253, &[]), told);
    assert_eq!(first(protocol::NO_NEXT_HEADER, &[0; 8]), Waits);
    // Only the first has to.
    assert_eq!(
        end(FRAGMENT, &fragment_of(8, true, protocol::TCP, &[0; 8])),
        Waits
    );
}

#[test]
fn headers_behind_the_fragment_header_are_walked_when_all_is_there() {
    let mut bench = Bench::new();
    let options = [UDP, 0, 1, 0, 0xbe, 2, 9, 9];
    let first = fragment_of(0, true, DST, &[&options[..], &pattern(8)].concat());
    let last = fragment_of(16, false, DST, &pattern(8));
    assert_eq!(end_of(&mut bench, &v6(FRAGMENT, &last)), Waits);
    let told = Told(2, 44, DropReason::Ipv6Option);
    assert_eq!(end_of(&mut bench, &v6(FRAGMENT, &first)), told);
    assert_eq!(bench.count(Counter::Ip6ReasmOKs), 1);
    assert_eq!(bench.in_use(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nonsense_neither_panics_nor_leaks(
        first in prop::sample::select(vec![HBH, DST, ROUTING, FRAGMENT]),
        mut payload in prop::collection::vec(any::<u8>(), 0..300),
        links in prop::collection::vec((0_usize..40, prop::sample::select(vec![HBH, DST, ROUTING, FRAGMENT, UDP])), 0..8),
        lengths in prop::collection::vec(0_usize..40, 0..8),
        chunk in 40_usize..200,
    ) {
        // Types that are known, lengths that are small, here and there where headers begin.
        for (at, kind) in links {
            payload.get_mut(at * 8).into_iter().for_each(|byte| *byte = kind);
        }
        for at in lengths {
            payload.get_mut(at * 8 + 1).into_iter().for_each(|byte| *byte &= 3);
        }
        let mut bench = Bench::new();
        let packet = bench.packet_in_chunks(&v6(first, &payload), chunk);
        let total = packet.total_len();
        if let Some(packet) = bench.run(|cx| walk(cx, packet)) {
            prop_assert!(bytes_of(&packet).len() <= total);
            prop_assert!(usize::from(packet.l4_offset) <= total);
        }
        bench.run(|cx| cx.stack.reassembly6.expire(cx));
    }
}
