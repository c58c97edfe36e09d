//! Values that threads have for themselves: taken without a lock, and without a
//! locked instruction.
//!
//! A thread gets a number the first time it asks, which no other thread has as
//! long as it lives; the number is its place in every [`PerThread`]. There are
//! few numbers, since what lies in the places is there for good: a thread that
//! comes when all are taken has no place, and must do with what its caller has
//! for such. Who gets the number of a thread that has ended finds what that one
//! left.
//!
//! ```
//! use forebay_sync::per_thread::PerThread;
//!
//! let counts: PerThread<u32> = PerThread::default();
//! let mut own = counts.enter().expect("few threads are here");
//! *own += 1;
//! assert!(counts.enter().is_none(), "it is in use");
//! drop(own);
//! assert_eq!(counts.enter().as_deref(), Some(&1));
//! ```

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache_line::CacheLine;

/// Threads that have a number, at most.
const PLACES: usize = 8;

/// See the [module](self).
#[derive(Default)]
pub struct PerThread<T> {
    places: [CacheLine<Place<T>>; PLACES],
}

#[derive(Default)]
struct Place<T> {
    /// Touched by the owner, and under the lock of the numbers while that is no
    /// living thread.
    value: UnsafeCell<T>,
    is_entered: Cell<bool>,
    /// The [token](TOKEN) of the thread that has been here last, or 0. Written
    /// under the lock.
    owner: AtomicU64,
    /// Somebody wants the owner to do something with its value.
    is_wished: AtomicBool,
}

// SAFETY: a place's value and mark are touched by one thread at a time: by its
// owner or, when that has ended, by who holds the lock of the numbers. That lock
// is also how an ended thread's place comes to the next.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// The calling thread's value. `None` if it has no place, and within a use of
    /// the place further up.
    #[inline]
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        let token = TOKEN.get();
        let place = self.place_of(token);
        if place.owner.load(Ordering::Relaxed) != token {
            return self.enter_first();
        }
        place.enter()
    }

    /// By a thread that has not been here before.
    #[cold]
    fn enter_first(&self) -> Option<Entered<'_, T>> {
        let token = take_token()?;
        let place = self.place_of(token);
        let _living = living();
        // Who had the place had the number, too, and so has ended.
        place.owner.store(token, Ordering::Relaxed);
        place.enter()
    }

    #[inline]
    fn place_of(&self, token: u64) -> &Place<T> {
        &self.places[(token % PLACES as u64) as usize]
    }

    /// Calls `f` with the calling thread's value, and with those whose thread has
    /// ended. Others hear of the wish when they [enter](Self::enter) the next
    /// time ([`Entered::take_wish`]).
    pub fn tend(&self, mut f: impl FnMut(&mut T)) {
        if let Some(mut own) = self.enter() {
            f(&mut own);
        }
        let own = TOKEN.get();
        let living = living();
        for (place, living) in self.places.iter().zip(*living) {
            let owner = place.owner.load(Ordering::Relaxed);
            if owner == own {
            } else if owner != 0 && owner == living {
                place.is_wished.store(true, Ordering::Relaxed);
            } else if !place.is_entered.get() {
                // SAFETY: the owner has ended, and has not left the place in use;
                // nobody becomes it as long as we hold the lock.
                f(unsafe { &mut *place.value.get() });
            }
        }
    }
}

impl<T> Place<T> {
    /// By its owner.
    #[inline]
    fn enter(&self) -> Option<Entered<'_, T>> {
        (!self.is_entered.replace(true)).then_some(Entered {
            place: self,
            stays: PhantomData,
        })
    }
}

/// A thread's value; the place is free again when this is dropped.
pub struct Entered<'a, T> {
    place: &'a Place<T>,
    /// It belongs to the thread.
    stays: PhantomData<*mut T>,
}

impl<T> Entered<'_, T> {
    /// Whether somebody has [wished](PerThread::tend) something since the last
    /// time.
    #[inline]
    pub fn take_wish(&self) -> bool {
        let is_wished = self.place.is_wished.load(Ordering::Relaxed);
        if is_wished {
            self.place.is_wished.store(false, Ordering::Relaxed);
        }
        is_wished
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has the place's number and has entered it once.
        unsafe { &*self.place.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and this is borrowed mutably.
        unsafe { &mut *self.place.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.place.is_entered.set(false);
    }
}

impl<T> fmt::Debug for PerThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerThread").finish_non_exhaustive()
    }
}

thread_local! {
    /// What tells the thread from all others that ever were: its number, and a
    /// multiple of [`PLACES`]. Or one of the two below, which are nobody's.
    static TOKEN: Cell<u64> = const { Cell::new(UNKNOWN) };
    static HELD: Held = Held::take();
}

/// A thread that has not asked yet.
const UNKNOWN: u64 = 1;
/// A thread that has no number, or none any more.
const NONE: u64 = 2;

fn take_token() -> Option<u64> {
    if TOKEN.get() == UNKNOWN {
        TOKEN.set(HELD.try_with(|held| held.0).unwrap_or(NONE));
    }
    Some(TOKEN.get()).filter(|token| *token != NONE)
}

/// A number for as long as the thread lives.
struct Held(u64);

impl Held {
    fn take() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut living = living();
        let Some(number) = living.iter().position(|token| *token == 0) else {
            return Self(NONE);
        };
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let token = nth * PLACES as u64 + number as u64;
        living[number] = token;
        Self(token)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What the thread does from now on, as it tears down the rest, it does
        // without a place.
        TOKEN.set(NONE);
        for token in living().iter_mut().filter(|token| **token == self.0) {
            *token = 0;
        }
    }
}

/// The tokens of the threads that have a number, by number; 0 where none has.
fn living() -> MutexGuard<'static, [u64; PLACES]> {
    static LIVING: Mutex<[u64; PLACES]> = Mutex::new([0; PLACES]);
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn each_thread_has_its_own_and_few_have_one() {
        let counts: PerThread<u64> = PerThread::default();
        let barrier = Barrier::new(2 * PLACES);
        let with_place: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * PLACES)
                .map(|_| {
                    scope.spawn(|| {
                        let had = counts.enter().map(|own| *own);
                        barrier.wait();
                        let Some(before) = had else { return 0 };
                        for n in 0..10_000 {
                            let mut own = counts.enter().expect("it had one");
                            assert_eq!(*own, before + n);
                            *own += 1;
                        }
                        1
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|it| it.join().expect("no panic"))
                .sum()
        });
        // Other tests run meanwhile.
        assert!(with_place <= PLACES, "{with_place}");
    }

    #[test]
    fn what_is_left_is_found_whoever_has_the_number_next() {
        let sums: PerThread<u64> = PerThread::default();
        let add = || match sums.enter() {
            Some(mut own) => {
                *own += 1;
                1
            }
            // Other tests' threads have all the numbers.
            None => 0,
        };
        let next = Barrier::new(2);
        thread::scope(|scope| {
            let first = scope.spawn(add);
            let added = first.join().expect("no panic");
            // It most likely has the same number, and has never been here.
            scope.spawn(|| {
                let others: PerThread<()> = PerThread::default();
                drop(others.enter());
                next.wait();
                next.wait();
            });
            next.wait();
            let mut found = 0;
            sums.tend(|sum| found += std::mem::take(sum));
            next.wait();
            assert_eq!(found, added);
        });
        let added: u64 = (0..100)
            .map(|_| thread::scope(|scope| scope.spawn(add).join().expect("no panic")))
            .sum();
        let mut found = 0;
        sums.tend(|sum| found += std::mem::take(sum));
        assert_eq!(found, added);
    }

    #[test]
    fn a_wish_is_heard_once() {
        let values: PerThread<u32> = PerThread::default();
        let (asked, told) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let has_place = values.enter().is_some();
                asked.wait();
                told.wait();
                if has_place {
                    let own = values.enter().expect("it had one");
                    assert!(own.take_wish());
                    assert!(!own.take_wish());
                }
            });
            asked.wait();
            values.tend(|_| {});
            told.wait();
        });
    }
}
