//! Reno: a packet more each round trip, half of them less upon loss (RFC 5681; what RFC 6582 adds
//! is the sender's, who knows when recovery ends).

use core::time::Duration;

use super::{AckSample, CongestionControl, Window};
use crate::time::Instant;

/// Reno's state.
#[derive(Debug, Clone)]
pub(crate) struct Reno {
    window: Window,
    /// Packets acknowledged that have not made the window grow yet.
    credit: u32,
}

impl Reno {
    pub(super) fn new(window: Window) -> Self {
        Self { window, credit: 0 }
    }

    /// A packet more for each window that is acknowledged (RFC 5681 section 3.1, equation 3, with
    /// bytes counted as packets).
    fn avoid_congestion(&mut self, acked: u32) {
        self.credit = self.credit.saturating_add(acked);
        let windows = self.credit / self.window.cwnd;
        if windows > 0 {
            self.credit -= windows * self.window.cwnd;
            self.window.grow(windows);
        }
    }
}

impl CongestionControl for Reno {
    fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    fn on_ack(&mut self, sample: &AckSample) {
        if !sample.is_cwnd_limited {
            return;
        }
        let rest = match self.window.is_slow_start() {
            true => self.window.slow_start(sample.acked),
            false => sample.acked,
        };
        if rest > 0 {
            self.avoid_congestion(rest);
        }
    }

    fn ssthresh_after_loss(&mut self, _now: Instant) -> u32 {
        self.credit = 0;
        self.window.reduce_to(self.window.cwnd / 2)
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        self.window.set(cwnd);
    }

    fn on_rto(&mut self, _now: Instant) {
        self.credit = 0;
        self.window.set(1);
    }

    fn undo(&mut self) {
        self.window.undo();
    }

    fn on_idle_restart(&mut self, rto: Duration, idle: Duration) {
        self.credit = 0;
        self.window.restart(rto, idle);
    }
}
