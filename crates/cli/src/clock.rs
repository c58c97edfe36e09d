//! The clock around the timed stages.

use std::thread;
use std::time::{Duration, Instant};

use forebay::tsc;

/// How long to watch the counter beside the system's clock: both are read within 0.1 µs.
const CALIBRATION: Duration = Duration::from_millis(30);

/// The processor's time-stamp counter, or the system's clock where there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
    nanos_per_tick: f64,
    counts_cycles: bool,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let origin = Instant::now();
        let mut clock = Self {
            origin,
            nanos_per_tick: 1.0,
            counts_cycles: false,
        };
        let Some(start) = tsc::read() else {
            return clock;
        };
        thread::sleep(CALIBRATION);
        let nanos = origin.elapsed().as_nanos() as f64;
        let ticks = tsc::read().unwrap_or_default().wrapping_sub(start);
        if ticks > 0 {
            clock.nanos_per_tick = nanos / ticks as f64;
            clock.counts_cycles = true;
        }
        clock
    }

    /// Ticks since some moment.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match tsc::read() {
            Some(ticks) => ticks,
            None => u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// How long so many ticks are, in nanoseconds.
    pub(crate) fn nanos(&self, ticks: f64) -> f64 {
        ticks * self.nanos_per_tick
    }

    /// How many ticks so many nanoseconds are.
    pub(crate) fn ticks(&self, nanos: f64) -> f64 {
        nanos / self.nanos_per_tick
    }

    /// How many cycles of the time-stamp counter a time has, if there is one.
    pub(crate) fn cycles(&self, nanos: f64) -> Option<f64> {
        self.counts_cycles.then(|| self.ticks(nanos))
    }
}
