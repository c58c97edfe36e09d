//! Whole transfers over bad wires: every byte comes, and nothing stalls.

use core::time::Duration;

use super::sim::{Dice, Sim, Wire, config};
use crate::tcp::congestion::Algorithm;
use crate::wire::seq::Seq;

#[test]
fn a_clean_wire_retransmits_nothing() {
    for sack in [true, false] {
        for first in [0, u32::MAX - 5_000, 0x7fff_f000] {
            let config = crate::tcp::sender::SenderConfig {
                sack,
                first: Seq(first),
                ..config()
            };
            let mut sim = Sim::new(&config, Wire::default(), 1_000_000, 1);
            sim.run(Duration::from_secs(5));
            assert_eq!(sim.segments, 1_000, "{:?}", sim.counted);
            assert_eq!(sim.count("TcpRetransSegs"), 0);
        }
    }
}

#[test]
fn every_byte_comes() {
    let wires = [
        Wire {
            loss: 10,
            ..Wire::default()
        },
        Wire {
            loss: 50,
            ack_loss: 50,
            ..Wire::default()
        },
        Wire {
            loss: 200,
            ack_loss: 100,
            ..Wire::default()
        },
        Wire {
            reorder: 100,
            ..Wire::default()
        },
        Wire {
            reorder: 300,
            duplicate: 100,
            loss: 20,
            ..Wire::default()
        },
        Wire {
            duplicate: 300,
            ..Wire::default()
        },
        Wire {
            rate: 5,
            queue: 20,
            ..Wire::default()
        },
        Wire {
            delay: Duration::from_millis(100),
            loss: 50,
            ..Wire::default()
        },
        Wire {
            delay: Duration::from_micros(50),
            loss: 10,
            ..Wire::default()
        },
    ];
    for wire in wires {
        for sack in [true, false] {
            for timestamps in [true, false] {
                for seed in 0..3 {
                    let config = crate::tcp::sender::SenderConfig {
                        sack,
                        timestamps,
                        ..config()
                    };
                    let mut sim = Sim::new(&config, wire, 300_000, seed);
                    sim.run(Duration::from_secs(600));
                }
            }
        }
    }
}

/// Wires and connections of all kinds, drawn at random. `FOREBAY_SENDER_SEEDS` says how many.
#[test]
fn nothing_stalls_whatever_the_wire() {
    let seeds = std::env::var("FOREBAY_SENDER_SEEDS").map_or(60, |n| n.parse().unwrap());
    let first = std::env::var("FOREBAY_SENDER_SEED").map_or(0, |n| n.parse().unwrap());
    for seed in first..first + seeds {
        let mut dice = Dice::new(seed + 77);
        let mut pick = |from: u64, to: u64| from + dice.roll() % (to - from);
        let wire = Wire {
            delay: Duration::from_micros([50, 1_000, 10_000, 100_000][pick(0, 4) as usize]),
            loss: [0, 1, 10, 50, 200][pick(0, 5) as usize],
            ack_loss: [0, 10, 200][pick(0, 3) as usize],
            reorder: [0, 10, 200][pick(0, 3) as usize],
            duplicate: [0, 0, 50][pick(0, 3) as usize],
            rate: [0, 0, 2, 20][pick(0, 4) as usize],
            queue: pick(5, 100),
            reads: [1_000, 900, 200][pick(0, 3) as usize],
        };
        let mut config = config();
        config.first = Seq(dice.roll() as u32);
        let mut pick = |from: u64, to: u64| from + dice.roll() % (to - from);
        config.algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr][pick(0, 3) as usize];
        config.sack = pick(0, 4) > 0;
        config.timestamps = pick(0, 4) > 0;
        config.window = [1_000, 5_000, 60_000, 1 << 20][pick(0, 4) as usize];
        config.mss = [100, 536, 1_448][pick(0, 3) as usize];
        config.buffer = [4_000, 40_000, 1 << 20][pick(0, 3) as usize];
        config.max_buffer = config.buffer * pick(1, 4) as u32;
        config.knobs.mtu_probing = pick(0, 3) as u8;
        config.knobs.early_retrans = [0, 3][pick(0, 2) as usize];
        config.knobs.frto = pick(0, 2) as u8;
        config.knobs.recovery = [1, 0, 2, 4][pick(0, 4) as usize];
        let total = pick(0, 300_000) / [1, 10, 1_000][pick(0, 3) as usize];
        let mut sim = Sim::new(&config, wire, total, seed);
        if pick(0, 4) == 0 {
            sim.sender.set_max_pacing_rate(pick(100_000, 10_000_000));
        }
        sim.sender.set_nodelay(pick(0, 2) == 0);
        eprintln!("seed {seed}: {total} bytes, {wire:?}, {config:?}");
        sim.run(Duration::from_secs(40_000));
    }
}

/// What is lost is sent again, once, and little else is; nothing waits for a timeout.
#[test]
fn figures_of_long_transfers() {
    for (loss, reorder, delay, algorithm, seconds) in [
        (0, 0, 10_000, Algorithm::Reno, 2),
        (0, 0, 10_000, Algorithm::Cubic, 2),
        (10, 0, 10_000, Algorithm::Reno, 14),
        (10, 0, 10_000, Algorithm::Cubic, 14),
        (10, 20, 10_000, Algorithm::Cubic, 14),
        (50, 0, 10_000, Algorithm::Cubic, 42),
        (10, 0, 100_000, Algorithm::Cubic, 140),
        (10, 0, 500, Algorithm::Cubic, 1),
    ] {
        let delay = Duration::from_micros(delay);
        let mut config = config();
        config.algorithm = algorithm;
        config.mss = 1_448;
        config.handshake_rtt = Some(2 * delay);
        (config.window, config.buffer, config.max_buffer) = (6 << 20, 4 << 20, 4 << 20);
        let wire = Wire {
            delay,
            loss,
            reorder,
            rate: if loss == 0 { 20 } else { 0 },
            queue: 200,
            ..Wire::default()
        };
        let mut sim = Sim::new(&config, wire, 8_000_000, 3);
        sim.run(Duration::from_secs(seconds));
        let what = format!("{wire:?} {algorithm:?}: {:?}", sim.counted);
        // A path of 20 segments a millisecond, with room for ten milliseconds: slow start overshoots
        // once, by a queue's length and a window that is as large.
        let due = match loss {
            0 => 450,
            loss => 5_525 * loss / 1_000,
        };
        assert!(sim.count("TcpRetransSegs") <= due + due / 4 + 10, "{what}");
        assert!(sim.count("TcpExtTCPTimeouts") <= loss / 50, "{what}");
        if reorder == 0 {
            assert_eq!(sim.count("TcpExtTCPDSACKRecv"), 0, "{what}");
        }
    }
}
