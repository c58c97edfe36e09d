//! When to acknowledge (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2), in Linux's manner.
//!
//! At least every second full segment is acknowledged at once, and so is what comes out of order.
//! What comes else may wait for data to travel with, or for the application to read it. How long
//! depends on the connection: a peer that begins, or that has lost something, has a small congestion
//! window and needs acknowledgements to open it (quick acknowledgements); a conversation in turns
//! has an answer soon (Linux calls it ping-pong).

use core::time::Duration;

use crate::time::Instant;

/// Nanoseconds of a millisecond. Durations are counted so, as they are with every segment.
const MS: u64 = 1_000_000;
/// The least time that an acknowledgement waits (`TCP_DELACK_MIN`, `TCP_ATO_MIN`).
const LEAST: u64 = 40 * MS;
/// The most (`TCP_DELACK_MAX`); RFC 9293 allows half a second.
const MOST: u64 = 200 * MS;
/// After such a pause the peer starts again with a small window (`TCP_RTO_MIN`).
const PAUSE: u64 = 200 * MS;
/// So many are quick in a row (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// A segment's size before one was seen (RFC 9293 section 3.7.1), and the least that one is believed
/// to have (`TCP_MIN_RCVMSS`).
const DEFAULT_SEGMENT: u32 = 536;
const LEAST_SEGMENT: u32 = 88;

#[derive(Debug)]
pub(super) struct Acks {
    /// One has to leave now.
    is_due: bool,
    /// Something came that was not acknowledged.
    is_owed: bool,
    /// The conversation goes in turns.
    is_in_turns: bool,
    /// Segments that were not full, since the last acknowledgement: the end of something, most
    /// likely (`ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    short: u8,
    /// So many more are quick.
    quick: u8,
    /// A full segment of the peer's, as far as seen.
    segment: u32,
    /// The size of the last one.
    last_segment: u32,
    /// The largest that we take.
    most_segment: u32,
    /// How long one waits now; zero before data came.
    timeout: u64,
    deadline: Option<Instant>,
    last_data: Instant,
}

impl Acks {
    /// Nothing has come yet; segments have `mss` bytes at most, and `window` was offered.
    pub(super) fn new(mss: u32, window: u32) -> Self {
        let guess = mss.min(window / 2).clamp(LEAST_SEGMENT, DEFAULT_SEGMENT);
        Self {
            is_due: false,
            is_owed: false,
            is_in_turns: false,
            short: 0,
            quick: 0,
            segment: guess,
            last_segment: 0,
            most_segment: mss.max(LEAST_SEGMENT),
            timeout: 0,
            deadline: None,
            last_data: Instant::ZERO,
        }
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What the peer's full segments seem to have, in bytes (`rcv_mss`).
    #[inline]
    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// How long one waits now (`ato`).
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout)
    }

    /// One has to leave now.
    #[inline]
    pub(super) fn request(&mut self) {
        self.is_due = true;
    }

    /// Data came whose segments have `size` bytes; the last one asked to be handed on if `psh`.
    /// `window` is what is left of the one announced.
    #[inline]
    pub(super) fn on_data(&mut self, now: Instant, size: u32, psh: bool, window: u32) {
        self.is_owed = true;
        self.note_size(size, psh);
        let pause = self.since_data(now);
        if self.timeout == 0 {
            self.be_quick(window);
        } else if pause <= LEAST / 2 {
            self.timeout = self.timeout / 2 + LEAST / 2;
        } else if pause < self.timeout {
            self.timeout = self.timeout / 2 + pause;
        } else if pause > PAUSE {
            self.renew_quick(window);
        }
        self.last_data = now;
    }

    /// Decides about data that came in order, of which `owed` bytes were not acknowledged. The round
    /// trip takes `rtt` nanoseconds, 0 if that is not known.
    #[inline]
    pub(super) fn schedule(&mut self, now: Instant, owed: u32, rtt: u64) {
        if owed > self.segment || self.is_quick() {
            self.is_due = true;
        } else if self.deadline.is_none() {
            self.deadline = Some(now + Duration::from_nanos(self.patience(rtt)));
        }
    }

    /// The application has read, and nothing more is there if `is_empty`: what it read can be
    /// acknowledged, with the window that it made.
    #[inline]
    pub(super) fn on_read(&mut self, owed: u32, is_empty: bool) {
        let is_end = self.short > 1 || self.short == 1 && !self.is_in_turns;
        if self.is_owed && (owed > self.segment || is_empty && is_end) {
            self.is_due = true;
        }
    }

    /// Something is missing, or came twice: what the peer learns late costs it time
    /// (`tcp_enter_quickack_mode`).
    pub(super) fn be_quick(&mut self, window: u32) {
        self.renew_quick(window);
        self.is_in_turns = false;
        self.timeout = LEAST;
    }

    /// Whether acknowledgements are quick, until the connection shows otherwise (`TCP_QUICKACK`).
    pub(super) fn set_quick(&mut self, is_quick: bool) {
        self.is_in_turns = !is_quick;
        self.is_due |= is_quick && self.is_owed;
    }

    /// Whether one waits past its time; it is due then.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        self.deadline = None;
        if !self.is_owed {
            return false;
        }
        if self.is_in_turns {
            // There was no answer to travel with.
            self.is_in_turns = false;
            self.timeout = LEAST;
        } else {
            // It comes slowly: wait longer for the next.
            self.timeout = (self.timeout * 2).min(MOST);
        }
        self.is_due = true;
        true
    }

    /// One left.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.is_due = false;
        self.is_owed = false;
        self.short = 0;
        self.deadline = None;
        if self.quick > 0 {
            self.quick -= 1;
            if self.quick == 0 {
                self.timeout = LEAST;
            }
        }
    }

    /// Data left. Soon after some came, it is an answer.
    #[inline]
    pub(super) fn on_data_sent(&mut self, now: Instant) {
        self.is_in_turns |= self.since_data(now) < self.timeout;
    }

    /// Nanoseconds since data came last.
    #[inline]
    fn since_data(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.last_data.as_nanos())
    }

    #[inline]
    fn is_quick(&self) -> bool {
        self.quick > 0 && !self.is_in_turns
    }

    /// How long the next one may wait: no longer than the peer would think it lost, as far as the
    /// round trip tells.
    fn patience(&self, rtt: u64) -> u64 {
        if self.timeout <= LEAST {
            return LEAST;
        }
        let most = match rtt == 0 {
            true => MOST,
            false => rtt.clamp(LEAST, MOST),
        };
        self.timeout.min(most)
    }

    fn renew_quick(&mut self, window: u32) {
        let quick = (window / (2 * self.segment)).clamp(2, QUICK);
        self.quick = self.quick.max(quick as u8);
    }

    /// Learns what a full segment has: the largest, or one smaller that comes again and again.
    #[inline]
    fn note_size(&mut self, size: u32, psh: bool) {
        if size >= self.segment {
            self.segment = size.min(self.most_segment);
        } else {
            if size == self.last_segment && size >= LEAST_SEGMENT && !psh {
                self.segment = size;
            }
            self.short = self.short.saturating_add(1);
        }
        self.last_segment = size;
    }
}
