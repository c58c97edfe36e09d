//! Link headers: what a captured frame starts with, and how to the IP header behind it.

/// A link type of the tcpdump group's registry, by its number in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the protocol family in the byte order of the machine that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IP of either version, as some BSDs number it in files.
    pub const RAW_BSD: Self = Self(12);
    /// IP of either version, as OpenBSD numbers it in files.
    pub const RAW_OPENBSD: Self = Self(14);
    /// IP of either version.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: the protocol family in network byte order.
    pub const LOOP: Self = Self(108);
    /// Linux "any" device, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4.
    pub const IPV4: Self = Self(228);
    /// IPv6.
    pub const IPV6: Self = Self(229);
    /// Linux "any" device, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}

/// Why a frame has no IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotIp {
    /// It ends before the IP header begins.
    #[error("the frame ends in its link header")]
    Truncated,
    /// It carries another protocol.
    #[error("EtherType {0:#06x} is not IP")]
    EtherType(u16),
    /// It carries another protocol family.
    #[error("protocol family {0} is not IP")]
    Family(u32),
    /// The link header names one IP version, the packet another.
    #[error("the packet is of another IP version than its link header says")]
    Version,
    /// No link type that carries IP, or none that is known here.
    #[error("link type {} is not supported", .0.0)]
    LinkType(LinkType),
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The IP packet in a frame of `link_type`; whatever pads the frame is still behind it.
///
/// # Errors
///
/// See [`NotIp`].
///
/// ```
/// use forebay::device::pcap::{LinkType, strip_link_header};
///
/// assert_eq!(strip_link_header(LinkType::LOOP, &[0, 0, 0, 2, 0x45]), Ok(&[0x45][..]));
/// ```
pub fn strip_link_header(link_type: LinkType, frame: &[u8]) -> Result<&[u8], NotIp> {
    match link_type {
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => some(frame),
        LinkType::IPV4 => of_version(4, frame),
        LinkType::IPV6 => of_version(6, frame),
        LinkType::ETHERNET => by_ether_type(split(frame, 12)?.1),
        LinkType::LINUX_SLL => by_ether_type(split(frame, 14)?.1),
        LinkType::LINUX_SLL2 => {
            let (header, packet) = split(frame, 20)?;
            by_protocol(word(header)?.0, packet)
        }
        LinkType::NULL => {
            let (family, packet) = family(frame)?;
            // A family is a small number; read the wrong way round it is a huge one.
            by_family(family.min(family.swap_bytes()), packet)
        }
        LinkType::LOOP => {
            let (family, packet) = family(frame)?;
            by_family(family, packet)
        }
        other => Err(NotIp::LinkType(other)),
    }
}

fn by_ether_type(bytes: &[u8]) -> Result<&[u8], NotIp> {
    let (protocol, packet) = word(bytes)?;
    by_protocol(protocol, packet)
}

/// Any number of VLAN tags may be in between: 802.1Q, 802.1ad, and what was used before that.
fn by_protocol(mut protocol: u16, mut packet: &[u8]) -> Result<&[u8], NotIp> {
    while matches!(protocol, 0x8100 | 0x88a8 | 0x9100) {
        let (_tag, rest) = word(packet)?;
        (protocol, packet) = word(rest)?;
    }
    match protocol {
        IPV4 => of_version(4, packet),
        IPV6 => of_version(6, packet),
        other => Err(NotIp::EtherType(other)),
    }
}

/// `AF_INET` is the same everywhere; `AF_INET6` is 10 on Linux, 23 on Windows, and differs among
/// the BSDs.
fn by_family(family: u32, packet: &[u8]) -> Result<&[u8], NotIp> {
    match family {
        2 => of_version(4, packet),
        10 | 23 | 24 | 28 | 30 => of_version(6, packet),
        other => Err(NotIp::Family(other)),
    }
}

fn of_version(version: u8, packet: &[u8]) -> Result<&[u8], NotIp> {
    match some(packet)? {
        packet if packet.first().is_some_and(|first| first >> 4 == version) => Ok(packet),
        _ => Err(NotIp::Version),
    }
}

fn some(packet: &[u8]) -> Result<&[u8], NotIp> {
    if packet.is_empty() {
        Err(NotIp::Truncated)
    } else {
        Ok(packet)
    }
}

fn word(bytes: &[u8]) -> Result<(u16, &[u8]), NotIp> {
    let (word, rest) = bytes.split_first_chunk().ok_or(NotIp::Truncated)?;
    Ok((u16::from_be_bytes(*word), rest))
}

fn family(bytes: &[u8]) -> Result<(u32, &[u8]), NotIp> {
    let (word, rest) = bytes.split_first_chunk().ok_or(NotIp::Truncated)?;
    Ok((u32::from_be_bytes(*word), rest))
}

fn split(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), NotIp> {
    bytes.split_at_checked(at).ok_or(NotIp::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: u8 = 0x45;
    const V6: u8 = 0x60;

    #[test]
    fn each_link_type_leads_to_its_packet() {
        let macs = &[0xaa; 12][..];
        let sll = &[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0][..];
        let sll2 = |protocol: &[u8]| [protocol, &[0; 18]].concat();
        let q = [0x81, 0x00, 0x00, 0x07];
        let ad = [0x88, 0xa8, 0x00, 0x08];
        let old = [0x91, 0x00, 0x00, 0x09];
        let (ip4, ip6, arp) = ([0x08, 0x00], [0x86, 0xdd], [0x08, 0x06]);

        let cases: Vec<(u16, Vec<u8>, Result<u8, NotIp>)> = vec![
            (101, vec![V4], Ok(V4)),
            (101, vec![V6], Ok(V6)),
            (101, vec![0x5f], Ok(0x5f)),
            (101, vec![], Err(NotIp::Truncated)),
            (12, vec![V4], Ok(V4)),
            (14, vec![V6], Ok(V6)),
            (228, vec![V4], Ok(V4)),
            (228, vec![V6], Err(NotIp::Version)),
            (229, vec![V6], Ok(V6)),
            (229, vec![V4], Err(NotIp::Version)),
            (1, [macs, &ip4, &[V4]].concat(), Ok(V4)),
            (1, [macs, &ip6, &[V6]].concat(), Ok(V6)),
            (1, [macs, &ip4, &[V6]].concat(), Err(NotIp::Version)),
            (1, [macs, &q, &ip4, &[V4]].concat(), Ok(V4)),
            (1, [macs, &ad, &q, &ip6, &[V6]].concat(), Ok(V6)),
            (1, [macs, &q, &old, &ad, &ip4, &[V4]].concat(), Ok(V4)),
            (
                1,
                [macs, &arp, &[0]].concat(),
                Err(NotIp::EtherType(0x0806)),
            ),
            (
                1,
                [macs, &q, &arp, &[0]].concat(),
                Err(NotIp::EtherType(0x0806)),
            ),
            (
                1,
                [macs, &[0, 46], &[0xaa, 0xaa, 3]].concat(),
                Err(NotIp::EtherType(46)),
            ),
            (1, [macs, &q].concat(), Err(NotIp::Truncated)),
            (1, [macs, &ip4].concat(), Err(NotIp::Truncated)),
            (1, macs.to_vec(), Err(NotIp::Truncated)),
            (1, vec![], Err(NotIp::Truncated)),
            (113, [sll, &ip4, &[V4]].concat(), Ok(V4)),
            (113, [sll, &q, &ip6, &[V6]].concat(), Ok(V6)),
            (113, sll.to_vec(), Err(NotIp::Truncated)),
            (276, [&sll2(&ip6)[..], &[V6]].concat(), Ok(V6)),
            (
                276,
                [&sll2(&q[..2])[..], &q[2..], &ip4, &[V4]].concat(),
                Ok(V4),
            ),
            (276, sll2(&arp), Err(NotIp::EtherType(0x0806))),
            (276, vec![0x08, 0], Err(NotIp::Truncated)),
            (0, vec![2, 0, 0, 0, V4], Ok(V4)),
            (0, vec![0, 0, 0, 2, V4], Ok(V4)),
            (0, vec![30, 0, 0, 0, V6], Ok(V6)),
            (0, vec![0, 0, 0, 24, V6], Ok(V6)),
            (0, vec![0, 0, 0, 28, V6], Ok(V6)),
            (0, vec![10, 0, 0, 0, V6], Ok(V6)),
            (0, vec![23, 0, 0, 0, V6], Ok(V6)),
            (0, vec![7, 0, 0, 0, V6], Err(NotIp::Family(7))),
            (0, vec![2, 0, 0], Err(NotIp::Truncated)),
            (108, vec![0, 0, 0, 2, V4], Ok(V4)),
            (108, vec![0, 0, 0, 24, V6], Ok(V6)),
            (108, vec![2, 0, 0, 0, V4], Err(NotIp::Family(0x0200_0000))),
            (105, vec![V4], Err(NotIp::LinkType(LinkType(105)))),
        ];
        for (link_type, frame, expected) in cases {
            let packet = strip_link_header(LinkType(link_type), &frame);
            let first = packet.map(|packet| *packet.last().expect("a packet has bytes"));
            assert_eq!(first, expected, "link type {link_type}: {frame:02x?}");
            assert!(packet.is_ok_and(|packet| packet.len() == 1) || expected.is_err());
        }
    }
}
