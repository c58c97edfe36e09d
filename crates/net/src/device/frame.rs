//! What all devices do with the bytes of a packet.

use forebay_stack::packet::{ChecksumState, IpVersion, Meta, Packet, PacketCache};

use super::BadFrame;

/// The IP version of `packet`, if it may pass a device: what Linux's TUN driver asks for, and the
/// MTU, which holds for each segment of a packet that stands for several.
pub(super) fn check(packet: &Packet, mtu: u32) -> Result<IpVersion, BadFrame> {
    let len = if packet.gso.is_some() {
        0
    } else {
        packet.total_len()
    };
    check_parts(packet.data().first(), len, mtu)
}

/// As [`check`], of a packet that is not in a buffer yet.
pub(super) fn check_bytes(bytes: &[u8], mtu: u32) -> Result<IpVersion, BadFrame> {
    check_parts(bytes.first(), bytes.len(), mtu)
}

fn check_parts(first: Option<&u8>, len: usize, mtu: u32) -> Result<IpVersion, BadFrame> {
    let version = match first.ok_or(BadFrame::Empty)? >> 4 {
        4 => IpVersion::V4,
        6 => IpVersion::V6,
        _ => return Err(BadFrame::Version),
    };
    if len > mtu as usize {
        return Err(BadFrame::TooLong);
    }
    Ok(version)
}

/// A packet with a copy of `bytes`, in as few buffers as they take. `None` if the pool has not that
/// many.
pub fn packet_of(cache: &mut PacketCache, bytes: &[u8]) -> Option<Packet> {
    copy_in(cache, [bytes].into_iter())
}

/// A packet with a copy of the bytes of `chunks`, in as few buffers as they take. `None` if the
/// pool has not that many.
pub(super) fn copy_in<'a>(
    cache: &mut PacketCache,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Option<Packet> {
    let mut packet = cache.alloc()?;
    let mut last: Option<Packet> = None;
    for mut chunk in chunks {
        loop {
            let buffer = last.as_mut().unwrap_or(&mut packet);
            let (now, later) = chunk.split_at(chunk.len().min(buffer.tailroom()));
            if let Some(room) = buffer.put(now.len()) {
                room.copy_from_slice(now);
            }
            if later.is_empty() {
                break;
            }
            chunk = later;
            let Some(next) = cache.alloc() else {
                last.into_iter()
                    .chain([packet])
                    .for_each(|buffer| cache.free(buffer));
                return None;
            };
            // A fragment's length is known only when it is full.
            if let Some(full) = last.replace(next) {
                packet.push_frag(full);
            }
        }
    }
    if let Some(last) = last {
        packet.push_frag(last);
    }
    Some(packet)
}

/// A copy of `packet` with what a device may tell about it, and nothing else.
pub(super) fn copy(cache: &mut PacketCache, packet: &Packet) -> Option<Packet> {
    let mut copy = copy_in(cache, packet.chunks())?;
    *copy = on_the_wire(packet);
    Some(copy)
}

/// The metadata of `packet` as it arrives at another stack: that a checksum is still to be filled
/// in and that it stands for several segments goes with it; what its sender parsed, decided or
/// verified does not.
pub(super) fn on_the_wire(packet: &Packet) -> Meta {
    let checksum = match packet.checksum {
        partial @ ChecksumState::Partial { .. } => partial,
        _ => ChecksumState::None,
    };
    Meta {
        checksum,
        gso: packet.gso,
        ..Meta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_stack::packet::PacketPool;
    use forebay_sync::packet::CAPACITY;

    #[test]
    fn copies_are_dense_and_whole_or_not_at_all() {
        let pool = PacketPool::new(4);
        let mut cache = pool.cache();
        let bytes: Vec<u8> = (0..4 * CAPACITY + 1).map(|i| i as u8).collect();
        for len in [0, 1, CAPACITY, CAPACITY + 1, 4 * CAPACITY] {
            let source = &bytes[..len];
            let packet = copy_in(&mut cache, source.chunks(700)).expect("buffers are free");
            assert_eq!(packet.chunks().collect::<Vec<_>>().concat(), source);
            assert_eq!(packet.total_len(), len);
            assert_eq!(packet.buffers(), len.div_ceil(CAPACITY).max(1));
            cache.free(packet);
        }
        assert!(copy_in(&mut cache, bytes.chunks(700)).is_none());
        cache.flush();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn only_ip_packets_within_the_mtu_pass() {
        let cases = [
            (None, 0, Err(BadFrame::Empty)),
            (Some(0x00), 20, Err(BadFrame::Version)),
            (Some(0x5f), 20, Err(BadFrame::Version)),
            (Some(0xf4), 20, Err(BadFrame::Version)),
            (Some(0x45), 1, Ok(IpVersion::V4)),
            (Some(0x45), 1_500, Ok(IpVersion::V4)),
            (Some(0x60), 1_500, Ok(IpVersion::V6)),
            (Some(0x60), 1_501, Err(BadFrame::TooLong)),
            (Some(0x45), 65_535, Err(BadFrame::TooLong)),
        ];
        for (first, len, expected) in cases {
            assert_eq!(
                check_parts(first.as_ref(), len, 1_500),
                expected,
                "{first:?}, {len} bytes"
            );
        }
    }
}
