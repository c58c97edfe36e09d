//! Datagrams to an application that runs on a core of its own.

use std::hint;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, ensure};
use forebay::core::core::Core;
use forebay::core::packet::PacketQueue;
use forebay::core::{Stack, time::Instant};

use super::Bed;
use super::chunk::per_packet;
use super::reader::{Buffers, Ledger, Plan, Reader};
use super::receive::{Way, plans, sockets};
use crate::bench::runner::Chunk;
use crate::clock::Clock;

/// Receiving on two cores.
impl Bed {
    /// A chunk of datagrams for random sockets. All is written before; what is measured is the time
    /// from the first batch to the last datagram read.
    ///
    /// With one receive queue, one core polls it and an application on the other one asks again and
    /// again. With two, each core polls one, and the application shares its core with the second:
    /// a batch, then what was sent meanwhile by both.
    pub(in crate::bench) fn run_receive_apart(
        &mut self,
        clock: &Clock,
        way: Way,
    ) -> anyhow::Result<Chunk> {
        let datagrams = self.datagrams(way.is_connected)?;
        let plans = plans(way.call, &datagrams);
        let mut ledger = Ledger::new(&sockets(&datagrams));
        // What the application of the last chunk has freed lies in its cache.
        self.buffers.clear();
        self.stack.flush_caches();
        let start = clock.now();
        let (mut batches, mut of_application) = (Vec::new(), Vec::new());
        for (nth, batch) in self.batches(&datagrams, 0)?.into_iter().enumerate() {
            match nth % way.queues {
                0 => batches.push(batch),
                _ => of_application.push(batch),
            }
        }
        let generated = clock.now();
        let stack = self.stack.clone();
        let mut buffers = Buffers::new();
        let mut reader = buffers.reader(&stack, way.call);
        let (is_ready, is_fed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (now, near) = (self.now, self.near);
        let mut first = Queue::new(&stack, &mut self.core, now, near, &mut batches);
        let mut second = Queue::new(
            &stack,
            &mut self.second_core,
            now,
            near,
            &mut of_application,
        );
        let stages = thread::scope(|scope| {
            let application = scope.spawn(|| {
                is_ready.store(true, Ordering::Release);
                match way.queues {
                    1 => read_all(&mut reader, &plans, &is_fed)?,
                    _ => poll_and_read_all(&mut second, &mut reader, &plans, &mut ledger, &is_fed)?,
                }
                Ok::<_, anyhow::Error>(clock.now())
            });
            while !is_ready.load(Ordering::Acquire) {
                hint::spin_loop();
            }
            let start = clock.now();
            while first.poll() {}
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
}

/// A receive queue of the near interface's, and the core that polls it.
struct Queue<'a> {
    stack: &'a Stack,
    core: &'a mut Core,
    now: Instant,
    interface: u32,
    batches: slice::IterMut<'a, PacketQueue>,
}

impl<'a> Queue<'a> {
    fn new(
        stack: &'a Stack,
        core: &'a mut Core,
        now: Instant,
        interface: u32,
        batches: &'a mut [PacketQueue],
    ) -> Self {
        Self {
            stack,
            core,
            now,
            interface,
            batches: batches.iter_mut(),
        }
    }

    /// Takes in a batch, if one is left.
    fn poll(&mut self) -> bool {
        let Some(batch) = self.batches.next() else {
            return false;
        };
        self.stack
            .receive(self.core, self.now, self.interface, batch);
        true
    }
}

/// The application's part: reads until all is there, as long as anything can still come.
fn read_all(reader: &mut Reader<'_>, plans: &[Plan], is_fed: &AtomicBool) -> anyhow::Result<()> {
    for plan in plans {
        reader.read(plan, hope(is_fed))?;
        reader.check(plan)?;
    }
    Ok(())
}

/// The same, while its core polls a queue. As many datagrams of a socket are read at a turn as were
/// sent at it, whichever of the two queues they came by.
fn poll_and_read_all(
    queue: &mut Queue<'_>,
    reader: &mut Reader<'_>,
    plans: &[Plan],
    ledger: &mut Ledger,
    is_fed: &AtomicBool,
) -> anyhow::Result<()> {
    for plans in plans.chunks(2) {
        queue.poll();
        for plan in plans {
            reader.read(plan, hope(is_fed))?;
            reader.settle(plan, ledger)?;
        }
    }
    Ok(())
}

/// What to do where nothing is there: ask again, once more after the other core is done.
fn hope(is_fed: &AtomicBool) -> impl FnMut() -> anyhow::Result<()> {
    let mut is_last_look = false;
    move || {
        ensure!(!is_last_look, "a datagram is missing");
        is_last_look = is_fed.load(Ordering::Acquire);
        hint::spin_loop();
        Ok(())
    }
}
