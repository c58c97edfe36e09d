//! The destinations that may end here: asked for every packet, before anything else.

use std::collections::BTreeSet;

use super::address::Address;
use super::prefix::Prefix;

/// The prefixes of all local and broadcast routes, as an open-addressed hash table that is made
/// anew when they change.
///
/// A look costs one probe for each prefix length in use, of which a host has two or three in IPv4
/// (an address, a broadcast address, 127.0.0.0/8) and one in IPv6, and which for a few addresses
/// stays in a line or two. Collisions help nobody: all that a stranger chooses is which of our own
/// slots is compared with.
pub(super) struct OwnPrefixes<A> {
    lengths: Vec<Length<A>>,
    /// A power of two of them, at least three quarters empty.
    slots: Box<[Option<Prefix<A>>]>,
}

/// A prefix length in use.
struct Length<A> {
    len: u8,
    mask: A,
}

impl<A: Address> OwnPrefixes<A> {
    /// From prefixes in ascending order.
    pub(super) fn new<'a>(sorted: impl Iterator<Item = &'a Prefix<A>>) -> Self {
        // In this order a prefix comes after those that cover it, and adds nothing to them.
        let mut prefixes: Vec<Prefix<A>> = Vec::new();
        for prefix in sorted {
            if !prefixes
                .last()
                .is_some_and(|last| last.contains(prefix.addr()))
            {
                prefixes.push(*prefix);
            }
        }
        let lens: BTreeSet<u8> = prefixes.iter().map(Prefix::len).collect();
        let length = |len| Length {
            len,
            mask: A::mask(len),
        };
        let slots = (4 * prefixes.len()).next_power_of_two().max(8);
        let mut own = OwnPrefixes {
            lengths: lens.into_iter().rev().map(length).collect(),
            slots: vec![None; slots].into_boxed_slice(),
        };
        for prefix in prefixes {
            own.insert(prefix);
        }
        own
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.lengths) + size_of_val(&*self.slots)
    }

    /// Whether one of the prefixes holds `addr`.
    #[inline]
    pub(super) fn contains(&self, addr: A) -> bool {
        self.lengths
            .iter()
            .any(|length| self.holds(Prefix::masked(addr, length.mask, length.len)))
    }

    #[inline]
    fn holds(&self, prefix: Prefix<A>) -> bool {
        let mut at = self.home(&prefix);
        while let Some(Some(found)) = self.slots.get(at) {
            if *found == prefix {
                return true;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        false
    }

    fn insert(&mut self, prefix: Prefix<A>) {
        let mut at = self.home(&prefix);
        while let Some(Some(_)) = self.slots.get(at) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Some(prefix);
    }

    #[inline]
    fn home(&self, prefix: &Prefix<A>) -> usize {
        // Multiplication by 2^64 over the golden ratio spreads neighbouring addresses (Knuth,
        // volume 3, section 6.4).
        let key = prefix.addr().fold() ^ u64::from(prefix.len());
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 32) as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Addresses close together, so that prefixes nest and queries hit.
    fn clustered(seed: u32) -> u128 {
        let bit = seed % 32;
        let low = u128::from(seed >> 24);
        (low << 120 | low << 24 | u128::from(seed >> 29)) ^ (1 << bit)
    }

    fn agrees_with_a_scan<A: Address>(prefixes: &[(u32, u8)], queries: &[u32]) {
        let prefixes: BTreeSet<_> = prefixes
            .iter()
            .map(|(addr, len)| {
                Prefix::truncated(A::from_u128(clustered(*addr)), len % (A::BITS + 1))
            })
            .collect();
        let own = OwnPrefixes::new(prefixes.iter());
        for query in queries {
            let addr = A::from_u128(clustered(*query));
            let expected = prefixes.iter().any(|prefix| prefix.contains(addr));
            assert_eq!(own.contains(addr), expected, "{addr} in {prefixes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn is_exact(
            prefixes in prop::collection::vec((any::<u32>(), prop_oneof![2 => 16u8..=128, 1 => Just(32), 1 => 0u8..8]), 0..40),
            queries in prop::collection::vec(any::<u32>(), 50),
        ) {
            agrees_with_a_scan::<Ipv4Addr>(&prefixes, &queries);
            agrees_with_a_scan::<Ipv6Addr>(&prefixes, &queries);
        }
    }

    #[test]
    fn holds_thousands_of_addresses() {
        let base = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        let hosts: Vec<_> = (0..5_000)
            .map(|i| Prefix::host(Ipv4Addr::from(base + 2 * i)))
            .collect();
        let own = OwnPrefixes::new(hosts.iter());
        for i in 0..12_000 {
            assert_eq!(
                own.contains(Ipv4Addr::from(base + i)),
                i % 2 == 0 && i < 10_000
            );
        }
    }
}
