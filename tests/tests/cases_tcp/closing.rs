//! How connections end: in order, at once, from either side, and what is left of them.

use std::net::Shutdown;
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::{TcpError, TcpOption, TcpState};

use crate::peer::{ACK, FIN, PSH, RST, Segment};
use crate::world::{PEER_PORT, everywhere};

#[test]
fn the_side_that_closes_first_waits() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.close_first(&mut peer, id);
        for _ in 0..59 {
            world.pass(Duration::from_secs(1));
            assert_eq!(world.states(), [TcpState::TimeWait]);
        }
        world.pass(Duration::from_secs(2));
        assert_eq!(world.states(), []);
        assert_eq!(world.rig.count(Counter::TcpExtTW), 1);
        assert!(world.rig.is_silent());
    });
}

#[test]
fn the_side_that_closes_last_leaves_nothing() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        peer.finish(&mut world.rig);
        assert_eq!(world.state(id), TcpState::CloseWait);
        // The other half goes on.
        assert_eq!(world.write(id, b"more"), 4);
        assert_eq!(peer.answer(&mut world.rig).payload, b"more");
        peer.ack = peer.ack.wrapping_add(4);
        world.close(id);
        peer.take_fin(&mut world.rig);
        assert_eq!(world.states(), [TcpState::LastAck]);
        // Stray: it repeats nothing and ends nothing.
        let old = peer.segment(0, ACK).window(0xffff);
        let old = Segment {
            ack: peer.ack.wrapping_sub(1),
            ..old
        };
        world.unanswered(&mut peer, &old);
        assert_eq!(world.states(), [TcpState::LastAck]);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        assert_eq!(world.states(), []);
        let late = peer.segment(0, ACK);
        let answer = world.answered(&mut peer, &late);
        assert_eq!(answer.brief(), (peer.ack, 0, RST, &b""[..]));
    });
}

/// RFC 9293 section 3.6, figure 13.
#[test]
fn both_may_close_at_once() {
    // The peer's FIN says whether it has seen ours.
    for has_seen in [false, true] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            world.close(id);
            let mut fin = peer.segment(0, FIN | ACK);
            peer.take_fin(&mut world.rig);
            if has_seen {
                fin.ack = peer.ack;
            }
            peer.seq = peer.seq.wrapping_add(1);
            let answer = world.answered(&mut peer, &fin);
            assert_eq!(answer.brief(), peer.plain_ack());
            if !has_seen {
                assert_eq!(world.states(), [TcpState::Closing]);
                let ack = peer.segment(0, ACK);
                world.unanswered(&mut peer, &ack);
            }
            assert_eq!(world.states(), [TcpState::TimeWait]);
        });
    }
}

/// The stack says that it sends no more, and reads on.
#[test]
fn half_a_connection_goes_on() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        assert_eq!(world.write(id, b"request"), 7);
        assert_eq!(world.shutdown(id, Shutdown::Write), Ok(()));
        let sent = peer.answers(&mut world.rig);
        assert_eq!(sent[0].payload, b"request");
        let last = sent.last().expect("a FIN");
        assert_eq!(last.flags & FIN, FIN);
        peer.ack = peer.ack.wrapping_add(8);
        assert_eq!(world.try_write(id, b"x"), Err(TcpError::BrokenPipe));
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        assert_eq!(world.state(id), TcpState::FinWait2);
        // As long as somebody holds the socket, the wait has no end.
        world.pass(Duration::from_secs(3_600));
        assert_eq!(world.state(id), TcpState::FinWait2);
        for _ in 0..3 {
            peer.say(&mut world.rig, b"reply");
        }
        assert_eq!(world.read_all(id), b"replyreplyreply");
        world.pass(Duration::from_secs(1));
        peer.answers(&mut world.rig);
        peer.finish(&mut world.rig);
        assert_eq!(world.read(id), Ok(Some(Vec::new())));
        assert!(world.states().contains(&TcpState::TimeWait));
        world.close(id);
        assert_eq!(world.states(), [TcpState::TimeWait]);
    });
}

/// Bytes that were written before the close arrive, in as many flights as it takes.
#[test]
fn what_was_written_is_sent_before_the_end() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.set(id, TcpOption::SendBuffer(100_000));
        let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(world.write(id, &bytes), bytes.len());
        world.close(id);
        let mut received = Vec::new();
        let mut is_finished = false;
        for _ in 0..100 {
            for segment in peer.answers(&mut world.rig) {
                assert_eq!(segment.seq, peer.ack);
                received.extend_from_slice(&segment.payload);
                let fin = u32::from(segment.flags & FIN != 0);
                peer.ack = peer.ack.wrapping_add(segment.payload.len() as u32 + fin);
                is_finished |= fin != 0;
            }
            peer.send(&mut world.rig, &peer.segment(0, ACK));
            if is_finished {
                break;
            }
            world.pass(Duration::from_millis(10));
        }
        assert!(is_finished);
        assert!(received == bytes);
        assert_eq!(world.states(), [TcpState::FinWait2]);
    });
}

/// RFC 2525 section 2.17.
#[test]
fn a_close_with_unread_bytes_resets() {
    for linger in [None, Some(Duration::ZERO)] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            if let Some(linger) = linger {
                // Without unread bytes, and with unsent ones.
                world.set(id, TcpOption::Linger(Some(linger)));
                world.write(id, b"lost");
                peer.answers(&mut world.rig);
                peer.ack = peer.ack.wrapping_add(4);
            } else {
                peer.say(&mut world.rig, b"unread");
            }
            world.close(id);
            let reset = peer.answer(&mut world.rig);
            assert_eq!((reset.seq, reset.flags), (peer.ack, RST | ACK));
            assert_eq!(reset.ack, peer.seq);
            assert_eq!(world.states(), []);
            assert_eq!(world.rig.stack.tcp_memory(), 0);
            let late = peer.segment(0, ACK);
            let answer = world.answered(&mut peer, &late);
            assert_eq!(answer.brief(), (peer.ack, 0, RST, &b""[..]));
        });
    }
}

/// A peer that still sends to who has closed must hear that nobody reads.
#[test]
fn data_for_an_orphan_is_answered_by_a_reset() {
    for is_acked in [false, true] {
        everywhere(|world| {
            let (mut peer, id) = world.connection();
            world.close(id);
            peer.take_fin(&mut world.rig);
            if is_acked {
                let ack = peer.segment(0, ACK);
                world.unanswered(&mut peer, &ack);
            }
            let data = peer.segment(0, ACK | PSH).with(b"anybody?");
            let reset = world.answered(&mut peer, &data);
            assert_eq!(reset.brief(), (peer.ack, 0, RST, &b""[..]));
            assert_eq!(world.states(), []);
        });
    }
}

/// The same of who has shut down both halves, and still holds the socket.
#[test]
fn data_after_a_shutdown_of_both_halves_is_answered_by_a_reset() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        assert_eq!(world.shutdown(id, Shutdown::Both), Ok(()));
        peer.take_fin(&mut world.rig);
        assert_eq!(world.read(id), Ok(Some(Vec::new())));
        let data = peer.segment(0, ACK | PSH).with(b"anybody?");
        let reset = world.answered(&mut peer, &data);
        assert_eq!(reset.flags, RST);
        assert_eq!(world.state(id), TcpState::Closed);
    });
}

/// An orphan in FIN-WAIT-2 waits as long as `tcp_fin_timeout` says.
#[test]
fn an_orphan_does_not_wait_for_ever() {
    everywhere(|world| {
        world.rig.set("net.ipv4.tcp_fin_timeout", 20);
        let (mut peer, id) = world.connection();
        world.close(id);
        peer.take_fin(&mut world.rig);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        world.pass(Duration::from_secs(19));
        assert_eq!(world.states(), [TcpState::FinWait2]);
        world.pass(Duration::from_secs(2));
        assert_eq!(world.states(), []);
        let fin = peer.segment(0, FIN | ACK);
        assert_eq!(world.answered(&mut peer, &fin).flags, RST);
    });
}

/// A FIN that nobody acknowledges is repeated, and given up.
#[test]
fn a_fin_is_repeated() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.close(id);
        let fin = peer.take_fin(&mut world.rig);
        let mut repeats = 0;
        for _ in 0..600 {
            world.pass(Duration::from_secs(1));
            for again in peer.answers(&mut world.rig) {
                assert_eq!(again.brief(), fin.brief());
                repeats += 1;
            }
        }
        // `tcp_orphan_retries`.
        assert!((7..=10).contains(&repeats), "{repeats}");
        assert_eq!(world.states(), []);
    });
}

/// What was half open, and what nobody has accepted, ends with its listener.
#[test]
fn a_listener_takes_its_own_with_it() {
    everywhere(|world| {
        let listener = world.listen(8);
        let mut half_open = world.peer_at(PEER_PORT + 1);
        half_open.begin(&mut world.rig);
        let mut waiting = world.peer();
        waiting.begin(&mut world.rig);
        let ack = waiting.segment(0, ACK);
        world.unanswered(&mut waiting, &ack);
        world.close(listener);
        let reset = waiting.answer(&mut world.rig);
        assert_eq!(
            reset.brief(),
            (waiting.ack, waiting.seq, RST | ACK, &b""[..])
        );
        assert_eq!(world.states(), []);
        let ack = half_open.segment(0, ACK);
        let answer = world.answered(&mut half_open, &ack);
        assert_eq!(answer.brief(), (half_open.ack, 0, RST, &b""[..]));
    });
}
