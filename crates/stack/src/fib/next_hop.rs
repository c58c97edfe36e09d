//! Next hops: where a route leads, shared by all routes that lead there.
//!
//! A lookup table holds small indexes; the next hops themselves lie in one table per family, each
//! distinct one once. There is no limit short of memory: the table is a vector of chunks that
//! grows by republishing the vector.
//!
//! # Order
//! A writer publishes a next hop *before* it stores the index into a lookup table (release). So a
//! reader must load the table of next hops *after* it found the index (acquire): a table loaded
//! earlier may lack it. [`NextHopReader`] is therefore made to keep no table: every
//! [`get`](NextHopReader::get) loads the current one, [`found`](NextHopReader::found) hands out
//! the one for indexes already found, and an index comes from nowhere but a lookup.
//!
//! A freed index is given to another next hop only after a grace period, so that within one guard
//! an index always means what it meant when it was found.

use std::array;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use forebay_sync::rcu::{Domain, Guard, Rcu, Ticket};

use super::address::Address;
use super::route::{RouteKind, Scope};

/// Where packets go and what happens to them there.
///
/// Aligned so that no next hop shares a cache line with another's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub struct NextHop<A> {
    /// Forwarded, delivered or refused.
    pub kind: RouteKind,
    /// How far the destination is away.
    pub scope: Scope,
    /// Index of the outgoing interface, 0 if there is none (a blackhole).
    pub oif: u32,
    /// The router to send to; none if the destination is on the link.
    pub gateway: Option<A>,
    /// The path's MTU in bytes, if the route lowers the interface's.
    pub mtu: Option<u32>,
    /// Source address for packets of our own that have none yet.
    pub pref_src: Option<A>,
    /// What to write in front of a packet.
    pub adjacency: Adjacency,
}

/// Bytes written in front of a packet for its link; none on a link without headers (TUN).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Adjacency {
    len: u8,
    bytes: [u8; Adjacency::MAX],
}

impl Adjacency {
    /// The longest link header that fits, in bytes: Ethernet with three VLAN tags and room left.
    pub const MAX: usize = 30;

    /// An adjacency of these bytes; none if there are more than [`MAX`](Self::MAX).
    pub fn new(header: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..header.len())?.copy_from_slice(header);
        Some(Adjacency {
            len: header.len() as u8,
            bytes,
        })
    }

    /// Whether there is nothing to write.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes to write.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Names a next hop for as long as the guard lives under which a lookup returned it.
///
/// To keep one longer (a socket's cached route), keep the generation beside it.
///
/// It tells the kind that most packets meet from the others, so that who asks for no more need not
/// look at the next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextHopIndex(NonZeroU32);

/// Set in the index of a [unicast](RouteKind::Unicast) next hop; lookup tables keep two bits above for
/// themselves.
const UNICAST: u32 = 1 << 29;

impl NextHopIndex {
    /// Whether the next hop is another host, so that packets are forwarded to it.
    #[inline]
    pub fn is_unicast(self) -> bool {
        self.0.get() & UNICAST != 0
    }

    /// The index that an entry of a lookup table holds; 0 stands for none.
    #[inline]
    pub(super) fn from_entry(entry: u32) -> Option<Self> {
        NonZeroU32::new(entry).map(NextHopIndex)
    }

    /// The entry that a lookup table holds for this index.
    #[inline]
    pub(super) fn entry(self) -> u32 {
        self.0.get()
    }

    fn new(slot: usize, kind: RouteKind) -> Self {
        let number = NonZeroU32::MIN.saturating_add(slot as u32);
        NextHopIndex(match kind {
            RouteKind::Unicast => number | UNICAST,
            _ => number,
        })
    }

    fn slot(self) -> usize {
        slot_of(self.entry())
    }
}

/// Where the next hop of an entry lies. That of 0, which stands for none, is beyond all tables.
#[inline]
fn slot_of(entry: u32) -> usize {
    ((entry & !UNICAST) as usize).wrapping_sub(1)
}

const CHUNK: usize = 256;

type Chunk<A> = [NextHop<A>; CHUNK];
type Chunks<A> = Vec<Arc<Chunk<A>>>;

#[inline]
fn in_chunks<A>(chunks: &[Arc<Chunk<A>>], slot: usize) -> Option<&NextHop<A>> {
    chunks.get(slot / CHUNK)?.get(slot % CHUNK)
}

/// The table as packets see it.
pub(super) struct NextHops<A: Address> {
    chunks: Rcu<Chunks<A>>,
}

impl<A: Address> NextHops<A> {
    pub(super) fn reader<'g>(&'g self, guard: &'g Guard<'g>) -> NextHopReader<'g, A> {
        NextHopReader { table: self, guard }
    }
}

/// Reads next hops under a guard; see [the order](self#order).
pub(super) struct NextHopReader<'g, A: Address> {
    table: &'g NextHops<A>,
    guard: &'g Guard<'g>,
}

impl<A: Address> Clone for NextHopReader<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Address> Copy for NextHopReader<'_, A> {}

impl<'g, A: Address> NextHopReader<'g, A> {
    /// The next hop of an index found under the same guard.
    #[inline]
    pub(super) fn get(self, index: NextHopIndex) -> Option<&'g NextHop<A>> {
        in_chunks(self.table.chunks.read(self.guard), index.slot())
    }

    /// The next hops of all indexes that were found under the same guard before this was called.
    #[inline]
    pub(super) fn found(self) -> FoundNextHops<'g, A> {
        FoundNextHops {
            chunks: self.table.chunks.read(self.guard),
        }
    }
}

/// Next hops for many packets whose routes are looked up.
pub(crate) struct FoundNextHops<'g, A> {
    chunks: &'g [Arc<Chunk<A>>],
}

impl<'g, A> FoundNextHops<'g, A> {
    /// The next hop of an index that was found before, none of none.
    #[inline]
    pub(crate) fn get(&self, index: Option<NextHopIndex>) -> Option<&'g NextHop<A>> {
        in_chunks(self.chunks, slot_of(index.map_or(0, NextHopIndex::entry)))
    }
}

/// The management side of the table: interns, counts, reuses.
pub(super) struct NextHopWriter<A: Address> {
    domain: Domain,
    published: Arc<NextHops<A>>,
    chunks: Chunks<A>,
    indexes: HashMap<NextHop<A>, NextHopIndex>,
    /// Routes that lead to each slot.
    users: Vec<u32>,
    /// Slots that are nobody's.
    free: Vec<usize>,
    retired: VecDeque<(Ticket, NextHopIndex)>,
}

impl<A: Address> NextHopWriter<A> {
    pub(super) fn new(domain: &Domain) -> Self {
        NextHopWriter {
            domain: domain.clone(),
            published: Arc::new(NextHops {
                chunks: Rcu::new(domain, Vec::new()),
            }),
            chunks: Vec::new(),
            indexes: HashMap::new(),
            users: Vec::new(),
            free: Vec::new(),
            retired: VecDeque::new(),
        }
    }

    pub(super) fn published(&self) -> Arc<NextHops<A>> {
        Arc::clone(&self.published)
    }

    /// Bytes of the published table.
    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * (size_of::<Chunk<A>>() + size_of::<Arc<Chunk<A>>>())
    }

    pub(super) fn get(&self, index: NextHopIndex) -> Option<&NextHop<A>> {
        in_chunks(&self.chunks, index.slot())
    }

    /// The next hops that routes lead to.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (NextHopIndex, &NextHop<A>)> {
        self.indexes.iter().map(|(hop, index)| (*index, hop))
    }

    /// The index of `hop`, published if it is new, with one more user.
    pub(super) fn acquire(&mut self, hop: NextHop<A>) -> NextHopIndex {
        if let Some(&index) = self.indexes.get(&hop) {
            self.add_user(index);
            return index;
        }
        let index = self.vacant(&hop);
        self.put(index, hop);
        self.published.chunks.publish(self.chunks.clone());
        self.indexes.insert(hop, index);
        self.add_user(index);
        index
    }

    /// One user less. With the last one the index retires: no lookup table may hold it any more.
    pub(super) fn release(&mut self, index: NextHopIndex) {
        let Some(users) = self.users.get_mut(index.slot()) else {
            return;
        };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        if let Some(hop) = in_chunks(&self.chunks, index.slot()) {
            self.indexes.remove(hop);
        }
        self.retired.push_back((self.domain.ticket(), index));
    }

    fn add_user(&mut self, index: NextHopIndex) {
        if let Some(users) = self.users.get_mut(index.slot()) {
            *users += 1;
        }
    }

    /// An index for `hop` that no reader can know, in the table.
    fn vacant(&mut self, hop: &NextHop<A>) -> NextHopIndex {
        while let Some((ticket, index)) = self.retired.front() {
            if !self.domain.elapsed(ticket) {
                break;
            }
            self.free.push(index.slot());
            self.retired.pop_front();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.users.push(0);
            self.users.len() - 1
        });
        if slot / CHUNK == self.chunks.len() {
            self.chunks.push(Arc::new(array::from_fn(|_| *hop)));
        }
        NextHopIndex::new(slot, hop.kind)
    }

    fn put(&mut self, index: NextHopIndex, hop: NextHop<A>) {
        let slot = index.slot();
        if let Some(chunk) = self.chunks.get_mut(slot / CHUNK)
            && let Some(place) = Arc::make_mut(chunk).get_mut(slot % CHUNK)
        {
            *place = hop;
        }
    }
}
