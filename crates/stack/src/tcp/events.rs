//! What a connection wants counted. It has no counters itself: they belong to a core.

use crate::counters::Counter;

/// Counters and how much each goes up, in the order of the events. Most segments cause none.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<(Counter, u64)>);

impl Events {
    /// One more.
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// So many more.
    pub(crate) fn add(&mut self, counter: Counter, n: u64) {
        self.0.push((counter, n));
    }

    /// Empties it.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.0.drain(..)
    }
}
