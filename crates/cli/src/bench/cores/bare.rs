//! The devices without a stack between them: a pair on each core, with packets of its own. Pairs
//! share nothing, so what two of them do, to what one does, is what the machine gives to a second
//! thread: on a virtual one that may be less than another core.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use forebay::core::packet::{PacketCache, PacketPool, PacketQueue};
use forebay::core::time::Instant as Time;
use forebay::device::Device;

use super::Traffic;
use super::bed::{Round, flows};
use super::reader::pin;
use super::traffic::{Lane, Window, sink, source};
use crate::bench::floor;
use crate::bench::net::Family;

/// Packets that go from one device to the other at a time, as many as a worker takes from one.
const BATCH: usize = 64;

pub(super) struct Bare {
    family: Family,
    window: Arc<Window>,
    pairs: Vec<Pair>,
    sources: Vec<Arc<Lane>>,
    sinks: Vec<Arc<Lane>>,
    flows: usize,
}

/// On lines of its own, for its thread writes to it for every packet.
#[repr(align(128))]
struct Pair {
    source: Box<dyn Device>,
    sink: Box<dyn Device>,
    cache: PacketCache,
}

impl Bare {
    pub(super) fn new(family: Family, workers: u8) -> Self {
        let flows = flows(family, Traffic::Forward);
        let queues = usize::from(workers);
        let window = Arc::new(Window::default());
        let (near, sources) = source(family, &flows, queues, &window);
        let (far, sinks) = sink(family, &flows, queues);
        let pairs = queues_of(near).into_iter().zip(queues_of(far));
        let pairs = pairs.map(|(source, sink)| Pair {
            source,
            sink,
            cache: PacketPool::new(4 * BATCH).cache(),
        });
        Self {
            family,
            window,
            pairs: pairs.collect(),
            sources,
            sinks,
            flows: flows.len(),
        }
    }

    /// Hands packets over for so long.
    pub(super) fn run(&mut self, length: Duration, processors: &[usize]) -> anyhow::Result<Round> {
        let before = self.counts();
        let origin = Instant::now();
        let end = Time::from_nanos(u64::try_from(length.as_nanos())?);
        self.window.open(Time::from_nanos(0), end);
        let family = self.family;
        thread::scope(|scope| {
            let places = self.pairs.iter_mut().enumerate();
            let threads: Vec<_> = places
                .map(|(place, pair)| {
                    scope.spawn(move || {
                        pin(place, processors)?;
                        pair.run(family, origin, end)
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|thread| {
                let result = thread.join();
                result.map_err(|_| anyhow!("a thread panicked"))?
            });
            joined.collect::<anyhow::Result<()>>()
        })?;
        let wrong: u64 = self.sinks.iter().map(|lane| lane.wrong()).sum();
        ensure!(wrong == 0, "{wrong} packets came out wrong or out of order");
        let (sent, by_flow) = self.counts();
        let by_flow = by_flow.iter().zip(&before.1).take(self.flows);
        Ok(Round {
            by_flow: by_flow
                .map(|(now, before)| now.wrapping_sub(*before).into())
                .collect(),
            sent: sent - before.0,
            ..Round::default()
        })
    }

    fn counts(&self) -> (u64, Vec<u32>) {
        let sent = self.sources.iter().map(|lane| lane.packets()).sum();
        (sent, Lane::by_flow_of_all(&self.sinks))
    }
}

impl Pair {
    fn run(&mut self, family: Family, origin: Instant, end: Time) -> anyhow::Result<()> {
        let (mut made, mut forwarded) = (PacketQueue::new(), PacketQueue::new());
        loop {
            let now = Time::from_nanos(u64::try_from(origin.elapsed().as_nanos())?);
            if now >= end {
                return Ok(());
            }
            self.source
                .receive(now, &mut self.cache, &mut made, BATCH)?;
            while let Some(mut packet) = made.pop() {
                floor::rewrite(family, packet.data_mut());
                forwarded.push(packet);
            }
            self.sink.transmit(now, &mut forwarded, &mut self.cache)?;
        }
    }
}

fn queues_of(mut device: impl Device + 'static) -> Vec<Box<dyn Device>> {
    let mut queues = Vec::new();
    while let Some(queue) = device.take_queue() {
        queues.push(queue);
    }
    queues.insert(0, Box::new(device));
    queues
}
