//! Applications that read, each on one core at a time.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use forebay::core::time::Instant;
use forebay::core::udp::RecvSlot;
use forebay::{Stack, UdpSocket};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Datagrams that a read takes at most.
const BATCH: usize = 64;

/// Bytes of one of the application's buffers.
const ROOM: usize = 64;

/// How long a reader stays where it is, if it moves at all.
const STAY: Duration = Duration::from_millis(10);

/// A socket, and where its reader runs.
pub(super) struct Reader<'a> {
    pub(super) stack: &'a Stack,
    pub(super) socket: &'a UdpSocket,
    /// The processor that it begins on, among those of the workers.
    pub(super) place: usize,
    pub(super) moves: bool,
    /// When the first datagram comes.
    pub(super) start: Instant,
    /// The lowest number that the next datagram can have.
    pub(super) expected: &'a mut u32,
}

/// What a reader saw.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) datagrams: u64,
    /// Packets of all flows that workers handled on the core that the reader was on, and on any.
    pub(super) at_home: u64,
    pub(super) anywhere: u64,
}

/// The processors that this process may use, in the order in which workers are kept on them.
pub(in crate::bench) fn processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    let is_allowed = |cpu: &usize| set.is_set(*cpu);
    Ok((0..CpuSet::MAX_CPU).filter(is_allowed).collect())
}

/// Keeps the calling thread on one of them.
pub(in crate::bench) fn pin(place: usize, processors: &[usize]) -> anyhow::Result<()> {
    let Some(cpu) = processors.get(place % processors.len().max(1)) else {
        bail!("this process may run nowhere");
    };
    let mut set = CpuSet::new();
    set.set(*cpu);
    Ok(sched_setaffinity(None, &set)?)
}

impl Reader<'_> {
    /// Reads until `stop` is set and nothing comes any more.
    pub(super) fn run(mut self, processors: &[usize], stop: &AtomicBool) -> anyhow::Result<Seen> {
        pin(self.place, processors)?;
        self.socket.set_read_timeout(Some(STAY))?;
        let mut buffers = [[0; ROOM]; BATCH];
        let mut slots: Vec<_> = buffers.iter_mut().map(|buf| RecvSlot::new(buf)).collect();
        let mut seen = Seen::default();
        let mut noted = self.handled();
        let mut moves = 0;
        loop {
            match self.socket.recv_batch(&mut slots) {
                Ok(received) => {
                    self.look(&slots[..received])?;
                    seen.datagrams += received as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            let due = (self.stack.now() - self.start).as_nanos() / STAY.as_nanos();
            if self.moves && due > moves {
                self.note(&mut noted, &mut seen);
                // One at a time: having slept through some is no reason to stay.
                moves = due;
                self.place += 1;
                pin(self.place, processors)?;
            }
        }
        self.note(&mut noted, &mut seen);
        Ok(seen)
    }

    fn look(&mut self, slots: &[RecvSlot<'_>]) -> anyhow::Result<()> {
        for slot in slots {
            let Some(sequence) = slot.buf.first_chunk().copied().map(u32::from_be_bytes) else {
                bail!("a datagram has no number");
            };
            let expected = *self.expected;
            ensure!(
                sequence >= expected,
                "datagram {sequence} came after {expected}"
            );
            *self.expected = sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// How many packets each worker has handled so far.
    fn handled(&self) -> Vec<u64> {
        let stats = |cpu| self.stack.inner().softnet_stats(cpu);
        (0..)
            .map_while(stats)
            .map(|stats| stats.processed)
            .collect()
    }

    /// Counts what the workers have handled since it was noted last for the place that the reader
    /// was in.
    fn note(&self, noted: &mut Vec<u64>, seen: &mut Seen) {
        let now = self.handled();
        let own = self.place % now.len().max(1);
        for (place, (now, before)) in now.iter().zip(noted.iter()).enumerate() {
            let packets = now - before;
            seen.anywhere += packets;
            if place == own {
                seen.at_home += packets;
            }
        }
        *noted = now;
    }
}
