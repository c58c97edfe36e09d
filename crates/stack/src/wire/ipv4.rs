//! The IPv4 header (RFC 791 section 3.1).

use core::net::Ipv4Addr;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;

/// "Don't fragment".
pub const FLAG_DF: u16 = 0x4000;
/// "More fragments".
pub const FLAG_MF: u16 = 0x2000;
/// The fragment offset, in units of 8 bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// The fixed 20 bytes; options follow up to [`Self::header_len`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    version_ihl: u8,
    /// Differentiated services field and ECN (RFC 2474, RFC 3168).
    pub tos: u8,
    /// Header and payload, in bytes.
    pub total_len: U16,
    /// Identification: which datagram a fragment belongs to.
    pub id: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

impl Ipv4Header {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;

    /// A header without options, its checksum still to be filled.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, ttl: u8, total_len: u16) -> Self {
        Self {
            version_ihl: 0x45,
            tos: 0,
            total_len: total_len.into(),
            id: 0.into(),
            fragment: 0.into(),
            ttl,
            protocol,
            checksum: 0.into(),
            src: src.octets(),
            dst: dst.octets(),
        }
    }

    /// The version field: 4 if this is IPv4.
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// The header length in bytes as the IHL field claims it: 0 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0xf) * 4
    }

    /// Whether the first byte is that of nearly all IPv4 packets: version 4, no options.
    #[inline]
    pub fn has_no_options(&self) -> bool {
        self.version_ihl == 0x45
    }

    /// Writes the IHL field from a length in bytes (a multiple of 4, at most 60).
    pub fn set_header_len(&mut self, bytes: usize) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the field's 4 bits"
        )]
        let words = (bytes / 4) as u8 & 0xf;
        self.version_ihl = 0x40 | words;
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::from_be_bytes(self.src))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::from_be_bytes(self.dst))
    }

    /// Whether this is a fragment of a larger datagram.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (FLAG_MF | OFFSET_MASK) != 0
    }

    /// The fragment's place in the datagram, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment.get() & OFFSET_MASK) * 8
    }

    /// Whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & FLAG_MF != 0
    }

    /// Whether the sender forbids fragmentation.
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & FLAG_DF != 0
    }

    /// Whether the checksum is right, of a header without options.
    #[inline]
    pub fn checksum_is_right(&self) -> bool {
        checksum::header_is_valid(zerocopy::transmute_ref!(self))
    }

    /// Lowers a TTL that is not 0 by one and mends the checksum by difference, so that a header that
    /// arrived corrupt stays corrupt.
    #[inline]
    pub fn decrement_ttl(&mut self) {
        // The word that holds TTL and protocol loses 0x0100, so the complement of the sum gains it.
        // This is RFC 1624 equation 3 for that case, and never leaves 0xffff, as it says there; like
        // all one's complement sums, in whatever byte order.
        const CHANGE: u32 = 0x0100_u16.to_be() as u32;

        self.ttl = self.ttl.wrapping_sub(1);
        let sum = u32::from(u16::from_ne_bytes(self.checksum.to_bytes())) + CHANGE;
        let carry = u32::from(sum >= 0xffff);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "two 16-bit numbers, the carry added back in"
        )]
        let sum = (sum + carry) as u16;
        self.checksum = U16::from_bytes(sum.to_ne_bytes());
    }
}

/// Fills the checksum of the header (options included) at the front of `packet`.
///
/// Does nothing if the bytes hold no whole header.
pub fn fill_checksum(packet: &mut [u8]) {
    let Ok((header, _)) = Ipv4Header::mut_from_prefix(packet) else {
        return;
    };
    header.checksum = 0.into();
    let len = header.header_len();
    let Some(bytes) = packet.get(..len) else {
        return;
    };
    let sum = checksum::checksum(bytes);
    if let Ok((header, _)) = Ipv4Header::mut_from_prefix(packet) {
        header.checksum = sum.into();
    }
}
