//! What few sockets have: kept apart from the slots, so that the many others don't pay for it.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use forebay_sync::rcu::{Domain, Rcu};
use forebay_sync::segments::Segments;

use super::{Slot, lock};
use crate::filter::Program;

/// What a socket has that few have. It stays with the slot for the sockets to come.
pub(crate) struct Rare {
    /// The program that decides what gets into the queue (`SO_ATTACH_FILTER`).
    pub(crate) filter: Rcu<Option<Program>>,
}

/// Those of all slots.
pub(super) struct Rares {
    domain: Domain,
    rares: Segments<Rare>,
    growing: Mutex<()>,
}

/// Which one is a slot's; 0 is none.
#[derive(Debug, Default)]
pub(super) struct RareIndex(AtomicU32);

impl Rares {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            rares: Segments::new(),
            growing: Mutex::default(),
        }
    }

    pub(super) fn of(&self, slot: &Slot) -> Option<&Rare> {
        let nth = slot.head.rare.0.load(Ordering::Acquire);
        self.rares.get(nth.checked_sub(1)?)
    }

    /// The slot's, made if it has none. `None` where there are too many.
    pub(super) fn make(&self, slot: &Slot) -> Option<&Rare> {
        let _growing = lock(&self.growing);
        if let Some(rare) = self.of(slot) {
            return Some(rare);
        }
        let index = self.rares.len();
        let nth = index.checked_add(1)?;
        self.rares.grow_to(nth, || Rare {
            filter: Rcu::new(&self.domain, None),
        });
        slot.head.rare.0.store(nth, Ordering::Release);
        self.rares.get(index)
    }
}
