//! What one core has for itself, and what a stage is handed.

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use forebay_sync::rcu::Reader;

use crate::batch::Train;
use crate::counters::{Counter, Shard};
use crate::devices::OutDevice;
use crate::drop::DropReason;
use crate::interface::Interfaces;
use crate::packet::{Packet, PacketCache, PacketQueue};
use crate::random::SecretRandom;
use crate::socket::SocketId;
use crate::stack::{Stack, View};
use crate::steer::Bound;
use crate::tcp::{Chunks, Events};
use crate::time::Instant;
use crate::udp::Burst;
use crate::udp::memory::Allowance;

/// One core's share of a stack: a worker owns one, and an application thread borrows one for the
/// length of a call.
pub struct Core {
    pub(crate) reader: Reader,
    pub(crate) local: Local,
}

impl Core {
    /// The core's free buffers, for who reads packets from devices and sends them.
    pub fn cache(&mut self) -> &mut PacketCache {
        &mut self.local.cache
    }

    pub(crate) fn flush_cache(&mut self) {
        self.local.cache.flush();
    }

    /// Packets that this core has dropped so far since those who were to take them could not keep
    /// up: sockets' readers, and other cores.
    pub fn overruns(&self) -> u64 {
        let reasons = [DropReason::SocketRcvbuff, DropReason::CpuBacklog];
        reasons
            .map(|reason| self.local.counters.dropped(reason))
            .iter()
            .sum()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// What a stage may change without asking another core.
pub struct Local {
    number: u16,
    /// The number by which packets are steered here, if they are.
    cpu: Option<u16>,
    cache: PacketCache,
    counters: Arc<Shard>,
    /// Packets that leave at the end of the batch, by interface.
    tx: Vec<(u32, PacketQueue)>,
    /// Where in `tx` the last packet went: the next one mostly goes there too.
    last_tx: usize,
    /// The batch in hand, kept between batches for its allocation.
    batch: Vec<Packet>,
    /// Its trains, kept likewise.
    trains: Vec<Train>,
    /// Packets taken out of this core's backlog, and not dealt with yet.
    backlog_in_hand: VecDeque<Packet>,
    /// Bursts for other cores, empty between bursts.
    bound: Vec<Bound>,
    /// Datagrams on their way into a socket's queue.
    pub(crate) burst: Burst,
    /// Memory for what sockets' queues hold.
    pub(crate) allowance: Allowance,
    /// Memory for what connections send and receive.
    pub(crate) chunks: Chunks,
    /// What a connection wants counted, empty between calls.
    pub(crate) events: Events,
    /// Sockets whose deadlines have come, empty between calls.
    pub(crate) due: Vec<SocketId>,
    pub(crate) random: SecretRandom,
}

impl Local {
    pub(crate) fn new(
        number: u16,
        cpu: Option<u16>,
        cache: PacketCache,
        counters: Arc<Shard>,
        allowance: Allowance,
        chunks: Chunks,
        random: SecretRandom,
    ) -> Self {
        Self {
            number,
            cpu,
            cache,
            counters,
            tx: Vec::new(),
            last_tx: 0,
            batch: Vec::new(),
            trains: Vec::new(),
            backlog_in_hand: VecDeque::new(),
            bound: Vec::new(),
            burst: Burst::default(),
            allowance,
            chunks,
            events: Events::default(),
            due: Vec::new(),
            random,
        }
    }

    /// Tells the stack's cores apart.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Frees a packet and counts why. Every drop ends here.
    #[inline(never)]
    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.counters.add_drop(reason);
        for counter in reason.snmp(packet.version) {
            self.counters.add(*counter, 1);
        }
        self.cache.free(packet);
    }

    /// Frees a packet that has done its work.
    #[inline]
    pub(crate) fn consume(&mut self, packet: Packet) {
        self.cache.free(packet);
    }

    /// A fresh packet, or `None` when the pool is empty.
    pub(crate) fn alloc(&mut self) -> Option<Packet> {
        self.cache.alloc()
    }

    /// Adds bytes at the end of a packet without fragments, in as many further buffers as it takes.
    /// `None` when the pool is empty; the packet then has lost some.
    pub(crate) fn append<'s>(
        &mut self,
        packet: &mut Packet,
        slices: impl IntoIterator<Item = &'s [u8]>,
    ) -> Option<()> {
        let mut frag: Option<Packet> = None;
        for slice in slices {
            let mut rest = slice;
            while !rest.is_empty() {
                let last = frag.as_mut().unwrap_or(packet);
                let (chunk, behind) = rest.split_at(rest.len().min(last.tailroom()));
                last.put(chunk.len())?.copy_from_slice(chunk);
                rest = behind;
                if !rest.is_empty() {
                    let mut next = self.cache.alloc()?;
                    // Nothing is ever put in front of a fragment.
                    let _ = next.set_headroom(0);
                    if let Some(full) = frag.replace(next) {
                        packet.push_frag(full);
                    }
                }
            }
        }
        if let Some(last) = frag {
            packet.push_frag(last);
        }
        Some(())
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.counters.add(counter, n);
    }

    /// Queues a packet for an interface until the end of the batch.
    pub(crate) fn queue_tx(&mut self, oif: u32, packet: Packet) {
        self.tx_queue(oif).push(packet);
    }

    /// Queues all packets for an interface until the end of the batch.
    pub(crate) fn queue_all_tx(&mut self, oif: u32, packets: &mut PacketQueue) {
        self.tx_queue(oif).append(packets);
    }

    fn tx_queue(&mut self, oif: u32) -> &mut PacketQueue {
        let is_last = |(ifindex, _): &(u32, PacketQueue)| *ifindex == oif;
        if !self.tx.get(self.last_tx).is_some_and(is_last) {
            self.last_tx = self.tx.iter().position(is_last).unwrap_or_else(|| {
                self.tx.push((oif, PacketQueue::new()));
                self.tx.len() - 1
            });
        }
        &mut self.tx[self.last_tx].1
    }

    /// Hands what was queued to the interfaces; what their queues can't take is dropped.
    pub(crate) fn flush_tx(&mut self, stack: &Stack, interfaces: &Interfaces, now: Instant) {
        let mut tx = core::mem::take(&mut self.tx);
        for (ifindex, packets) in &mut tx {
            let reason = match interfaces.get(*ifindex) {
                Some(interface) => {
                    match interface.tx.as_slice() {
                        [only] => only.enqueue(packets),
                        _ => stack.enqueue_by_queue(self, now, interface, packets),
                    }
                    DropReason::TxQueueFull
                }
                None => DropReason::DevReady,
            };
            while let Some(packet) = packets.pop() {
                self.drop(packet, reason);
            }
        }
        // The queues are empty; keeping them keeps their allocation.
        self.tx = tx;
    }

    /// An empty batch and its trains, to be given back.
    pub(crate) fn take_batch(&mut self) -> (Vec<Packet>, Vec<Train>) {
        (
            core::mem::take(&mut self.batch),
            core::mem::take(&mut self.trains),
        )
    }

    pub(crate) fn give_back_batch(&mut self, batch: Vec<Packet>, trains: Vec<Train>) {
        self.batch = batch;
        self.trains = trains;
    }

    /// The number by which packets are steered here.
    pub(crate) fn cpu(&self) -> Option<u16> {
        self.cpu
    }

    pub(crate) fn backlog_in_hand(&mut self) -> &mut VecDeque<Packet> {
        &mut self.backlog_in_hand
    }

    /// Places for bursts, to be given back.
    pub(crate) fn take_bound(&mut self) -> Vec<Bound> {
        core::mem::take(&mut self.bound)
    }

    pub(crate) fn give_back_bound(&mut self, bound: Vec<Bound>) {
        self.bound = bound;
    }
}

/// What every stage is handed: the stack, what it looked like when the batch began, this core's
/// own, and the time.
pub(crate) struct Context<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) view: &'a View<'a>,
    pub(crate) core: &'a mut Local,
    pub(crate) now: Instant,
    /// The interface that the last packet left by: the next one mostly leaves by it too.
    out: Option<OutDevice<'a>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        stack: &'a Stack,
        view: &'a View<'a>,
        core: &'a mut Local,
        now: Instant,
    ) -> Self {
        Self {
            stack,
            view,
            core,
            now,
            out: None,
        }
    }

    /// The interface to leave by, if there is one and it is up.
    #[inline]
    pub(crate) fn out_device(&mut self, oif: u32) -> Option<OutDevice<'a>> {
        match self.out {
            Some(device) if device.interface.index == oif => Some(device),
            _ => self.find_out_device(oif),
        }
    }

    #[inline(never)]
    fn find_out_device(&mut self, oif: u32) -> Option<OutDevice<'a>> {
        let interface = self.view.interfaces.get(oif)?;
        let device = OutDevice::new(self.view, interface);
        self.out = Some(device).filter(|_| interface.up);
        self.out
    }

    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.core.drop(packet, reason);
    }
}
