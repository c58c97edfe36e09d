//! What is left of a connection that this side closed first: enough to answer the peer until no old
//! segment can be on its way any more (RFC 9293 section 3.6.1), to let the peer begin anew
//! (RFC 6191), and not to be cut short by resets (RFC 1337).
//!
//! FIN-WAIT-2 of a connection that nobody will read from is kept in the same small form, as on Linux.

use core::time::Duration;

use super::ports::PortUse;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN};

/// How long it lasts (Linux's `TCP_TIMEWAIT_LEN`).
pub(crate) const TIME_WAIT_LEN: Duration = Duration::from_secs(60);

/// After so long, an old timestamp says nothing about what is older (RFC 7323 section 5.5).
const PAWS_LIFETIME_SECS: u32 = 24 * 24 * 60 * 60;
/// A reset may have an old timestamp if the last segment was so long ago (RFC 7323 section 5.3).
const RESET_LIFETIME_SECS: u32 = 60;
/// How far behind the last sequence number of the old connection a new one begins: more than any
/// unscaled window.
const DISTANCE: u32 = 65_535 + 2;

/// What of a segment matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What it takes of the sequence space; SYN and FIN count as one each.
    pub(crate) range: SeqRange,
    pub(crate) flags: u8,
    /// Its timestamp's value.
    pub(crate) timestamp: Option<u32>,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeWait {
    /// RCV.NXT.
    pub(crate) rcv_nxt: Seq,
    /// SND.NXT.
    pub(crate) snd_nxt: Seq,
    /// The receive window, in bytes.
    pub(crate) rcv_wnd: u32,
    /// Shift of the window as we announce it.
    pub(crate) rcv_wscale: u8,
    /// Type of service or traffic class of what is sent.
    pub(crate) tos: u8,
    /// The interface that the socket was bound to, or 0.
    pub(crate) device: u32,
    /// The timestamps, if both sides send them.
    pub(crate) clock: Option<OldClock>,
    pub(crate) state: Ended,
    /// What it holds its local port for, and how it shares it ([`PortClaim`](super::ports::PortClaim)).
    pub(crate) port_use: PortUse,
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
    /// When the last answer to a segment that fits nowhere left, in milliseconds plus one; 0: none.
    pub(super) last_answer: u32,
}

/// Timestamps of a connection that has ended (RFC 7323).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OldClock {
    /// TS.Recent.
    pub(crate) recent: u32,
    /// Second in which it came.
    pub(crate) recent_at: u32,
    /// What ours is ahead of the clock.
    pub(crate) offset: u32,
}

/// How far it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has not closed yet, and nobody will read what it sends.
    FinWait2,
    TimeWait,
}

/// What is to be done about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It told nothing new.
    Drop(Dropped),
    /// To be acknowledged.
    Ack,
    /// The peer sends what nobody will read: to be reset. The entry goes.
    Reset,
    /// A reset that counts. The entry goes.
    End,
    /// The peer begins anew, and may: the entry goes, and a listener answers with an initial
    /// sequence number of at least this.
    NewConnection { min_iss: Seq },
}

/// Why a segment is dropped, for who counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    Silently,
    /// An answer left a moment ago (`tcp_invalid_ratelimit`).
    RateLimited(Ended),
}

/// What a segment came to, and for how long the entry stays from now on, if that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) stays: Option<Duration>,
    /// An old timestamp: PAWS found the segment to be a duplicate (`PAWSEstab`).
    pub(crate) is_paws: bool,
}

/// What decides besides the segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// `tcp_rfc1337`: resets are ignored.
    pub(crate) rfc1337: bool,
    /// `tcp_invalid_ratelimit`.
    pub(crate) invalid_ratelimit: Duration,
}

/// What the next connection between the same ends inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inheritance {
    /// Its first sequence number should be this or later.
    pub(crate) min_iss: Seq,
    /// The last timestamp of the peer, and the second in which it came.
    pub(crate) recent: Option<(u32, u32)>,
}

impl Seen {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl TimeWait {
    /// No connection's.
    pub(crate) const NONE: Self = Self::new(Ended::TimeWait, Seq(0), Seq(0), 0);

    /// The end of a connection that expects `rcv_nxt` and has sent up to `snd_nxt`.
    pub(crate) const fn new(state: Ended, rcv_nxt: Seq, snd_nxt: Seq, rcv_wnd: u32) -> Self {
        Self {
            rcv_nxt,
            snd_nxt,
            rcv_wnd,
            rcv_wscale: 0,
            tos: 0,
            device: 0,
            clock: None,
            state,
            port_use: PortUse::Bound,
            reuse_addr: false,
            reuse_port: false,
            last_answer: 0,
        }
    }

    /// Judges a segment, as Linux's `tcp_timewait_state_process` does.
    pub(crate) fn on_segment(&mut self, now: Instant, segment: &Seen, rules: Rules) -> Outcome {
        let is_paws = self.is_old(now, segment);
        let outcome = match self.state {
            Ended::FinWait2 => self.in_fin_wait_2(now, segment, rules, is_paws),
            Ended::TimeWait => self.in_time_wait(now, segment, rules, is_paws),
        };
        Outcome { is_paws, ..outcome }
    }

    /// The window as it stands in the header of an answer.
    pub(crate) fn window(&self) -> u16 {
        u16::try_from(self.rcv_wnd >> self.rcv_wscale).unwrap_or(u16::MAX)
    }

    /// Whether `connect` may use the same ports again (`tcp_tw_reuse`), and from where on: only with
    /// timestamps, by which the peer tells the new from the old, and after a second, in which its
    /// clock and ours must have gone on (RFC 6191 section 2, RFC 7323 section 5.4).
    pub(crate) fn inherit(&self, now: Instant) -> Option<Inheritance> {
        let clock = self.clock?;
        (self.state == Ended::TimeWait && seconds(now).wrapping_sub(clock.recent_at) >= 1).then(
            || Inheritance {
                min_iss: self.next_iss(),
                recent: Some((clock.recent, clock.recent_at)),
            },
        )
    }

    fn in_fin_wait_2(
        &mut self,
        now: Instant,
        segment: &Seen,
        rules: Rules,
        is_paws: bool,
    ) -> Outcome {
        let range = segment.range;
        if is_paws || !self.is_in_window(segment) {
            return Outcome::of(self.answer(now, rules));
        }
        if segment.has(FLAG_RST) {
            return Outcome::of(Verdict::End);
        }
        if segment.has(FLAG_SYN) && !segment.range.start.is_before(self.rcv_nxt) {
            return Outcome::of(Verdict::Reset);
        }
        let tells_nothing = !range.end.is_after(self.rcv_nxt) || range.is_empty();
        if !segment.has(FLAG_ACK) || tells_nothing {
            return Outcome::of(Verdict::Drop(Dropped::Silently));
        }
        // Data that nobody will read (RFC 2525 section 2.17), or with a gap before it.
        if !segment.has(FLAG_FIN) || range.end != self.rcv_nxt + 1 {
            return Outcome::of(Verdict::Reset);
        }
        self.state = Ended::TimeWait;
        self.rcv_nxt = range.end;
        self.note_timestamp(now, segment);
        Outcome {
            stays: Some(TIME_WAIT_LEN),
            ..Outcome::of(Verdict::Ack)
        }
    }

    fn in_time_wait(
        &mut self,
        now: Instant,
        segment: &Seen,
        rules: Rules,
        is_paws: bool,
    ) -> Outcome {
        let (is_reset, is_ack) = (segment.has(FLAG_RST), segment.has(FLAG_ACK));
        let is_empty = segment.range.is_empty();
        if !is_paws && segment.range.start == self.rcv_nxt && (is_empty || is_reset) {
            // RFC 1337: a reset that is believed lets old segments into the next connection.
            if is_reset && !rules.rfc1337 {
                return Outcome::of(Verdict::End);
            }
            self.note_timestamp(now, segment);
            return Outcome {
                stays: (!is_reset).then_some(TIME_WAIT_LEN),
                ..Outcome::of(Verdict::Drop(Dropped::Silently))
            };
        }
        if segment.has(FLAG_SYN) && !is_reset && !is_ack && !is_paws && self.is_new(segment) {
            return Outcome::of(Verdict::NewConnection {
                min_iss: self.next_iss(),
            });
        }
        if is_reset {
            return Outcome::of(Verdict::Drop(Dropped::Silently));
        }
        // The peer still sends of the old connection. A SYN alone may be of a new one whose number is
        // unlucky: then the wait does not begin again, and one of the peer's attempts succeeds.
        Outcome {
            stays: (is_paws || is_ack).then_some(TIME_WAIT_LEN),
            ..Outcome::of(self.answer(now, rules))
        }
    }

    /// Whether a SYN is of a new connection (RFC 6191 section 2): behind all that the old one has
    /// sent, by its timestamp or by its number.
    fn is_new(&self, syn: &Seen) -> bool {
        let is_later = |clock: OldClock, value: u32| (clock.recent.wrapping_sub(value) as i32) < 0;
        let later = self
            .clock
            .zip(syn.timestamp)
            .is_some_and(|(clock, value)| is_later(clock, value));
        syn.range.start.is_after(self.rcv_nxt) || later
    }

    /// PAWS (RFC 7323 section 5.3): whether the segment's timestamp is older than the last.
    fn is_old(&self, now: Instant, segment: &Seen) -> bool {
        let (Some(clock), Some(value)) = (self.clock, segment.timestamp) else {
            return false;
        };
        let age = seconds(now).wrapping_sub(clock.recent_at);
        let is_older = (clock.recent.wrapping_sub(value) as i32) > 0;
        is_older
            && age < PAWS_LIFETIME_SECS
            && clock.recent != 0
            && !(segment.has(FLAG_RST) && age >= RESET_LIFETIME_SECS)
    }

    fn note_timestamp(&mut self, now: Instant, segment: &Seen) {
        if let (Some(clock), Some(value)) = (&mut self.clock, segment.timestamp) {
            clock.recent = value;
            clock.recent_at = seconds(now);
        }
    }

    /// RFC 9293 section 3.10.7.4, first step.
    fn is_in_window(&self, segment: &Seen) -> bool {
        let (range, end) = (segment.range, self.rcv_nxt + self.rcv_wnd);
        range.start == self.rcv_nxt
            || range.end.is_after(self.rcv_nxt) && range.start.is_before(end)
            || range.start == end && range.is_empty()
    }

    /// Acknowledges what fits nowhere, but not too often: two ends that think alike would answer each
    /// other for ever.
    fn answer(&mut self, now: Instant, rules: Rules) -> Verdict {
        let stamp = now.as_millis() as u32;
        let limit = u32::try_from(rules.invalid_ratelimit.as_millis()).unwrap_or(u32::MAX);
        let last = self.last_answer.wrapping_sub(1);
        if self.last_answer != 0 && stamp.wrapping_sub(last) < limit {
            return Verdict::Drop(Dropped::RateLimited(self.state));
        }
        self.last_answer = stamp.wrapping_add(1);
        Verdict::Ack
    }

    fn next_iss(&self) -> Seq {
        match self.snd_nxt + DISTANCE {
            // 0 stands for none elsewhere.
            Seq(0) => Seq(1),
            iss => iss,
        }
    }
}

impl Outcome {
    fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            stays: None,
            is_paws: false,
        }
    }
}

/// The second of a point in time, as `recent_at` counts.
pub(crate) fn seconds(now: Instant) -> u32 {
    (now.as_millis() / 1_000) as u32
}

#[cfg(test)]
mod tests;
