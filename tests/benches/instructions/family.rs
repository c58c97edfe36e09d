//! What differs between IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::Stack;
use forebay_stack::fib::{Address, Fib, Prefix};
use forebay_stack::random::Random;
use forebay_tests::{V4, V6};

/// A family, and the part of its addresses that routes lead to.
pub(crate) trait Family {
    const NAME: &'static str;
    type Addr: Address + Into<IpAddr>;

    /// Of the router, towards `PEER`.
    const OWN: Self::Addr;
    const PEER: Self::Addr;
    /// On the other side.
    const GATEWAY: Self::Addr;

    fn fib(stack: &Stack) -> &Fib<Self::Addr>;

    /// A prefix of a length that the Internet's tables are full of.
    fn prefix(random: &mut Random) -> Prefix<Self::Addr>;

    /// An address that a prefix covers.
    fn within(prefix: &Prefix<Self::Addr>, random: &mut Random) -> Self::Addr;
}

impl Family for V4 {
    const NAME: &'static str = "ipv4";
    type Addr = Ipv4Addr;

    const OWN: Ipv4Addr = Self::OWN;
    const PEER: Ipv4Addr = Self::PEER;
    const GATEWAY: Ipv4Addr = Self::PEER1;

    fn fib(stack: &Stack) -> &Fib<Ipv4Addr> {
        stack.fib4()
    }

    fn prefix(random: &mut Random) -> Prefix<Ipv4Addr> {
        let len = 16 + random.below(9);
        // 20.0.0.0 to 119.255.255.255.
        let addr = (20 + random.below(100)) << 24 | random.below(1 << 24);
        let addr = Ipv4Addr::from_bits(addr & u32::MAX << (32 - len));
        Prefix::new(addr, len as u8).expect("no bits behind the prefix")
    }

    fn within(prefix: &Prefix<Ipv4Addr>, random: &mut Random) -> Ipv4Addr {
        let host = random.next_u64() as u32 >> prefix.len();
        Ipv4Addr::from_bits(prefix.addr().to_bits() | host)
    }
}

impl Family for V6 {
    const NAME: &'static str = "ipv6";
    type Addr = Ipv6Addr;

    const OWN: Ipv6Addr = Self::OWN;
    const PEER: Ipv6Addr = Self::PEER;
    const GATEWAY: Ipv6Addr = Self::PEER1;

    fn fib(stack: &Stack) -> &Fib<Ipv6Addr> {
        stack.fib6()
    }

    fn prefix(random: &mut Random) -> Prefix<Ipv6Addr> {
        let len = 29 + random.below(20);
        // 2400::/12.
        let addr = 0x240 << 116 | random_u128(random) >> 12;
        let addr = Ipv6Addr::from_bits(addr & u128::MAX << (128 - len));
        Prefix::new(addr, len as u8).expect("no bits behind the prefix")
    }

    fn within(prefix: &Prefix<Ipv6Addr>, random: &mut Random) -> Ipv6Addr {
        let host = random_u128(random) >> prefix.len();
        Ipv6Addr::from_bits(prefix.addr().to_bits() | host)
    }
}

fn random_u128(random: &mut Random) -> u128 {
    u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
}
