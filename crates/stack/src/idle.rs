//! Cores that application threads borrow, each for the length of a call.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::short_lock::ShortLock;

use crate::core::Core;
use crate::socket::lock;

/// Places for cores. Threads beyond that many take turns with others, or borrow one of the rest.
const PLACES: usize = 8;

/// A thread comes back to the place that it has been to: what lies there is in its cache, and
/// nobody else is likely to be there, so that a call takes one lock. Nobody waits for a place.
#[derive(Default)]
pub(crate) struct IdleCores {
    places: [CacheLine<ShortLock<Option<Core>>>; PLACES],
    rest: Mutex<Vec<Core>>,
}

thread_local! {
    static PLACE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % PLACES)
    };
}

impl IdleCores {
    /// Runs `f` with a core; `make` makes one if none is idle.
    #[inline]
    pub(crate) fn borrow<R>(
        &self,
        make: impl FnOnce() -> Core,
        f: impl FnOnce(&mut Core) -> R,
    ) -> R {
        let own = &self.places[PLACE.get() % PLACES];
        if let Some(mut place) = own.try_lock() {
            return f(place.get_or_insert_with(make));
        }
        self.borrow_elsewhere(make, f)
    }

    /// At a place that nobody is at, or one of the rest. A call within a call comes here, too.
    #[cold]
    fn borrow_elsewhere<R>(
        &self,
        make: impl FnOnce() -> Core,
        f: impl FnOnce(&mut Core) -> R,
    ) -> R {
        if let Some(mut place) = self.places.iter().find_map(|place| place.try_lock()) {
            return f(place.get_or_insert_with(make));
        }
        let idle = lock(&self.rest).pop();
        let mut core = idle.unwrap_or_else(make);
        let result = f(&mut core);
        lock(&self.rest).push(core);
        result
    }

    /// Calls `f` with every core that is idle.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&mut Core)) {
        let places = self.places.iter().filter_map(|place| place.try_lock());
        for mut place in places {
            place.iter_mut().for_each(&mut f);
        }
        lock(&self.rest).iter_mut().for_each(f);
    }
}
