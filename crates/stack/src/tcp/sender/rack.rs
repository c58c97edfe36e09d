//! Loss, told by time (RFC 8985): RACK and the tail loss probe.
//!
//! A piece is lost if another one, sent later, has come, and more than a round trip and a while for
//! reordering has passed since it was sent. That goes for retransmissions as well. The while is a
//! quarter of the shortest round trip; more if the peer tells of retransmissions that were not
//! needed, and nothing while no piece was ever seen to overtake another and three have come behind
//! the missing one, which is the old rule of three duplicates.
//!
//! The probe is for the tail of a flight, behind which nothing can come: after two round trips
//! without a word, one more segment makes the peer tell what it has.

use core::time::Duration;

use super::Sender;
use super::recovery::CaState;
use super::scoreboard::{Sent, Turn};
use crate::counters::Counter;
use crate::tcp::events::Events;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};

/// Without a wrong retransmission for so many recoveries, the while shrinks again (RFC 8985
/// section 6.2, step 4).
const PERSISTENCE: u8 = 16;
/// Round trips are no shorter than this when a probe's time is set: a timer is not that exact.
const PROBE_MARGIN: Duration = Duration::from_millis(2);

/// `tcp_recovery`: the while never grows.
const STATIC_WINDOW: u8 = 2;
/// `tcp_recovery`: three duplicates don't make it vanish.
const NO_DUPTHRESH: u8 = 4;

/// What is known of the piece that was sent last of all that have come.
#[derive(Debug, Clone)]
pub(super) struct Rack {
    newest: Option<Turn>,
    /// Its round trip.
    rtt: Duration,
    /// The while, in quarters of the shortest round trip.
    steps: u8,
    persist: u8,
    /// Until this is acknowledged, no further step: once a round trip.
    step_round: Option<Seq>,
    /// Some piece has overtaken another.
    pub(super) reordering_seen: bool,
    /// When the next piece will be lost if nothing comes.
    pub(super) deadline: Option<Instant>,
    /// The probe under way: what was sent when it was, and whether it was a retransmission.
    probe: Option<(Seq, bool)>,
}

impl Rack {
    pub(super) fn new() -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            steps: 1,
            persist: 0,
            step_round: None,
            reordering_seen: false,
            deadline: None,
            probe: None,
        }
    }

    /// A piece has come (RFC 8985 section 6.2, step 2).
    pub(super) fn advance(&mut self, now: Instant, sent: &Sent, min_rtt: Option<Duration>) {
        let rtt = now - sent.sent_at;
        // So soon after a retransmission, it was the original that came.
        if sent.ever_retrans && min_rtt.is_some_and(|least| rtt < least) {
            return;
        }
        let turn = sent.turn();
        if self.newest.is_none_or(|newest| turn.is_after(newest)) {
            self.newest = Some(turn);
            self.rtt = rtt;
        }
    }

    /// The peer got something twice: reordering was taken for loss.
    pub(super) fn note_dsack(&mut self, una: Seq, next: Seq) {
        if self.step_round.is_some_and(|end| una.is_before(end)) {
            return;
        }
        self.step_round = Some(next);
        self.steps = self.steps.saturating_add(1);
        self.persist = PERSISTENCE;
    }

    /// A recovery is over.
    pub(super) fn end_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// Whether a block that came twice is the probe.
    pub(super) fn is_probe(&self, block: SeqRange) -> bool {
        self.probe
            .is_some_and(|(end, is_retransmission)| is_retransmission && block.end == end)
    }

    /// A probe leaves, with everything up to `next` under way.
    pub(super) fn set_probe(&mut self, next: Seq, is_retransmission: bool) {
        self.probe = Some((next, is_retransmission));
    }

    /// No answer to a probe is waited for.
    pub(super) fn forget_probe(&mut self) {
        self.probe = None;
    }

    pub(super) fn has_probe(&self) -> bool {
        self.probe.is_some()
    }
}

impl Sender {
    /// Finds out what is lost by now, and when more will be.
    pub(super) fn detect_losses(&mut self, now: Instant, events: &mut Events) {
        self.rack.deadline = None;
        let Some(newest) = self.rack.newest else {
            return;
        };
        let patience = self.rack.rtt + self.reordering_window();
        let mut index = 0;
        while let Some(sent) = self.scoreboard.get(index) {
            let next = self.scoreboard.behind(index);
            let is_open = !sent.sacked && (!sent.lost || sent.retrans);
            if is_open && newest.is_after(sent.turn()) {
                let deadline = sent.sent_at + patience;
                if deadline <= now {
                    self.lose(index, events);
                } else {
                    self.rack.deadline = self.rack.deadline.max(Some(deadline));
                }
            } else if is_open && !sent.ever_retrans {
                // What lies behind was sent later still.
                break;
            }
            index = next;
        }
    }

    /// How long a piece may be overtaken before it is lost.
    fn reordering_window(&self) -> Duration {
        if !self.rack.reordering_seen {
            let is_recovering = self.recovery.state >= CaState::Recovery;
            let has_duplicates =
                self.scoreboard.sacked_out() >= u32::from(self.recovery.reordering);
            if is_recovering || (has_duplicates && self.knobs.recovery & NO_DUPTHRESH == 0) {
                return Duration::ZERO;
            }
        }
        let srtt = self.rtt.srtt().unwrap_or_default();
        let steps = match self.knobs.recovery & STATIC_WINDOW {
            0 => self.rack.steps,
            _ => 1,
        };
        let min_rtt = self.min_rtt.get().unwrap_or(srtt);
        (min_rtt / 4 * u32::from(steps)).min(srtt)
    }

    /// Whether what left then is not late yet.
    pub(super) fn may_still_come(&self, now: Instant, sent_at: Instant) -> bool {
        sent_at + self.rack.rtt + self.reordering_window() > now
    }

    /// Takes a record for lost.
    pub(super) fn lose(&mut self, index: usize, events: &mut Events) {
        let Some(sent) = self.scoreboard.get(index).copied() else {
            return;
        };
        let is_again = self.scoreboard.mark_lost(index);
        if is_again {
            events.add(Counter::TcpExtTCPLostRetransmit, u64::from(sent.packets()));
        }
        if is_again || !sent.lost {
            self.rate.lost = self.rate.lost.wrapping_add(sent.packets());
        }
    }

    /// Whether a probe may be sent for the tail (RFC 8985 section 7.2), and when.
    pub(super) fn probe_time(&self, now: Instant) -> Option<Instant> {
        let is_asked = matches!(self.knobs.early_retrans, 3 | 4);
        let is_calm = matches!(self.recovery.state, CaState::Open | CaState::Cwr);
        let may_probe = is_asked
            && self.sack
            && is_calm
            && self.scoreboard.packets_out() > 0
            && self.scoreboard.sacked_out() == 0
            && !self.rack.has_probe();
        if !may_probe {
            return None;
        }
        let mut wait = match self.rtt.srtt() {
            // A single segment's acknowledgement may be delayed.
            Some(srtt) if self.scoreboard.packets_out() == 1 => 2 * srtt + self.rtt.rto_bounds().0,
            Some(srtt) => 2 * srtt + PROBE_MARGIN,
            None => crate::tcp::rtt::RTO_INITIAL,
        };
        let head = self.scoreboard.head()?.sent_at;
        let rto = head + self.rtt.rto(self.timers.backoff);
        if rto > now {
            wait = wait.min(rto - now);
        }
        Some(now + wait)
    }

    /// Learns from an acknowledgement what became of the probe (RFC 8985 section 7.4).
    pub(super) fn take_probe_answer(
        &mut self,
        now: Instant,
        ack: Seq,
        news: &super::ack::News,
        events: &mut Events,
    ) {
        let Some((end, is_retransmission)) = self.rack.probe else {
            return;
        };
        if ack.is_before(end) {
            return;
        }
        if !is_retransmission || news.dsack {
            // New bytes came, or the retransmission was not needed.
            self.rack.probe = None;
        } else if ack.is_after(end) {
            // The probe has filled a hole, so there was loss, which nothing else told of.
            self.rack.probe = None;
            events.count(Counter::TcpExtTCPLossProbeRecovery);
            self.enter_cwr(now);
            self.end_reduction();
            self.try_keep_open();
        } else if news.is_duplicate() && news.delivery.packets == 0 {
            // Both the original and the probe have come.
            self.rack.probe = None;
        }
    }
}
