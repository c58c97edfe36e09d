//! What a stack has done: totals, and the difference between two of them.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::counters::{Counter, Snapshot};
use forebay::drop::DropReason;
use serde::Serialize;

use super::traffic::Tally;

/// Drops of packets that were counted as delivered before: what a protocol or a socket did not
/// take.
const AFTER_DELIVERY: &[DropReason] = &[
    DropReason::IcmpCsum,
    DropReason::IcmpInvalid,
    DropReason::IcmpNoSocket,
    DropReason::IcmpEchoIgnored,
    DropReason::IcmpBroadcast,
    DropReason::IcmpUnknownType,
    DropReason::IcmpIgnored,
    DropReason::IcmpNoReply,
    DropReason::ProtocolIgnored,
    DropReason::IgmpCsum,
    DropReason::IgmpInvalid,
    DropReason::UdpLength,
    DropReason::UdpCsum,
    DropReason::UdpNoSocket,
    DropReason::UdpIgnoredMulti,
    DropReason::SocketFilter,
    DropReason::SocketRcvbuff,
    DropReason::ProtoMem,
    DropReason::SocketClosed,
    DropReason::TcpHdr,
    DropReason::TcpCsum,
    DropReason::TcpNoSocket,
];

/// Counts since the stack began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    packets: u64,
    bytes: u64,
    forwarded: u64,
    delivered: u64,
    drops: BTreeMap<&'static str, u64>,
    traffic: Tally,
}

/// What happened in a span of time, both families together.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Seconds.
    pub(crate) seconds: f64,
    /// IP packets that came in.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Packets sent on.
    pub(crate) forwarded: u64,
    /// Packets that a socket or a protocol took.
    pub(crate) delivered: u64,
    /// Packets dropped.
    pub(crate) dropped: u64,
    /// Those by reason, without reasons that did not occur.
    pub(crate) drops: BTreeMap<&'static str, u64>,
    /// Generated traffic, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic: Option<Tally>,
}

/// Packets that a socket or a protocol of this host took.
pub(crate) fn delivered(counters: &Snapshot) -> u64 {
    let handed_on = counters.get(Counter::IpInDelivers) + counters.get(Counter::Ip6InDelivers);
    let not_taken = AFTER_DELIVERY
        .iter()
        .map(|reason| counters.dropped(*reason));
    handed_on.saturating_sub(not_taken.sum())
}

impl Totals {
    pub(super) fn new(counters: &Snapshot, traffic: Tally) -> Self {
        let sum =
            |names: [Counter; 2]| -> u64 { names.iter().map(|name| counters.get(*name)).sum() };
        let drops = counters.drops().filter(|(_, count)| *count > 0);
        Self {
            // What no backlog had room for has come in, too, if not as far as IP.
            packets: sum([Counter::IpInReceives, Counter::Ip6InReceives])
                + counters.dropped(DropReason::CpuBacklog),
            bytes: sum([Counter::IpExtInOctets, Counter::Ip6InOctets]),
            forwarded: sum([Counter::IpForwDatagrams, Counter::Ip6OutForwDatagrams]),
            delivered: delivered(counters),
            drops: drops
                .map(|(reason, count)| (reason.name(), count))
                .collect(),
            traffic,
        }
    }

    /// What has happened since `earlier`, which was `span` ago.
    pub(crate) fn since(&self, earlier: Option<&Self>, span: Duration) -> Report {
        let before = |count: fn(&Self) -> u64| earlier.map_or(0, count);
        let dropped_before = |reason| {
            let count = earlier.and_then(|earlier| earlier.drops.get(reason));
            count.copied().unwrap_or(0)
        };
        let drops = self.drops.iter();
        let drops: BTreeMap<_, _> = drops
            .map(|(reason, count)| (*reason, count.saturating_sub(dropped_before(*reason))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let traffic = match earlier {
            Some(earlier) => self.traffic.since(&earlier.traffic),
            None => self.traffic,
        };
        Report {
            seconds: span.as_secs_f64(),
            packets: self.packets.saturating_sub(before(|totals| totals.packets)),
            bytes: self.bytes.saturating_sub(before(|totals| totals.bytes)),
            forwarded: self
                .forwarded
                .saturating_sub(before(|totals| totals.forwarded)),
            delivered: self
                .delivered
                .saturating_sub(before(|totals| totals.delivered)),
            dropped: drops.values().sum(),
            drops,
            traffic: (self.traffic != Tally::default()).then_some(traffic),
        }
    }
}

impl Report {
    /// The reasons of drops, the most frequent first.
    pub(crate) fn top_reasons(&self) -> Vec<(&'static str, u64)> {
        let mut reasons: Vec<_> = self
            .drops
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
    }
}
