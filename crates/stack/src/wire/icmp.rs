//! The header that ICMP (RFC 792) and ICMPv6 (RFC 4443) share, and their types and codes.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Type, code, checksum, and four bytes whose meaning depends on the type.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    /// Message type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum; ICMPv6 includes the pseudo-header.
    pub checksum: U16,
    /// Identifier and sequence, pointer, MTU, or unused.
    pub rest: U32,
}

impl IcmpHeader {
    /// Bytes of the header.
    pub const LEN: usize = 8;
    /// Where the checksum lies.
    pub const CHECKSUM_OFFSET: usize = 2;

    /// A header, its checksum still to be filled.
    pub fn new(kind: u8, code: u8, rest: u32) -> Self {
        Self {
            kind,
            code,
            checksum: 0.into(),
            rest: rest.into(),
        }
    }
}

/// ICMP for IPv4.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DEST_UNREACH: u8 = 3;
    /// Source quench (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Timestamp request.
    pub const TIMESTAMP: u8 = 13;
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
    /// Address mask request (deprecated by RFC 6918).
    pub const ADDRESS_MASK: u8 = 17;
    /// Address mask reply (deprecated by RFC 6918).
    pub const ADDRESS_MASK_REPLY: u8 = 18;

    /// Code of unreachable: network.
    pub const UNREACH_NET: u8 = 0;
    /// Code of unreachable: host.
    pub const UNREACH_HOST: u8 = 1;
    /// Code of unreachable: protocol.
    pub const UNREACH_PROTOCOL: u8 = 2;
    /// Code of unreachable: port.
    pub const UNREACH_PORT: u8 = 3;
    /// Code of unreachable: fragmentation needed and DF set; carries the next-hop MTU (RFC 1191).
    pub const UNREACH_FRAG_NEEDED: u8 = 4;
    /// Code of unreachable: communication administratively prohibited (RFC 1812 section 5.2.7.1).
    pub const UNREACH_PROHIBITED: u8 = 13;

    /// Code of redirect: for this destination only.
    pub const REDIRECT_HOST: u8 = 1;
    /// Code of time exceeded: TTL used up on the way.
    pub const TIME_EXCEEDED_TTL: u8 = 0;
    /// Code of time exceeded: fragments were missing too long.
    pub const TIME_EXCEEDED_REASSEMBLY: u8 = 1;
}

/// ICMP for IPv6.
pub mod v6 {
    /// Destination unreachable.
    pub const DEST_UNREACH: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Types from here on inform, those below report errors (RFC 4443 section 2.1).
    pub const FIRST_INFORMATIONAL: u8 = 128;
    /// Echo request.
    pub const ECHO: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Multicast listener query (RFC 2710).
    pub const MLD_QUERY: u8 = 130;
    /// Multicast listener report (RFC 2710).
    pub const MLD_REPORT: u8 = 131;
    /// Multicast listener done (RFC 2710).
    pub const MLD_DONE: u8 = 132;
    /// Router solicitation (RFC 4861 section 4.1).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement (RFC 4861 section 4.2).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbour solicitation (RFC 4861 section 4.3).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement (RFC 4861 section 4.4).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861 section 4.5).
    pub const REDIRECT: u8 = 137;
    /// Multicast listener report, version 2 (RFC 3810).
    pub const MLD2_REPORT: u8 = 143;

    /// Code of unreachable: no route.
    pub const UNREACH_NO_ROUTE: u8 = 0;
    /// Code of unreachable: administratively prohibited.
    pub const UNREACH_PROHIBITED: u8 = 1;
    /// Code of unreachable: beyond the scope of the source address.
    pub const UNREACH_BEYOND_SCOPE: u8 = 2;
    /// Code of unreachable: address.
    pub const UNREACH_ADDRESS: u8 = 3;
    /// Code of unreachable: port.
    pub const UNREACH_PORT: u8 = 4;

    /// Code of time exceeded: hop limit used up on the way.
    pub const TIME_EXCEEDED_HOPS: u8 = 0;
    /// Code of time exceeded: fragments were missing too long.
    pub const TIME_EXCEEDED_REASSEMBLY: u8 = 1;

    /// Code of parameter problem: erroneous header field.
    pub const PARAM_HEADER_FIELD: u8 = 0;
    /// Code of parameter problem: unrecognised next header.
    pub const PARAM_NEXT_HEADER: u8 = 1;
    /// Code of parameter problem: unrecognised option.
    pub const PARAM_OPTION: u8 = 2;
    /// Code of parameter problem: first fragment without the whole header chain (RFC 7112).
    pub const PARAM_FIRST_FRAGMENT: u8 = 3;
}
