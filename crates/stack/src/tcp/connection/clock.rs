//! Timestamps (RFC 7323): what ours say, and what the peer's last one was.

use core::time::Duration;

use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp_options::Timestamps;

/// Ticks of our clock are milliseconds (section 5.4 allows 1 ms to 1 s).
const TICK: Duration = Duration::from_millis(1);

/// After so long without a segment the peer's clock may have gone round (section 5.5).
const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3_600);

/// One connection's timestamps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampClock {
    /// What our clock is ahead of the stack's: no two peers see the same (section 7.1).
    offset: u32,
    /// TS.Recent.
    recent: u32,
    recent_at: Instant,
}

impl TimestampClock {
    /// `recent` is what the peer's SYN said.
    pub(crate) fn new(offset: u32, recent: u32, now: Instant) -> Self {
        Self {
            offset,
            recent,
            recent_at: now,
        }
    }

    /// What a clock says that is `offset` ahead.
    pub(crate) fn value(offset: u32, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(offset)
    }

    /// The option of a segment that leaves.
    pub(crate) fn stamp(&self, now: Instant) -> Timestamps {
        Timestamps {
            value: Self::value(self.offset, now),
            echo: self.recent,
        }
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn recent(&self) -> u32 {
        self.recent
    }

    /// Whether the segment is older than one that we have had: another's, from before the sequence
    /// numbers went round (section 5.3, R1).
    pub(crate) fn is_old(&self, theirs: Timestamps, now: Instant) -> bool {
        Seq(theirs.value).is_before(Seq(self.recent)) && now - self.recent_at < OUTDATED
    }

    pub(crate) fn recent_at(&self) -> Instant {
        self.recent_at
    }

    /// A segment came that begins at or before what we have acknowledged (section 4.3).
    pub(crate) fn update(&mut self, theirs: Timestamps, now: Instant) {
        if !Seq(theirs.value).is_before(Seq(self.recent)) || now - self.recent_at >= OUTDATED {
            self.recent = theirs.value;
            self.recent_at = now;
        }
    }

    /// The time since the segment left that is acknowledged here, if its echo can be ours
    /// (section 4.1). A tick at least: less cannot be seen.
    pub(crate) fn round_trip(&self, theirs: Timestamps, now: Instant) -> Option<Duration> {
        if theirs.echo == 0 {
            return None;
        }
        let ticks = Self::value(self.offset, now).wrapping_sub(theirs.echo);
        (ticks < 1 << 31).then(|| TICK * ticks.max(1))
    }
}
