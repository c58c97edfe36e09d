//! How a connection goes about loss: fast recovery (RFC 6675, 6582), proportional rate reduction
//! (RFC 6937), timeouts (RFC 5681, 5682).

use core::time::Duration;

use super::ack::News;
use super::{Sender, SenderKnobs};
use crate::counters::Counter;
use crate::tcp::congestion::CongestionControl as _;
use crate::tcp::events::Events;
use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp_options::SackBlocks;

/// How long a peer that seems to have dropped what it had may take to tell otherwise.
const RENEGING: Duration = Duration::from_millis(10);

/// How things stand, under the names of `ss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaState {
    /// All is well.
    Open,
    /// Something came out of order: it may be loss, or not.
    Disorder,
    /// The network told of congestion: the window is being reduced, nothing is lost.
    Cwr,
    /// Something is lost and being retransmitted, while the rest goes on.
    Recovery,
    /// There was a timeout: everything not known to have come counts as lost.
    Loss,
}

impl CaState {
    /// The name, as `ss` prints it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// An episode of loss, or none.
#[derive(Debug, Clone)]
pub(super) struct Recovery {
    pub(super) state: CaState,
    /// What had been sent when the episode began: it ends when that is acknowledged.
    pub(super) high_seq: Seq,
    /// What had been acknowledged when the window was reduced, if that may be taken back.
    pub(super) undo_marker: Option<Seq>,
    /// Retransmissions of which the peer has not said that they were not needed; -1 if there were
    /// none.
    pub(super) undo_retrans: i32,
    /// When the episode's first retransmission left.
    pub(super) retrans_stamp: Option<Instant>,
    /// It is still open whether the timeout was wrong (F-RTO).
    pub(super) is_timeout_doubted: bool,
    /// New bytes go ahead of retransmissions, to find that out.
    pub(super) holds_retransmissions: bool,
    /// Packets that may overtake one before it counts as lost.
    pub(super) reordering: u16,
    /// The blocks of the last acknowledgement, if it had any: what they cover is marked already.
    pub(super) known_sacks: Option<Box<SackBlocks>>,
    /// Packets that the peer says came twice, over the connection's life.
    pub(super) came_twice: u32,
    /// The congestion window as the reduction began.
    prior_cwnd: u32,
    /// Packets that have come since.
    delivered: u32,
    /// Packets sent since.
    pub(super) sent: u32,
}

impl Recovery {
    pub(super) fn new(first: Seq, knobs: &SenderKnobs) -> Self {
        Self {
            state: CaState::Open,
            high_seq: first,
            undo_marker: None,
            undo_retrans: -1,
            retrans_stamp: None,
            is_timeout_doubted: false,
            holds_retransmissions: false,
            reordering: knobs.reordering,
            known_sacks: None,
            came_twice: 0,
            prior_cwnd: 0,
            delivered: 0,
            sent: 0,
        }
    }

    /// Whether the window is on its way down to the threshold.
    pub(super) fn is_reducing(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }
}

impl Sender {
    /// Does what an acknowledgement calls for.
    pub(super) fn react(&mut self, now: Instant, news: &mut News, events: &mut Events) {
        self.recovery.holds_retransmissions = false;
        self.rack.deadline = None;
        if news.advanced {
            self.timers.progressed();
        }
        let is_dubious = news.is_duplicate() || news.sacked > 0 || news.ece || news.dsack;
        if self.recovery.state == CaState::Open && !is_dubious {
            if !self.has_retransmitted() {
                self.recovery.retrans_stamp = None;
            }
            return;
        }
        if news.ece {
            // What a mark has reduced is not taken back.
            self.recovery.undo_marker = None;
        }
        self.check_reneging(now, news);
        if !self.una.is_before(self.recovery.high_seq) && self.end_episode(news, events) {
            return;
        }
        match self.recovery.state {
            CaState::Recovery => self.go_on_recovering(now, news, events),
            CaState::Loss => self.go_on_after_timeout(now, news, events),
            CaState::Open | CaState::Disorder | CaState::Cwr => self.look_out(now, news, events),
        }
    }

    /// All that had been sent when the episode began is acknowledged. True if nothing more is to be
    /// done about this acknowledgement.
    fn end_episode(&mut self, news: &News, events: &mut Events) -> bool {
        match self.recovery.state {
            CaState::Cwr if self.una != self.recovery.high_seq => {
                // Only now can the peer have seen CWR: its marks are about what came after.
                self.end_reduction();
                self.recovery.state = CaState::Open;
                false
            }
            CaState::Recovery => {
                if !self.sack {
                    self.scoreboard.forget_duplicates();
                }
                if self.take_back_at_end(news, events) {
                    return true;
                }
                self.end_reduction();
                false
            }
            _ => false,
        }
    }

    fn go_on_recovering(&mut self, now: Instant, news: &mut News, events: &mut Events) {
        if !news.advanced {
            if !self.sack && news.duplicates > 0 {
                self.count_duplicates(news);
            }
        } else {
            if self.take_back_partly(news, events) {
                return;
            }
        }
        if self.take_back_by_dsack(events) {
            self.try_to_open(now, news);
            return;
        }
        self.identify_losses(now, news, events);
    }

    /// Nothing was lost, so far.
    fn look_out(&mut self, now: Instant, news: &mut News, events: &mut Events) {
        if !self.sack {
            if news.advanced {
                self.scoreboard.forget_duplicates();
            }
            if news.duplicates > 0 {
                self.count_duplicates(news);
            }
        }
        if self.recovery.state <= CaState::Disorder {
            self.take_back_by_dsack(events);
        }
        self.identify_losses(now, news, events);
        if self.scoreboard.lost_out() == 0 {
            self.try_to_open(now, news);
            return;
        }
        if self.is_lost_probe_of_mtu(now, events) {
            return;
        }
        self.enter_recovery(now, news.ece, events);
    }

    fn go_on_after_timeout(&mut self, now: Instant, news: &mut News, events: &mut Events) {
        self.judge_timeout(news, events);
        if self.recovery.state != CaState::Loss {
            // It is over; what was said may still tell of new loss.
            if self.recovery.state <= CaState::Disorder {
                self.look_out(now, news, events);
            }
            return;
        }
        self.identify_losses(now, news, events);
    }

    /// After a timeout: was it wrong (RFC 5682), is it over, what came?
    fn judge_timeout(&mut self, news: &mut News, events: &mut Events) {
        let is_recovered = !self.una.is_before(self.recovery.high_seq);
        if news.advanced && self.may_take_back(news) {
            return self.take_timeout_back(false, events);
        }
        if self.recovery.is_timeout_doubted {
            if news.original_came {
                // Step 3.b: what was sent before the timeout, and once, came after it.
                return self.take_timeout_back(true, events);
            }
            if self.next.is_after(self.recovery.high_seq) {
                if news.sacked > 0 || news.duplicates > 0 {
                    // Step 3.a: the new bytes came, the old did not.
                    self.recovery.is_timeout_doubted = false;
                }
            } else if news.advanced && !is_recovered {
                // Step 2.b: tries new bytes, if there are any.
                let has_new = self.unsent_bytes() > 0 && self.window_end().is_after(self.next);
                self.recovery.high_seq = self.next;
                if has_new {
                    self.recovery.holds_retransmissions = true;
                    return;
                }
                self.recovery.is_timeout_doubted = false;
            }
        }
        if is_recovered {
            if !self.sack {
                self.scoreboard.forget_duplicates();
            }
            self.take_back_at_end(news, events);
            return;
        }
        if !self.sack {
            if self.next.is_after(self.recovery.high_seq) && news.duplicates > 0 {
                self.count_duplicates(news);
            } else if news.advanced {
                self.scoreboard.forget_duplicates();
            }
        }
    }

    fn identify_losses(&mut self, now: Instant, news: &News, events: &mut Events) {
        if self.scoreboard.is_empty() {
            return;
        }
        if self.sack {
            return self.detect_losses(now, events);
        }
        // Without SACK (RFC 6582): the first piece is lost after three duplicates, and after every
        // acknowledgement that does not end the episode.
        let is_lost = match self.recovery.state {
            CaState::Recovery => news.advanced,
            CaState::Loss => false,
            _ => self.scoreboard.sacked_out() >= u32::from(self.recovery.reordering),
        };
        if is_lost && self.scoreboard.head().is_some_and(|head| !head.lost) {
            self.scoreboard.split(0, 1);
            self.lose(0, events);
            self.scoreboard.limit_duplicates();
        }
    }

    /// Without SACK, each duplicate tells that a packet came, though not which.
    fn count_duplicates(&mut self, news: &mut News) {
        for _ in 0..news.duplicates {
            let before = self.scoreboard.sacked_out();
            self.scoreboard.count_duplicate();
            news.delivery.packets += self.scoreboard.sacked_out().saturating_sub(before);
        }
    }

    /// Begins to retransmit.
    pub(super) fn enter_recovery(&mut self, now: Instant, ece: bool, events: &mut Events) {
        events.count(match self.sack {
            true => Counter::TcpExtTCPSackRecovery,
            false => Counter::TcpExtTCPRenoRecovery,
        });
        self.begin_undo();
        if !self.recovery.is_reducing() {
            self.begin_reduction(now);
        }
        if ece {
            self.recovery.undo_marker = None;
        }
        self.recovery.state = CaState::Recovery;
        if !self.congestion.wants_pacing() {
            // One retransmission leaves at once, whatever the window says (RFC 6937 section 3).
            let cwnd = self.scoreboard.in_flight() + 1;
            self.congestion.set_cwnd(cwnd);
        }
    }

    /// The network told of congestion.
    pub(super) fn enter_cwr(&mut self, now: Instant) {
        if self.recovery.state < CaState::Cwr {
            self.recovery.undo_marker = None;
            self.begin_reduction(now);
            self.recovery.state = CaState::Cwr;
        }
    }

    fn begin_reduction(&mut self, now: Instant) {
        self.recovery.high_seq = self.next;
        self.rack.forget_probe();
        self.recovery.prior_cwnd = self.congestion.cwnd();
        self.recovery.delivered = 0;
        self.recovery.sent = 0;
        self.congestion.ssthresh_after_loss(now);
        self.tell_cwr = self.ecn;
    }

    /// Lets as much go out as came in, in the proportion of the window to come to the window before
    /// (RFC 6937 section 3). If less is under way than the window to come, it is filled up: by one
    /// more than came in where there is progress and no further loss, else by as much.
    pub(super) fn reduce_proportionally(&mut self, news: &News) {
        let came = news.delivery.packets;
        if came == 0 || self.recovery.prior_cwnd == 0 {
            return;
        }
        self.recovery.delivered += came;
        let in_flight = self.scoreboard.in_flight();
        let target = self.congestion.ssthresh();
        let sent = self.recovery.sent;
        let mut quota = if in_flight > target {
            let share = u64::from(target) * u64::from(self.recovery.delivered);
            let share = share.div_ceil(u64::from(self.recovery.prior_cwnd));
            u32::try_from(share)
                .unwrap_or(u32::MAX)
                .saturating_sub(sent)
        } else {
            let is_safe = news.advanced && self.rate.lost == news.lost_before;
            let earned = self.recovery.delivered.saturating_sub(sent).max(came);
            (earned + u32::from(is_safe)).min(target - in_flight)
        };
        if sent == 0 {
            quota = quota.max(1);
        }
        self.congestion.set_cwnd(in_flight + quota);
    }

    /// The window becomes what it was to become, unless the reduction was taken back.
    pub(super) fn end_reduction(&mut self) {
        let counts = self.recovery.state == CaState::Cwr || self.recovery.undo_marker.is_some();
        let ssthresh = self.congestion.ssthresh();
        if counts && !self.congestion.wants_pacing() && ssthresh < u32::MAX / 2 {
            self.congestion.set_cwnd(ssthresh);
        }
    }

    /// A timeout: everything that is not known to have come is lost (RFC 6298 section 5, RFC 5681
    /// section 3.1, RFC 6675 section 5.1).
    pub(super) fn enter_loss(&mut self, now: Instant, events: &mut Events) {
        let state = self.recovery.state;
        let is_new = state < CaState::Recovery;
        let kind = match (state, self.sack) {
            (CaState::Recovery, true) => Some(Counter::TcpExtTCPSackRecoveryFail),
            (CaState::Recovery, false) => Some(Counter::TcpExtTCPRenoRecoveryFail),
            (CaState::Disorder, true) => Some(Counter::TcpExtTCPSackFailures),
            (CaState::Disorder, false) => Some(Counter::TcpExtTCPRenoFailures),
            (CaState::Loss, _) => Some(Counter::TcpExtTCPLossFailures),
            _ => None,
        };
        if let Some(kind) = kind {
            events.count(kind);
        }
        self.lose_all(now, events);
        // A timeout of what was retransmitted after a timeout is no second loss.
        let is_first = state <= CaState::Disorder
            || !self.recovery.high_seq.is_after(self.una)
            || (state == CaState::Loss && self.timers.retransmits == 0);
        if is_first {
            self.congestion.ssthresh_after_loss(now);
            self.begin_undo();
        }
        self.congestion.on_rto(now);
        if !self.congestion.wants_pacing() {
            self.congestion.set_cwnd(self.scoreboard.in_flight() + 1);
        }
        if state <= CaState::Disorder
            && self.scoreboard.sacked_out() >= u32::from(self.knobs.reordering)
        {
            // What was taken for reordering was loss.
            self.recovery.reordering = self.recovery.reordering.min(self.knobs.reordering);
        }
        self.recovery.state = CaState::Loss;
        self.recovery.high_seq = self.next;
        self.rack.forget_probe();
        self.tell_cwr = self.ecn;
        self.recovery.is_timeout_doubted = self.knobs.frto > 0
            && (is_new || self.timers.retransmits > 0)
            && !self.mtu_probe.is_under_way();
        self.recovery.holds_retransmissions = false;
    }

    fn lose_all(&mut self, now: Instant, events: &mut Events) {
        let is_reneging = self.scoreboard.head().is_some_and(|head| head.sacked);
        if is_reneging {
            events.count(Counter::TcpExtTCPSACKReneging);
            self.scoreboard.forget_sacks();
            self.recovery.known_sacks = None;
        } else if !self.sack {
            self.scoreboard.forget_duplicates();
        }
        let mut index = 0;
        while let Some(sent) = self.scoreboard.get(index) {
            // What left only just now, behind the first piece, may still come (RFC 8985 section
            // 6.3).
            let is_fresh = self.sack && index > 0 && self.may_still_come(now, sent.sent_at);
            if !sent.sacked && !is_fresh {
                self.lose(index, events);
            }
            index = self.scoreboard.behind(index);
        }
    }

    /// If the first piece that is not acknowledged is one that the peer had, it has dropped it (RFC
    /// 2018 section 8); unless this acknowledgement was overtaken by others. A short timeout tells.
    fn check_reneging(&mut self, now: Instant, news: &mut News) {
        if news.advanced && self.scoreboard.head().is_some_and(|head| head.sacked) {
            let wait = self.rtt.srtt().unwrap_or_default() / 2;
            self.timers.set_retransmission(now + wait.max(RENEGING));
            news.may_be_reneging = true;
        }
    }

    fn try_to_open(&mut self, now: Instant, news: &News) {
        if !self.has_retransmitted() {
            self.recovery.retrans_stamp = None;
        }
        if news.ece {
            self.enter_cwr(now);
        }
        if self.recovery.state != CaState::Cwr {
            self.try_keep_open();
        }
    }

    /// Open, unless something is still out of order.
    pub(super) fn try_keep_open(&mut self) {
        let left_out = self.scoreboard.sacked_out() + self.scoreboard.lost_out();
        let state = match left_out > 0 || self.has_retransmitted() {
            true => CaState::Disorder,
            false => CaState::Open,
        };
        if state != self.recovery.state {
            self.recovery.state = state;
            self.recovery.high_seq = self.next;
        }
    }

    /// Whether what is not acknowledged begins with something retransmitted.
    pub(super) fn has_retransmitted(&self) -> bool {
        self.scoreboard.retrans_out() > 0
            || self.scoreboard.head().is_some_and(|head| head.ever_retrans)
    }
}
