//! Congestion control: how many packets may be under way (RFC 5681).
//!
//! What is lost and when, the sender finds out; here is only what follows from it for the window.
//! As on Linux, windows count packets of one full segment.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use self::bbr::Bbr;
use self::cubic::Cubic;
use self::reno::Reno;
use self::window::Window;
use crate::time::Instant;

mod bbr;
mod cubic;
mod hystart;
#[cfg(test)]
mod pipe;
mod reno;
mod window;

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
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// The name, as `tcp_congestion_control` and ss(8) have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(word: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::ALL.into_iter().find(|it| it.name() == word);
        found.ok_or_else(|| UnknownAlgorithm(word.to_owned()))
    }
}

/// No congestion control has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no congestion control: reno, cubic and bbr are")]
pub struct UnknownAlgorithm(String);

/// What every congestion control can be told and asked.
///
/// The sender sets the window itself while it reduces it packet by packet (RFC 6937) and after a
/// timeout; not if the algorithm [paces](Self::wants_pacing), which then goes about recovery in its
/// own way.
pub(crate) trait CongestionControl {
    /// Packets that may be under way.
    fn cwnd(&self) -> u32;

    /// Packets up to which the window grows by slow start.
    fn ssthresh(&self) -> u32;

    /// An acknowledgement has delivered something.
    fn on_ack(&mut self, sample: &AckSample);

    /// An episode of congestion begins: recovery, a mark (RFC 3168) or a timeout. Returns the
    /// window to come, which is now the threshold, and remembers what was, for [`Self::undo`]. The
    /// window itself stays.
    fn ssthresh_after_loss(&mut self, now: Instant) -> u32;

    /// The sender's own window, within an episode of congestion.
    fn set_cwnd(&mut self, cwnd: u32);

    /// A retransmission timeout: begins from one packet again.
    fn on_rto(&mut self, now: Instant);

    /// There was no loss: all is as before the last [`Self::ssthresh_after_loss`].
    fn undo(&mut self);

    /// Sends again after `idle`, which was more than `rto` (RFC 2861, RFC 5681 section 4.1).
    fn on_idle_restart(&mut self, rto: Duration, idle: Duration);

    /// Bytes a second, if the algorithm sets the pace itself.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Whether the algorithm steers by its pace rather than by loss.
    fn wants_pacing(&self) -> bool {
        false
    }
}

/// What an acknowledgement has brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckSample {
    pub(crate) now: Instant,
    /// Packets that were not known to have come before.
    pub(crate) acked: u32,
    /// Packets that were under way before it.
    pub(crate) in_flight: u32,
    /// A round trip's time, if one could be measured.
    pub(crate) rtt: Option<Duration>,
    /// The least of late.
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    pub(crate) rate: Option<RateSample>,
    /// The window is what holds the sender back: only then may it grow.
    pub(crate) is_cwnd_limited: bool,
    pub(crate) in_recovery: bool,
}

/// How fast the path delivered what an acknowledgement tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateSample {
    pub(crate) bytes_per_sec: u64,
    /// The time that the sample spans.
    pub(crate) interval: Duration,
    /// The application, not the path, set the speed.
    pub(crate) is_app_limited: bool,
    /// Packets delivered within that time.
    pub(crate) delivered: u64,
    /// Packets that had been delivered when the newest of these left, modulo 2^32.
    pub(crate) prior_delivered: u64,
    /// Packets that this acknowledgement shows to be lost.
    pub(crate) losses: u32,
}

/// A connection's congestion control.
#[derive(Debug, Clone)]
pub(crate) enum Congestion {
    Reno(Reno),
    Cubic(Cubic),
    /// Boxed, as it is several times as large as the others.
    Bbr(Box<Bbr>),
}

impl Congestion {
    /// One that begins with `cwnd` packets.
    pub(crate) fn new(algorithm: Algorithm, cwnd: u32, now: Instant) -> Self {
        Self::with_window(algorithm, Window::new(cwnd), now)
    }

    fn with_window(algorithm: Algorithm, window: Window, now: Instant) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno(Reno::new(window)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(window)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(window, now))),
        }
    }

    /// Another algorithm takes over with the window that there is.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm, now: Instant) {
        let window = Window::with_threshold(self.cwnd(), self.ssthresh());
        *self = Self::with_window(algorithm, window, now);
    }
}

macro_rules! of_each {
    ($self:ident, $it:ident => $what:expr) => {
        match $self {
            Congestion::Reno($it) => $what,
            Congestion::Cubic($it) => $what,
            Congestion::Bbr($it) => $what,
        }
    };
}

impl CongestionControl for Congestion {
    fn cwnd(&self) -> u32 {
        of_each!(self, it => it.cwnd())
    }

    fn ssthresh(&self) -> u32 {
        of_each!(self, it => it.ssthresh())
    }

    fn on_ack(&mut self, sample: &AckSample) {
        of_each!(self, it => it.on_ack(sample));
    }

    fn ssthresh_after_loss(&mut self, now: Instant) -> u32 {
        of_each!(self, it => it.ssthresh_after_loss(now))
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        of_each!(self, it => it.set_cwnd(cwnd));
    }

    fn on_rto(&mut self, now: Instant) {
        of_each!(self, it => it.on_rto(now));
    }

    fn undo(&mut self) {
        of_each!(self, it => it.undo());
    }

    fn on_idle_restart(&mut self, rto: Duration, idle: Duration) {
        of_each!(self, it => it.on_idle_restart(rto, idle));
    }

    fn pacing_rate(&self) -> Option<u64> {
        of_each!(self, it => it.pacing_rate())
    }

    fn wants_pacing(&self) -> bool {
        of_each!(self, it => it.wants_pacing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(
                format!("{algorithm:>6}"),
                format!("{:>6}", algorithm.name())
            );
        }
        let unknown = "vegas".parse::<Algorithm>().map_err(|it| it.to_string());
        assert_eq!(
            unknown,
            Err("`vegas` is no congestion control: reno, cubic and bbr are".to_owned())
        );
        assert!("Cubic".parse::<Algorithm>().is_err());
    }

    #[test]
    fn an_idle_connection_holds_little_of_it() {
        assert!(size_of::<Congestion>() <= 208);
    }

    #[test]
    fn another_algorithm_keeps_the_window() {
        for from in Algorithm::ALL {
            for to in Algorithm::ALL {
                let mut congestion = Congestion::new(from, 40, Instant::ZERO);
                congestion.set_cwnd(33);
                congestion.set_algorithm(to, Instant::ZERO);
                assert_eq!(congestion.cwnd(), 33, "{from} {to}");
            }
        }
    }
}
