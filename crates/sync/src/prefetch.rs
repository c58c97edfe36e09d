//! Hints to the processor to fetch a cache line before it is read.
//!
//! A batch hides the latency of one packet's memory behind the work on the
//! others. On processors without a known instruction these do nothing.
//!
//! ```
//! use forebay_sync::prefetch::prefetch_read;
//!
//! let table = vec![1_u64; 4096];
//! let batch = [7, 4000, 1234];
//! batch.iter().for_each(|&at| prefetch_read(&table[at]));
//! assert_eq!(batch.iter().map(|&at| table[at]).sum::<u64>(), 3);
//! ```

use std::ptr;

/// Fetches the first cache line of `target` for reading.
#[inline]
pub fn prefetch_read<T>(target: &T) {
    fetch(ptr::from_ref(target).cast());
}

/// Fetches the first cache line of `bytes` for reading.
#[inline]
pub fn prefetch_slice(bytes: &[u8]) {
    fetch(bytes.as_ptr());
}

/// Fetches the cache line at `address` for reading, whatever it is.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn fetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint: it neither faults nor changes anything that a program
    // can see, whatever the address. SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn fetch(address: *const u8) {
    // SAFETY: a hint: it neither faults nor changes anything that a program
    // can see, whatever the address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{0}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(crate) fn fetch(_address: *const u8) {}
