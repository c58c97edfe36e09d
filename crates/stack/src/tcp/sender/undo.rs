//! Taking back what was done about loss that was none: what was thought lost was only late.
//!
//! It shows in three ways: the peer got each retransmission twice (D-SACK, RFC 3708); what it
//! acknowledges left before the first retransmission (timestamps, RFC 3522); after a timeout, it
//! acknowledges what was sent once (F-RTO, RFC 5682, which is in [`super::recovery`]).

use super::Sender;
use super::ack::News;
use super::recovery::CaState;
use crate::counters::Counter;
use crate::tcp::congestion::CongestionControl as _;
use crate::tcp::events::Events;

impl Sender {
    pub(super) fn begin_undo(&mut self) {
        self.recovery.undo_marker = Some(self.una);
        // Retransmissions of before that are still under way may be told of, too.
        self.recovery.undo_retrans = match self.scoreboard.retrans_out() {
            0 => -1,
            n => i32::try_from(n).unwrap_or(i32::MAX),
        };
    }

    /// Whether it has turned out that nothing was lost: all retransmissions came twice, or what is
    /// acknowledged left before the first of them (Eifel, RFC 3522).
    pub(super) fn may_take_back(&self, news: &News) -> bool {
        self.recovery.undo_marker.is_some()
            && (self.recovery.undo_retrans == 0 || self.is_original(news))
    }

    fn is_original(&self, news: &News) -> bool {
        let Some(stamp) = self.recovery.retrans_stamp else {
            // Nothing was retransmitted, and yet all came.
            return true;
        };
        let echoed = news.echoed_ms.filter(|_| self.timestamps && news.advanced);
        echoed.is_some_and(|echoed| echoed < stamp.as_millis())
    }

    fn take_back(&mut self, is_nothing_lost: bool) {
        if is_nothing_lost {
            self.scoreboard.unmark_lost();
        }
        self.congestion.undo();
        self.recovery.undo_marker = None;
        self.tell_cwr = false;
    }

    /// At an episode's end. True if the state is kept for one more acknowledgement.
    pub(super) fn take_back_at_end(&mut self, news: &News, events: &mut Events) -> bool {
        if self.may_take_back(news) {
            events.count(match self.recovery.state {
                CaState::Loss => Counter::TcpExtTCPLossUndo,
                _ => Counter::TcpExtTCPFullUndo,
            });
            self.take_back(false);
        } else if self.recovery.state == CaState::Recovery {
            self.rack.end_recovery();
        }
        if self.una == self.recovery.high_seq && !self.sack {
            // Duplicates that are still under way must not begin another recovery (RFC 6582
            // section 6): only what lies above ends this one.
            if !self.has_retransmitted() {
                self.recovery.retrans_stamp = None;
            }
            return true;
        }
        self.recovery.state = CaState::Open;
        false
    }

    /// In recovery, an acknowledgement of what left before the first retransmission: the hole was
    /// filled by what was only late. True if no more is to be done now.
    pub(super) fn take_back_partly(&mut self, news: &News, events: &mut Events) -> bool {
        if self.recovery.undo_marker.is_none() || !self.is_original(news) {
            return false;
        }
        self.note_overtaken(news.una_before, Counter::TcpExtTCPTSReorder, events);
        if self.scoreboard.retrans_out() > 0 {
            // Retransmissions are under way: waits for what becomes of them.
            return true;
        }
        if !self.has_retransmitted() {
            self.recovery.retrans_stamp = None;
        }
        self.take_back(true);
        events.count(Counter::TcpExtTCPPartialUndo);
        self.try_keep_open();
        false
    }

    pub(super) fn take_back_by_dsack(&mut self, events: &mut Events) -> bool {
        if self.recovery.undo_marker.is_none() || self.recovery.undo_retrans != 0 {
            return false;
        }
        self.take_back(false);
        events.count(Counter::TcpExtTCPDSACKUndo);
        true
    }

    pub(super) fn take_timeout_back(&mut self, by_originals: bool, events: &mut Events) {
        self.take_back(true);
        events.count(Counter::TcpExtTCPLossUndo);
        if by_originals {
            events.count(Counter::TcpExtTCPSpuriousRTOs);
        }
        self.timers.progressed();
        self.recovery.is_timeout_doubted = false;
        if by_originals || self.sack {
            self.recovery.state = CaState::Open;
        }
    }
}
