//! Packets, byte by byte, as a host sends them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::random::Random;

const ICMP: u8 = 1;
pub(super) const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const L4_HEADER: usize = 8;

/// What transit begins with, so that the far end knows it when it arrives.
pub(super) const TRANSIT_MARK: &[u8] = b"transit ";

/// A UDP packet of `size` bytes, which is at least the headers' and the payload's beginning.
pub(crate) fn udp(src: SocketAddr, dst: SocketAddr, size: usize, begin: &[u8]) -> Vec<u8> {
    let mut header = [0; L4_HEADER];
    header[0..2].copy_from_slice(&src.port().to_be_bytes());
    header[2..4].copy_from_slice(&dst.port().to_be_bytes());
    let (mut packet, l4) = ip(src.ip(), dst.ip(), UDP, size);
    let len = packet.len() - l4;
    header[4..6].copy_from_slice(&to_u16(len).to_be_bytes());
    fill(&mut packet, l4, header, begin);
    let sum = transport_checksum(src.ip(), dst.ip(), UDP, &packet[l4..]);
    // Zero would say that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    packet[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// An echo request of `size` bytes.
pub(super) fn echo_request(src: IpAddr, dst: IpAddr, sequence: u16, size: usize) -> Vec<u8> {
    let (protocol, kind) = if src.is_ipv4() {
        (ICMP, 8)
    } else {
        (ICMPV6, 128)
    };
    let [high, low] = sequence.to_be_bytes();
    let (mut packet, l4) = ip(src, dst, protocol, size);
    fill(&mut packet, l4, [kind, 0, 0, 0, 0xf0, 0x0b, high, low], &[]);
    let sum = match protocol {
        ICMP => checksum(0, &packet[l4..]),
        _ => transport_checksum(src, dst, ICMPV6, &packet[l4..]),
    };
    packet[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Damages a sound UDP packet, in one of the ways that its destination has to notice.
pub(super) fn damage(packet: &mut Vec<u8>, random: &mut Random) {
    let is_ipv4 = packet[0] >> 4 == 4;
    let last = packet.len() - 1;
    match (random.below(6), is_ipv4) {
        // Cut off: shorter than its header says.
        (0, _) => packet.truncate(last),
        // Changed on the way, which the UDP checksum tells.
        (1, _) => packet[last] ^= 0x55,
        // From the host itself, over a wire.
        (2, true) => readdress(packet, [127, 0, 0, 1]),
        (2, false) => {
            packet[8..24].fill(0);
            packet[23] = 1;
        }
        // From a group, which nothing comes from.
        (3, true) => readdress(packet, [224, 0, 0, 1]),
        (3, false) => packet[8] = 0xff,
        // A header shorter than the shortest.
        (4, true) => {
            packet[0] = 0x44;
            seal(packet);
        }
        // A header checksum that does not fit.
        (_, true) => packet[10] ^= 0x55,
        // IPv6 has neither: shorter than its header.
        (_, false) => packet.truncate(20),
    }
}

/// Gives an IPv4 packet another source.
fn readdress(packet: &mut [u8], src: [u8; 4]) {
    packet[12..16].copy_from_slice(&src);
    seal(packet);
}

/// An IP header in front of zeros, `size` bytes in all, and where the zeros begin.
fn ip(src: IpAddr, dst: IpAddr, protocol: u8, size: usize) -> (Vec<u8>, usize) {
    const HOPS: u8 = 64;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let size = size.max(20 + L4_HEADER);
            let mut packet = vec![0; size];
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&to_u16(size).to_be_bytes());
            packet[8] = HOPS;
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&src.octets());
            packet[16..20].copy_from_slice(&dst.octets());
            seal(&mut packet);
            (packet, 20)
        }
        _ => {
            let size = size.max(40 + L4_HEADER);
            let mut packet = vec![0; size];
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&to_u16(size - 40).to_be_bytes());
            packet[6] = protocol;
            packet[7] = HOPS;
            packet[8..24].copy_from_slice(&to_ipv6(src).octets());
            packet[24..40].copy_from_slice(&to_ipv6(dst).octets());
            (packet, 40)
        }
    }
}

fn fill(packet: &mut [u8], l4: usize, header: [u8; L4_HEADER], begin: &[u8]) {
    packet[l4..l4 + L4_HEADER].copy_from_slice(&header);
    let payload = &mut packet[l4 + L4_HEADER..];
    let marked = begin.len().min(payload.len());
    payload[..marked].copy_from_slice(&begin[..marked]);
}

/// Writes an IPv4 header's checksum.
fn seal(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum(0, &packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The checksum over the pseudo-header and what follows (RFC 768, RFC 8200 section 8.1).
fn transport_checksum(src: IpAddr, dst: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let mut pseudo = Vec::with_capacity(40);
    pseudo.extend(octets(src));
    pseudo.extend(octets(dst));
    pseudo.extend([0, protocol]);
    pseudo.extend(to_u16(segment.len()).to_be_bytes());
    checksum(sum(&pseudo), segment)
}

/// The Internet checksum (RFC 1071) of `bytes`, after a sum so far.
fn checksum(so_far: u32, bytes: &[u8]) -> u16 {
    let mut total = so_far + sum(bytes);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !to_u16(total as usize)
}

/// Sum of 16-bit words; no packet is long enough to overflow it.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

fn to_ipv6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    }
}

fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
