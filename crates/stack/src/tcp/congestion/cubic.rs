//! CUBIC (RFC 9438): after loss the window comes back along a cubic curve of time, quick at first,
//! slow about where it was at the loss, then quick again; where Reno would be faster, as fast as
//! Reno.

use core::time::Duration;

use super::hystart::HyStart;
use super::{AckSample, CongestionControl, Window};
use crate::time::Instant;

/// Packets per second cubed (RFC 9438 section 5).
const C: f64 = 0.4;

/// What a reduction leaves (RFC 9438 section 4.6).
const BETA: f64 = 0.7;

/// What Reno may add in a round trip, if it gives up no more than CUBIC does upon loss, to come to
/// the same average window (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Growth per packet acknowledged at least, as long as there was no loss: one in twenty, as Linux
/// has it. The curve alone takes seconds to leave a window at which slow start ended too early.
const SEARCH: f64 = 0.05;

/// CUBIC's state.
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    window: Window,
    curve: Curve,
    /// The curve before the last reduction.
    before: Curve,
    /// Part of a packet by which the window has still to grow.
    credit: f64,
    hystart: HyStart,
}

/// Along what the window grows.
#[derive(Debug, Clone, Copy, Default)]
struct Curve {
    /// W_max; 0 if there was no loss, or what was known of it went with a timeout.
    w_max: f64,
    /// The window at the last reduction.
    cwnd_prior: f64,
    /// Since when congestion is avoided; `None` until the first acknowledgement that counts.
    epoch: Option<Epoch>,
}

/// A time of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    last_ack: Instant,
    /// Seconds in which the window could grow. Neither the time counts in which the application
    /// had nothing to send, nor that in which it sent less than it might have: the curve would run
    /// away from a window that nobody uses (RFC 9438 section 5.8).
    elapsed: f64,
    /// Where the curve is flat.
    origin: f64,
    /// Seconds until there.
    k: f64,
    /// The window that Reno would have.
    w_est: f64,
}

impl Cubic {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            curve: Curve::default(),
            before: Curve::default(),
            credit: 0.0,
            hystart: HyStart::default(),
        }
    }

    fn avoid_congestion(&mut self, sample: &AckSample, acked: u32) {
        let cwnd = f64::from(self.window.cwnd);
        let acked = f64::from(acked);
        let is_searching = self.curve.w_max == 0.0;
        let cwnd_prior = self.curve.cwnd_prior;
        let rtt = sample.srtt.unwrap_or_default();
        let epoch = self.curve.epoch_at(cwnd, sample.now);
        epoch.pass(sample.now, rtt);

        // RFC 9438 section 4.2: where the curve will be in a round trip, but no more than half as
        // much again.
        let target = epoch.w_cubic(epoch.elapsed + rtt.as_secs_f64());
        let mut growth = (target / cwnd - 1.0).clamp(0.0, 0.5);
        if is_searching {
            growth = growth.max(SEARCH);
        }
        self.credit += acked * growth;
        let whole = self.credit.floor();
        self.credit -= whole;
        self.window.grow(whole as u32);

        // RFC 9438 section 4.3: having caught up with the last reduction, Reno adds a packet.
        let alpha = if epoch.w_est < cwnd_prior { ALPHA } else { 1.0 };
        epoch.w_est += alpha * acked / cwnd;
        if epoch.w_cubic(epoch.elapsed) < epoch.w_est {
            let reno = epoch.w_est as u32;
            self.window.set(self.window.cwnd.max(reno));
        }
    }
}

impl Curve {
    /// The epoch, begun now if none is.
    fn epoch_at(&mut self, cwnd: f64, now: Instant) -> &mut Epoch {
        // RFC 9438 sections 4.2 and 4.8: above W_max, or without one, the curve begins where it is
        // flat.
        let w_max = self.w_max.max(cwnd);
        self.epoch.get_or_insert_with(|| Epoch {
            last_ack: now,
            elapsed: 0.0,
            origin: w_max,
            k: ((w_max - cwnd) / C).cbrt(),
            w_est: cwnd,
        })
    }
}

impl Epoch {
    /// Lets the time pass since the last acknowledgement, but no more than a round trip: what is
    /// longer was idle.
    fn pass(&mut self, now: Instant, rtt: Duration) {
        self.elapsed += (now - self.last_ack).min(rtt).as_secs_f64();
        self.last_ack = now;
    }

    fn w_cubic(&self, seconds: f64) -> f64 {
        C * (seconds - self.k).powi(3) + self.origin
    }
}

impl CongestionControl for Cubic {
    fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    fn on_ack(&mut self, sample: &AckSample) {
        if self.window.is_slow_start() && self.hystart.is_enough(sample, self.window.cwnd) {
            self.window.ssthresh = self.window.cwnd;
        }
        if !sample.is_cwnd_limited {
            if let Some(epoch) = &mut self.curve.epoch {
                epoch.last_ack = sample.now;
            }
            return;
        }
        let rest = match self.window.is_slow_start() {
            true => self.window.slow_start(sample.acked),
            false => sample.acked,
        };
        if rest > 0 {
            self.avoid_congestion(sample, rest);
        }
    }

    fn ssthresh_after_loss(&mut self, _now: Instant) -> u32 {
        self.before = self.curve;
        let cwnd = f64::from(self.window.cwnd);
        // RFC 9438 section 4.7: who loses before having come back to where the last loss was, has
        // less of the path than then, and makes room for others.
        let w_max = match cwnd < self.curve.w_max {
            true => cwnd * (1.0 + BETA) / 2.0,
            false => cwnd,
        };
        self.curve = Curve {
            w_max,
            cwnd_prior: cwnd,
            epoch: None,
        };
        self.credit = 0.0;
        self.window.reduce_to((cwnd * BETA) as u32)
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        self.window.set(cwnd);
    }

    fn on_rto(&mut self, _now: Instant) {
        // RFC 9438 section 4.8.
        self.curve.w_max = 0.0;
        self.curve.epoch = None;
        self.credit = 0.0;
        self.hystart = HyStart::default();
        self.window.set(1);
    }

    fn undo(&mut self) {
        // RFC 9438 section 4.9.
        if self.window.undo() {
            self.curve = self.before;
        }
    }

    fn on_idle_restart(&mut self, rto: Duration, idle: Duration) {
        self.window.restart(rto, idle);
    }
}

#[cfg(test)]
mod tests;
