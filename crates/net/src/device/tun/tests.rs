use super::*;
use crate::device::testing::packet;
use crate::device::{ChecksumState, Gso, GsoKind, PacketPool};
use std::num::NonZeroU16;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// An IPv4 packet of 4,000 bytes with a transport header, its data offset right for TCP.
fn ipv4(protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4_000];
    bytes[0] = 0x45;
    bytes[9] = protocol;
    bytes[20 + 12] = 0x50;
    bytes
}

/// The same for IPv6, with `extensions` in front of the transport header.
fn ipv6(protocol: u8, extensions: &[(u8, usize)]) -> Vec<u8> {
    let mut bytes = vec![0; 4_000];
    bytes[0] = 0x60;
    let mut next = 6;
    let mut at = 40;
    for &(header, len) in extensions {
        bytes[next] = header;
        bytes[at + 1] = (len / 8 - 1) as u8;
        next = at;
        at += len;
    }
    bytes[next] = protocol;
    bytes[at + 12] = 0x50;
    bytes
}

fn accept(header: &VnetHeader, bytes: &[u8]) -> Result<(ChecksumState, Option<Gso>), BadFrame> {
    let mut cache = PacketPool::new(64).cache();
    let mut packet = packet(&mut cache, bytes);
    let accepted = vnet::accept(header, &mut packet, 1_500);
    if accepted.is_ok() {
        // What was accepted is described in the same words, but for the hint and for "verified",
        // which the kernel does not take from us.
        let back = vnet::describe(&packet).expect("it can be described");
        let flags = header.flags & VnetHeader::NEEDS_CSUM;
        assert_eq!(
            back,
            VnetHeader {
                hdr_len: back.hdr_len,
                flags,
                ..*header
            }
        );
        assert!(usize::from(back.hdr_len) < bytes.len());
    }
    accepted.map(|()| (packet.checksum, packet.gso))
}

fn csum(start: u16, offset: u16) -> VnetHeader {
    VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: start,
        csum_offset: offset,
        ..VnetHeader::default()
    }
}

fn gso(gso_type: u8, start: u16, offset: u16) -> VnetHeader {
    VnetHeader {
        gso_type,
        gso_size: 1_000,
        ..csum(start, offset)
    }
}

#[test]
fn what_is_no_packet_is_refused() {
    let plain = VnetHeader::default();
    let valid = VnetHeader {
        flags: VnetHeader::DATA_VALID,
        ..plain
    };
    let cases: [(&[u8], Result<ChecksumState, BadFrame>, VnetHeader); 9] = [
        (&[], Err(BadFrame::Empty), plain),
        (&[0x05], Err(BadFrame::Version), plain),
        (&[0x55, 0, 0], Err(BadFrame::Version), plain),
        (&[0xf5; 20], Err(BadFrame::Version), plain),
        (&[0x45; 65_535], Err(BadFrame::TooLong), plain),
        (&[0x45; 1_501], Err(BadFrame::TooLong), plain),
        (&[0x45; 1_500], Ok(ChecksumState::None), plain),
        (&[0x60; 3], Ok(ChecksumState::None), plain),
        (&[0x45; 20], Ok(ChecksumState::Verified), valid),
    ];
    for (bytes, expected, header) in cases {
        assert_eq!(
            accept(&header, bytes),
            expected.map(|checksum| (checksum, None))
        );
    }
}

#[test]
fn a_checksum_left_to_fill_in_lies_behind_the_ip_header() {
    let cases: [(u8, usize, u16, u16, bool); 14] = [
        (0x45, 40, 20, 16, true),
        (0x45, 40, 20, 18, true),
        (0x45, 40, 20, 19, false),
        (0x45, 40, 19, 6, false),
        (0x45, 40, 0, 10, false),
        (0x46, 40, 20, 6, false),
        (0x46, 40, 24, 6, true),
        (0x44, 40, 20, 6, false),
        (0x45, 40, u16::MAX, u16::MAX, false),
        (0x45, 40, 38, 0, true),
        (0x45, 40, 39, 0, false),
        (0x60, 60, 40, 16, true),
        (0x60, 60, 39, 16, false),
        (0x60, 30, 20, 6, false),
    ];
    for (first, len, start, offset, good) in cases {
        let expected = match good {
            true => {
                let offset = u8::try_from(offset).expect("a place in a header");
                Ok((ChecksumState::Partial { start, offset }, None))
            }
            false => Err(BadFrame::Checksum),
        };
        let case = format!("{first:#x}, {len} bytes, {start} + {offset}");
        assert_eq!(
            accept(&csum(start, offset), &vec![first; len]),
            expected,
            "{case}"
        );
    }
}

#[test]
fn segmentation_fits_the_packet() {
    let (tcp4, udp4) = (VnetHeader::GSO_TCPV4, VnetHeader::GSO_UDP_L4);
    let (tcp6, udp6) = (VnetHeader::GSO_TCPV6, VnetHeader::GSO_UDP_L4);
    let ecn = VnetHeader::GSO_ECN;
    let extensions = [(0, 8), (43, 24), (60, 16)];
    let (tcp, cwr) = (GsoKind::Tcp { ecn: false }, GsoKind::Tcp { ecn: true });
    let mut fragment = ipv4(TCP);
    fragment[6] = 0x20;
    let mut later_fragment = ipv4(TCP);
    later_fragment[7] = 1;
    let mut short_header = ipv4(TCP);
    short_header[20 + 12] = 0x40;
    let mut no_payload = ipv4(TCP);
    no_payload.truncate(40);
    let mut cut_header = ipv4(TCP);
    cut_header[20 + 12] = 0x60;
    cut_header.truncate(40);
    let hint = |hdr_len| VnetHeader {
        hdr_len,
        ..gso(tcp4, 20, 16)
    };

    let cases: Vec<(&str, VnetHeader, Vec<u8>, Option<GsoKind>)> = vec![
        ("TCP over IPv4", gso(tcp4, 20, 16), ipv4(TCP), Some(tcp)),
        ("with CWR", gso(tcp4 | ecn, 20, 16), ipv4(TCP), Some(cwr)),
        (
            "UDP over IPv4",
            gso(udp4, 20, 6),
            ipv4(UDP),
            Some(GsoKind::Udp),
        ),
        (
            "TCP over IPv6",
            gso(tcp6, 40, 16),
            ipv6(TCP, &[]),
            Some(tcp),
        ),
        (
            "UDP over IPv6",
            gso(udp6, 40, 6),
            ipv6(UDP, &[]),
            Some(GsoKind::Udp),
        ),
        (
            "extension headers",
            gso(tcp6, 88, 16),
            ipv6(TCP, &extensions),
            Some(tcp),
        ),
        (
            "start inside of one",
            gso(tcp6, 80, 16),
            ipv6(TCP, &extensions),
            None,
        ),
        (
            "a fragment header",
            gso(tcp6, 48, 16),
            ipv6(TCP, &[(44, 8)]),
            None,
        ),
        ("the other family", gso(tcp6, 20, 16), ipv4(TCP), None),
        ("the other family", gso(tcp4, 40, 16), ipv6(TCP, &[]), None),
        ("the other protocol", gso(tcp4, 20, 16), ipv4(UDP), None),
        ("the other protocol", gso(udp4, 20, 6), ipv4(TCP), None),
        (
            "the other protocol's checksum",
            gso(tcp4, 20, 6),
            ipv4(TCP),
            None,
        ),
        (
            "start behind options that are not there",
            gso(tcp4, 24, 16),
            ipv4(TCP),
            None,
        ),
        ("CWR in UDP", gso(udp4 | ecn, 20, 6), ipv4(UDP), None),
        (
            "UDP fragmentation",
            gso(VnetHeader::GSO_UDP, 20, 6),
            ipv4(UDP),
            None,
        ),
        ("an unknown type", gso(2, 20, 16), ipv4(TCP), None),
        ("ECN alone", gso(ecn, 20, 16), ipv4(TCP), None),
        (
            "no size",
            VnetHeader {
                gso_size: 0,
                ..gso(tcp4, 20, 16)
            },
            ipv4(TCP),
            None,
        ),
        (
            "no checksum",
            VnetHeader {
                flags: 0,
                ..gso(tcp4, 20, 16)
            },
            ipv4(TCP),
            None,
        ),
        ("a fragment", gso(tcp4, 20, 16), fragment, None),
        ("a later fragment", gso(tcp4, 20, 16), later_fragment, None),
        ("a short TCP header", gso(tcp4, 20, 16), short_header, None),
        ("no payload", gso(tcp4, 20, 16), no_payload, None),
        (
            "a TCP header that is cut off",
            gso(tcp4, 20, 16),
            cut_header,
            None,
        ),
        ("a hint that is too short", hint(1), ipv4(TCP), Some(tcp)),
        ("a hint beyond the packet", hint(4_001), ipv4(TCP), None),
    ];
    for (what, header, bytes, kind) in cases {
        let expected = match kind {
            Some(kind) => Ok(Some(Gso::new(NonZeroU16::new(1_000).expect("not 0"), kind))),
            None => Err(BadFrame::Segmentation),
        };
        assert_eq!(
            accept(&header, &bytes).map(|accepted| accepted.1),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_size_without_a_type_means_nothing() {
    let stale = VnetHeader {
        gso_size: 1_000,
        hdr_len: 9_999,
        ..VnetHeader::default()
    };
    let mut cache = PacketPool::new(64).cache();
    let mut packet = packet(&mut cache, &[0x45; 40]);
    assert_eq!(vnet::accept(&stale, &mut packet, 1_500), Ok(()));
    assert_eq!(packet.gso, None);
}

#[test]
fn a_frame_takes_the_buffers_that_it_fills() {
    let mut cache = PacketPool::new(64).cache();
    let mut spare = Spare::for_frames(1_500, true);
    for len in [0, 1, CAPACITY, CAPACITY + 1, MAX_PACKET] {
        assert!(spare.fill(&mut cache));
        for (at, buffer) in spare.buffers.iter_mut().rev().enumerate() {
            buffer.spare_mut().fill(at as u8);
        }
        let packet = spare
            .take(len)
            .expect("the frame is no longer than the largest");
        assert_eq!(packet.total_len(), len);
        assert_eq!(packet.buffers(), len.div_ceil(CAPACITY).max(1));
        let expected = (0..=u8::MAX).flat_map(|at| [at; CAPACITY]).take(len);
        assert!(packet.chunks().flatten().copied().eq(expected));
    }
    let mut small = PacketPool::new(10).cache();
    assert!(
        !Spare::for_frames(1_500, true).fill(&mut small),
        "all or nothing"
    );
}
