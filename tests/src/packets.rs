//! Packets built by hand, and taken apart again. Checksums are right unless a test breaks them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_stack::wire::{
    Checksum, IcmpHeader, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, ipv4, protocol,
};
use zerocopy::{FromBytes, IntoBytes};

/// An IPv4 packet with TTL 64 and no options.
pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(Ipv4Header::LEN + payload.len()).expect("an IPv4 packet");
    let header = Ipv4Header::new(src, dst, protocol, 64, len);
    let mut packet = header.as_bytes().to_vec();
    packet.extend_from_slice(payload);
    ipv4::fill_checksum(&mut packet);
    packet
}

/// An IPv4 packet with options, padded to a multiple of 4 bytes with end-of-list.
pub fn ipv4_with_options(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header_len = Ipv4Header::LEN + options.len().next_multiple_of(4);
    let len = u16::try_from(header_len + payload.len()).expect("an IPv4 packet");
    let mut header = Ipv4Header::new(src, dst, protocol, 64, len);
    header.set_header_len(header_len);
    let mut packet = header.as_bytes().to_vec();
    packet.extend_from_slice(options);
    packet.resize(header_len, 0);
    packet.extend_from_slice(payload);
    ipv4::fill_checksum(&mut packet);
    packet
}

/// An IPv6 packet with hop limit 64.
pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("an IPv6 packet");
    let header = Ipv6Header::new(src, dst, next_header, 64, len);
    let mut packet = header.as_bytes().to_vec();
    packet.extend_from_slice(payload);
    packet
}

/// A packet of the addresses' family.
///
/// # Panics
///
/// If the addresses are of different families.
pub fn ip(src: impl Into<IpAddr>, dst: impl Into<IpAddr>, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (src.into(), dst.into()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ipv4(src, dst, protocol, payload),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6(src, dst, protocol, payload),
        pair => panic!("addresses of different families: {pair:?}"),
    }
}

/// A UDP datagram in a packet.
pub fn udp(
    src: impl Into<IpAddr>,
    dst: impl Into<IpAddr>,
    src_port: u16,
    dst_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    ip(
        src,
        dst,
        protocol::UDP,
        &udp_datagram(src, dst, src_port, dst_port, payload),
    )
}

/// UDP header and payload.
pub fn udp_datagram(
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let len = u16::try_from(UdpHeader::LEN + payload.len()).expect("a UDP datagram");
    let header = UdpHeader {
        src_port: src_port.into(),
        dst_port: dst_port.into(),
        len: len.into(),
        checksum: 0.into(),
    };
    let mut datagram = header.as_bytes().to_vec();
    datagram.extend_from_slice(payload);
    let sum = match transport_checksum(src, dst, protocol::UDP, &datagram) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// The datagram whose payload begins with two bytes that bring its checksum to 0xffff, which is what
/// a checksum computed as 0 is sent as (RFC 768).
pub fn udp_with_checksum_ffff(src: SocketAddr, dst: SocketAddr, tail: &[u8]) -> Vec<u8> {
    let with_first = |first: [u8; 2]| {
        let payload = [&first, tail].concat();
        udp(src.ip(), dst.ip(), src.port(), dst.port(), &payload)
    };
    let plain = with_first([0, 0]);
    let at = plain.len() - tail.len() - 4;
    let packet = with_first([plain[at], plain[at + 1]]);
    assert_eq!(packet[at..at + 2], [0xff, 0xff]);
    packet
}

/// The same packet with another TTL or hop limit.
pub fn with_ttl(packet: impl Into<Vec<u8>>, ttl: u8) -> Vec<u8> {
    let mut packet = packet.into();
    match packet[0] >> 4 {
        4 => {
            packet[8] = ttl;
            ipv4::fill_checksum(&mut packet);
        }
        _ => packet[7] = ttl,
    }
    packet
}

/// The same IPv4 packet with another word of flags and fragment offset.
pub fn with_fragment_field(packet: impl Into<Vec<u8>>, field: u16) -> Vec<u8> {
    let mut packet = packet.into();
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    ipv4::fill_checksum(&mut packet);
    packet
}

/// A piece of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// Protocol of what was cut up.
    pub protocol: u8,
    /// What the pieces have in common; IPv4 takes the lower 16 bits.
    pub id: u32,
    /// Where in it the piece lies, in bytes: a multiple of 8.
    pub offset: usize,
    /// Whether more pieces follow.
    pub more: bool,
    /// The piece.
    pub data: &'a [u8],
}

/// A fragment in a packet of the addresses' family.
pub fn fragment(
    src: impl Into<IpAddr>,
    dst: impl Into<IpAddr>,
    fragment: &Fragment<'_>,
) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    let offset = u16::try_from(fragment.offset).expect("an offset");
    if src.is_ipv4() {
        let mut packet = ip(src, dst, fragment.protocol, fragment.data);
        packet[4..6].copy_from_slice(&fragment.id.to_be_bytes()[2..]);
        return with_fragment_field(packet, (offset / 8) | (u16::from(fragment.more) << 13));
    }
    let [high, low] = (offset | u16::from(fragment.more)).to_be_bytes();
    let mut payload = vec![fragment.protocol, 0, high, low];
    payload.extend_from_slice(&fragment.id.to_be_bytes());
    payload.extend_from_slice(fragment.data);
    ip(src, dst, protocol::FRAGMENT, &payload)
}

/// A packet without options and extension headers cut into fragments of `size` bytes, a multiple
/// of 8.
pub fn fragments(packet: &[u8], id: u32, size: usize) -> Vec<Vec<u8>> {
    let whole = parse(packet);
    let pieces = whole.payload.chunks(size).enumerate();
    pieces
        .map(|(index, data)| {
            let piece = Fragment {
                protocol: whole.protocol,
                id,
                offset: index * size,
                more: index * size + data.len() < whole.payload.len(),
                data,
            };
            fragment(whole.src, whole.dst, &piece)
        })
        .collect()
}

/// A TCP segment without options in a packet.
pub fn tcp(
    (src, src_port): (IpAddr, u16),
    (dst, dst_port): (IpAddr, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let header = TcpHeader::new(src_port, dst_port, seq, ack, flags);
    let mut segment = header.as_bytes().to_vec();
    segment.extend_from_slice(payload);
    let sum = transport_checksum(src, dst, protocol::TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(src, dst, protocol::TCP, &segment)
}

/// An ICMP or ICMPv6 message in a packet; `rest` is the second word of its header.
pub fn icmp(
    src: impl Into<IpAddr>,
    dst: impl Into<IpAddr>,
    kind: u8,
    code: u8,
    rest: u32,
    payload: &[u8],
) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    let header = IcmpHeader {
        kind,
        code,
        checksum: 0.into(),
        rest: rest.into(),
    };
    let mut message = header.as_bytes().to_vec();
    message.extend_from_slice(payload);
    let (number, sum) = match src {
        IpAddr::V4(_) => (
            protocol::ICMP,
            forebay_stack::wire::checksum::checksum(&message),
        ),
        IpAddr::V6(_) => (
            protocol::ICMPV6,
            transport_checksum(src, dst, protocol::ICMPV6, &message),
        ),
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(src, dst, number, &message)
}

/// The checksum with the pseudo-header, over bytes whose checksum field is zero.
pub fn transport_checksum(src: IpAddr, dst: IpAddr, protocol: u8, bytes: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    for addr in [src, dst] {
        match addr {
            IpAddr::V4(addr) => sum.add_bytes(&addr.octets()),
            IpAddr::V6(addr) => sum.add_bytes(&addr.octets()),
        }
    }
    sum.add_u32(u32::try_from(bytes.len()).expect("a packet's length"));
    sum.add_u32(u32::from(protocol));
    sum.add_bytes(bytes);
    sum.finish()
}

/// A packet taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Protocol, or next header of the IPv6 header itself.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// What follows the IP header.
    pub payload: Vec<u8>,
}

impl Parsed {
    /// ICMP type and code.
    pub fn icmp(&self) -> (u8, u8) {
        (self.payload[0], self.payload[1])
    }

    /// The second word of an ICMP header: pointer, MTU, identifier and sequence.
    pub fn icmp_rest(&self) -> u32 {
        u32::from_be_bytes(self.payload[4..8].try_into().expect("four bytes"))
    }

    /// UDP source and destination port and payload.
    pub fn udp(&self) -> (u16, u16, &[u8]) {
        let (header, payload) = UdpHeader::ref_from_prefix(&self.payload).expect("a UDP header");
        (header.src_port.get(), header.dst_port.get(), payload)
    }
}

/// Takes a packet apart and checks what a receiver would: lengths, the IPv4 header checksum, and
/// the checksum of UDP, TCP and ICMP in packets that are no fragments.
///
/// # Panics
///
/// If something is wrong.
pub fn parse(packet: &[u8]) -> Parsed {
    let parsed = match packet[0] >> 4 {
        4 => {
            let (ip, _) = Ipv4Header::ref_from_prefix(packet).expect("an IPv4 header");
            assert_eq!(
                usize::from(ip.total_len.get()),
                packet.len(),
                "total length"
            );
            let header = &packet[..ip.header_len()];
            assert_eq!(
                forebay_stack::wire::checksum::checksum(header),
                0,
                "header checksum"
            );
            let parsed = Parsed {
                src: ip.src().into(),
                dst: ip.dst().into(),
                protocol: ip.protocol,
                ttl: ip.ttl,
                payload: packet[ip.header_len()..].to_vec(),
            };
            if ip.is_fragment() {
                return parsed;
            }
            parsed
        }
        6 => {
            let (ip, payload) = Ipv6Header::ref_from_prefix(packet).expect("an IPv6 header");
            assert_eq!(
                usize::from(ip.payload_len.get()),
                payload.len(),
                "payload length"
            );
            Parsed {
                src: ip.src().into(),
                dst: ip.dst().into(),
                protocol: ip.next_header,
                ttl: ip.hop_limit,
                payload: payload.to_vec(),
            }
        }
        version => panic!("IP version {version}"),
    };
    let sum = match parsed.protocol {
        protocol::ICMP => forebay_stack::wire::checksum::checksum(&parsed.payload),
        protocol::UDP if parsed.payload[6..8] == [0, 0] => 0,
        protocol::UDP | protocol::TCP | protocol::ICMPV6 => {
            transport_checksum(parsed.src, parsed.dst, parsed.protocol, &parsed.payload)
        }
        _ => 0,
    };
    assert_eq!(sum, 0, "transport checksum of {parsed:?}");
    parsed
}
