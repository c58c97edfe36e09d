//! What may leave now: retransmissions first, then new bytes, as far as the windows of the peer, of
//! congestion and of pacing admit.

use super::Sender;
use super::recovery::CaState;
use super::scoreboard::Sent;
use super::timers::TimerKind;
use crate::counters::Counter;
use crate::tcp::congestion::CongestionControl as _;
use crate::tcp::events::Events;
use crate::tcp::pacing::{self, Load};
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};

/// Payload bytes that leave as one: what fits an IP packet, with room for headers.
const MAX_PAYLOAD: u32 = 65_535 - 200;
/// Segments at the beginning that no pacing holds back.
const UNPACED: u64 = 10;

/// What kind of segment it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutKind {
    /// Bytes or a FIN.
    Data,
    /// No bytes, and a sequence number that the peer has had already, so that it answers with its
    /// window (RFC 9293 section 3.8.6.1).
    WindowProbe,
    /// Larger than segments are: finds out whether the path carries it (RFC 4821). It must not be
    /// fragmented, and goes though the path is not known to be that wide.
    MtuProbe,
}

/// A segment to be sent, or several at once, all of one size but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutSegment {
    pub(crate) seq: Seq,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Payload bytes of each segment but the last.
    pub(crate) mss: u16,
    /// Of the last segment.
    pub(crate) fin: bool,
    /// Of the last segment.
    pub(crate) psh: bool,
    /// Of the first segment.
    pub(crate) cwr: bool,
    /// It was sent before; so it carries no ECT (RFC 3168 section 6.1.5).
    pub(crate) is_retransmission: bool,
    pub(crate) kind: OutKind,
}

impl Sender {
    /// What leaves now, if anything may; it counts as sent.
    pub(crate) fn poll(&mut self, now: Instant, events: &mut Events) -> Option<OutSegment> {
        if let Some(kind) = self.timers.due.take() {
            let probe = match kind {
                TimerKind::Persist => self.probe_window(now, events),
                _ => self.probe_tail(now, events),
            };
            if probe.is_some() {
                return probe;
            }
        }
        self.is_held_by_pacing = false;
        if self.is_idle() {
            return None;
        }
        if self.pacer.is_on(&self.congestion) && self.pacer.earliest() > now {
            self.is_held_by_pacing = true;
            return None;
        }
        self.restart_after_idle(now);
        let quota = self
            .congestion
            .cwnd()
            .saturating_sub(self.scoreboard.in_flight());
        if quota == 0 {
            self.note_use(true);
            return None;
        }
        if self.recovery.holds_retransmissions {
            let segment = self.send_new(now, quota, true, events);
            if segment.is_some() || self.next.is_after(self.recovery.high_seq) {
                return segment;
            }
            // There is nothing new that could tell whether the timeout was right.
            self.recovery.holds_retransmissions = false;
            self.recovery.is_timeout_doubted = false;
        }
        let segment = self
            .retransmit_lost(now, quota, events)
            .or_else(|| self.probe_mtu(now, quota, events))
            .or_else(|| self.send_new(now, quota, false, events));
        if segment.is_none() {
            self.note_rest(now, quota);
        }
        segment
    }

    /// Whether there is nothing to be sent, be the windows what they may.
    fn is_idle(&self) -> bool {
        self.scoreboard.lost_out() == 0 && self.unsent_bytes() == 0 && !self.is_fin_waiting()
    }

    /// Whether a FIN is to be sent for the first time.
    pub(super) fn is_fin_waiting(&self) -> bool {
        self.is_finished && !self.is_fin_sent()
    }

    /// The first piece that is lost, as much as the window admits.
    fn retransmit_lost(
        &mut self,
        now: Instant,
        quota: u32,
        events: &mut Events,
    ) -> Option<OutSegment> {
        let index = self.scoreboard.next_lost()?;
        let sent = *self.scoreboard.get(index)?;
        // A peer that has taken its window back gets the first piece only, as a probe.
        let is_first = sent.range.start == self.una;
        if !sent.range.start.is_before(self.window_end()) && !is_first {
            return None;
        }
        // What becomes of a probe of the path's MTU can't be told any more.
        self.mtu_probe.give_up();
        let size = self.mss.saturating_sub(self.option_bytes).max(1);
        self.scoreboard.recut(index, size);
        let most = self.burst() / u32::from(size);
        self.scoreboard.split(index, quota.min(most.max(1)));
        let snapshot = self.rate.snapshot(now, false);
        self.scoreboard.retransmit(index, now, snapshot);
        let sent = *self.scoreboard.get(index)?;
        let packets = sent.packets();
        self.recovery.undo_retrans =
            self.recovery.undo_retrans.max(0) + i32::try_from(packets).unwrap_or(i32::MAX);
        events.add(
            match self.recovery.state {
                CaState::Loss => Counter::TcpExtTCPSlowStartRetrans,
                _ => Counter::TcpExtTCPFastRetrans,
            },
            u64::from(packets),
        );
        if is_first && !self.timers.is_armed_for(TimerKind::Reordering) {
            self.timers
                .set_retransmission(now + self.rto_within_user_timeout(now));
        }
        Some(self.leave_again(now, &sent, events))
    }

    /// Accounts for a retransmission.
    fn leave_again(&mut self, now: Instant, sent: &Sent, events: &mut Events) -> OutSegment {
        let packets = sent.packets();
        self.recovery.retrans_stamp.get_or_insert(now);
        self.totals.retrans = self.totals.retrans.wrapping_add(packets);
        self.totals.bytes_retrans += u64::from(sent.payload());
        events.add(Counter::TcpRetransSegs, u64::from(packets));
        self.leave(now, sent, true)
    }

    /// Accounts for what leaves.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        sent: &Sent,
        is_retransmission: bool,
    ) -> OutSegment {
        let (len, packets) = (sent.payload(), sent.packets());
        if self.recovery.is_reducing() {
            self.recovery.sent += packets;
        }
        self.totals.bytes_sent += u64::from(len);
        self.totals.data_segs_out += u64::from(packets);
        self.totals.last_sent = now;
        self.pace(now, len);
        let end = sent.range.start + len;
        OutSegment {
            seq: sent.range.start,
            len,
            mss: sent.mss,
            fin: sent.fin,
            psh: len > 0 && end == self.end,
            cwr: !is_retransmission && core::mem::take(&mut self.tell_cwr),
            is_retransmission,
            kind: OutKind::Data,
        }
    }

    /// New bytes, at most `quota` packets. `now_or_never` leaves out what only makes segments
    /// larger.
    pub(super) fn send_new(
        &mut self,
        now: Instant,
        quota: u32,
        now_or_never: bool,
        events: &mut Events,
    ) -> Option<OutSegment> {
        let mss = self.segment_size();
        let unsent = self.unsent_bytes();
        if unsent == 0 && !self.is_fin_waiting() {
            return None;
        }
        let admitted = self.window_end().since(self.next);
        // A segment leaves whole or not at all (RFC 9293 section 3.8.6.2.1); the persist timer sends
        // less than that if the peer never announces more.
        if admitted < unsent.min(mss).max(1) && !(now_or_never && admitted > 0) {
            return None;
        }
        let most = quota.saturating_mul(mss).min(self.burst());
        let mut len = unsent.min(admitted).min(most.max(mss));
        let is_tail = len == unsent;
        let partial = len % mss;
        if partial > 0 && len > mss && !is_tail {
            len -= partial;
        }
        let has_fin = is_tail && self.is_fin_waiting() && admitted > len;
        if is_tail && partial > 0 && !has_fin && !now_or_never && self.waits_for_more() {
            len -= partial;
        }
        if len == 0 && !has_fin {
            return None;
        }
        if !len.is_multiple_of(mss) {
            self.small_end = self.next + len;
        }
        let range = SeqRange {
            start: self.next,
            end: self.next + len + u32::from(has_fin),
        };
        let is_first = self.scoreboard.packets_out() == 0;
        let snapshot = self.rate.snapshot(now, is_first);
        let mss = u16::try_from(mss).unwrap_or(u16::MAX);
        let sent = Sent::new(range, mss, has_fin, now, snapshot);
        self.scoreboard.push(sent);
        self.next = range.end;
        events.add(Counter::TcpExtTCPOrigDataSent, u64::from(sent.packets()));
        self.arm_for_new(now, is_first);
        self.note_use(self.scoreboard.in_flight() >= self.congestion.cwnd());
        Some(self.leave(now, &sent, false))
    }

    /// Payload bytes of a segment: no more than half the largest window, or the peer would have to
    /// wait for us to wait for it (Linux: `tcp_bound_to_half_wnd`).
    pub(super) fn segment_size(&self) -> u32 {
        let half = match self.max_window {
            0 => u32::MAX,
            small if small <= 536 => small,
            window => window / 2,
        };
        let mss = self.mss.saturating_sub(self.option_bytes).max(1);
        u32::from(mss).min(half.max(48))
    }

    /// Whether a segment that is not full waits: for its other half while corked, for the
    /// acknowledgement of one before that was not full either (Nagle's algorithm, RFC 1122 section
    /// 4.2.3.4, as Minshall has improved it).
    fn waits_for_more(&self) -> bool {
        if self.cork || self.more {
            return true;
        }
        let small_is_out = self.small_end.is_after(self.una)
            && !self.small_end.is_after(self.next)
            && self.scoreboard.packets_out() > 0;
        !self.nodelay && small_is_out
    }

    /// Payload bytes that leave at once at most.
    fn burst(&self) -> u32 {
        let mss = u32::from(self.mss);
        let most = (MAX_PAYLOAD / mss).max(1);
        let rate = match self.pacer.is_on(&self.congestion) {
            true => self.pacing_rate(),
            false => None,
        };
        let packets = rate.map_or(most, |rate| pacing::burst(rate, self.min_rtt.get(), mss));
        packets.min(most) * mss
    }

    /// After an idle time the window no longer says what the path carries (RFC 5681 section 4.1).
    fn restart_after_idle(&mut self, now: Instant) {
        let idle = now - self.totals.last_sent;
        let rto = self.rtt.rto(0);
        let is_idle = self.scoreboard.packets_out() == 0 && idle > rto;
        if is_idle && self.knobs.slow_start_after_idle {
            self.congestion.on_idle_restart(rto, idle);
        }
    }

    /// Remembers how much of the congestion window is used, and whether it holds us back.
    fn note_use(&mut self, is_limited: bool) {
        let packets_out = self.scoreboard.packets_out();
        let is_next_round = !self.una.is_before(self.usage_end);
        let is_more = !self.is_cwnd_limited && packets_out > self.max_packets_out;
        if is_next_round || is_limited || is_more {
            self.is_cwnd_limited = is_limited;
            self.max_packets_out = packets_out;
            self.usage_end = self.next;
        }
    }

    /// Nothing may leave though congestion's window would admit it: somebody else must act, and a
    /// timer has to run in case that nobody does.
    fn note_rest(&mut self, now: Instant, quota: u32) {
        let nothing_lost = self.scoreboard.lost_out() <= self.scoreboard.retrans_out();
        if quota > 0 && self.unsent_bytes() < u32::from(self.mss) && nothing_lost {
            self.rate.set_app_limited(self.scoreboard.in_flight());
        }
        if self.scoreboard.packets_out() == 0 {
            self.arm_persist(now);
        }
    }

    /// One more segment makes the peer tell what it has: new bytes, or the last ones once more (RFC
    /// 8985 section 7.3).
    fn probe_tail(&mut self, now: Instant, events: &mut Events) -> Option<OutSegment> {
        if self.scoreboard.packets_out() == 0 || self.rack.has_probe() {
            self.arm_retransmission(now);
            return None;
        }
        events.count(Counter::TcpExtTCPLossProbes);
        if let Some(segment) = self.send_new(now, 1, true, events) {
            self.rack.set_probe(self.next, false);
            self.arm_retransmission(now);
            return Some(segment);
        }
        let packets = self.scoreboard.last()?.packets();
        let last = self.scoreboard.position(self.next - 1);
        let last = match self.scoreboard.split(last, packets - 1) {
            true => last + 1,
            false => last,
        };
        let size = self.mss.saturating_sub(self.option_bytes).max(1);
        self.scoreboard.recut(last, size);
        let snapshot = self.rate.snapshot(now, false);
        self.scoreboard.resend(last, now, snapshot);
        let sent = *self.scoreboard.get(last)?;
        self.rack.set_probe(self.next, true);
        self.arm_retransmission(now);
        Some(self.leave_again(now, &sent, events))
    }

    /// Asks for the peer's window; with bytes, if it admits any.
    fn probe_window(&mut self, now: Instant, events: &mut Events) -> Option<OutSegment> {
        if self.scoreboard.packets_out() > 0 {
            return None;
        }
        if let Some(segment) = self.send_new(now, 1, true, events) {
            // From here on it is the retransmission timer that counts.
            self.timers.progressed();
            return Some(segment);
        }
        if self.unsent_bytes() == 0 && !self.is_fin_waiting() {
            return None;
        }
        self.timers.probe_sent();
        self.arm_persist(now);
        events.count(Counter::TcpExtTCPWinProbe);
        Some(OutSegment {
            seq: self.una - 1,
            len: 0,
            mss: self.mss,
            fin: false,
            psh: false,
            cwr: false,
            is_retransmission: false,
            kind: OutKind::WindowProbe,
        })
    }

    /// Bytes a second: the algorithm's own, or somewhat more than the window in a round trip.
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        let load = Load {
            packets_out: self.scoreboard.packets_out(),
            mss: u32::from(self.mss),
            srtt: self.rtt.srtt(),
            ss_ratio: self.knobs.pacing_ss_ratio,
            ca_ratio: self.knobs.pacing_ca_ratio,
        };
        self.pacer.rate(&self.congestion, &load)
    }

    /// What leaves now takes its time on the path.
    fn pace(&mut self, now: Instant, len: u32) {
        if !self.pacer.is_on(&self.congestion) || self.totals.data_segs_out <= UNPACED {
            return;
        }
        if let Some(rate) = self.pacing_rate() {
            self.pacer.sent(now, len, rate);
        }
    }
}
