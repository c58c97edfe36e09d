//! What `ss -ti` shows of a sender.

use core::time::Duration;

use super::{CaState, Sender};
use crate::tcp::congestion::{Algorithm, CongestionControl as _};
use crate::time::Instant;

/// The part of `TCP_INFO` that is about what goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SenderInfo {
    pub(crate) ca_state: CaState,
    pub(crate) algorithm: Algorithm,
    /// Packets.
    pub(crate) cwnd: u32,
    /// Packets; `None` until something was lost.
    pub(crate) ssthresh: Option<u32>,
    pub(crate) rto: Duration,
    pub(crate) srtt: Option<Duration>,
    pub(crate) rttvar: Duration,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) mss: u16,
    /// Packets sent and not acknowledged; of them sacked, lost, and retransmitted right now.
    pub(crate) unacked: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retrans: u32,
    /// Packets retransmitted since the beginning.
    pub(crate) total_retrans: u32,
    pub(crate) reordering: u32,
    /// Timeouts in a row.
    pub(crate) retransmits: u8,
    pub(crate) backoff: u8,
    /// Probes of a closed window in a row.
    pub(crate) probes: u8,
    /// Bytes a second.
    pub(crate) pacing_rate: Option<u64>,
    pub(crate) delivery_rate: Option<u64>,
    /// The delivery rate was the application's, not the path's.
    pub(crate) is_app_limited: bool,
    /// Packets that have come.
    pub(crate) delivered: u32,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) bytes_acked: u64,
    /// Segments with data, retransmitted ones too.
    pub(crate) data_segs_out: u64,
    /// Bytes.
    pub(crate) window: u32,
    pub(crate) unsent: u32,
    pub(crate) buffer: u32,
    /// Since something was sent, and since something was acknowledged.
    pub(crate) last_sent: Duration,
    pub(crate) last_ack: Duration,
}

impl Sender {
    /// How things stand.
    pub(crate) fn info(&self, now: Instant) -> SenderInfo {
        let ssthresh = self.congestion.ssthresh();
        let rate = self.rate.latest();
        SenderInfo {
            ca_state: self.recovery.state,
            algorithm: self.algorithm,
            cwnd: self.congestion.cwnd(),
            ssthresh: (ssthresh < u32::MAX / 2).then_some(ssthresh),
            rto: self.rtt.rto(self.timers.backoff),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.min_rtt.get(),
            mss: self.mss,
            unacked: self.scoreboard.packets_out(),
            sacked: self.scoreboard.sacked_out(),
            lost: self.scoreboard.lost_out(),
            retrans: self.scoreboard.retrans_out(),
            total_retrans: self.totals.retrans,
            reordering: u32::from(self.recovery.reordering),
            retransmits: self.timers.retransmits,
            backoff: self.timers.backoff,
            probes: self.timers.probes_out,
            pacing_rate: self.pacing_rate(),
            delivery_rate: rate.map(|(rate, _)| rate),
            is_app_limited: rate.is_some_and(|(_, is_app_limited)| is_app_limited),
            delivered: self.rate.delivered(),
            bytes_sent: self.totals.bytes_sent,
            bytes_retrans: self.totals.bytes_retrans,
            bytes_acked: self.totals.bytes_acked,
            data_segs_out: self.totals.data_segs_out,
            window: self.window,
            unsent: self.unsent_bytes(),
            buffer: self.buffer,
            last_sent: now - self.totals.last_sent,
            last_ack: now - self.totals.last_ack,
        }
    }
}
