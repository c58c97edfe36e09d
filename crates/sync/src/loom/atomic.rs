//! loom's atomics, with each access announced.
//!
//! Where loom looks for accesses that could come in another order, it remembers
//! a thread's last access to an atomic alone. A writer that loads before it
//! stores thus hides its store from the readers before it, and loom would try
//! one order and call it a day (tokio-rs/loom#166 and #392). So each access is
//! preceded by a read-modify-write of a companion, which depends on every other
//! one and, being relaxed, orders nothing.

use std::ops::Deref;

use ::loom::sync::atomic;
pub use ::loom::sync::atomic::{Ordering, fence};

pub type AtomicBool = Announced<atomic::AtomicBool>;
pub type AtomicU8 = Announced<atomic::AtomicU8>;
pub type AtomicU32 = Announced<atomic::AtomicU32>;
pub type AtomicU64 = Announced<atomic::AtomicU64>;
pub type AtomicUsize = Announced<atomic::AtomicUsize>;
pub type AtomicPtr<T> = Announced<atomic::AtomicPtr<T>>;

/// An atomic whose accesses, all of them through [`Deref`], are announced.
#[derive(Debug, Default)]
pub struct Announced<A> {
    atomic: A,
    companion: atomic::AtomicBool,
}

impl<A> Deref for Announced<A> {
    type Target = A;

    fn deref(&self) -> &A {
        self.companion.fetch_or(false, Ordering::Relaxed);
        &self.atomic
    }
}

impl<A> Announced<A> {
    fn of(atomic: A) -> Self {
        Self {
            atomic,
            companion: atomic::AtomicBool::new(false),
        }
    }
}

impl AtomicBool {
    pub fn new(value: bool) -> Self {
        Self::of(atomic::AtomicBool::new(value))
    }
}

impl AtomicU8 {
    pub fn new(value: u8) -> Self {
        Self::of(atomic::AtomicU8::new(value))
    }
}

impl AtomicU32 {
    pub fn new(value: u32) -> Self {
        Self::of(atomic::AtomicU32::new(value))
    }
}

impl AtomicU64 {
    pub fn new(value: u64) -> Self {
        Self::of(atomic::AtomicU64::new(value))
    }
}

impl AtomicUsize {
    pub fn new(value: usize) -> Self {
        Self::of(atomic::AtomicUsize::new(value))
    }
}

impl<T> AtomicPtr<T> {
    pub fn new(value: *mut T) -> Self {
        Self::of(atomic::AtomicPtr::new(value))
    }
}
