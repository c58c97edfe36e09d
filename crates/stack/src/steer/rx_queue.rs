//! How the packets of one receive queue are steered (Linux's `netdev_rx_queue`).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::backlog::Backlogs;
use super::cpu_mask::CpuMask;
use super::sock_flows::SockFlowTable;

/// Largest flow table of a queue, in entries.
pub(crate) const MAX_FLOWS: u32 = 1 << 29;

/// What is set for one receive queue, immutable; a change publishes a new one.
#[derive(Debug, Clone, Default)]
pub(crate) struct RxQueue {
    /// `rps_cpus`.
    pub(crate) cpus: CpuMask,
    /// `rps_flow_cnt`.
    pub(crate) flows: Option<Arc<FlowTable>>,
}

impl RxQueue {
    /// Whether its packets may go to another core.
    pub(crate) fn steers(&self, sock_flows: Option<&SockFlowTable>) -> bool {
        !self.cpus.cpus().is_empty() || (self.flows.is_some() && sock_flows.is_some())
    }

    /// The core for a flow: the one that reads it, else the one that `rps_cpus` gives it; but the
    /// one that its last packets went to as long as those are waiting there, since what comes
    /// later must not overtake them. `None`: whoever has the packet keeps it.
    ///
    /// This is Linux's `get_rps_cpu`, except that flows which nobody reads wait, too, before they
    /// follow their reader.
    pub(crate) fn choose(
        &self,
        sock_flows: Option<&SockFlowTable>,
        backlogs: &Backlogs,
        own: Option<u16>,
        hash: u32,
    ) -> Option<u16> {
        let reader = match (&self.flows, sock_flows) {
            (Some(_), Some(table)) => table.cpu_of(hash).filter(|cpu| backlogs.is_online(*cpu)),
            _ => None,
        };
        let wanted = reader.or_else(|| self.rps_cpu(backlogs, hash)).or(own)?;
        match &self.flows {
            Some(flows) => Some(flows.place(backlogs, hash, wanted)),
            None => Some(wanted),
        }
    }

    fn rps_cpu(&self, backlogs: &Backlogs, hash: u32) -> Option<u16> {
        let cpus = self.cpus.cpus();
        let nth = (u64::from(hash) * cpus.len() as u64) >> 32;
        let cpu = cpus.get(usize::try_from(nth).ok()?).copied();
        cpu.filter(|cpu| backlogs.is_online(*cpu))
    }
}

/// Where the flows of a queue went last (Linux's `rps_dev_flow_table`). Flows whose hashes have the
/// same low bits share an entry, and the core.
///
/// Written only by the core that polls the queue.
pub(crate) struct FlowTable {
    /// One more than the core, and in the high half where its backlog ended then.
    entries: Box<[AtomicU64]>,
}

impl fmt::Debug for FlowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowTable")
            .field("len", &self.entries.len())
            .finish()
    }
}

impl FlowTable {
    /// A table of `entries`, a power of two.
    pub(crate) fn new(entries: u32) -> Self {
        Self {
            entries: (0..entries).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The core for a flow that is wanted on `wanted`. The flow stays there until
    /// [`settle`](Self::settle) has said what its packet is behind.
    fn place(&self, backlogs: &Backlogs, hash: u32, wanted: u16) -> u16 {
        let Some(entry) = self.entry(hash) else {
            return wanted;
        };
        let word = entry.load(Ordering::Relaxed);
        let last = (word as u16).checked_sub(1);
        let stays = |cpu: &u16| *cpu != wanted && backlogs.is_waiting(*cpu, (word >> 32) as u32);
        let cpu = last.filter(stays).unwrap_or(wanted);
        entry.store(pack(cpu, backlogs.never(cpu)), Ordering::Relaxed);
        cpu
    }

    /// The flow's packets are the last ones before `tail` in the backlog of its core.
    pub(crate) fn settle(&self, hash: u32, cpu: u16, tail: u32) {
        if let Some(entry) = self.entry(hash) {
            entry.store(pack(cpu, tail), Ordering::Relaxed);
        }
    }

    fn entry(&self, hash: u32) -> Option<&AtomicU64> {
        self.entries.get(hash as usize & (self.entries.len() - 1))
    }
}

fn pack(cpu: u16, tail: u32) -> u64 {
    (u64::from(tail) << 32) | (u64::from(cpu) + 1)
}
