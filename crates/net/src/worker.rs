//! Threads that drive a stack: each polls while there is work, and sleeps when there is none.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay_os::{poll, wake};
use forebay_sync::doze::Doze;

use crate::cpu;
use crate::driver::{Driver, Turn};
use crate::later;
use crate::seat::Seat;
use crate::stack::{Shared, Stack};

/// How long a worker keeps its processor that nobody seems to wait for. The scheduler would let it have
/// it for milliseconds, in which a reader that has just moved here reads nothing; to ask takes half a
/// microsecond.
const SLICE: Duration = Duration::from_micros(250);

/// The threads; they end when this is dropped.
pub struct Workers {
    workers: Vec<Worker>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

impl Workers {
    pub(crate) fn spawn(stack: &Stack) -> io::Result<Self> {
        let seats = &stack.shared.seats;
        // Those that have started end if a later one can't.
        let workers = seats.iter().map(|seat| Worker::spawn(&stack.shared, seat));
        Ok(Self {
            workers: workers.collect::<io::Result<_>>()?,
        })
    }

    /// Ends the threads and waits for them. The stack may be driven by hand, or by other workers,
    /// afterwards.
    ///
    /// # Errors
    ///
    /// What made a thread end before it was asked to.
    pub fn stop(mut self) -> io::Result<()> {
        let results: Vec<_> = self.workers.iter_mut().map(Worker::join).collect();
        results.into_iter().collect()
    }
}

struct Worker {
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What wakes a thread, and what ends it. On lines of its own: it is written at every turn.
#[repr(align(128))]
struct Alarm {
    doze: Doze,
    event: wake::Waker,
    stop: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.doze.call() {
            // Writing to an eventfd fails only when its counter is full, and then it is readable.
            let _ = self.event.wake();
        }
    }
}

impl Worker {
    fn spawn(shared: &Arc<Shared>, seat: &Arc<Seat>) -> io::Result<Self> {
        let alarm = Arc::new(Alarm {
            doze: Doze::new(),
            event: wake::Waker::new()?,
            stop: AtomicBool::new(false),
        });
        let claimed = seat.claim(&shared.stack, &Waker::from(Arc::clone(&alarm)));
        if claimed.is_none() {
            let why = "workers drive this stack already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let (shared, its_seat, its_alarm) =
            (Arc::clone(shared), Arc::clone(seat), Arc::clone(&alarm));
        let body = move || {
            let result = run(&shared, &its_seat, &its_alarm);
            its_seat.release();
            result
        };
        match thread::Builder::new()
            .name(format!("forebay/{}", seat.number()))
            .spawn(body)
        {
            Ok(thread) => Ok(Self {
                alarm,
                thread: Some(thread),
            }),
            Err(error) => {
                seat.release();
                Err(error)
            }
        }
    }

    fn join(&mut self) -> io::Result<()> {
        self.alarm.stop.store(true, Ordering::Release);
        self.alarm.wake_by_ref();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the worker panicked")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn run(shared: &Shared, seat: &Seat, alarm: &Alarm) -> io::Result<()> {
    if shared.seats.len() > 1 {
        cpu::pin_worker(seat.number())?;
    }
    let mut driver = seat.driver();
    let mut wakers = Vec::new();
    let mut since = shared.clock.now();
    loop {
        // Before the look-around, the wish to stop included, so that what comes during it is not
        // slept through.
        alarm.doze.look();
        if alarm.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        seat.obey(&mut driver);
        let now = shared.clock.now();
        let (turn, has_woken) = later::after(&mut wakers, || driver.turn(&shared.stack, now));
        if !turn.busy && alarm.doze.sleep() {
            sleep(shared, seat, &driver, alarm, &turn)?;
        } else if has_woken || turn.has_overrun || now - since >= SLICE {
            // A reader on this very processor would otherwise wait until the scheduler takes it from
            // us, and meanwhile we would work for a full socket.
            thread::yield_now();
        } else {
            continue;
        }
        since = shared.clock.now();
    }
}

/// Until a device has packets, somebody calls, or a deadline has come.
fn sleep(
    shared: &Shared,
    seat: &Seat,
    driver: &Driver,
    alarm: &Alarm,
    turn: &Turn,
) -> io::Result<()> {
    let now = shared.clock.now();
    // What belongs to no device is the first worker's, and so are deadlines that others set.
    let sees_to_deadlines = seat.number() == 0;
    let deadline = match sees_to_deadlines {
        true => shared.stack.going_to_sleep(turn.deadline),
        false => turn.deadline,
    };
    let timeout = deadline.map(|deadline| deadline - now);
    let mut fds = vec![alarm.event.as_fd()];
    driver.fds(&mut fds);
    seat.idle().begin(now);
    let ready = poll::wait(&fds, timeout);
    seat.idle().end(shared.clock.now());
    if sees_to_deadlines {
        shared.stack.woken_up();
    }
    let ready = ready?;
    if ready.first() == Some(&0) {
        alarm.event.drain()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_stop_whenever_they_are_told_to() {
        for workers in [1, 3] {
            let stack = Stack::builder()
                .buffers(64)
                .workers(workers)
                .seed([1, 2])
                .build()
                .expect("a stack");
            for turn in 0..1_000_u32 {
                let workers = stack.spawn_workers().expect("workers");
                // Somewhere between their first look-around and their sleep.
                for _ in 0..turn % 64 * 32 {
                    std::hint::spin_loop();
                }
                workers.stop().expect("no fault");
            }
        }
    }
}
