//! Who takes what comes to a local address and port from anybody, where one socket alone is bound
//! there: read without a lock, and fetched ahead.
//!
//! It says of the rows of the [bind table](super::bound) what most of them are: empty, or one socket
//! that takes packets of any interface. Whoever finds more than that asks the table itself. So it
//! does if a socket is not what it was bound as: the socket's state tells.
//!
//! An open-addressed table of words, each 32 bits of a hash and the socket's slot. Two places may have
//! the same hash; readers look at the socket's own address, and a writer says what it replaces.
//! A word is replaced at once where it stands, so that no place that is taken ever looks empty. When
//! the table is too full it is made anew; readers go on in the old one, and may come too late for who
//! is published meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_sync::huge::ZeroedSlice;
use forebay_sync::prefetch::prefetch_read;
use forebay_sync::rcu::{Domain, Guard, Rcu};

use crate::socket::lock;

/// Fewest cells of a table.
const CELLS_MIN: usize = 64;

/// See the [module](self).
pub(super) struct Places {
    table: Rcu<Arc<Table>>,
    writer: Mutex<Writer>,
}

struct Writer {
    table: Arc<Table>,
    /// Cells that are not free, vacated ones included.
    used: usize,
}

/// Who is bound to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    /// The socket of this slot, open to every interface.
    Alone(u32),
    /// Something else: the bind table knows.
    Others,
}

impl Places {
    pub(super) fn new(domain: &Domain) -> Self {
        let table = Arc::new(Table::new(CELLS_MIN));
        Self {
            table: Rcu::new(domain, Arc::clone(&table)),
            writer: Mutex::new(Writer { table, used: 0 }),
        }
    }

    /// The table as it is under a guard.
    #[inline]
    pub(super) fn table<'g>(&'g self, guard: &'g Guard<'_>) -> &'g Table {
        self.table.read(guard)
    }

    /// Somebody else is at a place now than `old`. Writers of one place take turns. Must not be called
    /// under a guard.
    pub(super) fn set(&self, hash: u32, old: Who, new: Who) {
        if old == new {
            return;
        }
        let mut writer = lock(&self.writer);
        let Writer { table, used } = &mut *writer;
        if old != Who::Nobody {
            return table.replace(hash, old, new);
        }
        if (*used + 1) * 4 > table.cells.len() * 3 {
            let larger = Arc::new(table.grown());
            *used = larger.live().count();
            *table = Arc::clone(&larger);
            self.table.publish(larger);
        }
        *used += table.add(hash, new);
    }
}

/// The cells: 0 is free, and ends a search.
pub(crate) struct Table {
    cells: ZeroedSlice<AtomicU64>,
}

impl Table {
    fn new(cells: usize) -> Self {
        Self {
            cells: ZeroedSlice::new(cells),
        }
    }

    /// Fetches what [`find`](Self::find) will look at.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Some(cell) = self.cells.get(self.home(hash)) {
            prefetch_read(cell);
        }
    }

    /// Who is at a place with this hash, or another that has it, too.
    #[inline]
    pub(crate) fn find(&self, hash: u32) -> Who {
        for cell in self.search(hash) {
            let word = cell.load(Ordering::Acquire);
            if word == 0 {
                break;
            }
            if word >> 32 == key(hash) && word as u32 != VACATED {
                return who(word as u32);
            }
        }
        Who::Nobody
    }

    /// Returns how many cells it has taken that were free before.
    fn add(&self, hash: u32, new: Who) -> usize {
        for cell in self.search(hash) {
            let word = cell.load(Ordering::Relaxed);
            if word as u32 == VACATED {
                cell.store(key(hash) << 32 | u64::from(code(new)), Ordering::Release);
                return usize::from(word == 0);
            }
        }
        0
    }

    fn replace(&self, hash: u32, old: Who, new: Who) {
        let word = |who| key(hash) << 32 | u64::from(code(who));
        let mut cells = self
            .search(hash)
            .take_while(|cell| cell.load(Ordering::Relaxed) != 0);
        if let Some(cell) = cells.find(|cell| cell.load(Ordering::Relaxed) == word(old)) {
            cell.store(word(new), Ordering::Release);
        }
    }

    /// With the same in it, and room for more.
    fn grown(&self) -> Self {
        let larger = Self::new((self.live().count() * 8 / 5).max(CELLS_MIN));
        for word in self.live() {
            larger.add((word >> 32) as u32, who(word as u32));
        }
        larger
    }

    fn live(&self) -> impl Iterator<Item = u64> {
        let words = self.cells.iter().map(|cell| cell.load(Ordering::Relaxed));
        words.filter(|word| *word as u32 != VACATED)
    }

    /// Every cell, from a hash's own on.
    #[inline]
    fn search(&self, hash: u32) -> impl Iterator<Item = &AtomicU64> {
        let (before, behind) = self.cells.split_at(self.home(hash));
        behind.iter().chain(before)
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((key(hash) * self.cells.len() as u64) >> 32) as usize
    }
}

/// The low half of a word where nobody is any more.
const VACATED: u32 = 0;

/// A hash as words have it: not 0, which is a free cell's.
#[inline]
fn key(hash: u32) -> u64 {
    u64::from(hash.max(1))
}

fn code(who: Who) -> u32 {
    match who {
        Who::Nobody => VACATED,
        Who::Others => 1,
        Who::Alone(slot) => slot + 2,
    }
}

#[inline]
fn who(code: u32) -> Who {
    match code {
        VACATED => Who::Nobody,
        1 => Who::Others,
        slot => Who::Alone(slot - 2),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn says_what_was_set(
            steps in prop::collection::vec((0_u32..40, 0_u32..4, any::<bool>()), 0..400),
        ) {
            let domain = Domain::new();
            let places = Places::new(&domain);
            let mut model: HashMap<u32, Who> = HashMap::new();
            for (place, spread, is_taken) in steps {
                let hash = 2 + place + (place << 26 >> spread);
                let old = model.get(&hash).copied().unwrap_or(Who::Nobody);
                let new = match (is_taken, place % 2) {
                    (false, _) => Who::Nobody,
                    (true, 0) => Who::Others,
                    (true, _) => Who::Alone(place),
                };
                places.set(hash, old, new);
                model.insert(hash, new);
                let reader = domain.reader();
                let guard = reader.guard();
                for (hash, who) in &model {
                    prop_assert_eq!(places.table(&guard).find(*hash), *who);
                }
            }
        }
    }

    #[test]
    fn grows_and_keeps_all() {
        let domain = Domain::new();
        let places = Places::new(&domain);
        let hash = |slot: u32| slot.wrapping_mul(0x9e37_79b9);
        for slot in 0..10_000 {
            places.set(hash(slot), Who::Nobody, Who::Alone(slot));
        }
        for slot in (0..10_000).step_by(2) {
            places.set(hash(slot), Who::Alone(slot), Who::Nobody);
        }
        let reader = domain.reader();
        let guard = reader.guard();
        let table = places.table(&guard);
        assert!(table.cells.len() < 20_000, "{}", table.cells.len());
        for slot in 0..10_000 {
            let expected = match slot % 2 {
                0 => Who::Nobody,
                _ => Who::Alone(slot),
            };
            assert_eq!(table.find(hash(slot)), expected);
        }
    }
}
