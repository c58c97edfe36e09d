//! Connections that the stack begins, and what the network reports about them.

use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::socket::SocketError;
use forebay_stack::tcp::{TcpConnectError, TcpError, TcpOption, TcpState};
use forebay_stack::wire::icmp::{v4, v6};
use forebay_tests::packets;

use crate::peer::{ACK, FIN, Offer, PSH, Peer, RST, SYN, Segment};
use crate::world::{OWN_PORT, PEER_PORT, World, everywhere};

#[test]
fn a_handshake_ends_in_a_connection() {
    everywhere(|world| {
        let (mut peer, id) = world.connected();
        assert_eq!(world.state(id), TcpState::Established);
        assert_eq!(world.rig.count(Counter::TcpActiveOpens), 1);
        peer.say(&mut world.rig, b"hello");
        assert_eq!(world.read_all(id), b"hello");
        assert_eq!(world.write(id, b"world"), 5);
        let data = peer.answer(&mut world.rig);
        assert_eq!(data.brief(), (peer.ack, peer.seq, ACK | PSH, &b"world"[..]));
    });
}

/// As on Linux: neither is an error, and neither is done yet.
#[test]
fn who_reads_or_writes_before_the_handshake_is_done_waits() {
    everywhere(|world| {
        let id = world.connecting();
        assert_eq!(world.read(id), Ok(None));
        assert_eq!(world.try_write(id, b"early"), Ok(None));
        world.close(id);
    });
}

/// RFC 9293 section 3.10.7.3.
#[test]
fn a_syn_that_waits_for_its_answer_meets_each_segment() {
    #[derive(Debug, PartialEq)]
    enum Then {
        Nothing,
        Reset,
        Refused,
        SynReceived,
        Connected,
    }
    use Then::{Connected, Nothing, Refused, Reset, SynReceived};
    // Flags, offset of the acknowledgement from the right one.
    let cases = [
        (ACK, 0, Nothing),
        (ACK, 1, Reset),
        (ACK, -1, Reset),
        (ACK | FIN, 1 << 30, Reset),
        (SYN | ACK, 1, Reset),
        (SYN | ACK, -1, Reset),
        (RST, 0, Nothing),
        (RST | ACK, 1, Nothing),
        (RST | ACK, -1, Nothing),
        (RST | ACK, 0, Refused),
        (SYN | RST | ACK, 0, Refused),
        (0, 0, Nothing),
        (FIN, 0, Nothing),
        (PSH, 0, Nothing),
        (SYN, 0, SynReceived),
        (SYN | ACK, 0, Connected),
    ];
    for (flags, ack, then) in cases {
        everywhere(|world| {
            let failed = world.rig.count(Counter::TcpAttemptFails);
            let id = world.connecting();
            let mut peer = world.peer();
            let syn = peer.answer(&mut world.rig);
            assert_eq!((syn.seq, syn.flags), (world.iss, SYN));
            peer.ack = syn.seq.wrapping_add(1);
            let mut segment = peer.segment(0, flags);
            segment.ack = peer.ack.wrapping_add(ack as u32);
            let answers = peer.exchange(&mut world.rig, &segment);
            let next = peer.seq.wrapping_add(1);
            let expected = match then {
                Nothing | Refused => None,
                Reset => Some((segment.ack, 0, RST, &b""[..])),
                SynReceived => Some((world.iss, next, SYN | ACK, &b""[..])),
                Connected => Some((peer.ack, next, ACK, &b""[..])),
            };
            let answers: Vec<_> = answers.iter().map(Segment::brief).collect();
            assert_eq!(answers, Vec::from_iter(expected), "{flags:#x} {ack}");
            let state = match then {
                Nothing | Reset => TcpState::SynSent,
                Refused => TcpState::Closed,
                SynReceived => TcpState::SynRecv,
                Connected => TcpState::Established,
            };
            assert_eq!(world.state(id), state, "{flags:#x} {ack}");
            let is_connected = world.rig.stack.tcp_is_connected(id);
            match then {
                Refused => {
                    assert_eq!(is_connected, Err(TcpError::ConnectionRefused));
                    assert_eq!(world.rig.count(Counter::TcpAttemptFails), failed + 1);
                }
                _ => assert_eq!(is_connected, Ok(then == Connected)),
            }
        });
    }
}

/// RFC 9293 section 3.5, figure 8.
#[test]
fn both_may_begin_at_once() {
    for answer in [ACK, SYN | ACK] {
        everywhere(|world| {
            let id = world.connecting();
            let mut peer = world.peer();
            let syn = peer.answer(&mut world.rig);
            let begin = peer.syn();
            let syn_ack = world.answered(&mut peer, &begin);
            let next = peer.seq.wrapping_add(1);
            assert_eq!(syn_ack.brief(), (syn.seq, next, SYN | ACK, &b""[..]));
            peer.ack = syn.seq.wrapping_add(1);
            let last = match answer {
                ACK => peer.segment(1, ACK),
                _ => peer.syn_ack(),
            };
            peer.exchange(&mut world.rig, &last);
            peer.seq = next;
            assert_eq!(world.state(id), TcpState::Established);
            peer.say(&mut world.rig, b"hello");
            assert_eq!(world.read_all(id), b"hello");
            assert_eq!(world.write(id, b"world"), 5);
            assert_eq!(peer.answer(&mut world.rig).payload, b"world");
        });
    }
}

/// RFC 6298, `tcp_syn_retries`.
#[test]
fn a_syn_without_an_answer_is_repeated_and_given_up() {
    for (retries, expected) in [(1, &[1][..]), (2, &[1, 3]), (4, &[1, 3, 7, 15])] {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_syn_retries", retries);
            let id = world.connecting();
            let mut peer = world.peer();
            let syn = peer.answer(&mut world.rig);
            let start = world.rig.now();
            let mut times = Vec::new();
            let mut failed = None;
            for _ in 0..7_000 {
                world.pass(Duration::from_millis(10));
                // What is due is done soon after, and the next thing counts from there.
                let passed = ((world.rig.now() - start).as_millis() + 200) / 1_000;
                for again in peer.answers(&mut world.rig) {
                    assert_eq!((again.seq, again.flags), (syn.seq, SYN));
                    times.push(passed);
                }
                if failed.is_none() && world.state(id) == TcpState::Closed {
                    failed = Some(passed);
                }
            }
            assert_eq!(times, expected);
            // As long after the last as another one would have come.
            let last = expected.last().expect("one at least");
            assert_eq!(failed, Some(last * 2 + 1));
            assert_eq!(
                world.rig.stack.tcp_is_connected(id),
                Err(TcpError::TimedOut)
            );
        });
    }
}

/// A lost acknowledgement of the handshake: the peer repeats its answer, and hears it again.
#[test]
fn a_repeated_syn_ack_is_acknowledged() {
    everywhere(|world| {
        let id = world.connecting();
        let mut peer = world.peer();
        peer.accept(&mut world.rig);
        let mut again = peer.syn_ack();
        again.seq = peer.seq.wrapping_sub(1);
        let answer = world.answered(&mut peer, &again);
        assert_eq!(answer.brief(), peer.plain_ack());
        assert_eq!(world.state(id), TcpState::Established);
    });
}

/// What the SYN offers, and what its answer makes of it.
#[test]
fn an_answer_may_agree_on_less() {
    for (scale, sack, timestamps) in [
        (Some(4), true, Some(700)),
        (None, true, Some(700)),
        (Some(4), false, None),
        (None, false, None),
        (Some(15), true, None),
    ] {
        everywhere(|world| {
            let id = world.connecting();
            let offer = Offer {
                window_scale: scale,
                sack,
                timestamps,
                ..Offer::PLAIN
            };
            let mut peer = world.peer().offering(offer);
            let syn = peer.answer(&mut world.rig);
            assert!(syn.permits_sack() && syn.timestamps_option().is_some());
            assert!(syn.window_scale_option().is_some());
            peer.ack = syn.seq.wrapping_add(1);
            let syn_ack = peer.syn_ack();
            let answer = world.answered(&mut peer, &syn_ack);
            assert_eq!(answer.timestamps_option().map(|it| it.1), timestamps);
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            // RFC 7323 section 2.3: more than 14 is 14.
            assert_eq!(
                info.window_scale.map(|(theirs, _)| theirs),
                scale.map(|n| n.min(14))
            );
            assert_eq!((info.sack, info.timestamps), (sack, timestamps.is_some()));
        });
    }
}

/// What a router or the peer's host says of a segment.
fn report(world: &mut World, kind: (u8, u8), rest: u32, quoted: &Segment) {
    let (own, peer) = (world.net.own(OWN_PORT), world.net.peer(PEER_PORT));
    let packet = quoted.packet(own, peer);
    let error = packets::icmp(world.net.peer, world.net.own, kind.0, kind.1, rest, &packet);
    world.rig.inject("tun0", error);
}

/// Each code, what it is called, and whether a handshake ends by it (RFC 1122 section 4.2.3.9, RFC
/// 5461).
fn codes(world: &World) -> Vec<((u8, u8), TcpError, bool)> {
    let network = TcpError::Network;
    if world.net.is_v4() {
        let unreachable = |code| (v4::DEST_UNREACH, code);
        vec![
            (
                unreachable(0),
                network(SocketError::NetworkUnreachable),
                false,
            ),
            (unreachable(1), network(SocketError::HostUnreachable), false),
            (
                unreachable(2),
                network(SocketError::ProtocolUnavailable),
                true,
            ),
            (unreachable(3), TcpError::ConnectionRefused, true),
            (
                unreachable(9),
                network(SocketError::NetworkProhibited),
                false,
            ),
            (unreachable(13), network(SocketError::HostProhibited), false),
            (
                (v4::TIME_EXCEEDED, 0),
                network(SocketError::HostUnreachable),
                false,
            ),
        ]
    } else {
        let unreachable = |code| (v6::DEST_UNREACH, code);
        vec![
            (
                unreachable(0),
                network(SocketError::NetworkUnreachable),
                false,
            ),
            (unreachable(3), network(SocketError::HostUnreachable), false),
            (unreachable(4), TcpError::ConnectionRefused, true),
            (
                (v6::TIME_EXCEEDED, 0),
                network(SocketError::HostUnreachable),
                false,
            ),
        ]
    }
}

#[test]
fn a_report_ends_a_handshake_only_if_nobody_is_there() {
    for n in 0..7 {
        everywhere(|world| {
            let Some((kind, error, is_hard)) = codes(world).get(n).copied() else {
                return;
            };
            let id = world.connecting();
            let mut peer = world.peer();
            let syn = peer.answer(&mut world.rig);
            // Guesses are not believed (RFC 5927 section 4.1).
            for offset in [1, -1, 1 << 31] {
                let seq = syn.seq.wrapping_add(offset as u32);
                report(world, kind, 0, &Segment { seq, ..syn.clone() });
                assert_eq!(world.state(id), TcpState::SynSent);
            }
            report(world, kind, 0, &syn);
            if is_hard {
                assert_eq!(world.rig.stack.tcp_is_connected(id), Err(error), "{kind:?}");
                assert_eq!(world.state(id), TcpState::Closed);
                return;
            }
            assert_eq!(world.rig.stack.tcp_is_connected(id), Ok(false), "{kind:?}");
            for _ in 0..140 {
                world.pass(Duration::from_secs(1));
            }
            peer.answers(&mut world.rig);
            assert_eq!(world.rig.stack.tcp_is_connected(id), Err(error), "{kind:?}");
        });
    }
}

#[test]
fn no_report_ends_a_connection() {
    for n in 0..7 {
        everywhere(|world| {
            let Some((kind, _, _)) = codes(world).get(n).copied() else {
                return;
            };
            let (mut peer, id) = world.connected();
            assert_eq!(world.write(id, b"abc"), 3);
            let data = peer.answer(&mut world.rig);
            report(world, kind, 0, &data);
            assert_eq!(world.state(id), TcpState::Established, "{kind:?}");
            peer.ack = peer.ack.wrapping_add(3);
            peer.say(&mut world.rig, b"still there");
            assert_eq!(world.read_all(id), b"still there");
        });
    }
}

/// RFC 1191, RFC 8201: what was too large is sent again in what fits, at once.
#[test]
fn a_smaller_path_is_heard_of() {
    everywhere(|world| {
        let mut peer = world.peer();
        peer.offer.mss = 1_460;
        let id = world.connection_with(&mut peer);
        assert_eq!(world.write(id, &[7; 1_400]), 1_400);
        let large = peer.answer(&mut world.rig);
        assert_eq!(large.payload.len(), 1_400);
        let kind = world
            .net
            .pick((v4::DEST_UNREACH, 4), (v6::PACKET_TOO_BIG, 0));
        // A report of something else is forged.
        let forged = Segment {
            seq: large.seq.wrapping_add(1 << 31),
            ..large.clone()
        };
        report(world, kind, 1_300, &forged);
        assert!(peer.answers(&mut world.rig).is_empty());
        report(world, kind, 1_300, &large);
        let again = peer.answers(&mut world.rig);
        let sizes: Vec<_> = again.iter().map(|it| it.payload.len()).collect();
        let first = 1_300 - world.net.pick(40, 60);
        assert_eq!(sizes, [first, 1_400 - first]);
        assert_eq!(again[0].seq, large.seq);
        assert_eq!(again[1].seq, large.seq.wrapping_add(first as u32));
        peer.ack = peer.ack.wrapping_add(1_400);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
        assert_eq!((info.pmtu, info.snd_mss as usize), (1_300, first));
    });
}

/// What calls say before, during and after.
#[test]
fn calls_in_each_state_say_what_linux_says() {
    everywhere(|world| {
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let now = world.rig.now();
        let id = world.open();
        assert_eq!(world.read(id), Err(TcpError::NotConnected));
        assert_eq!(world.try_write(id, b"x"), Err(TcpError::BrokenPipe));
        assert_eq!(
            world.shutdown(id, Shutdown::Both),
            Err(TcpError::NotConnected)
        );
        assert_eq!(stack.tcp_accept(id), Err(TcpError::InvalidArgument));
        world.close(id);

        let id = world.connecting();
        let peer_addr = world.net.peer(PEER_PORT);
        let again = stack.tcp_connect(now, id, peer_addr);
        assert_eq!(again, Err(TcpConnectError::AlreadyConnecting));
        assert_eq!(world.try_write(id, b"x"), Ok(None));
        let mut peer = world.peer();
        peer.accept(&mut world.rig);
        let again = stack.tcp_connect(now, id, peer_addr);
        assert_eq!(again, Err(TcpConnectError::IsConnected));
        assert_eq!(stack.tcp_peer_addr(id), Ok(peer_addr));
        assert_eq!(stack.tcp_local_addr(id), Ok(world.net.own(OWN_PORT)));

        // Between the same ends there is one connection.
        let other = world.open();
        world.set(other, TcpOption::ReuseAddr(true));
        let own = world.net.own(OWN_PORT);
        stack
            .tcp_bind(other, own)
            .expect("a port that may be shared");
        let twice = stack.tcp_connect(now, other, peer_addr);
        assert_eq!(twice, Err(TcpConnectError::InUse));
    });
}

/// Closed during the handshake, a socket leaves nothing, and its answer meets nobody.
#[test]
fn a_handshake_may_be_given_up() {
    everywhere(|world| {
        let id = world.connecting();
        let mut peer = world.peer();
        let syn = peer.answer(&mut world.rig);
        world.close(id);
        assert_eq!(world.states(), []);
        peer.ack = syn.seq.wrapping_add(1);
        let syn_ack = peer.syn_ack();
        let answer = world.answered(&mut peer, &syn_ack);
        assert_eq!(answer.brief(), (peer.ack, 0, RST, &b""[..]));
    });
}

/// A socket whose handshake failed may try again.
#[test]
fn a_refused_socket_may_connect_again() {
    everywhere(|world| {
        let id = world.connecting();
        let mut peer = world.peer();
        let syn = peer.answer(&mut world.rig);
        peer.ack = syn.seq.wrapping_add(1);
        let refusal = peer.segment(0, RST | ACK);
        world.unanswered(&mut peer, &refusal);
        let refused = world.rig.stack.tcp_is_connected(id);
        assert_eq!(refused, Err(TcpError::ConnectionRefused));
        let now = world.rig.now();
        assert_eq!(world.rig.stack.tcp_connect(now, id, peer.addr), Ok(()));
        peer.accept(&mut world.rig);
        assert_eq!(world.rig.stack.tcp_is_connected(id), Ok(true));
        peer.say(&mut world.rig, b"hello");
        assert_eq!(world.read_all(id), b"hello");
    });
}

/// One port may lead to many peers, and each answer finds its own.
#[test]
fn answers_find_the_connection_that_asked() {
    everywhere(|world| {
        let mut ends: Vec<(Peer, _)> = (0..50)
            .map(|n| {
                let id = world.open();
                let addr = world.net.peer(PEER_PORT + n);
                let now = world.rig.now();
                world.rig.stack.tcp_connect(now, id, addr).expect("a route");
                let own = world.rig.stack.tcp_local_addr(id).expect("open");
                (Peer::new(addr, own, world.irs), id)
            })
            .collect();
        let mut syns: Vec<(SocketAddr, SocketAddr, Segment)> = Vec::new();
        for packet in world.rig.output("tun0") {
            syns.push(Segment::parse(&packet));
        }
        assert_eq!(syns.len(), 50);
        for (peer, id) in ends.iter_mut().rev() {
            let (_, _, syn) = syns.pop().expect("a SYN");
            peer.ack = syn.seq.wrapping_add(1);
            let syn_ack = peer.syn_ack();
            world.answered(peer, &syn_ack);
            assert_eq!(world.rig.stack.tcp_is_connected(*id), Ok(true));
        }
    });
}
