//! Peers that say anything: nothing panics, and what is counted stays in proportion.

use core::time::Duration;
use std::io::IoSlice;

use super::sim::{Dice, chunks, config};
use crate::tcp::congestion::Algorithm;
use crate::tcp::events::Events;
use crate::tcp::sender::{Ack, AckOutcome, Sender};
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

/// A place near what is under way, or anywhere.
fn place(dice: &mut Dice, sender: &Sender) -> Seq {
    let out = sender.next() - sender.una();
    match dice.roll() % 8 {
        0 => Seq(dice.roll() as u32),
        1 => sender.una() - (dice.roll() % 3_000) as u32,
        2 => sender.next(),
        3 => sender.next() + (dice.roll() % 3) as u32,
        _ => sender.una() + (dice.roll() % u64::from(out + 1)) as u32,
    }
}

fn ack(dice: &mut Dice, sender: &Sender, echo: Option<Duration>) -> Ack {
    let mut sack = SackBlocks::new();
    for _ in 0..dice.roll() % 5 {
        let start = place(dice, sender);
        let end = match dice.roll() % 3 {
            0 => place(dice, sender),
            1 => start + 1_000 * (1 + dice.roll() % 5) as u32,
            _ => start + (dice.roll() % 5_000) as u32,
        };
        sack.push(SeqRange { start, end });
    }
    Ack {
        ack: match dice.roll() % 3 {
            0 => sender.una(),
            _ => place(dice, sender),
        },
        window: [0, 1, 500, 3_000, 100_000, u32::MAX >> 2][(dice.roll() % 6) as usize],
        seq: Seq((dice.roll() % 4) as u32),
        sack,
        rtt_from_timestamps: echo,
        has_data: dice.falls(200),
        ece: dice.falls(100),
        segments: (dice.roll() % 40) as u16,
    }
}

fn play(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut config = config();
    config.first = Seq(dice.roll() as u32);
    config.sack = dice.falls(700);
    config.timestamps = dice.falls(700);
    config.ecn = dice.falls(300);
    config.algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr][seed as usize % 3];
    config.mss = [1, 100, 1_000, u16::MAX][(dice.roll() % 4) as usize];
    config.knobs.mtu_probing = (dice.roll() % 3) as u8;
    let mut now = Instant::from_nanos(1);
    let mut sender = Sender::new(&config, now);
    let (mut chunks, mut events) = (chunks(), Events::default());
    for _ in 0..200 {
        now += Duration::from_micros(
            dice.roll() % [10, 10_000, 1_000_000][(dice.roll() % 3) as usize],
        );
        match dice.roll() % 10 {
            0 | 1 => {
                let bytes = vec![0; (dice.roll() % 20_000) as usize];
                sender.write(&mut chunks, &[IoSlice::new(&bytes)], dice.falls(100));
            }
            2 => {
                let mss = [1, 88, 500, 1_000, 3_000][(dice.roll() % 5) as usize];
                sender.set_mss(mss, &mut events);
                sender.set_option_bytes([0, 12, 36][(dice.roll() % 3) as usize]);
            }
            3 if dice.falls(50) => sender.finish(),
            3 | 4 => {
                now = now.max(sender.deadline().unwrap_or(now));
                if sender.on_timeout(now, &mut events).is_some() {
                    break;
                }
            }
            _ => {
                let echo = (!dice.roll().is_multiple_of(3))
                    .then(|| Duration::from_millis(dice.roll() % 5_000));
                let ack = ack(&mut dice, &sender, echo);
                let (una, end) = (sender.una(), sender.next());
                let outcome = sender.on_ack(now, &mut chunks, &ack, &mut events);
                let advances = ack.ack.is_after(una) && !ack.ack.is_after(end);
                assert_eq!(matches!(outcome, AckOutcome::Advanced { .. }), advances);
            }
        }
        let mut left = 20_000;
        while let Some(out) = sender.poll(now, &mut events) {
            left -= 1;
            assert!(left > 0, "seed {seed}: polls without end");
            let is_there = !out.seq.is_before(sender.una() - 1);
            assert!(
                is_there && !(out.seq + out.len).is_after(sender.next()),
                "seed {seed}: {out:?}"
            );
            let bytes: usize = sender.slices(out.seq, out.len).map(<[u8]>::len).sum();
            assert!(
                out.len == 0 || bytes == out.len as usize,
                "seed {seed}: {out:?}"
            );
        }
        events.drain().for_each(drop);
        let info = sender.info(now);
        assert!(
            info.sacked + info.lost <= info.unacked && info.retrans <= info.unacked,
            "seed {seed}: {info:?}"
        );
        let waits = info.unacked > 0 || info.unsent > 0;
        assert!(
            !waits || sender.deadline().is_some(),
            "seed {seed}: {info:?}"
        );
    }
    sender.clear(&mut chunks);
    assert_eq!((sender.charged(), sender.deadline()), (0, None));
}

#[test]
fn peers_may_say_anything() {
    let seeds = std::env::var("FOREBAY_SENDER_SEEDS").map_or(150, |n| n.parse().unwrap());
    for seed in 0..seeds {
        play(seed);
    }
}
