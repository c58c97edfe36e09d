//! What a running stack does, by worker and by queue: for who looks on, such as `forebay top`.
//!
//! Most of it is counted anyway. What the stages take is not: looking at a clock between them costs
//! time, so workers do it only while somebody [watches](Stack::watch), and not for every batch.
//!
//! ```
//! use forebay::Stack;
//!
//! let stack = Stack::builder().workers(2).build()?;
//! let watch = stack.watch();
//! let before = watch.workers();
//! // Some time later: what has changed is what was done meanwhile.
//! let after = watch.workers();
//! assert_eq!(before.len(), after.len());
//! # Ok::<(), std::io::Error>(())
//! ```

mod flows;
mod idle_time;
mod sampler;

use std::fmt;
use std::time::Duration;

use forebay_stack::counters::Snapshot;
use forebay_stack::steer::SoftnetStats;

pub(crate) use self::idle_time::IdleTime;
pub use self::sampler::StageCycles;
pub(crate) use self::sampler::{Sampled, Sampler};
use crate::device::DeviceStats;
use crate::stack::{Stack, lock};

/// Somebody who watches a stack: as long as there is one, its workers measure what stages take.
pub struct Watch {
    stack: Stack,
}

/// What a worker has done since the stack was made.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The worker's number.
    pub number: u16,
    /// How long it has slept, for want of work; `None` if nobody works there.
    pub idle: Option<Duration>,
    /// Packets it has taken in, by itself and from others.
    pub softnet: SoftnetStats,
    /// What it has counted; what application threads did is not in it.
    pub counters: Snapshot,
    /// What the stages took, where that was measured.
    pub stages: StageCycles,
    /// Flows that it had packets of in the last second, about. Only packets of the batches that are
    /// measured are looked at, so flows with few packets may be missing.
    pub flows: usize,
}

/// What a queue of a device has done since it was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The device's name.
    pub device: String,
    /// The queue's number.
    pub number: u16,
    /// The worker that drives it.
    pub worker: u16,
    /// Its counts, as of the worker's last turn.
    pub stats: DeviceStats,
    /// Packets that wait for the device.
    pub waiting: usize,
}

impl Stack {
    /// Begins to watch, until the result is dropped.
    pub fn watch(&self) -> Watch {
        self.shared.watched.inc();
        Watch {
            stack: self.clone(),
        }
    }

    /// Whether anybody watches.
    pub fn is_watched(&self) -> bool {
        self.shared.watched.is_enabled()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stack.shared.watched.dec();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// The workers, in the order of their numbers.
    pub fn workers(&self) -> Vec<Worker> {
        let shared = &self.stack.shared;
        let workers = shared.seats.iter().map(|seat| {
            let number = seat.number();
            let now = shared.clock.now();
            let sampled = seat.sampled();
            Worker {
                number,
                idle: seat.is_claimed().then(|| seat.idle().until(now)),
                softnet: shared.stack.softnet_stats(number).unwrap_or_default(),
                counters: shared.stack.counters_of(number),
                stages: sampled.stages,
                flows: sampled.flows.at(now),
            }
        });
        workers.collect()
    }

    /// The queues of all devices, in the order in which those were added.
    pub fn queues(&self) -> Vec<Queue> {
        let shared = &self.stack.shared;
        let devices = lock(&shared.devices);
        let queues = devices.iter().flat_map(|known| {
            let waiting = shared.stack.transmit_queues(known.ifindex);
            known.statuses.iter().enumerate().map(move |(at, status)| {
                let number = u16::try_from(at).unwrap_or(u16::MAX);
                Queue {
                    device: known.name.clone(),
                    number,
                    worker: shared
                        .seat_of(known.ifindex, number, known.statuses.len())
                        .number(),
                    stats: lock(status).stats,
                    waiting: waiting.get(at).map_or(0, |queue| queue.len()),
                }
            })
        });
        queues.collect()
    }
}

#[cfg(test)]
mod tests;
