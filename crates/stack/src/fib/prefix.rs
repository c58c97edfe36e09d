//! Network prefixes.

use std::fmt;
use std::str::FromStr;

use super::address::Address;

/// A network prefix in canonical form: the bits behind the first `len` are zero.
///
/// Reads and prints as iproute2 does: `default` is the empty prefix, a bare address a host's.
///
/// ```
/// use forebay_stack::fib::Prefix;
/// use std::net::Ipv4Addr;
///
/// let net: Prefix<Ipv4Addr> = "10.0.0.0/8".parse()?;
/// assert!(net.contains(Ipv4Addr::new(10, 1, 2, 3)));
/// assert!("10.1.0.0/8".parse::<Prefix<Ipv4Addr>>().is_err());
/// # Ok::<(), forebay_stack::fib::PrefixError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

/// Why a text or a pair of address and length is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The address doesn't parse in this family.
    #[error("expected an address, ADDRESS/LENGTH or \"default\"")]
    Address,
    /// The length is no number, or longer than an address.
    #[error("the prefix length must be a number from 0 to {0}")]
    Length(u8),
    /// Bits behind the prefix are set: most likely an address was meant to be a network.
    #[error("the address has bits set behind the prefix length")]
    HostBits,
}

impl<A: Address> Prefix<A> {
    /// The prefix of everything.
    pub const DEFAULT: Self = Prefix {
        addr: A::UNSPECIFIED,
        len: 0,
    };

    /// The first `len` bits of `addr`.
    ///
    /// # Errors
    /// [`PrefixError::Length`] if an address has fewer bits than that.
    pub fn new(addr: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::BITS {
            return Err(PrefixError::Length(A::BITS));
        }
        Ok(Self::truncated(addr, len))
    }

    /// The prefix that holds `addr` alone.
    pub fn host(addr: A) -> Self {
        Prefix { addr, len: A::BITS }
    }

    /// The first `len` bits of `addr`, or all of them if there are fewer.
    pub(super) fn truncated(addr: A, len: u8) -> Self {
        Prefix {
            addr: addr.masked(len),
            len: len.min(A::BITS),
        }
    }

    /// The lowest address in the prefix.
    pub fn addr(&self) -> A {
        self.addr
    }

    /// How many leading bits are fixed: 0 to [`Address::BITS`].
    #[expect(clippy::len_without_is_empty, reason = "a length in bits, not a count")]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether this is the prefix of everything.
    pub fn is_default(&self) -> bool {
        self.len == 0
    }

    /// Whether this is the prefix of a single address.
    pub fn is_host(&self) -> bool {
        self.len == A::BITS
    }

    /// Whether `addr` lies in the prefix.
    pub fn contains(&self, addr: A) -> bool {
        addr.masked(self.len) == self.addr
    }

    /// The prefix one bit shorter; none is shorter than the default.
    pub(super) fn parent(&self) -> Option<Self> {
        let len = self.len.checked_sub(1)?;
        Some(Self::truncated(self.addr, len))
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if text == "default" {
            return Ok(Self::DEFAULT);
        }
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: A = addr.parse().map_err(|_| PrefixError::Address)?;
        let Some(len) = len else {
            return Ok(Self::host(addr));
        };
        let len = len.parse().map_err(|_| PrefixError::Length(A::BITS))?;
        let prefix = Self::new(addr, len)?;
        if prefix.addr != addr {
            return Err(PrefixError::HostBits);
        }
        Ok(prefix)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() {
            f.write_str("default")
        } else if self.is_host() {
            write!(f, "{}", self.addr)
        } else {
            write!(f, "{}/{}", self.addr, self.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn reads_and_prints_as_iproute2() {
        for text in ["default", "10.0.0.0/8", "192.0.2.1", "128.0.0.0/1"] {
            let prefix: Prefix<Ipv4Addr> = text.parse().expect(text);
            assert_eq!(prefix.to_string(), text);
        }
        for text in ["default", "2001:db8::/32", "fe80::1", "8000::/1"] {
            let prefix: Prefix<Ipv6Addr> = text.parse().expect(text);
            assert_eq!(prefix.to_string(), text);
        }
        assert_eq!("0.0.0.0/0".parse(), Ok(Prefix::<Ipv4Addr>::DEFAULT));
        assert_eq!(
            "10.0.0.1/32".parse(),
            Ok(Prefix::host(Ipv4Addr::new(10, 0, 0, 1)))
        );
    }

    #[test]
    fn refuses_what_is_no_prefix() {
        let cases = [
            ("", PrefixError::Address),
            ("/8", PrefixError::Address),
            ("::/0", PrefixError::Address),
            ("10.0.0.0/", PrefixError::Length(32)),
            ("10.0.0.0/33", PrefixError::Length(32)),
            ("10.0.0.0/-1", PrefixError::Length(32)),
            ("10.0.0.1/31", PrefixError::HostBits),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Prefix<Ipv4Addr>>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn parents_end_at_the_default() {
        let mut prefix = Prefix::host(Ipv6Addr::from(u128::MAX));
        let mut steps = 0;
        while let Some(parent) = prefix.parent() {
            assert!(parent.contains(prefix.addr()));
            prefix = parent;
            steps += 1;
        }
        assert_eq!(steps, 128);
        assert_eq!(prefix, Prefix::DEFAULT);
    }
}
