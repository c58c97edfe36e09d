//! TCP segments to ports on which nobody listens (RFC 9293 section 3.10.7.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN};
use forebay_stack::wire::{TcpHeader, protocol};
use forebay_tests::packets::{self, parse};
use forebay_tests::{Rig, V4, V6};
use zerocopy::FromBytes;

const PORT: u16 = 40_000;
const CLOSED: u16 = 80;
const PAIRS: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(V4::PEER), IpAddr::V4(V4::OWN)),
    (IpAddr::V6(V6::PEER), IpAddr::V6(V6::OWN)),
];

/// Sequence, acknowledgement and flags of the answer, whose ends and checksum are checked.
fn answer(rig: &mut Rig, packet: &[u8]) -> Option<(u32, u32, u8)> {
    rig.inject("tun0", packet);
    let mut output = rig.output("tun0");
    assert!(output.len() <= 1, "{output:02x?}");
    let reset = parse(&output.pop()?);
    let asked = parse_ends(packet);
    let (tcp, rest) = TcpHeader::ref_from_prefix(&reset.payload).expect("a TCP header");
    assert_eq!((reset.dst, reset.src), asked);
    assert_eq!((tcp.src_port.get(), tcp.dst_port.get()), (CLOSED, PORT));
    assert_eq!((tcp.header_len(), rest.len(), tcp.window.get()), (20, 0, 0));
    Some((tcp.seq.get(), tcp.ack.get(), tcp.flags))
}

fn parse_ends(packet: &[u8]) -> (IpAddr, IpAddr) {
    let parsed = parse(packet);
    (parsed.src, parsed.dst)
}

#[test]
fn each_kind_of_segment_gets_its_reset() {
    const RST_ACK: u8 = FLAG_RST | FLAG_ACK;
    let mut rig = Rig::new();
    let mut resets = 0;
    for (peer, own) in PAIRS {
        for seq in [0, 1_000, 0x7fff_fff0, 0xffff_fff0, u32::MAX] {
            let after = |n| seq.wrapping_add(n);
            let cases = [
                (FLAG_SYN, &b""[..], Some((0, after(1), RST_ACK))),
                (FLAG_SYN, b"5byte", Some((0, after(6), RST_ACK))),
                (FLAG_ACK, b"", Some((77, 0, FLAG_RST))),
                (FLAG_ACK, b"data", Some((77, 0, FLAG_RST))),
                (FLAG_SYN | FLAG_ACK, b"", Some((77, 0, FLAG_RST))),
                (FLAG_FIN, b"", Some((0, after(1), RST_ACK))),
                (0, b"", Some((0, seq, RST_ACK))),
                (FLAG_RST, b"", None),
                (RST_ACK, b"", None),
                (FLAG_SYN | FLAG_RST, b"", None),
            ];
            for (flags, payload, expected) in cases {
                let segment = packets::tcp((peer, PORT), (own, CLOSED), seq, 77, flags, payload);
                assert_eq!(
                    answer(&mut rig, &segment),
                    expected,
                    "{flags:02x} at {seq:x}"
                );
                resets += u64::from(expected.is_some());
            }
        }
    }
    assert_eq!(rig.count(Counter::TcpInSegs), 100);
    assert_eq!(rig.count(Counter::TcpOutRsts), resets);
    assert_eq!(rig.count(Counter::TcpOutSegs), resets);
    assert_eq!(rig.count(Counter::TcpInErrs), 0);
    assert_eq!(rig.dropped(DropReason::TcpNoSocket), 100);
    assert_eq!(rig.buffers_in_use(), 0);
}

#[test]
fn damaged_segments_are_silent() {
    let mut rig = Rig::new();
    for (peer, own) in PAIRS {
        let segment = packets::tcp((peer, PORT), (own, CLOSED), 1, 2, FLAG_SYN, b"data");
        let at = segment.len() - 24;
        let header = &segment[at..];
        let with = |payload: &[u8]| packets::ip(peer, own, protocol::TCP, payload);
        let mut flipped = header.to_vec();
        flipped[21] ^= 1;
        rig.inject("tun0", with(&flipped));
        for len in 0..20 {
            rig.inject("tun0", with(&header[..len]));
        }
        for data_offset in (0..16).filter(|words| !(5..=6).contains(words)) {
            let mut wrong = header.to_vec();
            wrong[12] = data_offset << 4;
            rig.inject("tun0", with(&wrong));
        }
    }
    assert_eq!(rig.output("tun0"), Vec::<Vec<u8>>::new());
    assert_eq!(rig.dropped(DropReason::TcpCsum), 2);
    assert_eq!(rig.count(Counter::TcpInCsumErrors), 2);
    assert_eq!(rig.dropped(DropReason::TcpHdr), 2 * (20 + 14));
    assert_eq!(rig.count(Counter::TcpInErrs), 2 * (1 + 20 + 14));
}

#[test]
fn options_are_no_payload() {
    let mut rig = Rig::new();
    let (peer, own) = PAIRS[0];
    let mut header =
        packets::tcp((peer, PORT), (own, CLOSED), 100, 0, FLAG_SYN, &[])[20..].to_vec();
    header[12] = 6 << 4;
    header.extend_from_slice(&[2, 4, 5, 0xb4]);
    header[16..18].fill(0);
    let sum = packets::transport_checksum(peer, own, protocol::TCP, &header);
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    let segment = packets::ip(peer, own, protocol::TCP, &header);
    assert_eq!(
        answer(&mut rig, &segment),
        Some((0, 101, FLAG_RST | FLAG_ACK))
    );
}

#[test]
fn crowds_and_impossible_sources_get_nothing() {
    let mut rig = Rig::new();
    let v4 = |src: [u8; 4], dst: [u8; 4]| (IpAddr::from(src), IpAddr::from(dst));
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let own = V4::OWN.octets();
    let peer = V4::PEER.octets();
    let cases = [
        v4(peer, [10, 0, 0, 255]),
        v4(peer, Ipv4Addr::BROADCAST.octets()),
        v4(peer, [224, 0, 0, 1]),
        v4([0; 4], own),
        v4([255; 4], own),
        v4([224, 0, 0, 1], own),
        v4(own, own),
        v4([127, 0, 0, 1], own),
        (V6::PEER.into(), all_nodes.into()),
        (Ipv6Addr::UNSPECIFIED.into(), V6::OWN.into()),
        (all_nodes.into(), V6::OWN.into()),
        (V6::OWN.into(), V6::OWN.into()),
    ];
    for (src, dst) in cases {
        for flags in [FLAG_SYN, FLAG_ACK] {
            rig.inject(
                "tun0",
                packets::tcp((src, PORT), (dst, CLOSED), 1, 1, flags, b""),
            );
            for interface in ["tun0", "tun1"] {
                assert_eq!(
                    rig.output(interface),
                    Vec::<Vec<u8>>::new(),
                    "{src} to {dst}"
                );
            }
        }
    }
}
