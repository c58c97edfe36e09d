//! What the stages take, measured on some batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_stack::Stack;
use forebay_stack::packet::Packet;
use forebay_stack::receive::{Observer, Stage};
use forebay_stack::time::Instant;
use forebay_sync::static_key::StaticKey;
use forebay_sync::tsc;

use super::flows::{FlowCount, FlowSketch};
use crate::stack::lock;

/// How often a worker looks at the clock between the stages. Under load that is about one batch in
/// 64; a worker with little to do can do it for every batch.
const PERIOD: Duration = Duration::from_micros(100);

/// What stages took, in cycles of the time-stamp counter, over the batches that were measured. All
/// 0 on processors without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageCycles {
    /// Batches that were measured.
    pub batches: u64,
    /// Their packets.
    pub packets: u64,
    /// Parsing, and telling packets apart.
    pub validate: u64,
    /// Looking for the sockets of connected flows.
    pub early_demux: u64,
    /// Finding every packet's verdict.
    pub route: u64,
    /// Carrying the verdicts out: delivering, forwarding, dropping.
    pub act: u64,
}

impl StageCycles {
    fn stage(&mut self, stage: Stage) -> &mut u64 {
        match stage {
            Stage::Validate => &mut self.validate,
            Stage::EarlyDemux => &mut self.early_demux,
            Stage::Route => &mut self.route,
            Stage::Act => &mut self.act,
        }
    }
}

/// What was measured on one core.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sampled {
    pub(crate) stages: StageCycles,
    pub(crate) flows: FlowCount,
}

/// One core's: says which turns are measured, and keeps what came of them.
pub(crate) struct Sampler {
    watched: Arc<StaticKey>,
    sampled: Arc<Mutex<Sampled>>,
    /// When the next turn is to be measured.
    due: Instant,
    flows: FlowSketch,
    /// Empty between turns, kept for its allocation.
    hashes: Vec<u32>,
}

impl Sampler {
    pub(crate) fn new(watched: Arc<StaticKey>, sampled: Arc<Mutex<Sampled>>) -> Self {
        Self {
            watched,
            sampled,
            due: Instant::ZERO,
            flows: FlowSketch::new(),
            hashes: Vec::new(),
        }
    }

    /// What this turn is to be measured with, if it is.
    #[inline]
    pub(crate) fn begin<'s>(&mut self, stack: &'s Stack, now: Instant) -> Option<StageTimer<'s>> {
        (self.watched.is_enabled() && now >= self.due).then(|| StageTimer {
            stack,
            cycles: StageCycles::default(),
            last: 0,
            hashes: std::mem::take(&mut self.hashes),
        })
    }

    /// Keeps what was measured.
    #[inline(never)]
    pub(crate) fn end(&mut self, timer: StageTimer<'_>, now: Instant) {
        let StageTimer {
            cycles, mut hashes, ..
        } = timer;
        // A turn without packets may be one of very many.
        if !hashes.is_empty() {
            self.due = now + PERIOD;
            let ended = self.flows.count(now, &hashes);
            let mut sampled = lock(&self.sampled);
            sampled.flows = ended.unwrap_or(sampled.flows);
            let sum = &mut sampled.stages;
            sum.batches += cycles.batches;
            sum.packets += cycles.packets;
            for stage in [Stage::Validate, Stage::EarlyDemux, Stage::Route, Stage::Act] {
                let mut cycles = cycles;
                *sum.stage(stage) += *cycles.stage(stage);
            }
        }
        hashes.clear();
        self.hashes = hashes;
    }
}

/// Looks at the clock between the stages.
pub(crate) struct StageTimer<'s> {
    stack: &'s Stack,
    cycles: StageCycles,
    last: u64,
    /// Of the packets' flows.
    hashes: Vec<u32>,
}

impl Observer for StageTimer<'_> {
    fn before(&mut self) {
        self.last = tsc::read().unwrap_or_default();
    }

    fn after(&mut self, stage: Stage, batch: &[Packet]) {
        let now = tsc::read();
        if let Some(now) = now {
            *self.cycles.stage(stage) += now.saturating_sub(self.last);
        }
        if stage == Stage::Validate {
            let hashes = batch.iter().map(|packet| self.stack.flow_hash(packet));
            self.hashes.extend(hashes);
            if now.is_some() {
                self.cycles.batches += 1;
                self.cycles.packets += batch.len() as u64;
            }
        }
        // What it took here is no stage's.
        self.before();
    }
}
