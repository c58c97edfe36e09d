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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::pipe::Pipe;
    use crate::tcp::congestion::{Algorithm, Congestion};

    const RTT: Duration = Duration::from_millis(100);

    fn sample(acked: u32) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            acked,
            in_flight: acked,
            rtt: Some(RTT),
            min_rtt: Some(RTT),
            srtt: Some(RTT),
            mss: 1448,
            rate: None,
            is_cwnd_limited: true,
            in_recovery: false,
        }
    }

    fn avoiding(cwnd: u32) -> Reno {
        Reno::new(Window::with_threshold(cwnd, cwnd))
    }

    #[test]
    fn slow_start_doubles_then_a_packet_each_round() {
        let mut reno = Reno::new(Window::with_threshold(10, 40));
        for (acked, cwnd) in [
            (10, 20),
            (20, 40),
            (39, 40),
            (1, 41),
            (41, 42),
            (21, 42),
            (21, 43),
        ] {
            reno.on_ack(&sample(acked));
            assert_eq!(reno.cwnd(), cwnd);
        }
    }

    #[test]
    fn what_slow_start_leaves_counts() {
        let mut reno = Reno::new(Window::with_threshold(10, 16));
        reno.on_ack(&sample(22));
        assert_eq!(reno.cwnd(), 17);
    }

    #[test]
    fn a_stretch_of_windows_counts_for_as_many() {
        let mut reno = avoiding(10);
        reno.on_ack(&sample(35));
        assert_eq!((reno.cwnd(), reno.credit), (13, 5));
    }

    #[test]
    fn does_not_grow_unless_the_window_is_used() {
        for ssthresh in [10, 100] {
            let mut reno = Reno::new(Window::with_threshold(10, ssthresh));
            reno.on_ack(&AckSample {
                is_cwnd_limited: false,
                ..sample(30)
            });
            assert_eq!(reno.cwnd(), 10);
        }
    }

    #[test]
    fn loss_halves_and_can_be_taken_back() {
        let mut reno = avoiding(101);
        assert_eq!(reno.ssthresh_after_loss(Instant::ZERO), 50);
        assert_eq!(reno.cwnd(), 101);
        reno.on_rto(Instant::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1, 50));
        reno.undo();
        assert_eq!((reno.cwnd(), reno.ssthresh()), (101, 101));
        for cwnd in [1, 2, 3, 4, 5] {
            assert_eq!(avoiding(cwnd).ssthresh_after_loss(Instant::ZERO), 2);
        }
    }

    #[test]
    fn keeps_a_path_busy_that_has_its_product_as_queue() {
        // 16 Mbit/s and 60 ms: 80 packets.
        let pipe = Pipe {
            rate: 2_000_000,
            delay: Duration::from_millis(60),
            queue: 80,
            lose_one_in: None,
        };
        let mut flow = pipe.flow(Congestion::new(Algorithm::Reno, 10, Instant::ZERO));
        flow.run(Duration::from_secs(5));
        flow.measure(Duration::from_secs(30));
        assert!(flow.throughput() > 1_950_000, "{}", flow.throughput());
        assert!(flow.lost > 0);
    }
}
