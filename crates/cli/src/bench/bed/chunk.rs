//! Chunks of packets through the stack: written, sent through, and looked at, each apart.

use anyhow::{bail, ensure};
use forebay::core::packet::{Meta, PacketQueue};

use super::{Bed, CHUNK, FIRST_PORT, PORTS};
use crate::bench::floor::Floor;
use crate::bench::packet::{self, Flow, LEN, Protocol};
use crate::bench::runner::Chunk;
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;
use crate::random::Random;

/// Packets that a device hands over at once.
pub(in crate::bench) const BATCH: usize = 64;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Somebody behind the far interface.
    Transit,
    /// A socket, by its number in the order of opening.
    Socket(usize),
}

/// What must become of a packet.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Forwarded { dst: u128 },
    Received { socket: usize },
}

impl Bed {
    /// So that each socket has been found once, and knows the way its packets come.
    pub(in crate::bench) fn greet_sockets(&mut self, clock: &Clock) -> anyhow::Result<()> {
        let sockets = self.sockets.len();
        for first in (0..sockets).step_by(CHUNK) {
            let mut next = first;
            self.run(clock, |_, sockets| {
                let target = Target::Socket(next % sockets.max(1));
                next += 1;
                target
            })?;
        }
        Ok(())
    }

    /// A chunk of transit, with so many packets in a hundred for sockets, all alike likely.
    pub(in crate::bench) fn run_mix(&mut self, clock: &Clock, local: u8) -> anyhow::Result<Chunk> {
        self.run(clock, |random, sockets| {
            if random.below(100) < usize::from(local) {
                Target::Socket(random.below(sockets))
            } else {
                Target::Transit
            }
        })
    }

    /// A chunk for sockets, all alike likely: what each batch took, in ticks.
    pub(in crate::bench) fn run_batches(&mut self, clock: &Clock) -> anyhow::Result<Vec<u64>> {
        let expected = self.generate(|random, sockets| Target::Socket(random.below(sockets)))?;
        let (packets, batches) = self.send_through(clock);
        self.verify(&expected, packets)?;
        Ok(batches)
    }

    /// A chunk of transit through the bare loop.
    pub(in crate::bench) fn run_floor(
        &mut self,
        clock: &Clock,
        floor: &Floor,
    ) -> anyhow::Result<Chunk> {
        let start = clock.now();
        let expected = self.generate(|_, _| Target::Transit)?;
        let generated = clock.now();
        let mut batches = Vec::with_capacity(CHUNK / BATCH);
        for batch in self.buffers.chunks_mut(BATCH) {
            let start = clock.now();
            floor.forward(batch);
            batches.push(clock.now().wrapping_sub(start));
        }
        let sent = clock.now();
        for (sequence, (expected, packet)) in (0..).zip(expected.iter().zip(&self.buffers)) {
            let Expected::Forwarded { dst } = *expected else {
                continue;
            };
            ensure!(
                self.is_forwarded(packet.data(), dst, sequence),
                "the bare loop made packet {sequence} wrong"
            );
        }
        let verified = clock.now();
        Ok(Chunk {
            generate: per_packet(start, generated),
            stages: middle_mean(batches) / BATCH as f64,
            verify: per_packet(sent, verified),
        })
    }

    fn run(
        &mut self,
        clock: &Clock,
        pick: impl FnMut(&mut Random, usize) -> Target,
    ) -> anyhow::Result<Chunk> {
        let start = clock.now();
        let expected = self.generate(pick)?;
        let generated = clock.now();
        let (packets, batches) = self.send_through(clock);
        let sent = clock.now();
        self.verify(&expected, packets)?;
        let verified = clock.now();
        Ok(Chunk {
            generate: per_packet(start, generated),
            stages: middle_mean(batches) / BATCH as f64,
            verify: per_packet(sent, verified),
        })
    }

    /// Writes all packets anew.
    fn generate(
        &mut self,
        mut pick: impl FnMut(&mut Random, usize) -> Target,
    ) -> anyhow::Result<Vec<Expected>> {
        // What a reader has freed lies in its cache.
        self.stack.flush_caches();
        while self.buffers.len() < CHUNK {
            let Some(packet) = self.core.cache().alloc() else {
                bail!("the pool has lost buffers");
            };
            self.buffers.push(packet);
        }
        let mut expected = Vec::with_capacity(CHUNK);
        for sequence in 0..CHUNK {
            let target = pick(&mut self.random, self.sockets.len());
            let (protocol, flow, what) = match target {
                Target::Socket(socket) => {
                    let Some((_, flow)) = self.sockets.get(socket) else {
                        bail!("there is no socket {socket}");
                    };
                    (Protocol::Udp, *flow, Expected::Received { socket })
                }
                Target::Transit => {
                    let dst = self.stranger();
                    let port = self.random.below(PORTS as usize) as u16 + FIRST_PORT as u16;
                    let flow = Flow {
                        src: self.family.peer(),
                        src_port: port,
                        dst,
                        dst_port: 53,
                    };
                    (self.transit, flow, Expected::Forwarded { dst })
                }
            };
            expected.push(what);
            let bytes = packet::build(self.family, protocol, &flow, sequence as u32);
            let Some(buffer) = self.buffers.get_mut(sequence) else {
                bail!("there is no buffer {sequence}");
            };
            **buffer = Meta::default();
            ensure!(buffer.set_len(LEN), "a buffer is too small");
            buffer.data_mut().copy_from_slice(&bytes);
        }
        Ok(expected)
    }

    /// Batches from the near interface, and what leaves by the far one because of them. Returns
    /// that, and the ticks that each batch took.
    fn send_through(&mut self, clock: &Clock) -> (PacketQueue, Vec<u64>) {
        let mut sent = PacketQueue::new();
        let mut batches = Vec::with_capacity(CHUNK / BATCH);
        let mut buffers = self.buffers.drain(..);
        loop {
            // The device's part: as in a driver, the metadata is fresh, the header is not.
            let mut batch = PacketQueue::new();
            for packet in buffers.by_ref().take(BATCH) {
                batch.push(packet);
            }
            if batch.is_empty() {
                return (sent, batches);
            }
            let start = clock.now();
            self.stack
                .receive(&mut self.core, self.now, self.near, &mut batch);
            self.far.take(&mut sent);
            batches.push(clock.now().wrapping_sub(start));
        }
    }

    /// Takes all packets back, where they must be.
    fn verify(&mut self, expected: &[Expected], mut sent: PacketQueue) -> anyhow::Result<()> {
        for (sequence, expected) in (0..).zip(expected) {
            match *expected {
                Expected::Forwarded { dst } => {
                    let Some(packet) = sent.pop() else {
                        bail!("packet {sequence} was not forwarded; {}", self.drops());
                    };
                    let is_right = self.is_forwarded(packet.data(), dst, sequence);
                    self.buffers.push(packet);
                    ensure!(is_right, "packet {sequence} was forwarded wrong");
                }
                Expected::Received { socket } => self.receive_from(socket, sequence)?,
            }
        }
        ensure!(sent.is_empty(), "more was forwarded than was to be");
        Ok(())
    }

    fn is_forwarded(&self, packet: &[u8], dst: u128, sequence: u32) -> bool {
        packet::is_forwarded(self.family, self.transit, packet, dst, sequence)
    }

    fn receive_from(&self, socket: usize, sequence: u32) -> anyhow::Result<()> {
        let Some((id, _)) = self.sockets.get(socket) else {
            bail!("there is no socket {socket}");
        };
        let mut payload = [0; LEN];
        let Some(received) = self.stack.udp_recv(*id, &mut payload, false)? else {
            bail!(
                "packet {sequence} did not reach socket {socket}; {}",
                self.drops()
            );
        };
        ensure!(
            packet::is_payload(&payload[..received.len], sequence),
            "socket {socket} received something else than packet {sequence}"
        );
        Ok(())
    }

    /// Which drops were counted.
    pub(super) fn drops(&self) -> String {
        let counters = self.stack.counters();
        let drops = counters.drops().filter(|(_, packets)| *packets > 0);
        let list: Vec<String> = drops
            .map(|(reason, packets)| format!("{} {packets}", reason.name()))
            .collect();
        match list.as_slice() {
            [] => "no drop was counted".to_owned(),
            list => format!("drops: {}", list.join(", ")),
        }
    }
}

pub(super) fn per_packet(from: u64, to: u64) -> f64 {
    to.wrapping_sub(from) as f64 / CHUNK as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bed::{Own, Side};
    use crate::bench::net::Family;

    #[test]
    fn a_chunk_comes_out_or_says_why_not() {
        let clock = Clock::new();
        for (family, knob) in [
            (Family::V4, "net.ipv4.ip_forward"),
            (Family::V6, "net.ipv6.conf.all.forwarding"),
        ] {
            let mut bed = Bed::new(family, Own::Addresses(3), Side::Far, 1).expect("a bed");
            bed.grow_routes(50).expect("routes");
            bed.grow_connected(20).expect("sockets");
            bed.greet_sockets(&clock).expect("all are reached");
            bed.run_mix(&clock, 50).expect("all come out");
            bed.run_floor(&clock, &Floor::new(family, 50))
                .expect("the bare loop forwards");

            bed.set(knob, 0).expect("a knob");
            let error = bed.run_mix(&clock, 0).expect_err("nothing is forwarded");
            let error = error.to_string();
            assert!(
                error.contains("packet 0 was not forwarded; drops: "),
                "{error}"
            );
        }
    }
}
