//! Values on cache lines of their own.

use std::ops::{Deref, DerefMut};

/// A value that shares its cache lines with nothing else, so that one core's
/// writes to it do not slow another core's reads of its neighbours.
///
/// ```
/// use forebay_sync::cache_line::CacheLine;
///
/// assert_eq!(size_of::<[CacheLine<u32>; 2]>(), 128);
/// assert_eq!(*CacheLine(7), 7);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct CacheLine<T>(pub T);

impl<T> Deref for CacheLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CacheLine<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
