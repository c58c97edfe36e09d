//! What an acknowledgement says (RFC 9293 section 3.10.7.4, RFC 2018, RFC 2883).

use core::time::Duration;

use super::Sender;
use super::rate::Delivery;
use crate::counters::Counter;
use crate::tcp::chunks::Chunks;
use crate::tcp::congestion::{AckSample, CongestionControl as _};
use crate::tcp::events::Events;
use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp_options::SackBlocks;

/// Doublings of the timeout that outlast progress.
const BACKOFF_KEPT: u8 = 4;

/// What a segment of the peer says about ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    /// SEG.ACK.
    pub(crate) ack: Seq,
    /// SEG.WND, scaled.
    pub(crate) window: u32,
    /// SEG.SEQ.
    pub(crate) seq: Seq,
    pub(crate) sack: SackBlocks,
    /// How old the timestamp is that it echoes, in whole milliseconds of a clock that ticks as `now`
    /// does.
    pub(crate) rtt_from_timestamps: Option<Duration>,
    /// It has data or a FIN: no duplicate, whatever it acknowledges.
    pub(crate) has_data: bool,
    /// ECE: the network is congested.
    pub(crate) ece: bool,
    /// How many acknowledgements it stands for, if GRO has joined them; else 1.
    pub(crate) segments: u16,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// It acknowledges less than others before.
    Old,
    /// It acknowledges what was never sent: it wants an answer, and nothing else of it counts.
    TooNew,
    /// It acknowledges as much as the one before. It may still have told a window, or what has come
    /// out of order.
    Duplicate,
    /// It acknowledges more.
    Advanced {
        /// Bytes, the FIN not counted.
        bytes: u32,
        /// There is room again for who found none.
        room_made: bool,
    },
}

/// What an acknowledgement has told that was not known.
#[derive(Debug, Default)]
pub(super) struct News {
    /// It acknowledges more.
    pub(super) advanced: bool,
    /// It tells another window.
    pub(super) window_changed: bool,
    pub(super) has_data: bool,
    pub(super) ece: bool,
    /// Packets acknowledged, sacked before or not.
    pub(super) acked: u32,
    /// Packets that are newly known to have come out of order.
    pub(super) sacked: u32,
    /// What has come that was not known to have.
    pub(super) delivery: Delivery,
    /// Something came that was sent only once, and before the loss.
    pub(super) original_came: bool,
    /// Something was acknowledged that was retransmitted.
    pub(super) retransmission_acked: bool,
    /// The peer got something twice.
    pub(super) dsack: bool,
    /// Round trips of what came and was sent once: of the first piece acknowledged, of the last,
    /// and of the first sacked.
    first_acked: Option<Instant>,
    last_acked: Option<Instant>,
    pub(super) first_sacked: Option<Instant>,
    /// The earliest piece that came late: others that were sent after it had come before.
    pub(super) overtaken: Option<Seq>,
    /// When the timestamp was that it echoes, in milliseconds.
    pub(super) echoed_ms: Option<u64>,
    /// Number of duplicates that it stands for.
    pub(super) duplicates: u32,
    /// Packets under way before it came.
    pub(super) in_flight_before: u32,
    /// `rate.lost` before it came.
    pub(super) lost_before: u32,
    /// SND.UNA before it came.
    pub(super) una_before: Seq,
    /// The peer may have dropped what it had.
    pub(super) may_be_reneging: bool,
}

impl News {
    /// Nothing but the same acknowledgement again (RFC 5681 section 2).
    pub(super) fn is_duplicate(&self) -> bool {
        !(self.advanced || self.window_changed || self.has_data)
    }
}

impl Sender {
    /// Takes in what the peer acknowledges.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        ack: &Ack,
        events: &mut Events,
    ) -> AckOutcome {
        if ack.ack.is_after(self.next) {
            return AckOutcome::TooNew;
        }
        let is_old = ack.ack.is_before(self.una);
        let una_before = self.una;
        let mut news = News {
            has_data: ack.has_data,
            ece: ack.ece && self.ecn,
            in_flight_before: self.scoreboard.in_flight(),
            lost_before: self.rate.lost,
            una_before,
            echoed_ms: ack.rtt_from_timestamps.map(|age| {
                let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                now.as_millis().saturating_sub(age)
            }),
            ..News::default()
        };
        let mut bytes = 0;
        if !is_old {
            self.timers.answered();
            self.totals.last_ack = now;
            self.take_window(ack, &mut news);
            bytes = self.take_cumulative(now, chunks, ack.ack, &mut news);
        }
        let had_records = !self.scoreboard.is_empty() || news.acked > 0;
        if self.sack && !ack.sack.is_empty() {
            self.take_sacks(now, ack, &mut news, events);
        } else if news.advanced {
            self.recovery.known_sacks = None;
        }
        if is_old && news.delivery.packets == 0 && !news.dsack {
            return AckOutcome::Old;
        }
        if had_records || news.dsack {
            if news.is_duplicate() && !is_old {
                news.duplicates = u32::from(ack.segments.max(1));
            }
            self.take_round_trip(now, ack, &mut news);
            if let (Some(late), true) = (news.overtaken, self.sack) {
                self.note_overtaken(late, Counter::TcpExtTCPSACKReorder, events);
            }
            self.take_probe_answer(now, ack.ack, &news, events);
            self.take_mtu_answer(now, events);
            self.react(now, &mut news, events);
            self.control_congestion(now, &news, events);
            self.rearm(now, &news);
        }
        if is_old {
            AckOutcome::Old
        } else if news.advanced {
            self.grow_buffer();
            let room_made = self.wants_room && self.is_writable();
            self.wants_room &= !room_made;
            AckOutcome::Advanced { bytes, room_made }
        } else {
            AckOutcome::Duplicate
        }
    }

    /// The window of a segment counts unless a later one has told already (RFC 9293 section
    /// 3.10.7.4); one that is larger counts also from a segment with the same number, since pure
    /// acknowledgements all have it.
    fn take_window(&mut self, ack: &Ack, news: &mut News) {
        let is_newer = ack.ack.is_after(self.una)
            || ack.seq.is_after(self.window_seq)
            || (ack.seq == self.window_seq && (ack.window > self.window || ack.window == 0));
        if !is_newer {
            return;
        }
        self.window_seq = ack.seq;
        if ack.window != self.window {
            news.window_changed = true;
            self.window = ack.window;
            self.max_window = self.max_window.max(ack.window);
        }
    }

    /// Takes out what is acknowledged; returns the bytes.
    fn take_cumulative(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        ack: Seq,
        news: &mut News,
    ) -> u32 {
        if !ack.is_after(self.una) {
            return 0;
        }
        news.advanced = true;
        let highest = self.scoreboard.highest_sacked();
        let (high_seq, min_rtt) = (self.recovery.high_seq, self.min_rtt.get());
        let rack = &mut self.rack;
        let packets_before = self.scoreboard.packets_out();
        self.scoreboard.acknowledge(ack, |sent| {
            if sent.ever_retrans {
                news.retransmission_acked = true;
            } else if !sent.sacked {
                news.first_acked.get_or_insert(sent.sent_at);
                news.last_acked = Some(sent.sent_at);
                news.original_came |= !sent.range.end.is_after(high_seq);
                if sent.range.start.is_before(highest) {
                    news.overtaken.get_or_insert(sent.range.start);
                }
            }
            if !sent.sacked {
                news.delivery.add(sent);
                rack.advance(now, sent, min_rtt);
            }
        });
        news.acked = packets_before - self.scoreboard.packets_out();
        if !self.sack {
            // What lies behind a hole that a retransmission has filled may have come long before.
            news.original_came &= !news.retransmission_acked;
            // Each duplicate told of a packet that came already; but the hole came now.
            let had_come = self.scoreboard.sacked_out();
            news.delivery.packets = news.acked.saturating_sub(had_come).max(1);
            self.scoreboard.discount_duplicates(news.acked);
        }
        let bytes = ack.min(self.end).since(self.una);
        self.queue.drop_front(chunks, bytes as usize);
        self.una = ack;
        self.totals.bytes_acked += u64::from(bytes);
        bytes
    }

    /// Learns how long the round trip took, if that can be told (RFC 6298 section 3: not from what
    /// was sent twice, except by timestamps).
    fn take_round_trip(&mut self, now: Instant, ack: &Ack, news: &mut News) {
        let since = |at: Option<Instant>| at.map(|at| now - at);
        let of_acked = match news.retransmission_acked {
            true => None,
            false => since(news.first_acked),
        };
        let measured = of_acked.or(since(news.first_sacked));
        let echoed = ack
            .rtt_from_timestamps
            .filter(|_| self.timestamps && news.advanced)
            .map(|rtt| rtt.max(Duration::from_millis(1)));
        let newest = match news.retransmission_acked {
            true => None,
            false => since(news.last_acked),
        };
        if let Some(least) = newest.or(measured).or(echoed) {
            self.min_rtt.sample(now, least);
        }
        if let Some(rtt) = measured.or(echoed) {
            self.rtt.sample(rtt, self.una, self.next);
            self.timers.backoff = 0;
        } else if news.advanced {
            // RFC 6298 keeps the timeout as it is until there is a sample. On a path that loses
            // much, and without timestamps, that may be long; there is progress, so it shrinks
            // again, but stays well above any round trip that could have been measured.
            self.timers.backoff = self.timers.backoff.min(BACKOFF_KEPT);
        }
    }

    /// Tells congestion control what came, and sets the window.
    fn control_congestion(&mut self, now: Instant, news: &News, events: &mut Events) {
        let min_rtt = self.min_rtt.get();
        let rate = self
            .rate
            .sample(now, &news.delivery, news.lost_before, self.mss, min_rtt);
        if news.delivery.packets > 0 {
            events.add(
                Counter::TcpExtTCPDelivered,
                u64::from(news.delivery.packets),
            );
        }
        if news.delivery.packets == 0 && !news.advanced && !self.recovery.is_reducing() {
            return;
        }
        let measured = match news.retransmission_acked {
            true => None,
            false => news.last_acked.or(news.first_sacked).map(|at| now - at),
        };
        let sample = AckSample {
            now,
            acked: news.delivery.packets,
            in_flight: news.in_flight_before,
            rtt: measured,
            min_rtt,
            srtt: self.rtt.srtt(),
            mss: u32::from(self.mss),
            rate,
            is_cwnd_limited: self.is_window_limited(),
            in_recovery: self.recovery.is_reducing(),
        };
        if self.recovery.is_reducing() && !self.congestion.wants_pacing() {
            return self.reduce_proportionally(news);
        }
        // A path that reorders more than usual acknowledges late what it delivers early; then all
        // progress counts, not just that of the first hole.
        let moves = match self.recovery.reordering > self.knobs.reordering {
            true => news.delivery.packets > 0,
            false => news.acked > 0,
        };
        if moves || self.congestion.wants_pacing() {
            self.congestion.on_ack(&sample);
        }
    }

    /// Whether the congestion window is what holds the connection back: if not, there is no telling
    /// whether the path carries more, and the window stays (RFC 7661 has the reasons). In slow
    /// start it may be twice what is used, or it would never double.
    fn is_window_limited(&self) -> bool {
        let cwnd = self.congestion.cwnd();
        self.is_cwnd_limited
            || (cwnd < self.congestion.ssthresh() && cwnd < 2 * self.max_packets_out)
    }

    /// The buffer grows to twice the congestion window, so that there is a window's worth to send
    /// while another is acknowledged.
    fn grow_buffer(&mut self) {
        if self.buffer >= self.max_buffer {
            return;
        }
        let packets = self
            .congestion
            .cwnd()
            .max(self.initial_cwnd)
            .max(u32::from(self.recovery.reordering) + 1);
        let wanted = 2u32
            .saturating_mul(packets)
            .saturating_mul(u32::from(self.mss));
        self.buffer = self.buffer.max(wanted.min(self.max_buffer));
    }
}
