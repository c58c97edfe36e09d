//! Where memory comes from: the system, if it is large, and else the global allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Memory of this layout, whose size is not 0, zeroed and untouched as far as that goes.
pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    if linux::is_for(layout) {
        return linux::map(layout.size());
    }
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Gives memory back.
///
/// # Safety
///
/// [`take`] has returned it for the same layout, and nobody uses it any more.
pub(super) unsafe fn give_back(start: NonNull<u8>, layout: Layout) {
    #[cfg(target_os = "linux")]
    if linux::is_for(layout) {
        // SAFETY: `take` has mapped it, for it asked the same.
        return unsafe { linux::unmap(start, layout.size()) };
    }
    // SAFETY: `take` has allocated it, for it asked the same.
    unsafe { dealloc(start.as_ptr(), layout) };
}

#[cfg(target_os = "linux")]
mod linux {
    use std::alloc::Layout;
    use std::ffi::c_void;
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Bytes of a huge page on x86-64, and on aarch64 where ordinary ones have 4 KiB.
    const HUGE_PAGE: usize = 2 << 20;

    /// Whether memory is large enough to be mapped. glibc would map it as well, but not aligned,
    /// and where it reuses some, it zeroes and so touches it all.
    pub(super) fn is_for(layout: Layout) -> bool {
        layout.size() >= HUGE_PAGE && layout.align() <= HUGE_PAGE
    }

    /// Whole huge pages for `size` bytes, aligned to such and advised to be such.
    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        let size = size.checked_next_multiple_of(HUGE_PAGE)?;
        // Aligned memory lies somewhere in this; around it, all is given back.
        let mapped = size.checked_add(HUGE_PAGE)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the system has room for it takes nobody's memory.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), mapped, access, MapFlags::PRIVATE) };
        let start = start.ok()?.cast::<u8>();
        let before = start.addr().wrapping_neg() % HUGE_PAGE;
        let aligned = start.wrapping_add(before);
        // SAFETY: the front part of the mapping, which nobody knows.
        unsafe { unmap_part(start, before) };
        // SAFETY: its back part.
        unsafe { unmap_part(aligned.wrapping_add(size), HUGE_PAGE - before) };
        // SAFETY: this changes no byte. A system without huge pages refuses, and all stays as it is.
        let _ = unsafe { madvise(aligned.cast(), size, Advice::LinuxHugepage) };
        NonNull::new(aligned)
    }

    /// # Safety
    ///
    /// `start` came from [`map`] of `size` bytes, and nobody uses the memory any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: as the caller says.
        unsafe { unmap_part(start.as_ptr(), size.next_multiple_of(HUGE_PAGE)) };
    }

    /// # Safety
    ///
    /// The bytes are mapped, and nobody uses them.
    unsafe fn unmap_part(start: *mut u8, size: usize) {
        if size > 0 {
            // SAFETY: as the caller says. It fails for parts that were never mapped, or when the
            // system can't split a mapping; then the memory stays ours, unused.
            let _ = unsafe { munmap(start.cast::<c_void>(), size) };
        }
    }
}
