//! ICMP errors, TCP segments, and a packet that stands for several.

use std::num::NonZeroU16;

use forebay_stack::counters::Counter;
use forebay_stack::packet::{ChecksumState, Gso, GsoKind, PacketQueue};
use forebay_stack::wire::ipv4::FLAG_DF;
use forebay_stack::wire::tcp::{FLAG_ACK, FLAG_CWR, FLAG_FIN, FLAG_RST, FLAG_SYN};

use super::*;

#[test]
fn errors_about_nobody_find_no_socket() {
    let icmp = |quote: &[u8]| packets::icmp(SRC4, DST4, 3, 3, 0, quote);
    let icmp6 = |quote: &[u8]| packets::icmp(SRC6, DST6, 1, 0, 0, quote);
    meet(&[(icmp(&[]), "forwarded", "dropped IcmpInvalid")]);
    let answer = packets::udp(DST4, SRC4, 53, 59_207, &[0; 135]);
    meet(&[(icmp(&answer), "forwarded", "dropped IcmpNoSocket")]);
    let answer = packets::udp(DST6, SRC6, 53, 59_207, &[0; 135]);
    meet(&[(icmp6(&answer), "forwarded", "dropped IcmpNoSocket")]);
    // The quote ends where its hop-by-hop header should begin.
    let cut = packets::ipv6(DST6, SRC6, 0, &[0; 8])[..40].to_vec();
    meet(&[(icmp6(&cut), "forwarded", "dropped IcmpInvalid")]);
    let strange = packets::ipv6(DST6, SRC6, AUTHENTICATION, &[0; 16]);
    meet(&[(icmp6(&strange), "forwarded", "dropped IcmpIgnored")]);
}

#[test]
fn errors_that_find_no_socket_count_as_icmps() {
    let mut host = Lab::new(Role::Host);
    let about = packets::udp(DST4, SRC4, 53, 59_207, b"?");
    host.meet(&packets::icmp(SRC4, DST4, 3, 3, 0, &about));
    // From a port where a socket waits, it may have been sent: not to be known afterwards.
    let about = packets::udp(DST4, SRC4, PORT, 59_207, b"?");
    let sent = host.meet(&packets::icmp(SRC4, DST4, 3, 3, 0, &about));
    assert_eq!(sent.to_string(), "consumed");
    let about = packets::udp(DST6, SRC6, 53, 59_207, b"?");
    host.meet(&packets::icmp(SRC6, DST6, 1, 4, 0, &about));
    assert_eq!(host.rig.count(Counter::IcmpInErrors), 1);
    assert_eq!(host.rig.count(Counter::Icmp6InErrors), 1);
}

#[test]
fn odd_segments_get_the_reset_of_a_closed_port() {
    let ignored = "dropped TcpNoSocket";
    let cases: [(u8, &[u8], &[u8], &str); 9] = [
        // TCP-AO of an impossible length.
        (FLAG_SYN, &[0x1d, 3, 0x61, 0], &[], RESET),
        // An option that goes on behind the header.
        (FLAG_SYN, &[8, 40, 0, 0], &[], RESET),
        // One without a length, and one whose length is 0.
        (FLAG_SYN, &[1, 1, 1, 2], &[], RESET),
        (FLAG_SYN, &[2, 0, 0, 0], &[], RESET),
        (FLAG_FIN | FLAG_SYN | 0x20, &[], &[], RESET),
        (FLAG_FIN, &[], &[], RESET),
        (0, &[], b"GET ", RESET),
        (FLAG_RST, &[], &[], ignored),
        (FLAG_RST | FLAG_ACK, &[], b"Access Denied", ignored),
    ];
    for (flags, options, payload, host) in cases {
        meet(&[(tcp4(flags, options, payload), "forwarded", host)]);
    }
    let mut damaged = tcp4(FLAG_SYN, &[], &[]);
    damaged[37] ^= 1;
    meet(&[(damaged, "forwarded", "dropped TcpCsum")]);
    // A data offset of 4 words, and one behind the segment's end.
    for offset in [4, 6] {
        let mut short = tcp4(FLAG_SYN, &[], &[]);
        short[32] = offset << 4;
        meet(&[(short, "forwarded", "dropped TcpHdr")]);
    }
}

/// 7,240 bytes in one packet, its checksum left to the device.
fn super_packet() -> Vec<u8> {
    let segment = segment(
        SRC4.into(),
        DST4.into(),
        FLAG_ACK | FLAG_CWR,
        &[1; 12],
        &[b'x'; 7_240],
    );
    let mut packet = packets::ipv4(SRC4, DST4, protocol::TCP, &segment);
    packet[36..38].copy_from_slice(&[0, 0]);
    let pseudo = packets::transport_checksum(SRC4.into(), DST4.into(), protocol::TCP, &[0; 7_272]);
    packet[36..38].copy_from_slice(&(!pseudo).to_be_bytes());
    with_header(packet, |ip| ip.fragment = FLAG_DF.into())
}

#[test]
fn a_super_packet_needs_its_metadata() {
    // As a file has it.
    let packet = super_packet();
    let too_big = "rejected PktTooBig icmp 3/4";
    meet(&[(packet.clone(), too_big, "dropped TcpCsum")]);

    // As a device has it.
    for (role, expected) in [(Role::Router, "forwarded x5"), (Role::Host, RESET)] {
        let mut lab = Lab::new(role);
        let found = lab.watch(&packet, |rig| {
            let mut buffers = rig.packet(&packet);
            buffers.checksum = ChecksumState::Partial {
                start: 20,
                offset: TcpHeader::CHECKSUM_OFFSET,
            };
            buffers.gso = Some(Gso::new(
                NonZeroU16::new(1_448).expect("not 0"),
                GsoKind::Tcp { ecn: true },
            ));
            let mut queue = PacketQueue::new();
            queue.push(buffers);
            rig.receive("tun0", &mut queue);
        });
        assert_eq!(found.to_string(), expected);
        lab.close();
    }
}
