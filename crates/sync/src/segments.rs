//! A vector that grows while others read it.

use std::alloc::Layout;
use std::array;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::loom::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::loom::{Mutex, lock};

use crate::huge::Memory;

/// Elements of the first segment; each further one has twice the last's.
const FIRST: u64 = 64;

/// Segments that hold `u32::MAX` elements.
const SEGMENTS: usize = locate(u32::MAX - 1).0 + 1;

/// An append-only vector. Readers index it without a lock while it grows, for
/// elements never move: it grows by segments, each twice as large as the last.
///
/// ```
/// use forebay_sync::segments::Segments;
///
/// let squares = Segments::new();
/// let mut n = 0..;
/// squares.grow_to(4, || n.next().map_or(0, |n: u64| n * n));
/// assert_eq!(squares.get(3), Some(&9));
/// assert_eq!(squares.get(4), None);
/// ```
pub struct Segments<T> {
    /// Elements that are there: stored after each was written.
    len: AtomicU32,
    segments: [AtomicPtr<T>; SEGMENTS],
    grow: Mutex<()>,
    owns: PhantomData<*mut T>,
}

// SAFETY: owns its elements, as a `Vec<T>` does.
unsafe impl<T: Send> Send for Segments<T> {}
// SAFETY: gives out `&T`, and takes in and drops `T`s of whichever thread grows.
unsafe impl<T: Send + Sync> Sync for Segments<T> {}

impl<T> Segments<T> {
    /// An empty vector, without memory of its own.
    #[must_use]
    pub fn new() -> Self {
        Self {
            len: AtomicU32::new(0),
            segments: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            grow: Mutex::new(()),
            owns: PhantomData,
        }
    }

    /// The element at `index`.
    pub fn get(&self, index: u32) -> Option<&T> {
        if index >= self.len() {
            return None;
        }
        let (segment, offset) = locate(index);
        // `len` was loaded with acquire and says that the pointer is set.
        let start = self.segments[segment].load(Ordering::Relaxed);
        // SAFETY: `locate` keeps the offset inside the segment.
        let element = unsafe { start.add(offset) };
        // SAFETY: elements below `len` are written, and neither move nor
        // change owner until the vector is dropped.
        Some(unsafe { &*element })
    }

    /// Elements that are there.
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends what `make` returns until there are `len` elements. Does nothing
    /// if there are. `make` must not grow the same vector.
    pub fn grow_to(&self, len: u32, mut make: impl FnMut() -> T) {
        let _alone = lock(&self.grow);
        for index in self.len()..len {
            let element = make();
            let (segment, offset) = locate(index);
            if offset == 0 {
                let memory = Memory::zeroed(Self::layout(segment)).into_raw();
                self.segments[segment].store(memory.cast().as_ptr(), Ordering::Relaxed);
            }
            let start = self.segments[segment].load(Ordering::Relaxed);
            // SAFETY: `locate` keeps the offset inside the segment.
            let place = unsafe { start.add(offset) };
            // SAFETY: `index` is not below `len` yet, so nobody reads the
            // place, and the lock keeps other writers out.
            unsafe { place.write(element) };
            self.len.store(index + 1, Ordering::Release);
        }
    }

    fn layout(segment: usize) -> Layout {
        Layout::array::<T>(size_of_segment(segment)).expect("a size that memory may have")
    }
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Segments<T> {
    fn drop(&mut self) {
        let mut left = self.len() as usize;
        for (segment, start) in self.segments.iter().enumerate() {
            let Some(start) = NonNull::new(start.load(Ordering::Relaxed)) else {
                break;
            };
            let written = left.min(size_of_segment(segment));
            left -= written;
            // SAFETY: it came from a memory of this layout, and readers borrow
            // the vector, so there is none.
            let _memory = unsafe { Memory::from_raw(start.cast(), Self::layout(segment)) };
            // SAFETY: the first `written` elements are, and nobody sees them
            // any more. Should one's drop panic, the memory still goes.
            unsafe { NonNull::slice_from_raw_parts(start, written).drop_in_place() };
        }
    }
}

/// The segment of an index, and the place in it.
const fn locate(index: u32) -> (usize, usize) {
    // Shifted by FIRST, the segments' borders are the powers of two.
    let shifted = index as u64 + FIRST;
    let power = shifted.ilog2();
    (
        (power - FIRST.ilog2()) as usize,
        (shifted - (1 << power)) as usize,
    )
}

const fn size_of_segment(segment: usize) -> usize {
    (FIRST as usize) << segment
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn indices_fill_segment_after_segment() {
        let cases = [
            (0, (0, 0)),
            (63, (0, 63)),
            (64, (1, 0)),
            (191, (1, 127)),
            (192, (2, 0)),
            (u32::MAX - 1, (26, 62)),
        ];
        for (index, place) in cases {
            assert_eq!(locate(index), place, "{index}");
        }
    }

    #[test]
    fn elements_stay_where_they_are_and_drop_once() {
        let counter = Arc::new(());
        let segments = Segments::new();
        segments.grow_to(1, || Arc::clone(&counter));
        let first = ptr::from_ref(segments.get(0).unwrap());
        segments.grow_to(1000, || Arc::clone(&counter));
        segments.grow_to(10, || Arc::clone(&counter));
        assert!(ptr::eq(first, segments.get(0).unwrap()));
        assert_eq!((segments.len(), Arc::strong_count(&counter)), (1000, 1001));
        assert!(segments.get(1000).is_none());
        drop(segments);
        assert_eq!(Arc::strong_count(&counter), 1);
    }

    #[test]
    fn elements_without_size_work() {
        let segments = Segments::new();
        segments.grow_to(100, || ());
        assert_eq!(segments.get(99), Some(&()));
    }

    #[test]
    fn a_panic_while_growing_keeps_what_is_there() {
        let segments = Segments::new();
        let mut n = 0;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            segments.grow_to(100, || {
                n += 1;
                assert!(n <= 70);
                n
            });
        }));
        assert!(outcome.is_err());
        assert_eq!((segments.len(), segments.get(69)), (70, Some(&70)));
        segments.grow_to(71, || 0);
        assert_eq!(segments.get(70), Some(&0));
    }

    #[test]
    fn readers_see_whole_elements_while_it_grows() {
        let segments = Segments::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0_u64;
                segments.grow_to(20_000, || {
                    n += 1;
                    Box::new(n)
                });
            });
            scope.spawn(|| {
                while segments.len() < 20_000 {
                    let len = segments.len();
                    if let Some(last) = len.checked_sub(1) {
                        assert_eq!(segments.get(last).map(|n| **n), Some(u64::from(len)));
                    }
                }
            });
        });
    }
}
