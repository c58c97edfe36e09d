//! Datagrams from a device in memory to an application that reads them.

use anyhow::{bail, ensure};
use forebay::core::packet::{Meta, Packet, PacketQueue};
use forebay::core::socket::SocketId;

use super::chunk::BATCH;
use super::reader::{Buffers, Call, Plan};
use super::{Bed, CHUNK, FIRST_PORT, PORTS};
use crate::bench::packet::{self, Flow, Protocol};
use crate::bench::runner::Chunk;
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;

/// Bytes of a datagram: with headers and checksum, a frame of 64 bytes on Ethernet.
pub(in crate::bench) const PAYLOAD: usize = 18;

const UDP_HEADER: usize = 8;

/// How datagrams come, and how they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) struct Way {
    pub(in crate::bench) call: Call,
    pub(in crate::bench) is_connected: bool,
    /// The device's receive queues, 1 or 2, whose batches come in turn.
    pub(in crate::bench) queues: usize,
}

/// What an application is to receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram {
    pub(super) socket: SocketId,
    flow: Flow,
}

/// Receiving.
impl Bed {
    /// A chunk of datagrams for random sockets, on one core: the device's queues, the stages and the
    /// application take turns, a batch of each queue at a time. The device fills buffers as it hands
    /// them over, so that a datagram is in the cache, as one is that a driver has just copied.
    pub(in crate::bench) fn run_receive(
        &mut self,
        clock: &Clock,
        way: Way,
    ) -> anyhow::Result<Chunk> {
        let datagrams = self.datagrams(way.is_connected)?;
        let plans = plans(way.call, &datagrams);
        // Buffers that other chunks have kept.
        self.buffers.clear();
        let stack = self.stack.clone();
        let mut buffers = Buffers::new();
        let mut reader = buffers.reader(&stack, way.call);
        let mut times = Vec::with_capacity(plans.len());
        let (mut generate, mut verify) = (0, 0);
        let (turn, mut sequence) = (BATCH * way.queues, 0);
        for (datagrams, plans) in datagrams.chunks(turn).zip(plans.chunks(way.queues)) {
            let start = clock.now();
            let mut batches = self.batches(datagrams, sequence)?;
            sequence += turn as u32;
            let generated = clock.now();
            for batch in &mut batches {
                stack.receive(&mut self.core, self.now, self.near, batch);
            }
            let mut took = clock.now().wrapping_sub(generated);
            for plan in plans {
                let start = clock.now();
                reader.read(plan, || bail!("a datagram is missing; {}", self.drops()))?;
                let read = clock.now();
                reader.check(plan)?;
                took += read.wrapping_sub(start);
                verify += clock.now().wrapping_sub(read);
            }
            times.push(took);
            generate += generated.wrapping_sub(start);
        }
        Ok(Chunk {
            generate: generate as f64 / CHUNK as f64,
            stages: middle_mean(times) / turn as f64,
            verify: verify as f64 / CHUNK as f64,
        })
    }

    /// A chunk of them. To a socket that is not connected, each comes from somebody else.
    pub(super) fn datagrams(&mut self, is_connected: bool) -> anyhow::Result<Vec<Datagram>> {
        let mut datagrams = Vec::with_capacity(CHUNK);
        for _ in 0..CHUNK {
            let Some((socket, flow)) = self.random.pick(&self.sockets).copied() else {
                bail!("there is no socket");
            };
            let flow = match is_connected {
                true => flow,
                false => Flow {
                    src: self.stranger(),
                    src_port: (FIRST_PORT as usize + self.random.below(PORTS as usize)) as u16,
                    ..flow
                },
            };
            datagrams.push(Datagram { socket, flow });
        }
        Ok(datagrams)
    }

    /// Datagrams as a device hands them over, in batches; their numbers go up from `first` on.
    pub(super) fn batches(
        &mut self,
        datagrams: &[Datagram],
        first: u32,
    ) -> anyhow::Result<Vec<PacketQueue>> {
        let mut batches = Vec::with_capacity(datagrams.len().div_ceil(BATCH));
        let mut numbered = datagrams.iter().zip(first..);
        for datagrams in datagrams.chunks(BATCH) {
            let mut batch = PacketQueue::new();
            for (datagram, sequence) in numbered.by_ref().take(datagrams.len()) {
                batch.push(self.packet(datagram, sequence)?);
            }
            batches.push(batch);
        }
        Ok(batches)
    }

    /// A buffer as a device hands it over.
    #[inline]
    fn packet(&mut self, datagram: &Datagram, sequence: u32) -> anyhow::Result<Packet> {
        let Some(mut packet) = self.core.cache().alloc() else {
            bail!("the pool has lost buffers");
        };
        *packet = Meta::default();
        let len = packet::ip_header_len(self.family) + UDP_HEADER + PAYLOAD;
        ensure!(packet.set_len(len), "a buffer is too small");
        let bytes = packet.data_mut();
        bytes.fill(0);
        packet::write(bytes, self.family, Protocol::Udp, &datagram.flow, sequence);
        Ok(packet)
    }
}

/// Whose the datagrams are.
pub(super) fn sockets(datagrams: &[Datagram]) -> Vec<SocketId> {
    datagrams.iter().map(|datagram| datagram.socket).collect()
}

/// What the application reads, batch by batch.
pub(super) fn plans(call: Call, datagrams: &[Datagram]) -> Vec<Plan> {
    let sockets = sockets(datagrams);
    let batches = sockets.chunks(BATCH).zip((0..).step_by(BATCH));
    batches
        .map(|(sockets, first)| Plan::new(call, sockets, first))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bed::{Own, Side};
    use crate::bench::net::Family;

    #[test]
    fn every_datagram_is_read_or_missed() {
        let clock = Clock::new();
        for (family, is_connected, sockets) in [
            (Family::V4, true, 1),
            (Family::V4, false, 70),
            (Family::V6, true, 70),
            (Family::V6, false, 1),
        ] {
            let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1).expect("a bed");
            match is_connected {
                true => bed.grow_connected(sockets).expect("sockets"),
                false => bed.grow_unconnected(sockets).expect("sockets"),
            }
            let way = |call, queues| Way {
                call,
                is_connected,
                queues,
            };
            for call in [Call::Single, Call::Batch] {
                for queues in [1, 2] {
                    let way = way(call, queues);
                    bed.run_receive(&clock, way).expect("one core");
                    bed.run_receive_apart(&clock, way).expect("two cores");
                }
            }
            bed.stack.udp_close(bed.sockets[0].0).expect("it was open");
            let flow = Flow {
                dst_port: 1,
                ..bed.sockets[0].1
            };
            let other = super::super::open(&bed.stack, family, &flow).expect("a socket");
            bed.sockets = vec![(other, bed.sockets[0].1)];
            let way = |call, queues| Way {
                is_connected: true,
                ..way(call, queues)
            };
            for error in [
                bed.run_receive(&clock, way(Call::Single, 1)),
                bed.run_receive(&clock, way(Call::Batch, 2)),
                bed.run_receive_apart(&clock, way(Call::Batch, 1)),
                bed.run_receive_apart(&clock, way(Call::Single, 2)),
            ] {
                let error = error.expect_err("nobody is there").to_string();
                assert!(error.contains("a datagram is missing; drops: "), "{error}");
            }
        }
    }
}
