//! The handshake of the side that begins it: SYN-SENT, and SYN-RECEIVED if both began at once
//! (RFC 9293 sections 3.5 and 3.10.7.3).

use core::time::Duration;

use super::clock::TimestampClock;
use super::segment::{Outgoing, Segment};
use crate::tcp::TcpError;
use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp::{FLAG_ACK, FLAG_CWR, FLAG_ECE, FLAG_RST, FLAG_SYN};
use crate::wire::tcp_options::{TcpOptions, Timestamps};

/// Until the first round trip is known (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The most that backing off leads to (Linux's `TCP_RTO_MAX`).
const MAX_RTO: Duration = Duration::from_secs(120);
/// What is assumed of a peer that names no MSS (RFC 9293 section 3.7.1), both families as on Linux.
pub(crate) const DEFAULT_MSS: u16 = 536;

/// What this side offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// Initial sequence number.
    pub(crate) iss: Seq,
    /// Largest payload that we take in one segment.
    pub(crate) mss: u16,
    /// Receive window of the SYN, not scaled.
    pub(crate) window: u16,
    /// Shift of our window, if we scale.
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// What our clock is ahead, if we send timestamps.
    pub(crate) timestamps: Option<u32>,
    pub(crate) ecn: bool,
    /// SYNs that are sent again before we give up (`tcp_syn_retries`).
    pub(crate) retries: u8,
}

/// What both ends agreed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    /// What the peer takes in one segment, as it says.
    pub(crate) mss: u16,
    /// The peer's window as of its SYN or the segment that ended the handshake.
    pub(crate) window: u32,
    /// The window that we have offered.
    pub(crate) own_window: u16,
    /// Shifts of the peer's window and of ours; both scale or none does.
    pub(crate) scales: Option<(u8, u8)>,
    pub(crate) sack: bool,
    pub(crate) clock: Option<TimestampClock>,
    pub(crate) ecn: bool,
    pub(crate) round_trip: Option<Duration>,
    /// A SYN or SYN-ACK had to be sent again (RFC 6298 section 5.7, RFC 5681 section 3.1).
    pub(crate) was_retransmitted: bool,
}

/// What came of a segment.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing.
    Waiting,
    /// The connection stands. The segment may hold more that it is to see, if `more`.
    Done {
        agreed: Agreed,
        more: bool,
    },
    /// This is to be answered so.
    Reply(Outgoing),
    Failed(TcpError),
}

/// A handshake under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    offer: Offer,
    /// The peer's SYN, if it came without an acknowledgement of ours.
    theirs: Option<Theirs>,
    /// When the first SYN left.
    sent_at: Instant,
    rto: Duration,
    retransmits: u8,
    deadline: Instant,
    is_due: bool,
}

/// What a SYN of the peer says.
#[derive(Debug, Clone, Copy)]
struct Theirs {
    irs: Seq,
    options: TcpOptions,
    wants_ecn: bool,
}

impl Handshake {
    pub(crate) fn new(offer: Offer, now: Instant) -> Self {
        Self {
            offer,
            theirs: None,
            sent_at: now,
            rto: INITIAL_RTO,
            retransmits: 0,
            deadline: now + INITIAL_RTO,
            is_due: true,
        }
    }

    /// Whether the peer's SYN has come.
    pub(crate) fn is_syn_received(&self) -> bool {
        self.theirs.is_some()
    }

    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }

    pub(crate) fn retransmits(&self) -> u8 {
        self.retransmits
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What is to be sent now: the SYN, or the SYN and its acknowledgement.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Outgoing> {
        if !core::mem::take(&mut self.is_due) {
            return None;
        }
        let offer = &self.offer;
        let (flags, ack) = match &self.theirs {
            None if offer.ecn => (FLAG_SYN | FLAG_ECE | FLAG_CWR, Seq(0)),
            None => (FLAG_SYN, Seq(0)),
            Some(theirs) if theirs.wants_ecn && offer.ecn => {
                (FLAG_SYN | FLAG_ACK | FLAG_ECE, theirs.irs + 1)
            }
            Some(theirs) => (FLAG_SYN | FLAG_ACK, theirs.irs + 1),
        };
        let echo = |theirs: &Theirs| theirs.options.timestamps.map_or(0, |it| it.value);
        let stamp = |offset| Timestamps {
            value: TimestampClock::value(offset, now),
            echo: self.theirs.as_ref().map_or(0, echo),
        };
        Some(Outgoing {
            window: offer.window,
            options: TcpOptions {
                mss: Some(offer.mss),
                window_scale: offer.window_scale,
                sack_permitted: offer.sack,
                timestamps: offer.timestamps.map(stamp),
                ..TcpOptions::default()
            },
            ..Outgoing::bare(offer.iss, ack, flags)
        })
    }

    /// The SYN was not answered: once more, and twice as patient.
    pub(crate) fn on_deadline(&mut self, now: Instant) -> Result<(), TcpError> {
        if now < self.deadline {
            return Ok(());
        }
        if self.retransmits >= self.offer.retries {
            return Err(TcpError::TimedOut);
        }
        self.retransmits += 1;
        self.rto = (self.rto * 2).min(MAX_RTO);
        self.deadline = now + self.rto;
        self.is_due = true;
        Ok(())
    }

    /// RFC 9293 sections 3.10.7.3 and, as far as it goes, 3.10.7.4.
    pub(crate) fn on_segment(&mut self, segment: &Segment, now: Instant) -> Progress {
        match self.theirs {
            None => self.in_syn_sent(segment, now),
            Some(theirs) => self.in_syn_received(segment, &theirs, now),
        }
    }

    fn in_syn_sent(&mut self, segment: &Segment, now: Instant) -> Progress {
        let is_acked = segment.has(FLAG_ACK);
        if is_acked && segment.ack != self.offer.iss + 1 || !self.echoes_us(segment, now) {
            // Somebody else's, from an earlier connection.
            return match segment.has(FLAG_RST) {
                true => Progress::Waiting,
                false => Progress::Reply(Outgoing::reset_for(segment)),
            };
        }
        if segment.has(FLAG_RST) {
            return match is_acked {
                true => Progress::Failed(TcpError::ConnectionRefused),
                false => Progress::Waiting,
            };
        }
        if !segment.has(FLAG_SYN) {
            return Progress::Waiting;
        }
        let theirs = Theirs {
            irs: segment.seq,
            options: segment.options,
            // A SYN asks with both bits, an answer agrees with one (RFC 3168 section 6.1.1).
            wants_ecn: segment.has(FLAG_ECE) && segment.has(FLAG_CWR) != is_acked,
        };
        if is_acked {
            // What the answer carries beside comes again.
            let agreed = self.agree(&theirs, segment.window.into(), segment, now);
            return Progress::Done {
                agreed,
                more: false,
            };
        }
        self.theirs = Some(theirs);
        self.is_due = true;
        Progress::Waiting
    }

    fn in_syn_received(&mut self, segment: &Segment, theirs: &Theirs, now: Instant) -> Progress {
        let (next, iss) = (theirs.irs + 1, self.offer.iss);
        if segment.has(FLAG_RST) {
            return match segment.seq == next {
                true => Progress::Failed(TcpError::ConnectionRefused),
                false => Progress::Waiting,
            };
        }
        if !segment.has(FLAG_ACK) {
            // The peer's SYN once more: so is the answer.
            self.is_due |= segment.has(FLAG_SYN);
            return Progress::Waiting;
        }
        if segment.ack != iss + 1 {
            return Progress::Reply(Outgoing::reset_for(segment));
        }
        // The peer's own SYN-ACK counts for its acknowledgement, and windows of SYNs don't scale.
        let is_syn = segment.has(FLAG_SYN);
        let shift = match (theirs.options.window_scale, self.offer.window_scale) {
            (Some(shift), Some(_)) if !is_syn => shift,
            _ => 0,
        };
        let agreed = self.agree(theirs, u32::from(segment.window) << shift, segment, now);
        Progress::Done {
            agreed,
            more: !is_syn,
        }
    }

    /// Whether its timestamp, if it has one, answers one of ours (as Linux asks in SYN-SENT).
    fn echoes_us(&self, segment: &Segment, now: Instant) -> bool {
        let (Some(offset), Some(theirs)) = (self.offer.timestamps, segment.options.timestamps)
        else {
            return true;
        };
        let first = TimestampClock::value(offset, self.sent_at);
        let age = TimestampClock::value(offset, now).wrapping_sub(first);
        !segment.has(FLAG_ACK) || theirs.echo == 0 || theirs.echo.wrapping_sub(first) <= age
    }

    fn agree(&self, theirs: &Theirs, window: u32, segment: &Segment, now: Instant) -> Agreed {
        let (offer, options) = (&self.offer, &theirs.options);
        let clock = offer.timestamps.zip(options.timestamps);
        let was_retransmitted = self.retransmits > 0;
        // The echo tells which of several SYNs was answered; without one nobody knows (RFC 6298
        // section 3, Karn's algorithm).
        let echoed = clock.and_then(|(offset, _)| {
            let clock = TimestampClock::new(offset, 0, now);
            clock.round_trip(segment.options.timestamps?, now)
        });
        let measured = (!was_retransmitted).then(|| now - self.sent_at);
        Agreed {
            iss: offer.iss,
            irs: theirs.irs,
            mss: options.mss.unwrap_or(DEFAULT_MSS),
            window,
            own_window: offer.window,
            scales: options.window_scale.zip(offer.window_scale),
            sack: offer.sack && options.sack_permitted,
            clock: clock.map(|(offset, it)| TimestampClock::new(offset, it.value, now)),
            ecn: offer.ecn && theirs.wants_ecn,
            round_trip: measured.or(echoed),
            was_retransmitted,
        }
    }
}

#[cfg(test)]
mod tests;
