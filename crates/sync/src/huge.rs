//! Memory for large tables, in huge pages where the system gives them.
//!
//! Who reads a table of hundreds of megabytes at random misses the processor's table of pages as
//! well as its caches, and each such miss is up to four more loads. On Linux, memory of 2 MiB or
//! more is therefore aligned to huge pages and advised to have them (`MADV_HUGEPAGE`), which
//! systems give unless told `never`. Without, it is made of ordinary pages, and only the clock
//! tells.
//!
//! Memory comes zeroed, and the system provides it where it is touched first: a huge page, or an
//! ordinary one, at a time.

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

mod source;

/// A type of which all bytes may be zero.
///
/// # Safety
///
/// They may, and values need no drop.
pub unsafe trait Zeroable {}

// SAFETY: all zeros are the number 0.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// A slice that begins with zeros, and takes memory where it is touched.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use forebay_sync::huge::ZeroedSlice;
///
/// let words = ZeroedSlice::<AtomicU32>::new(1 << 24);
/// words[1 << 20].store(1, Ordering::Relaxed);
/// assert_eq!(words[(1 << 24) - 1].load(Ordering::Relaxed), 0);
/// ```
pub struct ZeroedSlice<T> {
    memory: Memory,
    len: usize,
    owns: PhantomData<T>,
}

impl<T: Zeroable> ZeroedSlice<T> {
    /// A slice of `len` elements. Ends the process when memory is out, as collections do.
    ///
    /// # Panics
    ///
    /// If no memory could be that large.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let layout = Layout::array::<T>(len).expect("a size that memory may have");
        Self {
            memory: Memory::zeroed(layout),
            len,
            owns: PhantomData,
        }
    }
}

impl<T> Deref for ZeroedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let start = self.memory.start().cast::<T>();
        // SAFETY: `new` made room for `len` elements and saw to it that zeros are such; the memory
        // goes when we do.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.len) }
    }
}

/// Zeroed memory, freed on drop.
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: owns its bytes, and gives out nothing but where they are.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of a size and alignment. Ends the process when memory is out, as collections do.
    pub(crate) fn zeroed(layout: Layout) -> Self {
        let layout = at_least_a_byte(layout);
        let start = source::take(layout).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, layout }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Leaves the memory to the caller.
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// `start` came from [`into_raw`](Self::into_raw) of memory of this layout, and nobody else
    /// takes it back or uses it.
    pub(crate) unsafe fn from_raw(start: NonNull<u8>, layout: Layout) -> Self {
        let layout = at_least_a_byte(layout);
        Self { start, layout }
    }
}

/// So that no size is special.
fn at_least_a_byte(layout: Layout) -> Layout {
    match layout.size() {
        0 => Layout::from_size_align(1, layout.align()).unwrap_or(Layout::new::<u8>()),
        _ => layout,
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was taken with this layout, and goes with its owner.
        unsafe { source::give_back(self.start, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_slice_of_any_size_is_zeroed_and_writable_to_its_end() {
        for len in [0, 1, 1000, 1 << 19, (1 << 19) + 1, 10 << 20] {
            let slice = ZeroedSlice::<AtomicU32>::new(len);
            assert_eq!(slice.len(), len);
            for at in [0, len / 3, len.saturating_sub(1)] {
                if let Some(word) = slice.get(at) {
                    assert_eq!(word.swap(at as u32, Ordering::Relaxed), 0, "{at} of {len}");
                }
            }
        }
    }

    #[test]
    fn large_memory_is_aligned_to_huge_pages() {
        for size in [2 << 20, (2 << 20) + 1, 7 << 20] {
            let layout = Layout::from_size_align(size, 64).expect("a layout");
            let memory = Memory::zeroed(layout);
            assert_eq!(memory.start().addr().get() % (2 << 20), 0, "{size}");
            let start = memory.into_raw();
            // SAFETY: just taken out of a memory of this layout.
            drop(unsafe { Memory::from_raw(start, layout) });
        }
    }
}
