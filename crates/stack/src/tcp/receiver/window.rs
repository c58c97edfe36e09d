//! How much the peer may send (RFC 9293 section 3.8.6.2, RFC 7323 section 2).
//!
//! The window's right edge never moves back: what was offered is taken, whatever became of the
//! buffer since. How large the buffer has to be is learnt (dynamic right-sizing): twice what the
//! application reads in a round trip, so that the window never holds back a sender that doubles
//! what it has in flight (Linux's `tcp_rcv_space_adjust`).

use core::time::Duration;

use crate::tcp::chunks::CHUNK;
use crate::time::Instant;
use crate::wire::seq::Seq;

/// Segments of an initial congestion window (RFC 6928).
const INITIAL_CWND: u32 = 10;
/// A buffer is never less (`SOCK_MIN_RCVBUF`), nor more.
const LEAST_BUFFER: u32 = 2_304;
const MOST_BUFFER: u32 = 1 << 30;
/// Segments that one may hold while all connections together hold much.
const UNDER_PRESSURE: u32 = 8;

#[derive(Debug)]
pub(super) struct Window {
    /// The byte behind the last that was offered.
    edge: Seq,
    /// What the last segment announced, in bytes.
    announced: u32,
    /// Shift of what segments say.
    scale: u8,
    /// Connections together hold much.
    is_under_pressure: bool,
    /// Largest segment, in bytes.
    mss: u32,
    /// Bytes of memory (`sk_rcvbuf`), what of it can be offered, and what it may grow to.
    buffer: u32,
    usable: u32,
    max_buffer: u32,
    /// The most that is offered yet: grows with what comes (`rcv_ssthresh`).
    threshold: u32,
    learning: Learning,
}

/// What is learnt about the rate at which the application reads.
#[derive(Debug)]
struct Learning {
    /// Nanoseconds; 0 if it is not known.
    rtt: u64,
    /// Timestamps tell it.
    is_told: bool,
    /// A window that is being timed where they don't: its end, and when it began.
    timed: Option<(Seq, Instant)>,
    /// Most bytes that were read in one round trip.
    most: u32,
    /// Where the present round trip began.
    from: Seq,
    since: Instant,
}

/// What a window starts from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// The first byte that the peer sends.
    pub(super) next: Seq,
    /// What the SYN offered, in bytes.
    pub(super) window: u32,
    pub(super) scale: u8,
    pub(super) mss: u32,
    pub(super) buffer: u32,
    pub(super) max_buffer: u32,
    pub(super) now: Instant,
}

impl Window {
    pub(super) fn new(start: &Start) -> Self {
        let buffer = start.buffer.clamp(LEAST_BUFFER, MOST_BUFFER);
        Self {
            edge: start.next + start.window,
            announced: start.window,
            scale: start.scale,
            is_under_pressure: false,
            mss: start.mss,
            buffer,
            usable: usable(buffer),
            max_buffer: start.max_buffer.min(MOST_BUFFER),
            threshold: start.window,
            learning: Learning {
                rtt: 0,
                is_told: false,
                timed: None,
                most: start.window.min(INITIAL_CWND * start.mss),
                from: start.next,
                since: start.now,
            },
        }
    }

    /// The byte behind the last that the peer may send.
    #[inline]
    pub(super) fn edge(&self) -> Seq {
        self.edge
    }

    /// What the last segment announced, in bytes.
    #[inline]
    pub(super) fn announced(&self) -> u32 {
        self.announced
    }

    /// Bytes of memory that may be held.
    pub(super) fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Most bytes read in a round trip (`rcvq_space.space`).
    pub(super) fn read_in_a_round_trip(&self) -> u32 {
        self.learning.most
    }

    #[inline]
    pub(super) fn rtt(&self) -> u64 {
        self.learning.rtt
    }

    /// Sets the buffer's size, once and for all (`SO_RCVBUF`).
    pub(super) fn set_buffer(&mut self, bytes: u32) {
        self.buffer = bytes.clamp(LEAST_BUFFER, MOST_BUFFER);
        self.usable = usable(self.buffer);
        self.max_buffer = self.buffer;
        self.threshold = self.threshold.max(self.usable);
    }

    #[inline]
    pub(super) fn note_pressure(&mut self, is_under_pressure: bool) {
        self.is_under_pressure = is_under_pressure;
    }

    /// Data came: the peer's window opens, so ours does (`tcp_grow_window`).
    #[inline]
    pub(super) fn on_data(&mut self, len: u32) {
        let most = self.usable;
        if self.threshold < most && !self.is_under_pressure {
            let more = 2 * len.max(self.mss);
            self.threshold = most.min(self.threshold.saturating_add(more));
        }
    }

    /// Moves the edge, if there is room for it, and returns the window that a segment is to
    /// announce: bytes from `next` on, a multiple of the scale. `read` is the first byte that was
    /// not read; the peer's segments have `segment` bytes.
    #[inline]
    pub(super) fn announce(&mut self, next: Seq, read: Seq, segment: u32) -> u32 {
        self.announced = self.next_window(next, read, segment);
        self.announced
    }

    #[inline]
    fn next_window(&mut self, next: Seq, read: Seq, segment: u32) -> u32 {
        let left = self.edge.since(next);
        let offer = self.offer(next, read, segment);
        if offer > left {
            self.edge = next + offer;
            return offer;
        }
        // What is left may be no multiple. Rounding up is the way not to take back what was offered
        // (RFC 7323 section 2.4), but not for ever, or many small segments push the edge on.
        let unit = self.unit();
        let limit = read + self.all() + unit;
        let up = left.next_multiple_of(unit);
        if (next + up).is_after(limit) || up > self.most_announced() {
            return left - left % unit;
        }
        self.edge = self.edge.max(next + up);
        up
    }

    /// Whether the application has read so much that the peer should hear of it: twice what it may
    /// send otherwise.
    #[inline]
    pub(super) fn is_worth_telling(&self, next: Seq, read: Seq, segment: u32) -> bool {
        let left = self.edge.since(next);
        if left > self.all().min(self.threshold) / 2 {
            return false;
        }
        let offer = self.offer(next, read, segment);
        offer > 0 && offer >= 2 * left
    }

    /// What could be offered now, whatever was before. None rather than a little, against silly
    /// windows (RFC 9293 section 3.8.6.2.2).
    #[inline]
    fn offer(&self, next: Seq, read: Seq, segment: u32) -> u32 {
        let all = self.all();
        let free = all.saturating_sub(next - read);
        if free < all / 16 || free < segment.min(all) {
            return 0;
        }
        let offer = free.min(self.threshold).min(self.most_announced());
        offer - offer % self.unit()
    }

    /// Bytes that may be there and on their way, by now.
    #[inline]
    fn all(&self) -> u32 {
        match self.is_under_pressure {
            true => self.usable.min(UNDER_PRESSURE * self.mss),
            false => self.usable,
        }
    }

    #[inline]
    fn unit(&self) -> u32 {
        1 << self.scale
    }

    #[inline]
    fn most_announced(&self) -> u32 {
        u32::from(u16::MAX) << self.scale
    }
}

/// Learning.
impl Window {
    /// A round trip was measured, by timestamps.
    #[inline]
    pub(super) fn note_rtt(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        let known = self.learning.rtt;
        self.learning.is_told = true;
        self.learning.rtt = match known == 0 {
            true => rtt,
            false => known - known / 8 + rtt / 8,
        };
    }

    /// Without timestamps: from an acknowledgement until the window that it offered is full takes a
    /// round trip or more, so the least of those is taken.
    #[inline]
    pub(super) fn time(&mut self, now: Instant, next: Seq) {
        if self.learning.is_told {
            return;
        }
        let Some((end, since)) = self.learning.timed else {
            self.learning.timed = Some((self.edge, now));
            return;
        };
        if next.is_before(end) {
            return;
        }
        let took = nanos(now - since).max(1);
        let known = self.learning.rtt;
        if known == 0 || took < known {
            self.learning.rtt = took;
        }
        self.learning.timed = Some((self.edge, now));
    }

    /// The application has read up to `read`. A round trip after the last time, the buffer becomes
    /// what the rate asks for.
    #[inline]
    pub(super) fn on_read(&mut self, now: Instant, read: Seq) {
        let learning = &self.learning;
        let passed = now.as_nanos().saturating_sub(learning.since.as_nanos());
        if learning.rtt == 0 || passed < learning.rtt {
            return;
        }
        let copied = read - learning.from;
        if copied > learning.most {
            self.grow(copied);
            self.learning.most = copied;
        }
        (self.learning.from, self.learning.since) = (read, now);
    }

    /// So much was read in a round trip, more than ever. By the next one it may be twice as much,
    /// and more if it has grown faster than that.
    #[cold]
    fn grow(&mut self, copied: u32) {
        if self.is_under_pressure {
            return;
        }
        let (copied, most) = (u64::from(copied), u64::from(self.learning.most.max(1)));
        let window = 2 * copied + 16 * u64::from(self.mss);
        let faster = window * (copied - most) / most;
        let window = window.saturating_add(2 * faster);
        let buffer = window.saturating_add(2 * CHUNK as u64);
        let buffer = u32::try_from(buffer)
            .unwrap_or(u32::MAX)
            .min(self.max_buffer);
        self.buffer = self.buffer.max(buffer);
        self.usable = usable(self.buffer);
    }
}

/// Bytes of a buffer that can be offered: all but the two chunks that may be filled only in part,
/// the first and the last, and half of a small one.
#[inline]
fn usable(buffer: u32) -> u32 {
    (buffer / 2).max(buffer.saturating_sub(2 * CHUNK as u32))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
