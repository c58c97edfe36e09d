use core::time::Duration;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::counters::Counter;
use crate::family::{V4, V6};
use crate::ip::bench::{Bench, bytes_of, pattern, v4, v6};
use crate::ip::fragment::fragment;
use crate::wire::{FragmentHeader, ipv4, protocol};

/// A fragment by offset, length and "more", of the datagram that [`pattern`] fills.
type Piece = (usize, usize, bool);

const UDP: u8 = protocol::UDP;

fn piece_v4(id: u16, (offset, len, more): Piece) -> Vec<u8> {
    let flags = if more { ipv4::FLAG_MF } else { 0 };
    let fragment = (offset / 8) as u16 | flags;
    v4(UDP, id, fragment, &[], &pattern(offset + len)[offset..])
}

fn piece_v6(id: u32, (offset, len, more): Piece) -> Vec<u8> {
    let header = FragmentHeader::new(UDP, offset as u16, more, id);
    v6(
        protocol::FRAGMENT,
        &[header.as_bytes(), &pattern(offset + len)[offset..]].concat(),
    )
}

/// Takes packets in as local delivery does; gives the payloads of those that came out whole.
fn take_in<F: Family>(
    bench: &mut Bench,
    packets: impl IntoIterator<Item = Vec<u8>>,
) -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    for bytes in packets {
        let packet = bench.packet(&bytes);
        if let Some(packet) = bench.run(|cx| F::local_in(cx, packet)) {
            whole.push(bytes_of(&packet)[F::HEADER_LEN..].to_vec());
        }
    }
    whole
}

fn pieces_v4(bench: &mut Bench, id: u16, pieces: &[Piece]) -> Vec<Vec<u8>> {
    take_in::<V4>(bench, pieces.iter().map(|piece| piece_v4(id, *piece)))
}

fn pieces_v6(bench: &mut Bench, id: u32, pieces: &[Piece]) -> Vec<Vec<u8>> {
    take_in::<V6>(bench, pieces.iter().map(|piece| piece_v6(id, *piece)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_cut_comes_together_in_any_order(
        len in 1_usize..6_000,
        // Smaller ones make more fragments than a datagram may have.
        mtu in 88_u32..1_500,
        order in any::<[u16; 32]>(),
        chunk in 60_usize..1_800,
        options in prop::sample::select(vec![vec![], vec![148, 4, 0, 0], vec![30, 8, 4, 0, 0, 0, 0, 0]]),
    ) {
        let mut bench = Bench::new();
        // Longer than the MTU: what is not is no fragment.
        let len = len + mtu as usize;
        let datagram = v4(UDP, 99, 0, &options, &pattern(len));
        cut_and_join::<V4>(&mut bench, &datagram, mtu, &order, chunk)?;
        let packet = v6(UDP, &pattern(len));
        // In smaller pieces it would be more of them than a datagram may have.
        cut_and_join::<V6>(&mut bench, &packet, mtu.max(80), &order, chunk)?;
        prop_assert_eq!(bench.in_use(), 0);
    }
}

/// Cuts the packet, shuffles and repeats the fragments, and expects it back once, as it was.
fn cut_and_join<F: Family>(
    bench: &mut Bench,
    bytes: &[u8],
    mtu: u32,
    order: &[u16],
    chunk: usize,
) -> Result<(), TestCaseError> {
    let packet = bench.packet_in_chunks(bytes, chunk);
    let fragments = bench.run(|cx| fragment::<F>(cx, packet, mtu)).unwrap();
    let mut pieces: Vec<Vec<u8>> = fragments.iter().map(bytes_of).collect();
    drop(fragments);
    prop_assert!(pieces.iter().all(|piece| piece.len() <= mtu as usize));
    for (at, key) in order.iter().enumerate() {
        let (at, with) = (at % pieces.len(), usize::from(*key) % pieces.len());
        pieces.swap(at, with);
    }
    // The last one is not repeated: it would wait for the others again.
    let repeated: Vec<_> = pieces[..pieces.len() - 1]
        .iter()
        .filter(|piece| piece[piece.len() - 1] % 2 == 0)
        .cloned()
        .collect();
    pieces.splice(..0, repeated.iter().cloned());

    let mut whole = Vec::new();
    for piece in &pieces {
        let packet = bench.packet_in_chunks(piece, chunk.max(60));
        whole.extend(bench.run(|cx| F::local_in(cx, packet)));
    }
    prop_assert_eq!(whole.len(), 1);
    prop_assert_eq!(bytes_of(&whole[0]), bytes);
    let l4_offset = usize::from(whole[0].l4_offset);
    prop_assert_eq!(whole[0].protocol, UDP);
    prop_assert_eq!(&bytes[l4_offset..], pattern(bytes.len() - l4_offset));
    prop_assert!(whole[0].len() >= bytes.len().min(l4_offset + 60));
    prop_assert!(!whole[0].is_fragment && !whole[0].has_ports);
    Ok(())
}

#[test]
fn contradictions_cost_the_datagram_and_duplicates_do_not() {
    let tables: &[(&str, &[Piece], bool)] = &[
        (
            "in order",
            &[(0, 16, true), (16, 16, true), (32, 5, false)],
            true,
        ),
        (
            "reversed",
            &[(32, 5, false), (16, 16, true), (0, 16, true)],
            true,
        ),
        (
            "first twice",
            &[(0, 16, true), (0, 16, true), (16, 8, false)],
            true,
        ),
        (
            "last twice",
            &[(16, 8, false), (16, 8, false), (0, 16, true)],
            true,
        ),
        (
            "middle twice",
            &[(16, 8, true), (16, 8, true), (24, 8, false), (0, 16, true)],
            true,
        ),
        ("overlap by 8", &[(0, 16, true), (8, 16, false)], false),
        ("overlap backwards", &[(8, 16, false), (0, 16, true)], false),
        (
            "inside another",
            &[(0, 32, true), (8, 8, true), (32, 8, false)],
            false,
        ),
        (
            "around another",
            &[(8, 8, true), (0, 32, true), (32, 8, false)],
            false,
        ),
        (
            "same start",
            &[(0, 16, true), (0, 24, true), (24, 8, false)],
            false,
        ),
        (
            "same end",
            &[(0, 16, true), (8, 8, true), (16, 8, false)],
            false,
        ),
        (
            "two ends, shorter",
            &[(16, 16, false), (16, 8, false), (0, 16, true)],
            false,
        ),
        (
            "two ends, longer",
            &[(16, 8, false), (24, 8, false), (0, 16, true)],
            false,
        ),
        (
            "beyond the end",
            &[(16, 8, false), (24, 8, true), (0, 16, true)],
            false,
        ),
        (
            "end before what came",
            &[(24, 8, true), (8, 8, false), (0, 8, true)],
            false,
        ),
        (
            "end where more follows",
            &[(8, 8, true), (8, 8, false), (0, 8, true)],
            false,
        ),
        (
            "more where the end was",
            &[(8, 8, false), (8, 8, true), (0, 8, true)],
            false,
        ),
        (
            "length no multiple of 8",
            &[(0, 12, true), (16, 8, false)],
            false,
        ),
        ("a gap", &[(0, 8, true), (16, 8, false)], false),
        (
            "without data",
            &[(0, 0, true), (0, 8, true), (8, 0, true), (8, 8, false)],
            true,
        ),
    ];
    for (name, pieces, is_delivered) in tables {
        let mut bench = Bench::new();
        let expected: Vec<Vec<u8>> = match is_delivered {
            true => vec![pattern(
                pieces.iter().map(|piece| piece.0 + piece.1).max().unwrap(),
            )],
            false => vec![],
        };
        assert_eq!(pieces_v4(&mut bench, 7, pieces), expected, "IPv4, {name}");
        assert_eq!(pieces_v6(&mut bench, 7, pieces), expected, "IPv6, {name}");
    }
}

#[test]
fn an_identification_works_again_right_after_a_contradiction() {
    let mut bench = Bench::new();
    let bad = [(0, 16, true), (8, 16, false)];
    let good = [(0, 16, true), (16, 8, false)];
    for _ in 0..3 {
        assert!(pieces_v4(&mut bench, 7, &bad).is_empty());
        assert_eq!(pieces_v4(&mut bench, 7, &good), [pattern(24)]);
        assert!(pieces_v6(&mut bench, 7, &bad).is_empty());
        assert_eq!(pieces_v6(&mut bench, 7, &good), [pattern(24)]);
    }
    assert_eq!(bench.count(Counter::IpReasmReqds), 12);
    assert_eq!(bench.count(Counter::IpReasmOKs), 3);
    assert_eq!(bench.count(Counter::IpReasmFails), 3);
    assert_eq!(bench.count(Counter::Ip6ReasmFails), 3);
    assert_eq!(bench.dropped(DropReason::FragOverlap), 12);
    assert_eq!(bench.count(Counter::IpExtReasmOverlaps), 3);
    assert_eq!(bench.in_use(), 0);
}

#[test]
fn no_datagram_is_longer_than_a_packet_may_be() {
    let mut bench = Bench::new();
    let longest = |end: usize| -> Vec<Piece> {
        let starts = (0..end).step_by(1_400);
        starts
            .map(|start| (start, 1_400.min(end - start), start + 1_400 < end))
            .collect()
    };
    assert_eq!(pieces_v4(&mut bench, 1, &longest(65_515)).len(), 1);
    assert_eq!(pieces_v4(&mut bench, 2, &longest(65_516)).len(), 0);
    assert_eq!(pieces_v6(&mut bench, 1, &longest(65_535)).len(), 1);
    assert!(bench.sent().is_empty());
    assert_eq!(pieces_v6(&mut bench, 2, &[(65_528, 8, false)]).len(), 0);
    assert_eq!(bench.sent().len(), 1, "a parameter problem");
    assert_eq!(bench.dropped(DropReason::FragInvalid), 2);
}

#[test]
fn longer_options_of_the_first_fragment_count() {
    let mut bench = Bench::new();
    let options = [1; 40];
    let mut fragments = vec![];
    for start in (0..65_504).step_by(1_400) {
        let len = 1_400.min(65_504 - start);
        let more = if start + len < 65_504 {
            ipv4::FLAG_MF
        } else {
            0
        };
        let options = if start == 0 { &options[..] } else { &[] };
        fragments.push(v4(
            UDP,
            3,
            (start / 8) as u16 | more,
            options,
            &vec![0; len],
        ));
    }
    assert_eq!(take_in::<V4>(&mut bench, fragments).len(), 0);
    assert_eq!(bench.count(Counter::IpReasmFails), 1);
    assert_eq!(bench.in_use(), 0);
}

#[test]
fn fragments_meet_by_their_whole_key() {
    let mut bench = Bench::new();
    let first = piece_v4(5, (0, 16, true));
    let mut other_source = piece_v4(5, (16, 8, false));
    other_source[15] = 9;
    ipv4::fill_checksum(&mut other_source);
    let other_protocol = v4(protocol::TCP, 5, 2, &[], &[0; 8]);
    let other_id = piece_v4(6, (16, 8, false));
    let others = [first, other_source, other_protocol, other_id];
    assert!(take_in::<V4>(&mut bench, others).is_empty());
    assert_eq!(pieces_v4(&mut bench, 5, &[(16, 8, false)]), [pattern(24)]);

    // IPv6 takes the protocol from the first fragment alone (RFC 8200 section 4.5).
    let mut last = piece_v6(5, (16, 8, false));
    last[40] = protocol::TCP;
    assert!(pieces_v6(&mut bench, 5, &[(0, 16, true)]).is_empty());
    assert_eq!(take_in::<V6>(&mut bench, [last]), [pattern(24)]);
}

#[test]
fn an_atomic_fragment_meets_no_others() {
    let mut bench = Bench::new();
    assert!(pieces_v6(&mut bench, 5, &[(0, 16, true)]).is_empty());
    assert_eq!(pieces_v6(&mut bench, 5, &[(0, 10, false)]).len(), 1);
    assert_eq!(pieces_v6(&mut bench, 5, &[(16, 8, false)]), [pattern(24)]);
}

#[test]
fn a_flood_of_first_fragments_leaves_memory_flat_and_others_pass() {
    const GOOD: u16 = 50_001;
    let mut bench = Bench::with_buffers(8_192);
    let share = 8_192 / POOL_SHARE;
    for id in 0..50_000_u16 {
        pieces_v4(&mut bench, id, &[(0, 16, true)]);
        pieces_v6(&mut bench, id.into(), &[(0, 16, true)]);
        // Half of a good datagram, and its other half when as many others came as an eighth of what
        // may wait.
        if id % 5_000 == 0 {
            pieces_v4(&mut bench, GOOD, &[(8, 8, false)]);
            pieces_v6(&mut bench, GOOD.into(), &[(8, 8, false)]);
        }
        if id % 5_000 == 64 {
            assert_eq!(pieces_v4(&mut bench, GOOD, &[(0, 8, true)]), [pattern(16)]);
            assert_eq!(
                pieces_v6(&mut bench, GOOD.into(), &[(0, 8, true)]),
                [pattern(16)]
            );
        }
        if id % 1_000 == 0 {
            assert!(bench.in_use() <= 2 * share);
        }
    }
    let waiting = bench.in_use();
    assert!(
        (2 * share - 2..=2 * share).contains(&waiting),
        "full, and no more: {waiting}"
    );
    assert_eq!(
        bench.dropped(DropReason::FragLimit) + waiting as u64,
        100_000
    );
    bench.advance(Duration::from_secs(61));
    expire(&mut bench);
    drop(bench.sent());
    assert_eq!(bench.in_use(), 0);
}

#[test]
fn the_knob_bounds_memory_and_zero_switches_reassembly_off() {
    let mut bench = Bench::new();
    bench.set("net.ipv4.ipfrag_high_thresh", 2 * STRIDE as i64);
    for id in 0..10 {
        pieces_v4(&mut bench, id, &[(0, 16, true)]);
        assert!(bench.in_use() <= 2);
    }
    bench.set("net.ipv4.ipfrag_high_thresh", 0);
    assert!(pieces_v4(&mut bench, 11, &[(0, 16, true), (16, 8, false)]).is_empty());
    assert_eq!(bench.dropped(DropReason::FragLimit), 8 + 2);
}

#[test]
fn one_datagram_has_only_so_many_fragments() {
    let mut bench = Bench::with_buffers(16_384);
    let pieces: Vec<Piece> = (0..=MAX_FRAGMENTS).map(|at| (at * 8, 8, true)).collect();
    pieces_v4(&mut bench, 1, &pieces[..MAX_FRAGMENTS]);
    assert_eq!(bench.in_use(), MAX_FRAGMENTS);
    pieces_v4(&mut bench, 1, &pieces[MAX_FRAGMENTS..]);
    assert_eq!(bench.in_use(), 0);
    assert_eq!(bench.count(Counter::IpReasmFails), 1);
}

fn expire(bench: &mut Bench) -> Option<Instant> {
    bench.run(|cx| {
        let (v4, v6) = (&cx.stack.reassembly4, &cx.stack.reassembly6);
        v4.expire(cx).into_iter().chain(v6.expire(cx)).min()
    })
}

#[test]
fn time_runs_out_with_an_answer_only_for_who_sent_the_first_fragment() {
    let mut bench = Bench::new();
    assert_eq!(expire(&mut bench), None);
    pieces_v4(&mut bench, 1, &[(0, 16, true)]);
    pieces_v4(&mut bench, 2, &[(16, 8, false)]);
    pieces_v6(&mut bench, 1, &[(0, 16, true)]);
    pieces_v6(&mut bench, 2, &[(16, 8, false)]);
    assert_eq!(
        expire(&mut bench),
        Some(Instant::from_nanos(31_000_000_000))
    );

    bench.advance(Duration::from_millis(29_999));
    expire(&mut bench);
    assert_eq!(bench.count(Counter::IpReasmTimeout), 0);
    bench.advance(Duration::from_millis(1));
    assert_eq!(
        expire(&mut bench),
        Some(Instant::from_nanos(61_000_000_000))
    );
    assert_eq!(bench.count(Counter::IpReasmTimeout), 2);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][20..22], [11, 1]);
    assert_eq!(
        sent[0][28 + 4..28 + 6],
        [0, 1],
        "about the datagram whose first fragment came"
    );

    bench.advance(Duration::from_secs(30));
    assert_eq!(expire(&mut bench), None);
    assert_eq!(bench.count(Counter::Ip6ReasmTimeout), 2);
    assert_eq!(bench.count(Counter::Ip6ReasmFails), 2);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][40..42], [3, 1]);
    assert_eq!(bench.dropped(DropReason::FragTimeout), 4);
    assert_eq!(bench.in_use(), 0);
}

#[test]
fn congestion_marks_survive_and_impossible_ones_cost_the_datagram() {
    const NOT_ECT: u8 = 0;
    const ECT1: u8 = 1;
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    let table = [
        (NOT_ECT, NOT_ECT, Some(NOT_ECT)),
        (ECT0, ECT0, Some(ECT0)),
        (ECT1, ECT1, Some(ECT1)),
        (ECT0, CE, Some(CE)),
        (CE, ECT0, Some(CE)),
        (CE, CE, Some(CE)),
        (NOT_ECT, CE, None),
        (CE, NOT_ECT, None),
        (ECT0, NOT_ECT, Some(ECT0)),
    ];
    for (first, last, expected) in table {
        let mut bench = Bench::new();
        let mut fragments = [piece_v4(1, (0, 8, true)), piece_v4(1, (8, 8, false))];
        let mut fragments6 = [piece_v6(1, (0, 8, true)), piece_v6(1, (8, 8, false))];
        for (fragment, ecn) in fragments.iter_mut().zip([first, last]) {
            fragment[1] |= ecn;
            ipv4::fill_checksum(fragment);
        }
        for (fragment, ecn) in fragments6.iter_mut().zip([first, last]) {
            fragment[1] |= ecn << 4;
        }
        let joined = whole::<V4>(&mut bench, &fragments);
        assert_eq!(
            joined.map(|bytes| bytes[1] & 3),
            expected,
            "IPv4, {first} and {last}"
        );
        let joined = whole::<V6>(&mut bench, &fragments6);
        assert_eq!(
            joined.map(|bytes| bytes[1] >> 4 & 3),
            expected,
            "IPv6, {first} and {last}"
        );
    }

    fn whole<F: Family>(bench: &mut Bench, fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut whole = None;
        for fragment in fragments {
            let packet = bench.packet(fragment);
            whole = bench
                .run(|cx| F::local_in(cx, packet))
                .map(|packet| bytes_of(&packet));
        }
        whole
    }
}

#[test]
fn headers_in_front_of_the_fragment_header_are_the_first_fragments() {
    let mut bench = Bench::new();
    let options = [protocol::FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
    let header = |offset, more| FragmentHeader::new(UDP, offset, more, 8);
    let first = [&options[..], header(0, true).as_bytes(), &pattern(16)].concat();
    let last = [header(16, false).as_bytes(), &pattern(24)[16..]].concat();
    let fragments = [
        v6(protocol::FRAGMENT, &last),
        v6(protocol::DESTINATION_OPTIONS, &first),
    ];
    let expected = [&[UDP][..], &options[1..], &pattern(24)].concat();
    assert_eq!(take_in::<V6>(&mut bench, fragments), [expected]);
}

#[test]
fn cores_share_what_waits() {
    let stack = crate::Stack::new(&crate::StackConfig::default());
    let halves = [(0, 16, true), (16, 8, false)];
    let whole = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for half in halves {
            let (stack, whole) = (&stack, &whole);
            scope.spawn(move || {
                let mut core = stack.core();
                for id in 0..2_000 {
                    let bytes = piece_v4(id, half);
                    let now = Instant::from_nanos(id.into());
                    let packet = stack.with_core(&mut core, now, |cx| {
                        let mut packet = cx.core.alloc().unwrap();
                        packet.put(bytes.len()).unwrap().copy_from_slice(&bytes);
                        stack.reassembly4.expire(cx);
                        local_in_v4(cx, packet)
                    });
                    whole.fetch_add(packet.iter().count(), Relaxed);
                }
            });
        }
    });
    // One core may be ahead by more than what may wait.
    let counters = stack.counters();
    let lost = counters.get(Counter::IpReasmFails);
    let whole = whole.into_inner() as u64;
    assert_eq!(counters.get(Counter::IpReasmOKs), whole);
    assert!(whole <= 2_000 && 2 * whole + lost <= 4_000);
    assert_eq!(
        stack.reassembly4.memory.load(Relaxed) / STRIDE,
        stack.pool().in_use()
    );
    assert!(lost > 0 || whole == 2_000);
}
