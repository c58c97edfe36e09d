//! Keepalive (RFC 1122 section 4.2.3.6): a peer that has been silent for long is asked for an
//! acknowledgement, by a segment that lies just before its window.

use core::time::Duration;

use super::segment::Outgoing;
use super::{Connection, Hands};
use crate::counters::Counter;
use crate::time::Instant;
use crate::wire::tcp::FLAG_ACK;

/// One connection's keepalive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keepalive {
    pub(crate) is_on: bool,
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u8,
    heard_at: Instant,
    probes: u8,
}

impl Keepalive {
    pub(crate) fn new(is_on: bool, idle: Duration, interval: Duration, count: u8) -> Self {
        Self {
            is_on,
            idle,
            interval,
            count,
            heard_at: Instant::ZERO,
            probes: 0,
        }
    }

    /// Is as patient as `other` from now on.
    pub(crate) fn set(&mut self, other: &Self) {
        *self = Self {
            heard_at: self.heard_at,
            probes: self.probes,
            ..*other
        };
    }

    /// The peer is there.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.probes = 0;
    }

    /// Probes sent since the peer was last heard of.
    pub(crate) fn probes(&self) -> u8 {
        self.probes
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let wait = self.idle + self.interval * u32::from(self.probes);
        self.is_on.then(|| self.heard_at + wait)
    }
}

impl Connection {
    /// Asks, if it is time to. True if the peer has been asked often enough.
    pub(super) fn on_keepalive(&mut self, hands: &mut Hands<'_>) -> bool {
        let keepalive = &mut self.manners.keepalive;
        if keepalive
            .deadline()
            .is_none_or(|deadline| hands.now < deadline)
        {
            return false;
        }
        if keepalive.probes >= keepalive.count {
            return true;
        }
        keepalive.probes += 1;
        hands.events.count(Counter::TcpExtTCPKeepAlive);
        let mut probe = self.acknowledgement(hands);
        probe.seq = self.sender.una() - 1;
        debug_assert_eq!(probe.flags, FLAG_ACK);
        self.reply = Some(Outgoing { ..probe });
        false
    }
}
