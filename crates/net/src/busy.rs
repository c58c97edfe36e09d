//! Looking again and again for a while, before sleeping: what Linux calls busy polling. It burns a
//! processor to save the time that falling asleep and waking up take.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_stack::Stack;
use forebay_stack::sysctl::Knob;

/// How long the reads of a socket look before they sleep (`SO_BUSY_POLL`).
pub(crate) struct BusyPoll {
    /// Or [`LEFT_TO_THE_KNOB`].
    micros: AtomicU32,
}

/// A socket that was not told.
const LEFT_TO_THE_KNOB: u32 = u32::MAX;

impl Default for BusyPoll {
    fn default() -> Self {
        Self {
            micros: AtomicU32::new(LEFT_TO_THE_KNOB),
        }
    }
}

impl BusyPoll {
    /// In whole microseconds, at most [`i32::MAX`] of them.
    pub(crate) fn set(&self, time: Duration) -> io::Result<()> {
        let micros = i32::try_from(time.as_micros()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.micros.store(micros.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }

    /// `net.core.busy_read` unless set.
    pub(crate) fn get(&self, stack: &Stack) -> Duration {
        Duration::from_micros(match self.micros.load(Ordering::Relaxed) {
            LEFT_TO_THE_KNOB => stack.knob(Knob::BusyRead).unsigned_abs(),
            micros => micros.into(),
        })
    }
}

/// Looks until there is something, or `time` has passed.
pub(crate) fn look_for<T>(
    time: Duration,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    if time.is_zero() {
        return Ok(None);
    }
    let begin = Instant::now();
    loop {
        let found = look()?;
        if found.is_some() || begin.elapsed() >= time {
            return Ok(found);
        }
        std::hint::spin_loop();
    }
}
