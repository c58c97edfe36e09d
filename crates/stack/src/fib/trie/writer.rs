//! The management side of a lookup trie.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sync::rcu::{Domain, Rcu, Ticket};

use super::{Arena, Below, CHILD, LONE, PAGE, Record, Trie, below};
use crate::fib::address::Address;
use crate::fib::prefix::Prefix;

#[cfg(test)]
mod tests;

/// Pages that the 16-bit root takes.
const WIDE_ROOT: usize = 256;

/// A narrow trie with more pages than this becomes wide: the big root then is no longer the
/// larger part.
const NARROW_MAX: usize = 256;

/// Words that are decided by fewer bits lead to no records: those of a narrow root, which becomes a
/// wide one page by page.
const LONE_FROM: u8 = 16;

/// So many pages and records may wait for their readers; with more, the writer waits too.
const RETIRED_MAX: usize = 1024;

/// Pages of a fresh trie: the root and room for a few routes.
const FIRST_PAGES: usize = 4;

/// What an address gets, and the length of the prefix that gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fib) struct Leaf {
    pub(in crate::fib) value: u32,
    pub(in crate::fib) len: u8,
}

impl Leaf {
    /// What addresses get that no prefix covers.
    pub(in crate::fib) const NONE: Leaf = Leaf { value: 0, len: 0 };
}

/// What the writer knows of a page.
#[derive(Debug, Clone, Copy)]
struct Page {
    /// Bits that lead to the page: all its addresses share that many.
    base: u8,
    /// Words that lead to a child or hold a prefix longer than `base`. At 0 all words are alike
    /// and the parent's word can say it for all.
    specifics: u16,
}

/// Where records lie is no page of words.
#[derive(Debug, Clone, Copy)]
enum Unlinked {
    Page(usize),
    Record(usize),
}

/// Changes a trie.
///
/// It knows the length of the prefix behind every word, but no prefixes: who deletes one says
/// what shorter one takes its place.
pub(in crate::fib) struct TrieWriter<A> {
    domain: Domain,
    published: Arc<Trie>,
    arena: Arc<Arena>,
    /// For each word that is a leaf, the length of its prefix; for one that leads to a record, that
    /// of what addresses outside of the record's prefix get. Readers never touch this.
    lens: Vec<u8>,
    pages: Vec<Page>,
    free: Vec<usize>,
    free_records: Vec<usize>,
    /// What a reader may still be in.
    retired: VecDeque<(Ticket, Unlinked)>,
    family: PhantomData<A>,
}

impl<A: Address> TrieWriter<A> {
    pub(in crate::fib) fn new(domain: &Domain) -> Self {
        let arena = Arc::new(Arena::new(FIRST_PAGES, false));
        TrieWriter {
            domain: domain.clone(),
            published: Arc::new(Trie {
                arena: Rcu::new(domain, Arc::clone(&arena)),
                default: AtomicU32::new(0),
            }),
            lens: vec![0; arena.words.len()],
            arena,
            pages: vec![Page::ROOT],
            free: Vec::new(),
            free_records: Vec::new(),
            retired: VecDeque::new(),
            family: PhantomData,
        }
    }

    pub(in crate::fib) fn published(&self) -> Arc<Trie> {
        Arc::clone(&self.published)
    }

    /// Bytes that the trie takes.
    pub(in crate::fib) fn memory(&self) -> usize {
        self.arena.words.len() * size_of::<AtomicU32>()
            + self.lens.capacity()
            + self.pages.capacity() * size_of::<Page>()
    }

    /// Gives `value` to all addresses in `prefix` that no longer prefix covers.
    pub(in crate::fib) fn insert(&mut self, prefix: &Prefix<A>, value: u32) {
        let len = prefix.len();
        self.set(prefix, Leaf { value, len });
    }

    /// Takes `prefix` out, whose addresses fall to the next shorter prefix, `shorter`. (If that is
    /// the default, to [`Leaf::NONE`].)
    pub(in crate::fib) fn remove(&mut self, prefix: &Prefix<A>, shorter: Leaf) {
        self.set(prefix, shorter);
    }

    /// Both are one: the words to change are those of `prefix` itself or of a shorter one.
    fn set(&mut self, prefix: &Prefix<A>, leaf: Leaf) {
        if prefix.is_default() {
            self.published.default.store(leaf.value, Ordering::Release);
            return;
        }
        if !self.arena.wide && self.pages.len() - self.free.len() > NARROW_MAX {
            self.widen();
        }
        let root_bits = 8 * self.arena.root_octets() as u8;
        self.set_below(0, root_bits, prefix, leaf);
    }

    /// [`set`](Self::set) in the words from `group` on, each of which is decided by `bits` bits.
    fn set_below(&mut self, group: usize, bits: u8, prefix: &Prefix<A>, leaf: Leaf) {
        let at = group + self.place_in_group(prefix, bits);
        if prefix.len() > bits {
            self.set_in_child(at, bits, prefix, leaf);
            return;
        }
        let words = 1 << (bits - prefix.len());
        for at in at..at + words {
            self.fill(at, prefix.len(), leaf);
        }
    }

    fn place_in_group(&self, prefix: &Prefix<A>, bits: u8) -> usize {
        if usize::from(bits) == 8 * self.arena.root_octets() {
            self.arena.root_place(prefix.addr())
        } else {
            usize::from(prefix.addr().octet(usize::from(bits) / 8 - 1))
        }
    }

    fn set_in_child(&mut self, at: usize, bits: u8, prefix: &Prefix<A>, leaf: Leaf) {
        match below(self.arena.word(at)) {
            Below::Leaf => self.set_below_leaf(at, bits, prefix, leaf),
            Below::Lone(record) => self.set_beside(record, at, bits, prefix, leaf),
            Below::Page(page) => {
                self.set_below(page * PAGE, bits + 8, prefix, leaf);
                match self.pages[page].specifics {
                    0 => {
                        let Leaf { value, len } = self.leaf(page * PAGE);
                        self.store(at, value, len);
                        self.retire(Unlinked::Page(page));
                    }
                    1 if bits >= LONE_FROM => self.hoist(page, at, bits, prefix),
                    _ => {}
                }
            }
        }
    }

    /// The first prefix below a word.
    fn set_below_leaf(&mut self, at: usize, bits: u8, prefix: &Prefix<A>, leaf: Leaf) {
        let outside = self.leaf(at);
        if leaf == outside {
            return;
        }
        if bits >= LONE_FROM {
            let record = self.new_record(prefix, leaf.value, outside.value);
            self.store(at, CHILD | LONE | record as u32, outside.len);
        } else {
            let page = self.new_page(bits, outside);
            self.set_below(page * PAGE, bits + 8, prefix, leaf);
            self.store(at, CHILD | page as u32, 0);
        }
    }

    /// A second prefix below a word, or a change of the first.
    fn set_beside(&mut self, record: usize, at: usize, bits: u8, prefix: &Prefix<A>, leaf: Leaf) {
        let (lone, inside) = self.record(record);
        if lone == *prefix && leaf.len == lone.len() {
            self.record_word(record, Record::INSIDE)
                .store(leaf.value, Ordering::Release);
            return;
        }
        if lone == *prefix {
            self.store(at, leaf.value, leaf.len);
        } else {
            let outside = Leaf {
                value: self
                    .record_word(record, Record::OUTSIDE)
                    .load(Ordering::Relaxed),
                len: self.lens[at],
            };
            let page = self.new_page(bits, outside);
            let inside = Leaf {
                value: inside,
                len: lone.len(),
            };
            self.set_below(page * PAGE, bits + 8, &lone, inside);
            self.set_below(page * PAGE, bits + 8, prefix, leaf);
            self.store(at, CHILD | page as u32, 0);
        }
        self.retire(Unlinked::Record(record));
    }

    /// Puts the one prefix that is left below a page in the page's place, if it is one alone.
    fn hoist(&mut self, page: usize, at: usize, bits: u8, prefix: &Prefix<A>) {
        let first = page * PAGE;
        let mut words = first..first + PAGE;
        let Some(last) = words.rfind(|at| self.is_specific(*at, bits)) else {
            return;
        };
        let nth = last - first;
        let outside = self.leaf(if nth == 0 { first + 1 } else { first });
        match below(self.arena.word(last)) {
            Below::Page(_) => return,
            // Something stands between the two.
            Below::Lone(_) if self.lens[last] > bits => return,
            Below::Lone(_) => self.store(at, self.arena.word(last), outside.len),
            Below::Leaf => {
                let Leaf { value, len } = self.leaf(last);
                let parent = prefix.addr().masked(bits).to_u128();
                let octet = (nth as u128) << (A::BITS - bits - 8);
                let lone = Prefix::truncated(A::from_u128(parent | octet), len);
                let record = self.new_record(&lone, value, outside.value);
                self.store(at, CHILD | LONE | record as u32, outside.len);
            }
        }
        self.retire(Unlinked::Page(page));
    }

    /// Sets the word, or everything below it, where no prefix longer than `len` stands.
    fn fill(&mut self, at: usize, len: u8, leaf: Leaf) {
        match below(self.arena.word(at)) {
            Below::Page(page) => {
                for at in page * PAGE..(page + 1) * PAGE {
                    self.fill(at, len, leaf);
                }
            }
            Below::Lone(record) if self.lens[at] <= len => {
                self.record_word(record, Record::OUTSIDE)
                    .store(leaf.value, Ordering::Release);
                self.store(at, self.arena.word(at), leaf.len);
            }
            Below::Leaf if self.lens[at] <= len => self.store(at, leaf.value, leaf.len),
            Below::Lone(_) | Below::Leaf => {}
        }
    }

    fn leaf(&self, at: usize) -> Leaf {
        Leaf {
            value: self.arena.word(at),
            len: self.lens[at],
        }
    }

    fn store(&mut self, at: usize, word: u32, len: u8) {
        let page = at / PAGE;
        let base = self.pages[page].base;
        let was = self.is_specific(at, base);
        self.lens[at] = len;
        self.arena.words[at].store(word, Ordering::Release);
        let is = self.is_specific(at, base);
        let specifics = &mut self.pages[page].specifics;
        *specifics = *specifics + u16::from(is) - u16::from(was);
    }

    /// Whether a word says something else than what all addresses get that begin with the same
    /// `base` bits.
    fn is_specific(&self, at: usize, base: u8) -> bool {
        below(self.arena.word(at)) != Below::Leaf || self.lens[at] > base
    }

    /// The prefix of a record, and what addresses in it get.
    fn record(&self, record: usize) -> (Prefix<A>, u32) {
        let at = record * Record::words::<A>();
        let words = Record::address_words::<A>();
        let addr =
            (at..at + words).fold(0, |bits, at| bits << 32 | u128::from(self.arena.word(at)));
        let len = self.record_word(record, Record::LEN);
        let inside = self.record_word(record, Record::INSIDE);
        let prefix = Prefix::truncated(A::from_u128(addr), len.load(Ordering::Relaxed) as u8);
        (prefix, inside.load(Ordering::Relaxed))
    }

    /// One of the words behind a record's address.
    fn record_word(&self, record: usize, word: usize) -> &AtomicU32 {
        &self.arena.words[record * Record::words::<A>() + Record::address_words::<A>() + word]
    }

    /// A record that no reader knows.
    fn new_record(&mut self, prefix: &Prefix<A>, inside: u32, outside: u32) -> usize {
        let record = self.vacant_record();
        let words = &self.arena.words[record * Record::words::<A>()..][..Record::words::<A>()];
        let (addr, rest) = words.split_at(Record::address_words::<A>());
        let bits = prefix.addr().to_u128();
        for (word, shift) in addr.iter().rev().zip((0..).step_by(32)) {
            word.store((bits >> shift) as u32, Ordering::Relaxed);
        }
        rest[Record::INSIDE].store(inside, Ordering::Relaxed);
        rest[Record::OUTSIDE].store(outside, Ordering::Relaxed);
        rest[Record::LEN].store(prefix.len().into(), Ordering::Relaxed);
        record
    }

    /// A record that no reader knows.
    fn vacant_record(&mut self) -> usize {
        self.reclaim();
        if let Some(record) = self.free_records.pop() {
            return record;
        }
        let page = self.vacant_page();
        self.pages[page] = Page::RECORDS;
        let first = page * PAGE / Record::words::<A>();
        let behind = first + PAGE / Record::words::<A>();
        self.free_records.extend((first + 1..behind).rev());
        first
    }

    fn retire(&mut self, what: Unlinked) {
        self.retired.push_back((self.domain.ticket(), what));
    }

    /// Takes back what readers have left. To bound what waits for them, this may wait, too.
    fn reclaim(&mut self) {
        if self.retired.len() > RETIRED_MAX {
            self.domain.synchronize();
        }
        while let Some((ticket, what)) = self.retired.front().copied() {
            if !self.domain.elapsed(&ticket) {
                break;
            }
            self.free(what);
            self.retired.pop_front();
        }
    }

    fn free(&mut self, what: Unlinked) {
        match what {
            Unlinked::Page(page) => self.free.push(page),
            Unlinked::Record(record) => self.free_records.push(record),
        }
    }

    /// A page that no reader knows, filled with `leaf`.
    fn new_page(&mut self, base: u8, leaf: Leaf) -> usize {
        let page = self.vacant_page();
        self.pages[page] = Page { base, specifics: 0 };
        let words = page * PAGE..(page + 1) * PAGE;
        self.lens[words.clone()].fill(leaf.len);
        for word in &self.arena.words[words] {
            word.store(leaf.value, Ordering::Relaxed);
        }
        page
    }

    /// A page that no reader knows.
    fn vacant_page(&mut self) -> usize {
        self.reclaim();
        if let Some(page) = self.free.pop() {
            return page;
        }
        let page = self.pages.len();
        if page * PAGE == self.arena.words.len() {
            self.grow();
        }
        self.pages.push(Page::ROOT);
        page
    }

    /// Makes room by half, so that a large table wastes a third at worst.
    fn grow(&mut self) {
        let pages = self.pages.len();
        let arena = Arena::new(pages + pages.div_ceil(2), self.arena.wide);
        for (to, from) in arena.words.iter().zip(self.arena.words.iter()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.lens.resize(arena.words.len(), 0);
        self.replace(arena);
    }

    /// Makes the root that of 16 bits: its words are those of the second level as it was.
    fn widen(&mut self) {
        let shift = WIDE_ROOT - 1;
        let record_shift = shift * PAGE / Record::words::<A>();
        let pages = self.pages.len() + shift;
        let narrow_pages = self.pages.clone();
        let narrow = Arc::clone(&self.arena);
        let narrow_lens = std::mem::take(&mut self.lens);
        let wide = Arena::new(pages + pages.div_ceil(2), true);
        self.lens = vec![0; wide.words.len()];
        let copy = |from: usize, to: usize, lens: &mut [u8]| {
            let word = match below(narrow.word(from)) {
                _ if narrow_pages[from / PAGE].is_records() => narrow.word(from),
                Below::Leaf => narrow.word(from),
                Below::Page(page) => CHILD | (page + shift) as u32,
                Below::Lone(record) => CHILD | LONE | (record + record_shift) as u32,
            };
            wide.words[to].store(word, Ordering::Relaxed);
            lens[to] = narrow_lens[from];
        };
        for from in PAGE..narrow_pages.len() * PAGE {
            copy(from, from + shift * PAGE, &mut self.lens);
        }
        self.free.iter_mut().for_each(|page| *page += shift);
        self.free_records
            .iter_mut()
            .for_each(|record| *record += record_shift);
        for (_, what) in &mut self.retired {
            match what {
                Unlinked::Page(page) => *page += shift,
                Unlinked::Record(record) => *record += record_shift,
            }
        }
        for first in 0..PAGE {
            let second = match below(narrow.word(first)) {
                Below::Page(page) => Some(page),
                Below::Leaf | Below::Lone(_) => None,
            };
            self.free.extend(second.map(|page| page + shift));
            for i in 0..PAGE {
                let from = second.map_or(first, |page| page * PAGE + i);
                copy(from, first * PAGE + i, &mut self.lens);
            }
        }
        self.pages.splice(0..1, [Page::ROOT; WIDE_ROOT]);
        self.replace(wide);
        self.count_root();
    }

    /// Publishes an arena with the same pages. Nothing in it leads to what is retired, so that is
    /// free.
    fn replace(&mut self, arena: Arena) {
        for (_, what) in std::mem::take(&mut self.retired) {
            self.free(what);
        }
        self.arena = Arc::new(arena);
        self.published.arena.publish(Arc::clone(&self.arena));
    }

    fn count_root(&mut self) {
        for at in 0..WIDE_ROOT * PAGE {
            self.pages[at / PAGE].specifics += u16::from(self.is_specific(at, 0));
        }
    }
}

impl Page {
    /// A page of the root, whose count nobody asks for.
    const ROOT: Page = Page {
        base: 0,
        specifics: 0,
    };

    /// One that is full of records.
    const RECORDS: Page = Page {
        base: u8::MAX,
        specifics: 0,
    };

    fn is_records(self) -> bool {
        self.base == u8::MAX
    }
}
