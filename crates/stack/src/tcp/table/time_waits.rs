//! Where connections that have ended are kept until nobody can send of them any more.
//!
//! Entries lie in shards by their flow's hash, each under a lock of its own and in pages that stay
//! where they are. A shard knows when which entry ends by a ring of lists, one for each quarter of a
//! second.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::tcp::time_wait::TimeWait;
use crate::time::Instant;

/// Shards. An entry's number says its shard in the low bits.
const SHARDS: usize = 16;
/// Entries of a page.
const PAGE: usize = 64;
/// Pages of a shard: as many as entries have numbers.
const MAX_PAGES: usize = (1 << 30) / SHARDS / PAGE;
/// Lists of a ring.
const LISTS: usize = 512;
/// Nanoseconds for which a list stands.
const TICK: u64 = 250_000_000;

/// No entry.
const NONE: u32 = u32::MAX;
/// Instead of a tick: the place is empty.
const EMPTY: u32 = u32::MAX;
/// Instead of a tick: the entry has ended, and is only waiting to leave the table.
const ENDED: u32 = u32::MAX - 1;
/// Instead of a tick: the entry stands in no list yet.
const UNLISTED: u32 = u32::MAX - 2;

/// Every connection that has ended but is not forgotten.
pub(super) struct TimeWaits {
    shards: Box<[CacheLine<ShortLock<Shard>>]>,
    len: CacheLine<AtomicUsize>,
    /// No entry ends before this tick.
    earliest: CacheLine<AtomicU64>,
}

#[derive(Default)]
struct Shard {
    pages: Vec<Box<[Place; PAGE]>>,
    /// The first empty place.
    empty: Option<u32>,
    ring: Ring,
    /// The first tick whose list has not been gone through.
    next_tick: u64,
}

/// First entry of each list. Made with the first entry.
#[derive(Default)]
struct Ring(Vec<u32>);

/// One entry, or room for one.
#[derive(Clone, Copy)]
struct Place {
    flow: Flow,
    entry: TimeWait,
    /// The last tick that it stays for, or one of the above.
    tick: u32,
    /// Neighbours in its list; of an empty place, the next empty one.
    next: u32,
    before: u32,
}

const _: () = assert!(size_of::<Place>() <= 96);

/// An entry, locked: nobody else looks at it.
pub(super) struct Entry<'a> {
    shard: ShortGuard<'a, Shard>,
    at: u32,
}

impl TimeWaits {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CacheLine::default()).collect(),
            len: CacheLine::default(),
            earliest: CacheLine(AtomicU64::new(u64::MAX)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Adds an entry: its number. `None` if there are `max` already. It stays for ever, until
    /// [`start`](Self::start) says otherwise.
    pub(super) fn add(&self, flow: &Flow, hash: u64, entry: &TimeWait, max: usize) -> Option<u32> {
        // The bound may be passed by as many as there are cores.
        if self.len() >= max {
            return None;
        }
        let nth = shard_of(hash);
        let mut shard = self.shards[nth].lock();
        let at = shard.make_room()?;
        *shard.place(at)? = Place {
            flow: *flow,
            entry: *entry,
            tick: UNLISTED,
            next: NONE,
            before: NONE,
        };
        drop(shard);
        self.len.fetch_add(1, Ordering::Relaxed);
        Some(at << SHARDS.trailing_zeros() | nth as u32)
    }

    /// An entry that was added is in the table, and stays until then; unless a segment has decided
    /// otherwise already.
    pub(super) fn start(&self, number: u32, flow: &Flow, until: Instant) {
        let Some(mut entry) = self.get(number, flow) else {
            return;
        };
        if entry.is_unlisted() {
            let tick = entry.stay(until);
            drop(entry);
            self.moved(tick);
        }
    }

    /// The entry of this number, if it is the flow's and has not ended.
    pub(super) fn get(&self, number: u32, flow: &Flow) -> Option<Entry<'_>> {
        let mut shard = self.shard(number).lock();
        let at = number >> SHARDS.trailing_zeros();
        let place = shard.place(at)?;
        let is_it = place.tick < ENDED && place.flow == *flow;
        is_it.then_some(Entry { shard, at })
    }

    /// The hash of the flow of an entry that is in the table.
    pub(super) fn hash_of(&self, number: u32, key: Key) -> u64 {
        let mut shard = self.shard(number).lock();
        let place = shard.place(number >> SHARDS.trailing_zeros());
        place.map_or(0, |place| place.flow.hash(key))
    }

    /// Notes that an entry stays until another time.
    pub(super) fn moved(&self, tick: u64) {
        self.earliest.fetch_min(tick, Ordering::AcqRel);
    }

    /// Forgets an entry that has ended and left the table.
    pub(super) fn free(&self, number: u32) {
        let at = number >> SHARDS.trailing_zeros();
        if self.shard(number).lock().free(at) {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// When something may be due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let tick = self.earliest.load(Ordering::Acquire);
        (tick != u64::MAX).then(|| Instant::from_nanos(tick.saturating_add(1).saturating_mul(TICK)))
    }

    /// Ends what is due, and calls `f` with each: number, flow and what it was. The numbers are to be
    /// freed.
    pub(super) fn expire(&self, now: Instant, mut f: impl FnMut(u32, &Flow, &TimeWait)) {
        let Some(due) = (now.as_nanos() / TICK).checked_sub(1) else {
            return;
        };
        if self.earliest.load(Ordering::Acquire) > due {
            return;
        }
        // Who adds an entry while we look says so after this; who added one before is found.
        self.earliest.store(u64::MAX, Ordering::Release);
        let mut ended = Vec::new();
        for (nth, shard) in self.shards.iter().enumerate() {
            let earliest = shard.lock().expire(due, &mut ended);
            self.earliest.fetch_min(earliest, Ordering::AcqRel);
            for (at, place) in ended.drain(..) {
                let number = at << SHARDS.trailing_zeros() | nth as u32;
                f(number, &place.flow, &place.entry);
            }
        }
    }

    /// Calls `f` with every entry and the time that it has left.
    pub(super) fn for_each(&self, now: Instant, mut f: impl FnMut(&Flow, &TimeWait, Duration)) {
        for shard in &self.shards {
            let live: Vec<Place> = {
                let shard = shard.lock();
                let places = shard.pages.iter().flat_map(|page| page.iter());
                places
                    .filter(|place| place.tick < UNLISTED)
                    .copied()
                    .collect()
            };
            for place in live {
                let end = Instant::from_nanos((u64::from(place.tick) + 1) * TICK);
                f(&place.flow, &place.entry, end - now);
            }
        }
    }

    fn shard(&self, number: u32) -> &ShortLock<Shard> {
        &self.shards[number as usize % SHARDS]
    }
}

impl Entry<'_> {
    pub(super) fn entry(&mut self) -> Option<&mut TimeWait> {
        self.shard.place(self.at).map(|place| &mut place.entry)
    }

    fn is_unlisted(&mut self) -> bool {
        self.shard
            .place(self.at)
            .is_some_and(|place| place.tick == UNLISTED)
    }

    /// It stays until then from now on. Returns what [`TimeWaits::moved`] is to be told.
    pub(super) fn stay(&mut self, until: Instant) -> u64 {
        self.shard.unlink(self.at);
        self.shard.link(self.at, until)
    }

    /// Nobody finds it any more.
    pub(super) fn end(mut self) {
        self.shard.unlink(self.at);
        if let Some(place) = self.shard.place(self.at) {
            place.tick = ENDED;
        }
    }
}

impl Shard {
    fn place(&mut self, at: u32) -> Option<&mut Place> {
        let page = self.pages.get_mut(at as usize / PAGE)?;
        Some(&mut page[at as usize % PAGE])
    }

    fn make_room(&mut self) -> Option<u32> {
        if let Some(at) = self.empty {
            let next = self.place(at)?.next;
            self.empty = (next != NONE).then_some(next);
            return Some(at);
        }
        if self.pages.len() >= MAX_PAGES {
            return None;
        }
        let first = (self.pages.len() * PAGE) as u32;
        let mut page = Box::new([Place::EMPTY; PAGE]);
        for (at, place) in page.iter_mut().enumerate().take(PAGE - 1).skip(1) {
            place.next = first + at as u32 + 1;
        }
        self.pages.push(page);
        self.empty = Some(first + 1);
        Some(first)
    }

    fn free(&mut self, at: u32) -> bool {
        let next = self.empty.unwrap_or(NONE);
        match self.place(at) {
            Some(place) if place.tick == ENDED => {
                *place = Place {
                    next,
                    ..Place::EMPTY
                };
                self.empty = Some(at);
                true
            }
            _ => false,
        }
    }

    /// Enters an entry in the list of its end. Returns the tick.
    fn link(&mut self, at: u32, until: Instant) -> u64 {
        let tick = until.as_nanos() / TICK;
        // A list that was gone through comes again after a whole turn.
        let tick = tick.max(self.next_tick).min(u64::from(UNLISTED) - 1);
        let first = core::mem::replace(self.ring.first(tick), at);
        if let Some(place) = self.place(at) {
            place.tick = tick as u32;
            place.next = first;
            place.before = NONE;
        }
        if let Some(behind) = self.place(first) {
            behind.before = at;
        }
        tick
    }

    fn unlink(&mut self, at: u32) {
        let place = self.place(at).copied();
        let Some(place) = place.filter(|place| place.tick < UNLISTED) else {
            return;
        };
        match self.place(place.before) {
            Some(before) => before.next = place.next,
            None => *self.ring.first(u64::from(place.tick)) = place.next,
        }
        if let Some(next) = self.place(place.next) {
            next.before = place.before;
        }
    }

    /// Ends what stays for no tick behind `due`. Returns a tick before which nothing else ends.
    fn expire(&mut self, due: u64, ended: &mut Vec<(u32, Place)>) -> u64 {
        let lists = self.ring.0.len() as u64;
        let to = (due + 1).min(self.next_tick + lists);
        for tick in self.next_tick..to {
            let mut at = *self.ring.first(tick);
            while let Some(place) = self.place(at).copied() {
                // One that is not due yet stands for another turn of the ring.
                if u64::from(place.tick) <= due {
                    self.unlink(at);
                    if let Some(place) = self.place(at) {
                        place.tick = ENDED;
                    }
                    ended.push((at, place));
                }
                at = place.next;
            }
        }
        self.next_tick = self.next_tick.max(due + 1);
        let ahead = (0..lists).find(|ahead| *self.ring.first(self.next_tick + ahead) != NONE);
        ahead.map_or(u64::MAX, |ahead| self.next_tick + ahead)
    }
}

impl Ring {
    fn first(&mut self, tick: u64) -> &mut u32 {
        if self.0.is_empty() {
            self.0.resize(LISTS, NONE);
        }
        &mut self.0[tick as usize % LISTS]
    }
}

impl Place {
    const EMPTY: Self = Self {
        flow: Flow::NONE,
        entry: TimeWait::NONE,
        tick: EMPTY,
        next: NONE,
        before: NONE,
    };
}

fn shard_of(hash: u64) -> usize {
    // The table's buckets go by the low bits, its tags by the high ones.
    (hash >> 40) as usize % SHARDS
}

#[cfg(all(test, not(loom)))]
mod tests;
