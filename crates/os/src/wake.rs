//! Waking a worker that sleeps on file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Wakes one worker: readable from [`wake`](Self::wake) until [`drain`](Self::drain).
///
/// The worker drains it just before it sleeps, then looks once more at everything others may
/// have left for it, and only then sleeps. As long as it is awake, one wake-up stays pending and
/// further ones cost an atomic operation instead of a system call.
///
/// ```
/// use forebay_os::{poll, wake::Waker};
/// use std::{os::fd::AsFd, time::Duration};
///
/// let waker = Waker::new()?;
/// waker.wake()?;
/// assert_eq!(poll::wait(&[waker.as_fd()], None)?, [0]);
/// waker.drain()?;
/// assert!(poll::wait(&[waker.as_fd()], Some(Duration::ZERO))?.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Waker {
    eventfd: OwnedFd,
    /// Whether a wake-up was given since the last drain. Set by whoever wakes, cleared by the
    /// worker.
    pending: AtomicBool,
}

impl Waker {
    /// A waker with nothing pending.
    ///
    /// # Errors
    ///
    /// What `eventfd(2)` says: no descriptors or no memory left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            eventfd,
            pending: AtomicBool::new(false),
        })
    }

    /// Wakes the worker; what the caller wrote before is seen by the worker after its
    /// [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// None in practice; a broken descriptor is passed on.
    pub fn wake(&self) -> io::Result<()> {
        // A plain load would not do: it could be done ahead of the caller's own writes, find an
        // old wake-up pending that is just being drained, and leave those writes unseen.
        if self.pending.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
            // The counter is full: the descriptor is readable, and that is all it is for.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the pending wake-up, if any. Look for work after this, not before.
    ///
    /// # Errors
    ///
    /// None in practice; a broken descriptor is passed on.
    pub fn drain(&self) -> io::Result<()> {
        // The descriptor before the flag: the other way round, a wake-up between the two would
        // be read away with its flag left set, and no later one would write again.
        match rustix::io::read(&self.eventfd, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.pending.swap(false, Ordering::AcqRel);
        Ok(())
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use std::sync::atomic::AtomicU32;
    use std::thread;
    use std::time::Duration;

    fn is_readable(waker: &Waker) -> bool {
        !poll::wait(&[waker.as_fd()], Some(Duration::ZERO))
            .expect("poll")
            .is_empty()
    }

    #[test]
    fn readable_from_wake_to_drain() {
        let waker = Waker::new().expect("eventfd");
        waker.drain().expect("drain");
        for _ in 0..3 {
            assert!(!is_readable(&waker));
            waker.wake().expect("wake");
            waker.wake().expect("wake");
            assert!(is_readable(&waker));
            waker.drain().expect("drain");
        }
    }

    #[test]
    fn no_work_is_left_behind() {
        const ROUNDS: u32 = 20_000;
        let waker = Waker::new().expect("eventfd");
        let work = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        work.fetch_add(1, Ordering::Relaxed);
                        waker.wake().expect("wake");
                    }
                });
            }
            let mut done = 0;
            while done < 2 * ROUNDS {
                let ready = poll::wait(&[waker.as_fd()], Some(Duration::from_secs(10)));
                assert_eq!(ready.expect("poll"), [0], "a wake-up was lost");
                waker.drain().expect("drain");
                done += work.swap(0, Ordering::Relaxed);
            }
        });
    }
}
