//! Packets built by hand, and taken apart again. Checksums are right unless a test breaks them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
