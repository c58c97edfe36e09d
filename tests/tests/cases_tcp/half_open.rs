//! Listeners and what is half open: every segment that may meet them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::TcpState;
use forebay_stack::wire::tcp::{FLAG_CWR, FLAG_ECE, FLAG_URG};

use crate::peer::{ACK, FIN, Offer, PSH, Peer, RST, SYN, Segment};
use crate::world::{OWN_PORT, PEER_PORT, everywhere};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Nothing,
    Reset,
    SynAck,
}

#[test]
fn a_listener_takes_syns_and_resets_what_acknowledges() {
    use Answer::{Nothing, Reset, SynAck};
    let cases = [
        (RST, Nothing),
        (RST | ACK, Nothing),
        (FIN, Nothing),
        (0, Nothing),
        (PSH, Nothing),
        (FLAG_URG, Nothing),
        (SYN | FIN, Nothing),
        (SYN | RST, Nothing),
        (SYN | RST | ACK, Nothing),
        (ACK, Reset),
        (ACK | PSH, Reset),
        (FIN | ACK, Reset),
        (SYN | ACK, Reset),
        (SYN | ACK | FIN, Reset),
        (SYN, SynAck),
        (SYN | PSH, SynAck),
        (SYN | FLAG_URG, SynAck),
        (SYN | FLAG_ECE | FLAG_CWR, SynAck),
        (SYN | FLAG_ECE, SynAck),
        (SYN | FLAG_CWR, SynAck),
    ];
    for (flags, expected) in cases {
        for payload in [&b""[..], b"data"] {
            everywhere(|world| {
                let listener = world.listen(8);
                let mut peer = world.peer();
                peer.ack = 77;
                let segment = peer.segment(0, flags).with(payload);
                let answers = peer.exchange(&mut world.rig, &segment);
                let next = peer.seq.wrapping_add(1);
                match expected {
                    Nothing => assert!(answers.is_empty(), "{flags:#x}: {answers:x?}"),
                    Reset => {
                        assert_eq!(answers.len(), 1, "{flags:#x}");
                        assert_eq!(answers[0].brief(), (77, 0, RST, &b""[..]));
                    }
                    SynAck => {
                        assert_eq!(answers.len(), 1, "{flags:#x}");
                        let answer = &answers[0];
                        let both = FLAG_ECE | FLAG_CWR;
                        let ecn = if flags & both == both { FLAG_ECE } else { 0 };
                        assert_eq!((answer.ack, answer.flags), (next, SYN | ACK | ecn));
                        assert_eq!(answer.seq, world.iss);
                    }
                }
                assert_eq!(world.rig.stack.tcp_accept(listener), Ok(None));
                let half_open = match expected {
                    SynAck => vec![TcpState::SynRecv],
                    _ => Vec::new(),
                };
                assert_eq!(world.states(), half_open);
            });
        }
    }
}

/// RFC 9293 section 3.10.7.4, SYN-RECEIVED.
#[test]
fn a_half_open_connection_meets_each_segment() {
    #[derive(Debug, PartialEq)]
    enum Then {
        /// It stays, and the sender hears this.
        Stays(Option<Answer>),
        /// It is told where we are, and it stays.
        IsTold,
        /// The connection stands.
        Stands,
        /// It is gone.
        Gone,
    }
    use Then::{Gone, IsTold, Stands, Stays};
    // Offset from the peer's next number, flags, offset of the acknowledgement from ours, payload.
    let cases: [(i64, u8, u32, &[u8], Then); 18] = [
        (-1, SYN, 0, b"", Stays(Some(Answer::SynAck))),
        (0, ACK, 5, b"", Stays(Some(Answer::Reset))),
        (0, ACK, u32::MAX, b"", Stays(Some(Answer::Reset))),
        (0, ACK, 5, b"data", Stays(Some(Answer::Reset))),
        (0, FIN | ACK, 1 << 31, b"", Stays(Some(Answer::Reset))),
        (0, 0, 0, b"", Stays(Some(Answer::Nothing))),
        (0, FIN, 0, b"", Stays(Some(Answer::Nothing))),
        (0, PSH, 0, b"data", Stays(Some(Answer::Nothing))),
        (-5_000, ACK, 0, b"", IsTold),
        (100_000, ACK, 0, b"", IsTold),
        (100_000, ACK, 0, b"data", IsTold),
        (-5_000, RST, 0, b"", Stays(Some(Answer::Nothing))),
        (100_000, RST, 0, b"", Stays(Some(Answer::Nothing))),
        (0, RST, 0, b"", Gone),
        (0, RST | ACK, 0, b"", Gone),
        (0, ACK, 0, b"", Stands),
        (0, ACK | PSH, 0, b"data", Stands),
        (0, FIN | ACK, 0, b"data", Stands),
    ];
    for (offset, flags, ack, payload, then) in cases {
        println!("{offset} {flags:#x} {ack} {then:?}");
        everywhere(|world| {
            let listener = world.listen(8);
            let mut peer = world.peer();
            let syn_ack = peer.begin(&mut world.rig);
            let mut segment = peer.segment(offset, flags).with(payload);
            segment.ack = peer.ack.wrapping_add(ack);
            if flags == SYN {
                segment = peer.syn();
                segment.seq = peer.seq.wrapping_sub(1);
            }
            let answers = peer.exchange(&mut world.rig, &segment);
            match then {
                Stays(Some(Answer::SynAck)) => assert_eq!(answers, [syn_ack]),
                Stays(Some(Answer::Reset)) => {
                    assert_eq!(answers.len(), 1);
                    assert_eq!(answers[0].brief(), (segment.ack, 0, RST, &b""[..]));
                }
                IsTold => {
                    assert_eq!(answers.len(), 1);
                    assert_eq!(answers[0].brief(), peer.plain_ack());
                }
                Stands if payload.is_empty() => assert!(answers.is_empty()),
                Stands => assert_eq!(answers.len(), 1),
                _ => assert!(answers.is_empty(), "{answers:x?}"),
            }
            if then == Gone {
                assert_eq!(world.states(), []);
                // Nobody knows of it any more.
                let late = peer.segment(0, ACK);
                let answer = world.answered(&mut peer, &late);
                assert_eq!(answer.brief(), (peer.ack, 0, RST, &b""[..]));
                return;
            }
            if then != Stands {
                assert_eq!(world.states(), [TcpState::SynRecv]);
                let last = peer.segment(0, ACK);
                world.unanswered(&mut peer, &last);
            }
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            if then == Stands && !payload.is_empty() {
                assert_eq!(world.read_all(id), payload);
                peer.seq = peer.seq.wrapping_add(payload.len() as u32);
            }
            if flags & FIN == 0 || then != Stands {
                peer.say(&mut world.rig, b"hello");
                assert_eq!(world.read_all(id), b"hello");
            }
        });
    }
}

/// RFC 6298, `tcp_synack_retries`.
#[test]
fn the_answer_to_a_syn_is_repeated_and_given_up() {
    everywhere(|world| {
        let listener = world.listen(8);
        let mut peer = world.peer();
        let first = peer.begin(&mut world.rig);
        let mut times = Vec::new();
        for tenth in 1..=700 {
            world.pass(Duration::from_millis(100));
            for answer in peer.answers(&mut world.rig) {
                assert_eq!(answer, first);
                times.push(tenth);
            }
        }
        assert_eq!(times, [10, 30, 70, 150, 310]);
        assert_eq!(world.rig.count(Counter::TcpRetransSegs), 5);
        assert_eq!(world.states(), []);
        assert_eq!(world.rig.stack.tcp_accept(listener), Ok(None));
    });
}

/// RFC 1122 section 4.2.3.10, and an attack of old ("land"). In IPv6 such a packet dies earlier.
#[test]
fn a_syn_must_be_from_somebody() {
    everywhere(|world| {
        world.listen_on(world.net.any(OWN_PORT), 8);
        let v4 = [
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::BROADCAST,
            Ipv4Addr::new(10, 0, 0, 255),
            Ipv4Addr::new(224, 0, 0, 1),
            Ipv4Addr::LOCALHOST,
        ];
        let v6 = [
            Ipv6Addr::UNSPECIFIED,
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        ];
        let mut sources: Vec<IpAddr> = match world.net.is_v4() {
            true => v4.map(IpAddr::from).to_vec(),
            false => v6.map(IpAddr::from).to_vec(),
        };
        sources.push(world.net.own);
        for source in sources {
            for port in [OWN_PORT, PEER_PORT] {
                let from = SocketAddr::new(source, port);
                let peer = Peer::new(from, world.net.own(OWN_PORT), world.irs);
                peer.send(&mut world.rig, &peer.syn());
                assert!(world.rig.is_silent(), "{source}");
                assert_eq!(world.states(), [], "{source}");
            }
        }
        // To many.
        let targets: [IpAddr; 2] = match world.net.is_v4() {
            true => [
                Ipv4Addr::new(10, 0, 0, 255).into(),
                Ipv4Addr::BROADCAST.into(),
            ],
            false => [v6[2].into(); 2],
        };
        for target in targets {
            let to = SocketAddr::new(target, OWN_PORT);
            let peer = Peer::new(world.net.peer(PEER_PORT), to, world.irs);
            peer.send(&mut world.rig, &peer.syn());
            assert!(world.rig.is_silent(), "{target}");
        }
        assert_eq!(world.states(), []);
    });
}

/// Repeated SYNs and stray segments are not answered as often as they come.
#[test]
fn a_half_open_connection_does_not_answer_all_the_time() {
    everywhere(|world| {
        world.listen(8);
        let mut peer = world.peer();
        let syn = peer.syn();
        let syn_ack = peer.begin(&mut world.rig);
        let stray = peer.segment(-5_000, ACK);
        for (segment, flags) in [(&syn, SYN | ACK), (&stray, ACK)] {
            assert_eq!(world.answered(&mut peer, segment).flags, flags);
            for _ in 0..3 {
                world.unanswered(&mut peer, segment);
            }
            world.pass(Duration::from_millis(500));
        }
        assert_eq!(world.rig.count(Counter::TcpExtTCPACKSkippedSynRecv), 6);
        assert_eq!(peer.answer(&mut world.rig), syn_ack);
    });
}

/// What both ends offer is agreed on, and nothing else (RFC 7323 sections 1.3 and 2.2, RFC 2018).
#[test]
fn options_are_agreed_on_by_both() {
    let knobs = ["tcp_window_scaling", "tcp_sack", "tcp_timestamps"];
    for offered in 0..8 {
        for ours in 0..8 {
            everywhere(|world| {
                for (bit, knob) in knobs.iter().enumerate() {
                    world.rig.set(&format!("net.ipv4.{knob}"), ours >> bit & 1);
                }
                let offer = Offer {
                    window_scale: (offered & 1 != 0).then_some(3),
                    sack: offered & 2 != 0,
                    timestamps: (offered & 4 != 0).then_some(9_000),
                    ..Offer::PLAIN
                };
                let listener = world.listen(8);
                let mut peer = world.peer().offering(offer);
                let answer = peer.begin(&mut world.rig);
                let both = offered & ours;
                assert_eq!(answer.window_scale_option().is_some(), both & 1 != 0);
                assert_eq!(answer.permits_sack(), both & 2 != 0);
                let echo = answer.timestamps_option().map(|(_, echo)| echo);
                assert_eq!(echo, (both & 4 != 0).then_some(9_000));
                assert_eq!(answer.mss_option(), Some(world.net.pick(1_460, 1_440)));
                let ack = peer.segment(0, ACK);
                world.unanswered(&mut peer, &ack);
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                let id = accepted.expect("a connection").id;
                let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
                assert_eq!(info.window_scale.is_some(), both & 1 != 0);
                assert_eq!(info.sack, both & 2 != 0);
                assert_eq!(info.timestamps, both & 4 != 0);
                let stamps = if both & 4 != 0 { 12 } else { 0 };
                assert_eq!(info.snd_mss, 1_000 - stamps);
            });
        }
    }
}

/// Options that end too early, or say that they are shorter than they can be, are left out.
#[test]
fn broken_options_are_passed_over() {
    let cases: [&[u8]; 8] = [
        &[2],
        &[2, 0, 0, 0],
        &[2, 1, 5, 5],
        &[2, 40, 5, 5],
        &[2, 3, 5, 1],
        &[3, 3, 200, 0],
        &[8, 10, 0, 0],
        &[254, 255, 1, 1],
    ];
    for options in cases {
        everywhere(|world| {
            let listener = world.listen(8);
            let mut peer = world.peer();
            let mut syn = Segment::new(peer.seq, 0, SYN);
            syn.options = options.to_vec();
            let answer = world.answered(&mut peer, &syn);
            assert_eq!(answer.flags, SYN | ACK);
            peer.seq = peer.seq.wrapping_add(1);
            peer.ack = answer.seq.wrapping_add(1);
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            assert_eq!(info.snd_mss, 536);
        });
    }
}

/// PAWS (RFC 7323 section 5.3) holds before the handshake is done, too; not for resets.
#[test]
fn an_old_timestamp_completes_no_handshake() {
    for start in [1_000, 0xffff_ffff, 0x7fff_ffff_u32] {
        everywhere(|world| {
            let offer = Offer {
                timestamps: Some(start),
                ..Offer::PLAIN
            };
            let listener = world.listen(8);
            let mut peer = world.peer().offering(offer);
            peer.begin(&mut world.rig);
            peer.offer.timestamps = Some(start.wrapping_sub(1));
            let old = peer.segment(0, ACK);
            let answer = world.answered(&mut peer, &old);
            assert_eq!(answer.brief(), peer.plain_ack());
            assert_eq!(world.states(), [TcpState::SynRecv]);
            peer.offer.timestamps = Some(start.wrapping_add(1));
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
            assert!(
                world
                    .rig
                    .stack
                    .tcp_accept(listener)
                    .expect("a listener")
                    .is_some()
            );

            let mut other = world.peer_at(PEER_PORT + 1).offering(offer);
            other.begin(&mut world.rig);
            other.offer.timestamps = Some(start.wrapping_sub(1));
            let reset = other.segment(0, RST);
            world.unanswered(&mut other, &reset);
            assert_eq!(world.states(), [TcpState::Established]);
        });
    }
}

/// What happens to a connection before anybody accepts it is told to who does.
#[test]
fn a_connection_lives_before_it_is_accepted() {
    use forebay_stack::tcp::TcpError;
    for end in [FIN | ACK, RST] {
        everywhere(|world| {
            let listener = world.listen(8);
            let mut peer = world.peer();
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
            peer.say(&mut world.rig, b"early");
            peer.send(&mut world.rig, &peer.segment(0, end));
            world.rig.output("tun0");
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            assert_eq!(world.read(id), Ok(Some(b"early".to_vec())));
            let then = match end {
                RST => Err(TcpError::ConnectionReset),
                _ => Ok(Some(Vec::new())),
            };
            assert_eq!(world.read(id), then);
        });
    }
}
