//! The hash by which packets of one flow find to one core (Linux's `skb_get_hash`).

use crate::packet::Packet;
use crate::siphash::Key;
use crate::wire::protocol;

/// Protocols that begin with a source and a destination port: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [protocol::TCP, protocol::UDP, 33, 132, 136];

/// The hash of a packet that nothing is known of yet but its bytes, the same in both directions of
/// a flow. 0 if it is no packet that could belong to one.
///
/// Fragments and packets with extension headers go by their addresses and protocol, so that all
/// fragments of a datagram have one hash.
pub(crate) fn flow_hash(key: Key, packet: &Packet) -> u32 {
    let bytes = packet.data();
    let ends = match bytes.first().map(|first| first >> 4) {
        Some(4) => ends_v4(bytes),
        Some(6) => ends_v6(bytes),
        _ => None,
    };
    ends.map_or(0, |ends| ends.hash(key))
}

/// What a flow goes between, in the order of arrival.
struct Ends {
    src: u128,
    dst: u128,
    /// Source and destination, both 0 where they are not known.
    ports: [u16; 2],
    protocol: u8,
}

impl Ends {
    fn hash(self, key: Key) -> u32 {
        let [src_port, dst_port] = self.ports;
        let (low, high) = if (self.src, src_port) <= (self.dst, dst_port) {
            ((self.src, src_port), (self.dst, dst_port))
        } else {
            ((self.dst, dst_port), (self.src, src_port))
        };
        let tail = u64::from(low.1) | u64::from(high.1) << 16 | u64::from(self.protocol) << 32;
        let hash = match (u32::try_from(low.0), u32::try_from(high.0)) {
            (Ok(low), Ok(high)) => key.hash([u64::from(low) | u64::from(high) << 32], tail, 5),
            _ => key.hash(
                [
                    low.0 as u64,
                    (low.0 >> 64) as u64,
                    high.0 as u64,
                    (high.0 >> 64) as u64,
                ],
                tail,
                5,
            ),
        };
        // 0 says that there is none.
        ((hash >> 32) as u32).max(1)
    }
}

fn ends_v4(bytes: &[u8]) -> Option<Ends> {
    let header: &[u8; 20] = bytes.first_chunk()?;
    let [first, _, _, _, _, _, flags, fragment, _, protocol, ..] = *header;
    let addr = |at: usize| -> Option<u128> {
        let addr: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*addr).into())
    };
    let is_fragment = (flags & 0x3f) != 0 || fragment != 0;
    let payload = usize::from(first & 0xf) * 4;
    Some(Ends {
        src: addr(12)?,
        dst: addr(16)?,
        ports: ports(bytes, payload, protocol)
            .filter(|_| !is_fragment)
            .unwrap_or_default(),
        protocol,
    })
}

fn ends_v6(bytes: &[u8]) -> Option<Ends> {
    let header: &[u8; 40] = bytes.first_chunk()?;
    let next_header = header[6];
    let addr = |at: usize| -> Option<u128> {
        let addr: &[u8; 16] = bytes.get(at..)?.first_chunk()?;
        Some(u128::from_be_bytes(*addr))
    };
    Some(Ends {
        src: addr(8)?,
        dst: addr(24)?,
        ports: ports(bytes, 40, next_header).unwrap_or_default(),
        protocol: next_header,
    })
}

fn ports(bytes: &[u8], at: usize, protocol: u8) -> Option<[u16; 2]> {
    if !WITH_PORTS.contains(&protocol) {
        return None;
    }
    let [s0, s1, d0, d1]: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
    Some([u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketPool;

    const KEY: Key = Key([1, 2]);

    fn hash(bytes: &[u8]) -> u32 {
        let mut packet = PacketPool::new(1).cache().alloc().unwrap();
        packet.put(bytes.len()).unwrap().copy_from_slice(bytes);
        flow_hash(KEY, &packet)
    }

    fn v4(src: u8, dst: u8, ports: [u8; 4], protocol: u8, fragment: [u8; 2]) -> Vec<u8> {
        let mut bytes = vec![
            0x45,
            0,
            0,
            28,
            0,
            0,
            fragment[0],
            fragment[1],
            64,
            protocol,
            0,
            0,
        ];
        bytes.extend([10, 0, 0, src, 10, 0, 0, dst]);
        bytes.extend(ports);
        bytes.extend([0; 4]);
        bytes
    }

    fn v6(src: u8, dst: u8, ports: [u8; 4], next_header: u8) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 8, next_header, 64];
        for host in [src, dst] {
            bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        bytes.extend(ports);
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn both_directions_of_a_flow_have_one_hash() {
        let there = hash(&v4(1, 2, [0, 7, 0, 9], 17, [0; 2]));
        assert_ne!(there, 0);
        assert_eq!(there, hash(&v4(2, 1, [0, 9, 0, 7], 17, [0; 2])));
        let there = hash(&v6(1, 2, [0, 7, 0, 9], 6));
        assert_ne!(there, 0);
        assert_eq!(there, hash(&v6(2, 1, [0, 9, 0, 7], 6)));
    }

    #[test]
    fn what_tells_flows_apart_changes_it() {
        let flow = hash(&v4(1, 2, [0, 7, 0, 9], 17, [0; 2]));
        for (what, other) in [
            ("source", v4(3, 2, [0, 7, 0, 9], 17, [0; 2])),
            ("destination", v4(1, 3, [0, 7, 0, 9], 17, [0; 2])),
            ("source port", v4(1, 2, [0, 8, 0, 9], 17, [0; 2])),
            ("ports swapped", v4(1, 2, [0, 9, 0, 7], 17, [0; 2])),
            ("protocol", v4(1, 2, [0, 7, 0, 9], 6, [0; 2])),
            ("family", v6(1, 2, [0, 7, 0, 9], 17)),
        ] {
            assert_ne!(flow, hash(&other), "{what}");
        }
    }

    #[test]
    fn all_fragments_of_a_datagram_have_one_hash() {
        let first = hash(&v4(1, 2, [0, 7, 0, 9], 17, [0x20, 0]));
        let later = hash(&v4(1, 2, [0xde, 0xad, 0xbe, 0xef], 17, [0, 185]));
        assert_eq!(first, later);
        let first = hash(&v6(1, 2, [17, 0, 0, 1], 44));
        let later = hash(&v6(1, 2, [17, 0, 5, 0], 44));
        assert_eq!(first, later);
    }

    #[test]
    fn what_is_no_packet_has_none() {
        for bytes in [
            &[][..],
            &[0x45],
            &[0x45; 19],
            &[0x60; 39],
            &[0x55; 60],
            &[0; 60],
        ] {
            assert_eq!(hash(bytes), 0, "{bytes:02x?}");
        }
        // Cut behind the IP header, or an IP header shorter than any: addresses will do.
        assert_ne!(hash(&v4(1, 2, [0; 4], 17, [0; 2])[..20]), 0);
        assert_ne!(hash(&[0x40; 24]), 0);
    }
}
