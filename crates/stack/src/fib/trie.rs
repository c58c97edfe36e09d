//! The lookup table that packets see: a trie with fixed strides, longest prefix first.
//!
//! # Shape
//! All of a table's entries lie in one flat array of `u32` words, in pages of 256. The first pages
//! are the root. A word is 0 (no route), the number of a child page with the top bit set, or else
//! what the route's author stored, a next hop's index. Prefixes are pushed down to the leaves, so
//! that a lookup never looks back.
//!
//! A table starts *narrow*: its root is one page, decided by the first 8 bits of an address, and
//! the whole costs a few KiB. When its pages outweigh the 256 KiB of a 16-bit root it becomes
//! *wide*, which saves a level: 16-8-8 in IPv4, so that most lookups touch one or two cache lines;
//! 16 and then bytes in IPv6. It takes 1 KiB a page, plus 256 bytes which only the writer reads.
//!
//! The default route is kept apart, since it would fill every word that no other route does: so
//! changing it costs one store. A route to a /8 or longer changes at most the pages below 256
//! words; only the few that are shorter still may touch a large part of a full table, which takes
//! milliseconds.
//!
//! # Change under readers
//! One writer (there is a lock) updates words in place with release stores; readers load them with
//! acquire. A page is filled before it is linked, and reused only after a grace period. Growing
//! means copying the array and publishing the copy; a reader keeps the array that it found for as
//! long as its guard lives. For each address a reader sees the route from before or from after a
//! change, never a third.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sync::prefetch::prefetch_read;
use forebay_sync::rcu::{Guard, Rcu};

use super::address::Address;

mod writer;

pub(super) use writer::{Leaf, TrieWriter};

/// How many lookups are under way at a time when they are made in bulk.
pub const BATCH: usize = 64;

const PAGE: usize = 256;

/// Set in a word that leads to a child page.
const CHILD: u32 = 1 << 31;

/// The words of a trie.
struct Arena {
    words: Box<[AtomicU32]>,
    /// Whether the root is decided by 16 bits and takes 256 pages, not 8 and one.
    wide: bool,
}

impl Arena {
    fn new(pages: usize, wide: bool) -> Self {
        Arena {
            words: (0..pages * PAGE).map(|_| AtomicU32::new(0)).collect(),
            wide,
        }
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        match self.words.get(at) {
            Some(word) => word.load(Ordering::Acquire),
            None => 0,
        }
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some(word) = self.words.get(at) {
            prefetch_read(word);
        }
    }

    /// Octets that the root decides.
    #[inline]
    fn root_octets(&self) -> usize {
        if self.wide { 2 } else { 1 }
    }

    #[inline]
    fn root_place(&self, addr: impl Address) -> usize {
        let first = usize::from(addr.octet(0));
        if self.wide {
            first << 8 | usize::from(addr.octet(1))
        } else {
            first
        }
    }
}

/// The page that a word leads to.
#[inline]
fn child_page(word: u32) -> Option<usize> {
    (word & CHILD != 0).then_some((word & !CHILD) as usize)
}

/// A trie as packets see it.
pub(super) struct Trie {
    /// The writer keeps a handle of its own, hence the `Arc`; readers go through it once a batch.
    arena: Rcu<Arc<Arena>>,
    /// What addresses get that the trie has nothing for.
    default: AtomicU32,
}

impl Trie {
    pub(super) fn reader<'g>(&'g self, guard: &'g Guard<'_>) -> TrieReader<'g> {
        TrieReader {
            arena: self.arena.read(guard),
            default: &self.default,
        }
    }
}

/// A trie under a guard.
#[derive(Clone, Copy)]
pub(super) struct TrieReader<'g> {
    arena: &'g Arena,
    default: &'g AtomicU32,
}

impl TrieReader<'_> {
    /// The value of the longest prefix that `addr` lies in, 0 if there is none.
    #[inline]
    pub(super) fn lookup<A: Address>(self, addr: A) -> u32 {
        let arena = self.arena;
        let mut word = arena.word(arena.root_place(addr));
        let mut octet = arena.root_octets();
        while let Some(page) = child_page(word) {
            word = arena.word(page * PAGE + usize::from(addr.octet(octet)));
            octet += 1;
        }
        self.or_default(word)
    }

    /// [`lookup`](Self::lookup) for the first `count` addresses, level by level, so that the cache
    /// misses of one level overlap.
    pub(super) fn lookup_many<A: Address>(
        self,
        addrs: &[A; BATCH],
        count: usize,
        values: &mut [u32; BATCH],
    ) {
        let arena = self.arena;
        let count = count.min(BATCH);
        let mut places = [0; BATCH];
        for (place, addr) in places.iter_mut().zip(&addrs[..count]) {
            *place = arena.root_place(*addr);
            arena.prefetch(*place);
        }
        // The lanes that have not come to a leaf yet are the first `pending` ones. (The remainders
        // cost nothing and spare the compiler's checks.)
        let mut lanes: [u8; BATCH] = std::array::from_fn(|lane| lane as u8);
        let mut pending = count;
        let mut octet = arena.root_octets();
        while pending > 0 {
            let mut kept = 0;
            for i in 0..pending {
                let lane = usize::from(lanes[i % BATCH]) % BATCH;
                let word = arena.word(places[lane]);
                values[lane] = word;
                if let Some(page) = child_page(word) {
                    let place = page * PAGE + usize::from(addrs[lane].octet(octet));
                    arena.prefetch(place);
                    places[lane] = place;
                    lanes[kept % BATCH] = lane as u8;
                    kept += 1;
                }
            }
            pending = kept;
            octet += 1;
        }
        let default = self.default.load(Ordering::Acquire);
        for value in &mut values[..count] {
            *value = if *value == 0 { default } else { *value };
        }
    }

    #[inline]
    fn or_default(self, word: u32) -> u32 {
        if word == 0 {
            self.default.load(Ordering::Acquire)
        } else {
            word
        }
    }
}
