//! A thread that waits for a [`Waker`] to be woken.

use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::later;

/// Parks the thread that made it.
pub(crate) struct Parker {
    waker: Waker,
    deadline: Option<Instant>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !later::put_off(|| Waker::from(Arc::clone(self))) {
            self.0.unpark();
        }
    }
}

impl Parker {
    /// For the current thread, for no longer than `timeout` from now on.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self {
            waker: Waker::from(Arc::new(Unpark(thread::current()))),
            // A timeout beyond what the clock can hold is none.
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Sleeps until woken, now and then without a reason: the caller looks again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when the time is over, as Linux's `SO_RCVTIMEO` says it.
    pub(crate) fn park(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            thread::park();
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        thread::park_timeout(left);
        Ok(())
    }
}
