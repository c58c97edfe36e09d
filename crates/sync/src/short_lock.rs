//! A lock for work of a few dozen instructions.
//!
//! Taking it is one locked instruction and letting it go a plain store: a
//! [`Mutex`](std::sync::Mutex) needs two, since it has to look for who sleeps.
//! Here nobody does. Who has to wait spins, for the work is shorter than a
//! sleep; a holder may have lost its processor, so after a while the others give
//! way, and then sleep for short times.
//!
//! It knows no poison: the data must not be left half changed by a panic.
//!
//! ```
//! use forebay_sync::short_lock::ShortLock;
//!
//! let sum = ShortLock::new(0);
//! std::thread::scope(|scope| {
//!     for n in 1..=4 {
//!         let sum = &sum;
//!         scope.spawn(move || *sum.lock() += n);
//!     }
//! });
//! assert_eq!(*sum.lock(), 10);
//! ```

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::loom::atomic::{AtomicU32, Ordering};
use crate::loom::pause;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// See the [module](self).
pub struct ShortLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is handed from thread to thread, one at a time.
unsafe impl<T: Send> Sync for ShortLock<T> {}

impl<T> ShortLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free, and takes it. A thread that holds it already
    /// waits for ever.
    #[inline]
    pub fn lock(&self) -> ShortGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            self.wait();
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<ShortGuard<'_, T>> {
        let taken = self
            .state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        // Made only if it is taken: to drop a guard lets the lock go.
        taken.is_ok().then(|| ShortGuard {
            lock: self,
            value: PhantomData,
        })
    }

    /// Until the lock looks free.
    #[cold]
    fn wait(&self) {
        let mut round = 0;
        while self.state.load(Ordering::Relaxed) == HELD {
            pause(round);
            round = round.saturating_add(1);
        }
    }
}

impl<T: Default> Default for ShortLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for ShortLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShortLock").finish_non_exhaustive()
    }
}

/// The lock is free again when this is dropped.
pub struct ShortGuard<'a, T> {
    lock: &'a ShortLock<T>,
    /// To be sent and shared as what it leads to.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for ShortGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, and nobody else touches the value
        // while it does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ShortGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ShortGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_take_turns() {
        let count = ShortLock::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut count = count.lock();
                        *count += 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }

    #[test]
    fn who_waits_gets_it_however_long_it_is_held() {
        let lock = ShortLock::new(false);
        thread::scope(|scope| {
            let mut held = lock.lock();
            // To try does not let it go.
            assert!((0..2).all(|_| lock.try_lock().is_none()));
            let waiting = scope.spawn(|| *lock.lock());
            thread::sleep(Duration::from_millis(5));
            *held = true;
            drop(held);
            assert!(waiting.join().expect("no panic"));
        });
    }

    #[test]
    fn a_panic_lets_it_go() {
        let lock = ShortLock::new(());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("inside");
        }));
        assert!(outcome.is_err());
        assert!(lock.try_lock().is_some());
    }
}
