//! Packets that wait for another core (Linux's `input_pkt_queue`).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::task::Waker;
use std::collections::VecDeque;
use std::sync::Mutex;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::segments::Segments;

use crate::packet::{Packet, PacketQueue};
use crate::socket::lock;

/// The backlogs of all cores that packets can be steered to, by number.
#[derive(Default)]
pub(crate) struct Backlogs {
    cpus: Segments<Backlog>,
    growing: Mutex<()>,
}

/// One core's. Bursts are put in whole, under one lock, and taken out whole.
///
/// Packets are numbered as they are put in. A flow's last packet has been dealt with when the
/// number of the first that has not is past its own.
#[derive(Default)]
pub(crate) struct Backlog {
    waiting: CacheLine<Mutex<Waiting>>,
    /// What the core itself writes.
    own: CacheLine<Own>,
}

#[derive(Default)]
struct Waiting {
    /// Side by side and not linked: whoever takes them fetches several at a time from the caches of
    /// the cores that have put them here.
    packets: VecDeque<Packet>,
    /// The number that the next packet will have.
    tail: u32,
    /// Woken when there begins to be something.
    waker: Option<Waker>,
}

#[derive(Default)]
struct Own {
    is_online: AtomicBool,
    /// The number of the first packet that has not been dealt with.
    head: AtomicU32,
    stats: [AtomicU64; 3],
}

/// What a core's backlog has seen (Linux's `softnet_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SoftnetStats {
    /// Packets that it took in by itself.
    pub processed: u64,
    /// Packets that other cores gave it.
    pub received_rps: u64,
    /// How often it stopped with packets left, since its budget was used up.
    pub time_squeeze: u64,
    /// Packets that other cores have left and that it has not taken up yet.
    pub input_qlen: usize,
}

/// Index of [`Own::stats`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Softnet {
    Processed,
    ReceivedRps,
    TimeSqueeze,
}

impl Backlogs {
    /// Core `cpu` takes packets from now on.
    pub(crate) fn bring_online(&self, cpu: u16) {
        let growing = lock(&self.growing);
        let wanted = u32::from(cpu) + 1;
        if self.cpus.len() < wanted {
            self.cpus.grow_to(wanted, Backlog::default);
        }
        drop(growing);
        if let Some(backlog) = self.get(cpu) {
            backlog.own.is_online.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, cpu: u16) -> Option<&Backlog> {
        self.cpus.get(cpu.into())
    }

    pub(crate) fn is_online(&self, cpu: u16) -> bool {
        let online = |backlog: &Backlog| backlog.own.is_online.load(Ordering::Relaxed);
        self.get(cpu).is_some_and(online)
    }

    /// Whether any packet before `tail` still waits for the core.
    pub(crate) fn is_waiting(&self, cpu: u16, tail: u32) -> bool {
        // Numbers wrap: what is less than half the circle ahead is ahead.
        self.get(cpu)
            .is_some_and(|backlog| tail.wrapping_sub(backlog.head()) as i32 > 0)
    }

    /// A number that the core does not come to in the time that it takes to put a burst in.
    pub(crate) fn never(&self, cpu: u16) -> u32 {
        self.get(cpu)
            .map_or(0, |backlog| backlog.head().wrapping_add(1 << 30))
    }
}

impl Backlog {
    /// Puts packets in, in order, unless more than `limit` wait already, as Linux counts (so one more
    /// than that fit): those that are left over stay. Returns the number past the last one.
    pub(crate) fn enqueue(&self, packets: &mut PacketQueue, limit: usize) -> u32 {
        let mut waiting = lock(&self.waiting);
        let was_empty = waiting.packets.is_empty();
        let room = limit
            .saturating_add(1)
            .saturating_sub(waiting.packets.len());
        let before = packets.len();
        let fits = (0..room).map_while(|_| packets.pop());
        waiting.packets.extend(fits);
        let put_in = u32::try_from(before - packets.len()).unwrap_or(u32::MAX);
        waiting.tail = waiting.tail.wrapping_add(put_in);
        let tail = waiting.tail;
        let waker = waiting.waker.clone().filter(|_| was_empty && put_in > 0);
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
        tail
    }

    /// Moves everything to `out`, which is empty. The core says when it has dealt with it.
    pub(crate) fn take(&self, out: &mut VecDeque<Packet>) {
        // Both keep their allocations.
        core::mem::swap(out, &mut lock(&self.waiting).packets);
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.waiting).packets.is_empty()
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        lock(&self.waiting).waker = Some(waker);
    }

    /// The core has dealt with so many more packets, and whatever they caused is visible.
    pub(crate) fn advance(&self, packets: usize) {
        // No other core writes.
        let head = self.own.head.load(Ordering::Relaxed);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.own
            .head
            .store(head.wrapping_add(packets), Ordering::Release);
    }

    pub(crate) fn head(&self) -> u32 {
        self.own.head.load(Ordering::Acquire)
    }

    /// Counts; only the core itself does.
    pub(crate) fn count(&self, what: Softnet, n: u64) {
        if let Some(counter) = self.own.stats.get(what as usize) {
            counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> SoftnetStats {
        let [processed, received_rps, time_squeeze] =
            [0, 1, 2].map(|index: usize| self.own.stats[index].load(Ordering::Relaxed));
        SoftnetStats {
            processed,
            received_rps,
            time_squeeze,
            input_qlen: lock(&self.waiting).packets.len(),
        }
    }
}
