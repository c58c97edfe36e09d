//! What leaves when, in figures.

use core::time::Duration;

use super::hand::{FIRSTS, Hand};
use crate::tcp::congestion::Congestion;
use crate::tcp::sender::{AckOutcome, Sender, TimerKind};
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
fn a_narrower_path_gets_smaller_segments() {
    for first in FIRSTS {
        let mut hand = Hand::new(|config| config.first = Seq(first));
        hand.write(5_000);
        assert_eq!(hand.out(), "0:5000P");
        hand.change(|sender, now, events| sender.set_mss(400, now, events));
        assert_eq!(hand.out(), "R0:4000", "ten segments of the window");
        assert_eq!(hand.cwnd(), 10, "no congestion");
        hand.wait(100).ack(4_000);
        assert_eq!(hand.out(), "R4000:5000P");
        hand.wait(100).ack(5_000);
        assert_eq!(hand.state(), "open");
    }
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
    assert_eq!(hand.sender.mss(), 980);
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
    assert_eq!(hand.sender.mss(), 980);
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
    assert_eq!(hand.sender.mss(), 506);
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

/// A million connections are to fit: one that is idle holds nothing but this.
#[test]
fn a_sender_is_small() {
    let size = size_of::<Sender>() - size_of::<Congestion>();
    assert!(size <= 600, "{size} bytes");
}
