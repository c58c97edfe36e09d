//! A sender, a wire that loses, delays, overtakes and duplicates, and a plain receiver.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSlice;

use crate::tcp::chunks::{ChunkStore, Chunks};
use crate::tcp::congestion::Algorithm;
use crate::tcp::events::Events;
use crate::tcp::sender::*;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

/// xorshift64*: enough to lose packets by.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// True `permille` times in a thousand.
    pub(super) fn falls(&mut self, permille: u64) -> bool {
        self.roll() % 1_000 < permille
    }
}

pub(super) fn config() -> SenderConfig {
    SenderConfig {
        first: Seq(u32::MAX - 20_000),
        window: 1 << 20,
        window_seq: Seq(1),
        mss: 1_000,
        buffer: 1 << 20,
        max_buffer: 1 << 20,
        sack: true,
        timestamps: true,
        ecn: false,
        algorithm: Algorithm::Reno,
        initial_cwnd: 10,
        handshake_rtt: None,
        syn_retransmitted: false,
        knobs: SenderKnobs::default(),
    }
}

pub(super) fn chunks() -> Chunks {
    ChunkStore::new([1 << 20; 3]).chunks()
}

/// What the wire does, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) delay: Duration,
    pub(super) loss: u64,
    pub(super) ack_loss: u64,
    pub(super) reorder: u64,
    pub(super) duplicate: u64,
    /// Packets a millisecond, and how many may wait; 0 is no limit.
    pub(super) rate: u64,
    pub(super) queue: u64,
    /// The application reads now and then, so that the window closes; this often it does at once.
    pub(super) reads: u64,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            loss: 0,
            ack_loss: 0,
            reorder: 0,
            duplicate: 0,
            rate: 0,
            queue: 0,
            reads: 1_000,
        }
    }
}

enum Arriving {
    Data {
        seq: Seq,
        bytes: Vec<u8>,
        fin: bool,
        ts: u64,
    },
    Probe,
    /// No packet: the application at the other end wakes up.
    Read,
    Ack {
        ack: Seq,
        window: u32,
        sack: SackBlocks,
        echo: u64,
    },
}

/// The receiving end: what came, by offset from the first byte.
struct Peer {
    first: Seq,
    /// Ranges that came, as offsets; the first begins at 0.
    came: BTreeMap<u64, u64>,
    next: u64,
    recent: Vec<(u64, u64)>,
    fin: Option<u64>,
    sack: bool,
    /// A segment whose acknowledgement waits for a second one.
    pending: bool,
    pending_echo: u64,
    ts_recent: u64,
    /// Bytes that it may hold unread.
    buffer: u64,
    consumed: u64,
}

pub(super) struct Sim {
    pub(super) now: Instant,
    pub(super) sender: Sender,
    pub(super) events: Events,
    pub(super) counted: BTreeMap<String, u64>,
    chunks: Chunks,
    dice: Dice,
    wire: Wire,
    flying: BTreeMap<(Instant, u64), Arriving>,
    serial: u64,
    free_at: Instant,
    peer: Peer,
    pub(super) total: u64,
    written: u64,
    delayed_ack: Option<Instant>,
    pub(super) segments: u64,
    pub(super) finished_at: Option<Instant>,
}

fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 13) as u8
}

impl Sim {
    pub(super) fn new(config: &SenderConfig, wire: Wire, total: u64, seed: u64) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            sender: Sender::new(config, now),
            events: Events::default(),
            counted: BTreeMap::new(),
            chunks: chunks(),
            dice: Dice::new(seed + 1),
            wire,
            flying: BTreeMap::new(),
            serial: 0,
            free_at: now,
            peer: Peer {
                first: config.first,
                came: BTreeMap::new(),
                next: 0,
                recent: Vec::new(),
                fin: None,
                sack: config.sack,
                pending: false,
                pending_echo: 0,
                ts_recent: 0,
                buffer: u64::from(config.window),
                consumed: 0,
            },
            total,
            written: 0,
            delayed_ack: None,
            segments: 0,
            finished_at: None,
        }
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.counted.get(name).copied().unwrap_or(0)
    }

    /// Runs until all has come and is acknowledged. Panics if it stalls or takes longer than `limit`.
    pub(super) fn run(&mut self, limit: Duration) {
        let start = self.now;
        loop {
            self.work();
            if self.sender.is_fin_acked() {
                break;
            }
            let next = [
                self.flying.keys().next().map(|&(at, _)| at),
                self.sender.deadline(),
                self.delayed_ack,
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                panic!("stalled: {:#?}", self.sender.info(self.now));
            };
            self.now = self.now.max(next);
            assert!(
                self.now - start < limit,
                "too slow: {:?} of {} after {limit:?}: {:#?}",
                self.peer.next,
                self.total,
                self.sender.info(self.now)
            );
            self.step();
        }
        assert_eq!(self.peer.next, self.total, "all came");
        assert_eq!(self.sender.deadline(), None, "no timer is left");
        assert_eq!(self.sender.charged(), 0, "no memory is left");
        self.finished_at = Some(self.now);
    }

    fn work(&mut self) {
        while self.written < self.total && self.sender.room() > 0 {
            let len = (self.total - self.written)
                .min(self.sender.room() as u64)
                .min(40_000);
            let bytes: Vec<u8> = (self.written..self.written + len).map(byte).collect();
            let n = self
                .sender
                .write(&mut self.chunks, &[IoSlice::new(&bytes)], false);
            self.written += n as u64;
        }
        if self.written == self.total {
            self.sender.finish();
        }
        let mut left = 100_000;
        while let Some(out) = self.sender.poll(self.now, &mut self.events) {
            left -= 1;
            assert!(left > 0, "polls without end");
            self.transmit(&out);
        }
        for (counter, n) in self.events.drain() {
            *self.counted.entry(counter.name().to_owned()).or_default() += n;
        }
    }

    fn transmit(&mut self, out: &OutSegment) {
        if out.kind == OutKind::WindowProbe {
            return self.fly(Arriving::Probe, true);
        }
        let mut bytes = Vec::new();
        self.sender
            .slices(out.seq, out.len)
            .for_each(|chunk| bytes.extend_from_slice(chunk));
        assert_eq!(bytes.len(), out.len as usize, "{out:?}");
        assert!(out.len > 0 || out.fin);
        let mut seq = out.seq;
        let mss = usize::from(out.mss);
        let pieces = bytes.len().div_ceil(mss).max(1);
        for i in 0..pieces {
            let piece =
                bytes[(i * mss).min(bytes.len())..((i + 1) * mss).min(bytes.len())].to_vec();
            let len = piece.len() as u32;
            self.segments += 1;
            self.fly(
                Arriving::Data {
                    seq,
                    bytes: piece,
                    fin: out.fin && i == pieces - 1,
                    ts: self.now.as_millis(),
                },
                true,
            );
            seq += len;
        }
    }

    fn fly(&mut self, what: Arriving, is_data: bool) {
        let loss = if is_data {
            self.wire.loss
        } else {
            self.wire.ack_loss
        };
        if self.dice.falls(loss) && !matches!(what, Arriving::Read) {
            return;
        }
        let mut at = self.now + self.wire.delay;
        if is_data && self.wire.rate > 0 {
            let time = Duration::from_micros(1_000 / self.wire.rate.max(1));
            let start = self.free_at.max(self.now);
            if self.wire.queue > 0 && (start - self.now) > time * self.wire.queue as u32 {
                return;
            }
            self.free_at = start + time;
            at = self.free_at + self.wire.delay;
        }
        if self.dice.falls(self.wire.reorder) {
            at += self.wire.delay / 4 * (1 + (self.dice.roll() % 8) as u32);
        }
        if self.dice.falls(self.wire.duplicate)
            && let Arriving::Data {
                seq,
                bytes,
                fin,
                ts,
            } = &what
        {
            let again = Arriving::Data {
                seq: *seq,
                bytes: bytes.clone(),
                fin: *fin,
                ts: *ts,
            };
            self.serial += 1;
            let at = at + Duration::from_millis(self.dice.roll() % 5);
            self.flying.insert((at, self.serial), again);
        }
        self.serial += 1;
        self.flying.insert((at, self.serial), what);
    }

    fn step(&mut self) {
        if self.delayed_ack.is_some_and(|at| at <= self.now) {
            let echo = self.peer.pending_echo;
            self.send_ack(None, echo);
        }
        while let Some((&(at, serial), _)) = self.flying.iter().next() {
            if at > self.now {
                break;
            }
            match self.flying.remove(&(at, serial)) {
                Some(Arriving::Data {
                    seq,
                    bytes,
                    fin,
                    ts,
                }) => self.arrive(seq, &bytes, fin, ts),
                Some(Arriving::Ack {
                    ack,
                    window,
                    sack,
                    echo,
                }) => {
                    let ack = Ack {
                        ack,
                        window,
                        seq: Seq(1),
                        sack,
                        rtt_from_timestamps: Some(Duration::from_millis(
                            self.now.as_millis() - echo,
                        )),
                        has_data: false,
                        ece: false,
                        segments: 1,
                    };
                    self.sender
                        .on_ack(self.now, &mut self.chunks, &ack, &mut self.events);
                }
                Some(Arriving::Probe) => {
                    let ts = self.now.as_millis();
                    self.send_ack(None, ts);
                }
                Some(Arriving::Read) => {
                    let was_closed = self.peer.window() < 2_000;
                    self.peer.consumed = self.peer.next;
                    if was_closed {
                        let ts = self.now.as_millis();
                        self.send_ack(None, ts);
                    }
                }
                None => {}
            }
            self.work();
        }
        let gave_up = self.sender.on_timeout(self.now, &mut self.events);
        assert_eq!(gave_up, None, "{:#?}", self.sender.info(self.now));
    }

    /// Whether all that was written has come is for the receiver to say.
    fn arrive(&mut self, seq: Seq, bytes: &[u8], fin: bool, ts: u64) {
        let peer = &mut self.peer;
        // Offsets of 64 bits out of numbers of 32: near the next one expected.
        let expected = peer.first + peer.next as u32;
        let from = (peer.next as i64 + i64::from((seq - expected) as i32)) as u64;
        let to = from + bytes.len() as u64;
        for (i, &got) in bytes.iter().enumerate() {
            assert_eq!(got, byte(from + i as u64), "byte {}", from + i as u64);
        }
        if fin {
            assert_eq!(to, self.total, "the end is where it belongs");
            peer.fin = Some(to);
        }
        assert!(
            to <= peer.consumed + peer.buffer,
            "within the window: {to}, {} and {}",
            peer.consumed,
            peer.buffer
        );
        let end = to + u64::from(fin);
        let covered = |from: u64, to: u64| {
            peer.came
                .range(..=from)
                .next_back()
                .is_some_and(|(_, &until)| until >= to)
        };
        let is_duplicate = from < end && covered(from, end);
        let in_order = from <= peer.next_with_fin();
        let mut merged = (from, end);
        let overlapping: Vec<(u64, u64)> = peer
            .came
            .range(..=end)
            .map(|(&a, &b)| (a, b))
            .filter(|&(_, b)| b >= from)
            .collect();
        for (a, b) in overlapping {
            peer.came.remove(&a);
            merged = (merged.0.min(a), merged.1.max(b));
        }
        peer.came.insert(merged.0, merged.1);
        let had_gap = peer.came.len() > 1 || peer.came.keys().next() != Some(&0);
        peer.next = match peer.came.get(&0) {
            Some(&until) => until.min(self.total),
            None => 0,
        };
        peer.recent
            .retain(|&(a, b)| !(a >= merged.0 && b <= merged.1));
        if merged.0 > 0 {
            peer.recent.insert(0, merged);
        }
        if in_order {
            peer.ts_recent = ts;
        }
        if self.dice.falls(self.wire.reads) {
            peer.consumed = peer.next;
        } else {
            self.serial += 1;
            let at = self.now + Duration::from_millis(self.dice.roll() % 500);
            self.flying.insert((at, self.serial), Arriving::Read);
        }
        let echo = peer.ts_recent;
        if is_duplicate || had_gap || fin || peer.pending || !in_order {
            let dsack = is_duplicate.then_some((from, end));
            let echo = if peer.pending {
                peer.pending_echo
            } else {
                echo
            };
            self.send_ack(dsack, echo);
        } else {
            peer.pending = true;
            peer.pending_echo = echo;
            self.delayed_ack = Some(self.now + Duration::from_millis(40));
        }
    }

    fn send_ack(&mut self, dsack: Option<(u64, u64)>, echo: u64) {
        let peer = &mut self.peer;
        peer.pending = false;
        self.delayed_ack = None;
        let seq = |offset: u64| peer.first + offset as u32;
        let mut sack = SackBlocks::new();
        if peer.sack {
            let blocks = dsack.iter().chain(peer.recent.iter()).take(3);
            for &(a, b) in blocks {
                sack.push(SeqRange {
                    start: seq(a),
                    end: seq(b),
                });
            }
        }
        let ack = seq(peer.next_with_fin());
        let window = u32::try_from(peer.window()).unwrap();
        self.fly(
            Arriving::Ack {
                ack,
                window,
                sack,
                echo,
            },
            false,
        );
    }
}

impl Peer {
    fn window(&self) -> u64 {
        self.buffer - (self.next - self.consumed)
    }

    fn next_with_fin(&self) -> u64 {
        match self.came.get(&0) {
            Some(&until) => until,
            None => 0,
        }
    }
}
