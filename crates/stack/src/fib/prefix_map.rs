//! Prefixes with a value each, for the management side: the one place that knows the
//! `prefix-trie` crate.

use prefix_trie::PrefixMap as Map;

use super::address::Address;
use super::prefix::Prefix;

/// A prefix as the crate wants it: both families as the leading bits of a `u128`.
#[derive(Debug, Clone, Copy)]
struct Key<A>(Prefix<A>);

impl<A: Address> prefix_trie::Prefix for Key<A> {
    type R = u128;

    fn repr(&self) -> u128 {
        self.0.addr().to_u128() << (128 - u32::from(A::BITS))
    }

    fn prefix_len(&self) -> u8 {
        self.0.len()
    }

    fn from_repr_len(repr: u128, len: u8) -> Self {
        let addr = A::from_u128(repr >> (128 - u32::from(A::BITS)));
        Key(Prefix::truncated(addr, len))
    }
}

/// A map from prefixes that can be asked for what covers a prefix.
pub(super) struct PrefixMap<A: Address, T> {
    map: Map<Key<A>, T>,
}

impl<A: Address, T> PrefixMap<A, T> {
    pub(super) fn new() -> Self {
        PrefixMap { map: Map::new() }
    }

    pub(super) fn get(&self, prefix: &Prefix<A>) -> Option<&T> {
        self.map.get(&Key(*prefix))
    }

    pub(super) fn insert(&mut self, prefix: Prefix<A>, value: T) {
        self.map.insert(Key(prefix), value);
    }

    pub(super) fn remove(&mut self, prefix: &Prefix<A>) {
        self.map.remove(&Key(*prefix));
    }

    /// Everything, by address and then from short to long.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, &T)> {
        self.map.iter().map(|(key, value)| (key.0, value))
    }

    /// What covers `prefix`, itself included, from long to short.
    pub(super) fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &T)> {
        let mut next = Some(prefix);
        std::iter::from_fn(move || {
            let (found, value) = self.map.get_lpm(&Key(next?))?;
            next = found.0.parent();
            Some((found.0, value))
        })
    }
}
