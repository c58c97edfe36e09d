//! What happens when nothing happens: retransmission (RFC 6298), probes, giving up.
//!
//! One timer runs at a time: the earliest of what there is to do next. While a piece may still
//! arrive late it is *Reordering*, else *LossProbe* while a probe may be of use, else
//! *Retransmission*. *Persist* runs while nothing is under way and something waits: for the peer to
//! open its window, or for a segment to be full.

use core::time::Duration;

use super::Sender;
use super::ack::News;
use super::recovery::CaState;
use crate::counters::Counter;
use crate::tcp::events::Events;
use crate::time::Instant;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// Nothing was acknowledged for too long.
    Retransmission,
    /// The tail of a flight wants a probe.
    LossProbe,
    /// What was overtaken is lost if it does not come by then.
    Reordering,
    /// The peer is asked for its window; a segment that is not full has waited enough.
    Persist,
}

/// The peer has been silent for too long: `ETIMEDOUT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GaveUp;

#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    armed: Option<(TimerKind, Instant)>,
    /// A probe that the next poll sends.
    pub(super) due: Option<TimerKind>,
    /// How often the timeout was doubled.
    pub(super) backoff: u8,
    /// Timeouts since the last progress.
    pub(super) retransmits: u8,
    /// Probes of the window since the last answer.
    pub(super) probes_out: u8,
    /// When the first of these timeouts was, or of these probes.
    stalled_since: Option<Instant>,
    /// `TCP_USER_TIMEOUT` in milliseconds; zero is none.
    user_timeout: u32,
    /// Timeouts before giving up, where the connection has no socket any more.
    orphan_retries: Option<u8>,
}

impl Timers {
    pub(super) fn set_retransmission(&mut self, at: Instant) {
        self.armed = Some((TimerKind::Retransmission, at));
    }

    pub(super) fn is_armed_for(&self, kind: TimerKind) -> bool {
        self.armed.is_some_and(|(armed, _)| armed == kind)
    }

    /// The peer acknowledges more.
    pub(super) fn progressed(&mut self) {
        self.retransmits = 0;
        self.stalled_since = None;
    }

    fn user_timeout(&self) -> Duration {
        Duration::from_millis(self.user_timeout.into())
    }

    /// The peer is alive.
    pub(super) fn answered(&mut self) {
        self.probes_out = 0;
    }

    /// A probe of the window leaves.
    pub(super) fn probe_sent(&mut self) {
        self.probes_out = self.probes_out.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
    }
}

impl Sender {
    /// When [`Self::on_timeout`] wants to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.armed.map(|(_, at)| at);
        let pacing = self.is_held_by_pacing.then(|| self.pacer.earliest());
        match (timer, pacing) {
            (Some(timer), Some(pacing)) => Some(timer.min(pacing)),
            (timer, pacing) => timer.or(pacing),
        }
    }

    /// The timer that runs, and its end; pacing aside.
    pub(crate) fn timer(&self) -> Option<(TimerKind, Instant)> {
        self.timers.armed
    }

    /// `TCP_USER_TIMEOUT`: how long sent bytes may wait for their acknowledgement; zero leaves it to
    /// `tcp_retries2`.
    pub(crate) fn set_user_timeout(&mut self, timeout: Duration) {
        self.timers.user_timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    }

    /// The application has closed the socket: gives up after so many timeouts
    /// (`tcp_orphan_retries`).
    pub(crate) fn set_orphaned(&mut self, retries: u8) {
        self.timers.orphan_retries = Some(retries);
    }

    /// Does what is due. Poll after it. If it says so, the connection is over.
    pub(crate) fn on_timeout(&mut self, now: Instant, events: &mut Events) -> Option<GaveUp> {
        if self.pacer.earliest() <= now {
            self.is_held_by_pacing = false;
        }
        let (kind, at) = self.timers.armed?;
        if at > now {
            return None;
        }
        self.timers.armed = None;
        match kind {
            TimerKind::Retransmission => return self.time_out(now, events),
            TimerKind::Persist => return self.persist(now),
            TimerKind::LossProbe => self.timers.due = Some(kind),
            TimerKind::Reordering => self.stop_waiting(now, events),
        }
        None
    }

    /// The retransmission timer has ended (RFC 6298 section 5.4 to 5.7).
    fn time_out(&mut self, now: Instant, events: &mut Events) -> Option<GaveUp> {
        if self.scoreboard.packets_out() == 0 {
            return None;
        }
        if self.has_waited_too_long(now) {
            return Some(GaveUp);
        }
        events.count(Counter::TcpExtTCPTimeouts);
        self.doubt_path(now, events);
        self.enter_loss(now, events);
        self.timers.stalled_since.get_or_insert(now);
        self.timers.retransmits = self.timers.retransmits.saturating_add(1);
        let is_thin = self.knobs.thin_linear_timeouts
            && self.scoreboard.packets_out() < 4
            && self.timers.retransmits <= 6;
        self.timers.backoff = match is_thin {
            true => 0,
            false => self.timers.backoff.saturating_add(1),
        };
        self.timers
            .set_retransmission(now + self.rto_within_user_timeout(now));
        None
    }

    /// Whether the connection is to be given up (RFC 9293 section 3.8.3, RFC 5482).
    fn has_waited_too_long(&self, now: Instant) -> bool {
        let Some(since) = self.timers.stalled_since else {
            return false;
        };
        // Who has taken its window back, and says so again and again, is alive (RFC 9293 section
        // 3.8.6.1).
        let (_, rto_max) = self.rtt.rto_bounds();
        if self.window == 0 && now - self.totals.last_ack < 2 * rto_max {
            return false;
        }
        let waited = now - since;
        let patience = match self.timers.orphan_retries {
            Some(retries) => self.patience(retries),
            None if self.timers.user_timeout > 0 => self.timers.user_timeout(),
            None => self.patience(self.knobs.retries2),
        };
        waited >= patience
    }

    /// How long so many retransmissions take whose first timeout is the shortest there is: `R2` of
    /// RFC 1122 section 4.2.3.5 as a time, so that a slow path gives up no later than a fast one.
    fn patience(&self, retries: u8) -> Duration {
        let (min, max) = self.rtt.rto_bounds();
        let mut timeout = min;
        let mut total = Duration::ZERO;
        for _ in 0..=retries {
            total += timeout;
            timeout = (2 * timeout).min(max);
        }
        total
    }

    /// The timeout, or what is left of the user's.
    pub(super) fn rto_within_user_timeout(&self, now: Instant) -> Duration {
        let rto = self.rtt.rto(self.timers.backoff);
        let timeout = self.timers.user_timeout();
        match self.timers.stalled_since {
            Some(since) if !timeout.is_zero() => {
                let left = timeout.saturating_sub(now - since);
                rto.min(left.max(Duration::from_millis(1)))
            }
            _ => rto,
        }
    }

    /// Nothing is under way, and something waits.
    fn persist(&mut self, now: Instant) -> Option<GaveUp> {
        if self.scoreboard.packets_out() > 0 {
            return None;
        }
        if self.unsent_bytes() == 0 && !self.is_fin_waiting() {
            self.timers.stalled_since = None;
            return None;
        }
        let since = *self.timers.stalled_since.get_or_insert(now);
        let timeout = self.timers.user_timeout();
        let is_over = !timeout.is_zero() && now - since >= timeout;
        let retries = self.timers.orphan_retries.unwrap_or(self.knobs.retries2);
        if is_over || self.timers.probes_out >= retries {
            return Some(GaveUp);
        }
        self.timers.due = Some(TimerKind::Persist);
        None
    }

    /// What was overtaken has not come.
    fn stop_waiting(&mut self, now: Instant, events: &mut Events) {
        let lost = self.rate.lost;
        self.detect_losses(now, events);
        if self.rate.lost != lost && self.recovery.state < CaState::Recovery {
            self.enter_recovery(now, false, events);
        }
        match self.rack.deadline {
            Some(deadline) => self.timers.armed = Some((TimerKind::Reordering, deadline)),
            None => self.arm_retransmission(now),
        }
    }

    /// Sets the timer that an acknowledgement asks for.
    pub(super) fn rearm(&mut self, now: Instant, news: &News) {
        if self.scoreboard.packets_out() == 0 {
            self.disarm_for_flight();
            return;
        }
        if let Some(deadline) = self.rack.deadline {
            self.timers.armed = Some((TimerKind::Reordering, deadline));
            return;
        }
        if news.may_be_reneging {
            return;
        }
        let is_progress = news.advanced || news.delivery.packets > 0 || news.dsack;
        if !is_progress && !self.timers.is_armed_for(TimerKind::Reordering) {
            return;
        }
        if let Some(probe) = self.probe_time(now) {
            self.timers.armed = Some((TimerKind::LossProbe, probe));
        } else if news.advanced {
            self.timers
                .set_retransmission(now + self.rto_within_user_timeout(now));
        } else if !self.timers.is_armed_for(TimerKind::Retransmission) {
            self.arm_retransmission(now);
        }
    }

    /// Nothing is under way any more.
    fn disarm_for_flight(&mut self) {
        if !self.timers.is_armed_for(TimerKind::Persist) {
            self.timers.armed = None;
            return;
        }
        // Who keeps telling of a window too small to be used must not put the probe off.
        let wanted = self.unsent_bytes().min(self.segment_size()).max(1);
        if self.window_end().since(self.next) >= wanted {
            self.timers.armed = None;
            self.timers.backoff = 0;
            self.timers.stalled_since = None;
        }
    }

    /// The timeout of the first piece that is not acknowledged, of which some has passed.
    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        let Some(head) = self.scoreboard.head() else {
            return;
        };
        let at = head.sent_at + self.rto_within_user_timeout(now);
        self.timers
            .set_retransmission(at.max(now + Duration::from_millis(1)));
    }

    /// New bytes leave.
    pub(super) fn arm_for_new(&mut self, now: Instant, is_first: bool) {
        if self.timers.is_armed_for(TimerKind::Reordering) {
            return;
        }
        if let Some(probe) = self.probe_time(now) {
            self.timers.armed = Some((TimerKind::LossProbe, probe));
        } else if is_first || !self.timers.is_armed_for(TimerKind::Retransmission) {
            self.arm_retransmission(now);
        }
    }

    /// Something waits and nothing is under way.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        if self.timers.armed.is_none() {
            let wait = self.rtt.rto(self.timers.backoff);
            self.timers.armed = Some((TimerKind::Persist, now + wait));
        }
    }
}
