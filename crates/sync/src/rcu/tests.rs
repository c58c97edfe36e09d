use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::*;

/// A value that counts how many of its kind live.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn live(count: &AtomicUsize) -> usize {
    count.load(Ordering::SeqCst)
}

#[test]
fn an_old_value_goes_at_once_when_all_readers_are_offline() {
    let count = Arc::default();
    let domain = Domain::new();
    let value = Rcu::new(&domain, Live::new(&count));
    let _offline = domain.reader();
    value.publish(Live::new(&count));
    assert_eq!(live(&count), 1);
}

#[test]
fn an_old_value_stays_while_a_guard_from_before_is_held() {
    let count = Arc::default();
    let domain = Domain::new();
    let value = Rcu::new(&domain, Live::new(&count));
    let reader = domain.reader();
    let outer = reader.guard();
    value.publish(Live::new(&count));
    assert_eq!(live(&count), 2);
    drop(reader.guard());
    value.publish(Live::new(&count));
    assert_eq!(live(&count), 3, "an inner guard must not end the outer one");
    drop(outer);
    let _from_after = reader.guard();
    domain.inner.reclaim();
    assert_eq!(live(&count), 1);
}

#[test]
fn a_ticket_waits_for_those_online_and_nobody_else() {
    let domain = Domain::new();
    let (early, late) = (domain.reader(), domain.reader());
    let guard = early.guard();
    let ticket = domain.ticket();
    let _late = late.guard();
    assert!(!domain.elapsed(&ticket));
    drop(guard);
    assert!(domain.elapsed(&ticket));
    let _back = early.guard();
    assert!(domain.elapsed(&ticket));
}

#[test]
fn a_dropped_reader_holds_nothing_up() {
    let domain = Domain::new();
    let reader = domain.reader();
    std::mem::forget(reader.guard());
    let ticket = domain.ticket();
    assert!(!domain.elapsed(&ticket));
    drop(reader);
    assert!(domain.elapsed(&ticket));
}

#[test]
fn update_sees_the_current_value() {
    let domain = Domain::new();
    let value = Arc::new(Rcu::new(&domain, 0_u32));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..500).for_each(|_| value.update(|n| n + 1)));
        }
    });
    assert_eq!(*value.read(&domain.reader().guard()), 1000);
}

#[test]
#[should_panic(expected = "another domain")]
fn a_guard_of_another_domain_is_refused() {
    let value = Rcu::new(&Domain::new(), 0);
    let other = Domain::new();
    let reader = other.reader();
    let guard = reader.guard();
    let _ = value.read(&guard);
}

#[test]
fn a_writer_over_the_bound_waits() {
    let count = Arc::default();
    let domain = Domain::new();
    let value = Rcu::new(&domain, Live::new(&count));
    let reader = domain.reader();
    let (online, wait) = channel();
    thread::scope(|scope| {
        let count = &count;
        scope.spawn(move || {
            let guard = reader.guard();
            online.send(()).unwrap();
            while live(count) <= RETIRED_MAX + 1 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(5));
            assert_eq!(live(count), RETIRED_MAX + 2);
            drop(guard);
        });
        wait.recv().unwrap();
        for _ in 0..3 * RETIRED_MAX {
            value.publish(Live::new(count));
        }
    });
    assert_eq!(live(&count), 1);
}

#[test]
fn what_waits_goes_with_the_last_handle() {
    let count = Arc::default();
    let domain = Domain::new();
    let value = Rcu::new(&domain, Live::new(&count));
    let reader = domain.reader();
    let guard = reader.guard();
    value.publish(Live::new(&count));
    drop(guard);
    drop((value, domain));
    assert_eq!(live(&count), 1);
    drop(reader);
    assert_eq!(live(&count), 0);
}

#[test]
fn readers_never_see_a_freed_value() {
    let domain = Domain::new();
    let value = Rcu::new(&domain, Box::new([0_u64; 8]));
    thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, value) = (domain.reader(), &value);
            scope.spawn(move || {
                loop {
                    let guard = reader.guard();
                    let seen = value.read(&guard);
                    assert!(seen.iter().all(|n| *n == seen[0]));
                    if seen[0] == 5000 {
                        break;
                    }
                }
            });
        }
        for n in 1..=5000 {
            value.publish(Box::new([n; 8]));
        }
    });
}
