//! The established table: connected sockets by their four addresses and ports.
//!
//! A bucket is one cache line with eight entries: their tags, which are compared all at once, and
//! their words, which name the socket's slot and the key set in it. A lookup that finds nothing
//! has touched that line and nothing else. A full bucket has an overflow line behind it.
//!
//! Readers take no lock. Writers of a bucket share one of [`SHARDS`] locks, which the low bits of
//! the hash choose.
//!
//! # Growing and shrinking
//!
//! By one bucket at a time (linear hashing, Litwin 1980), as entries come and go: with `n` buckets
//! and `m` the next power of two, a hash belongs to bucket `hash % m`, or `hash % (m / 2)` if there
//! is no such bucket yet. Bucket `n`, when it comes, takes its entries from bucket `n - m / 2`
//! alone. Both have the same low bits, hence the same lock; and so, too, a writer that holds the
//! lock sees its own bucket stay where it is, whatever happens elsewhere.
//!
//! A split copies entries to the new bucket, publishes the new `n` together with a version, and
//! only then removes them from the old one. A reader that looked by the old `n` either finds the
//! entry, or has seen its removal (acquire meets release) and hence sees that the version has
//! changed: it looks again. A merge does the same the other way round. Overflow lines are handed
//! from bucket to bucket, so a reader may find itself on a line that serves another: the version
//! moves when a line is used again, before anything is written to it.
//!
//! Memory of buckets that were merged away is kept for the next growth.

use forebay_sync::cache_line::CacheLine;
use forebay_sync::loom::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use forebay_sync::loom::{Mutex, MutexGuard, lock};
use forebay_sync::prefetch::prefetch_read;
use forebay_sync::segments::Segments;

/// Writers' locks; also the fewest buckets. Two are enough to be told apart, and loom watches every
/// line of every bucket.
const SHARDS: u32 = if cfg!(loom) { 2 } else { 64 };

/// Entries per bucket on average, above which the table grows. Just before a round of splits ends,
/// the buckets not yet split hold twice as many on average: few enough that hardly any overflows,
/// which costs a lookup two lines and two surprises. (Twice as many for loom, whose tables of two or
/// three buckets are to stay so as an entry comes and goes.)
const GROW_ABOVE: usize = if cfg!(loom) { 4 } else { 2 };

/// Entries per bucket on average, below which it shrinks: far enough below [`GROW_ABOVE`] that a
/// socket that comes and goes does not move others each time.
const SHRINK_BELOW: usize = if cfg!(loom) { 2 } else { 1 };

/// Entries of a line.
const ENTRIES: usize = 8;

/// Hash table from hashes to words; what a word means, and whether it matches, its user knows.
pub(crate) struct Established {
    lines: Segments<Line>,
    /// Version in the high half, number of buckets in the low half.
    shape: CacheLine<AtomicU64>,
    overflow: Overflow,
    shards: Box<[CacheLine<Mutex<()>>]>,
    /// Held while the number of buckets changes; taken before a shard's lock.
    resize: Mutex<()>,
    entries: CacheLine<AtomicUsize>,
}

impl Established {
    pub(crate) fn new() -> Self {
        let lines = Segments::new();
        lines.grow_to(SHARDS, Line::default);
        Self {
            lines,
            shape: CacheLine(AtomicU64::new(u64::from(SHARDS))),
            overflow: Overflow::default(),
            shards: (0..SHARDS).map(|_| CacheLine::default()).collect(),
            resize: Mutex::new(()),
            entries: CacheLine::default(),
        }
    }

    /// Entries in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The line that [`Self::find`] looks at first while there are so many `buckets`; it is fetched.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, buckets: u32) -> Option<&Line> {
        self.lines
            .get(bucket_of(hash, buckets))
            .inspect(|line| prefetch_read(*line))
    }

    /// Calls `matches` with the word of each entry that may belong to `hash`, until it returns
    /// something.
    ///
    /// To be called under a guard of the domain that the words' keys are retired by.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        hash: u64,
        mut matches: impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        let mut shape = self.shape.load(Ordering::Acquire);
        loop {
            let found = self.find_in(bucket_of(hash, buckets(shape)), hash, &mut matches);
            if found.is_some() {
                return found;
            }
            let now = self.shape.load(Ordering::Acquire);
            if now == shape {
                return None;
            }
            shape = now;
        }
    }

    #[inline]
    fn find_in<R>(
        &self,
        bucket: u32,
        hash: u64,
        matches: &mut impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        let mut line = self.lines.get(bucket)?;
        loop {
            let found = line.candidates(tag(hash)).find_map(&mut *matches);
            if found.is_some() {
                return found;
            }
            line = self.overflow.behind(line)?;
        }
    }

    /// Adds an entry. `hash_of` gives the hash of any word in the table.
    pub(crate) fn insert(&self, hash: u64, word: u32, hash_of: impl Fn(u32) -> u64) {
        let shard = self.lock_shard(hash);
        self.put(bucket_of(hash, self.buckets()), hash, word);
        drop(shard);
        self.count_one_more(hash_of);
    }

    /// Adds an entry, unless `is_taken` returns something for the word of one that may belong to the
    /// same hash: then that is returned. No other such entry comes in between.
    pub(crate) fn insert_unless<R>(
        &self,
        hash: u64,
        word: u32,
        hash_of: impl Fn(u32) -> u64,
        mut is_taken: impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        let shard = self.lock_shard(hash);
        let bucket = bucket_of(hash, self.buckets());
        let taken = self.find_in(bucket, hash, &mut is_taken);
        if taken.is_some() {
            return taken;
        }
        self.put(bucket, hash, word);
        drop(shard);
        self.count_one_more(hash_of);
        None
    }

    /// Puts another word in an entry's place, in one step: every lookup finds one of the two. False
    /// if the entry is not there.
    pub(crate) fn replace(&self, hash: u64, word: u32, with: u32) -> bool {
        let _shard = self.lock_shard(hash);
        let first = self.lines.get(bucket_of(hash, self.buckets()));
        let mut lines = core::iter::successors(first, |line| self.overflow.behind(line));
        lines.any(|line| line.replace(tag(hash), word, with))
    }

    fn count_one_more(&self, hash_of: impl Fn(u32) -> u64) {
        let entries = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        if entries > self.buckets() as usize * GROW_ABOVE {
            self.grow(hash_of);
        }
    }

    /// Removes an entry; false if it is not there.
    pub(crate) fn remove(&self, hash: u64, word: u32, hash_of: impl Fn(u32) -> u64) -> bool {
        let shard = self.lock_shard(hash);
        let removed = self.take(bucket_of(hash, self.buckets()), hash, word);
        drop(shard);
        if removed {
            let entries = self.entries.fetch_sub(1, Ordering::Relaxed) - 1;
            if entries < self.buckets() as usize * SHRINK_BELOW {
                self.shrink(hash_of);
            }
        }
        removed
    }

    /// Splits the bucket whose turn it is, unless somebody else is at it.
    fn grow(&self, hash_of: impl Fn(u32) -> u64) {
        let Ok(_alone) = self.resize.try_lock() else {
            return;
        };
        let n = self.buckets();
        let Some(more) = n.checked_add(1).filter(|more| *more <= 1 << 30) else {
            return;
        };
        // The new line's memory is touched here, before anybody looks at it.
        self.lines.grow_to(more, Line::default);
        let old = n - more.next_power_of_two() / 2;
        let _shard = self.lock_shard(u64::from(n));
        let moving: Vec<(u64, u32)> = self
            .words(old)
            .map(|word| (hash_of(word), word))
            .filter(|(hash, _)| bucket_of(*hash, more) == n)
            .collect();
        self.reshape(more, n, old, &moving);
    }

    /// Merges the last bucket into the one it was split from, unless somebody else is at it.
    fn shrink(&self, hash_of: impl Fn(u32) -> u64) {
        let Ok(_alone) = self.resize.try_lock() else {
            return;
        };
        let last = self.buckets() - 1;
        if last < SHARDS {
            return;
        }
        let into = bucket_of(u64::from(last), last);
        let _shard = self.lock_shard(u64::from(last));
        let moving: Vec<(u64, u32)> = self.words(last).map(|word| (hash_of(word), word)).collect();
        self.reshape(last, into, last, &moving);
    }

    /// Copies, publishes, removes: the order that readers rely on.
    fn reshape(&self, buckets: u32, to: u32, from: u32, moving: &[(u64, u32)]) {
        for (hash, word) in moving {
            self.put(to, *hash, *word);
        }
        self.publish(|_| buckets);
        for (hash, word) in moving {
            self.take(from, *hash, *word);
        }
    }

    /// A new version of the shape. Others may publish at the same time: overflow lines are used
    /// again under any shard's lock.
    fn publish(&self, change: impl Fn(u32) -> u32) {
        let next = |shape: u64| {
            let version = (shape >> 32).wrapping_add(1) << 32;
            Some(version | u64::from(change(buckets(shape))))
        };
        let _ = self
            .shape
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    fn put(&self, bucket: u32, hash: u64, word: u32) {
        let Some(mut line) = self.lines.get(bucket) else {
            return;
        };
        while !line.put(tag(hash), word) {
            line = match self.overflow.behind(line) {
                Some(next) => next,
                None => {
                    let fresh = self.overflow.alloc(|| self.publish(|buckets| buckets));
                    let Some(next) = self.overflow.lines.get(fresh) else {
                        return;
                    };
                    // Filled before it is linked: readers see it with the entry.
                    next.put(tag(hash), word);
                    line.overflow.store(fresh + 1, Ordering::Release);
                    return;
                }
            };
        }
    }

    fn take(&self, bucket: u32, hash: u64, word: u32) -> bool {
        let Some(first) = self.lines.get(bucket) else {
            return false;
        };
        if first.take(tag(hash), word) {
            return true;
        }
        let mut before = first;
        while let Some(line) = self.overflow.behind(before) {
            if line.take(tag(hash), word) {
                if line.is_empty() {
                    // A reader on the line still finds its way on: its link stays until it is used
                    // again.
                    let index = before.overflow.load(Ordering::Relaxed) - 1;
                    let next = line.overflow.load(Ordering::Relaxed);
                    before.overflow.store(next, Ordering::Release);
                    self.overflow.free(index);
                }
                return true;
            }
            before = line;
        }
        false
    }

    fn words(&self, bucket: u32) -> impl Iterator<Item = u32> {
        let lines =
            core::iter::successors(self.lines.get(bucket), |line| self.overflow.behind(line));
        lines.flat_map(Line::words)
    }

    fn lock_shard(&self, hash: u64) -> MutexGuard<'_, ()> {
        lock(&self.shards[(hash % u64::from(SHARDS)) as usize])
    }

    /// How many there are now: a batch asks once.
    pub(crate) fn buckets(&self) -> u32 {
        buckets(self.shape.load(Ordering::Acquire))
    }
}

fn buckets(shape: u64) -> u32 {
    (shape & u64::from(u32::MAX)) as u32
}

#[inline]
fn bucket_of(hash: u64, buckets: u32) -> u32 {
    let mask = buckets.next_power_of_two() - 1;
    let bucket = hash as u32 & mask;
    if bucket < buckets {
        bucket
    } else {
        bucket & (mask >> 1)
    }
}

/// The bits of the hash that no bucket number has. 0 marks an empty place.
#[inline]
fn tag(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}

/// One cache line of entries.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Line {
    /// Four tags each.
    tags: [AtomicU64; 2],
    words: [AtomicU32; ENTRIES],
    /// Index of the line behind this one plus one, or 0.
    overflow: AtomicU32,
}

const LANES: u64 = 0x0001_0001_0001_0001;

impl Line {
    /// The last word for this hash, and whether no other line belongs to the bucket: then it is the
    /// last word that [`Established::find`] asks about.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<(u32, bool)> {
        let is_last = self.overflow.load(Ordering::Acquire) == 0;
        let at = self.matches(tag(hash)).checked_ilog2()?;
        let word = self.words.get(at as usize)?.load(Ordering::Acquire);
        Some((word, is_last))
    }

    /// The words of the entries with this tag.
    ///
    /// Each word is loaded after its tag: whoever sees the tag sees the word that came with it, or
    /// one that has replaced it since.
    #[inline]
    fn candidates(&self, tag: u16) -> impl Iterator<Item = u32> {
        let matches = self.matches(tag);
        Lanes(matches).map(|at| self.words[at].load(Ordering::Acquire))
    }

    fn words(&self) -> impl Iterator<Item = u32> {
        let taken = !self.matches(0) & ((1 << ENTRIES) - 1);
        Lanes(taken).map(|at| self.words[at].load(Ordering::Acquire))
    }

    /// Bit `i` says that entry `i` has this tag.
    #[inline]
    fn matches(&self, tag: u16) -> u32 {
        let [low, high] = &self.tags;
        equal_lanes(low.load(Ordering::Acquire), tag)
            | equal_lanes(high.load(Ordering::Acquire), tag) << 4
    }

    /// Adds an entry; false if there is no room. Under the bucket's lock.
    fn put(&self, tag: u16, word: u32) -> bool {
        let Some(at) = Lanes(self.matches(0)).next() else {
            return false;
        };
        self.words[at].store(word, Ordering::Release);
        self.set_tag(at, tag);
        true
    }

    /// Removes an entry; false if it is not here. Under the bucket's lock.
    fn take(&self, tag: u16, word: u32) -> bool {
        let is_it = |at: &usize| self.words[*at].load(Ordering::Relaxed) == word;
        let Some(at) = Lanes(self.matches(tag)).find(is_it) else {
            return false;
        };
        self.set_tag(at, 0);
        true
    }

    /// Changes an entry's word; false if it is not here. Under the bucket's lock.
    fn replace(&self, tag: u16, word: u32, with: u32) -> bool {
        let is_it = |at: &usize| self.words[*at].load(Ordering::Relaxed) == word;
        let Some(at) = Lanes(self.matches(tag)).find(is_it) else {
            return false;
        };
        self.words[at].store(with, Ordering::Release);
        true
    }

    fn is_empty(&self) -> bool {
        self.tags
            .iter()
            .all(|tags| tags.load(Ordering::Relaxed) == 0)
    }

    fn set_tag(&self, at: usize, tag: u16) {
        let (tags, shift) = (&self.tags[at / 4], at % 4 * 16);
        let others = tags.load(Ordering::Relaxed) & !(0xffff << shift);
        tags.store(others | u64::from(tag) << shift, Ordering::Release);
    }
}

/// Which of four 16-bit lanes equal `tag`, as the low four bits.
#[inline]
fn equal_lanes(lanes: u64, tag: u16) -> u32 {
    let differences = lanes ^ (u64::from(tag) * LANES);
    let low = LANES * 0x7fff;
    // The top bit of a lane is set if any bit of the lane is.
    let nonzero = ((differences & low) + low) | differences;
    let zero = !nonzero >> 15 & LANES;
    // Gathers bits 0, 16, 32 and 48 in the top four, without a carry between them.
    (zero.wrapping_mul(0x1000_2000_4000_8000) >> 60) as u32
}

/// The numbers of the set bits.
struct Lanes(u32);

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let at = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (at < ENTRIES).then_some(at)
    }
}

/// The lines behind full buckets.
#[derive(Default)]
struct Overflow {
    lines: Segments<Line>,
    free: Mutex<Vec<u32>>,
}

impl Overflow {
    #[inline]
    fn behind(&self, line: &Line) -> Option<&Line> {
        match line.overflow.load(Ordering::Acquire) {
            0 => None,
            index => self.lines.get(index - 1),
        }
    }

    /// An empty line that is linked to nothing. `reused` is called before one that readers may
    /// still be on is changed.
    fn alloc(&self, reused: impl FnOnce()) -> u32 {
        let mut free = lock(&self.free);
        if let Some(index) = free.pop() {
            drop(free);
            reused();
            if let Some(line) = self.lines.get(index) {
                line.overflow.store(0, Ordering::Release);
            }
            return index;
        }
        let index = self.lines.len();
        self.lines.grow_to(index + 1, Line::default);
        index
    }

    fn free(&self, index: u32) {
        lock(&self.free).push(index);
    }
}

#[cfg(all(test, loom))]
mod interleavings;
#[cfg(all(test, not(loom)))]
mod tests;
