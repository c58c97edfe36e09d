//! SYN cookies: connections that are half open and of which nothing is kept (RFC 4987 section 3.6).
//!
//! When a listener's queue is full, the initial sequence number of the answer says what matters of
//! the SYN, sealed with a secret: whoever acknowledges it has seen the answer, and gets its
//! connection. The low bits of the answer's timestamp, if the peer sends any, say which options
//! were agreed on; without timestamps there is no room for them, and the connection has none.
//!
//! ```text
//! cookie = hash(flow) + SYN's sequence number + minute (8 bits) | hash(flow, SYN, minute) + MSS class (24 bits)
//! ```
//!
//! So cookies of a flow grow with the peer's numbers, as RFC 9293 wants initial sequence numbers to
//! grow with time.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::isn::timestamp;
use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::time::Instant;
use crate::wire::seq::Seq;

/// For how long the minute that cookies hold counts.
const PERIOD: Duration = Duration::from_secs(60);
/// Cookies of this minute and the last are good: for one minute at least, two at most.
const PERIODS: u32 = 2;
/// For so long after the last cookie an acknowledgement may hold one.
const VALID: Duration = Duration::from_secs(120);

/// What the low bits of a cookie say.
const LOW_BITS: u32 = 24;
const LOW: u32 = (1 << LOW_BITS) - 1;

/// The MSS classes, as Linux has them: the ones that are met often. A peer gets the next lower one.
const CLASSES_V4: [u16; 4] = [536, 1300, 1440, 1460];
const CLASSES_V6: [u16; 4] = [1220, 1420, 1440, 8940];

/// Bits of a timestamp that hold options.
const OPTION_BITS: u32 = 6;
const OPTIONS: u32 = (1 << OPTION_BITS) - 1;
/// Shift of the window; all ones: not scaled.
const SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;

/// The secrets, and when they were needed last.
#[derive(Debug)]
pub(crate) struct Cookies {
    flow: Key,
    syn: Key,
    /// Nanoseconds plus one; 0: never.
    last_made: AtomicU64,
}

/// Options that a connection begun by a cookie has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreed {
    /// Shift of the peer's window, if both scale.
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
}

impl Cookies {
    /// Cookies that nobody makes who does not know the key.
    pub(crate) fn new(key: Key) -> Self {
        let derive = |nth| Key([key.hash([nth, 0], 0, 0), key.hash([nth, 1], 0, 0)]);
        Self {
            flow: derive(3),
            syn: derive(4),
            last_made: AtomicU64::new(0),
        }
    }

    /// The initial sequence number that answers a SYN of this number whose sender takes `mss` bytes
    /// in a segment.
    pub(crate) fn make(&self, flow: &Flow, irs: Seq, mss: u16, now: Instant) -> Seq {
        self.last_made
            .fetch_max(now.as_nanos() + 1, Ordering::Relaxed);
        let class = classes(flow).iter().rposition(|class| *class <= mss);
        let minute = minute(now);
        let low = self
            .seal(flow, irs, minute)
            .wrapping_add(class.unwrap_or(0) as u32);
        let sealed = minute << LOW_BITS | low & LOW;
        Seq(sealed) + self.base(flow) + irs.0
    }

    /// The MSS that a cookie says, if it is one of ours, and not too old. `iss` is one less than what
    /// was acknowledged, `irs` one less than the number of the segment that did.
    pub(crate) fn check(&self, flow: &Flow, iss: Seq, irs: Seq, now: Instant) -> Option<u16> {
        if !self.may_come(now) {
            return None;
        }
        let Seq(sealed) = iss - self.base(flow) - irs.0;
        let now = minute(now);
        let age = now.wrapping_sub(sealed >> LOW_BITS) & 0xff;
        if age >= PERIODS {
            return None;
        }
        let class = sealed.wrapping_sub(self.seal(flow, irs, now.wrapping_sub(age))) & LOW;
        classes(flow).get(class as usize).copied()
    }

    /// Whether cookies are under way: if not, nobody needs to look for one.
    pub(crate) fn may_come(&self, now: Instant) -> bool {
        let last = self.last_made.load(Ordering::Relaxed);
        last != 0 && now - Instant::from_nanos(last - 1) <= VALID
    }

    fn base(&self, flow: &Flow) -> u32 {
        flow.secret(self.flow) as u32
    }

    fn seal(&self, flow: &Flow, irs: Seq, minute: u32) -> u32 {
        let flow = flow.secret(self.syn);
        self.syn
            .hash([flow, u64::from(irs.0) << 32 | u64::from(minute)], 0, 0) as u32
    }
}

fn minute(now: Instant) -> u32 {
    (now.as_nanos() / PERIOD.as_nanos() as u64) as u32
}

fn classes(flow: &Flow) -> &'static [u16; 4] {
    match flow.is_ipv4() {
        true => &CLASSES_V4,
        false => &CLASSES_V6,
    }
}

impl Agreed {
    /// The timestamp of an answer that says these, without the flow's offset: the clock's, or a bit
    /// less, for a clock must not go back.
    pub(crate) fn to_timestamp(self, now: Instant) -> u32 {
        let scale = self
            .window_scale
            .map_or(SCALE, |scale| u32::from(scale).min(SCALE - 1));
        let sack = if self.sack { SACK } else { 0 };
        let ecn = if self.ecn { ECN } else { 0 };
        let now = timestamp(now);
        let value = now & !OPTIONS | scale | sack | ecn;
        if value > now {
            value.wrapping_sub(1 << OPTION_BITS)
        } else {
            value
        }
    }

    /// What an echoed timestamp says, without the flow's offset.
    pub(crate) fn from_timestamp(value: u32) -> Self {
        let scale = value & SCALE;
        Self {
            window_scale: (scale != SCALE).then_some(scale as u8),
            sack: value & SACK != 0,
            ecn: value & ECN != 0,
        }
    }
}

#[cfg(test)]
mod tests;
