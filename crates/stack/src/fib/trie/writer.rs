//! The management side of a lookup trie.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sync::rcu::{Domain, Rcu, Ticket};

use super::{Arena, CHILD, PAGE, Trie, child_page};
use crate::fib::address::Address;
use crate::fib::prefix::Prefix;

#[cfg(test)]
mod tests;

/// Pages that the 16-bit root takes.
const WIDE_ROOT: usize = 256;

/// A narrow trie with more pages than this becomes wide: the big root then is no longer the
/// larger part.
const NARROW_MAX: usize = 256;

/// So many pages may wait for their readers; with more, the writer waits too.
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

/// Changes a trie.
///
/// It knows the length of the prefix behind every word, but no prefixes: who deletes one says
/// what shorter one takes its place.
pub(in crate::fib) struct TrieWriter<A> {
    domain: Domain,
    published: Arc<Trie>,
    arena: Arc<Arena>,
    /// For each word that is a leaf, the length of its prefix. Readers never touch this.
    lens: Vec<u8>,
    pages: Vec<Page>,
    free: Vec<usize>,
    /// Unlinked pages that a reader may still be in.
    retired: VecDeque<(Ticket, usize)>,
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
        let linked = child_page(self.arena.word(at));
        let page = match linked {
            Some(page) => page,
            None => self.new_page(bits, self.leaf(at)),
        };
        self.set_below(page * PAGE, bits + 8, prefix, leaf);
        let uniform = self.pages[page].specifics == 0;
        match (linked, uniform) {
            (None, false) => self.store(at, CHILD | page as u32, 0),
            (None, true) => self.free.push(page),
            (Some(_), false) => {}
            (Some(_), true) => {
                let Leaf { value, len } = self.leaf(page * PAGE);
                self.store(at, value, len);
                self.retired.push_back((self.domain.ticket(), page));
            }
        }
    }

    /// Sets the word, or everything below it, where no prefix longer than `len` stands.
    fn fill(&mut self, at: usize, len: u8, leaf: Leaf) {
        if let Some(page) = child_page(self.arena.word(at)) {
            for at in page * PAGE..(page + 1) * PAGE {
                self.fill(at, len, leaf);
            }
        } else if self.lens[at] <= len {
            self.store(at, leaf.value, leaf.len);
        }
    }

    fn leaf(&self, at: usize) -> Leaf {
        Leaf {
            value: self.arena.word(at),
            len: self.lens[at],
        }
    }

    fn store(&mut self, at: usize, word: u32, len: u8) {
        let page = &mut self.pages[at / PAGE];
        let is_specific = |word: u32, len: u8| child_page(word).is_some() || len > page.base;
        let was = is_specific(self.arena.word(at), self.lens[at]);
        let is = is_specific(word, len);
        page.specifics = page.specifics + u16::from(is) - u16::from(was);
        self.lens[at] = len;
        self.arena.words[at].store(word, Ordering::Release);
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

    /// A page that no reader knows. To bound what waits for readers, this may wait for them too.
    fn vacant_page(&mut self) -> usize {
        if self.retired.len() > RETIRED_MAX {
            self.domain.synchronize();
        }
        while let Some((ticket, page)) = self.retired.front() {
            if !self.domain.elapsed(ticket) {
                break;
            }
            self.free.push(*page);
            self.retired.pop_front();
        }
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
        let pages = self.pages.len() + shift;
        let narrow = Arc::clone(&self.arena);
        let narrow_lens = std::mem::take(&mut self.lens);
        let wide = Arena::new(pages + pages.div_ceil(2), true);
        self.lens = vec![0; wide.words.len()];
        let copy = |from: usize, to: usize, lens: &mut [u8]| {
            let word = narrow.word(from);
            let word = child_page(word).map_or(word, |page| CHILD | (page + shift) as u32);
            wide.words[to].store(word, Ordering::Relaxed);
            lens[to] = narrow_lens[from];
        };
        for from in PAGE..narrow.words.len() {
            copy(from, from + shift * PAGE, &mut self.lens);
        }
        self.free.iter_mut().for_each(|page| *page += shift);
        self.retired.iter_mut().for_each(|(_, page)| *page += shift);
        for first in 0..PAGE {
            let second = child_page(narrow.word(first));
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

    /// Publishes an arena with the same pages. Nothing in it leads to a retired page, so those
    /// are free.
    fn replace(&mut self, arena: Arena) {
        let retired = self.retired.drain(..).map(|(_, page)| page);
        self.free.extend(retired);
        self.arena = Arc::new(arena);
        self.published.arena.publish(Arc::clone(&self.arena));
    }

    fn count_root(&mut self) {
        for (at, len) in self.lens[..WIDE_ROOT * PAGE].iter().enumerate() {
            let is_specific = child_page(self.arena.word(at)).is_some() || *len > 0;
            self.pages[at / PAGE].specifics += u16::from(is_specific);
        }
    }
}

impl Page {
    /// A page of the root, whose count nobody asks for.
    const ROOT: Page = Page {
        base: 0,
        specifics: 0,
    };
}
