//! Sizes of segments, in figures.

use super::hand::{FIRSTS, Hand};
use crate::wire::seq::Seq;

#[test]
fn a_narrower_path_gets_smaller_segments() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(5_000);
        assert_eq!(hand.out(), "0:5000P");
        hand.set_mss(400);
        assert_eq!(hand.out(), "R0:4000", "ten segments of the window");
        assert_eq!(hand.cwnd(), 10, "no congestion");
        hand.wait(100).ack(4_000);
        assert_eq!(hand.out(), "R4000:5000P");
        hand.wait(100).ack(5_000);
        assert_eq!(hand.state(), "open");
    }
}

#[test]
fn large_segments_are_tried() {
    let mut hand = Hand::new(|config| {
        config.knobs.mtu_probing = 2;
        config.knobs.base_mss = 524;
        config.mss = 1_448;
        config.initial_cwnd = 40;
    });
    hand.write(100_000);
    let out = hand.out();
    assert!(out.starts_with("mtu 0:980 980:"), "{out}");
    hand.wait(100).ack(980);
    assert_eq!(hand.sender.info(hand.now).mss, 980);
    assert_eq!(hand.count("TcpExtTCPMTUPSuccess"), 1);
    // The next one is lost, alone: it is no sign of congestion.
    let next = hand.sender.next() - hand.sender.una() + 980;
    hand.wait(100).ack(next);
    let out = hand.out();
    assert!(
        out.starts_with(&format!("mtu {next}:{}", next + 1_214)),
        "{out}"
    );
    hand.wait(100);
    let cwnd = hand.cwnd();
    hand.sack(next, &[(next + 1_214, next + 1_214 + 980 * 8)]);
    assert_eq!(hand.count("TcpExtTCPMTUPFail"), 1);
    assert!(hand.out().starts_with(&format!("R{next}:{}", next + 1_214)));
    assert_eq!(hand.sender.info(hand.now).mss, 980);
    assert!(hand.cwnd() >= cwnd);
    assert_eq!(hand.sender.info(hand.now).ssthresh, None);
}

#[test]
fn a_path_that_swallows_large_segments_gets_smaller_ones() {
    let mut hand = Hand::new(|config| {
        config.knobs.mtu_probing = 1;
        config.sack = false;
        config.mss = 1_448;
    });
    hand.write(14_480);
    hand.out();
    for _ in 0..3 {
        assert_eq!(hand.sleep().out(), "R0:1448");
    }
    assert_eq!(hand.sleep().out(), "R0:1012");
    hand.sleep().out();
    assert_eq!(hand.sender.info(hand.now).mss, 506);
}

#[test]
fn blocks_take_room_of_segments() {
    let mut hand = Hand::new(|_| {});
    hand.write(4_000);
    hand.sender.set_option_bytes(12);
    assert_eq!(hand.out(), "0:4000P", "five segments");
    assert_eq!(hand.sender.info(hand.now).unacked, 5);
    hand.sender.set_option_bytes(28);
    hand.wait(100).sack(0, &[(988, 4_000)]);
    assert_eq!(hand.out(), "R0:988");
    assert_eq!(
        hand.sender.info(hand.now).unacked,
        6,
        "the first is two now"
    );
}
