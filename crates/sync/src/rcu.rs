//! Read-copy-update: shared state that readers use without locks or reference
//! counts while writers replace it.
//!
//! A reader takes a [`Guard`] once per batch, which costs one store and one
//! fence. What a writer replaced is freed after a grace period: when each
//! reader that held a guard at the time has let it go. Readers without a guard
//! are offline and hold nothing up, so a thread lets its guard go before it
//! sleeps.
//!
//! ```
//! use forebay_sync::rcu::{Domain, Rcu};
//!
//! let domain = Domain::new();
//! let route = Rcu::new(&domain, "via 192.0.2.1");
//! let reader = domain.reader();
//! {
//!     let guard = reader.guard();
//!     assert_eq!(*route.read(&guard), "via 192.0.2.1");
//! }
//! route.publish("via 192.0.2.2");
//! assert_eq!(*route.read(&reader.guard()), "via 192.0.2.2");
//! ```
//!
//! # Why it is right
//!
//! A reader goes online with *load epoch; store it to its record; fence; load
//! pointer*. A writer does *swap pointer; advance epoch to t; fence; scan the
//! records*, and frees the old value once every record is offline or at least
//! t. For each reader one of these holds:
//!
//! - The scan saw its record below t: the writer waits.
//! - The scan saw t or more: the reader loaded the epoch after it was advanced,
//!   hence after the swap (acquire meets release), and sees the new pointer.
//! - The scan saw it offline. If it had gone offline after its last use, that
//!   use comes before the free (release meets acquire). If it was just coming
//!   online, its fence comes after the writer's, for otherwise the scan would
//!   have seen the record; so it sees the new pointer.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::cache_line::CacheLine;
use crate::loom::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::loom::{Arc, Mutex, lock, pause};

/// Replaced values that may wait to be freed; a writer over this bound waits.
const RETIRED_MAX: usize = 64;

/// What readers and writers of a set of [`Rcu`]s have in common. A handle,
/// cheap to clone; one per stack.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

struct Inner {
    epoch: AtomicU64,
    readers: Mutex<Vec<Record>>,
    retired: Mutex<Vec<Retired>>,
}

/// The epoch in which a reader came online, or [`OFFLINE`].
type Record = Arc<CacheLine<AtomicU64>>;

const OFFLINE: u64 = 0;

impl Domain {
    /// A domain without readers.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            epoch: AtomicU64::new(OFFLINE + 1),
            readers: Mutex::new(Vec::new()),
            retired: Mutex::new(Vec::new()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A reader for one core or thread, offline until it takes a guard.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let record = Arc::new(CacheLine(AtomicU64::new(OFFLINE)));
        lock(&self.inner.readers).push(Arc::clone(&record));
        Reader {
            domain: self.clone(),
            record,
            guards: Cell::new(0),
        }
    }

    /// Starts a grace period: for one who took something out of readers' sight
    /// and wants to know when it may be used again.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket(self.inner.advance())
    }

    /// Whether every reader that held a guard when the ticket was made has let
    /// it go since.
    #[must_use]
    pub fn elapsed(&self, ticket: &Ticket) -> bool {
        self.inner.oldest_reader() >= ticket.0
    }

    /// Waits for a grace period and frees what was replaced before. Waits for
    /// ever if the same thread holds a guard of this domain.
    pub fn synchronize(&self) {
        let ticket = self.ticket();
        let mut round = 0;
        while !self.elapsed(&ticket) {
            pause(round);
            round = round.saturating_add(1);
        }
        self.inner.reclaim();
    }

    fn retire(&self, value: NonNull<dyn Send>) {
        let epoch = self.inner.advance();
        lock(&self.inner.retired).push(Retired { epoch, value });
        if self.inner.reclaim() > RETIRED_MAX {
            self.synchronize();
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

/// A grace period that has begun; see [`Domain::ticket`].
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

impl Inner {
    fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The epoch of the reader that has been online longest.
    fn oldest_reader(&self) -> u64 {
        fence(Ordering::SeqCst);
        let readers = lock(&self.readers);
        let epochs = readers.iter().map(|record| record.load(Ordering::Acquire));
        epochs
            .filter(|&epoch| epoch != OFFLINE)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Frees what no reader can see any more; returns how much is left.
    fn reclaim(&self) -> usize {
        let mut retired = lock(&self.retired);
        // Under the lock: what is retired after the scan is not judged by it.
        let oldest = self.oldest_reader();
        let ready: Vec<_> = retired.extract_if(.., |old| old.epoch <= oldest).collect();
        let left = retired.len();
        // Not under the lock: a value's drop may publish, too.
        drop(retired);
        drop(ready);
        left
    }
}

/// A value that was replaced, and the epoch that a reader must have reached not
/// to see it. Dropping this frees it.
struct Retired {
    epoch: u64,
    /// Not a `Box`, which would claim to be the only way to the value while
    /// readers still hold references.
    value: NonNull<dyn Send>,
}

// SAFETY: the value is `Send`.
unsafe impl Send for Retired {}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box, nobody else frees it, and it is
        // dropped only when no reader can see it: after its grace period, or
        // with the domain, which all readers keep alive.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

/// A core's or thread's membership in a [`Domain`].
///
/// May move to another thread, but serves one at a time.
pub struct Reader {
    domain: Domain,
    record: Record,
    /// Guards that are held.
    guards: Cell<usize>,
}

impl Reader {
    /// Goes online until the guard is dropped. Guards nest; the outermost
    /// counts.
    #[inline]
    #[must_use]
    pub fn guard(&self) -> Guard<'_> {
        let held = self.guards.get();
        if held == 0 {
            let epoch = self.domain.inner.epoch.load(Ordering::Acquire);
            // Release, so that a scan that meets this epoch comes after all
            // that earlier guards did.
            self.record.store(epoch, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        self.guards.set(held + 1);
        Guard { reader: self }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.domain.inner.readers).retain(|record| !Arc::ptr_eq(record, &self.record));
    }
}

/// While it is held, nothing that [`Rcu::read`] returned is freed.
pub struct Guard<'r> {
    reader: &'r Reader,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let held = self.reader.guards.get() - 1;
        self.reader.guards.set(held);
        if held == 0 {
            self.reader.record.store(OFFLINE, Ordering::Release);
        }
    }
}

/// A value that is read under a [`Guard`] and replaced as a whole.
///
/// `T` should hold no handle of the same domain: an old value that waits to be
/// freed would keep alive the domain that is to free it.
pub struct Rcu<T> {
    current: AtomicPtr<T>,
    domain: Domain,
    /// Held from the look at the old value to the swap.
    writer: Mutex<()>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A value for the readers of `domain`.
    #[must_use]
    pub fn new(domain: &Domain, value: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            domain: domain.clone(),
            writer: Mutex::new(()),
        }
    }

    /// The current value.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[inline]
    pub fn read<'g>(&'g self, guard: &'g Guard<'_>) -> &'g T {
        assert!(
            self.domain.is(&guard.reader.domain),
            "the guard is of another domain"
        );
        // SAFETY: never null. The guard was taken before this load and lives
        // as long as the reference, so a value replaced meanwhile waits for it
        // (see the module's proof); and `self` is borrowed, so not dropped.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Replaces the value. Readers that take a guard after this returns see
    /// the new one; the old one is freed after a grace period.
    ///
    /// At times it waits for that, to bound the memory of old values; so the
    /// calling thread must hold no guard of this domain.
    pub fn publish(&self, value: T) {
        self.update(|_| value);
    }

    /// Replaces the value by what `f` makes of it. Writers take turns: nobody
    /// else replaces it meanwhile. Waits as [`publish`](Self::publish) does,
    /// and `f` must not write to this value itself.
    pub fn update(&self, f: impl FnOnce(&T) -> T) {
        let turn = lock(&self.writer);
        // SAFETY: only writers replace the value, and it is our turn.
        let new = f(unsafe { &*self.current.load(Ordering::Acquire) });
        let old = self
            .current
            .swap(Box::into_raw(Box::new(new)), Ordering::AcqRel);
        drop(turn);
        if let Some(old) = NonNull::new(old) {
            self.domain.retire(old);
        }
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        let value = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer came from a box. What `read` returned borrows
        // `self`, so no reader is left.
        drop(unsafe { Box::from_raw(value) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
