//! Chunks of frames through the kernel.

use anyhow::ensure;
use forebay::bpf::{Program, Verdict};

use super::frames::Frame;
use super::network::Network;
use super::refusal::{Refusal, Step};
use crate::bench::runner::Chunk;
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;

/// Packets that the kernel's stack gets at once: what a driver hands over, and what our own bench
/// does.
const BATCH: u32 = 64;

/// Packets of one system call, of which the kernel says how long they took on average.
const BURST: u32 = 1_024;

/// A frame, with the programs that let it in and that do all the same but drop it.
#[derive(Debug)]
pub(super) struct Injector {
    frame: Frame,
    pass: Program,
    drop: Program,
}

impl Injector {
    pub(super) fn new(frame: Frame) -> Result<Self, Refusal> {
        let load = |verdict| {
            let program = Program::load_xdp(&frame.program(verdict));
            program.map_err(Step::Load.refused())
        };
        Ok(Self {
            pass: load(Verdict::Pass)?,
            drop: load(Verdict::Drop)?,
            frame,
        })
    }

    /// To be done before frames of this kind are let in.
    pub(super) fn attach(&self, network: &mut Network) -> Result<(), Refusal> {
        network.attach([&self.pass, &self.drop])
    }

    /// Lets packets in, at least as many as are asked for. What it takes to make them and to hand
    /// them over is measured by dropping as many, in turn, and is not part of the figure.
    pub(super) fn run(
        &self,
        network: &Network,
        clock: &Clock,
        packets: u32,
    ) -> anyhow::Result<Chunk> {
        let bursts = packets.div_ceil(BURST);
        let sent_before = network.sent()?;
        let (mut dropped, mut passed) = (Vec::new(), Vec::new());
        for _ in 0..bursts {
            dropped.push(self.burst(&self.drop, network)?);
            passed.push(self.burst(&self.pass, network)?);
        }
        let start = clock.now();
        let sent = network.sent()? - sent_before;
        let verified = clock.now().wrapping_sub(start);
        let expected = u64::from(bursts) * u64::from(BURST);
        // A host says a few things of its own accord, such as which groups it listens to.
        ensure!(
            sent >= expected,
            "the kernel was to forward {expected} packets and forwarded {sent}"
        );
        let generate = clock.ticks(middle_mean(dropped));
        Ok(Chunk {
            generate,
            stages: clock.ticks(middle_mean(passed)) - generate,
            verify: verified as f64 / expected as f64,
        })
    }

    /// Lets packets in by one system call, and returns when the kernel has done with each what this
    /// thread has to do with it: the nanoseconds that a packet took.
    pub(super) fn pass(&self, network: &Network, packets: u32) -> Result<u64, Refusal> {
        self.live(&self.pass, network, packets)
    }

    /// What it takes to make a packet and to hand it over, in nanoseconds: it is dropped there.
    pub(super) fn drop(&self, network: &Network, packets: u32) -> Result<u64, Refusal> {
        self.live(&self.drop, network, packets)
    }

    fn burst(&self, program: &Program, network: &Network) -> Result<u64, Refusal> {
        self.live(program, network, BURST)
    }

    /// Returns the nanoseconds that a packet took.
    fn live(&self, program: &Program, network: &Network, packets: u32) -> Result<u64, Refusal> {
        let nanos = program.run_live(self.frame.bytes(), network.near(), packets, BATCH);
        nanos.map(u64::from).map_err(Step::Inject.refused())
    }
}
