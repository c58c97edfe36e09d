//! Cores that application threads borrow, each for the length of a call.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::per_thread::PerThread;
use forebay_sync::short_lock::ShortLock;

use crate::core::Core;
use crate::socket::lock;

/// Places for cores of threads that have none of their own. Threads beyond that many take turns with
/// others, or borrow one of the rest.
const PLACES: usize = 8;

/// The first few threads have a core each, which they take without a lock. Another comes back to the
/// place that it has been to: what lies there is in its cache, and nobody else is likely to be there,
/// so that a call takes one lock. Nobody waits for a place.
#[derive(Default)]
pub(crate) struct IdleCores {
    own: PerThread<Option<Core>>,
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
        let Some(mut own) = self.own.enter() else {
            return self.borrow_shared(make, f);
        };
        let is_wished = own.take_wish();
        let core = own.get_or_insert_with(make);
        if is_wished {
            core.flush_cache();
        }
        f(core)
    }

    #[inline(never)]
    fn borrow_shared<R>(&self, make: impl FnOnce() -> Core, f: impl FnOnce(&mut Core) -> R) -> R {
        let near = &self.places[PLACE.get() % PLACES];
        if let Some(mut place) = near.try_lock() {
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

    /// Has every idle core give its free buffers back: now, but for those of other threads, which do
    /// it when they borrow them the next time.
    pub(crate) fn flush_caches(&self) {
        self.own
            .tend(|own| own.iter_mut().for_each(Core::flush_cache));
        let places = self.places.iter().filter_map(|place| place.try_lock());
        for mut place in places {
            place.iter_mut().for_each(Core::flush_cache);
        }
        lock(&self.rest).iter_mut().for_each(Core::flush_cache);
    }
}
