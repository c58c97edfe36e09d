//! How long a worker has slept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_stack::time::Instant;

/// The time that a worker has slept, the sleep that it may be in included: somebody who looks at a
/// worker with nothing to do must not find it busy.
///
/// In one word, so that who reads needs no lock: the lowest bit says whether it sleeps; the others,
/// in nanoseconds, how long it has slept, less the time when the sleep began that it is in.
#[derive(Debug, Default)]
pub(crate) struct IdleTime(AtomicU64);

impl IdleTime {
    /// The worker goes to sleep. Only the worker itself calls this, and [`end`](Self::end).
    pub(crate) fn begin(&self, now: Instant) {
        let nanos = (self.0.load(Ordering::Relaxed) >> 1).wrapping_sub(now.as_nanos());
        self.0.store(nanos << 1 | 1, Ordering::Relaxed);
    }

    /// It has woken up.
    pub(crate) fn end(&self, now: Instant) {
        let nanos = (self.0.load(Ordering::Relaxed) >> 1).wrapping_add(now.as_nanos());
        self.0.store(nanos << 1, Ordering::Relaxed);
    }

    /// How long it has slept until `now`.
    pub(crate) fn until(&self, now: Instant) -> Duration {
        let word = self.0.load(Ordering::Relaxed);
        let since = if word & 1 == 1 { now.as_nanos() } else { 0 };
        // It may have gone to sleep after `now`: by some nanoseconds less than nothing is nothing.
        let nanos = (word >> 1).wrapping_add(since) << 1;
        Duration::from_nanos(u64::try_from(nanos as i64 / 2).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sleep_under_way_counts() {
        let idle = IdleTime::default();
        let at = |nanos| Instant::from_nanos(nanos);
        let until = |now| idle.until(at(now)).as_nanos();
        assert_eq!(until(100), 0);
        idle.begin(at(100));
        assert_eq!((until(90), until(100), until(150)), (0, 0, 50));
        idle.end(at(160));
        assert_eq!((until(160), until(500)), (60, 60));
        idle.begin(at(500));
        assert_eq!((until(500), until(540)), (60, 100));
        idle.end(at(600));
        assert_eq!(until(700), 160);
    }
}
