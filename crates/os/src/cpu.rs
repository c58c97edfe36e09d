//! Processors: which one a thread runs on, and which it may run on.

use std::io;

use rustix::thread::CpuSet;

/// The processor that the calling thread runs on just now.
pub fn current() -> usize {
    // SAFETY: takes nothing, and touches nothing of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only where the kernel can't tell; then everything is on one.
    usize::try_from(cpu).unwrap_or(0)
}

/// The processors that the calling thread may run on, in ascending order.
///
/// # Errors
///
/// What `sched_getaffinity(2)` says.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Keeps the calling thread on one processor.
///
/// # Errors
///
/// What `sched_setaffinity(2)` says: `InvalidInput` for a processor that it may not run on.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_pinned_thread_stays_where_it_is() {
        for cpu in allowed().expect("a set") {
            let seen = thread::spawn(move || {
                pin(cpu).expect("an allowed one");
                (current(), allowed().expect("a set"))
            });
            assert_eq!(seen.join().expect("no panic"), (cpu, vec![cpu]));
        }
        assert!(pin(CpuSet::MAX_CPU).is_err());
    }
}
