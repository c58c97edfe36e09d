//! The IPv6 header and its extension headers (RFC 8200).

use core::net::Ipv6Addr;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed 40 bytes (RFC 8200 section 3).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    version_class_flow: U32,
    /// Bytes behind this header, extension headers included.
    pub payload_len: U16,
    /// Type of the header that follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

impl Ipv6Header {
    /// Bytes of the header.
    pub const LEN: usize = 40;
    /// Where the payload-length field lies.
    pub const PAYLOAD_LEN_OFFSET: u32 = 4;
    /// Where the next-header field lies: the pointer of many a parameter problem.
    pub const NEXT_HEADER_OFFSET: u32 = 6;

    /// A header with traffic class and flow label zero.
    pub fn new(
        src: Ipv6Addr,
        dst: Ipv6Addr,
        next_header: u8,
        hop_limit: u8,
        payload_len: u16,
    ) -> Self {
        Self {
            version_class_flow: 0x6000_0000.into(),
            payload_len: payload_len.into(),
            next_header,
            hop_limit,
            src: src.octets(),
            dst: dst.octets(),
        }
    }

    /// The version field: 6 if this is IPv6.
    pub fn version(&self) -> u8 {
        let [first, ..] = self.version_class_flow.to_bytes();
        first >> 4
    }

    /// Traffic class: DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        let word = self.version_class_flow.get();
        let [_, _, _, class] = (word >> 20).to_be_bytes();
        class
    }

    /// Writes the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        let word = self.version_class_flow.get() & !0x0ff0_0000;
        self.version_class_flow = (word | u32::from(class) << 20).into();
    }

    /// Source address.
    pub fn src(&self) -> Ipv6Addr {
        self.src.into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv6Addr {
        self.dst.into()
    }
}

/// What the extension headers of RFC 8200 sections 4.3, 4.4 and 4.6 share: type of the next one,
/// and their own length in units of 8 bytes beyond the first 8.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtensionHeader {
    /// Type of the header that follows this one.
    pub next_header: u8,
    len: u8,
}

impl ExtensionHeader {
    /// The whole header's length in bytes, as it claims: 8 to 2,048.
    pub fn header_len(&self) -> usize {
        (usize::from(self.len) + 1) * 8
    }
}

/// The fragment header (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FragmentHeader {
    /// Type of the header that follows in the whole packet.
    pub next_header: u8,
    reserved: u8,
    offset_more: U16,
    /// Which packet the fragment belongs to.
    pub id: U32,
}

impl FragmentHeader {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// A header for the fragment at `offset` bytes (a multiple of 8).
    pub fn new(next_header: u8, offset: u16, more: bool, id: u32) -> Self {
        Self {
            next_header,
            reserved: 0,
            offset_more: (offset & !7 | u16::from(more)).into(),
            id: id.into(),
        }
    }

    /// The fragment's place in the fragmentable part, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.offset_more.get() & !7)
    }

    /// Whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }

    /// A packet in one fragment (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset_more.get() & !6 == 0
    }
}
