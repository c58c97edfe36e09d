//! One routing table: its routes by prefix, and the trie that shows the best of each to packets.

use std::sync::Arc;

use forebay_sync::rcu::Domain;

use super::address::Address;
use super::next_hop::NextHopIndex;
use super::prefix::Prefix;
use super::prefix_map::PrefixMap;
use super::route::Protocol;
use super::trie::{Leaf, Trie, TrieWriter};

/// A route as a table keeps it: what its next hop doesn't say already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) metric: u32,
    pub(super) hop: NextHopIndex,
    pub(super) protocol: Protocol,
    pub(super) onlink: bool,
}

/// The routes to one prefix by metric. Nearly always there is one, which then costs no allocation.
struct Alternatives {
    best: Entry,
    rest: Box<[Entry]>,
}

impl Alternatives {
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.best).chain(&self.rest)
    }
}

pub(super) struct Table<A: Address> {
    routes: PrefixMap<A, Alternatives>,
    trie: TrieWriter<A>,
    /// Routes to destinations that are ours.
    pub(super) own_routes: usize,
    /// All other routes.
    pub(super) other_routes: usize,
}

impl<A: Address> Table<A> {
    pub(super) fn new(domain: &Domain) -> Self {
        Table {
            routes: PrefixMap::new(),
            trie: TrieWriter::new(domain),
            own_routes: 0,
            other_routes: 0,
        }
    }

    pub(super) fn published(&self) -> Arc<Trie> {
        self.trie.published()
    }

    pub(super) fn memory(&self) -> usize {
        self.trie.memory()
    }

    /// The routes to exactly this prefix, best first.
    pub(super) fn entries(&self, prefix: &Prefix<A>) -> Vec<Entry> {
        let alternatives = self.routes.get(prefix).into_iter();
        alternatives.flat_map(Alternatives::iter).copied().collect()
    }

    /// All routes, by prefix and then by metric.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, &Entry)> {
        self.routes.iter().flat_map(|(prefix, alternatives)| {
            alternatives.iter().map(move |entry| (prefix, entry))
        })
    }

    /// The routes to prefixes that hold `addr`, best first.
    pub(super) fn covering(&self, addr: A) -> impl Iterator<Item = &Entry> {
        self.routes
            .covering(Prefix::host(addr))
            .flat_map(|(_, alternatives)| alternatives.iter())
    }

    /// Makes these, best first, the routes to a prefix; packets see it at once.
    pub(super) fn set_entries(&mut self, prefix: Prefix<A>, entries: &[Entry]) {
        let old_best = self.routes.get(&prefix).map(|old| old.best.hop);
        if let Some((best, rest)) = entries.split_first() {
            let alternatives = Alternatives {
                best: *best,
                rest: rest.into(),
            };
            self.routes.insert(prefix, alternatives);
            if old_best != Some(best.hop) {
                self.trie.insert(&prefix, best.hop.entry());
            }
        } else if old_best.is_some() {
            self.routes.remove(&prefix);
            let shorter = self.shorter(&prefix);
            self.trie.remove(&prefix, shorter);
        }
    }

    /// What addresses in `prefix` get without it. The trie keeps the default apart, so that is
    /// no shorter prefix to it.
    fn shorter(&self, prefix: &Prefix<A>) -> Leaf {
        let parent = prefix.parent();
        let found = parent.and_then(|parent| self.routes.covering(parent).next());
        match found {
            Some((prefix, alternatives)) if !prefix.is_default() => Leaf {
                value: alternatives.best.hop.entry(),
                len: prefix.len(),
            },
            _ => Leaf::NONE,
        }
    }
}
