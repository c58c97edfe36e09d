//! The interleavings and memory orders of RCU, segments, short locks and static
//! keys, all of them up to a bound on preemptions, by loom:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p forebay-sync --release --test loom
//! ```
#![cfg(loom)]

use forebay_sync::doze::Doze;
use forebay_sync::rcu::{Domain, Rcu};
use forebay_sync::segments::Segments;
use forebay_sync::short_lock::ShortLock;
use forebay_sync::static_key::StaticKey;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A value that loom watches: a free that does not come after each read is a
/// conflicting write to the cell, which loom reports.
struct Watched(UnsafeCell<u32>);

// SAFETY: that no two threads touch the cell in conflict is what loom checks.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(n: u32) -> Self {
        Self(UnsafeCell::new(n))
    }

    fn get(&self) -> u32 {
        // SAFETY: loom reports a write meanwhile.
        self.0.with(|n| unsafe { *n })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: loom reports any access meanwhile.
        self.0.with_mut(|n| unsafe { *n = u32::MAX });
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn a_reader_never_sees_a_freed_value() {
    model(|| {
        let domain = Domain::new();
        let value = Arc::new(Rcu::new(&domain, Watched::new(1)));
        let reader = domain.reader();
        let thread = thread::spawn({
            let value = Arc::clone(&value);
            move || {
                let guard = reader.guard();
                let seen = value.read(&guard);
                assert!((1..=2).contains(&seen.get()));
                assert!((1..=2).contains(&seen.get()));
            }
        });
        value.publish(Watched::new(2));
        thread.join().unwrap();
    });
}

#[test]
fn a_reader_that_comes_back_does_not_lose_its_value() {
    model(|| {
        let domain = Domain::new();
        let value = Arc::new(Rcu::new(&domain, Watched::new(1)));
        let reader = domain.reader();
        let thread = thread::spawn({
            let value = Arc::clone(&value);
            move || {
                let first = value.read(&reader.guard()).get();
                let second = value.read(&reader.guard()).get();
                assert!(first <= second && second <= 3);
            }
        });
        value.publish(Watched::new(2));
        value.publish(Watched::new(3));
        thread.join().unwrap();
    });
}

#[test]
fn writers_on_two_threads_do_not_free_what_the_other_replaced() {
    model(|| {
        let domain = Domain::new();
        let value = Arc::new(Rcu::new(&domain, Watched::new(1)));
        let reader = domain.reader();
        let thread = thread::spawn({
            let value = Arc::clone(&value);
            move || value.update(|old| Watched::new(old.get() + 1))
        });
        let guard = reader.guard();
        assert!((1..=2).contains(&value.read(&guard).get()));
        drop(guard);
        value.update(|old| Watched::new(old.get() + 1));
        thread.join().unwrap();
        assert_eq!(value.read(&reader.guard()).get(), 3);
    });
}

#[test]
fn synchronize_waits_for_readers_of_what_was_unlinked() {
    model(|| {
        let domain = Domain::new();
        let reader = domain.reader();
        let entry = Arc::new((AtomicU32::new(1), Watched::new(7)));
        let thread = thread::spawn({
            let entry = Arc::clone(&entry);
            move || {
                let guard = reader.guard();
                if entry.0.load(Ordering::Relaxed) == 1 {
                    assert_eq!(entry.1.get(), 7);
                }
                drop(guard);
            }
        });
        entry.0.store(0, Ordering::Relaxed);
        domain.synchronize();
        // SAFETY: loom reports a reader that is still at it.
        entry.1.0.with_mut(|n| unsafe { *n = 8 });
        thread.join().unwrap();
    });
}

#[test]
fn a_reader_may_register_and_leave_meanwhile() {
    model(|| {
        let domain = Domain::new();
        let value = Arc::new(Rcu::new(&domain, Watched::new(1)));
        let thread = thread::spawn({
            let (domain, value) = (domain.clone(), Arc::clone(&value));
            move || {
                let reader = domain.reader();
                assert!((1..=2).contains(&value.read(&reader.guard()).get()));
            }
        });
        value.publish(Watched::new(2));
        thread.join().unwrap();
    });
}

/// From the last element of one segment to the first of the next.
#[test]
fn a_reader_indexes_whole_elements_while_segments_grow() {
    model(|| {
        let segments = Arc::new(Segments::new());
        segments.grow_to(63, || Watched::new(1));
        let thread = thread::spawn({
            let segments = Arc::clone(&segments);
            move || segments.grow_to(65, || Watched::new(2))
        });
        let len = segments.len();
        let last = segments.get(len - 1).map(Watched::get);
        assert_eq!(last, Some(if len > 63 { 2 } else { 1 }));
        thread.join().unwrap();
        assert_eq!(segments.get(64).map(Watched::get), Some(2));
    });
}

#[test]
fn writers_on_two_threads_grow_segments_once() {
    model(|| {
        let segments = Arc::new(Segments::new());
        let made = Arc::new(AtomicU32::new(0));
        let grow = {
            let (segments, made) = (Arc::clone(&segments), Arc::clone(&made));
            move || segments.grow_to(2, || made.fetch_add(1, Ordering::Relaxed))
        };
        let thread = thread::spawn(grow.clone());
        grow();
        thread.join().unwrap();
        assert_eq!((segments.len(), segments.get(1)), (2, Some(&1)));
    });
}

#[test]
fn a_short_lock_is_held_by_one_at_a_time() {
    model(|| {
        let lock = Arc::new(ShortLock::new(Watched::new(0)));
        let add = {
            let lock = Arc::clone(&lock);
            move || {
                let held = lock.lock();
                // SAFETY: loom reports a second thread that is at it.
                held.0.with_mut(|n| unsafe { *n += 1 });
            }
        };
        let thread = thread::spawn(add.clone());
        add();
        // Trying takes it or does not, and never waits.
        if let Some(held) = lock.try_lock() {
            assert!((1..=2).contains(&held.get()));
        }
        thread.join().unwrap();
        assert_eq!(lock.lock().get(), 2);
    });
}

#[test]
fn a_static_key_counts_and_never_wraps() {
    model(|| {
        let key = Arc::new(StaticKey::new());
        let thread = thread::spawn({
            let key = Arc::clone(&key);
            move || {
                key.inc();
                assert!(key.is_enabled());
                key.dec();
            }
        });
        key.inc();
        assert!(key.is_enabled());
        key.dec();
        thread.join().unwrap();
        assert!(!key.is_enabled());
    });
}

/// Work is a flag, a wake-up another one. In the end nothing may be left undone with the sleeper
/// asleep and not woken, and nobody makes the system call in vain.
fn bring_work(callers: u32) {
    model(move || {
        let doze = Arc::new(Doze::new());
        let work = Arc::new(AtomicU32::new(0));
        let woken = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..callers)
            .map(|_| {
                let (doze, work, woken) = (doze.clone(), work.clone(), woken.clone());
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    if doze.call() {
                        woken.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut done = 0;
        let mut is_asleep = false;
        // Each caller keeps it from sleeping once.
        for _ in 0..=callers {
            doze.look();
            done += work.swap(0, Ordering::Relaxed);
            is_asleep = doze.sleep();
            if is_asleep {
                break;
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(is_asleep, "kept awake by nobody");
        let woken = woken.load(Ordering::Relaxed);
        assert!(woken <= 1, "woken twice");
        assert!(done == callers || woken == 1, "left asleep with work");
    });
}

#[test]
fn a_sleeper_is_woken_for_work() {
    bring_work(1);
}

#[test]
fn a_sleeper_is_woken_once_for_the_work_of_two() {
    bring_work(2);
}
