//! What a stack does, for `forebay top`: sums since it started, of which the command takes the
//! differences.
//!
//! Asking for it makes the stack measure what its stages take, until the connection ends.

use serde::{Deserialize, Serialize};

use super::Drops;

/// A stack at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Activity {
    /// Names one run of a stack.
    pub(crate) run: String,
    /// The moment, in nanoseconds of the stack's clock.
    pub(crate) at: u64,
    /// Its workers.
    pub(crate) cores: Vec<CoreActivity>,
    /// The queues of its devices.
    pub(crate) queues: Vec<QueueActivity>,
    /// Packets dropped by whomever, by reason; reasons that never occurred are left out.
    pub(crate) drops: Vec<Drops>,
    /// Entries of the table of flows that are read (`net.core.rps_sock_flow_entries`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sock_flow_entries: Option<u64>,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoreActivity {
    pub(crate) core: u16,
    /// Nanoseconds that it has slept; none if nobody works there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<u64>,
    /// Packets it has taken in, and how many of them other cores had left to it.
    pub(crate) processed: u64,
    pub(crate) received_rps: u64,
    pub(crate) time_squeeze: u64,
    /// Packets that other cores have left and that it has not taken up.
    pub(crate) backlog: u64,
    pub(crate) forwarded: u64,
    pub(crate) delivered: u64,
    /// Packets it has dropped, by reason.
    pub(crate) drops: Vec<(String, u64)>,
    /// Flows that it had packets of in the last second, about.
    pub(crate) flows: u64,
    /// Entries of the table of flows that say they are read here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flows_read: Option<u64>,
    pub(crate) stages: StageActivity,
}

/// What the stages took where that was measured, in cycles of the time-stamp counter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StageActivity {
    pub(crate) batches: u64,
    pub(crate) packets: u64,
    pub(crate) validate: u64,
    pub(crate) early_demux: u64,
    pub(crate) route: u64,
    pub(crate) act: u64,
}

/// A queue of a device, with the counters of `ip -s link`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueActivity {
    pub(crate) dev: String,
    pub(crate) queue: u16,
    /// The worker that drives it.
    pub(crate) core: u16,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_dropped: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_dropped: u64,
    pub(crate) tx_errors: u64,
    /// Packets that wait for the device.
    pub(crate) waiting: u64,
}
