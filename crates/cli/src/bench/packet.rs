//! The packets of a bench: 64 bytes from the IP header on, UDP, a sequence number in the payload.

use forebay::core::wire::checksum::{Checksum, checksum};
use forebay::core::wire::protocol;

use super::net::Family;

/// Bytes of a packet.
pub(super) const LEN: usize = 64;

const TTL: u8 = 64;
const UDP_HEADER: usize = 8;

/// Where a packet is from and to, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) src: u128,
    pub(super) src_port: u16,
    pub(super) dst: u128,
    pub(super) dst_port: u16,
}

/// A packet with all checksums right.
pub(super) fn build(family: Family, flow: &Flow, sequence: u32) -> [u8; LEN] {
    let mut packet = [0; LEN];
    let udp_at = ip_header_len(family);
    let udp_len = LEN - udp_at;
    {
        let (ip, udp) = packet.split_at_mut(udp_at);
        match family {
            Family::V4 => write_v4(ip, flow),
            Family::V6 => write_v6(ip, flow, udp_len),
        }
        udp[..2].copy_from_slice(&flow.src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&flow.dst_port.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        udp[UDP_HEADER..UDP_HEADER + 4].copy_from_slice(&sequence.to_be_bytes());
        let mut sum = Checksum::new();
        sum.add_bytes(&flow.src.to_be_bytes());
        sum.add_bytes(&flow.dst.to_be_bytes());
        sum.add_u16(protocol::UDP.into());
        sum.add_u16(udp_len as u16);
        sum.add_bytes(udp);
        // RFC 768: 0 says that there is none.
        let sum = match sum.finish() {
            0 => u16::MAX,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn write_v4(ip: &mut [u8], flow: &Flow) {
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
    ip[8] = TTL;
    ip[9] = protocol::UDP;
    ip[12..16].copy_from_slice(&(flow.src as u32).to_be_bytes());
    ip[16..20].copy_from_slice(&(flow.dst as u32).to_be_bytes());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_v6(ip: &mut [u8], flow: &Flow, payload_len: usize) {
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
    ip[6] = protocol::UDP;
    ip[7] = TTL;
    ip[8..24].copy_from_slice(&flow.src.to_be_bytes());
    ip[24..40].copy_from_slice(&flow.dst.to_be_bytes());
}

/// Whether this is what a router makes of the packet with this number to this destination: one hop
/// less, the header's checksum right, all else as it was.
pub(super) fn is_forwarded(family: Family, packet: &[u8], dst: u128, sequence: u32) -> bool {
    let sequence_at = ip_header_len(family) + UDP_HEADER;
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

fn ip_header_len(family: Family) -> usize {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_forwarded_well_counts() {
        for family in [Family::V4, Family::V6] {
            let flow = Flow {
                src: family.peer(),
                src_port: 1_000,
                dst: family.own(),
                dst_port: 2_000,
            };
            let good = {
                let mut packet = build(family, &flow, 7);
                assert!(!is_forwarded(family, &packet, flow.dst, 7), "not yet");
                crate::bench::floor::rewrite(family, &mut packet);
                packet
            };
            assert!(is_forwarded(family, &good, flow.dst, 7));
            assert!(!is_forwarded(family, &good, flow.dst, 8));
            assert!(!is_forwarded(family, &good, flow.dst + 1, 7));
            assert!(!is_forwarded(family, &good[..63], flow.dst, 7));
            if family == Family::V4 {
                let mut bad = good;
                bad[10] ^= 1;
                assert!(!is_forwarded(family, &bad, flow.dst, 7));
            }
        }
    }
}
