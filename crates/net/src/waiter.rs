//! A task that waits at a socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::later;

/// Wakes whichever task waits, once.
///
/// It stands between socket and task, so that a wait can be ended without ending another of the same
/// task, whose waker looks the same.
#[derive(Default)]
pub(crate) struct Waiter {
    task: Mutex<Option<Waker>>,
}

impl Waiter {
    /// To be left with a socket: it wakes `task`, and no longer any before.
    pub(crate) fn waker_for(self: &Arc<Self>, task: &Waker) -> Waker {
        match &mut *self.task() {
            Some(known) => known.clone_from(task),
            none => *none = Some(task.clone()),
        }
        self.waker()
    }

    /// What was left with the socket.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        if later::put_off(|| Waker::from(Arc::clone(&self))) {
            return;
        }
        let task = self.task().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}
