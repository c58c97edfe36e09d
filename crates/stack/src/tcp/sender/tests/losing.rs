//! Loss, and what looked like it, in figures.

use super::hand::{FIRSTS, Hand};
use crate::tcp::sender::{AckOutcome, TimerKind};
use crate::wire::seq::Seq;

#[test]
fn three_segments_behind_a_hole_are_loss() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(10_000);
        assert_eq!(hand.out(), "0:10000P");
        hand.wait(100);
        assert_eq!(
            hand.sack(1_000, &[(2_000, 3_000)]),
            AckOutcome::Advanced {
                bytes: 1_000,
                room_made: false
            }
        );
        assert_eq!((hand.out(), hand.state()), (String::new(), "disorder"));
        assert_eq!(hand.sack(1_000, &[(2_000, 4_000)]), AckOutcome::Duplicate);
        assert_eq!(hand.out(), "");
        hand.sack(1_000, &[(2_000, 5_000)]);
        assert_eq!(
            (hand.out().as_str(), hand.state()),
            ("R1000:2000", "recovery")
        );
        hand.sack(1_000, &[(2_000, 10_000)]);
        hand.wait(100);
        hand.ack(10_000);
        // Of twelve, half.
        assert_eq!((hand.state(), hand.cwnd()), ("open", 6));
        assert_eq!(hand.sender.deadline(), None);
    }
}

#[test]
fn three_duplicates_are_loss_without_sack() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| {
            config.first = Seq(first);
            config.sack = false;
        });
        hand.write(20_000);
        assert_eq!(hand.out(), "0:10000");
        hand.wait(100);
        // Limited transmit (RFC 3042): the first two let new segments out.
        hand.ack(0);
        assert_eq!(hand.out(), "10000:11000");
        hand.ack(0);
        assert_eq!(hand.out(), "11000:12000");
        hand.ack(0);
        assert_eq!(hand.out(), "R0:1000");
        assert_eq!(hand.state(), "recovery");
        for _ in 0..9 {
            hand.ack(0);
            hand.out();
        }
        hand.wait(100);
        // A part of what was out: the next hole (RFC 6582).
        hand.ack(5_000);
        assert!(hand.out().starts_with("R5000:6000"));
        hand.wait(100);
        let all = hand.sender.next() - hand.sender.una() + 5_000;
        hand.ack(all);
        hand.ack(all);
        assert_eq!(hand.state(), "open");
    }
}

#[test]
fn a_silent_tail_is_probed() {
    for (segments, probed_after, probe) in [
        (1, 300, "R0:1000P"),
        (2, 202, "R1000:2000P"),
        (4, 202, "R3000:4000P"),
    ] {
        let mut hand = Hand::new(|_| {});
        hand.write(segments * 1_000);
        hand.out();
        assert_eq!(
            hand.sender.timer().map(|(kind, _)| kind),
            Some(TimerKind::LossProbe)
        );
        hand.sleep();
        assert_eq!((hand.at(), hand.out().as_str()), (probed_after, probe));
        assert_eq!(
            hand.sender.timer().map(|(kind, _)| kind),
            Some(TimerKind::Retransmission)
        );
    }
    // New bytes rather than old ones, if the window admits them.
    let mut hand = Hand::new(|config| config.initial_cwnd = 2);
    hand.write(10_000);
    assert_eq!(hand.out(), "0:2000");
    assert_eq!(hand.sleep().out(), "2000:3000");
}

#[test]
fn a_probe_that_filled_a_hole_halves_the_window() {
    let mut hand = Hand::new(|config| config.initial_cwnd = 20);
    hand.write(10_000);
    hand.out();
    assert_eq!(hand.sleep().out(), "R9000:10000P");
    hand.wait(100);
    // The last was lost, and the probe came; something else behind it, too.
    hand.write(1_000);
    hand.out();
    hand.ack(11_000);
    assert_eq!(hand.count("TcpExtTCPLossProbeRecovery"), 1);
    assert_eq!(hand.state(), "open");
    assert_eq!(hand.sender.info(hand.now).ssthresh, Some(10));
    // With D-SACK: both came.
    let mut hand = Hand::new(|_| {});
    hand.write(10_000);
    hand.out();
    hand.sleep().out();
    hand.wait(100);
    hand.sack(10_000, &[(9_000, 10_000)]);
    assert_eq!(hand.count("TcpExtTCPLossProbeRecovery"), 0);
    assert_eq!(hand.state(), "open");
    assert_eq!(hand.sender.info(hand.now).ssthresh, None);
}

#[test]
fn marks_halve_the_window_once_a_round_trip() {
    let mut hand = Hand::new(|config| config.ecn = true);
    hand.write(100_000);
    assert_eq!(hand.out(), "0:10000");
    hand.wait(100);
    hand.ece = true;
    hand.ack(2_000);
    assert_eq!(hand.state(), "cwr");
    assert_eq!(hand.out(), "10000:11000W");
    for to in [4_000, 6_000, 8_000, 10_000] {
        hand.ack(to);
        assert!(!hand.out().contains('W'));
    }
    hand.ece = false;
    hand.wait(100);
    let next = hand.sender.next() - hand.sender.una() + 10_000;
    hand.ack(next);
    assert_eq!(hand.state(), "open");
    assert_eq!(hand.count("TcpRetransSegs"), 0);
    assert_eq!(hand.sender.info(hand.now).ssthresh, Some(5));
}

#[test]
fn a_timeout_that_was_wrong_is_taken_back() {
    // RFC 5682: after the timeout, what was sent once is acknowledged.
    for first in FIRSTS {
        let mut hand = Hand::new(|config| {
            config.first = Seq(first);
            config.timestamps = false;
            config.knobs.early_retrans = 0;
        });
        hand.write(100_000);
        assert_eq!(hand.out(), "0:10000");
        assert_eq!(hand.sleep().out(), "R0:1000");
        hand.ack(1_000);
        assert_eq!(hand.out(), "10000:12000", "new bytes");
        hand.ack(3_000);
        assert_eq!(
            (hand.state(), hand.count("TcpExtTCPSpuriousRTOs")),
            ("open", 1)
        );
        assert!(hand.cwnd() >= 10);
        assert!(!hand.out().contains('R'));
        assert_eq!(hand.count("TcpRetransSegs"), 1);
    }
}

#[test]
fn a_timeout_that_was_right_is_not() {
    let mut hand = Hand::new(|config| {
        config.timestamps = false;
        config.knobs.early_retrans = 0;
    });
    hand.write(100_000);
    hand.out();
    assert_eq!(hand.sleep().out(), "R0:1000");
    hand.wait(100).ack(1_000);
    assert_eq!(hand.out(), "10000:12000");
    hand.wait(100).sack(1_000, &[(10_000, 11_000)]);
    assert!(hand.out().starts_with("R1000:"));
    assert_eq!(hand.state(), "loss");
    assert_eq!(hand.count("TcpExtTCPSpuriousRTOs"), 0);
}

#[test]
fn timestamps_tell_originals_from_retransmissions() {
    let mut hand = Hand::new(|_| {});
    hand.write(10_000);
    hand.out();
    hand.wait(100);
    hand.sack(0, &[(1_000, 4_000)]);
    assert_eq!((hand.out().as_str(), hand.state()), ("R0:1000", "recovery"));
    // Sent 110 ms ago, ten before the retransmission.
    hand.wait(10);
    hand.echo = Some(110);
    hand.ack(10_000);
    assert_eq!((hand.state(), hand.count("TcpExtTCPFullUndo")), ("open", 1));
    assert!(hand.cwnd() >= 10);
}

#[test]
fn duplicates_of_all_retransmissions_take_recovery_back() {
    let mut hand = Hand::new(|config| config.timestamps = false);
    hand.write(10_000);
    hand.out();
    hand.wait(100);
    hand.sack(0, &[(1_000, 4_000)]);
    assert_eq!(hand.out(), "R0:1000");
    hand.wait(10).ack(10_000);
    let reduced = hand.cwnd();
    assert!(reduced < 10);
    hand.wait(90).sack(10_000, &[(0, 1_000)]);
    assert_eq!(hand.count("TcpExtTCPDSACKUndo"), 1);
    assert!(hand.cwnd() >= 10);
}

#[test]
fn who_has_seen_reordering_waits() {
    let mut hand = Hand::new(|config| config.timestamps = false);
    hand.write(20_000);
    assert_eq!(hand.out(), "0:10000");
    hand.wait(100);
    hand.sack(0, &[(1_000, 2_000)]);
    hand.ack(2_000);
    hand.out();
    hand.wait(10);
    // Now three behind a hole are no proof: a quarter of a round trip more.
    hand.sack(2_000, &[(3_000, 7_000)]);
    assert!(!hand.out().contains('R'));
    assert_eq!(
        hand.sender.timer().map(|(kind, _)| kind),
        Some(TimerKind::Reordering)
    );
    let before = hand.at();
    assert!(hand.sleep().out().starts_with("R2000:3000"));
    assert!(
        (20..=30).contains(&(hand.at() - before)),
        "{}",
        hand.at() - before
    );
}

#[test]
fn a_lost_retransmission_is_noticed() {
    let mut hand = Hand::new(|_| {});
    hand.write(100_000);
    hand.out();
    hand.wait(100);
    hand.sack(0, &[(1_000, 10_000)]);
    let out = hand.out();
    assert!(out.starts_with("R0:1000 10000:"), "{out}");
    hand.wait(100);
    hand.sack(0, &[(1_000, 12_000)]);
    assert!(hand.out().starts_with("R0:1000"));
    assert_eq!(hand.count("TcpExtTCPLostRetransmit"), 1);
    assert_eq!(hand.count("TcpExtTCPTimeouts"), 0);
}

#[test]
fn what_the_peer_has_dropped_is_sent_again() {
    let mut hand = Hand::new(|config| config.knobs.early_retrans = 0);
    hand.write(5_000);
    hand.out();
    hand.wait(100);
    hand.sack(0, &[(1_000, 5_000)]);
    assert_eq!(hand.out(), "R0:1000");
    hand.wait(100);
    // It acknowledges the hole alone: the rest is gone.
    hand.ack(1_000);
    assert_eq!(hand.sleep().out(), "R1000:2000");
    assert_eq!(hand.count("TcpExtTCPSACKReneging"), 1);
    hand.wait(100).ack(2_000);
    assert_eq!(hand.out(), "R2000:4000");
}
