//! What time does: retransmission, keepalive, the user's patience, windows that are shut, delayed
//! acknowledgements.

use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::{TcpError, TcpOption, TcpState};

use crate::peer::{ACK, FIN, Offer, PSH, Peer, RST, Segment};
use crate::world::{World, everywhere};

/// Lets time pass in steps, and notes in milliseconds when segments come.
fn watch(world: &mut World, peer: &mut Peer, seconds: u32) -> Vec<(u128, Segment)> {
    let start = world.rig.now();
    let mut seen = Vec::new();
    for _ in 0..seconds * 100 {
        world.pass(Duration::from_millis(10));
        let passed = (world.rig.now() - start).as_millis();
        seen.extend(
            peer.answers(&mut world.rig)
                .into_iter()
                .map(|it| (passed, it)),
        );
    }
    seen
}

/// RFC 6298 section 5: each wait is twice the one before.
#[test]
fn what_is_not_acknowledged_is_repeated_with_patience() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.write(id, b"abc");
        let first = peer.answer(&mut world.rig);
        let seen = watch(world, &mut peer, 30);
        assert!(seen.len() >= 5, "{}", seen.len());
        for (_, again) in &seen {
            assert_eq!((again.seq, &again.payload), (first.seq, &first.payload));
        }
        let times: Vec<_> = seen.iter().map(|(time, _)| *time).collect();
        for waits in times.windows(3).skip(1).collect::<Vec<_>>() {
            let (one, two) = (waits[1] - waits[0], waits[2] - waits[1]);
            assert!((one * 2).abs_diff(two) <= 40, "{times:?}");
        }
        // An answer ends it.
        peer.ack = peer.ack.wrapping_add(3);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        assert!(watch(world, &mut peer, 60).is_empty());
    });
}

/// `tcp_retries2`; the peer's host says nothing any more.
#[test]
fn silence_ends_a_connection() {
    everywhere(|world| {
        world.rig.set("net.ipv4.tcp_retries2", 3);
        let (mut peer, id) = world.connection();
        world.write(id, b"abc");
        peer.answer(&mut world.rig);
        for _ in 0..30 {
            world.pass(Duration::from_secs(1));
        }
        let repeats = peer.answers(&mut world.rig);
        assert!((2..=5).contains(&repeats.len()), "{}", repeats.len());
        assert!(repeats.iter().all(|it| it.flags & RST == 0));
        assert_eq!(world.state(id), TcpState::Closed);
        assert_eq!(world.read(id), Err(TcpError::TimedOut));
        assert_eq!(world.rig.count(Counter::TcpExtTCPAbortOnTimeout), 1);
    });
}

/// `TCP_USER_TIMEOUT` (RFC 5482), instead of the number of repeats.
#[test]
fn the_user_s_patience_ends_a_connection() {
    for seconds in [2, 10] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            let timeout = Duration::from_secs(seconds);
            world.set(id, TcpOption::UserTimeout(timeout));
            // Idle, it does nothing.
            world.pass(Duration::from_secs(100));
            assert_eq!(world.state(id), TcpState::Established);
            world.write(id, b"abc");
            let mut passed = Duration::ZERO;
            while world.state(id) == TcpState::Established {
                world.pass(Duration::from_millis(10));
                passed += Duration::from_millis(10);
                assert!(passed < Duration::from_secs(60));
            }
            peer.answers(&mut world.rig);
            assert!(
                passed >= timeout && passed < timeout + Duration::from_secs(1),
                "{passed:?}"
            );
            assert_eq!(world.read(id), Err(TcpError::TimedOut));
        });
    }
}

/// RFC 1122 section 4.2.3.6.
#[test]
fn an_idle_peer_is_asked_whether_it_is_there() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        for option in [
            TcpOption::KeepIdle(Duration::from_secs(10)),
            TcpOption::KeepInterval(Duration::from_secs(2)),
            TcpOption::KeepCount(3),
            TcpOption::KeepAlive(true),
        ] {
            world.set(id, option);
        }
        // As long as it answers, it is asked every ten seconds.
        for _ in 0..3 {
            let seen = watch(world, &mut peer, 11);
            assert_eq!(seen.len(), 1);
            let (time, probe) = &seen[0];
            assert!((9_000..=10_100).contains(time), "{time}");
            let before = peer.ack.wrapping_sub(1);
            assert_eq!(probe.brief(), (before, peer.seq, ACK, &b""[..]));
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
        }
        let seen = watch(world, &mut peer, 20);
        let flags: Vec<_> = seen.iter().map(|(_, it)| it.flags).collect();
        assert_eq!(flags, [ACK, ACK, ACK, RST | ACK]);
        assert_eq!(seen[2].0 - seen[0].0, 4_000);
        assert_eq!(seen[3].1.seq, peer.ack);
        assert_eq!(world.read(id), Err(TcpError::TimedOut));
        assert_eq!(world.rig.count(Counter::TcpExtTCPKeepAlive), 6);
    });
}

/// RFC 9293 section 3.8.6.1: a lost announcement of a window must not stop everything.
#[test]
fn a_shut_window_is_probed() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        let shut = peer.segment(0, ACK).window(0);
        world.unanswered(&mut peer, &shut);
        world.write(id, b"abc");
        assert!(peer.answers(&mut world.rig).is_empty());
        // A peer that answers is asked for ever, ever more seldom.
        let mut waits = Vec::new();
        let mut last = world.rig.now();
        while waits.len() < 12 {
            world.pass(Duration::from_millis(50));
            for probe in peer.answers(&mut world.rig) {
                let before = peer.ack.wrapping_sub(1);
                assert_eq!((probe.seq, probe.payload.len()), (before, 0));
                waits.push((world.rig.now() - last).as_millis());
                last = world.rig.now();
                peer.send(&mut world.rig, &shut);
            }
            assert!(world.rig.now() - last < Duration::from_secs(130));
        }
        assert!(waits[1] > waits[0] && waits[11] <= 120_200, "{waits:?}");
        assert_eq!(world.state(id), TcpState::Established);
        // It opens by less than a segment: what there is fits.
        let open = peer.segment(0, ACK).window(3);
        let data = world.answered(&mut peer, &open);
        assert_eq!((data.seq, &data.payload[..]), (peer.ack, &b"abc"[..]));
    });
}

/// What the window takes is sent, and no more.
#[test]
fn no_more_is_sent_than_the_window_takes() {
    for window in [1, 10, 999, 1_000, 1_001, 2_500] {
        everywhere(|world| {
            let mut peer = world.peer();
            peer.offer.window = window;
            let listener = world.listen(8);
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK).window(window);
            world.unanswered(&mut peer, &ack);
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            world.set(id, TcpOption::NoDelay(true));
            // Against silly windows, a piece of so small a one waits for the timer of probes.
            let len = if window < 100 { 50 } else { 5_000_u32 };
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let taken = world.write(id, &bytes);
            assert_eq!(taken, bytes.len());
            let mut received = Vec::new();
            for _ in 0..20_000 {
                let mut burst = 0;
                for segment in peer.answers(&mut world.rig) {
                    let at = segment.seq.wrapping_sub(world.iss).wrapping_sub(1) as usize;
                    let end = at + segment.payload.len();
                    assert!(end <= received.len() + usize::from(window), "{window}");
                    if at == received.len() + burst {
                        burst += segment.payload.len();
                    }
                    if at <= received.len() && end > received.len() {
                        let new = segment.payload[received.len() - at..].to_vec();
                        received.extend(new);
                        burst = 0;
                    }
                }
                if received.len() == bytes.len() {
                    break;
                }
                peer.ack = world.iss.wrapping_add(1 + received.len() as u32);
                peer.send(&mut world.rig, &peer.segment(0, ACK).window(window));
                world.pass(Duration::from_millis(20));
            }
            assert!(received == bytes, "{window}: {}", received.len());
        });
    }
}

/// RFC 9293 sections 3.8.6.2.2 and 3.8.6.3: the window shrinks by what nobody reads, never moves
/// back, and is told when it opens.
#[test]
fn our_window_follows_the_reader() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        let mut edge = 0;
        let mut sent = 0_usize;
        let mut first_ack = peer.seq;
        // As much as is offered, until nothing is.
        loop {
            let mut answers = peer.say(&mut world.rig, &[7; 1_000]);
            sent += 1_000;
            world.pass(Duration::from_millis(300));
            answers.extend(peer.answers(&mut world.rig));
            let answer = answers.pop().expect("an acknowledgement");
            let right = answer.ack.wrapping_sub(first_ack) as usize + usize::from(answer.window);
            assert!(right >= edge, "{right} {edge}");
            edge = right;
            if answer.window < 1_000 {
                break;
            }
            assert!(sent < 10_000_000);
        }
        let rest = edge - sent;
        peer.say(&mut world.rig, &vec![7; rest]);
        world.pass(Duration::from_secs(1));
        peer.answers(&mut world.rig);
        // Beyond: a probe is answered, its byte is not taken.
        let probe = peer.segment(0, ACK | PSH).with(b"x");
        let answer = world.answered(&mut peer, &probe);
        assert_eq!((answer.brief(), answer.window), (peer.plain_ack(), 0));
        // Where it is full an acknowledgement counts, and so does a reset.
        assert_eq!(world.read_all(id).len(), sent + rest);
        world.pass(Duration::from_secs(1));
        let update = peer.answers(&mut world.rig).pop().expect("a window");
        assert_eq!(update.brief(), peer.plain_ack());
        assert!(update.window >= 1_000);
        first_ack = peer.seq;
        assert_eq!(update.ack, first_ack);
        peer.say(&mut world.rig, b"more");
        assert_eq!(world.read_all(id), b"more");
    });
}

/// RFC 9293 section 3.8.6.3: soon, and at least of every second full segment.
#[test]
fn acknowledgements_wait_a_little() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        // The first ones are quick; a conversation in turns is not.
        for _ in 0..20 {
            peer.say(&mut world.rig, b"ping");
            world.read_all(id);
            world.write(id, b"pong");
            for pong in peer.answers(&mut world.rig) {
                let len = pong.payload.len() as u32;
                peer.ack = peer.ack.wrapping_add(len);
            }
        }
        let answers = peer.say(&mut world.rig, b"ping");
        assert!(answers.is_empty());
        let seen = watch(world, &mut peer, 1);
        assert_eq!(seen.len(), 1);
        assert!((30..=200).contains(&seen[0].0), "{}", seen[0].0);
        assert_eq!(seen[0].1.brief(), peer.plain_ack());
        assert_eq!(world.rig.count(Counter::TcpExtDelayedACKs), 1);
        let full = vec![7; 1_000];
        let answers: usize = (0..10).map(|_| peer.say(&mut world.rig, &full).len()).sum();
        assert!((5..=10).contains(&answers), "{answers}");
    });
}

/// Three duplicates, or what SACK says, and the gap is filled at once (RFC 5681, RFC 6675).
#[test]
fn a_gap_is_filled_before_any_timer() {
    for sack in [false, true] {
        everywhere(|world| {
            let mut peer = world.peer().offering(Offer {
                sack,
                ..Offer::PLAIN
            });
            let id = world.connection_with(&mut peer);
            world.set(id, TcpOption::SendBuffer(50_000));
            world.write(id, &[7; 6_000]);
            let sent = peer.answers(&mut world.rig);
            assert_eq!(sent.len(), 6);
            let mut again = Vec::new();
            for n in 1..6_u32 {
                world.pass(Duration::from_millis(1));
                let mut duplicate = peer.segment(0, ACK);
                if sack {
                    let end = peer.ack.wrapping_add((n + 1) * 1_000);
                    let start = peer.ack.wrapping_add(1_000);
                    let block = [start.to_be_bytes(), end.to_be_bytes()].concat();
                    duplicate = duplicate.option(5, &block);
                }
                again.extend(peer.exchange(&mut world.rig, &duplicate));
            }
            assert_eq!(again.len(), 1, "{again:x?}");
            assert_eq!((again[0].seq, again[0].payload.len()), (peer.ack, 1_000));
            peer.ack = peer.ack.wrapping_add(6_000);
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
            assert!(watch(world, &mut peer, 5).is_empty());
            assert_eq!(world.rig.stack.tcp_memory(), 0);
        });
    }
}

/// RFC 9293 section 3.7.4: small writes wait for the acknowledgement of the ones before.
#[test]
fn small_segments_wait_unless_told_otherwise() {
    for no_delay in [false, true] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            world.set(id, TcpOption::NoDelay(no_delay));
            let mut sent = Vec::new();
            for _ in 0..5 {
                world.write(id, b"x");
                sent.extend(peer.answers(&mut world.rig));
            }
            assert_eq!(sent.len(), if no_delay { 5 } else { 1 });
            peer.ack = peer.ack.wrapping_add(sent.len() as u32);
            let ack = peer.segment(0, ACK);
            let rest = peer.exchange(&mut world.rig, &ack);
            let rest: Vec<_> = rest.iter().map(|it| &it.payload[..]).collect();
            let expected: &[&[u8]] = if no_delay { &[] } else { &[b"xxxx"] };
            assert_eq!(rest, expected);
        });
    }
}

/// A FIN travels with the last bytes, if they have waited.
#[test]
fn a_corked_end_is_one_segment() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.set(id, TcpOption::Cork(true));
        world.write(id, b"abc");
        assert!(peer.answers(&mut world.rig).is_empty());
        world.close(id);
        let last = peer.answer(&mut world.rig);
        assert_eq!(
            last.brief(),
            (peer.ack, peer.seq, FIN | PSH | ACK, &b"abc"[..])
        );
    });
}
