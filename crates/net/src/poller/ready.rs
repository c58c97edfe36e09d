//! Sources that somebody should look at, and the threads that wait for some.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use forebay_sync::loom::{Condvar, Mutex, MutexGuard, lock};

use super::events::Events;
use super::source::{Gone, Sockets, Source};

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
        let mut list = lock(&self.list);
        list.sources.push_back(source);
        self.wake_one(list);
    }

    pub(super) fn notify(&self) {
        let mut list = lock(&self.list);
        list.notified = true;
        self.wake_one(list);
    }

    /// Looks at sources until one of them has something to tell, or the caller should wait no
    /// further; `forget` hears of each whose socket is gone.
    pub(super) fn wait(
        &self,
        sockets: &impl Sockets,
        events: &mut Events,
        deadline: Option<Instant>,
        forget: impl Fn(&Arc<Source>),
    ) {
        events.clear();
        loop {
            let go_on = self.take(events.capacity, deadline, &mut events.seen);
            for source in events.seen.drain(..) {
                match source.visit(sockets) {
                    Ok(visit) => {
                        events.list.extend(visit.event);
                        if visit.again {
                            self.push(source);
                        }
                    }
                    Err(Gone) => forget(&source),
                }
            }
            if !events.is_empty() || !go_on {
                return;
            }
        }
    }

    /// Moves at most `most` sources into `taken`; waits until there is one. False if the caller
    /// should wait no further: the time is over, or somebody said so.
    fn take(&self, most: usize, deadline: Option<Instant>, taken: &mut Vec<Arc<Source>>) -> bool {
        let mut list = lock(&self.list);
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
        let list = lock(&self.list);
        list.notified || !list.sources.is_empty()
    }

    fn wake_one(&self, list: MutexGuard<'_, List>) {
        let anybody = list.sleepers > 0;
        drop(list);
        if anybody {
            self.wake_up.notify_one();
        }
    }
}
