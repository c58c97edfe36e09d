//! The headers of a packet that may be cut, forged or both: quoted in an ICMP error, or about to be.

use core::net::IpAddr;

use zerocopy::FromBytes;

use crate::packet::IpVersion;
use crate::wire::ipv6::ExtensionHeader;
use crate::wire::{FragmentHeader, Ipv4Header, Ipv6Header, protocol};

/// Where an IPv4 header names its protocol.
const V4_PROTOCOL_AT: usize = 9;

/// What the IP header, and the extension headers as far as they are there, say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) version: IpVersion,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// The protocol behind the headers; of a fragment behind the first, what its header names.
    pub(super) protocol: u8,
    /// Where it begins, in bytes from the IP header. There may be no bytes any more.
    pub(super) offset: usize,
    /// Where it is named.
    named_at: usize,
    /// Whether it is a fragment.
    pub(super) is_fragment: bool,
    /// Whether the protocol's header begins here: a whole packet, or a first fragment.
    pub(super) is_first: bool,
}

impl Headers {
    /// Reads the headers at the front of `packet`. `None` if they are cut off in the midst.
    pub(super) fn parse(version: IpVersion, packet: &[u8]) -> Option<Self> {
        match version {
            IpVersion::V4 => Self::parse_v4(packet),
            IpVersion::V6 => Self::parse_v6(packet),
        }
    }

    /// Where the protocol is named, in bytes from the start of the IP header.
    pub(super) fn protocol_at(&self) -> u32 {
        u32::try_from(self.named_at).unwrap_or(u32::MAX)
    }

    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let (ip, _) = Ipv4Header::ref_from_prefix(packet).ok()?;
        if ip.version() != 4 || ip.header_len() < Ipv4Header::LEN {
            return None;
        }
        Some(Self {
            version: IpVersion::V4,
            src: ip.src().into(),
            dst: ip.dst().into(),
            protocol: ip.protocol,
            offset: ip.header_len(),
            named_at: V4_PROTOCOL_AT,
            is_fragment: ip.is_fragment(),
            is_first: ip.fragment_offset() == 0,
        })
    }

    /// Each extension header is at least 8 bytes long, so the walk ends with the packet.
    fn parse_v6(packet: &[u8]) -> Option<Self> {
        let (ip, _) = Ipv6Header::ref_from_prefix(packet).ok()?;
        if ip.version() != 6 {
            return None;
        }
        let mut headers = Self {
            version: IpVersion::V6,
            src: ip.src().into(),
            dst: ip.dst().into(),
            protocol: ip.next_header,
            offset: Ipv6Header::LEN,
            named_at: Ipv6Header::NEXT_HEADER_OFFSET as usize,
            is_fragment: false,
            is_first: true,
        };
        loop {
            let rest = packet.get(headers.offset..)?;
            let (next, len) = match headers.protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    let (header, _) = ExtensionHeader::ref_from_prefix(rest).ok()?;
                    (header.next_header, header.header_len())
                }
                protocol::FRAGMENT => {
                    let (header, _) = FragmentHeader::ref_from_prefix(rest).ok()?;
                    headers.is_fragment = !header.is_atomic();
                    headers.is_first = header.fragment_offset() == 0;
                    (header.next_header, FragmentHeader::LEN)
                }
                _ => return Some(headers),
            };
            headers.named_at = headers.offset;
            headers.protocol = next;
            headers.offset += len;
            if !headers.is_first {
                return Some(headers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V6: [u8; 40] = {
        let mut header = [0; 40];
        header[0] = 0x60;
        header
    };

    fn v6(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = V6.to_vec();
        packet[6] = next_header;
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn finds_the_upper_layer() {
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let then_options = |next, len| [next, len, 1, 4, 0, 0, 0, 0];
        let first_fragment = [17, 0, 0, 1, 0, 0, 0, 9];
        let later_fragment = [58, 0, 0, 8, 0, 0, 0, 9];
        // (packet, protocol, offset, named at, is a fragment, is the first)
        let cases = [
            (v6(17, &[]), Some((17, 40, 6, false, true))),
            (v6(0, &options), Some((17, 48, 40, false, true))),
            (
                v6(0, &[then_options(60, 0), options].concat()),
                Some((17, 56, 48, false, true)),
            ),
            (v6(44, &first_fragment), Some((17, 48, 40, true, true))),
            (v6(44, &later_fragment), Some((58, 48, 40, true, false))),
            (
                v6(44, &[59, 0, 0, 0, 0, 0, 0, 9]),
                Some((59, 48, 40, false, true)),
            ),
            // The chain is cut.
            (v6(0, &[]), None),
            (v6(0, &[17]), None),
            (v6(0, &then_options(17, 1)), None),
            (v6(43, &then_options(60, 0)), None),
            (v6(44, &first_fragment[..7]), None),
            (V6[..39].to_vec(), None),
        ];
        for (packet, expected) in cases {
            let found = Headers::parse(IpVersion::V6, &packet).map(|h| {
                (
                    h.protocol,
                    h.offset,
                    h.protocol_at(),
                    h.is_fragment,
                    h.is_first,
                )
            });
            assert_eq!(found, expected, "{packet:02x?}");
        }
    }

    #[test]
    fn a_later_fragment_ends_the_walk_even_if_it_names_an_extension_header() {
        let packet = v6(44, &[60, 0, 0, 8, 0, 0, 0, 9, 58, 0]);
        let headers = Headers::parse(IpVersion::V6, &packet).map(|h| (h.protocol, h.offset));
        assert_eq!(headers, Some((60, 48)));
    }

    proptest! {
        #[test]
        fn never_panics(mut packet in prop::collection::vec(any::<u8>(), 0..120), next in 0_u8..62) {
            if let Some(first) = packet.first_mut() {
                *first = 0x60 | *first & 0xf;
            }
            if let Some(next_header) = packet.get_mut(6) {
                *next_header = next;
            }
            let _ = Headers::parse(IpVersion::V6, &packet);
            let _ = Headers::parse(IpVersion::V4, &packet);
        }
    }
}
