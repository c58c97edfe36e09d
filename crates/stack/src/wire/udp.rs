//! The UDP header (RFC 768).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Eight bytes in front of a datagram.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Header and payload, in bytes.
    pub len: U16,
    /// Checksum over pseudo-header, header and payload; 0 says "none" in IPv4.
    pub checksum: U16,
}

impl UdpHeader {
    /// Bytes of the header.
    pub const LEN: usize = 8;
    /// Where the checksum lies.
    pub const CHECKSUM_OFFSET: u8 = 6;
}
