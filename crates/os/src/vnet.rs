//! The virtio-net header: what a TUN device says about a packet's checksum and segmentation.

/// The header in front of every packet on a TUN device (virtio 1.2, section 5.1.6, without
/// `num_buffers`).
///
/// With it one packet of up to 64 KiB can stand for many segments, and a checksum can be left
/// for the receiver of the packet to fill in, or be trusted without a look.
///
/// Multi-byte fields are in the machine's own byte order: a TUN device takes that unless
/// `TUNSETVNETLE` or `TUNSETVNETBE` was used on it.
///
/// ```
/// use forebay_os::vnet::VnetHeader;
///
/// let header = VnetHeader {
///     flags: VnetHeader::NEEDS_CSUM,
///     csum_start: 20,
///     csum_offset: 6,
///     ..VnetHeader::default()
/// };
/// assert_eq!(VnetHeader::parse(header.encode()), header);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`](Self::NEEDS_CSUM) and [`DATA_VALID`](Self::DATA_VALID).
    pub flags: u8,
    /// One of the `GSO_` constants, perhaps with [`GSO_ECN`](Self::GSO_ECN).
    pub gso_type: u8,
    /// Bytes of all headers up to the payload that is segmented. A hint: receivers must not rely
    /// on it.
    pub hdr_len: u16,
    /// Payload bytes of each segment but the last; 0 without segmentation.
    pub gso_size: u16,
    /// With `NEEDS_CSUM`: where the summed bytes begin, from the start of the packet.
    pub csum_start: u16,
    /// With `NEEDS_CSUM`: where the checksum goes, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Bytes on the device.
    pub const LEN: usize = 10;

    /// The checksum field holds only the pseudo-header's sum; the rest is to be added.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum has been verified.
    pub const DATA_VALID: u8 = 2;

    /// One packet, no segmentation.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4, to be cut into segments.
    pub const GSO_TCPV4: u8 = 1;
    /// UDP, to be cut into IP fragments.
    pub const GSO_UDP: u8 = 3;
    /// TCP over IPv6, to be cut into segments.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP, to be cut into datagrams of `gso_size` bytes each.
    pub const GSO_UDP_L4: u8 = 5;
    /// Beside a TCP type: only the first segment carries CWR (RFC 3168, section 6.1.2).
    pub const GSO_ECN: u8 = 0x80;

    /// Reads a header as the device gave it. Every bit pattern is a header; whether it fits its
    /// packet is the receiver's to check.
    pub fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    /// The bytes that the device wants.
    pub fn encode(self) -> [u8; Self::LEN] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_virtio_puts_them() {
        let header = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: VnetHeader::GSO_TCPV6 | VnetHeader::GSO_ECN,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
        };
        let words: Vec<u8> = [0x0102_u16, 0x0304, 0x0506, 0x0708]
            .into_iter()
            .flat_map(u16::to_ne_bytes)
            .collect();
        let bytes = header.encode();
        assert_eq!(bytes[..2], [1, 0x84]);
        assert_eq!(bytes[2..], words);
        assert_eq!(VnetHeader::parse(bytes), header);
    }
}
