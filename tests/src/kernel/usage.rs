//! What this process uses, as proc(5) tells it.

use std::fs;
use std::thread;
use std::time::Duration;

use forebay::device::{PacketPool, PacketQueue};

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("VmRSS") * 1_024
}

/// Processor time that Forebay's worker threads in this process have used.
pub fn worker_time() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").expect("proc");
    let nanos = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        if !name.starts_with("forebay/") {
            return None;
        }
        // Nanoseconds on a processor come first.
        let stat = fs::read_to_string(path.join("schedstat")).expect("schedstat");
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Asserts that Forebay's workers in this process have nothing to do, and know it.
pub fn assert_workers_sleep() {
    let (before, span) = (worker_time(), Duration::from_millis(500));
    thread::sleep(span);
    let busy = worker_time() - before;
    assert!(busy < span / 10, "{busy:?} of {span:?}");
}

/// Uses every buffer once: from then on the pool takes no more memory.
pub fn touch(pool: &PacketPool) {
    let (mut cache, mut all) = (pool.cache(), PacketQueue::new());
    while let Some(mut packet) = cache.alloc() {
        packet.spare_mut().fill(1);
        all.push(packet);
    }
}
