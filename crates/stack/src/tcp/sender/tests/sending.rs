//! What leaves when, in figures.

use super::hand::{FIRSTS, Hand};
use crate::tcp::congestion::Congestion;
use crate::tcp::sender::{AckOutcome, Sender};
use crate::wire::seq::Seq;

#[test]
fn slow_start_doubles_each_round_trip() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(200_000);
        assert_eq!(hand.out(), "0:10000");
        let mut sent = 10_000;
        for round in [20_000, 40_000, 80_000] {
            hand.wait(100);
            // One acknowledgement for each two segments.
            let from = sent - round / 2;
            for acked in (from + 2_000..=sent).step_by(2_000) {
                hand.ack(acked);
                hand.out();
            }
            assert_eq!(hand.sender.next() - hand.sender.una(), round);
            sent += round;
        }
        assert_eq!(hand.cwnd(), 80);
    }
}

#[test]
fn a_stretched_acknowledgement_counts_whole() {
    let mut hand = Hand::new(|_| {});
    hand.write(100_000);
    assert_eq!(hand.out(), "0:10000");
    hand.wait(100);
    assert_eq!(
        hand.ack(10_000),
        AckOutcome::Advanced {
            bytes: 10_000,
            room_made: false
        }
    );
    assert_eq!(hand.out(), "10000:30000");
}

#[test]
fn a_window_of_less_than_a_segment_is_used_in_the_end() {
    let mut hand = Hand::new(|config| config.window = 10_000);
    hand.write(20_000);
    assert_eq!(hand.out(), "0:10000");
    hand.window = 300;
    hand.ack(10_000);
    assert_eq!(hand.out(), "");
    assert_eq!(hand.sleep().out(), "10000:10300");
    // Who never announces more gets small segments at once.
    let mut hand = Hand::new(|config| config.window = 400);
    hand.write(1_000);
    assert_eq!(hand.out(), "0:400");
    hand.window = 400;
    hand.ack(400);
    assert_eq!(hand.out(), "400:800");
    hand.ack(800);
    assert_eq!(hand.out(), "800:1000P");
}

#[test]
fn small_segments_wait_for_each_other() {
    let mut hand = Hand::new(|_| {});
    hand.write(100);
    assert_eq!(hand.out(), "0:100P");
    hand.write(100);
    assert_eq!(hand.out(), "", "Nagle");
    hand.write(1_000);
    assert_eq!(hand.out(), "100:1100");
    hand.ack(100);
    assert_eq!(hand.out(), "1100:1200P");
    // Full segments before it don't hold a small one back.
    let mut hand = Hand::new(|_| {});
    hand.write(2_100);
    assert_eq!(hand.out(), "0:2100P");
    let mut hand = Hand::new(|_| {});
    hand.sender.set_nodelay(true);
    for n in 0..3 {
        hand.write(100);
        assert_eq!(hand.out(), format!("{}:{}P", n * 100, n * 100 + 100));
    }
}

#[test]
fn a_cork_holds_for_a_while() {
    let mut hand = Hand::new(|_| {});
    hand.sender.set_cork(true);
    hand.write(2_500);
    assert_eq!(hand.out(), "0:2000");
    hand.wait(100).ack(2_000);
    assert_eq!(hand.out(), "");
    hand.sender.set_cork(false);
    assert_eq!(hand.out(), "2000:2500P");
    hand.ack(2_500);
    hand.sender.set_cork(true);
    hand.write(10);
    assert_eq!(hand.out(), "");
    let before = hand.at();
    assert_eq!(hand.sleep().out(), "2500:2510P");
    assert!((200..=300).contains(&(hand.at() - before)));
    // The same for one write only.
    let mut hand = Hand::new(|_| {});
    hand.write_some(10, true);
    assert_eq!(hand.out(), "");
    hand.write(10);
    assert_eq!(hand.out(), "0:20P");
}

#[test]
fn a_fin_goes_with_the_last_bytes() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(1_500);
        hand.sender.finish();
        assert_eq!(hand.out(), "0:1500FP");
        assert!(hand.sender.is_fin_sent() && !hand.sender.is_fin_acked());
        hand.ack(1_500);
        assert!(!hand.sender.is_fin_acked());
        assert_eq!(hand.sleep().out(), "R1500:1500F");
        assert_eq!(
            hand.ack(1_501),
            AckOutcome::Advanced {
                bytes: 0,
                room_made: false
            }
        );
        assert!(hand.sender.is_fin_acked());
        assert_eq!(hand.sender.deadline(), None);
        assert_eq!(hand.ack(1_502), AckOutcome::TooNew);
        assert_eq!(hand.ack(1_500), AckOutcome::Old);
        // Alone; and while another is under way, for it is no small segment.
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(10);
        assert_eq!(hand.out(), "0:10P");
        hand.sender.finish();
        assert_eq!(hand.out(), "10:10F");
        assert_eq!(
            hand.ack(11),
            AckOutcome::Advanced {
                bytes: 10,
                room_made: false
            }
        );
        assert!(hand.sender.is_fin_acked());
    }
}

#[test]
fn a_fin_waits_for_the_window() {
    let mut hand = Hand::new(|config| config.window = 1_000);
    hand.write(1_000);
    hand.sender.finish();
    assert_eq!(hand.out(), "0:1000P");
    hand.window = 0;
    hand.ack(1_000);
    assert_eq!(hand.out(), "");
    assert_eq!(hand.sleep().out(), "probe");
    hand.window = 1;
    hand.ack(1_000);
    assert_eq!(hand.out(), "1000:1000F");
}

#[test]
fn idle_connections_begin_small_again() {
    for (knob, expected) in [(true, "50000:60000"), (false, "50000:80000P")] {
        let mut hand = Hand::new(|config| config.knobs.slow_start_after_idle = knob);
        hand.write(50_000);
        hand.out();
        hand.wait(100).ack(10_000);
        hand.out();
        hand.wait(100).ack(30_000);
        hand.out();
        hand.wait(100).ack(50_000);
        assert!(hand.cwnd() >= 30);
        hand.wait(10_000).write(30_000);
        assert_eq!(hand.out(), expected);
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut hand = Hand::new(|_| {});
    for n in 1..=100 {
        hand.write(1_000);
        hand.out();
        hand.wait(10).ack(n * 1_000);
    }
    assert_eq!(hand.cwnd(), 10);
}

#[test]
fn what_a_buffer_takes() {
    let mut hand = Hand::new(|config| {
        config.buffer = 10_000;
        config.max_buffer = 10_000;
        config.initial_cwnd = 1;
    });
    assert_eq!(hand.write_some(20_000, false), 10_000);
    assert!(!hand.sender.is_writable());
    assert_eq!(hand.out(), "0:1000");
    assert_eq!(
        hand.ack(1_000),
        AckOutcome::Advanced {
            bytes: 1_000,
            room_made: false
        }
    );
    hand.out();
    hand.wait(100);
    assert_eq!(
        hand.ack(3_000),
        AckOutcome::Advanced {
            bytes: 2_000,
            room_made: false
        }
    );
    hand.out();
    hand.wait(100);
    // A third is free.
    assert_eq!(
        hand.ack(4_000),
        AckOutcome::Advanced {
            bytes: 1_000,
            room_made: true
        }
    );
    assert_eq!(
        hand.ack(5_000),
        AckOutcome::Advanced {
            bytes: 1_000,
            room_made: false
        },
        "told once"
    );
}

#[test]
fn a_pace_spreads_segments() {
    let mut hand = Hand::new(|_| {});
    hand.sender.set_max_pacing_rate(200_000);
    hand.write(20_000);
    assert_eq!(
        hand.out(),
        "0:2000 2000:4000 4000:6000 6000:8000 8000:10000"
    );
    hand.wait(100).ack(10_000);
    assert_eq!(hand.out(), "10000:12000");
    assert_eq!(hand.sleep().out(), "12000:14000");
    let mut sent = 14_000;
    while sent < 20_000 {
        let before = hand.at();
        hand.sleep();
        assert_eq!(hand.at() - before, 10);
        assert!(hand.out().starts_with(&format!("{sent}:{}", sent + 2_000)));
        sent += 2_000;
    }
}

/// A million connections are to fit: one that is idle holds nothing but this.
#[test]
fn a_sender_is_small() {
    let size = size_of::<Sender>() - size_of::<Congestion>();
    assert!(size <= 600, "{size} bytes");
}
