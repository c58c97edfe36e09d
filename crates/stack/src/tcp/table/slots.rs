//! The places of sockets: what a [`SocketId`] names.
//!
//! A slot is never freed, so an id can be followed without a reference count. A slot serves one
//! socket after the other, each under a generation of its own, and rests for a grace period between
//! them, so that an id that a packet carries through a batch means one socket or none.

use core::num::NonZeroU32;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::Mutex;

use forebay_sync::rcu::{Domain, Ticket};
use forebay_sync::segments::Segments;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use crate::socket::{SocketId, lock};

/// Slots that there are at most: bits of a word in the table of connections say other things.
const MAX_SLOTS: u32 = 1 << 30;

/// Every socket, whatever it is for.
pub(crate) struct Slots<T> {
    domain: Domain,
    slots: Segments<Slot<T>>,
    /// Slots without a socket, each with the end of its rest, the longest at rest first.
    resting: Mutex<VecDeque<(Ticket, u32)>>,
}

/// On a cache line of its own: who locks one socket does not slow who locks another.
#[repr(align(64))]
struct Slot<T> {
    /// Odd while a socket is here. Changes under the lock.
    generation: AtomicU32,
    value: ShortLock<Option<T>>,
}

/// A socket, locked.
pub(crate) struct Locked<'a, T>(ShortGuard<'a, Option<T>>);

impl<T: Send> Slots<T> {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            slots: Segments::new(),
            resting: Mutex::default(),
        }
    }

    /// Gives a socket a place. `None` if 2^30 have one.
    pub(crate) fn open(&self, value: T) -> Option<SocketId> {
        let index = self.rested().or_else(|| self.fresh())?;
        let slot = self.slots.get(index)?;
        let mut place = slot.value.lock();
        // Only we know of the slot.
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1) | 1;
        *place = Some(value);
        slot.generation.store(generation, Ordering::Release);
        Some(SocketId {
            slot: index,
            generation: NonZeroU32::new(generation)?,
        })
    }

    /// Locks a socket. `None` if it is closed. Whoever holds the lock may close it, and nobody else.
    #[inline]
    pub(crate) fn lock(&self, id: SocketId) -> Option<Locked<'_, T>> {
        let slot = self.slots.get(id.slot)?;
        // Before the lock, too: ids of sockets long gone should cost nobody anything.
        if !slot.is(id) {
            return None;
        }
        let place = slot.value.lock();
        (slot.is(id) && place.is_some()).then_some(Locked(place))
    }

    /// Closes a socket: what it was. Nothing must lead to it any more. `None` if it is closed
    /// already.
    pub(crate) fn close(&self, id: SocketId) -> Option<T> {
        let slot = self.slots.get(id.slot)?;
        let mut place = slot.value.lock();
        if !slot.is(id) {
            return None;
        }
        let generation = id.generation.get().wrapping_add(1);
        slot.generation.store(generation, Ordering::Release);
        let value = place.take();
        drop(place);
        lock(&self.resting).push_back((self.domain.ticket(), id.slot));
        value
    }

    /// Calls `f` with every socket that is open, each under its lock.
    pub(crate) fn for_each(&self, mut f: impl FnMut(SocketId, &mut T)) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else {
                return;
            };
            let mut place = slot.value.lock();
            let generation = NonZeroU32::new(slot.generation.load(Ordering::Relaxed));
            if let (Some(generation), Some(value)) = (generation, &mut *place) {
                let id = SocketId {
                    slot: index,
                    generation,
                };
                f(id, value);
            }
        }
    }

    fn rested(&self) -> Option<u32> {
        let mut resting = lock(&self.resting);
        let (ticket, index) = resting.front().copied()?;
        if !self.domain.elapsed(&ticket) {
            return None;
        }
        resting.pop_front();
        Some(index)
    }

    fn fresh(&self) -> Option<u32> {
        // Whoever grows the slots has the new one, so others must not be told of it.
        let _resting = lock(&self.resting);
        let index = self.slots.len();
        if index >= MAX_SLOTS {
            return None;
        }
        self.slots.grow_to(index + 1, || Slot {
            generation: AtomicU32::new(0),
            value: ShortLock::new(None),
        });
        Some(index)
    }
}

impl<T> Slot<T> {
    #[inline]
    fn is(&self, id: SocketId) -> bool {
        self.generation.load(Ordering::Acquire) == id.generation.get()
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("looked at when it was locked")
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("looked at when it was locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outlive_their_sockets_and_mean_no_other() {
        let domain = Domain::new();
        let slots = Slots::new(&domain);
        let first = slots.open("first").expect("room");
        assert_eq!(slots.lock(first).as_deref(), Some(&"first"));
        assert_eq!(slots.close(first), Some("first"));
        assert_eq!(slots.close(first), None);
        assert!(slots.lock(first).is_none());

        let second = slots.open("second").expect("room");
        assert_eq!(second.slot, first.slot);
        assert_ne!(second.generation, first.generation);
        assert!(slots.lock(first).is_none());
        assert_eq!(slots.close(first), None);
        assert_eq!(slots.lock(second).as_deref(), Some(&"second"));
    }

    #[test]
    fn a_slot_rests_while_a_batch_is_under_way() {
        let domain = Domain::new();
        let slots = Slots::new(&domain);
        let reader = domain.reader();
        let first = slots.open(1).expect("room");
        let guard = reader.guard();
        slots.close(first);
        let second = slots.open(2).expect("room");
        assert_ne!(second.slot, first.slot);
        drop(guard);
        assert_eq!(slots.open(3).expect("room").slot, first.slot);

        let mut seen = Vec::new();
        slots.for_each(|id, value| seen.push((id.slot, *value)));
        assert_eq!(seen, [(first.slot, 3), (second.slot, 2)]);
    }

    #[test]
    fn a_socket_is_one_thread_s_at_a_time() {
        let domain = Domain::new();
        let slots = Slots::new(&domain);
        let id = slots.open(0).expect("room");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        *slots.lock(id).expect("open") += 1;
                    }
                });
            }
        });
        assert_eq!(slots.close(id), Some(4_000));
    }
}
