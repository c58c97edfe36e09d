use clap::Parser;
use forebay::counters::Counter;
use forebay::drop::DropReason;

use super::*;
use crate::playback::{Fate, Frame, RigArgs, tell};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    rig: RigArgs,
}

/// A UDP datagram from 198.51.100.1 to 10.0.0.1, or as much of it as `len` bytes are.
fn packet(len: u16, id: u16, flags: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend([flags << 5, 0, 64, 17, 0, 0, 198, 51, 100, 1, 10, 0, 0, 1]);
    let words = packet.chunks(2);
    let sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[10..12].copy_from_slice(&folded.to_be_bytes());
    packet.extend([0x0f, 0xa0, 0, 53]);
    packet.extend((len - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.resize(usize::from(len), 0);
    packet
}

fn capture(packets: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Capture {
    let frames = packets
        .into_iter()
        .zip(1..)
        .map(|((at, packet), number)| Frame {
            number,
            at,
            is_cut: false,
            packet: Ok(packet),
        });
    Capture {
        name: "a test".to_owned(),
        frames: frames.collect(),
        hosts: Vec::new(),
        fault: None,
    }
}

/// Tells and plays the capture so often, to a host with 10.0.0.1, and gives the rig to `look`
/// before and behind the measured part.
fn played<T>(capture: &Capture, passes: usize, look: impl Fn(&Rig) -> T) -> anyhow::Result<[T; 2]> {
    let line = Line::try_parse_from(["test", "--local", "10.0.0.1"])?;
    let mut rig = Rig::new(&line.rig, capture)?;
    let mut told = Vec::new();
    tell(&mut rig, capture, |story| {
        told.push(story);
        Ok(())
    })?;
    let before = look(&rig);
    let plan = Plan {
        capture,
        told: &told,
        settings: &[],
        leaves_fragments: told.iter().any(|told| told.fate == Fate::Held),
        passes: None,
    };
    let mut player = Player::new(rig, &plan, Clock::new());
    player.play(passes * player.packets.len(), &mut ())?;
    Ok([before, look(&player.rig)])
}

#[test]
fn chunks_are_whole_passes() {
    for (len, passes, expected) in [
        (10, None, 1_600),
        (1_200, None, 14),
        (20_000, None, 1),
        (10, Some(1), 1),
        (10, Some(1_000), 25),
        (10, Some(1_000_000), 1_600),
        (20_000, Some(9), 1),
    ] {
        let schedule = Schedule::new(len, passes);
        assert_eq!(schedule.per_chunk, expected, "{len}, {passes:?}");
    }
}

#[test]
fn as_many_passes_are_measured_as_were_asked_for() {
    for passes in [1, 2, 9, 10, 41, 42, 100, 1_000, 1_001, 99_999] {
        let schedule = Schedule::new(10, Some(passes));
        let rounds = (0..).take_while(|round| schedule.passes_of(*round, 0) > 0);
        let in_round = |round| schedule.passes_of(round, 0) + schedule.passes_of(round, 1);
        assert_eq!(rounds.map(in_round).sum::<usize>(), passes);
    }
}

#[test]
fn an_interrupted_batch_does_not_count() {
    let clock = Clock::new();
    let batch = |packets, took| Batch {
        packets,
        took,
        stages: [100; STAGES.len()],
    };
    let batches = [
        batch(64, 800),
        batch(64, 400_000),
        batch(64, 800),
        batch(16, 200),
    ];
    let close = |found: f64, ticks: f64| (found - clock.nanos(ticks)).abs() < 1e-9;
    assert!(close(
        per_packet(&clock, &batches, |batch| batch.took),
        12.5
    ));
    let stage = per_packet(&clock, &batches, |batch| batch.stages[0]);
    assert!(close(stage, 300.0 / 144.0));
    assert_eq!(per_packet(&clock, &[], |batch| batch.took), 0.0);
}

#[test]
fn quartiles_of_anything() {
    assert_eq!(quartiles(&[]), [0.0; 3]);
    assert_eq!(quartiles(&[7.0]), [7.0; 3]);
    assert_eq!(quartiles(&[5.0, 1.0, 2.0, 4.0, 3.0]), [2.0, 3.0, 4.0]);
}

#[test]
fn a_setting_that_differs_from_itself_is_noisy() {
    let measured = |first: f64, second: f64| Measured {
        chunks: [vec![first; 9], vec![second; 9]],
        ..Measured::default()
    };
    assert_eq!(measured(10.0, 10.0).noise(), 0.0);
    assert!(measured(11.0, 10.0).noise() > 0.09);
    assert_eq!(Measured::default().noise(), 0.0);
}

#[test]
fn shuffling_loses_nothing_and_comes_to_every_order() {
    let mut random = Random::new(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let mut items = [1, 2, 3];
        shuffle(&mut items, &mut random);
        seen.insert(items);
    }
    assert_eq!(seen.len(), 6);
}

#[test]
fn fragments_that_wait_are_forgotten_between_passes() {
    let fragments = (0..10).map(|id| (u64::from(id), packet(68, id, 1)));
    let counts = |rig: &Rig| {
        let counters = rig.stack().inner().counters();
        let duplicates = counters.dropped(DropReason::FragDuplicate);
        (counters.get(Counter::IpReasmTimeout), duplicates)
    };
    let found = played(&capture(fragments), 20, counts).unwrap();
    // Those of the last pass wait yet.
    assert_eq!(found, [(10, 0), (10 + 190, 0)]);
}

#[test]
fn a_batch_of_large_datagrams_fits_its_socket() {
    let dropped = |rig: &Rig| {
        let drops = rig.stack().inner().counters();
        drops.drops().map(|(_, count)| count).sum::<u64>()
    };
    for len in [8_928, 60_028] {
        let datagrams = (0..64).map(|id| (u64::from(id), packet(len, id, 0)));
        let found = played(&capture(datagrams), 10, dropped).unwrap();
        assert_eq!(found, [0, 0], "{len}");
    }
}

#[test]
fn times_of_any_size_are_played_one_after_the_other() {
    let far = u64::from(u32::MAX) * 1_000_000_000;
    for times in [vec![0, far], vec![0, u64::MAX], vec![0, far, far, u64::MAX]] {
        let packets = times.iter().map(|at| (*at, packet(32, 1, 0)));
        let [before, after] = played(&capture(packets), 1_000, Rig::elapsed).unwrap();
        let passes = after - before;
        assert!(passes > 1_000 * 60_000_000_000, "{times:?}: {passes}");
    }
}
