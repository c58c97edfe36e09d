//! Which core handles a packet: RPS and RFS, as Linux has them.
//!
//! Whoever takes packets from a device may keep each, or put it into another core's *backlog*.
//! `rx_queue.rs` decides: the core whose application reads the flow (RFS), or one of those that
//! `rps_cpus` names (RPS). It happens ahead of validation, by a hash over addresses and ports, so
//! that the core that handles a packet does all of the work, and a core that only hands packets on
//! reads nothing of them when the device has given the hash.
//!
//! With neither of them set, a packet's way costs one look at a static key for each burst.

mod affinity;
mod backlog;
mod cpu_mask;
mod flow_hash;
mod pick_tx;
mod queue_knobs;
mod record;
mod rx_queue;
mod sock_flows;

use forebay_sync::rcu::{Domain, Rcu};
use forebay_sync::static_key::StaticKey;

pub use self::affinity::QueueAffinity;
pub(crate) use self::backlog::Backlog;
pub use self::backlog::SoftnetStats;
use self::backlog::{Backlogs, Softnet};
pub use self::cpu_mask::{CpuMask, MAX_CPUS};
pub(crate) use self::flow_hash::flow_hash;
use self::rx_queue::FlowTable;
use self::rx_queue::MAX_FLOWS;
pub(crate) use self::rx_queue::RxQueue;
use self::sock_flows::SockFlowTable;
use crate::core::{Core, Local};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketQueue};
use crate::receive::Observer;
use crate::siphash::Key;
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;

/// Packets that are fetched from another core's cache while those ahead of them are looked at.
const AHEAD: usize = 8;

/// What all cores know of steering.
pub(crate) struct Steering {
    /// Some queue has a mask, or flows are recorded (Linux's `rps_needed`).
    rps_needed: StaticKey,
    /// Flows are recorded (`rfs_needed`).
    rfs_needed: StaticKey,
    sock_flows: Rcu<Option<SockFlowTable>>,
    backlogs: Backlogs,
    /// The core that the calling thread runs on, if it is one that packets can be steered to.
    current_cpu: fn() -> Option<u16>,
    key: Key,
}

/// A receive queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxId {
    /// The device's interface.
    pub ifindex: u32,
    /// Its number among the device's queues.
    pub queue: u16,
}

/// A burst on its way to a core.
#[derive(Default)]
pub(crate) struct Bound {
    /// Another one, or nobody else.
    cpu: Option<u16>,
    packets: PacketQueue,
    /// Of the packets, where a flow table wants to know.
    hashes: Vec<u32>,
}

impl Steering {
    pub(crate) fn new(domain: &Domain, key: Key, current_cpu: fn() -> Option<u16>) -> Self {
        Self {
            rps_needed: StaticKey::new(),
            rfs_needed: StaticKey::new(),
            sock_flows: Rcu::new(domain, None),
            backlogs: Backlogs::default(),
            current_cpu,
            key,
        }
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.rps_needed.is_enabled()
    }

    pub(crate) fn backlog(&self, cpu: u16) -> Option<&Backlog> {
        self.backlogs.get(cpu)
    }

    pub(crate) fn bring_online(&self, cpu: u16) {
        self.backlogs.bring_online(cpu);
    }

    pub(crate) fn hash(&self, packet: &Packet) -> u32 {
        match packet.hash {
            0 => flow_hash(self.key, packet),
            known => known,
        }
    }

    /// Sets `net.core.rps_sock_flow_entries`: 0 takes the table away, another number makes an empty
    /// one, also when it is the number that there was.
    pub(crate) fn set_sock_flow_entries(&self, entries: u32) {
        let keys = [&self.rps_needed, &self.rfs_needed];
        // Who sees a key may look for the table, so it is there before and goes after.
        let mut had_table = false;
        self.sock_flows.update(|old| {
            had_table = old.is_some();
            (entries > 0).then(|| SockFlowTable::new(entries))
        });
        match (had_table, entries > 0) {
            (false, true) => keys.into_iter().for_each(StaticKey::inc),
            (true, false) => keys.into_iter().for_each(StaticKey::dec),
            _ => {}
        }
    }

    /// A queue's mask was changed, or is gone: it may begin or end to be looked at.
    pub(crate) fn mask_changed(&self, before: &CpuMask, after: &CpuMask) {
        match (before.cpus().is_empty(), after.cpus().is_empty()) {
            (true, false) => self.rps_needed.inc(),
            (false, true) => self.rps_needed.dec(),
            _ => {}
        }
    }
}

/// Taking packets in, with more than one core about.
impl Stack {
    /// As [`receive`](Self::receive), of a queue of a device: some of the packets may be left to
    /// other cores.
    pub fn receive_from(
        &self,
        core: &mut Core,
        now: Instant,
        from: RxId,
        packets: &mut PacketQueue,
    ) {
        self.receive_from_observed(core, now, from, packets, &mut ());
    }

    /// The same, with somebody looking on.
    pub fn receive_from_observed(
        &self,
        core: &mut Core,
        now: Instant,
        from: RxId,
        packets: &mut PacketQueue,
        observer: &mut impl Observer,
    ) {
        self.note_queues(core, now, from, packets);
        if self.steering.is_needed() {
            self.steer(core, from, packets);
        }
        if let Some(cpu) = core.local.cpu()
            && let Some(backlog) = self.steering.backlog(cpu)
        {
            backlog.count(Softnet::Processed, packets.len() as u64);
        }
        self.receive_observed(core, now, from.ifindex, packets, observer);
    }

    /// Takes in packets that other cores have left to this one, up to `budget`, and what one more
    /// burst has. Returns whether there are more.
    pub fn receive_backlog(&self, core: &mut Core, now: Instant, budget: usize) -> bool {
        self.receive_backlog_observed(core, now, budget, &mut ())
    }

    /// The same, with somebody looking on.
    pub fn receive_backlog_observed(
        &self,
        core: &mut Core,
        now: Instant,
        budget: usize,
        observer: &mut impl Observer,
    ) -> bool {
        let Some(backlog) = core.local.cpu().and_then(|cpu| self.steering.backlog(cpu)) else {
            return false;
        };
        let mut left = budget;
        while left > 0 {
            let Some((ifindex, mut run)) = self.next_run(core, backlog, left) else {
                return false;
            };
            let packets = run.len();
            self.receive_observed(core, now, ifindex, &mut run, observer);
            backlog.count(Softnet::Processed, packets as u64);
            backlog.count(Softnet::ReceivedRps, packets as u64);
            backlog.advance(packets);
            left -= packets;
        }
        let is_more = !core.local.backlog_in_hand().is_empty() || !backlog.is_empty();
        if is_more {
            backlog.count(Softnet::TimeSqueeze, 1);
        }
        is_more
    }

    /// Whether packets may go to another core at all: some queue has a mask, or flows are followed.
    pub fn is_steering(&self) -> bool {
        self.steering.is_needed()
    }

    /// The hash by which the packets of one flow find to one core, as the device has given it or as
    /// it is computed from addresses and ports; 0 for what is of no flow.
    pub fn flow_hash(&self, packet: &Packet) -> u32 {
        self.steering.hash(packet)
    }

    /// The next packets of the backlog that came by one interface.
    fn next_run(
        &self,
        core: &mut Core,
        backlog: &Backlog,
        most: usize,
    ) -> Option<(u32, PacketQueue)> {
        let in_hand = core.local.backlog_in_hand();
        if in_hand.is_empty() {
            backlog.take(in_hand);
        }
        in_hand.iter().take(AHEAD).for_each(Packet::prefetch);
        let ifindex = in_hand.front()?.iif;
        let mut run = PacketQueue::new();
        while run.len() < most
            && in_hand.front().is_some_and(|packet| packet.iif == ifindex)
            && let Some(packet) = in_hand.pop_front()
        {
            if let Some(later) = in_hand.get(AHEAD - 1) {
                later.prefetch();
            }
            run.push(packet);
        }
        Some((ifindex, run))
    }

    /// Leaves in `packets` what this core is to handle, and gives the others theirs.
    fn steer(&self, core: &mut Core, from: RxId, packets: &mut PacketQueue) {
        let Core { reader, local } = core;
        let guard = reader.guard();
        let interface = self.interfaces.read(&guard).get(from.ifindex);
        let Some(queue) = interface.and_then(|interface| interface.rx.get(usize::from(from.queue)))
        else {
            return;
        };
        let sock_flows = self.steering.sock_flows.read(&guard).as_ref();
        if !queue.steers(sock_flows) {
            return;
        }
        let own = local.cpu();
        let mut bound = local.take_bound();
        while let Some(mut packet) = packets.pop() {
            let hash = self.steering.hash(&packet);
            packet.hash = hash;
            packet.iif = from.ifindex;
            // What has no hash is of no flow: nothing could overtake it.
            let chosen = match hash {
                0 => None,
                _ => queue.choose(sock_flows, &self.steering.backlogs, own, hash),
            };
            let elsewhere = chosen.filter(|cpu| Some(*cpu) != own);
            let to = bound_for(&mut bound, elsewhere);
            to.packets.push(packet);
            if queue.flows.is_some() && hash != 0 {
                to.hashes.push(hash);
            }
        }
        let limit = self.sysctls.read(&guard).get(Knob::NetdevMaxBacklog);
        let limit = usize::try_from(limit).unwrap_or(0);
        let flows = queue.flows.as_deref();
        for burst in &mut bound {
            match burst.cpu {
                Some(cpu) => self.hand_over(local, cpu, burst, flows, limit),
                None => self.keep(own, burst, flows, packets),
            }
        }
        local.give_back_bound(bound);
    }

    /// Gives back what this core handles itself. It is dealt with before the queue is looked at again.
    fn keep(
        &self,
        own: Option<u16>,
        burst: &mut Bound,
        flows: Option<&FlowTable>,
        packets: &mut PacketQueue,
    ) {
        packets.append(&mut burst.packets);
        let head = own.and_then(|cpu| Some((cpu, self.steering.backlog(cpu)?.head())));
        for hash in burst.hashes.drain(..) {
            if let (Some(flows), Some((cpu, head))) = (flows, head) {
                flows.settle(hash, cpu, head);
            }
        }
    }

    /// Puts a burst into its core's backlog; what does not fit is dropped.
    fn hand_over(
        &self,
        local: &mut Local,
        cpu: u16,
        burst: &mut Bound,
        flows: Option<&FlowTable>,
        limit: usize,
    ) {
        if burst.packets.is_empty() {
            return;
        }
        let Some(backlog) = self.steering.backlog(cpu) else {
            return;
        };
        let tail = backlog.enqueue(&mut burst.packets, limit);
        for hash in burst.hashes.drain(..) {
            if let Some(flows) = flows {
                flows.settle(hash, cpu, tail);
            }
        }
        while let Some(packet) = burst.packets.pop() {
            local.drop(packet, DropReason::CpuBacklog);
        }
    }

    /// Where the device sends a flow's packets out by the queue that its replies come by, remembers
    /// by which they come, and where the program that sends them runs.
    fn note_queues(&self, core: &Core, now: Instant, from: RxId, packets: &mut PacketQueue) {
        let guard = core.reader.guard();
        let Some(interface) = self.interfaces.read(&guard).get(from.ifindex) else {
            return;
        };
        let Some(affinity) = &interface.affinity else {
            return;
        };
        let mut noted = PacketQueue::new();
        while let Some(mut packet) = packets.pop() {
            let hash = self.steering.hash(&packet);
            packet.hash = hash;
            affinity.update(hash, from.queue, now);
            if let Some(cpu) = packet.sender_cpu {
                self.sock_rps_record_flow_hash(core, hash, cpu);
            }
            noted.push(packet);
        }
        packets.append(&mut noted);
    }
}

fn bound_for(bound: &mut Vec<Bound>, cpu: Option<u16>) -> &mut Bound {
    let known = bound.iter().position(|burst| burst.cpu == cpu);
    let index = known.unwrap_or_else(|| {
        bound.push(Bound {
            cpu,
            ..Bound::default()
        });
        bound.len() - 1
    });
    &mut bound[index]
}
