//! Datagrams from a device in memory to an application that reads them.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, bail, ensure};
use forebay::core::packet::{Meta, Packet, PacketQueue};
use forebay::core::socket::SocketId;

use super::chunk::{BATCH, per_packet};
use super::reader::{Buffers, Call, Plan, Reader};
use super::{Bed, CHUNK, FIRST_PORT, PORTS};
use crate::bench::packet::{self, Flow, Protocol};
use crate::bench::runner::Chunk;
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;

/// Bytes of a datagram: with headers and checksum, a frame of 64 bytes on Ethernet.
pub(super) const PAYLOAD: usize = 18;

const UDP_HEADER: usize = 8;

/// What an application is to receive.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    socket: SocketId,
    flow: Flow,
}

/// Receiving.
impl Bed {
    /// A chunk of datagrams for random sockets, on one core: the device's batch, the stages and the
    /// application take turns. The device fills buffers as it hands them over, so that a datagram is
    /// in the cache, as one is that a driver has just copied.
    pub(in crate::bench) fn run_receive(
        &mut self,
        clock: &Clock,
        call: Call,
        is_connected: bool,
    ) -> anyhow::Result<Chunk> {
        let datagrams = self.datagrams(is_connected)?;
        let plans = plans(call, &datagrams);
        // Buffers that other chunks have kept.
        self.buffers.clear();
        let stack = self.stack.clone();
        let mut buffers = Buffers::new();
        let mut reader = buffers.reader(&stack, call);
        let mut times = Vec::with_capacity(plans.len());
        let (mut generate, mut verify) = (0, 0);
        for (nth, (datagrams, plan)) in datagrams.chunks(BATCH).zip(&plans).enumerate() {
            let start = clock.now();
            let mut batch = PacketQueue::new();
            for (datagram, sequence) in datagrams.iter().zip((nth * BATCH) as u32..) {
                batch.push(self.packet(datagram, sequence)?);
            }
            let generated = clock.now();
            stack.receive(&mut self.core, self.now, self.near, &mut batch);
            reader.read(plan, || bail!("a datagram is missing; {}", self.drops()))?;
            let read = clock.now();
            reader.check(plan)?;
            times.push(read.wrapping_sub(generated));
            generate += generated.wrapping_sub(start);
            verify += clock.now().wrapping_sub(read);
        }
        Ok(Chunk {
            generate: generate as f64 / CHUNK as f64,
            stages: middle_mean(times) / BATCH as f64,
            verify: verify as f64 / CHUNK as f64,
        })
    }

    /// A chunk of datagrams for random sockets, on two cores: one is fed by the device, an
    /// application on the other one asks again and again. All is written before; what is measured is
    /// the time from the first batch to the last datagram.
    pub(in crate::bench) fn run_receive_apart(
        &mut self,
        clock: &Clock,
        call: Call,
        is_connected: bool,
    ) -> anyhow::Result<Chunk> {
        let datagrams = self.datagrams(is_connected)?;
        let plans = plans(call, &datagrams);
        // What the application of the last chunk has freed lies in its cache.
        self.stack.flush_caches();
        let start = clock.now();
        let mut batches = Vec::with_capacity(plans.len());
        for (nth, datagrams) in datagrams.chunks(BATCH).enumerate() {
            let mut batch = PacketQueue::new();
            for (datagram, sequence) in datagrams.iter().zip((nth * BATCH) as u32..) {
                batch.push(self.packet(datagram, sequence)?);
            }
            batches.push(batch);
        }
        let generated = clock.now();
        let stack = self.stack.clone();
        let mut buffers = Buffers::new();
        let mut reader = buffers.reader(&stack, call);
        let (is_ready, is_fed) = (AtomicBool::new(false), AtomicBool::new(false));
        let stages = thread::scope(|scope| {
            let application = scope.spawn(|| {
                is_ready.store(true, Ordering::Release);
                read_all(&mut reader, &plans, &is_fed)?;
                Ok::<_, anyhow::Error>(clock.now())
            });
            while !is_ready.load(Ordering::Acquire) {
                hint::spin_loop();
            }
            let start = clock.now();
            for batch in &mut batches {
                stack.receive(&mut self.core, self.now, self.near, batch);
            }
            is_fed.store(true, Ordering::Release);
            let end = application.join();
            let end = end.map_err(|_| anyhow!("the application panicked"))?;
            end.map(|end| per_packet(start, end))
        });
        Ok(Chunk {
            generate: per_packet(start, generated),
            stages: stages.map_err(|error| anyhow!("{error}; {}", self.drops()))?,
            // The application looks at a batch while the next one comes.
            verify: 0.0,
        })
    }

    /// A chunk of them. To a socket that is not connected, each comes from somebody else.
    fn datagrams(&mut self, is_connected: bool) -> anyhow::Result<Vec<Datagram>> {
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

fn plans(call: Call, datagrams: &[Datagram]) -> Vec<Plan> {
    let sockets: Vec<SocketId> = datagrams.iter().map(|datagram| datagram.socket).collect();
    let batches = sockets.chunks(BATCH).zip((0..).step_by(BATCH));
    batches
        .map(|(sockets, first)| Plan::new(call, sockets, first))
        .collect()
}

/// The application's part: reads until all is there, as long as anything can still come.
fn read_all(reader: &mut Reader<'_>, plans: &[Plan], is_fed: &AtomicBool) -> anyhow::Result<()> {
    for plan in plans {
        let mut is_last_look = false;
        reader.read(plan, || {
            ensure!(!is_last_look, "a datagram is missing");
            is_last_look = is_fed.load(Ordering::Acquire);
            hint::spin_loop();
            Ok(())
        })?;
        reader.check(plan)?;
    }
    Ok(())
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
            for call in [Call::Single, Call::Batch] {
                bed.run_receive(&clock, call, is_connected)
                    .expect("one core");
                bed.run_receive_apart(&clock, call, is_connected)
                    .expect("two cores");
            }
            bed.stack.udp_close(bed.sockets[0].0).expect("it was open");
            let flow = Flow {
                dst_port: 1,
                ..bed.sockets[0].1
            };
            let other = super::super::open(&bed.stack, family, &flow).expect("a socket");
            bed.sockets = vec![(other, bed.sockets[0].1)];
            for error in [
                bed.run_receive(&clock, Call::Single, true),
                bed.run_receive_apart(&clock, Call::Batch, true),
            ] {
                let error = error.expect_err("nobody is there").to_string();
                assert!(error.contains("a datagram is missing; drops: "), "{error}");
            }
        }
    }
}
