//! What the tables need to know of an address, for both families.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IPv4 or IPv6 address as a string of bits, most significant first.
pub trait Address: Copy + Ord + Hash + Debug + Display + FromStr + Send + Sync + 'static {
    /// Bits in an address: 32 or 128.
    const BITS: u8;

    /// The all-zeros address.
    const UNSPECIFIED: Self;

    /// The metric of a route whose author named none: 0 in IPv4, 1024 (Linux's
    /// `IP6_RT_PRIO_USER`) in IPv6.
    const USER_METRIC: u32;

    /// Whether a route that prefers a source address goes when that address goes (IPv4), or stays
    /// and only forgets its preference (IPv6). Linux: `fib_sync_down_addr`, `rt6_remove_prefsrc`.
    const ROUTE_GOES_WITH_PREF_SRC: bool;

    /// Whether routes have a scope that says how far away a destination is; IPv6's have none, and
    /// what has no gateway is on the link.
    const HAS_SCOPES: bool;

    /// Whether the default rules end with a table for last resorts; IPv6 has none.
    const HAS_TABLE_DEFAULT: bool;

    /// The address as an integer in the low [`BITS`](Self::BITS) bits.
    fn to_u128(self) -> u128;

    /// The address with these low [`BITS`](Self::BITS) bits; higher ones are ignored.
    fn from_u128(bits: u128) -> Self;

    /// The octet `index` places from the front, counted around: a lookup asks for no octet past
    /// the end, and this says so to the compiler without a branch.
    fn octet(self, index: usize) -> u8;

    /// The first octet.
    fn first_octet(self) -> u8;

    /// Whether the first `len` bits are those of `other`.
    fn agrees(self, other: Self, len: u32) -> bool;

    /// Whether some address that begins with this octet is no single host's that others know by it:
    /// unspecified, loopback, a group, of one link only.
    fn is_special_octet(first: u8) -> bool;

    /// The bits that are set in both.
    fn and(self, mask: Self) -> Self;

    /// A fold into 64 bits, the same on one machine only: for hashing where nobody can gain from
    /// collisions.
    fn fold(self) -> u64;

    /// Whether a neighbour may have this address: not unspecified, multicast, broadcast or
    /// loopback.
    fn is_possible_gateway(self) -> bool;

    /// Whether the address is reached on its link without any route that says so: IPv6 link-local
    /// unicast (RFC 4291 section 2.5.6).
    fn is_on_link_by_definition(self) -> bool;

    /// The address whose first `len` bits are set.
    fn mask(len: u8) -> Self {
        let host_bits = u32::from(Self::BITS.saturating_sub(len));
        Self::from_u128(u128::MAX.checked_shl(host_bits).unwrap_or(0))
    }

    /// The address with all but its first `len` bits zero.
    fn masked(self, len: u8) -> Self {
        self.and(Self::mask(len))
    }
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;
    const UNSPECIFIED: Self = Ipv4Addr::UNSPECIFIED;
    const USER_METRIC: u32 = 0;
    const ROUTE_GOES_WITH_PREF_SRC: bool = true;
    const HAS_SCOPES: bool = true;
    const HAS_TABLE_DEFAULT: bool = true;

    fn to_u128(self) -> u128 {
        u128::from(u32::from(self))
    }

    fn from_u128(bits: u128) -> Self {
        Ipv4Addr::from(bits as u32)
    }

    #[inline]
    fn octet(self, index: usize) -> u8 {
        self.octets()[index % 4]
    }

    #[inline]
    fn first_octet(self) -> u8 {
        self.octet(0)
    }

    #[inline]
    fn agrees(self, other: Self, len: u32) -> bool {
        let difference = u64::from(self.to_bits() ^ other.to_bits());
        difference.wrapping_shr(Self::BITS.wrapping_sub(len)) == 0
    }

    fn is_special_octet(first: u8) -> bool {
        matches!(first, 0 | 127 | 224..)
    }

    #[inline]
    fn and(self, mask: Self) -> Self {
        Ipv4Addr::from(u32::from(self) & u32::from(mask))
    }

    #[inline]
    fn fold(self) -> u64 {
        u32::from_ne_bytes(self.octets()).into()
    }

    fn is_possible_gateway(self) -> bool {
        !self.is_unspecified()
            && !self.is_multicast()
            && !self.is_broadcast()
            && !self.is_loopback()
    }

    fn is_on_link_by_definition(self) -> bool {
        false
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;
    const UNSPECIFIED: Self = Ipv6Addr::UNSPECIFIED;
    const USER_METRIC: u32 = 1024;
    const ROUTE_GOES_WITH_PREF_SRC: bool = false;
    const HAS_SCOPES: bool = false;
    const HAS_TABLE_DEFAULT: bool = false;

    fn to_u128(self) -> u128 {
        u128::from(self)
    }

    fn from_u128(bits: u128) -> Self {
        Ipv6Addr::from(bits)
    }

    #[inline]
    fn octet(self, index: usize) -> u8 {
        self.octets()[index % 16]
    }

    #[inline]
    fn first_octet(self) -> u8 {
        // Of the number: the octet by itself would have the compiler take the address apart, and put
        // it together again wherever it is needed as a whole.
        (self.to_bits() >> 120) as u8
    }

    #[inline]
    fn agrees(self, other: Self, len: u32) -> bool {
        let difference = self.to_bits() ^ other.to_bits();
        difference.wrapping_shr(Self::BITS.wrapping_sub(len)) == 0
    }

    fn is_special_octet(first: u8) -> bool {
        // IPv4-mapped addresses begin with 0, too.
        matches!(first, 0 | 0xfe..)
    }

    #[inline]
    fn and(self, mask: Self) -> Self {
        Ipv6Addr::from(u128::from(self) & u128::from(mask))
    }

    #[inline]
    fn fold(self) -> u64 {
        let bits = u128::from_ne_bytes(self.octets());
        bits as u64 ^ ((bits >> 64) as u64).rotate_left(29)
    }

    fn is_possible_gateway(self) -> bool {
        !self.is_unspecified() && !self.is_multicast() && !self.is_loopback()
    }

    fn is_on_link_by_definition(self) -> bool {
        self.is_unicast_link_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_at_every_length() {
        let all4 = Ipv4Addr::BROADCAST;
        assert_eq!(all4.masked(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(all4.masked(9), Ipv4Addr::new(255, 128, 0, 0));
        assert_eq!(all4.masked(32), all4);
        let all6 = Ipv6Addr::from(u128::MAX);
        assert_eq!(all6.masked(0), Ipv6Addr::UNSPECIFIED);
        assert_eq!(all6.masked(17), Ipv6Addr::from(!0u128 << 111));
        assert_eq!(all6.masked(128), all6);
    }

    #[test]
    fn octets_count_from_the_front() {
        let addr = Ipv4Addr::new(1, 2, 3, 4);
        assert_eq!([0, 1, 2, 3].map(|index| addr.octet(index)), [1, 2, 3, 4]);
    }
}
