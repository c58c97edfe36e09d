//! A sender in the hand of a test: what it sends is written as `from:to`, counted from the first
//! byte, in front of it `R` if it was sent before, behind it the flags.

use core::time::Duration;
use std::io::IoSlice;

use super::sim::{chunks, config};
use crate::tcp::chunks::Chunks;
use crate::tcp::events::Events;
use crate::tcp::sender::*;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

/// Places where numbers go round, or signs do.
pub(super) const FIRSTS: [u32; 4] = [0, u32::MAX - 3_000, u32::MAX, 0x7fff_f000];

pub(super) struct Hand {
    pub(super) sender: Sender,
    pub(super) now: Instant,
    pub(super) window: u32,
    pub(super) ece: bool,
    /// Milliseconds that the echoed timestamp is old.
    pub(super) echo: Option<u64>,
    first: Seq,
    chunks: Chunks,
    events: Events,
    start: Instant,
}

impl Hand {
    pub(super) fn new(change: impl Fn(&mut SenderConfig)) -> Self {
        let mut config = config();
        config.handshake_rtt = Some(Duration::from_millis(100));
        change(&mut config);
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            sender: Sender::new(&config, now),
            now,
            window: config.window,
            ece: false,
            echo: None,
            first: config.first,
            chunks: chunks(),
            events: Events::default(),
            start: now,
        }
    }

    pub(super) fn write(&mut self, bytes: usize) -> &mut Self {
        let wrote = self.write_some(bytes, false);
        assert_eq!(wrote, bytes);
        self
    }

    pub(super) fn write_some(&mut self, bytes: usize, more: bool) -> usize {
        let bytes = vec![7; bytes];
        self.sender
            .write(&mut self.chunks, &[IoSlice::new(&bytes)], more)
    }

    /// Milliseconds since the beginning.
    pub(super) fn at(&self) -> u64 {
        u64::try_from((self.now - self.start).as_millis()).unwrap()
    }

    pub(super) fn wait(&mut self, ms: u64) -> &mut Self {
        self.now += Duration::from_millis(ms);
        self
    }

    /// Goes on to the next deadline and does what is due.
    pub(super) fn sleep(&mut self) -> &mut Self {
        let deadline = self.sender.deadline().expect("a timer runs");
        self.now = self.now.max(deadline);
        let gave_up = self.sender.on_timeout(self.now, &mut self.events);
        assert_eq!(gave_up, None);
        self
    }

    /// The same; whether the connection is given up.
    pub(super) fn gives_up(&mut self) -> bool {
        let deadline = self.sender.deadline().expect("a timer runs");
        self.now = self.now.max(deadline);
        self.sender.on_timeout(self.now, &mut self.events).is_some()
    }

    pub(super) fn ack(&mut self, to: u32) -> AckOutcome {
        self.sack(to, &[])
    }

    pub(super) fn sack(&mut self, to: u32, blocks: &[(u32, u32)]) -> AckOutcome {
        let mut sack = SackBlocks::new();
        for &(from, to) in blocks {
            sack.push(SeqRange {
                start: self.first + from,
                end: self.first + to,
            });
        }
        let ack = Ack {
            ack: self.first + to,
            window: self.window,
            seq: Seq(1),
            sack,
            rtt_from_timestamps: self.echo.map(Duration::from_millis),
            has_data: false,
            ece: self.ece,
            segments: 1,
        };
        self.sender
            .on_ack(self.now, &mut self.chunks, &ack, &mut self.events)
    }

    /// All that leaves now.
    pub(super) fn out(&mut self) -> String {
        let mut all = Vec::new();
        while let Some(out) = self.sender.poll(self.now, &mut self.events) {
            assert!(all.len() < 1_000, "polls without end");
            let from = out.seq - self.first;
            let mut text = match out.kind {
                OutKind::WindowProbe => "probe".to_owned(),
                OutKind::MtuProbe => format!("mtu {from}:{}", from + out.len),
                OutKind::Data => format!("{from}:{}", from + out.len),
            };
            if out.is_retransmission {
                text.insert(0, 'R');
            }
            for (flag, letter) in [(out.fin, 'F'), (out.psh, 'P'), (out.cwr, 'W')] {
                if flag {
                    text.push(letter);
                }
            }
            all.push(text);
        }
        all.join(" ")
    }

    pub(super) fn state(&self) -> &'static str {
        self.sender.info(self.now).ca_state.name()
    }

    pub(super) fn cwnd(&self) -> u32 {
        self.sender.info(self.now).cwnd
    }

    pub(super) fn count(&mut self, name: &str) -> u64 {
        let counted: Vec<_> = self.events.drain().collect();
        let sum = counted
            .iter()
            .filter(|(counter, _)| counter.name() == name)
            .map(|&(_, n)| n)
            .sum();
        for (counter, n) in counted {
            self.events.add(counter, n);
        }
        sum
    }

    pub(super) fn set_mss(&mut self, mss: u16) {
        self.sender.set_mss(mss, &mut self.events);
    }
}
