//! Whole transfers over bad wires: every byte comes, and nothing stalls.

use core::time::Duration;

use super::sim::{Sim, Wire, config};
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
                    if seed == 0 && std::env::var_os("SHOW").is_some() {
                        eprintln!(
                            "{wire:?} sack {sack} ts {timestamps}: {:?} {} segments {:?}",
                            sim.now, sim.segments, sim.counted
                        );
                    }
                }
            }
        }
    }
}
