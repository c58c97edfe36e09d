//! Congestion control.

use core::time::Duration;

use crate::time::Instant;

/// Which congestion control a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// RFC 5681, 6582.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Bottleneck bandwidth and round-trip propagation time.
    Bbr,
}

impl Algorithm {
    /// As `net.ipv4.tcp_congestion_control` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

pub(crate) trait CongestionControl {
    fn cwnd(&self) -> u32;
    fn ssthresh(&self) -> u32;
    fn on_ack(&mut self, sample: &AckSample);
    fn ssthresh_after_loss(&mut self, now: Instant) -> u32;
    fn set_cwnd(&mut self, cwnd: u32);
    fn on_rto(&mut self, now: Instant);
    fn undo(&mut self);
    fn on_idle_restart(&mut self, rto: Duration, idle: Duration);
    fn pacing_rate(&self) -> Option<u64>;
    fn wants_pacing(&self) -> bool;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RateSample {
    pub(crate) bytes_per_sec: u64,
    pub(crate) interval: Duration,
    pub(crate) is_app_limited: bool,
    pub(crate) delivered: u64,
    pub(crate) prior_delivered: u64,
    pub(crate) losses: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AckSample {
    pub(crate) now: Instant,
    pub(crate) acked: u32,
    pub(crate) in_flight: u32,
    pub(crate) rtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
    pub(crate) mss: u32,
    pub(crate) rate: Option<RateSample>,
    pub(crate) is_cwnd_limited: bool,
    pub(crate) in_recovery: bool,
}

#[derive(Debug)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    count: u32,
    prior: (u32, u32),
}

impl Congestion {
    pub(crate) fn new(_: Algorithm, cwnd: u32, _: Instant) -> Self {
        Self {
            cwnd,
            ssthresh: u32::MAX,
            count: 0,
            prior: (0, 0),
        }
    }
}

impl CongestionControl for Congestion {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }
    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }
    fn on_ack(&mut self, sample: &AckSample) {
        if !sample.is_cwnd_limited {
            return;
        }
        let mut acked = sample.acked;
        if self.cwnd < self.ssthresh {
            let grow = acked.min(self.ssthresh - self.cwnd);
            self.cwnd += grow;
            acked -= grow;
        }
        self.count += acked;
        while self.count >= self.cwnd {
            self.count -= self.cwnd;
            self.cwnd += 1;
        }
    }
    fn ssthresh_after_loss(&mut self, _now: Instant) -> u32 {
        self.prior = (self.cwnd, self.ssthresh);
        self.ssthresh = (self.cwnd / 2).max(2);
        self.ssthresh
    }
    fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.max(1);
    }
    fn on_rto(&mut self, _now: Instant) {
        self.cwnd = 1;
    }
    fn undo(&mut self) {
        self.cwnd = self.cwnd.max(self.prior.0);
        self.ssthresh = self.ssthresh.max(self.prior.1);
    }
    fn on_idle_restart(&mut self, rto: Duration, idle: Duration) {
        let mut left = idle;
        while left > rto && self.cwnd > 10 {
            self.cwnd = (self.cwnd / 2).max(10);
            left -= rto;
        }
    }
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    fn wants_pacing(&self) -> bool {
        false
    }
}
