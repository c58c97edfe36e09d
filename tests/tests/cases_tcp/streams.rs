//! What segments carry: overlaps, the end of the stream, old timestamps, urgent bytes.

use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::{TcpError, TcpOption, TcpState};
use forebay_stack::wire::tcp::FLAG_URG;

use crate::peer::{ACK, FIN, Offer, PSH, RST};
use crate::world::everywhere;

/// Bytes at places of the stream.
type Pieces = &'static [(i64, &'static [u8])];

/// What is in order wins over what waits behind it; of what waits, what came first. Linux has some
/// of the latter replaced by what comes later.
#[test]
fn overlaps_have_one_outcome() {
    let cases: [(Pieces, &[u8]); 9] = [
        (&[(3, b"DEF"), (0, b"abcxyz")], b"abcxyz"),
        (&[(3, b"DE"), (3, b"XYZW"), (0, b"abc")], b"abcDEZW"),
        (&[(3, b"XYZW"), (3, b"DE"), (0, b"abc")], b"abcXYZW"),
        (&[(4, b"EF"), (2, b"cde"), (0, b"ab")], b"abcdEF"),
        (&[(2, b"c"), (4, b"e"), (1, b"BCDEF"), (0, b"a")], b"aBcDeF"),
        (&[(0, b"abc"), (0, b"xyzd")], b"abcd"),
        (&[(0, b"abc"), (-1, b"_xyzd")], b"abcd"),
        (&[(-2, b"__ab"), (1, b"Bc")], b"abc"),
        (&[(6, b"g"), (3, b"def"), (0, b"abcdefg")], b"abcdefg"),
    ];
    for (pieces, expected) in cases {
        for sack in [false, true] {
            everywhere(|world| {
                let mut peer = world.peer().offering(Offer {
                    sack,
                    ..Offer::PLAIN
                });
                let id = world.connection_with(&mut peer);
                for (offset, bytes) in pieces {
                    peer.send(&mut world.rig, &peer.segment(*offset, ACK).with(bytes));
                }
                assert_eq!(world.read_all(id), expected);
                world.pass(Duration::from_secs(1));
                let last = peer.answers(&mut world.rig).pop().expect("an answer");
                let next = peer.seq.wrapping_add(expected.len() as u32);
                assert_eq!(last.ack, next);
                // What came twice at last is told of (RFC 2883), what is missing is not left.
                assert!(
                    last.sacked()
                        .iter()
                        .all(|(_, end)| next.wrapping_sub(*end) < 100)
                );
            });
        }
    }
}

/// RFC 2018: what waits behind a gap is told, the newest first; without the option, nothing.
#[test]
fn what_waits_behind_a_gap_is_acknowledged_at_once() {
    for sack in [false, true] {
        everywhere(|world| {
            let mut peer = world.peer().offering(Offer {
                sack,
                ..Offer::PLAIN
            });
            let id = world.connection_with(&mut peer);
            let at = |n: u32| peer.seq.wrapping_add(n);
            let blocks = [(at(3), at(6)), (at(9), at(12))];
            for (offset, bytes, expected) in [
                (3, b"def", vec![blocks[0]]),
                (9, b"jkl", vec![blocks[1], blocks[0]]),
            ] {
                let ahead = peer.segment(offset, ACK).with(bytes);
                let answer = world.answered(&mut peer, &ahead);
                assert_eq!(answer.brief(), peer.plain_ack());
                assert_eq!(answer.sacked(), if sack { expected } else { Vec::new() });
            }
            assert_eq!(world.read(id), Ok(None));
            let first = peer.segment(0, ACK).with(b"abc");
            let answer = world.answered(&mut peer, &first);
            assert_eq!(answer.ack, peer.seq.wrapping_add(6));
            assert_eq!(world.read_all(id), b"abcdef");
        });
    }
}

/// RFC 9293 section 3.10.7.4: also one that comes too early counts, once the gap is filled.
#[test]
fn a_fin_counts_when_all_before_it_has_come() {
    type Segments = &'static [(i64, u8, &'static [u8])];
    let cases: [(Segments, &[u8]); 5] = [
        (&[(0, ACK | FIN, b"")], b""),
        (&[(0, ACK | FIN, b"abc")], b"abc"),
        (&[(3, ACK | FIN, b""), (0, ACK, b"abc")], b"abc"),
        (&[(3, ACK | FIN, b"def"), (0, ACK, b"abc")], b"abcdef"),
        (&[(3, ACK | FIN, b"def"), (0, ACK, b"abcdef")], b"abcdef"),
    ];
    for (segments, expected) in cases {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            let (last, early) = segments.split_last().expect("a segment");
            for (offset, flags, bytes) in early {
                let early = peer.segment(*offset, *flags).with(bytes);
                let answer = world.answered(&mut peer, &early);
                assert_eq!(answer.brief(), peer.plain_ack());
                assert_eq!(world.state(id), TcpState::Established);
                assert_eq!(world.read(id), Ok(None));
            }
            let (offset, flags, bytes) = last;
            let last = peer.segment(*offset, *flags).with(bytes);
            let answer = world.answered(&mut peer, &last);
            let next = peer.seq.wrapping_add(expected.len() as u32 + 1);
            assert_eq!(answer.brief(), (peer.ack, next, ACK, &b""[..]));
            assert_eq!(world.state(id), TcpState::CloseWait);
            assert_eq!(world.read_all(id), expected);
            assert_eq!(world.read(id), Ok(Some(Vec::new())));
            assert!(world.rig.stack.tcp_readiness(id).expect("open").read_closed);
            // The peer says it again: it has not heard.
            let again = peer.segment(expected.len() as i64, ACK | FIN);
            let answer = world.answered(&mut peer, &again);
            assert_eq!(answer.brief(), (peer.ack, next, ACK, &b""[..]));
        });
    }
}

/// A FIN takes no room, so it counts right behind bytes that fill the window; not beyond.
#[test]
fn a_fin_beyond_the_window_does_not_count() {
    for beyond in [0, 1, 100] {
        everywhere(|world| {
            let listener = world.listen(8);
            world.set(listener, TcpOption::ReceiveBuffer(2_000));
            let mut peer = world.peer();
            let id = peer.connect(&mut world.rig, listener);
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            let window = info.rcv_wnd as usize;
            let full = peer
                .segment(0, ACK | FIN | PSH)
                .with(&vec![b'x'; window + beyond]);
            peer.exchange(&mut world.rig, &full);
            assert_eq!(world.read_all(id).len(), window);
            if beyond == 0 {
                assert_eq!(world.state(id), TcpState::CloseWait);
                assert_eq!(world.read(id), Ok(Some(Vec::new())));
                return;
            }
            assert_eq!(world.state(id), TcpState::Established);
            assert_eq!(world.read(id), Ok(None));
            world.pass(Duration::from_secs(1));
            let answer = peer.answers(&mut world.rig).pop().expect("a window");
            assert_eq!(answer.ack, peer.seq.wrapping_add(window as u32));
            assert!(answer.window > 0);
            let fin = peer
                .segment(window as i64, ACK | FIN)
                .with(&vec![b'x'; beyond]);
            world.answered(&mut peer, &fin);
            assert_eq!(world.read_all(id).len(), beyond);
            assert_eq!(world.state(id), TcpState::CloseWait);
        });
    }
}

/// RFC 7323 section 5, and that a segment without a timestamp is taken as Linux takes it, against
/// section 3.2.
#[test]
fn an_old_timestamp_is_a_duplicate_s() {
    for start in [1_000, 0, 0xffff_ff00, 0x7fff_ff00_u32] {
        everywhere(|world| {
            let offer = Offer {
                timestamps: Some(start),
                ..Offer::PLAIN
            };
            let mut peer = world.peer().offering(offer);
            let id = world.connection_with(&mut peer);
            peer.offer.timestamps = Some(start.wrapping_add(1_000));
            let answers = peer.say(&mut world.rig, b"new");
            assert_eq!(world.read_all(id), b"new");
            let echo = answers[0].timestamps_option().expect("timestamps").1;
            assert_eq!(echo, start.wrapping_add(1_000));

            peer.offer.timestamps = Some(start.wrapping_add(500));
            let old = peer.segment(0, ACK | PSH).with(b"old");
            let answer = world.answered(&mut peer, &old);
            assert_eq!(answer.brief(), peer.plain_ack());
            assert_eq!(world.read(id), Ok(None));
            assert_eq!(world.rig.count(Counter::TcpExtPAWSEstab), 1);
            // Its FIN, too.
            let old = peer.segment(0, ACK | FIN);
            world.pass(Duration::from_secs(1));
            world.answered(&mut peer, &old);
            assert_eq!(world.state(id), TcpState::Established);

            // Without any.
            let mut bare = peer.segment(0, ACK | PSH).with(b"bare");
            bare.options.clear();
            world.answered(&mut peer, &bare);
            assert_eq!(world.read_all(id), b"bare");
            peer.seq = peer.seq.wrapping_add(4);

            let reset = peer.segment(0, RST);
            world.unanswered(&mut peer, &reset);
            assert_eq!(world.read(id), Err(TcpError::ConnectionReset));
        });
    }
}

/// A duplicate behind the window that is old must not move TS.Recent (RFC 7323 section 4.3).
#[test]
fn the_echo_is_of_the_segment_at_the_left_edge() {
    everywhere(|world| {
        let offer = Offer {
            timestamps: Some(100),
            sack: true,
            ..Offer::PLAIN
        };
        let mut peer = world.peer().offering(offer);
        world.connection_with(&mut peer);
        for (now, offset, expected) in [(200, 3, 100), (300, 6, 100), (400, 0, 400)] {
            peer.offer.timestamps = Some(now);
            let segment = peer.segment(offset, ACK).with(b"abc");
            let answer = world.answered(&mut peer, &segment);
            let (_, echo) = answer.timestamps_option().expect("timestamps");
            assert_eq!(echo, expected);
        }
    });
}

/// As BSD and Linux have it, against RFC 9293 and RFC 6093: the pointer is behind the urgent byte.
#[test]
fn the_urgent_byte_is_apart_from_the_stream() {
    type Reads = &'static [&'static [u8]];
    let cases: [(u16, Reads, Option<u8>); 5] = [
        (0, &[b"bc"], Some(b'a')),
        (1, &[b"bc"], Some(b'a')),
        (2, &[b"a", b"c"], Some(b'b')),
        (3, &[b"ab"], Some(b'c')),
        (500, &[b"abc"], None),
    ];
    for (pointer, reads, urgent) in cases {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            let mut segment = peer.segment(0, ACK | PSH | FLAG_URG).with(b"abc");
            segment.urgent = pointer;
            peer.exchange(&mut world.rig, &segment);
            for read in reads {
                assert_eq!(world.read(id), Ok(Some(read.to_vec())), "{pointer}");
            }
            assert_eq!(world.read(id), Ok(None), "{pointer}");
            let byte = world.rig.stack.tcp_recv_urgent(world.rig.now(), id, false);
            if pointer == 3 {
                // Read up to the mark, it can still be taken.
                assert_eq!(byte, Ok(urgent));
            }
            peer.seq = peer.seq.wrapping_add(3);
            peer.say(&mut world.rig, b"rest");
            assert_eq!(world.read_all(id), b"rest");
        });
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            let mut segment = peer.segment(0, ACK | PSH | FLAG_URG).with(b"abc");
            segment.urgent = pointer;
            peer.exchange(&mut world.rig, &segment);
            let byte = world.rig.stack.tcp_recv_urgent(world.rig.now(), id, false);
            assert_eq!(byte, Ok(urgent), "{pointer}");
        });
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            world.set(id, TcpOption::OobInline(true));
            let mut segment = peer.segment(0, ACK | PSH | FLAG_URG).with(b"abc");
            segment.urgent = pointer;
            peer.exchange(&mut world.rig, &segment);
            assert_eq!(world.read_all(id), b"abc");
        });
    }
}

/// RFC 5961 section 5.2, and what Linux makes of an acknowledgement of what was never sent.
#[test]
fn an_acknowledgement_must_be_of_something_sent() {
    for (ack, is_taken, is_challenged) in [
        (0, true, false),
        (-3, true, false),
        (1, false, false),
        (1 << 31, false, true),
        (-70_000, false, true),
        (-4, false, true),
    ] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            assert_eq!(world.write(id, b"abc"), 3);
            let data = peer.answer(&mut world.rig);
            assert_eq!(data.payload, b"abc");
            peer.ack = peer.ack.wrapping_add(3);
            let acked = peer.segment(0, ACK);
            world.unanswered(&mut peer, &acked);
            let mut segment = peer.segment(0, ACK | PSH).with(b"xyz");
            segment.ack = peer.ack.wrapping_add(ack as u32);
            let answers = peer.exchange(&mut world.rig, &segment);
            let read = is_taken.then(|| b"xyz".to_vec());
            assert_eq!(world.read(id), Ok(read), "{ack}");
            assert_eq!(
                answers.len(),
                usize::from(is_taken || is_challenged),
                "{ack}"
            );
            let challenges = world.rig.count(Counter::TcpExtTCPChallengeACK);
            assert_eq!(challenges, u64::from(is_challenged), "{ack}");
        });
    }
}

/// Segments that say nothing that counts.
#[test]
fn a_segment_without_ack_is_nothing() {
    for flags in [0, FIN, PSH, FIN | PSH] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            let segment = peer.segment(0, flags).with(b"abc");
            world.unanswered(&mut peer, &segment);
            assert_eq!(world.read(id), Ok(None));
            assert_eq!(world.state(id), TcpState::Established);
        });
    }
}
