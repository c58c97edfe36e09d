//! The scoreboard against a model that knows every packet, and nothing of runs and hints.

use proptest::prelude::*;

use crate::tcp::sender::rate::Snapshot;
use crate::tcp::sender::scoreboard::{Scoreboard, Sent};
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};

const MSS: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Packet {
    start: u32,
    end: u32,
    sacked: bool,
    lost: bool,
    retrans: bool,
}

#[derive(Debug, Clone)]
enum Step {
    /// Sends so many packets at once, the last one that much short of full.
    Send(u32, u32),
    /// Acknowledges so many thousandths of what is out, to a packet's end or not.
    Ack(u32, bool),
    /// Sacks packets between two thousandths, or bytes.
    Sack(u32, u32, bool),
    Lose(u32),
    LoseAll,
    Retransmit(u32),
    Unlose,
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..12u32, 0..MSS).prop_map(|(n, short)| Step::Send(n, short)),
        3 => (0..1_000u32, any::<bool>()).prop_map(|(to, exact)| Step::Ack(to, exact)),
        6 => (0..1_000u32, 0..1_000u32, any::<bool>()).prop_map(|(a, b, exact)| Step::Sack(a, b, exact)),
        4 => (0..1_000u32).prop_map(Step::Lose),
        1 => Just(Step::LoseAll),
        4 => (1..6u32).prop_map(Step::Retransmit),
        1 => Just(Step::Unlose),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..60)
}

/// Offsets from the first byte, so that the model need not know that numbers wrap.
struct Model {
    packets: Vec<Packet>,
    una: u32,
    next: u32,
}

impl Model {
    fn at(&self, thousandths: u32) -> u32 {
        self.una + (u64::from(self.next - self.una) * u64::from(thousandths) / 1_000) as u32
    }

    /// The packet boundary at or ahead of a place.
    fn boundary(&self, at: u32) -> u32 {
        let ends = self.packets.iter().map(|packet| packet.end);
        ends.filter(|&end| end <= at).max().unwrap_or(self.una)
    }

    fn count(&self, f: impl Fn(&Packet) -> bool) -> u32 {
        self.packets.iter().filter(|packet| f(packet)).count() as u32
    }
}

fn check(board: &Scoreboard, model: &Model, first: u32) -> Result<(), TestCaseError> {
    prop_assert_eq!(board.packets_out(), model.count(|_| true));
    prop_assert_eq!(board.sacked_out(), model.count(|packet| packet.sacked));
    prop_assert_eq!(board.lost_out(), model.count(|packet| packet.lost));
    prop_assert_eq!(board.retrans_out(), model.count(|packet| packet.retrans));
    // Every packet is as the model has it, found one by one.
    let mut index = 0;
    let mut seen = Vec::new();
    while let Some(sent) = board.get(index) {
        let start = sent.range.start - Seq(first);
        let end = sent.range.end - Seq(first);
        for packet in model
            .packets
            .iter()
            .filter(|p| p.start >= start && p.end <= end)
        {
            prop_assert_eq!(
                (packet.sacked, packet.lost, packet.retrans),
                (sent.sacked, sent.lost, sent.retrans)
            );
            seen.push(packet.start);
        }
        index += 1;
    }
    prop_assert_eq!(seen.len(), model.packets.len());
    // Walks that step over runs see all that is not sacked, and of each run its first record only.
    let mut index = 0;
    let mut walked = 0;
    let mut was_sacked = false;
    while let Some(sent) = board.get(index) {
        prop_assert!(!(sent.sacked && was_sacked), "a run is one step");
        was_sacked = sent.sacked;
        if !sent.sacked {
            walked += sent.packets();
        }
        index = board.behind(index);
    }
    prop_assert_eq!(walked, model.count(|packet| !packet.sacked));
    Ok(())
}

fn play(first: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let now = Instant::ZERO;
    let mut board = Scoreboard::new(Seq(first));
    let mut model = Model {
        packets: Vec::new(),
        una: 0,
        next: 0,
    };
    let range = |a: u32, b: u32| SeqRange {
        start: Seq(first) + a,
        end: Seq(first) + b,
    };
    for step in steps {
        match *step {
            Step::Send(packets, short) => {
                let start = model.next;
                let end = start + packets * MSS - short;
                let sent = Sent::new(
                    range(start, end),
                    MSS as u16,
                    false,
                    now,
                    Snapshot::default(),
                );
                board.push(sent);
                let mut at = start;
                while at < end {
                    model.packets.push(Packet {
                        start: at,
                        end: (at + MSS).min(end),
                        ..Packet::default()
                    });
                    at += MSS;
                }
                model.next = end;
            }
            Step::Ack(to, exact) => {
                let mut to = model.at(to);
                if exact {
                    to = model.boundary(to);
                }
                let mut bytes = 0;
                board.acknowledge(Seq(first) + to, |sent| bytes += sent.range.len());
                prop_assert_eq!(bytes, to - model.una);
                model.una = to;
                model.packets.retain(|packet| packet.end > to);
                if let Some(packet) = model.packets.first_mut() {
                    packet.start = packet.start.max(to);
                }
                // A record that lost its first bytes is cut anew from there.
                recut(&mut model, &board, first);
            }
            Step::Sack(a, b, exact) => {
                let (mut a, mut b) = (model.at(a.min(b)), model.at(a.max(b)));
                if exact {
                    (a, b) = (model.boundary(a), model.boundary(b));
                }
                if a >= b {
                    continue;
                }
                let mut shown = 0;
                board.sack(range(a, b), range(a, b), |sent| shown += sent.packets());
                let mut marked = 0;
                for packet in &mut model.packets {
                    if packet.start >= a && packet.end <= b && !packet.sacked {
                        *packet = Packet {
                            start: packet.start,
                            end: packet.end,
                            sacked: true,
                            ..Packet::default()
                        };
                        marked += 1;
                    }
                }
                prop_assert_eq!(shown, marked);
            }
            Step::Lose(at) => {
                let at = model.at(at);
                let index = board.position(Seq(first) + at);
                let Some(sent) = board.get(index).copied() else {
                    continue;
                };
                board.mark_lost(index);
                let start = sent.range.start - Seq(first);
                let end = sent.range.end - Seq(first);
                for packet in &mut model.packets {
                    if packet.start >= start && packet.end <= end && !packet.sacked {
                        packet.lost = true;
                        packet.retrans = false;
                    }
                }
            }
            Step::LoseAll => {
                let mut index = 0;
                while board.get(index).is_some() {
                    board.mark_lost(index);
                    index = board.behind(index);
                }
                for packet in model.packets.iter_mut().filter(|packet| !packet.sacked) {
                    packet.lost = true;
                    packet.retrans = false;
                }
            }
            Step::Retransmit(packets) => {
                let expected = model.packets.iter().position(|p| p.lost && !p.retrans);
                let Some(index) = board.next_lost() else {
                    prop_assert_eq!(expected, None);
                    continue;
                };
                board.split(index, packets);
                board.retransmit(index, now, Snapshot::default());
                let Some(sent) = board.get(index).copied() else {
                    continue;
                };
                let start = sent.range.start - Seq(first);
                let end = sent.range.end - Seq(first);
                prop_assert_eq!(expected.map(|i| model.packets[i].start), Some(start));
                prop_assert!(sent.packets() <= packets);
                for packet in &mut model.packets {
                    if packet.start >= start && packet.end <= end {
                        packet.retrans = true;
                    }
                }
            }
            Step::Unlose => {
                board.unmark_lost();
                for packet in &mut model.packets {
                    packet.lost = false;
                }
            }
            Step::Forget => {
                board.forget_sacks();
                for packet in &mut model.packets {
                    packet.sacked = false;
                }
            }
        }
        check(&board, &model, first)?;
    }
    Ok(())
}

/// Packets of the first record begin where it now does.
fn recut(model: &mut Model, board: &Scoreboard, first: u32) {
    let Some(head) = board.head() else { return };
    let end = head.range.end - Seq(first);
    let Some(&was) = model.packets.first() else {
        return;
    };
    model.packets.retain(|packet| packet.start >= end);
    let mut at = head.range.start - Seq(first);
    let mut cut = Vec::new();
    while at < end {
        cut.push(Packet {
            start: at,
            end: (at + MSS).min(end),
            ..was
        });
        at += MSS;
    }
    model.packets.splice(0..0, cut);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn records_are_as_packets_would_be(
        first in prop_oneof![Just(0u32), Just(u32::MAX - 2_000), Just(0x7fff_f800), any::<u32>()],
        steps in steps(),
    ) {
        play(first, &steps)?;
    }
}

#[test]
fn a_fin_is_no_packet_of_its_own() {
    let range = |len: u32| SeqRange {
        start: Seq(7),
        end: Seq(7) + len,
    };
    for (len, fin, packets) in [
        (100, false, 1),
        (101, false, 2),
        (101, true, 1),
        (1, true, 1),
        (201, true, 2),
        (202, true, 3),
    ] {
        let sent = Sent::new(range(len), 100, fin, Instant::ZERO, Snapshot::default());
        assert_eq!(sent.packets(), packets, "{len} {fin}");
    }
}
