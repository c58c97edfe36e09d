//! How fast the path delivers (draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Each packet keeps how much had been delivered when it left. When it is acknowledged, what was
//! delivered since, over the time that this took, is a sample. That time is the longer of how long
//! the packets took to leave and how long their acknowledgements took to come: neither a burst of
//! the one nor of the other makes a path faster than it is.

use core::time::Duration;

use super::scoreboard::{Sent, Turn};
use crate::tcp::congestion::RateSample;
use crate::time::Instant;

/// How far delivery was when a packet left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Snapshot {
    /// Packets delivered.
    delivered: u32,
    /// The application had given less than the path could carry.
    is_app_limited: bool,
    /// When the last of them was.
    delivered_at: Instant,
    /// When the flight began to leave that this packet belongs to.
    first_sent_at: Instant,
}

/// What is counted over a connection's life.
#[derive(Debug, Clone, Default)]
pub(super) struct Rate {
    /// Packets delivered.
    delivered: u32,
    /// Packets thought lost, once for each time.
    pub(super) lost: u32,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Samples are the application's speed until this many are delivered; 0 if they are not.
    app_limited_until: u32,
    /// The last sample in bytes a second, 0 before there was one; and whether it was the
    /// application's speed.
    latest: u64,
    is_latest_app_limited: bool,
}

/// The newest packet that an acknowledgement has delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    newest: Option<(Snapshot, Instant, Turn)>,
    /// Packets.
    pub(super) packets: u32,
}

impl Delivery {
    /// Takes account of a piece that is delivered now.
    pub(super) fn add(&mut self, sent: &Sent) {
        self.packets += sent.packets();
        let turn = sent.turn();
        if self
            .newest
            .is_none_or(|(_, _, newest)| turn.is_after(newest))
        {
            self.newest = Some((sent.rate, sent.sent_at, turn));
        }
    }
}

impl Rate {
    /// What a packet keeps that leaves now.
    pub(super) fn snapshot(&mut self, now: Instant, is_first: bool) -> Snapshot {
        if is_first {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            is_app_limited: self.app_limited_until != 0,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        }
    }

    /// The application has given all that it has, and the path could take more.
    pub(super) fn set_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = self.delivered.wrapping_add(in_flight).max(1);
    }

    /// The last sample in bytes a second, and whether it was the application's speed.
    pub(super) fn latest(&self) -> Option<(u64, bool)> {
        (self.latest > 0).then_some((self.latest, self.is_latest_app_limited))
    }

    /// Packets delivered over the connection's life.
    pub(super) fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Takes in what an acknowledgement has delivered. `lost_before` is [`Self::lost`] as it was
    /// ahead of the acknowledgement.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        lost_before: u32,
        mss: u16,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        if delivery.packets > 0 {
            self.delivered = self.delivered.wrapping_add(delivery.packets);
            self.delivered_at = now;
        }
        let over = self.delivered.wrapping_sub(self.app_limited_until) as i32;
        if self.app_limited_until != 0 && over > 0 {
            self.app_limited_until = 0;
        }
        let (snapshot, sent_at, _) = delivery.newest?;
        self.first_sent_at = sent_at;
        let delivered = self.delivered.wrapping_sub(snapshot.delivered);
        let interval = (sent_at - snapshot.first_sent_at).max(now - snapshot.delivered_at);
        // Faster than the shortest round trip cannot be: such a sample comes of a retransmission
        // whose original was acknowledged.
        if interval.is_zero() || min_rtt.is_some_and(|least| interval < least) {
            return None;
        }
        let bytes = f64::from(delivered) * f64::from(mss);
        let bytes_per_sec = (bytes / interval.as_secs_f64()) as u64;
        let is_app_limited = snapshot.is_app_limited;
        if !is_app_limited || bytes_per_sec >= self.latest {
            self.latest = bytes_per_sec;
            self.is_latest_app_limited = is_app_limited;
        }
        Some(RateSample {
            bytes_per_sec,
            interval,
            is_app_limited,
            delivered: u64::from(delivered),
            prior_delivered: u64::from(snapshot.delivered),
            losses: self.lost.wrapping_sub(lost_before),
        })
    }
}
