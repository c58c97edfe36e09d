//! Wake-ups that wait for the end of a worker's turn. A thread that is woken may take the very
//! processor that its waker is running on: in the middle of a turn it would find one datagram, read
//! it, sleep again, and the next one would wake it once more.

use std::cell::RefCell;
use std::task::Waker;

thread_local! {
    /// Who is to be woken; none while the thread is not in a turn.
    static LATER: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Runs `turn`, then wakes whom it has woken. Says whether there was anybody.
pub(crate) fn after<R>(wakers: &mut Vec<Waker>, turn: impl FnOnce() -> R) -> (R, bool) {
    LATER.set(Some(std::mem::take(wakers)));
    let result = turn();
    *wakers = LATER.take().unwrap_or_default();
    let has_woken = !wakers.is_empty();
    // No longer in a turn: this does wake.
    wakers.drain(..).for_each(Waker::wake);
    (result, has_woken)
}

/// Whether the wake-up is put off; if not, the caller wakes now.
pub(crate) fn put_off(waker: impl FnOnce() -> Waker) -> bool {
    LATER.with_borrow_mut(|later| match later {
        Some(wakers) => {
            wakers.push(waker());
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it has woken somebody, unless that is put off.
    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            if !put_off(|| Waker::from(Arc::clone(&self))) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn who_is_woken_in_a_turn_wakes_up_behind_it() {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let rung = || bell.0.load(Ordering::Relaxed);
        let mut wakers = Vec::new();

        waker.wake_by_ref();
        assert_eq!(rung(), 1, "outside a turn, at once");
        for round in [0, 2] {
            let ((), has_woken) = after(&mut wakers, || {
                waker.wake_by_ref();
                waker.wake_by_ref();
                assert_eq!(rung(), 1 + round);
            });
            assert!(has_woken);
            assert_eq!(rung(), 3 + round);
        }
        assert_eq!(after(&mut wakers, || 7), (7, false));
        waker.wake_by_ref();
        assert_eq!(rung(), 6);
    }

    #[test]
    fn turns_of_other_threads_put_nothing_off() {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        after(&mut Vec::new(), || {
            std::thread::scope(|scope| {
                scope.spawn(|| waker.wake_by_ref());
            });
            assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        });
    }
}
