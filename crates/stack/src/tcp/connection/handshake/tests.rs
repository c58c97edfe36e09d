use super::*;
use crate::wire::seq::Seq;
use crate::wire::tcp::FLAG_FIN;

/// Initial sequence numbers that go round soon, or change their sign.
const STARTS: [u32; 4] = [0, 0x7fff_fff0, 0xffff_fff0, u32::MAX];
const IRS: Seq = Seq(0xffff_ffff);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn offer(iss: u32) -> Offer {
    Offer {
        iss: Seq(iss),
        mss: 1_460,
        window: 64_240,
        window_scale: Some(7),
        sack: true,
        timestamps: Some(1_000),
        ecn: false,
        retries: 6,
    }
}

fn segment(flags: u8, seq: Seq, ack: Seq) -> Segment {
    Segment {
        seq,
        ack,
        flags,
        window: 100,
        urgent: 0,
        options: TcpOptions::default(),
        len: 0,
        segment_size: 0,
        is_ce: false,
    }
}

fn syn_options() -> TcpOptions {
    TcpOptions {
        mss: Some(1_400),
        window_scale: Some(3),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 77, echo: 0 }),
        ..TcpOptions::default()
    }
}

fn started(iss: u32) -> Handshake {
    let mut handshake = Handshake::new(offer(iss), at(5));
    let syn = handshake.transmit(at(5)).expect("a SYN");
    assert_eq!(
        (syn.flags, syn.seq, syn.window),
        (FLAG_SYN, Seq(iss), 64_240)
    );
    assert_eq!(handshake.transmit(at(5)), None, "once");
    handshake
}

#[test]
fn three_ways() {
    for iss in STARTS {
        let mut handshake = started(iss);
        let answer = Segment {
            options: TcpOptions {
                timestamps: Some(Timestamps {
                    value: 77,
                    echo: 1_005,
                }),
                ..syn_options()
            },
            ..segment(FLAG_SYN | FLAG_ACK, IRS, Seq(iss) + 1)
        };
        let Progress::Done { agreed, more } = handshake.on_segment(&answer, at(35)) else {
            panic!("the answer fits");
        };
        assert!(!more);
        assert_eq!((agreed.iss, agreed.irs), (Seq(iss), IRS));
        assert_eq!((agreed.mss, agreed.window), (1_400, 100));
        assert_eq!(agreed.scales, Some((3, 7)));
        assert!(agreed.sack && agreed.clock.is_some() && !agreed.ecn);
        assert_eq!(agreed.round_trip, Some(Duration::from_millis(30)));
        assert!(!agreed.was_retransmitted);
    }
}

#[test]
fn a_bare_answer_agrees_on_nothing() {
    let mut handshake = started(9);
    let answer = segment(FLAG_SYN | FLAG_ACK, IRS, Seq(10));
    let Progress::Done { agreed, .. } = handshake.on_segment(&answer, at(6)) else {
        panic!("the answer fits");
    };
    assert_eq!((agreed.mss, agreed.scales), (DEFAULT_MSS, None));
    assert!(!agreed.sack && agreed.clock.is_none());
}

#[test]
fn what_does_not_fit_is_answered_or_ignored() {
    for iss in STARTS {
        let (good, bad) = (Seq(iss) + 1, Seq(iss));
        // (segment, the reset's sequence number if it is answered, refused)
        let cases = [
            (segment(FLAG_ACK, IRS, bad), Some(bad), false),
            (
                segment(FLAG_SYN | FLAG_ACK, IRS, good + 1),
                Some(good + 1),
                false,
            ),
            (segment(FLAG_RST | FLAG_ACK, IRS, bad), None, false),
            (segment(FLAG_RST | FLAG_ACK, IRS, good), None, true),
            (segment(FLAG_RST, IRS, Seq(0)), None, false),
            (segment(FLAG_ACK, IRS, good), None, false),
            (segment(FLAG_FIN, IRS, Seq(0)), None, false),
        ];
        for (segment, reset, is_refused) in cases {
            let mut handshake = started(iss);
            match (handshake.on_segment(&segment, at(6)), reset) {
                (Progress::Reply(reply), Some(seq)) => {
                    assert_eq!((reply.flags, reply.seq), (FLAG_RST, seq));
                }
                (Progress::Failed(error), None) => {
                    assert!(is_refused && error == TcpError::ConnectionRefused);
                }
                (Progress::Waiting, None) => assert!(!is_refused, "{segment:?}"),
                (other, _) => panic!("{segment:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn both_begin_at_once() {
    for iss in STARTS {
        let mut handshake = started(iss);
        let syn = Segment {
            options: syn_options(),
            ..segment(FLAG_SYN, IRS, Seq(0))
        };
        assert!(matches!(
            handshake.on_segment(&syn, at(6)),
            Progress::Waiting
        ));
        assert!(handshake.is_syn_received());
        let answer = handshake.transmit(at(6)).expect("an answer");
        assert_eq!(answer.flags, FLAG_SYN | FLAG_ACK);
        assert_eq!((answer.seq, answer.ack), (Seq(iss), IRS + 1));
        // The peer's own SYN-ACK ends it.
        let theirs = Segment {
            options: syn_options(),
            ..segment(FLAG_SYN | FLAG_ACK, IRS, Seq(iss) + 1)
        };
        let Progress::Done { agreed, more } = handshake.on_segment(&theirs, at(7)) else {
            panic!("it acknowledges ours");
        };
        assert!(!more);
        assert_eq!((agreed.window, agreed.scales), (100, Some((3, 7))));
    }
}

#[test]
fn a_syn_is_sent_again_with_doubled_pauses_and_given_up() {
    let mut handshake = started(1);
    let mut now = at(5);
    let mut pauses = Vec::new();
    let error = loop {
        let deadline = handshake.deadline();
        let early = Instant::from_nanos(deadline.as_nanos() - 1);
        assert!(handshake.on_deadline(early).is_ok());
        assert_eq!(handshake.transmit(early), None);
        pauses.push((deadline - now).as_secs());
        now = deadline;
        match handshake.on_deadline(now) {
            Ok(()) => assert!(handshake.transmit(now).is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error, TcpError::TimedOut);
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64]);
}

#[test]
fn only_an_echo_tells_the_round_trip_of_a_repeated_syn() {
    for echoed in [None, Some(2_005)] {
        let mut handshake = started(1);
        handshake.on_deadline(at(1_005)).expect("not yet");
        assert!(handshake.transmit(at(1_005)).is_some());
        let stamp = |echo| Timestamps { value: 1, echo };
        let answer = Segment {
            options: TcpOptions {
                timestamps: echoed.map(stamp),
                ..TcpOptions::default()
            },
            ..segment(FLAG_SYN | FLAG_ACK, IRS, Seq(2))
        };
        let Progress::Done { agreed, .. } = handshake.on_segment(&answer, at(1_025)) else {
            panic!("the answer fits");
        };
        assert!(agreed.was_retransmitted);
        assert_eq!(agreed.round_trip, echoed.map(|_| Duration::from_millis(20)));
    }
}

#[test]
fn congestion_notification_is_asked_for_and_agreed_to() {
    let mut handshake = Handshake::new(
        Offer {
            ecn: true,
            ..offer(1)
        },
        at(0),
    );
    let syn = handshake.transmit(at(0)).expect("a SYN");
    assert_eq!(syn.flags, FLAG_SYN | FLAG_ECE | FLAG_CWR);
    for (flags, agrees) in [(FLAG_ECE, true), (FLAG_ECE | FLAG_CWR, false), (0, false)] {
        let mut handshake = Handshake::new(*handshake.offer(), at(0));
        let answer = segment(FLAG_SYN | FLAG_ACK | flags, IRS, Seq(2));
        let Progress::Done { agreed, .. } = handshake.on_segment(&answer, at(1)) else {
            panic!("the answer fits");
        };
        assert_eq!(agreed.ecn, agrees);
    }
}
