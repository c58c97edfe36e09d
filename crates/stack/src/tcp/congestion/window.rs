//! The window that algorithms have in common, and what they all do with it.

use core::time::Duration;

/// The threshold before there was any loss, as Linux has it.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Packets to which an idle time takes the window down (RFC 5681 section 4.1, RFC 6928).
const RESTART: u32 = 10;

/// A congestion window and its threshold, in packets.
#[derive(Debug, Clone)]
pub(super) struct Window {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    /// Window and threshold before the last reduction, as long as it may be taken back.
    before: Option<(u32, u32)>,
}

impl Window {
    /// Of a connection that knows nothing of the path yet.
    pub(super) fn new(cwnd: u32) -> Self {
        Self::with_threshold(cwnd, NO_THRESHOLD)
    }

    pub(super) fn with_threshold(cwnd: u32, ssthresh: u32) -> Self {
        Self {
            cwnd: cwnd.max(1),
            ssthresh,
            before: None,
        }
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Each packet delivered lets one more go, up to the threshold (RFC 5681 section 3.1; RFC 3465
    /// has packets count, not acknowledgements). Returns those that were not needed for that.
    pub(super) fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = acked.min(self.ssthresh.saturating_sub(self.cwnd));
        self.cwnd += grown;
        acked - grown
    }

    pub(super) fn set(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, NO_THRESHOLD);
    }

    pub(super) fn grow(&mut self, by: u32) {
        self.set(self.cwnd.saturating_add(by));
    }

    /// Sets the window to come.
    pub(super) fn reduce_to(&mut self, ssthresh: u32) -> u32 {
        self.before = Some((self.cwnd, self.known_good()));
        self.ssthresh = ssthresh.max(2);
        self.ssthresh
    }

    /// Takes the last reduction back (RFC 4015 section 3 has a more careful way; this is Linux's).
    /// Returns whether there was one to be taken back.
    pub(super) fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.before.take() else {
            return false;
        };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        true
    }

    /// Halves the window for each timeout's time without use, down to the window of a beginning;
    /// the threshold keeps what was (RFC 2861 section 3.2).
    pub(super) fn restart(&mut self, rto: Duration, idle: Duration) {
        self.ssthresh = self.known_good();
        let times = idle.as_nanos() / rto.as_nanos().max(1);
        let halved = self.cwnd >> times.min(31);
        self.cwnd = halved.max(RESTART.min(self.cwnd));
    }

    /// A threshold that says what the path is known to carry: most of a window grown past it.
    fn known_good(&self) -> u32 {
        let most = (self.cwnd >> 1) + (self.cwnd >> 2);
        self.ssthresh.max(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_millis(200);

    #[test]
    fn slow_start_ends_at_the_threshold() {
        let mut window = Window::with_threshold(10, 16);
        assert_eq!(window.slow_start(4), 0);
        assert_eq!(window.cwnd, 14);
        assert!(window.is_slow_start());
        assert_eq!(window.slow_start(5), 3);
        assert_eq!(window.cwnd, 16);
        assert!(!window.is_slow_start());
    }

    #[test]
    fn idle_time_halves_the_window() {
        for (cwnd, idle, left) in [
            (80, 1, 40),
            (80, 2, 20),
            (80, 3, 10),
            (80, 9, 10),
            (80, 4_000_000, 10),
            (6, 5, 6),
        ] {
            let mut window = Window::new(cwnd);
            window.restart(RTO, RTO * idle + Duration::from_millis(1));
            assert_eq!(window.cwnd, left, "{cwnd} {idle}");
        }
    }

    #[test]
    fn idle_time_keeps_what_is_known_as_the_threshold() {
        let mut window = Window::with_threshold(100, 40);
        window.restart(RTO, RTO * 4);
        assert_eq!((window.cwnd, window.ssthresh), (10, 75));
        let mut window = Window::with_threshold(40, 90);
        window.restart(RTO, RTO * 4);
        assert_eq!((window.cwnd, window.ssthresh), (10, 90));
    }

    #[test]
    fn a_reduction_is_taken_back_once() {
        let mut window = Window::with_threshold(100, 40);
        assert_eq!(window.reduce_to(50), 50);
        window.set(50);
        assert!(window.undo());
        assert_eq!((window.cwnd, window.ssthresh), (100, 75));
        window.set(20);
        assert!(!window.undo());
        assert_eq!(window.cwnd, 20);
    }

    #[test]
    fn no_window_is_without_a_packet_nor_without_an_end() {
        let mut window = Window::new(0);
        assert_eq!(window.cwnd, 1);
        window.set(0);
        assert_eq!(window.cwnd, 1);
        assert_eq!(window.reduce_to(0), 2);
        window.set(u32::MAX);
        window.grow(u32::MAX);
        assert_eq!(window.cwnd, NO_THRESHOLD);
    }
}
