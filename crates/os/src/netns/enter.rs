//! A network namespace for a thread of this process.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling thread into a network namespace of its own, which has nothing but a loopback
/// interface that is down. It lives as long as the thread and the sockets made there.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, or where a container forbids it; `EINVAL` if the kernel has no
/// network namespaces; `ENOSPC` if all that are allowed are in use.
pub fn enter_new() -> io::Result<()> {
    // SAFETY: what makes it unsafe is a file descriptor table that is no longer shared between
    // threads; this flag does nothing of the kind.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}
