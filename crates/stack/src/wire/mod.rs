//! One file per header: views onto bytes, no decisions.
//!
//! A view is taken with [`zerocopy`]: `Ipv4Header::ref_from_prefix(bytes)` fails on too few bytes
//! and costs a compare. Fields hold what the wire holds; what a value means, and whether it is
//! allowed, is decided in `ip` and the protocols.

pub mod checksum;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod seq;
pub mod tcp;
pub(crate) mod tcp_options;
pub mod udp;

pub use checksum::Checksum;
pub use icmp::IcmpHeader;
pub use ipv4::Ipv4Header;
pub use ipv6::{FragmentHeader, Ipv6Header};
pub use tcp::TcpHeader;
pub use udp::UdpHeader;

/// IP protocol numbers, which are also IPv6 next-header values.
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// IGMP (RFC 3376).
    pub const IGMP: u8 = 2;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// IPv6 "nothing follows" (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
}
