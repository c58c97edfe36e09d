//! The destinations that may end here: asked for every packet, before anything else.

use std::array;
use std::collections::BTreeSet;

use super::address::Address;
use super::prefix::Prefix;

/// The prefixes of all local and broadcast routes, as an open-addressed hash table that is made
/// anew when they change.
///
/// Nearly all strangers are told apart by two marks. Most of the prefixes are single addresses; each
/// marks its hash, among so many that a stranger seldom meets one, which the processor then predicts.
/// (Bytes and not bits: those take longer to find than to fetch.) Wider prefixes, as 127.0.0.0/8, mark each of their first octets. What meets a mark costs a
/// probe for each prefix length in use. Collisions help nobody: all that a stranger chooses is which
/// of our own slots is compared with.
pub(super) struct OwnPrefixes<A> {
    /// For each first octet, whether a prefix wider than an address begins with it, or a
    /// [special](Address::is_special_octet) address.
    octets: [bool; 256],
    /// Whether an address has that hash: a power of two of them.
    hosts: Box<[bool]>,
    lengths: Box<[Length<A>]>,
    /// A power of two of them, at least three quarters empty.
    slots: Box<[Slot<A>]>,
}

/// A prefix length in use.
struct Length<A> {
    len: u8,
    mask: A,
}

/// A prefix, or none.
#[derive(Clone, Copy)]
struct Slot<A> {
    addr: A,
    /// [`VACANT`] if there is none. Most looks end here: a stranger's address seldom shares a slot
    /// with one of ours.
    len: u8,
}

/// One stranger in so many meets the mark of an address, or in twice as many.
const MARKS_PER_HOST: usize = 32;

const MARKS_MIN: usize = 1_024;

/// Longer than any prefix.
const VACANT: u8 = u8::MAX;

impl<A: Address> OwnPrefixes<A> {
    /// From prefixes in ascending order.
    pub(super) fn new<'a>(sorted: impl Iterator<Item = &'a Prefix<A>>) -> Self {
        // In this order a prefix comes after those that cover it, and adds nothing to them.
        let mut prefixes: Vec<Prefix<A>> = Vec::new();
        let mut hosts = Vec::new();
        for prefix in sorted {
            if prefix.is_host() {
                hosts.push(prefix.addr());
            }
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
        let vacant = Slot {
            addr: A::UNSPECIFIED,
            len: VACANT,
        };
        let slots = (4 * prefixes.len()).next_power_of_two().max(8);
        let marks = (hosts.len() * MARKS_PER_HOST).next_power_of_two();
        let marks = marks.max(MARKS_MIN);
        let mut own = OwnPrefixes {
            octets: array::from_fn(|octet| A::is_special_octet(octet as u8)),
            hosts: vec![false; marks].into_boxed_slice(),
            lengths: lens.into_iter().rev().map(length).collect(),
            slots: vec![vacant; slots].into_boxed_slice(),
        };
        for prefix in prefixes {
            own.insert(&prefix);
            own.mark_octets(&prefix);
        }
        for host in hosts {
            let mark = own.host_mark(host);
            own.hosts[mark] = true;
        }
        own
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.lengths) + size_of_val(&*self.slots) + size_of_val(&*self.hosts)
    }

    /// Whether one of the prefixes holds `addr`.
    #[inline]
    pub(super) fn contains(&self, addr: A) -> bool {
        self.is_marked(addr) && self.contains_exactly(addr)
    }

    #[inline]
    fn is_marked(&self, addr: A) -> bool {
        !self.is_ordinary(addr) || self.may_be_host(addr)
    }

    /// Whether `addr` is certainly neither special nor in one of the prefixes that are wider than an
    /// address.
    #[inline]
    pub(super) fn is_ordinary(&self, addr: A) -> bool {
        !self.octets[usize::from(addr.first_octet())]
    }

    /// Whether `addr` may be one of the prefixes, and not only in one; mostly right when it says so,
    /// always when it doesn't.
    #[inline]
    pub(super) fn may_be_host(&self, addr: A) -> bool {
        self.hosts
            .get(self.host_mark(addr))
            .is_some_and(|mark| *mark)
    }

    /// Whether `addr`, which is [ordinary](Self::is_ordinary), is one of the prefixes.
    #[inline]
    pub(super) fn has_host(&self, addr: A) -> bool {
        self.may_be_host(addr) && self.contains_exactly(addr)
    }

    fn mark_octets(&mut self, prefix: &Prefix<A>) {
        if prefix.is_host() {
            return;
        }
        let first = prefix.addr().octet(0);
        let others = u8::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
        for octet in first..=first | others {
            self.octets[usize::from(octet)] = true;
        }
    }

    /// Its place in `hosts`.
    #[inline]
    fn host_mark(&self, addr: A) -> usize {
        (spread(addr.fold()) >> 40) as usize & (self.hosts.len() - 1)
    }

    // Not rare for a host; but the way of strangers is not to keep registers free for it.
    #[cold]
    fn contains_exactly(&self, addr: A) -> bool {
        self.lengths
            .iter()
            .any(|length| self.holds(addr.and(length.mask), length.len))
    }

    fn holds(&self, addr: A, len: u8) -> bool {
        let mut at = self.home(addr, len);
        while let Some(slot) = self.slots.get(at) {
            if slot.len == VACANT {
                return false;
            }
            if slot.len == len && slot.addr == addr {
                return true;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        false
    }

    fn insert(&mut self, prefix: &Prefix<A>) {
        let mut at = self.home(prefix.addr(), prefix.len());
        while self.slots[at].len != VACANT {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot {
            addr: prefix.addr(),
            len: prefix.len(),
        };
    }

    fn home(&self, addr: A, len: u8) -> usize {
        (spread(addr.fold() ^ u64::from(len)) >> 32) as usize & (self.slots.len() - 1)
    }
}

/// Multiplication by 2^64 over the golden ratio spreads neighbouring addresses (Knuth, volume 3,
/// section 6.4).
#[inline]
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
