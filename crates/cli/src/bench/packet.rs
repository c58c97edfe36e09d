//! The packets of a bench: 64 bytes from the IP header on, UDP or TCP, with a sequence number.

use std::fmt;
use std::str::FromStr;

use forebay::core::wire::checksum::{Checksum, checksum};
use forebay::core::wire::{protocol, tcp};

use super::net::Family;

/// Bytes of a packet.
pub(super) const LEN: usize = 64;

const TTL: u8 = 64;

/// What is in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    /// A datagram, its number in the payload.
    #[default]
    Udp,
    /// An acknowledgement with four bytes or more of payload, its number where TCP has one.
    Tcp,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Self::Udp => protocol::UDP,
            Self::Tcp => protocol::TCP,
        }
    }

    /// Where the checksum is in the transport header.
    fn checksum_at(self) -> usize {
        match self {
            Self::Udp => 6,
            Self::Tcp => 16,
        }
    }

    fn sequence_at(self) -> usize {
        match self {
            Self::Udp => 8,
            Self::Tcp => 4,
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "udp" => Ok(Self::Udp),
            "tcp" => Ok(Self::Tcp),
            _ => Err("expected udp or tcp".to_owned()),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// Where a packet is from and to, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) src: u128,
    pub(super) src_port: u16,
    pub(super) dst: u128,
    pub(super) dst_port: u16,
}

/// A packet with all checksums right.
pub(super) fn build(family: Family, protocol: Protocol, flow: &Flow, sequence: u32) -> [u8; LEN] {
    let mut packet = [0; LEN];
    write(&mut packet, family, protocol, flow, sequence);
    packet
}

/// Makes a packet with all checksums right of so many zeros; there must be room for the headers and
/// the number.
pub(super) fn write(
    packet: &mut [u8],
    family: Family,
    protocol: Protocol,
    flow: &Flow,
    sequence: u32,
) {
    let transport_at = ip_header_len(family);
    let transport_len = packet.len() - transport_at;
    let (ip, transport) = packet.split_at_mut(transport_at);
    match family {
        Family::V4 => write_v4(ip, protocol, flow, transport_len),
        Family::V6 => write_v6(ip, protocol, flow, transport_len),
    }
    transport[..2].copy_from_slice(&flow.src_port.to_be_bytes());
    transport[2..4].copy_from_slice(&flow.dst_port.to_be_bytes());
    match protocol {
        Protocol::Udp => transport[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes()),
        // Five words of header, and what any packet of a connection has.
        Protocol::Tcp => transport[12..14].copy_from_slice(&[5 << 4, tcp::FLAG_ACK]),
    }
    let sequence_at = protocol.sequence_at();
    transport[sequence_at..sequence_at + 4].copy_from_slice(&sequence.to_be_bytes());
    let mut sum = Checksum::new();
    sum.add_bytes(&flow.src.to_be_bytes());
    sum.add_bytes(&flow.dst.to_be_bytes());
    sum.add_u16(protocol.number().into());
    sum.add_u16(transport_len as u16);
    sum.add_bytes(transport);
    let sum = match (protocol, sum.finish()) {
        // RFC 768: 0 says that there is none.
        (Protocol::Udp, 0) => u16::MAX,
        (_, sum) => sum,
    };
    let checksum_at = protocol.checksum_at();
    transport[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn write_v4(ip: &mut [u8], protocol: Protocol, flow: &Flow, payload_len: usize) {
    let total_len = ip.len() + payload_len;
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
    ip[8] = TTL;
    ip[9] = protocol.number();
    ip[12..16].copy_from_slice(&(flow.src as u32).to_be_bytes());
    ip[16..20].copy_from_slice(&(flow.dst as u32).to_be_bytes());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_v6(ip: &mut [u8], protocol: Protocol, flow: &Flow, payload_len: usize) {
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
    ip[6] = protocol.number();
    ip[7] = TTL;
    ip[8..24].copy_from_slice(&flow.src.to_be_bytes());
    ip[24..40].copy_from_slice(&flow.dst.to_be_bytes());
}

/// Whether this is what a router makes of the packet with this number to this destination: one hop
/// less, the header's checksum right, all else as it was.
pub(super) fn is_forwarded(
    family: Family,
    protocol: Protocol,
    packet: &[u8],
    dst: u128,
    sequence: u32,
) -> bool {
    let sequence_at = ip_header_len(family) + protocol.sequence_at();
    if packet.len() != LEN || packet[sequence_at..sequence_at + 4] != sequence.to_be_bytes() {
        return false;
    }
    match family {
        Family::V4 => {
            packet[8] == TTL - 1
                && checksum(&packet[..20]) == 0
                && packet[16..20] == (dst as u32).to_be_bytes()
        }
        Family::V6 => packet[7] == TTL - 1 && packet[24..40] == dst.to_be_bytes(),
    }
}

/// Whether this is the payload of the packet with this number.
pub(super) fn is_payload(payload: &[u8], sequence: u32) -> bool {
    payload.starts_with(&sequence.to_be_bytes())
}

/// The number of the packet with this payload.
pub(super) fn sequence_of(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().copied().map(u32::from_be_bytes)
}

pub(super) fn ip_header_len(family: Family) -> usize {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [(Family, Protocol); 4] = [
        (Family::V4, Protocol::Udp),
        (Family::V4, Protocol::Tcp),
        (Family::V6, Protocol::Udp),
        (Family::V6, Protocol::Tcp),
    ];

    #[test]
    fn only_what_was_forwarded_well_counts() {
        for (family, protocol) in KINDS {
            let flow = Flow {
                src: family.peer(),
                src_port: 1_000,
                dst: family.own(),
                dst_port: 2_000,
            };
            let is_good = |packet: &[u8], dst, sequence| {
                is_forwarded(family, protocol, packet, dst, sequence)
            };
            let good = {
                let mut packet = build(family, protocol, &flow, 7);
                assert!(!is_good(&packet, flow.dst, 7), "not yet");
                crate::bench::floor::rewrite(family, &mut packet);
                packet
            };
            assert!(is_good(&good, flow.dst, 7));
            assert!(!is_good(&good, flow.dst, 8));
            assert!(!is_good(&good, flow.dst + 1, 7));
            assert!(!is_good(&good[..63], flow.dst, 7));
            if family == Family::V4 {
                let mut bad = good;
                bad[10] ^= 1;
                assert!(!is_good(&bad, flow.dst, 7));
            }
        }
    }
}
