//! The memory that all connections' buffers take together (`net.ipv4.tcp_mem`).
//!
//! Bytes that wait, to be read or to be acknowledged, lie in chunks of one page. A core keeps some
//! at hand, last in, first out, so that those it hands out are warm; it gets them from the common
//! store, and gives them back there, many at once. What a core has at hand is charged already: a
//! chunk costs no locked instruction, and no cache line that cores share.
//!
//! A connection is charged the chunks it holds, however full they are.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use forebay_sync::cache_line::CacheLine;

use self::row::Slots;
use crate::socket::lock;

mod byte_queue;
mod row;
#[cfg(test)]
mod tests;

pub(crate) use self::byte_queue::ByteQueue;
pub(crate) use self::row::ChunkRow;

/// Bytes of a chunk: a page, in which `tcp_mem` counts.
pub(crate) const CHUNK: usize = 4_096;

/// Chunks that a core gets and gives at once, where `tcp_mem` is large.
const PIECE: usize = 32;
/// Chunks that the store keeps, beyond which they are freed.
const STORED: usize = 8 * PIECE;
/// Emptied rows of slots that a core keeps.
const SLOTS: usize = 16;

/// Room for [`CHUNK`] bytes. What it held before is still there.
pub(crate) struct Chunk(Box<[u8; CHUNK]>);

/// What all connections share.
#[derive(Debug, Clone)]
pub(crate) struct ChunkStore(Arc<Store>);

#[derive(Debug)]
struct Store {
    /// Chunks that connections hold and that cores have at hand.
    lent: CacheLine<AtomicUsize>,
    /// Linux's `tcp_memory_pressure`: `lent` has gone above the second limit, and not yet back to
    /// the first.
    is_under_pressure: AtomicBool,
    /// `tcp_mem`, in pages.
    limits: [AtomicUsize; 3],
    free: Mutex<Vec<Chunk>>,
    /// What each core has at hand, for who wants to know what connections hold.
    at_hand: Mutex<Vec<Arc<AtHand>>>,
}

type AtHand = CacheLine<AtomicUsize>;

/// What a core has at hand.
#[derive(Debug)]
pub(crate) struct Chunks {
    store: Arc<Store>,
    free: Vec<Chunk>,
    /// Chunks that are charged, but not allocated yet.
    credit: usize,
    /// Chunks to get and to give at once.
    piece: usize,
    slots: Vec<Slots>,
    /// `free` and `credit` together, written by the owner alone.
    at_hand: Arc<AtHand>,
}

impl ChunkStore {
    /// A store that lends as many pages as `tcp_mem` says.
    pub(crate) fn new(tcp_mem: [u32; 3]) -> Self {
        Self(Arc::new(Store {
            lent: CacheLine::default(),
            is_under_pressure: AtomicBool::new(false),
            limits: tcp_mem.map(|pages| AtomicUsize::new(pages as usize)),
            free: Mutex::default(),
            at_hand: Mutex::default(),
        }))
    }

    /// `tcp_mem` is another.
    pub(crate) fn set_limits(&self, tcp_mem: [u32; 3]) {
        for (limit, pages) in self.0.limits.iter().zip(tcp_mem) {
            limit.store(pages as usize, Relaxed);
        }
        self.0.note(self.0.lent.load(Relaxed));
    }

    /// A core's chunks, none at hand yet.
    pub(crate) fn chunks(&self) -> Chunks {
        let at_hand = Arc::new(AtHand::default());
        lock(&self.0.at_hand).push(Arc::clone(&at_hand));
        Chunks {
            store: Arc::clone(&self.0),
            free: Vec::new(),
            credit: 0,
            piece: 0,
            slots: Vec::new(),
            at_hand,
        }
    }

    /// Chunks that connections hold: the `mem` of `/proc/net/sockstat`.
    pub(crate) fn used(&self) -> usize {
        let cores = lock(&self.0.at_hand);
        let at_hand: usize = cores.iter().map(|chunks| chunks.load(Relaxed)).sum();
        self.0.lent.load(Relaxed).saturating_sub(at_hand)
    }
}

impl Chunks {
    /// A chunk, unless `tcp_mem` has no more.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        self.take_within(Share::All)
    }

    /// A chunk for a queue that holds none: an eighth beyond `tcp_mem` is kept for those, so that
    /// many who don't read can't stop one who does. Linux gives those memory without a limit.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<Chunk> {
        self.take_within(Share::Kept)
    }

    /// Takes a chunk back.
    #[inline]
    pub(crate) fn give(&mut self, chunk: Chunk) {
        self.free.push(chunk);
        let at_hand = self.free.len() + self.credit;
        self.at_hand.store(at_hand, Relaxed);
        if at_hand > 2 * self.piece || self.under_pressure() {
            self.give_back();
        }
    }

    /// Whether connections together hold much: buffers grow no more, and windows get smaller.
    #[inline]
    pub(crate) fn under_pressure(&self) -> bool {
        self.store.is_under_pressure.load(Relaxed)
    }

    #[inline]
    fn take_within(&mut self, share: Share) -> Option<Chunk> {
        let chunk = match self.free.pop() {
            Some(chunk) => chunk,
            None => self.allocate(share)?,
        };
        self.at_hand.store(self.free.len() + self.credit, Relaxed);
        Some(chunk)
    }

    /// Charges chunks if none are, and gets one: of the store, or a new one.
    #[cold]
    fn allocate(&mut self, share: Share) -> Option<Chunk> {
        if self.credit == 0 {
            self.borrow(share)?;
        }
        let mut stored = lock(&self.store.free);
        let from = stored.len().saturating_sub(self.credit);
        self.free.extend(stored.drain(from..));
        drop(stored);
        self.credit -= self.free.len();
        self.free.pop().or_else(|| {
            self.credit -= 1;
            Some(Chunk(Box::new([0; CHUNK])))
        })
    }

    /// Charges one chunk, and a piece more if there is plenty.
    fn borrow(&mut self, share: Share) -> Option<()> {
        let [low, _, high] = self.store.limits();
        let piece = PIECE.min(low / 256);
        let limit = match share {
            Share::All => high,
            Share::Kept => high + high / 8,
        };
        let grant = |lent: usize| match lent + 1 + piece <= low {
            true => Some(1 + piece),
            false => (lent < limit).then_some(1),
        };
        let more = |lent| Some(lent + grant(lent)?);
        let before = self.store.lent.fetch_update(Relaxed, Relaxed, more).ok()?;
        self.credit = grant(before)?;
        self.piece = piece;
        self.store.note(before + self.credit);
        Some(())
    }

    /// Gives the store what is more than a piece; under pressure, all.
    #[cold]
    fn give_back(&mut self) {
        let keep = match self.under_pressure() {
            true => 0,
            false => self.piece,
        };
        let at_hand = self.free.len() + self.credit;
        self.credit = self.credit.min(keep);
        // The coldest are at the bottom.
        let cold = self.free.len().saturating_sub(keep - self.credit);
        let mut stored = lock(&self.store.free);
        let room = STORED.saturating_sub(stored.len());
        stored.extend(self.free.drain(..cold.min(room)));
        drop(stored);
        self.free.drain(..cold.saturating_sub(room));
        let left = self.free.len() + self.credit;
        self.at_hand.store(left, Relaxed);
        let lent = self.store.lent.fetch_sub(at_hand - left, Relaxed);
        self.store.note(lent - (at_hand - left));
    }
}

/// How much of `tcp_mem` a chunk may come from.
#[derive(Clone, Copy)]
enum Share {
    All,
    /// With what is kept for queues that hold nothing.
    Kept,
}

impl Store {
    fn limits(&self) -> [usize; 3] {
        self.limits.each_ref().map(|limit| limit.load(Relaxed))
    }

    /// So many chunks are lent now: is that much?
    fn note(&self, lent: usize) {
        let [low, pressure, _] = self.limits();
        if lent > pressure {
            self.is_under_pressure.store(true, Relaxed);
        } else if lent <= low {
            self.is_under_pressure.store(false, Relaxed);
        }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        lock(&self.store.at_hand).retain(|other| !Arc::ptr_eq(other, &self.at_hand));
        let lent = self.at_hand.load(Relaxed);
        self.store.lent.fetch_sub(lent, Relaxed);
    }
}

impl Deref for Chunk {
    type Target = [u8; CHUNK];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chunk")
    }
}
