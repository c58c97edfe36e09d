//! The lookup table that packets see: a trie with fixed strides, longest prefix first.
//!
//! # Shape
//! All of a table's entries lie in one flat array of `u32` words, in pages of 256. The first pages
//! are the root. A word is 0 (no route), the number of a child page with the top bit set, or else
//! what the route's author stored, a next hop's index. Prefixes are pushed down to the leaves, so
//! that a lookup never looks back.
//!
//! A prefix that is alone below a word has no pages of its own, which would be 256 times the same
//! but for one: the word names a *record* of the prefix, of what addresses in it get, and of what
//! the others do. That is where most prefixes of a sparse table are, IPv6's above all, and it saves
//! lookups a page or more.
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

use forebay_sync::huge::ZeroedSlice;
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

/// Set beside [`CHILD`] in a word that leads to a record instead.
const LONE: u32 = 1 << 30;

/// Set in a place to say that a record is there, and no word of a page.
const RECORD: usize = 1 << (usize::BITS - 1);

/// What a word leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    /// Nothing: it is what addresses get.
    Leaf,
    /// A page, by its number.
    Page(usize),
    /// A record, by its number.
    Lone(usize),
}

#[inline]
fn below(word: u32) -> Below {
    if word & CHILD == 0 {
        Below::Leaf
    } else if word & LONE == 0 {
        Below::Page((word & !CHILD) as usize)
    } else {
        Below::Lone((word & !(CHILD | LONE)) as usize)
    }
}

/// The shape of a record: words that hold the prefix's address, most significant first, and behind
/// them these.
struct Record;

impl Record {
    /// What addresses in the prefix get.
    const INSIDE: usize = 0;
    /// What the others get.
    const OUTSIDE: usize = 1;
    /// Bits of the prefix.
    const LEN: usize = 2;

    /// Words of an address.
    const fn address_words<A: Address>() -> usize {
        A::BITS as usize / 32
    }

    /// Words of a record: 4 in IPv4, 8 in IPv6, so that none lies across two cache lines.
    const fn words<A: Address>() -> usize {
        (Self::address_words::<A>() + Self::LEN + 1).next_power_of_two()
    }
}

/// The words of a trie.
struct Arena {
    words: ZeroedSlice<AtomicU32>,
    /// Whether the root is decided by 16 bits and takes 256 pages, not 8 and one.
    wide: bool,
}

impl Arena {
    fn new(pages: usize, wide: bool) -> Self {
        Arena {
            words: ZeroedSlice::new(pages * PAGE),
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

    /// What the record from `at` on says of an address.
    #[inline]
    fn ask_record<A: Address>(&self, at: usize, addr: A) -> u32 {
        let Some(record) = self.words.get(at..at + Record::words::<A>()) else {
            return 0;
        };
        let load = |word: &AtomicU32| word.load(Ordering::Acquire);
        let (first, rest) = record.split_at(Record::address_words::<A>());
        let first = first
            .iter()
            .fold(0, |bits, word| bits << 32 | u128::from(load(word)));
        let is_inside = addr.agrees(A::from_u128(first), load(&rest[Record::LEN]));
        load(
            &rest[if is_inside {
                Record::INSIDE
            } else {
                Record::OUTSIDE
            }],
        )
    }

    /// Octets that the root decides.
    #[inline]
    fn root_octets(&self) -> usize {
        if self.wide { 2 } else { 1 }
    }

    #[inline]
    fn root_place(&self, addr: impl Address) -> usize {
        if self.wide {
            wide_root_place(addr)
        } else {
            narrow_root_place(addr)
        }
    }
}

#[inline]
fn narrow_root_place(addr: impl Address) -> usize {
    addr.octet(0).into()
}

#[inline]
fn wide_root_place(addr: impl Address) -> usize {
    usize::from(addr.octet(0)) << 8 | usize::from(addr.octet(1))
}

/// Where to look next for an address, of whose octets all before `octet` are looked at: a word of the
/// page below, or with [`RECORD`] set the record below.
#[inline]
fn next_place<A: Address>(word: u32, addr: A, octet: usize) -> Option<usize> {
    match below(word) {
        Below::Leaf => None,
        Below::Page(page) => Some(page * PAGE + usize::from(addr.octet(octet))),
        Below::Lone(record) => Some((record * Record::words::<A>()) | RECORD),
    }
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
        loop {
            word = match below(word) {
                Below::Leaf => break,
                Below::Page(page) => arena.word(page * PAGE + usize::from(addr.octet(octet))),
                Below::Lone(record) => arena.ask_record(record * Record::words::<A>(), addr),
            };
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
        let count = count.min(BATCH);
        if self.arena.wide {
            for addr in &addrs[..count] {
                self.arena.prefetch(wide_root_place(*addr));
            }
            self.descend(addrs, count, values, 2, wide_root_place);
        } else {
            // A narrow root is in the nearest cache anyway.
            self.descend(addrs, count, values, 1, narrow_root_place);
        }
        let default = self.default.load(Ordering::Acquire);
        for value in &mut values[..count] {
            *value = if *value == 0 { default } else { *value };
        }
    }

    /// From the root on, which decides by `octet` octets.
    #[inline(always)]
    fn descend<A: Address>(
        self,
        addrs: &[A; BATCH],
        count: usize,
        values: &mut [u32; BATCH],
        mut octet: usize,
        root_place: impl Fn(A) -> usize,
    ) {
        let arena = self.arena;
        let mut places = [0; BATCH];
        // The lanes that have not come to a leaf yet are the first `pending` ones. (The remainders
        // cost nothing and spare the compiler's checks.)
        let mut lanes = [0_u8; BATCH];
        let mut pending = 0;
        for lane in 0..count {
            let addr = addrs[lane];
            let word = arena.word(root_place(addr));
            values[lane] = word;
            if let Some(next) = next_place(word, addr, octet) {
                arena.prefetch(next & !RECORD);
                places[lane] = next;
                lanes[pending % BATCH] = lane as u8;
                pending += 1;
            }
        }
        while pending > 0 {
            octet += 1;
            let mut kept = 0;
            for i in 0..pending {
                let lane = usize::from(lanes[i % BATCH]) % BATCH;
                let (place, addr) = (places[lane], addrs[lane]);
                let word = if place & RECORD == 0 {
                    arena.word(place)
                } else {
                    arena.ask_record(place & !RECORD, addr)
                };
                values[lane] = word;
                if let Some(next) = next_place(word, addr, octet) {
                    arena.prefetch(next & !RECORD);
                    places[lane] = next;
                    lanes[kept % BATCH] = lane as u8;
                    kept += 1;
                }
            }
            pending = kept;
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
