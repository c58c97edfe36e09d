//! How large a segment may be: what routers say (RFC 1191, 8201), and what probes find out (RFC
//! 4821).
//!
//! Sizes are payload bytes of a segment. A search lies between a size that is known to pass and one
//! that is not known to be too large; it tries the middle.

use core::time::Duration;

use super::recovery::CaState;
use super::scoreboard::Sent;
use super::{OutKind, OutSegment, Sender, SenderKnobs};
use crate::counters::Counter;
use crate::tcp::congestion::CongestionControl as _;
use crate::tcp::events::Events;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};

/// Probing takes a window that hardly notices a lost segment (RFC 4821 section 7.4).
const MIN_CWND: u32 = 11;
/// What timestamps take of a segment.
const TIMESTAMPS: u16 = 12;

/// A search for the largest size that passes.
#[derive(Debug, Clone)]
pub(super) struct MtuProbe {
    is_on: bool,
    /// Passes.
    low: u16,
    /// Is not known not to.
    high: u16,
    /// What routers and the peer allow.
    ceiling: u16,
    /// The probe under way, and its size.
    probe: Option<(Seq, u16)>,
    /// When the last search ended.
    ended: Instant,
}

impl MtuProbe {
    pub(super) fn new(mss: u16, timestamps: bool, knobs: &SenderKnobs) -> Self {
        let options = if timestamps { TIMESTAMPS } else { 0 };
        Self {
            is_on: knobs.mtu_probing > 1,
            low: knobs.base_mss.saturating_sub(options).clamp(1, mss.max(1)),
            high: mss,
            ceiling: mss,
            probe: None,
            ended: Instant::ZERO,
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.probe.is_some()
    }

    /// Whatever comes of the probe under way says nothing.
    pub(super) fn give_up(&mut self) {
        self.probe = None;
    }

    /// The size to use.
    pub(super) fn size(&self) -> u16 {
        match self.is_on {
            true => self.low.min(self.ceiling),
            false => self.ceiling,
        }
    }
}

impl Sender {
    /// Segments carry no more than `mss` payload bytes, since the path's MTU is what it is. What was
    /// sent larger, and has not come, is sent again; the network is not congested for that.
    pub(crate) fn set_mss(&mut self, mss: u16, events: &mut Events) {
        let mss = mss.max(1);
        self.mtu_probe.ceiling = mss;
        self.mtu_probe.high = self.mtu_probe.high.min(mss);
        self.use_size(events);
    }

    fn use_size(&mut self, events: &mut Events) {
        let mss = self.mtu_probe.size();
        let is_smaller = mss < self.mss;
        self.mss = mss;
        if is_smaller {
            self.send_larger_again(events);
        }
    }

    /// What was sent in segments larger than now, and has not come, is lost.
    fn send_larger_again(&mut self, events: &mut Events) {
        let mut index = 0;
        let mut lost = false;
        while let Some(sent) = self.scoreboard.get(index) {
            if !sent.sacked && sent.mss > self.mss && sent.payload() > u32::from(self.mss) {
                lost = true;
                self.lose(index, events);
            }
            index = self.scoreboard.behind(index);
        }
        self.mtu_probe.give_up();
        self.scoreboard.resegment(self.mss);
        if !lost {
            return;
        }
        if !self.sack {
            self.scoreboard.limit_duplicates();
        }
        if self.recovery.state != CaState::Loss {
            self.recovery.high_seq = self.next;
            self.recovery.undo_marker = None;
            self.recovery.is_timeout_doubted = false;
            self.recovery.state = CaState::Loss;
        }
    }

    /// One larger segment, if it is time to look for what passes.
    pub(super) fn probe_mtu(
        &mut self,
        now: Instant,
        quota: u32,
        events: &mut Events,
    ) -> Option<OutSegment> {
        let search = &self.mtu_probe;
        let may_probe = search.is_on
            && search.probe.is_none()
            && quota >= 2
            && self.recovery.state == CaState::Open
            && self.congestion.cwnd() >= MIN_CWND;
        if !may_probe {
            return None;
        }
        let width = search.high.saturating_sub(search.low);
        if width < self.knobs.probe_threshold.max(1) {
            self.search_again(now);
            return None;
        }
        let size = search.low + width.div_ceil(2);
        // Enough must follow that its loss is noticed at once.
        let behind = (u32::from(self.recovery.reordering) + 1) * u32::from(self.mss);
        let needed = u32::from(size) + behind;
        let admitted = self.window_end().since(self.next);
        if self.unsent_bytes() < needed || admitted < needed {
            return None;
        }
        let range = SeqRange {
            start: self.next,
            end: self.next + u32::from(size),
        };
        let is_first = self.scoreboard.packets_out() == 0;
        let snapshot = self.rate.snapshot(now, is_first);
        let sent = Sent::new(range, size, false, now, snapshot);
        self.scoreboard.push(sent);
        self.next = range.end;
        self.mtu_probe.probe = Some((range.end, size));
        events.count(Counter::TcpExtTCPOrigDataSent);
        self.arm_for_new(now, is_first);
        Some(OutSegment {
            kind: OutKind::MtuProbe,
            ..self.leave(now, &sent, false)
        })
    }

    /// Paths change: what was too large some time ago may pass now.
    fn search_again(&mut self, now: Instant) {
        let search = &mut self.mtu_probe;
        if now - search.ended >= Duration::from_secs(self.knobs.probe_interval.into())
            && search.high < search.ceiling
        {
            search.high = search.ceiling;
        }
    }

    /// What is acknowledged may be the probe.
    pub(super) fn take_mtu_answer(&mut self, now: Instant, events: &mut Events) {
        let Some((end, size)) = self.mtu_probe.probe else {
            return;
        };
        if self.una.is_before(end) {
            return;
        }
        events.count(Counter::TcpExtTCPMTUPSuccess);
        self.mtu_probe.probe = None;
        self.mtu_probe.low = size;
        self.mtu_probe.ended = now;
        // The window is the same number of bytes.
        let bytes = u64::from(self.congestion.cwnd()) * u64::from(self.mss);
        self.use_size(events);
        let packets = bytes.div_ceil(u64::from(self.mss.max(1)));
        self.congestion
            .set_cwnd(u32::try_from(packets).unwrap_or(u32::MAX).max(1));
    }

    /// If what is lost is the probe alone, it was too large, and that is all (RFC 4821 section 7.6.1).
    pub(super) fn is_lost_probe_of_mtu(&mut self, now: Instant, events: &mut Events) -> bool {
        let Some((end, size)) = self.mtu_probe.probe else {
            return false;
        };
        let is_head = self
            .scoreboard
            .head()
            .is_some_and(|head| head.lost && head.range.end == end);
        if !is_head {
            return false;
        }
        events.count(Counter::TcpExtTCPMTUPFail);
        self.mtu_probe.probe = None;
        self.mtu_probe.high = size - 1;
        self.mtu_probe.ended = now;
        self.send_larger_again(events);
        true
    }

    /// Nothing is answered: perhaps only because large segments vanish, and nobody says so (RFC
    /// 2923 section 2.1).
    pub(super) fn doubt_path(&mut self, now: Instant, events: &mut Events) {
        self.mtu_probe.give_up();
        if self.knobs.mtu_probing == 0 || self.timers.retransmits < self.knobs.retries1 {
            return;
        }
        let search = &mut self.mtu_probe;
        if search.is_on {
            let floor = self.knobs.mtu_probe_floor.min(search.low);
            search.low = (search.low / 2).max(floor).max(1);
        }
        search.is_on = true;
        search.ended = now;
        self.use_size(events);
    }
}
