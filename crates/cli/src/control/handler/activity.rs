//! What a stack does, by core and by queue.

use forebay::Stack;
use forebay::counters::{Counter, Snapshot};
use forebay::watch::{Queue, Watch, Worker};

use crate::control::protocol::{Activity, CoreActivity, Drops, QueueActivity, StageActivity};

pub(super) fn activity(stack: &Stack, run: &str, watch: &Watch) -> Activity {
    let inner = stack.inner();
    let sock_flows = inner.sock_flows_by_cpu();
    let cores = watch.workers().into_iter().map(|worker| {
        let read_here = |(used, _): &(Vec<usize>, usize)| {
            let used = used.get(usize::from(worker.number)).copied();
            used.unwrap_or(0) as u64
        };
        core(&worker, sock_flows.as_ref().map(read_here))
    });
    let dropped = inner.counters();
    let drops = dropped
        .drops()
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| Drops {
            reason: reason.name().to_owned(),
            packets,
            doc: reason.doc().trim().to_owned(),
        });
    Activity {
        run: run.to_owned(),
        at: stack.now().as_nanos(),
        cores: cores.collect(),
        queues: watch.queues().into_iter().map(queue).collect(),
        drops: drops.collect(),
        sock_flow_entries: sock_flows.map(|(_, entries)| entries as u64),
    }
}

fn core(worker: &Worker, flows_read: Option<u64>) -> CoreActivity {
    let counters = &worker.counters;
    let stages = worker.stages;
    let idle = worker.idle.map(|idle| idle.as_nanos());
    CoreActivity {
        core: worker.number,
        idle: idle.map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX)),
        processed: worker.softnet.processed,
        received_rps: worker.softnet.received_rps,
        time_squeeze: worker.softnet.time_squeeze,
        backlog: worker.softnet.input_qlen as u64,
        forwarded: counters.get(Counter::IpForwDatagrams)
            + counters.get(Counter::Ip6OutForwDatagrams),
        delivered: counters.get(Counter::IpInDelivers) + counters.get(Counter::Ip6InDelivers),
        drops: drops_of(counters),
        flows: worker.flows as u64,
        flows_read,
        stages: StageActivity {
            batches: stages.batches,
            packets: stages.packets,
            validate: stages.validate,
            early_demux: stages.early_demux,
            route: stages.route,
            act: stages.act,
        },
    }
}

fn drops_of(counters: &Snapshot) -> Vec<(String, u64)> {
    let drops = counters.drops().filter(|(_, packets)| *packets > 0);
    drops
        .map(|(reason, packets)| (reason.name().to_owned(), packets))
        .collect()
}

fn queue(queue: Queue) -> QueueActivity {
    let stats = queue.stats;
    QueueActivity {
        dev: queue.device,
        queue: queue.number,
        core: queue.worker,
        rx_packets: stats.rx_packets,
        rx_bytes: stats.rx_bytes,
        rx_dropped: stats.rx_dropped,
        rx_errors: stats.bad.total(),
        tx_packets: stats.tx_packets,
        tx_bytes: stats.tx_bytes,
        tx_dropped: stats.tx_dropped,
        tx_errors: stats.tx_errors,
        waiting: queue.waiting as u64,
    }
}
