//! What a batch has in it, sorted by what its packets need next.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU64;
use core::ops::Range;

use crate::fib::Address;
use crate::receive::MAX_BATCH;

/// Which packets of a batch have what before them; those that validation has decided about are in
/// no list. A lane is a packet's place in the batch.
pub(crate) struct Sorted {
    /// IPv4 packets from somebody else to somebody else.
    pub(crate) transit4: TransitLanes<Ipv4Addr>,
    /// IPv6 packets from somebody else to somebody else.
    pub(crate) transit6: TransitLanes<Ipv6Addr>,
    /// Packets to an address of our own, a group or a broadcast, or that claim to come from us.
    pub(crate) others: Lanes,
    /// IPv4 packets that have come in, whatever is wrong with them.
    pub(crate) arrived4: Tally,
    /// The same of IPv6.
    pub(crate) arrived6: Tally,
    /// Whether any packet has IPv4 options.
    pub(crate) has_options: bool,
}

/// Plain datagrams that follow each other in a batch and are of one flow (a packet train, Jain and
/// Routhier 1986).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Train {
    /// The lane of the first.
    pub(crate) first: u8,
    /// How many there are.
    pub(crate) len: u8,
    /// No socket is connected to their sender, as far as early demux was asked.
    pub(crate) is_unconnected: bool,
    /// They are to be delivered, by a route to their address alone.
    pub(crate) is_local: bool,
    /// The slot of their socket, and its state, if that is known: in that, it takes them.
    pub(crate) slot: u32,
    pub(crate) state: Option<NonZeroU64>,
}

impl Train {
    /// Of no datagram yet; the first is to have this lane.
    #[inline]
    pub(crate) fn of_none(lane: usize) -> Self {
        Self {
            first: lane as u8,
            len: 0,
            is_unconnected: false,
            is_local: false,
            slot: 0,
            state: None,
        }
    }

    /// Where it lies in the batch.
    #[inline]
    pub(crate) fn lanes(&self) -> Range<usize> {
        let first = usize::from(self.first);
        first..first + usize::from(self.len)
    }
}

/// Places in a batch, in its order.
pub(crate) struct Lanes {
    lanes: [u8; MAX_BATCH],
    len: usize,
}

/// Places in a batch, with the destinations of the packets there.
pub(crate) struct TransitLanes<A> {
    dsts: [A; MAX_BATCH],
    lanes: Lanes,
}

impl Sorted {
    pub(crate) fn new() -> Self {
        Self {
            transit4: TransitLanes::new(),
            transit6: TransitLanes::new(),
            others: Lanes::new(),
            arrived4: Tally::default(),
            arrived6: Tally::default(),
            has_options: false,
        }
    }

    /// The packets of some lanes, none of them transit's, are gone, and the others in new places.
    pub(crate) fn renumber(&mut self, gone: u64, places: &[u8; MAX_BATCH]) {
        self.transit4.lanes.renumber(gone, places);
        self.transit6.lanes.renumber(gone, places);
        self.others.renumber(gone, places);
    }
}

/// Packets to be counted, all at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) packets: u32,
    pub(crate) octets: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.octets += len as u64;
    }
}

impl Lanes {
    /// Packets are in other places now, by the lanes that they had; those of `gone` (a bit for each
    /// lane) are in none.
    fn renumber(&mut self, gone: u64, places: &[u8; MAX_BATCH]) {
        let mut kept = 0;
        for nth in 0..self.len {
            let lane = usize::from(self.lanes[nth]) % MAX_BATCH;
            if gone >> lane & 1 == 0 {
                self.lanes[kept] = places[lane];
                kept += 1;
            }
        }
        self.len = kept;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn new() -> Self {
        Self {
            lanes: [0; MAX_BATCH],
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, lane: usize) {
        // The remainder costs nothing and spares a check: no batch has more lanes.
        self.lanes[self.len % MAX_BATCH] = lane as u8;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.lanes
            .iter()
            .take(self.len)
            .map(|lane| usize::from(*lane))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<A: Address> TransitLanes<A> {
    fn new() -> Self {
        Self {
            dsts: [A::UNSPECIFIED; MAX_BATCH],
            lanes: Lanes::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, lane: usize, dst: A) {
        self.dsts[self.lanes.len % MAX_BATCH] = dst;
        self.lanes.push(lane);
    }

    /// The destinations; there are more than [`lanes`](Self::lanes), and the others mean nothing.
    #[inline]
    pub(crate) fn dsts(&self) -> &[A; MAX_BATCH] {
        &self.dsts
    }

    #[inline]
    pub(crate) fn lanes(&self) -> &[u8] {
        self.lanes.lanes.get(..self.lanes.len).unwrap_or_default()
    }
}
