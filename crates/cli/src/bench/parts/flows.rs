//! A port that packets of many flows come by, and leave by again.

use std::sync::Arc;

use anyhow::{Context, ensure};
use forebay::core::core::Core;
use forebay::core::fib::Prefix;
use forebay::core::packet::PacketQueue;
use forebay::core::time::Instant;
use forebay::core::{Stack, StackConfig};
use forebay::interface::{InterfaceConfig, TransmitQueue};
use forebay::steer::RxId;

use crate::bench::bed::add_route;
use crate::bench::net::Family;
use crate::bench::packet::{self, Flow, LEN, Protocol};
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;

const QUEUES: u16 = 2;
const BATCH: u32 = 64;

/// Batches of a chunk.
const BATCHES: u32 = 256;

/// Flows that a stack remembers for a device at most.
const REMEMBERED: usize = 4_096;

/// A router that sends what comes by the port back by it.
pub(super) struct Flows {
    stack: Stack,
    core: Core,
    port: u32,
    queues: Vec<Arc<TransmitQueue>>,
    remembers: bool,
    /// The next packet's flow is this, in turn.
    next: u32,
    now: Instant,
}

impl Flows {
    /// Whether it `remembers` by which queue each flow came.
    pub(super) fn new(remembers: bool) -> Self {
        let stack = Stack::new(&StackConfig {
            seed: [1, 2],
            ..StackConfig::default()
        });
        Self {
            core: stack.core_on(0),
            stack,
            port: 0,
            queues: Vec::new(),
            remembers,
            next: 0,
            now: Instant::ZERO,
        }
    }

    pub(super) fn prepare(&mut self) -> anyhow::Result<()> {
        self.port = self.stack.add_interface(InterfaceConfig {
            queues: QUEUES,
            affinity: self.remembers.then(Arc::default),
            ..InterfaceConfig::new("port0")
        })?;
        let family = Family::V4;
        self.stack
            .add_address(self.port, family.address(family.own()), 8)?;
        let gateway = "10.0.1.1".parse()?;
        add_route(self.stack.fib4(), Prefix::DEFAULT, gateway, self.port)?;
        self.stack.set_sysctl("net.ipv4.ip_forward", "1")?;
        for device in ["all", "port0"] {
            self.stack
                .set_sysctl(&format!("net.ipv4.conf.{device}.send_redirects"), "0")?;
        }
        self.queues = self.stack.transmit_queues(self.port);
        Ok(())
    }

    /// The ticks that a packet takes, of so many flows in turn.
    pub(super) fn run(&mut self, clock: &Clock, flows: u32) -> anyhow::Result<f64> {
        let mut ticks = Vec::with_capacity(BATCHES as usize);
        for batch in 0..BATCHES {
            let queue = (batch % u32::from(QUEUES)) as u16;
            let mut packets = self.batch(flows)?;
            let from = RxId {
                ifindex: self.port,
                queue,
            };
            let start = clock.now();
            self.stack
                .receive_from(&mut self.core, self.now, from, &mut packets);
            ticks.push(clock.now().wrapping_sub(start));
            self.look(queue, flows)?;
        }
        let remembered = self.stack.remembered_flows(self.port, self.now);
        ensure!(
            remembered <= REMEMBERED,
            "{remembered} flows are remembered"
        );
        Ok(middle_mean(ticks) / f64::from(BATCH))
    }

    fn batch(&mut self, flows: u32) -> anyhow::Result<PacketQueue> {
        let mut packets = PacketQueue::new();
        for _ in 0..BATCH {
            let flow = self.next % flows;
            self.next = self.next.wrapping_add(1);
            let mut out = self.core.cache().alloc().context("no buffer")?;
            ensure!(out.set_len(LEN), "a buffer is too small");
            let flow = Flow {
                // Beyond the port's own network.
                src: u128::from(0x0b00_0000 + flow),
                src_port: 1_024,
                dst: u128::from(0x3000_0000 + flow),
                dst_port: 1_024,
            };
            out.data_mut().fill(0);
            packet::write(out.data_mut(), Family::V4, Protocol::Udp, &flow, 0);
            packets.push(out);
        }
        self.now += core::time::Duration::from_micros(5);
        Ok(packets)
    }

    /// All packets must have come out, and one flow's by the queue that they came by, if flows are
    /// remembered.
    fn look(&mut self, came_by: u16, flows: u32) -> anyhow::Result<()> {
        let mut left = 0;
        for (number, queue) in self.queues.iter().enumerate() {
            let mut packets = PacketQueue::new();
            queue.take(&mut packets);
            ensure!(
                !self.remembers
                    || flows > 1
                    || packets.is_empty()
                    || number == usize::from(came_by),
                "a flow came by queue {came_by} and left by {number}"
            );
            while let Some(packet) = packets.pop() {
                left += 1;
                self.core.cache().free(packet);
            }
        }
        ensure!(left == BATCH, "of {BATCH} packets {left} came out");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_however_many_flows_there_are() {
        let clock = Clock::new();
        for remembers in [false, true] {
            let mut port = Flows::new(remembers);
            port.prepare().expect("a port");
            for flows in [1, 100, 1_000_000] {
                port.run(&clock, flows).expect("every packet");
            }
            let remembered = port.stack.remembered_flows(port.port, port.now);
            assert_eq!(remembered > 0, remembers);
        }
    }
}
