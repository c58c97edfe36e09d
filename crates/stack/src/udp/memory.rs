//! The memory that all sockets' queues take together (`net.ipv4.udp_mem`).
//!
//! Cores borrow from the common store in large pieces and charge datagrams against what they have
//! at hand, as Linux's `sk_memory_allocated_add` does with its reserve for each CPU: a datagram
//! costs no locked instruction, and no cache line that cores share.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use forebay_sync::cache_line::CacheLine;
use forebay_sync::packet::STRIDE;

use crate::socket::lock;
use crate::sysctl::{Knob, Sysctls};

/// Bytes of a page, in which `udp_mem` counts.
pub(crate) const PAGE: usize = 4_096;

/// Buffers that a core borrows at a time, where the store is large.
const PIECE: usize = 64;

/// What the pool lends to sockets, and what of it is out.
#[derive(Debug, Clone)]
pub(crate) struct SocketMemory(Arc<Store>);

#[derive(Debug)]
struct Store {
    /// Bytes that queues hold and that cores have at hand.
    lent: CacheLine<AtomicUsize>,
    /// Bytes that the pool has for sockets: all but its reserve.
    capacity: usize,
    /// Bytes that a core borrows at a time.
    piece: usize,
    /// A piece was not to be had lately: nobody keeps anything at hand.
    is_short: AtomicBool,
    /// What each core has at hand, for who wants to know what queues hold.
    at_hand: Mutex<Vec<Arc<AtHand>>>,
}

type AtHand = CacheLine<AtomicUsize>;

/// How much queues may hold, and what is left to those that hold little.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// All sockets get memory up to here.
    min: usize,
    /// Those whose queue holds less than `rmem_min` get it up to here.
    max: usize,
    rmem_min: usize,
}

impl SocketMemory {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Arc::new(Store {
            lent: CacheLine::default(),
            capacity,
            // However many cores there are, what they have at hand is little of the whole.
            piece: (PIECE * STRIDE).min(capacity / 256),
            is_short: AtomicBool::new(false),
            at_hand: Mutex::default(),
        }))
    }

    /// The pages that `udp_mem` starts from: the last eighth is kept for sockets that hold little.
    pub(crate) fn pages(&self) -> [u32; 3] {
        let pages = |bytes: usize| u32::try_from(bytes / PAGE).unwrap_or(u32::MAX);
        let max = pages(self.0.capacity);
        [max - max / 8, max - max / 8, max]
    }

    /// Bytes that queues hold.
    pub(crate) fn used(&self) -> usize {
        let cores = lock(&self.0.at_hand);
        let at_hand: usize = cores.iter().map(|bytes| bytes.load(Relaxed)).sum();
        self.0.lent.load(Relaxed).saturating_sub(at_hand)
    }

    /// A core's means to charge datagrams, with nothing at hand yet.
    pub(crate) fn allowance(&self) -> Allowance {
        let at_hand = Arc::new(AtHand::default());
        lock(&self.0.at_hand).push(Arc::clone(&at_hand));
        Allowance {
            store: Arc::clone(&self.0),
            at_hand,
        }
    }

    /// Gives back what was charged to a datagram that left its queue whole.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.0.lent.fetch_sub(bytes, Relaxed);
    }
}

/// What one core has at hand.
#[derive(Debug)]
pub(crate) struct Allowance {
    store: Arc<Store>,
    /// Written by the owner alone.
    at_hand: Arc<AtHand>,
}

impl Allowance {
    /// Takes memory for datagrams of a queue that holds `held` bytes. False if there is none for it.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize, held: usize, sysctls: &Sysctls) -> bool {
        let left = self.at_hand.load(Relaxed).checked_sub(bytes);
        match left {
            Some(left) => self.at_hand.store(left, Relaxed),
            None => return self.borrow(bytes, held, &Limits::of(sysctls, &self.store)),
        }
        true
    }

    /// Gives memory back.
    #[inline]
    pub(crate) fn uncharge(&mut self, bytes: usize) {
        let at_hand = self.at_hand.load(Relaxed) + bytes;
        if at_hand > 2 * self.store.piece || self.store.is_short.load(Relaxed) {
            return self.give_back(at_hand);
        }
        self.at_hand.store(at_hand, Relaxed);
    }

    /// Keeps a piece of what is at hand, and nothing where memory is short.
    #[cold]
    fn give_back(&mut self, at_hand: usize) {
        let kept = match self.store.is_short.load(Relaxed) {
            true => 0,
            false => self.store.piece.min(at_hand),
        };
        self.at_hand.store(kept, Relaxed);
        self.store.lent.fetch_sub(at_hand - kept, Relaxed);
    }

    /// Borrows what is missing for `bytes`, and a piece more if there is plenty.
    #[cold]
    fn borrow(&mut self, bytes: usize, held: usize, limits: &Limits) -> bool {
        let at_hand = self.at_hand.load(Relaxed);
        let missing = bytes - at_hand;
        let grant = |lent: usize| {
            let plenty = missing + self.store.piece;
            if lent + plenty <= limits.min {
                return Some(plenty);
            }
            let limit = match held < limits.rmem_min {
                true => limits.max,
                false => limits.min,
            };
            (lent + missing <= limit).then_some(missing)
        };
        let more = |lent| Some(lent + grant(lent)?);
        let before = self.store.lent.fetch_update(Relaxed, Relaxed, more);
        let granted = before.ok().and_then(grant);
        let is_short = granted.is_none_or(|granted| granted == missing);
        self.store.is_short.store(is_short, Relaxed);
        let Some(granted) = granted else {
            return false;
        };
        self.at_hand.store(at_hand + granted - bytes, Relaxed);
        true
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        lock(&self.store.at_hand).retain(|other| !Arc::ptr_eq(other, &self.at_hand));
        let at_hand = self.at_hand.load(Relaxed);
        self.store.lent.fetch_sub(at_hand, Relaxed);
    }
}

impl Limits {
    /// As Linux's `__sk_mem_raise_allocated` has them for a protocol without a notion of pressure.
    fn of(sysctls: &Sysctls, store: &Store) -> Self {
        let [min, _, max] = sysctls.udp_mem();
        let bytes = |pages: u32| (pages as usize).saturating_mul(PAGE).min(store.capacity);
        let rmem_min = sysctls.get(Knob::UdpRmemMin);
        Self {
            min: bytes(min),
            max: bytes(max),
            rmem_min: usize::try_from(rmem_min).unwrap_or(usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = STRIDE;

    /// Knobs of a stack whose sockets have `memory`.
    fn sysctls(memory: &SocketMemory) -> Sysctls {
        let mut sysctls = Sysctls::default();
        sysctls.set_udp_mem(memory.pages());
        sysctls
    }

    #[test]
    fn cores_together_charge_all_there_is_and_no_more() {
        let memory = SocketMemory::new(1_024 * PAGE);
        let sysctls = sysctls(&memory);
        let [.., max] = memory.pages();
        let mut cores = [memory.allowance(), memory.allowance()];
        let mut charged = 0;
        // Sockets that hold little, so that the last eighth is theirs as well.
        for turn in 0.. {
            if !cores[turn % 2].charge(BUFFER, 0, &sysctls) {
                break;
            }
            charged += BUFFER;
            assert_eq!(memory.used(), charged);
        }
        let missed = max as usize * PAGE - charged;
        assert!(
            missed < BUFFER + memory.0.piece,
            "{missed} bytes nobody got"
        );
        let [mut one, two] = cores;
        drop(two);
        one.uncharge(charged);
        assert_eq!(memory.used(), 0);
        assert!(memory.0.lent.load(Relaxed) <= 2 * memory.0.piece);
        drop(one);
        assert_eq!(memory.0.lent.load(Relaxed), 0);
    }

    #[test]
    fn the_last_eighth_is_for_queues_that_hold_little() {
        let memory = SocketMemory::new(800 * PAGE);
        let sysctls = sysctls(&memory);
        let mut core = memory.allowance();
        let mut charge_all = |held| {
            let charges = core::iter::from_fn(|| core.charge(PAGE, held, &sysctls).then_some(()));
            charges.count()
        };
        assert_eq!(charge_all(4_096), 700);
        assert_eq!(charge_all(4_095), 100);
        assert_eq!(charge_all(0), 0);
        core.uncharge(800 * PAGE);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn udp_mem_says_how_much_of_the_pool_it_may_be() {
        let memory = SocketMemory::new(800 * PAGE);
        for (pages, expected) in [([0, 0, 0], 0), ([3, 4, 5], 3), ([2_000_000; 3], 800)] {
            let mut sysctls = Sysctls::default();
            sysctls.set_udp_mem(pages);
            let mut core = memory.allowance();
            let charges =
                core::iter::from_fn(|| core.charge(PAGE, 1 << 20, &sysctls).then_some(()));
            let charged = charges.count();
            assert_eq!(charged, expected, "{pages:?}");
            core.uncharge(charged * PAGE);
        }
    }
}
