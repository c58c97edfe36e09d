//! Sources that somebody should look at, and the threads that wait for some.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::source::Source;

#[derive(Default)]
pub(super) struct ReadyList {
    list: Mutex<List>,
    wake_up: Condvar,
}

#[derive(Default)]
struct List {
    sources: VecDeque<Arc<Source>>,
    notified: bool,
    /// Threads that wait, so that others need not call for nobody.
    sleepers: usize,
}

impl ReadyList {
    /// Adds a source, unless it is there already.
    pub(super) fn push(&self, source: Arc<Source>) {
        if source.set_queued() {
            return;
        }
        let mut list = self.lock();
        list.sources.push_back(source);
        self.wake_one(list);
    }

    pub(super) fn notify(&self) {
        let mut list = self.lock();
        list.notified = true;
        self.wake_one(list);
    }

    /// Moves at most `most` sources into `taken`; waits until there is one. False if the caller
    /// should wait no further: the time is over, or somebody said so.
    pub(super) fn take(
        &self,
        most: usize,
        deadline: Option<Instant>,
        taken: &mut Vec<Arc<Source>>,
    ) -> bool {
        let mut list = self.lock();
        loop {
            let notified = core::mem::take(&mut list.notified);
            if notified || !list.sources.is_empty() {
                let count = most.min(list.sources.len());
                taken.extend(list.sources.drain(..count));
                return !notified;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            list.sleepers += 1;
            list = match left {
                None => self.wake_up.wait(list),
                Some(left) => match self.wake_up.wait_timeout(list, left) {
                    Ok((list, _)) => Ok(list),
                    Err(poisoned) => Ok(poisoned.into_inner().0),
                },
            }
            .unwrap_or_else(PoisonError::into_inner);
            list.sleepers -= 1;
        }
    }

    /// Whether [`take`](Self::take) would return at once.
    pub(super) fn has_something(&self) -> bool {
        let list = self.lock();
        list.notified || !list.sources.is_empty()
    }

    fn wake_one(&self, list: MutexGuard<'_, List>) {
        let anybody = list.sleepers > 0;
        drop(list);
        if anybody {
            self.wake_up.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
