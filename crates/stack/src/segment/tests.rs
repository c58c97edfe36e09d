use core::num::NonZeroU16;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::ip::bench::{Bench, OWN_V4, OWN_V6, PEER_V4, PEER_V6, bytes_of, pattern, v4, v6};
use crate::wire::checksum::checksum;

const TCP: u8 = protocol::TCP;
const UDP: u8 = protocol::UDP;

/// A TCP header with options up to `len` bytes, its checksum zero.
fn tcp_header(seq: u32, flags: u8, len: usize) -> Vec<u8> {
    let mut header = TcpHeader::new(1_000, 2_000, seq, 77, flags)
        .as_bytes()
        .to_vec();
    header[12] = (len as u8 / 4) << 4;
    header.resize(len, 1);
    header
}

fn wrap(version: IpVersion, protocol: u8, id: u16, transport: &[u8]) -> Vec<u8> {
    match version {
        IpVersion::V4 => v4(protocol, id, 0, &[], transport),
        IpVersion::V6 => v6(protocol, transport),
    }
}

/// Fills the transport checksum the simple way.
fn fill(version: IpVersion, protocol: u8, packet: &mut [u8]) {
    let at = match version {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    let field = at + if protocol == TCP { 16 } else { 6 };
    packet[field..field + 2].fill(0);
    let len = (packet.len() - at) as u16;
    let mut sum = match version {
        IpVersion::V4 => V4::pseudo_header(PEER_V4.into(), OWN_V4.into(), protocol, len.into()),
        IpVersion::V6 => V6::pseudo_header(PEER_V6.into(), OWN_V6.into(), protocol, len.into()),
    };
    sum.add_bytes(&packet[at..]);
    let sum = if sum.finish() == 0 {
        0xffff
    } else {
        sum.finish()
    };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Turns a packet's checksum into what a sender leaves to its device.
fn leave_to_device(packet: &mut Packet, protocol: u8) {
    let start = packet.l4_offset;
    let offset = if protocol == TCP { 16 } else { 6 };
    let len = packet.total_len() - usize::from(start);
    let sum = match packet.version {
        IpVersion::V4 => V4::pseudo_header(V4::src(packet), V4::dst(packet), protocol, len),
        IpVersion::V6 => V6::pseudo_header(V6::src(packet), V6::dst(packet), protocol, len),
    };
    let field = usize::from(start) + usize::from(offset);
    packet.data_mut()[field..field + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
    packet.checksum = ChecksumState::Partial { start, offset };
}

fn segments_of(bench: &mut Bench, packet: Packet) -> Vec<Vec<u8>> {
    let segments = bench.run(|cx| segment(cx, packet));
    segments.iter().map(bytes_of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn tcp_segments_are_those_of_a_naive_sender(
        len in 1_usize..20_000,
        size in 200_u16..2_500,
        seq: u32,
        flags: u8,
        ecn: bool,
        header in 5_usize..15,
        partial: bool,
        is_v6: bool,
        chunk in 120_usize..1_800,
    ) {
        let version = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        let header = header * 4;
        let payload = pattern(len);
        let mut bench = Bench::new();
        let whole = [tcp_header(seq, flags, header), payload.clone()].concat();
        let mut packet = bench.packet_in_chunks(&wrap(version, TCP, 65_530, &whole), chunk);
        if partial {
            leave_to_device(&mut packet, TCP);
        }
        let kind = GsoKind::Tcp { ecn };
        packet.gso = Some(Gso::new(NonZeroU16::new(size).unwrap(), kind));

        let mut expected = vec![];
        let mut at = 0;
        while at < len {
            let end = len.min(at + usize::from(size));
            let mut flags = flags;
            if end < len {
                flags &= !0x09;
            }
            if at > 0 && ecn {
                flags &= !0x80;
            }
            let header = tcp_header(seq.wrapping_add(at as u32), flags, header);
            let id = 65_530_u16.wrapping_add(expected.len() as u16);
            let mut segment = wrap(version, TCP, id, &[&header, &payload[at..end]].concat());
            fill(version, TCP, &mut segment);
            expected.push(segment);
            at = end;
        }
        prop_assert_eq!(segments_of(&mut bench, packet), expected);
        prop_assert_eq!(bench.in_use(), 0);
    }

    #[test]
    fn udp_segments_are_datagrams_of_their_own(
        len in 1_usize..9_000,
        size in 50_u16..2_000,
        is_v6: bool,
        chunk in 60_usize..1_800,
    ) {
        let version = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        let payload = pattern(len);
        let mut bench = Bench::new();
        let datagram = |part: &[u8]| {
            let udp = UdpHeader {
                src_port: 5.into(),
                dst_port: 6.into(),
                len: (8 + part.len() as u16).into(),
                checksum: 0.into(),
            };
            [udp.as_bytes(), part].concat()
        };
        let bytes = wrap(version, UDP, 3, &datagram(&payload));
        let mut packet = bench.packet_in_chunks(&bytes, chunk);
        leave_to_device(&mut packet, UDP);
        packet.gso = Some(Gso::new(NonZeroU16::new(size).unwrap(), GsoKind::Udp));

        let parts = payload.chunks(size.into()).enumerate();
        let expected: Vec<_> = parts
            .map(|(index, part)| {
                let mut segment = wrap(version, UDP, 3 + index as u16, &datagram(part));
                fill(version, UDP, &mut segment);
                segment
            })
            .collect();
        prop_assert_eq!(segments_of(&mut bench, packet), expected);
    }

    #[test]
    fn a_partial_checksum_is_completed_across_buffers(
        len in 0_usize..4_000,
        chunk in 60_usize..1_800,
        is_v6: bool,
        is_tcp: bool,
    ) {
        let version = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        let protocol = if is_tcp { TCP } else { UDP };
        let mut bench = Bench::new();
        let header = if is_tcp { tcp_header(1, 0x10, 20) } else { vec![0; 8] };
        let mut bytes = wrap(version, protocol, 1, &[header, pattern(len)].concat());
        let mut packet = bench.packet_in_chunks(&bytes, chunk);
        leave_to_device(&mut packet, protocol);
        complete_checksum(&mut packet);
        fill(version, protocol, &mut bytes);
        prop_assert_eq!(bytes_of(&packet), bytes);
        prop_assert_eq!(packet.checksum, ChecksumState::Verified);
    }

    #[test]
    fn nonsense_neither_panics_nor_leaks(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        start: u16,
        offset: u8,
        l4_offset in 0_u16..200,
        size in 1_u16..100,
        is_tcp: bool,
        is_partial: bool,
        is_v6: bool,
    ) {
        let mut bench = Bench::new();
        let mut packet = bench.packet_in_chunks(&bytes, 90);
        packet.version = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        packet.l4_offset = l4_offset;
        if is_partial {
            packet.checksum = ChecksumState::Partial { start: start % 250, offset: offset % 50 };
        }
        let kind = if is_tcp { GsoKind::Tcp { ecn: true } } else { GsoKind::Udp };
        packet.gso = Some(Gso::new(NonZeroU16::new(size).unwrap(), kind));
        drop(segments_of(&mut bench, packet));
        let mut packet = bench.packet_in_chunks(&bytes, 90);
        packet.checksum = ChecksumState::Partial { start, offset };
        complete_checksum(&mut packet);
        drop(packet);
        prop_assert_eq!(bench.in_use(), 0);
    }
}

#[test]
fn a_datagram_without_checksum_stays_without() {
    let mut bench = Bench::new();
    let udp = [0, 5, 0, 6, 0, 38, 0, 0];
    let mut packet = bench.packet(&v4(UDP, 1, 0, &[], &[&udp[..], &pattern(30)].concat()));
    let size = NonZeroU16::new(10).unwrap();
    packet.gso = Some(Gso::new(size, GsoKind::Udp));
    let segments = segments_of(&mut bench, packet);
    assert_eq!(segments.len(), 3);
    for segment in segments {
        assert_eq!(segment[24..28], [0, 18, 0, 0]);
        assert_eq!(checksum(&segment[..20]), 0);
    }
}

#[test]
fn the_checksums_start_says_where_tcp_is_behind_extension_headers() {
    let mut bench = Bench::new();
    let options = [TCP, 0, 1, 4, 0, 0, 0, 0];
    let transport = [tcp_header(9, 0x18, 20), pattern(100)].concat();
    let bytes = v6(
        protocol::DESTINATION_OPTIONS,
        &[&options[..], &transport].concat(),
    );
    let mut packet = bench.packet(&bytes);
    packet.checksum = ChecksumState::Partial {
        start: 48,
        offset: 16,
    };
    let size = NonZeroU16::new(60).unwrap();
    packet.gso = Some(Gso::new(size, GsoKind::Tcp { ecn: false }));
    let segments = segments_of(&mut bench, packet);
    let lens: Vec<_> = segments.iter().map(Vec::len).collect();
    assert_eq!(lens, [40 + 8 + 20 + 60, 40 + 8 + 20 + 40]);
    assert_eq!(segments[1][40..48], options);
    assert_eq!(segments[1][52..56], [0, 0, 0, 69]);
}

#[test]
fn an_empty_pool_drops_the_packet_whole() {
    let mut bench = Bench::with_buffers(32);
    let transport = [tcp_header(9, 0x18, 20), pattern(20_000)].concat();
    let mut packet = bench.packet(&v4(TCP, 1, 0, &[], &transport));
    let size = NonZeroU16::new(500).unwrap();
    packet.gso = Some(Gso::new(size, GsoKind::Tcp { ecn: false }));
    assert!(segments_of(&mut bench, packet).is_empty());
    assert_eq!(bench.dropped(DropReason::NoBuffer), 1);
    assert_eq!(bench.in_use(), 0);
}
