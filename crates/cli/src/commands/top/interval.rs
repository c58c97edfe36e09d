//! What a stack did between two looks at it.

use serde::Serialize;

use crate::control::protocol::{Activity, CoreActivity, Drops, QueueActivity, StageActivity};

/// An interval, as it is printed in JSON: packets are those of the interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Interval {
    pub(super) stack: String,
    /// How long it was.
    pub(super) seconds: f64,
    pub(super) cores: Vec<Core>,
    pub(super) queues: Vec<Queue>,
    /// Reasons that ever occurred, the most frequent first.
    pub(super) drops: Vec<Reason>,
    /// The table of flows that are read; null if there is none.
    pub(super) sock_flows: Option<SockFlows>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Core {
    pub(super) core: u16,
    /// Share of the time that it did not sleep, from 0 to 1; null if nobody works there.
    pub(super) busy: Option<f64>,
    pub(super) processed: u64,
    pub(super) received_rps: u64,
    pub(super) time_squeeze: u64,
    /// At the end of the interval.
    pub(super) backlog: u64,
    pub(super) forwarded: u64,
    pub(super) delivered: u64,
    pub(super) dropped: u64,
    /// In the last second, about.
    pub(super) flows: u64,
    /// Flows whose readers are here, by the table of flows that are read.
    pub(super) flows_read: Option<u64>,
    /// Null if no packet was measured.
    pub(super) stages: Option<Stages>,
}

/// Cycles a packet, of the packets that were measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Stages {
    pub(super) batches: u64,
    pub(super) packets: u64,
    pub(super) validate: f64,
    pub(super) early_demux: f64,
    pub(super) route: f64,
    pub(super) act: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Queue {
    pub(super) dev: String,
    pub(super) queue: u16,
    pub(super) core: u16,
    pub(super) rx_packets: u64,
    pub(super) rx_bytes: u64,
    pub(super) rx_dropped: u64,
    pub(super) rx_errors: u64,
    pub(super) tx_packets: u64,
    pub(super) tx_bytes: u64,
    pub(super) tx_dropped: u64,
    pub(super) tx_errors: u64,
    /// At the end of the interval.
    pub(super) waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Reason {
    pub(super) reason: String,
    pub(super) packets: u64,
    /// Since the stack started.
    pub(super) total: u64,
    /// Those of `packets` that each core dropped; the rest, application threads did.
    pub(super) by_core: Vec<u64>,
    #[serde(skip)]
    pub(super) doc: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct SockFlows {
    pub(super) used: u64,
    pub(super) entries: u64,
}

impl Interval {
    /// `None` if there is none: another stack has taken the name, or no time has passed.
    pub(super) fn between(stack: &str, before: &Activity, after: &Activity) -> Option<Self> {
        let nanos = after.at.checked_sub(before.at).filter(|nanos| *nanos > 0)?;
        if before.run != after.run {
            return None;
        }
        let cores = after.cores.iter().map(|core| {
            let earlier = before.cores.iter().find(|known| known.core == core.core);
            Core::between(earlier.unwrap_or(&CoreActivity::default()), core, nanos)
        });
        let queues = after.queues.iter().map(|queue| {
            let is_same =
                |known: &&QueueActivity| known.dev == queue.dev && known.queue == queue.queue;
            let earlier = before.queues.iter().find(is_same);
            Queue::between(earlier.unwrap_or(&QueueActivity::default()), queue)
        });
        let drops = after.drops.iter();
        let mut drops: Vec<_> = drops
            .map(|drops| Reason::between(before, after, drops))
            .collect();
        // Stable: those that are alike stay in the order in which a packet meets them.
        drops.sort_by_key(|drops| std::cmp::Reverse((drops.packets, drops.total)));
        let read = after.cores.iter().filter_map(|core| core.flows_read);
        Some(Self {
            stack: stack.to_owned(),
            seconds: nanos as f64 / 1e9,
            cores: cores.collect(),
            queues: queues.collect(),
            drops,
            sock_flows: after.sock_flow_entries.map(|entries| SockFlows {
                used: read.sum(),
                entries,
            }),
        })
    }
}

impl Core {
    fn between(before: &CoreActivity, after: &CoreActivity, nanos: u64) -> Self {
        let slept = after
            .idle
            .map(|idle| idle - idle.min(before.idle.unwrap_or(idle)));
        let dropped = |core: &CoreActivity| core.drops.iter().map(|(_, packets)| packets).sum();
        Self {
            core: after.core,
            busy: slept.map(|slept| 1.0 - (slept as f64 / nanos as f64).min(1.0)),
            processed: since(before.processed, after.processed),
            received_rps: since(before.received_rps, after.received_rps),
            time_squeeze: since(before.time_squeeze, after.time_squeeze),
            backlog: after.backlog,
            forwarded: since(before.forwarded, after.forwarded),
            delivered: since(before.delivered, after.delivered),
            dropped: since(dropped(before), dropped(after)),
            flows: after.flows,
            flows_read: after.flows_read,
            stages: Stages::between(&before.stages, &after.stages),
        }
    }
}

impl Stages {
    fn between(before: &StageActivity, after: &StageActivity) -> Option<Self> {
        let packets = since(before.packets, after.packets);
        let a_packet = |before, after| since(before, after) as f64 / packets as f64;
        (packets > 0).then(|| Self {
            batches: since(before.batches, after.batches),
            packets,
            validate: a_packet(before.validate, after.validate),
            early_demux: a_packet(before.early_demux, after.early_demux),
            route: a_packet(before.route, after.route),
            act: a_packet(before.act, after.act),
        })
    }

    /// All stages together.
    pub(super) fn all(&self) -> f64 {
        self.validate + self.early_demux + self.route + self.act
    }
}

impl Queue {
    fn between(before: &QueueActivity, after: &QueueActivity) -> Self {
        Self {
            dev: after.dev.clone(),
            queue: after.queue,
            core: after.core,
            rx_packets: since(before.rx_packets, after.rx_packets),
            rx_bytes: since(before.rx_bytes, after.rx_bytes),
            rx_dropped: since(before.rx_dropped, after.rx_dropped),
            rx_errors: since(before.rx_errors, after.rx_errors),
            tx_packets: since(before.tx_packets, after.tx_packets),
            tx_bytes: since(before.tx_bytes, after.tx_bytes),
            tx_dropped: since(before.tx_dropped, after.tx_dropped),
            tx_errors: since(before.tx_errors, after.tx_errors),
            waiting: after.waiting,
        }
    }
}

impl Reason {
    fn between(before: &Activity, after: &Activity, drops: &Drops) -> Self {
        let earlier = before.drops.iter();
        let mut earlier = earlier.filter(|known| known.reason == drops.reason);
        let of = |core: Option<&CoreActivity>| {
            let mut reasons = core.into_iter().flat_map(|core| &core.drops);
            let found = reasons.find(|(reason, _)| *reason == drops.reason);
            found.map_or(0, |(_, packets)| *packets)
        };
        let by_core = after.cores.iter().map(|core| {
            let earlier = before.cores.iter().find(|known| known.core == core.core);
            since(of(earlier), of(Some(core)))
        });
        Self {
            reason: drops.reason.clone(),
            packets: since(
                earlier.next().map_or(0, |known| known.packets),
                drops.packets,
            ),
            total: drops.packets,
            by_core: by_core.collect(),
            doc: drops.doc.clone(),
        }
    }
}

/// A device that was removed and added anew counts from 0.
fn since(before: u64, after: u64) -> u64 {
    after.saturating_sub(before)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn drops(reason: &str, packets: u64) -> Drops {
        Drops {
            reason: reason.to_owned(),
            packets,
            doc: format!("{reason} happened."),
        }
    }

    /// A stack of two workers, of which the second got its packets from the first.
    pub(in super::super) fn two_looks() -> (Activity, Activity) {
        let before = Activity {
            run: "1".to_owned(),
            at: 5_000_000_000,
            cores: vec![
                CoreActivity {
                    idle: Some(1_000_000_000),
                    processed: 100,
                    ..CoreActivity::default()
                },
                CoreActivity {
                    core: 1,
                    idle: Some(2_000_000_000),
                    drops: vec![("IpCsum".to_owned(), 7)],
                    ..CoreActivity::default()
                },
            ],
            queues: vec![QueueActivity {
                dev: "left".to_owned(),
                rx_packets: 100,
                ..QueueActivity::default()
            }],
            drops: vec![drops("IpCsum", 9), drops("UdpNoSocket", 9)],
            sock_flow_entries: Some(1_024),
        };
        let mut after = before.clone();
        after.at += 2_000_000_000;
        after.cores[0] = CoreActivity {
            idle: Some(1_500_000_000),
            processed: 2_000_100,
            forwarded: 1_999_000,
            drops: vec![("UdpNoSocket".to_owned(), 1_000)],
            flows: 37,
            flows_read: Some(3),
            stages: StageActivity {
                batches: 10,
                packets: 640,
                validate: 12_800,
                early_demux: 640,
                route: 6_400,
                act: 16_000,
            },
            ..CoreActivity::default()
        };
        after.cores[1].processed = 20;
        after.cores[1].received_rps = 20;
        after.cores[1].idle = Some(3_999_000_000);
        after.cores[1].flows_read = Some(5);
        after.queues[0].rx_packets = 2_000_100;
        after.queues[0].rx_bytes = 128_000_000;
        after.queues[0].tx_packets = 1_999_000;
        after.drops = vec![
            drops("IpCsum", 9),
            drops("UdpNoSocket", 1_011),
            drops("TtlExceeded", 2),
        ];
        (before, after)
    }

    #[test]
    fn an_interval_is_the_difference_of_two_looks() {
        let (before, after) = two_looks();
        let interval = Interval::between("main", &before, &after).unwrap();
        assert_eq!(interval.seconds, 2.0);
        let [first, second] = interval.cores.as_slice() else {
            panic!("{interval:?}")
        };
        assert_eq!((first.busy, second.busy), (Some(0.75), Some(1.0 - 0.9995)));
        assert_eq!((first.processed, first.dropped), (2_000_000, 1_000));
        assert_eq!((second.processed, second.received_rps), (20, 20));
        let stages = first.stages.unwrap();
        assert_eq!(
            (stages.validate, stages.act, stages.all()),
            (20.0, 25.0, 56.0)
        );
        assert_eq!(second.stages, None);
        let reasons = interval.drops.iter();
        let reasons: Vec<_> = reasons
            .map(|drops| {
                (
                    drops.reason.as_str(),
                    drops.packets,
                    drops.by_core.as_slice(),
                )
            })
            .collect();
        let expected = [
            ("UdpNoSocket", 1_002, &[1_000, 0][..]),
            ("TtlExceeded", 2, &[0, 0]),
            ("IpCsum", 0, &[0, 0]),
        ];
        assert_eq!(reasons, expected);
        let sock_flows = interval.sock_flows.unwrap();
        assert_eq!((sock_flows.used, sock_flows.entries), (8, 1_024));
    }

    #[test]
    fn looks_at_different_stacks_make_no_interval() {
        let (before, after) = two_looks();
        assert_eq!(Interval::between("main", &after, &before), None);
        assert_eq!(Interval::between("main", &after, &after), None);
        let other = Activity {
            run: "2".to_owned(),
            ..after
        };
        assert_eq!(Interval::between("main", &before, &other), None);
    }
}
