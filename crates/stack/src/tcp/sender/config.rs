//! What a sender is made with.

use core::time::Duration;

use crate::tcp::congestion::Algorithm;
use crate::wire::seq::Seq;

/// The knobs that a sender heeds, as they were when the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SenderKnobs {
    /// `tcp_rto_min_us`.
    pub(crate) rto_min: Duration,
    /// `tcp_rto_max_ms`.
    pub(crate) rto_max: Duration,
    /// `tcp_min_rtt_wlen`.
    pub(crate) min_rtt_window: Duration,
    /// `tcp_retries1`: timeouts after which the path itself is doubted.
    pub(crate) retries1: u8,
    /// `tcp_retries2`: timeouts after which the connection is given up.
    pub(crate) retries2: u8,
    /// `tcp_reordering`, packets.
    pub(crate) reordering: u16,
    /// `tcp_max_reordering`, packets.
    pub(crate) max_reordering: u16,
    /// `tcp_recovery`: bit 0 RACK, bit 1 its window never grows, bit 2 it has one from the start.
    pub(crate) recovery: u8,
    /// `tcp_early_retrans`: a tail loss probe at 3 and 4.
    pub(crate) early_retrans: u8,
    /// `tcp_frto`.
    pub(crate) frto: u8,
    /// `tcp_slow_start_after_idle`.
    pub(crate) slow_start_after_idle: bool,
    /// `tcp_thin_linear_timeouts`.
    pub(crate) thin_linear_timeouts: bool,
    /// `tcp_mtu_probing`: 1 if large segments seem to vanish, 2 always.
    pub(crate) mtu_probing: u8,
    /// `tcp_base_mss`: where probing starts, payload and options.
    pub(crate) base_mss: u16,
    /// `tcp_mtu_probe_floor`: below which no search goes.
    pub(crate) mtu_probe_floor: u16,
    /// `tcp_probe_threshold`: a search ends when it is this narrow, bytes.
    pub(crate) probe_threshold: u16,
    /// `tcp_probe_interval`: a search begins anew after this.
    pub(crate) probe_interval: Duration,
    /// `tcp_pacing_ss_ratio`, percent.
    pub(crate) pacing_ss_ratio: u16,
    /// `tcp_pacing_ca_ratio`, percent.
    pub(crate) pacing_ca_ratio: u16,
}

/// What a sender keeps of its knobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knobs {
    pub(super) retries1: u8,
    pub(super) retries2: u8,
    pub(super) recovery: u8,
    pub(super) early_retrans: u8,
    pub(super) frto: u8,
    pub(super) mtu_probing: u8,
    pub(super) slow_start_after_idle: bool,
    pub(super) thin_linear_timeouts: bool,
    pub(super) reordering: u16,
    pub(super) max_reordering: u16,
    pub(super) mtu_probe_floor: u16,
    pub(super) probe_threshold: u16,
    pub(super) pacing_ss_ratio: u16,
    pub(super) pacing_ca_ratio: u16,
    /// Seconds.
    pub(super) probe_interval: u32,
}

impl From<&SenderKnobs> for Knobs {
    fn from(knobs: &SenderKnobs) -> Self {
        Self {
            retries1: knobs.retries1,
            retries2: knobs.retries2,
            recovery: knobs.recovery,
            early_retrans: knobs.early_retrans,
            frto: knobs.frto,
            mtu_probing: knobs.mtu_probing,
            slow_start_after_idle: knobs.slow_start_after_idle,
            thin_linear_timeouts: knobs.thin_linear_timeouts,
            reordering: knobs.reordering,
            max_reordering: knobs.max_reordering,
            mtu_probe_floor: knobs.mtu_probe_floor,
            probe_threshold: knobs.probe_threshold,
            pacing_ss_ratio: knobs.pacing_ss_ratio,
            pacing_ca_ratio: knobs.pacing_ca_ratio,
            probe_interval: u32::try_from(knobs.probe_interval.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

impl Default for SenderKnobs {
    fn default() -> Self {
        Self {
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            min_rtt_window: Duration::from_secs(300),
            retries1: 3,
            retries2: 15,
            reordering: 3,
            max_reordering: 300,
            recovery: 1,
            early_retrans: 3,
            frto: 2,
            slow_start_after_idle: true,
            thin_linear_timeouts: false,
            mtu_probing: 0,
            base_mss: 1_024,
            mtu_probe_floor: 48,
            probe_threshold: 8,
            probe_interval: Duration::from_secs(600),
            pacing_ss_ratio: 200,
            pacing_ca_ratio: 120,
        }
    }
}

/// What the handshake has settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderConfig {
    /// The first byte's sequence number: ISS + 1.
    pub(crate) first: Seq,
    /// The peer's window, bytes.
    pub(crate) window: u32,
    /// Sequence number of the segment that the window came with.
    pub(crate) window_seq: Seq,
    /// Payload bytes of a segment, options taken off.
    pub(crate) mss: u16,
    /// Bytes that may wait for their acknowledgement: `SO_SNDBUF`, or `tcp_wmem`'s second number.
    pub(crate) buffer: u32,
    /// How far the buffer may grow by itself: `tcp_wmem`'s third number; at most `buffer` if the
    /// application has set it.
    pub(crate) max_buffer: u32,
    /// The peer knows selective acknowledgements.
    pub(crate) sack: bool,
    /// Segments carry timestamps.
    pub(crate) timestamps: bool,
    /// Congestion is told by marks (RFC 3168).
    pub(crate) ecn: bool,
    pub(crate) algorithm: Algorithm,
    /// Packets; 10 (RFC 6928).
    pub(crate) initial_cwnd: u32,
    /// What the handshake took, if it is known whose answer came.
    pub(crate) handshake_rtt: Option<Duration>,
    /// The handshake was retransmitted: the path loses packets.
    pub(crate) syn_retransmitted: bool,
    pub(crate) knobs: SenderKnobs,
}
