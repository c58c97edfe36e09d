//! The processor's time-stamp counter: what a stage costs, in a few nanoseconds.
//!
//! ```
//! use forebay_sync::tsc;
//!
//! let (before, after) = (tsc::read(), tsc::read());
//! assert!(before <= after);
//! ```

/// Ticks since the processor started, read when all instructions in front of it are done; `None` on
/// processors without a counter that is known here.
///
/// On x86-64 processors since about 2008 the rate is constant and has little to do with the clock of
/// the core. Its length is for the caller to find out, by a clock beside it.
#[cfg(target_arch = "x86_64")]
#[inline]
#[must_use]
pub fn read() -> Option<u64> {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: a fence changes nothing that a program can see but time. SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    // SAFETY: reads a register of the processor into ours. Every x86-64 has it; a system that forbids
    // it to programs ends them, which Linux does only to those that asked (`PR_SET_TSC`).
    Some(unsafe { _rdtsc() })
}

/// `None`: no counter of this processor is known here.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
#[must_use]
pub fn read() -> Option<u64> {
    None
}
