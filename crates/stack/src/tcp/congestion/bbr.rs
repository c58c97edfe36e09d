//! BBR, version 1 (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016;
//! draft-cardwell-iccrg-bbr-congestion-control): sends as fast as the path has been seen to deliver,
//! and keeps no more under way than a round trip of that, or two.
//!
//! Both of a path's properties can't be seen at once: bandwidth shows when a queue begins, the round
//! trip when there is none. So BBR takes turns: it looks for the bandwidth by doubling
//! ([`Mode::Startup`]), empties the queue that this has built ([`Mode::Drain`]), then goes a quarter
//! faster for a round trip in eight ([`Mode::ProbeBw`]), and if the round trip was not seen for ten
//! seconds, sends next to nothing for a moment ([`Mode::ProbeRtt`]).

use core::time::Duration;

use self::filter::{Aggregation, MaxBandwidth};
use super::{AckSample, CongestionControl, RateSample, Window};
use crate::tcp::pacing;
use crate::time::Instant;

mod filter;
#[cfg(test)]
mod tests;

/// 2 / ln 2: the least gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;

/// Acknowledgements come delayed and merged: a window of one round trip would stall on them.
const CWND_GAIN: f64 = 2.0;

/// A queue that the first phase may build, the second takes away; then six of peace.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// The pace stays a hundredth below the bandwidth, so that queues end at all.
const MARGIN: f64 = 0.99;

/// The path is full if its bandwidth did not grow by a quarter in three rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u8 = 3;

/// Packets that keep a path going, delayed acknowledgements included.
const MIN_CWND: u32 = 4;

/// Packets taken for a round trip's before one was measured.
const INITIAL_CWND: u32 = 10;

/// For how long a round trip is believed.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// How long next to nothing is under way, to see it again.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// How much of lumpy acknowledgements the window makes up for at most.
const MAX_LUMP_TIME: f64 = 0.1;

/// BBR's state.
#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    window: Window,
    mode: Mode,
    bandwidth: MaxBandwidth,
    aggregation: Aggregation,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    /// Bytes a second.
    pacing_rate: Option<u64>,
    /// Packets delivered over the connection's life, modulo 2^32.
    delivered: u32,
    /// A round ends with the first packet that left after so many were delivered.
    round_end: u32,
    round: u64,
    is_round_start: bool,
    full: FullPipe,
    /// Samples of packets that left before so many were delivered show how little was sent.
    slow_until: Option<u32>,
    is_idle_restart: bool,
    recovery: Recovery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw {
        phase: usize,
        since: Instant,
    },
    ProbeRtt {
        /// `None`: there is still more under way.
        until: Option<Instant>,
        is_round_done: bool,
    },
}

/// Whether the bandwidth still grows.
#[derive(Debug, Clone, Default)]
struct FullPipe {
    bandwidth: u64,
    rounds: u8,
    is_reached: bool,
}

/// What loss does to the window.
#[derive(Debug, Clone, Default)]
struct Recovery {
    is_on: bool,
    /// In its first round, as much is sent as comes.
    conserves: bool,
    /// The window before loss, or before [`Mode::ProbeRtt`].
    prior_cwnd: u32,
}

/// What an acknowledgement means for the model of the path.
struct Ack<'a> {
    sample: &'a AckSample,
    /// Packets under way, now.
    in_flight: u32,
    losses: u32,
}

impl Bbr {
    pub(super) fn new(window: Window, now: Instant) -> Self {
        Self {
            window,
            mode: Mode::Startup,
            bandwidth: MaxBandwidth::default(),
            aggregation: Aggregation::default(),
            min_rtt: None,
            min_rtt_at: now,
            pacing_rate: None,
            delivered: 0,
            round_end: 0,
            round: 0,
            is_round_start: false,
            full: FullPipe::default(),
            slow_until: None,
            is_idle_restart: false,
            recovery: Recovery::default(),
        }
    }

    fn update_bandwidth(&mut self, ack: &Ack<'_>) {
        self.is_round_start = false;
        let Some(rate) = ack.sample.rate else {
            return;
        };
        let prior = rate.prior_delivered as u32;
        self.delivered = prior.wrapping_add(rate.delivered as u32);
        if !is_before(prior, self.round_end) {
            self.round_end = self.delivered;
            self.round += 1;
            self.is_round_start = true;
            self.recovery.conserves = false;
        }
        if self.slow_until.is_some_and(|until| is_before(until, prior)) {
            self.slow_until = None;
        }
        if !self.is_limited(&rate) || rate.bytes_per_sec >= self.bandwidth.get() {
            self.bandwidth.update(self.round, rate.bytes_per_sec);
        }
    }

    /// Whether the path could have done more.
    fn is_limited(&self, rate: &RateSample) -> bool {
        rate.is_app_limited || self.slow_until.is_some()
    }

    fn update_aggregation(&mut self, sample: &AckSample) {
        let packets_per_sec = self.bandwidth.get() as f64 / f64::from(sample.mss.max(1));
        self.aggregation.update(
            sample.now,
            self.is_round_start,
            (sample.acked, self.window.cwnd),
            packets_per_sec,
        );
    }

    fn update_cycle(&mut self, ack: &Ack<'_>) {
        let Mode::ProbeBw { phase, since } = self.mode else {
            return;
        };
        let now = ack.sample.now;
        let before = ack.sample.in_flight;
        let mss = ack.sample.mss;
        let is_over = self.min_rtt.is_none_or(|min_rtt| now - since > min_rtt);
        let gain = CYCLE[phase];
        let is_next = if gain > 1.0 {
            // Until there is as much under way as the gain calls for, nothing was tried; unless
            // the path has no room for it.
            is_over && (ack.losses > 0 || before >= self.in_flight_for(gain, mss))
        } else if gain < 1.0 {
            is_over || before <= self.in_flight_for(1.0, mss)
        } else {
            is_over
        };
        if is_next {
            self.mode = Mode::ProbeBw {
                phase: (phase + 1) % CYCLE.len(),
                since: now,
            };
        }
    }

    fn check_full_pipe(&mut self, sample: &AckSample) {
        let is_limited = sample.rate.is_none_or(|rate| self.is_limited(&rate));
        if self.full.is_reached || !self.is_round_start || is_limited {
            return;
        }
        let bandwidth = self.bandwidth.get();
        if bandwidth as f64 >= self.full.bandwidth as f64 * FULL_GROWTH {
            self.full.bandwidth = bandwidth;
            self.full.rounds = 0;
            return;
        }
        self.full.rounds += 1;
        self.full.is_reached = self.full.rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, ack: &Ack<'_>) {
        let product = self.in_flight_for(1.0, ack.sample.mss);
        if self.mode == Mode::Startup && self.full.is_reached {
            self.mode = Mode::Drain;
            self.window.ssthresh = product;
        }
        if self.mode == Mode::Drain && ack.in_flight <= product {
            self.mode = any_phase(ack.sample.now);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack<'_>) {
        let now = ack.sample.now;
        let is_expired = now > self.min_rtt_at + MIN_RTT_WINDOW;
        let is_better = |rtt: &Duration| self.min_rtt.is_none_or(|least| *rtt <= least);
        if let Some(rtt) = ack.sample.rtt.filter(|rtt| is_expired || is_better(rtt)) {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = now;
        }
        let is_probing = matches!(self.mode, Mode::ProbeRtt { .. });
        // After an idle time the queue is as empty as it can be.
        if is_expired && !self.is_idle_restart && !is_probing {
            self.save_cwnd();
            self.mode = Mode::ProbeRtt {
                until: None,
                is_round_done: false,
            };
        }
        self.probe_rtt(ack);
        if ack.sample.acked > 0 {
            self.is_idle_restart = false;
        }
    }

    /// Stays for [`PROBE_RTT_TIME`] and a round after little enough is under way.
    fn probe_rtt(&mut self, ack: &Ack<'_>) {
        let now = ack.sample.now;
        let Mode::ProbeRtt {
            until,
            is_round_done,
        } = &mut self.mode
        else {
            return;
        };
        self.slow_until = Some(self.delivered.wrapping_add(ack.in_flight));
        match *until {
            None if ack.in_flight <= MIN_CWND => {
                *until = Some(now + PROBE_RTT_TIME);
                *is_round_done = false;
                self.round_end = self.delivered;
            }
            None => {}
            Some(end) => {
                *is_round_done |= self.is_round_start;
                if *is_round_done && now > end {
                    self.min_rtt_at = now;
                    self.window
                        .set(self.window.cwnd.max(self.recovery.prior_cwnd));
                    self.mode = match self.full.is_reached {
                        true => any_phase(now),
                        false => Mode::Startup,
                    };
                }
            }
        }
    }

    fn set_pacing_rate(&mut self, sample: &AckSample) {
        if self.pacing_rate.is_none() {
            self.pacing_rate = sample.srtt.map(|srtt| {
                let bytes = f64::from(self.window.cwnd) * f64::from(sample.mss);
                (bytes / srtt.as_secs_f64().max(1e-6) * HIGH_GAIN * MARGIN) as u64
            });
        }
        let rate = (self.bandwidth.get() as f64 * self.pacing_gain() * MARGIN) as u64;
        // Before the pipe is full, few samples are fast: most of a flight waited to be sent.
        if self.full.is_reached || self.pacing_rate.is_some_and(|now| rate > now) {
            self.pacing_rate = Some(rate);
        }
    }

    fn set_window(&mut self, ack: &Ack<'_>) {
        let acked = ack.sample.acked;
        if acked > 0 && !self.recover(ack) {
            let target = self.target(ack.sample.mss);
            let cwnd = self.window.cwnd;
            if self.full.is_reached {
                self.window.set(cwnd.saturating_add(acked).min(target));
            } else if cwnd < target || self.delivered < INITIAL_CWND {
                self.window.grow(acked);
            }
            self.window.set(self.window.cwnd.max(MIN_CWND));
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window.set(self.window.cwnd.min(MIN_CWND));
        }
    }

    /// Sends in the first round of recovery as much as comes, and goes back to what was at its end.
    /// Returns whether this is the whole of it.
    fn recover(&mut self, ack: &Ack<'_>) -> bool {
        if ack.losses > 0 {
            self.window.set(self.window.cwnd.saturating_sub(ack.losses));
        }
        let conserving = ack.in_flight.saturating_add(ack.sample.acked);
        let was_on = core::mem::replace(&mut self.recovery.is_on, ack.sample.in_recovery);
        match (was_on, self.recovery.is_on) {
            (false, true) => {
                self.recovery.conserves = true;
                self.round_end = self.delivered;
                self.window.set(conserving);
            }
            (true, false) => {
                self.recovery.conserves = false;
                self.window
                    .set(self.window.cwnd.max(self.recovery.prior_cwnd));
            }
            _ => {}
        }
        if self.recovery.conserves {
            self.window.set(self.window.cwnd.max(conserving));
        }
        self.recovery.conserves
    }

    /// Packets that the window is to have.
    fn target(&self, mss: u32) -> u32 {
        let lump = match self.full.is_reached {
            true => {
                let most = self.bandwidth.get() as f64 * MAX_LUMP_TIME / f64::from(mss.max(1));
                self.aggregation.get().min(most as u32)
            }
            false => 0,
        };
        let product = self.product(self.cwnd_gain(), mss);
        self.for_bursts(product.saturating_add(lump), mss)
    }

    /// Packets under way at a gain.
    fn in_flight_for(&self, gain: f64, mss: u32) -> u32 {
        self.for_bursts(self.product(gain, mss), mss)
    }

    /// Bandwidth times round trip times gain, in packets.
    fn product(&self, gain: f64, mss: u32) -> u32 {
        let Some(min_rtt) = self.min_rtt else {
            return INITIAL_CWND;
        };
        let bytes = self.bandwidth.get() as f64 * min_rtt.as_secs_f64();
        (bytes * gain / f64::from(mss.max(1))).ceil() as u32
    }

    /// Segments leave, arrive and are acknowledged by bursts: makes room for one at each place, for
    /// pairs of packets, and for something more to be tried where that is the phase's aim.
    fn for_bursts(&self, packets: u32, mss: u32) -> u32 {
        let burst = pacing::burst(self.pacing_rate.unwrap_or(0), None, mss).min(127);
        let even = packets.saturating_add(3 * burst + 1) & !1;
        let is_trying = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        even.saturating_add(2 * u32::from(is_trying))
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => CWND_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn save_cwnd(&mut self) {
        let is_small = self.recovery.is_on || matches!(self.mode, Mode::ProbeRtt { .. });
        let least = if is_small {
            self.recovery.prior_cwnd
        } else {
            0
        };
        self.recovery.prior_cwnd = self.window.cwnd.max(least);
    }
}

impl CongestionControl for Bbr {
    fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    fn on_ack(&mut self, sample: &AckSample) {
        let losses = sample.rate.map_or(0, |rate| rate.losses);
        let gone = sample.acked.saturating_add(losses);
        let ack = Ack {
            sample,
            in_flight: sample.in_flight.saturating_sub(gone),
            losses,
        };
        self.update_bandwidth(&ack);
        self.update_aggregation(sample);
        self.update_cycle(&ack);
        self.check_full_pipe(sample);
        self.check_drain(&ack);
        self.update_min_rtt(&ack);
        self.set_pacing_rate(sample);
        self.set_window(&ack);
    }

    /// Loss is not what BBR goes by: the threshold stays.
    fn ssthresh_after_loss(&mut self, _now: Instant) -> u32 {
        self.save_cwnd();
        self.window.ssthresh
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        self.window.set(cwnd);
    }

    fn on_rto(&mut self, _now: Instant) {
        // The path may have changed: whether it is full is to be seen anew.
        self.full.bandwidth = 0;
        self.recovery.is_on = false;
        self.recovery.conserves = false;
        self.window.set(1);
    }

    fn undo(&mut self) {
        self.full.bandwidth = 0;
        self.full.rounds = 0;
        self.window
            .set(self.window.cwnd.max(self.recovery.prior_cwnd));
    }

    /// The window stays, as the pace does not let it out at once; which is the bandwidth, until
    /// there is an acknowledgement.
    fn on_idle_restart(&mut self, _rto: Duration, _idle: Duration) {
        self.is_idle_restart = true;
        if matches!(self.mode, Mode::ProbeBw { .. }) {
            self.pacing_rate = Some((self.bandwidth.get() as f64 * MARGIN) as u64);
        }
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.pacing_rate
    }

    fn wants_pacing(&self) -> bool {
        true
    }
}

/// Any phase but the one that takes away the queue of the one before it: flows that share a path
/// had better not probe at the same time.
fn any_phase(now: Instant) -> Mode {
    let scattered = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let phase = match scattered % 7 {
        0 => 0,
        other => other as usize + 1,
    };
    Mode::ProbeBw { phase, since: now }
}

/// Whether a count of packets comes before another, modulo 2^32.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
