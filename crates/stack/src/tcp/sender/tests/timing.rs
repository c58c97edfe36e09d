//! Timeouts and probes, in figures.

use core::time::Duration;

use super::hand::{FIRSTS, Hand};
use crate::wire::seq::Seq;

#[test]
fn timeouts_double_up_to_two_minutes() {
    for (sack, early_retrans) in [(true, 0), (false, 3)] {
        for first in FIRSTS {
            let mut hand = Hand::new(|config| {
                config.first = Seq(first);
                config.sack = sack;
                config.knobs.early_retrans = early_retrans;
            });
            hand.write(3_000);
            assert_eq!(hand.out(), "0:3000P");
            let mut seen = Vec::new();
            let mut last = hand.at();
            while !hand.gives_up() {
                seen.push(hand.at() - last);
                last = hand.at();
                assert_eq!(hand.out(), "R0:1000");
                assert_eq!((hand.state(), hand.cwnd()), ("loss", 1));
            }
            // 100 ms of round trip and 200 of variance.
            let expected = [
                300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 120_000, 120_000,
                120_000, 120_000, 120_000, 120_000,
            ];
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn the_user_says_how_long_to_wait() {
    let mut hand = Hand::new(|config| config.sack = false);
    hand.sender.set_user_timeout(Duration::from_secs(3));
    hand.write(1_000);
    hand.out();
    let mut seen = Vec::new();
    while !hand.gives_up() {
        seen.push(hand.at());
        hand.out();
    }
    assert_eq!(seen, [300, 900, 2_100]);
    assert_eq!(hand.at(), 3_300, "three seconds after the first timeout");
}

#[test]
fn an_orphan_waits_less() {
    let mut hand = Hand::new(|config| config.sack = false);
    hand.sender.set_orphaned(3);
    hand.write(1_000);
    hand.out();
    let mut timeouts = 0;
    while !hand.gives_up() {
        hand.out();
        timeouts += 1;
    }
    assert!(timeouts <= 4, "{timeouts}");
}

#[test]
fn a_closed_window_is_probed() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.window = 0;
        hand.write(5_000);
        hand.ack(0);
        assert_eq!(hand.out(), "");
        let mut seen = Vec::new();
        for _ in 0..6 {
            let before = hand.at();
            assert_eq!(hand.sleep().out(), "probe");
            seen.push(hand.at() - before);
            hand.ack(0);
            assert_eq!(hand.out(), "");
        }
        assert_eq!(seen, [300, 600, 1_200, 2_400, 4_800, 9_600]);
        hand.window = 3_000;
        hand.ack(0);
        assert_eq!(hand.out(), "0:3000");
        hand.window = 3_500;
        hand.ack(3_000);
        assert_eq!(hand.out(), "3000:5000P");
    }
}

#[test]
fn who_does_not_answer_probes_is_given_up() {
    let mut hand = Hand::new(|_| {});
    hand.window = 0;
    hand.write(5_000);
    hand.ack(0);
    hand.out();
    let mut probes = 0;
    while !hand.gives_up() {
        assert_eq!(hand.out(), "probe");
        probes += 1;
    }
    assert_eq!(probes, 15);
}
