//! What a packet says of itself, as far as it can be read at all: for people, who also want to know
//! what a packet was that validation refused.

use core::net::IpAddr;

use zerocopy::FromBytes;

use crate::wire::{IcmpHeader, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, protocol, tcp};

/// The headers of a packet in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Protocol of what is behind the IP header.
    pub protocol: u8,
    /// Whether it is an IPv4 fragment.
    pub is_fragment: bool,
    /// The front of what is there.
    pub transport: Transport,
}

/// The front of a transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP, or TCP that is no reset.
    Ports(u16, u16),
    /// A TCP reset.
    Reset(u16, u16),
    /// Type and code of an ICMP or ICMPv6 message.
    Icmp(u8, u8),
    /// Another protocol, a fragment behind the first, or cut off.
    Other,
}

impl Summary {
    /// Reads the front of a packet; `None` if there is no whole IP header.
    pub fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let (ip, _) = Ipv4Header::ref_from_prefix(packet).ok()?;
                let transport = match ip.fragment_offset() == 0 {
                    true => packet.get(ip.header_len()..).unwrap_or_default(),
                    false => &[],
                };
                Some(Self {
                    src: ip.src().into(),
                    dst: ip.dst().into(),
                    ttl: ip.ttl,
                    protocol: ip.protocol,
                    is_fragment: ip.is_fragment(),
                    transport: Transport::read(ip.protocol, transport),
                })
            }
            6 => {
                let (ip, rest) = Ipv6Header::ref_from_prefix(packet).ok()?;
                Some(Self {
                    src: ip.src().into(),
                    dst: ip.dst().into(),
                    ttl: ip.hop_limit,
                    protocol: ip.next_header,
                    is_fragment: ip.next_header == protocol::FRAGMENT,
                    transport: Transport::read(ip.next_header, rest),
                })
            }
            _ => None,
        }
    }
}

impl Transport {
    fn read(protocol: u8, bytes: &[u8]) -> Self {
        let read = match protocol {
            protocol::UDP => UdpHeader::ref_from_prefix(bytes)
                .ok()
                .map(|(udp, _)| Self::Ports(udp.src_port.get(), udp.dst_port.get())),
            protocol::TCP => TcpHeader::ref_from_prefix(bytes).ok().map(|(header, _)| {
                let (src, dst) = (header.src_port.get(), header.dst_port.get());
                match header.flags & tcp::FLAG_RST != 0 {
                    true => Self::Reset(src, dst),
                    false => Self::Ports(src, dst),
                }
            }),
            protocol::ICMP | protocol::ICMPV6 => IcmpHeader::ref_from_prefix(bytes)
                .ok()
                .map(|(icmp, _)| Self::Icmp(icmp.kind, icmp.code)),
            _ => None,
        };
        read.unwrap_or(Self::Other)
    }
}
