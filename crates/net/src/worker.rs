//! A thread that drives a stack: polls while there is work, sleeps when there is none.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};

use std::os::fd::AsFd;

use forebay_os::{poll, wake};

use crate::driver::{Driver, Turn};
use crate::stack::{Shared, Stack};

/// The thread; it ends when this is dropped.
pub struct Worker {
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What wakes the thread, and what ends it.
struct Alarm {
    event: wake::Waker,
    stop: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Writing to an eventfd fails only when its counter is full, and then it is readable.
        let _ = self.event.wake();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn spawn(stack: &Stack) -> io::Result<Self> {
        let alarm = Arc::new(Alarm {
            event: wake::Waker::new()?,
            stop: AtomicBool::new(false),
        });
        let claimed = stack.shared.claim(&Waker::from(Arc::clone(&alarm)));
        if claimed.is_none() {
            let why = "a worker drives this stack already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let (shared, its_alarm) = (Arc::clone(&stack.shared), Arc::clone(&alarm));
        let body = move || {
            let result = run(&shared, &its_alarm);
            shared.release();
            result
        };
        match thread::Builder::new()
            .name("forebay-worker".to_owned())
            .spawn(body)
        {
            Ok(thread) => Ok(Self {
                alarm,
                thread: Some(thread),
            }),
            Err(error) => {
                stack.shared.release();
                Err(error)
            }
        }
    }

    /// Ends the thread and waits for it. The stack may be driven by hand, or by another worker,
    /// afterwards.
    ///
    /// # Errors
    ///
    /// What made the thread end before it was asked to.
    pub fn stop(mut self) -> io::Result<()> {
        self.join()
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

fn run(shared: &Shared, alarm: &Alarm) -> io::Result<()> {
    let mut driver = shared.driver();
    loop {
        // Forgotten before the look-around, the wish to stop included, so that what comes during it
        // wakes again.
        alarm.event.drain()?;
        if alarm.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        shared.obey(&mut driver);
        let turn = driver.turn(&shared.stack, shared.clock.now());
        if !turn.busy {
            sleep(shared, &driver, alarm, &turn)?;
        }
    }
}

/// Until a device has packets, a socket has sent, or a deadline has come.
fn sleep(shared: &Shared, driver: &Driver, alarm: &Alarm, turn: &Turn) -> io::Result<()> {
    let timeout = turn.deadline.map(|deadline| deadline - shared.clock.now());
    let mut fds = vec![alarm.event.as_fd()];
    driver.fds(&mut fds);
    poll::wait(&fds, timeout)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_stops_whenever_it_is_told_to() {
        let stack = Stack::builder()
            .buffers(64)
            .seed([1, 2])
            .build()
            .expect("a stack");
        for turn in 0..2_000_u32 {
            let worker = stack.spawn_worker().expect("a worker");
            // Somewhere between its first look-around and its sleep.
            for _ in 0..turn % 64 * 32 {
                std::hint::spin_loop();
            }
            worker.stop().expect("no fault");
        }
    }
}
