//! Addresses and prefixes of either family, as numbers.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::random::Random;

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "4",
            Self::V6 => "6",
        })
    }
}

impl Family {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// Bits of an address.
    pub(super) fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    pub(super) fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from_bits(number as u32).into(),
            Self::V6 => Ipv6Addr::from_bits(number).into(),
        }
    }

    /// The stack's address, which is in no prefix of [`Prefixes`].
    pub(super) fn own(self) -> u128 {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 0, 1).to_bits().into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).to_bits(),
        }
    }

    /// A host that transit comes from, in no prefix of [`Prefixes`].
    pub(super) fn peer(self) -> u128 {
        self.own() + 1
    }

    /// The `n`th router behind the far interface.
    pub(super) fn gateway(self, n: usize) -> u128 {
        self.own() + 0x1_0000 + n as u128
    }

    /// A unicast address of somebody else's, anywhere.
    fn anywhere(self, random: &mut Random) -> u128 {
        match self {
            Self::V4 => {
                let first = loop {
                    let first = 1 + random.below(223) as u128;
                    if first != 10 && first != 127 {
                        break first;
                    }
                };
                first << 24 | u128::from(random.next() >> 40)
            }
            Self::V6 => {
                // The /12s that the registries give out.
                const REGISTRIES: [u128; 7] = [0x200, 0x240, 0x260, 0x280, 0x2a0, 0x2c0, 0x261];
                let first = random.pick(&REGISTRIES).copied().unwrap_or(0x200);
                let rest = u128::from(random.next()) << 64 | u128::from(random.next());
                first << 116 | rest >> 12
            }
        }
    }

    /// A prefix length as the routing tables of the Internet have them, roughly.
    fn prefix_len(self, random: &mut Random) -> u8 {
        let table: &[(usize, u8)] = match self {
            Self::V4 => &[
                (60, 24),
                (72, 23),
                (84, 22),
                (89, 21),
                (93, 20),
                (96, 19),
                (97, 18),
                (98, 17),
                (100, 16),
            ],
            Self::V6 => &[
                (48, 48),
                (58, 44),
                (66, 40),
                (72, 36),
                (76, 33),
                (90, 32),
                (100, 29),
            ],
        };
        let ticket = random.below(100);
        let row = table.iter().find(|(below, _)| ticket < *below);
        row.map_or(self.bits(), |(_, len)| *len)
    }
}

/// Different prefixes, and addresses in them.
pub(super) struct Prefixes {
    family: Family,
    list: Vec<(u128, u8)>,
    known: HashSet<(u128, u8)>,
}

impl Prefixes {
    /// The default prefix alone.
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            list: vec![(0, 0)],
            known: HashSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Another one.
    pub(super) fn grow(&mut self, random: &mut Random) -> (u128, u8) {
        loop {
            let len = self.family.prefix_len(random);
            let prefix = (self.family.anywhere(random) & !self.host_mask(len), len);
            if self.known.insert(prefix) {
                self.list.push(prefix);
                return prefix;
            }
        }
    }

    /// An address in one of them, all alike likely; in the default only if there is no other.
    pub(super) fn address(&self, random: &mut Random) -> u128 {
        match self.list.as_slice() {
            [_default, others @ ..] if !others.is_empty() => {
                let (prefix, len) = others[random.below(others.len())];
                let host = match self.family {
                    Family::V4 => random.next().into(),
                    Family::V6 => u128::from(random.next()) << 64 | u128::from(random.next()),
                };
                prefix | host & self.host_mask(len)
            }
            _ => self.family.anywhere(random),
        }
    }

    fn host_mask(&self, len: u8) -> u128 {
        let all = u128::MAX >> (128 - self.family.bits());
        all.checked_shr(len.into()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_in_the_prefixes_and_are_nobodys_here() {
        for family in [Family::V4, Family::V6] {
            let mut random = Random::new(5);
            let mut prefixes = Prefixes::new(family);
            for _ in 0..500 {
                prefixes.grow(&mut random);
            }
            assert_eq!(prefixes.len(), 501);
            for _ in 0..2_000 {
                let addr = prefixes.address(&mut random);
                let covers = |(prefix, len): &(u128, u8)| {
                    *len > 0 && addr & !prefixes.host_mask(*len) == *prefix
                };
                assert!(prefixes.list.iter().any(covers));
                match family.address(addr) {
                    IpAddr::V4(addr) => {
                        assert!(!addr.is_loopback() && !addr.is_multicast(), "{addr}");
                        assert!(!matches!(addr.octets()[0], 0 | 10 | 224..), "{addr}");
                    }
                    IpAddr::V6(addr) => assert_eq!(addr.segments()[0] >> 13, 1, "{addr}"),
                }
            }
        }
    }
}
