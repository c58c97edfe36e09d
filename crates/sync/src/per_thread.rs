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
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Touched by the thread with the place's number, or under the lock of the
    /// numbers while no thread has it.
    value: UnsafeCell<T>,
    is_entered: Cell<bool>,
    /// Somebody wants the thread to do something with its value.
    is_wished: AtomicBool,
}

// SAFETY: a place's value and mark are touched by one thread at a time: that
// with its number or, while nobody has that, who holds the lock of the numbers.
// A number passes from thread to thread under the same lock.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// The calling thread's value. `None` if it has no place, and within a use of
    /// the place further up.
    #[inline]
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        let place = self.places.get(number())?;
        if place.is_entered.replace(true) {
            return None;
        }
        Some(Entered {
            place,
            stays: PhantomData,
        })
    }

    /// Calls `f` with the calling thread's value, and with those whose thread has
    /// ended. Others hear of the wish when they [enter](Self::enter) the next
    /// time ([`Entered::take_wish`]).
    pub fn tend(&self, mut f: impl FnMut(&mut T)) {
        if let Some(mut own) = self.enter() {
            f(&mut own);
        }
        let own = number();
        let taken = taken();
        for (number, place) in self.places.iter().enumerate() {
            if number == own {
            } else if is_set(*taken, number) {
                place.is_wished.store(true, Ordering::Relaxed);
            } else if !place.is_entered.get() {
                // SAFETY: no thread has the number, and none gets it as long as we
                // hold the lock; and the last one has not left the place in use.
                f(unsafe { &mut *place.value.get() });
            }
        }
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

/// A thread that has not asked yet.
const UNKNOWN: usize = usize::MAX;
/// A thread that has no number, or none any more.
const NONE: usize = PLACES;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static HELD: Held = Held::take();
}

#[inline]
fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => take_number(),
        number => number,
    }
}

#[cold]
fn take_number() -> usize {
    let number = HELD.try_with(|held| held.0).unwrap_or(NONE);
    NUMBER.set(number);
    number
}

/// A number for as long as the thread lives.
struct Held(usize);

impl Held {
    fn take() -> Self {
        let mut taken = taken();
        let free = (0..PLACES).find(|number| !is_set(*taken, *number));
        if let Some(number) = free {
            *taken |= 1 << number;
        }
        Self(free.unwrap_or(NONE))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What the thread does from now on, as it tears down the rest, it does
        // without a place.
        NUMBER.set(NONE);
        if self.0 < PLACES {
            *taken() &= !(1 << self.0);
        }
    }
}

/// A bit for each number that a thread has.
fn taken() -> MutexGuard<'static, u32> {
    static TAKEN: Mutex<u32> = Mutex::new(0);
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_set(bits: u32, number: usize) -> bool {
    bits >> number & 1 == 1
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
    fn who_comes_later_finds_what_is_left() {
        let sums: PerThread<u64> = PerThread::default();
        for _ in 0..100 {
            let added = thread::scope(|scope| {
                let thread = scope.spawn(|| match sums.enter() {
                    Some(mut own) => {
                        *own += 1;
                        1
                    }
                    None => 0,
                });
                thread.join().expect("no panic")
            });
            // Its thread has ended, or another test's has its number and is asked to do it.
            let mut found = 0;
            sums.tend(|sum| found += std::mem::take(sum));
            assert!(found <= 100 * added);
        }
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
