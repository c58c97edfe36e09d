//! The pool, which all share under a lock, and the caches in front of it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slot::{Chunk, Slot};
use super::{Buf, HEADROOM};

/// Buffers that move between a cache and the pool at once.
const BULK: usize = 32;

/// Buffers that a cache keeps before it gives some back.
const CACHE_MAX: usize = 128;

/// Buffers that were never used go to a cache in longer runs, if the pool is large: a processor that
/// walks through its buffers fetches the next ones ahead, and where those are another core's, takes
/// them away from it.
const RUN: usize = 124;

/// A run is no more than this part of the pool, so that a few caches do not have all of it.
const RUN_SHARE: usize = 64;

/// A pool of packet buffers; a handle, cheap to clone.
///
/// Buffers may outlive all handles: the memory is freed with the last of
/// handles, caches and buffers.
pub struct Pool<M> {
    shared: Arc<Shared<M>>,
}

impl<M: Copy + Default + Send + 'static> Pool<M> {
    /// A pool of at most `buffers` buffers. Memory is taken 2 MiB at a time
    /// when it is needed.
    ///
    /// # Panics
    ///
    /// When the process makes its 2^32nd pool.
    #[must_use]
    pub fn new(buffers: usize) -> Self {
        const { Slot::<M>::FITS };
        Self {
            shared: Arc::new(Shared::new(buffers)),
        }
    }

    /// A cache for one core or thread.
    #[must_use]
    pub fn cache(&self) -> Cache<M> {
        Cache {
            slots: Vec::with_capacity(CACHE_MAX),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M> Pool<M> {
    /// Most buffers the pool hands out.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Buffers handed out and not back. Those that lie in caches count until
    /// they are flushed.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.home().out
    }
}

impl<M> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The free buffers of one core or thread, last in first out, so that the next
/// packet lies where the last one did and its lines are still warm.
///
/// Takes from the pool, and gives back to it, in bulk. What it holds goes home
/// when it is dropped.
pub struct Cache<M> {
    slots: Vec<NonNull<Slot<M>>>,
    shared: Arc<Shared<M>>,
}

// SAFETY: the cache owns its free slots alone, and no live `M` is in them.
unsafe impl<M> Send for Cache<M> {}

impl<M: Copy + Default + Send + 'static> Cache<M> {
    /// A fresh buffer: no data, [`HEADROOM`] bytes in front, default metadata,
    /// no fragments. `None` when the pool is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<Buf<M>> {
        let slot = match self.slots.pop() {
            Some(slot) => slot,
            None => self.refill()?,
        };
        // SAFETY: free slots are carved, linked to nothing and belong to the
        // cache, which gives this one away here.
        let mut buf = unsafe { Buf::from_slot(slot) };
        let head = buf.head_mut();
        head.offset = HEADROOM as u16;
        head.len = 0;
        head.meta = M::default();
        Some(buf)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<NonNull<Slot<M>>> {
        self.shared.take(BULK, &mut self.slots);
        self.slots.pop()
    }
}

impl<M> Cache<M> {
    /// Takes back a buffer with its fragments. Those of another pool go home
    /// to their own.
    #[inline]
    pub fn free(&mut self, buf: Buf<M>) {
        if buf.has_frags() || buf.head().pool != self.shared.id {
            self.free_others(buf);
        } else {
            self.keep(buf);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_others(&mut self, buf: Buf<M>) {
        let mut rest = Some(buf);
        while let Some(mut buf) = rest {
            rest = buf.head_mut().frag.take();
            if buf.head().pool == self.shared.id {
                self.keep(buf);
            }
        }
    }

    /// A buffer of this pool, without fragments.
    #[inline]
    fn keep(&mut self, buf: Buf<M>) {
        if self.slots.len() >= CACHE_MAX {
            self.spill();
        }
        self.slots.push(buf.into_slot());
    }

    /// Gives everything back to the pool.
    pub fn flush(&mut self) {
        self.shared.give(self.slots.drain(..));
    }

    /// Gives back the oldest, for the warmest to stay.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        self.shared.give(self.slots.drain(..BULK));
    }
}

impl<M> Drop for Cache<M> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Gives one slot back to its pool, from anywhere.
///
/// # Safety
///
/// The caller owns the slot and leaves it; it is linked to nothing.
#[cold]
#[inline(never)]
pub(super) unsafe fn give_back<M>(slot: NonNull<Slot<M>>) {
    // SAFETY: a slot that is out keeps its pool alive, and so its chunk.
    let shared = unsafe { Chunk::owner(slot) };
    // A handle for the length of this call: as soon as the slot is home,
    // another thread may drop the pool, and we would still be unlocking it.
    // SAFETY: `owner` is the pointer of the pool's `Arc`, which lives as above.
    unsafe { Arc::increment_strong_count(shared) };
    // SAFETY: the count just added is the one this handle owns.
    let shared = unsafe { Arc::from_raw(shared) };
    shared.give([slot]);
}

/// What all handles, caches and buffers of a pool share.
pub(super) struct Shared<M> {
    id: u32,
    capacity: usize,
    home: Mutex<Home<M>>,
}

struct Home<M> {
    free: Vec<NonNull<Slot<M>>>,
    chunks: Vec<Chunk<M>>,
    /// Slots of the chunks that have been handed out at least once.
    carved: usize,
    /// Slots handed out and not back.
    out: usize,
    /// The pool's own handle on itself while slots are out: it stands for all
    /// of them, so that no buffer needs a reference count.
    lease: Option<Arc<Shared<M>>>,
}

// SAFETY: free slots hold no live `M`, and chunks are plain memory.
unsafe impl<M> Send for Home<M> {}

impl<M> Shared<M> {
    fn new(capacity: usize) -> Self {
        let home = Home {
            free: Vec::new(),
            chunks: Vec::new(),
            carved: 0,
            out: 0,
            lease: None,
        };
        Self {
            id: next_id(),
            capacity,
            home: Mutex::new(home),
        }
    }

    /// Moves up to `n` free slots to `into`.
    fn take(self: &Arc<Self>, n: usize, into: &mut Vec<NonNull<Slot<M>>>)
    where
        M: Default,
    {
        let before = into.len();
        let mut home = self.home();
        let warm = home.free.len().min(n);
        let rest = home.free.len() - warm;
        into.extend(home.free.drain(rest..));
        let n = match warm {
            0 => n.max(self.run()),
            _ => n,
        };
        for _ in warm..n {
            let Some(slot) = self.carve(&mut home) else {
                break;
            };
            into.push(slot);
        }
        home.out += into.len() - before;
        if home.out > 0 && home.lease.is_none() {
            home.lease = Some(Arc::clone(self));
        }
    }

    fn run(&self) -> usize {
        RUN.min(self.capacity / RUN_SHARE)
    }

    /// The next slot that was never used, from a new chunk if need be.
    fn carve(self: &Arc<Self>, home: &mut Home<M>) -> Option<NonNull<Slot<M>>>
    where
        M: Default,
    {
        if home.carved == self.capacity {
            return None;
        }
        let index = home.carved % Chunk::<M>::SLOTS;
        if index == 0 {
            home.chunks.push(Chunk::new(Arc::as_ptr(self))?);
        }
        // SAFETY: the remainder is below SLOTS; `carved` counts up under the
        // lock, so each slot comes this way once.
        let slot = unsafe { home.chunks.last()?.carve(index, self.id) };
        home.carved += 1;
        Some(slot)
    }

    /// Takes slots home. The caller holds a handle of its own until after.
    fn give(&self, slots: impl IntoIterator<Item = NonNull<Slot<M>>>) {
        let mut home = self.home();
        let before = home.free.len();
        home.free.extend(slots);
        home.out -= home.free.len() - before;
        let lease = if home.out == 0 {
            home.lease.take()
        } else {
            None
        };
        // The lease must not go first: it may be the last handle but ours.
        drop(home);
        drop(lease);
    }

    fn home(&self) -> MutexGuard<'_, Home<M>> {
        // Nothing under this lock leaves the lists half changed by a panic.
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ids are never used twice: a cache tells its pool's buffers by them.
fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
    id.expect("2^32 pools were made")
}

#[cfg(test)]
mod tests;
