//! Atomics and locks: the standard library's, or loom's under `--cfg loom`,
//! where tests try every interleaving that matters.
//!
//! For what the crates of this workspace build without locks, and for where
//! one of them waits for another, and nobody else.

use std::sync::PoisonError;

#[cfg(loom)]
pub mod atomic;

#[cfg(loom)]
pub use ::loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

/// Locks, whether or not somebody panicked inside: for data that is never left
/// half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets time pass in a loop that waits for another thread; `round` counts its
/// turns. Grace periods are as short as a batch, so it spins first; a thread
/// that holds a guard may have lost its processor, so it sleeps later.
#[cfg(not(loom))]
pub(crate) fn pause(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

#[cfg(loom)]
pub(crate) fn pause(_round: u32) {
    ::loom::thread::yield_now();
}
