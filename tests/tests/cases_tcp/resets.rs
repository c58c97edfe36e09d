//! Segments that might end a connection, and must not (RFC 5961), or must.

use std::net::Shutdown;
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::{TcpError, TcpState};

use crate::peer::{ACK, FIN, RST, SYN};
use crate::world::{World, everywhere};

/// Longer than answers to what does not belong are spaced by (`tcp_invalid_ratelimit`).
const RATELIMIT: Duration = Duration::from_millis(501);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Reset,
    Challenge,
    Silence,
}

/// RFC 9293 section 3.10.7.4, RFC 5961 section 3.2.
#[test]
fn a_reset_counts_at_its_exact_place() {
    use Outcome::{Challenge, Reset, Silence};
    let cases = [
        (0, Reset),
        (1, Challenge),
        (5_000, Challenge),
        (60_000, Challenge),
        (-1, Silence),
        (-5_000, Silence),
        (70_000, Silence),
        (1 << 30, Silence),
        (1 << 31, Silence),
    ];
    for (offset, expected) in cases {
        for (flags, ack) in [(RST, 0), (RST | ACK, 0), (RST | ACK, 12_345)] {
            everywhere(|world| {
                let (mut peer, id) = world.connection();
                let mut reset = peer.segment(offset, flags);
                reset.ack = reset.ack.wrapping_add(ack);
                let answers = peer.exchange(&mut world.rig, &reset);
                if expected == Challenge {
                    assert_eq!(answers.len(), 1, "{offset}");
                    assert_eq!(answers[0].brief(), peer.plain_ack());
                    assert_eq!(world.rig.count(Counter::TcpExtTCPChallengeACK), 1);
                } else {
                    assert!(answers.is_empty(), "{offset}: {answers:x?}");
                }
                if expected == Reset {
                    assert_eq!(world.rig.count(Counter::TcpEstabResets), 1);
                    assert_eq!(world.state(id), TcpState::Closed);
                    assert_eq!(world.read(id), Err(TcpError::ConnectionReset));
                    // It is told once.
                    assert_eq!(world.read(id), Ok(Some(Vec::new())));
                } else {
                    assert_eq!(world.state(id), TcpState::Established, "{offset}");
                    peer.say(&mut world.rig, b"still there");
                    assert_eq!(world.read_all(id), b"still there");
                }
            });
        }
    }
}

/// RFC 5961 section 4.2.
#[test]
fn a_syn_within_a_connection_is_challenged() {
    for offset in [-1, 0, 5, 5_000, 100_000, -100_000, 1 << 31] {
        for payload in [&b""[..], b"with data"] {
            for flags in [SYN, SYN | ACK] {
                everywhere(|world| {
                    let (mut peer, id) = world.connection();
                    for _ in 0..3 {
                        let syn = peer.segment(offset, flags).with(payload);
                        let answer = world.answered(&mut peer, &syn);
                        assert_eq!(answer.brief(), peer.plain_ack());
                        world.pass(RATELIMIT);
                    }
                    assert_eq!(world.rig.count(Counter::TcpExtTCPSYNChallenge), 3);
                    assert_eq!(world.state(id), TcpState::Established);
                    peer.say(&mut world.rig, b"still there");
                    assert_eq!(world.read_all(id), b"still there");
                });
            }
        }
    }
}

/// RFC 9293 section 3.10.7.4, with what the application hears.
#[test]
fn a_reset_ends_every_state() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum In {
        FinWait1,
        FinWait2,
        Closing,
        CloseWait,
        LastAck,
    }
    for state in [
        In::FinWait1,
        In::FinWait2,
        In::Closing,
        In::CloseWait,
        In::LastAck,
    ] {
        for held in [true, false] {
            everywhere(|world| {
                let (mut peer, id) = world.connection();
                let end = |world: &World| match held {
                    true => assert_eq!(world.shutdown(id, Shutdown::Write), Ok(())),
                    false => world.close(id),
                };
                match state {
                    In::CloseWait if !held => return,
                    In::CloseWait => drop(peer.finish(&mut world.rig)),
                    In::LastAck => {
                        peer.finish(&mut world.rig);
                        end(world);
                        peer.take_fin(&mut world.rig);
                    }
                    In::FinWait1 | In::FinWait2 | In::Closing => {
                        end(world);
                        let mut fin = peer.segment(0, FIN | ACK);
                        peer.take_fin(&mut world.rig);
                        if state == In::FinWait2 {
                            let ack = peer.segment(0, ACK);
                            world.unanswered(&mut peer, &ack);
                        }
                        if state == In::Closing {
                            fin.ack = peer.ack.wrapping_sub(1);
                            peer.seq = peer.seq.wrapping_add(1);
                            world.answered(&mut peer, &fin);
                        }
                    }
                }
                // As on Linux, what FIN-WAIT-2 leaves of an orphan believes any reset in its window.
                if state != In::FinWait2 || held {
                    let before = world.states();
                    let beside = peer.segment(100, RST);
                    let challenge = world.answered(&mut peer, &beside);
                    assert_eq!(challenge.flags & !FIN, ACK);
                    assert_eq!(world.states(), before, "{state:?}, held: {held}");
                }
                let reset = peer.segment(0, RST);
                world.unanswered(&mut peer, &reset);
                if !held {
                    assert_eq!(world.states(), [], "{state:?}");
                    return;
                }
                assert_eq!(world.state(id), TcpState::Closed, "{state:?}");
                let error = match state {
                    In::CloseWait => TcpError::BrokenPipe,
                    _ => TcpError::ConnectionReset,
                };
                assert_eq!(
                    world.rig.stack.tcp_take_error(id),
                    Ok(Some(error)),
                    "{state:?}"
                );
                assert_eq!(world.rig.stack.tcp_take_error(id), Ok(None));
            });
        }
    }
}

/// Linux takes a reset at the FIN's own place for one at the place behind it.
#[test]
fn a_reset_at_the_place_of_the_fin_counts() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        peer.finish(&mut world.rig);
        let reset = peer.segment(-1, RST);
        world.unanswered(&mut peer, &reset);
        assert_eq!(world.state(id), TcpState::Closed);
        assert_eq!(
            world.rig.stack.tcp_take_error(id),
            Ok(Some(TcpError::BrokenPipe))
        );
    });
}
