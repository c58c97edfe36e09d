//! IP headers, options and extension headers, and what lies around the packet in its frame.

use forebay::device::pcap::{LinkType, NotIp, strip_link_header};
use forebay_stack::wire::ipv4::FLAG_DF;
use forebay_stack::wire::tcp::{FLAG_ACK, FLAG_PSH, FLAG_SYN};

use super::*;

#[test]
fn headers_that_contradict_the_frame_end_here() {
    let whole = packets::udp(SRC4, DST4, 30_000, PORT, b"EVIL");
    let mut bad_checksum = whole.clone();
    bad_checksum[10..12].copy_from_slice(&[0, 1]);
    meet_anywhere(bad_checksum, "dropped IpCsum");

    // Total length 20 and a header of 60 bytes, of which 20 are there; the checksum is right.
    let mut broken = packets::ipv4(SRC4, DST4, protocol::TCP, &[]);
    broken[0] = 0x4f;
    broken[10..12].fill(0);
    let sum = forebay_stack::wire::checksum::checksum(&broken);
    broken[10..12].copy_from_slice(&sum.to_be_bytes());
    meet_anywhere(broken.clone(), "dropped IpInHdr");
    // The same with all 60 bytes there.
    broken.resize(60, 0);
    meet_anywhere(broken, "dropped IpInHdr");

    let longer = with_header(whole.clone(), |ip| ip.total_len = 33.into());
    meet_anywhere(longer, "dropped PktTooSmall");
    meet_anywhere(whole[..19].to_vec(), "dropped IpInHdr");

    let whole = packets::udp(SRC6, DST6, 30_000, PORT, b"EVIL");
    meet_anywhere(whole[..39].to_vec(), "dropped IpInHdr");
    meet_anywhere(whole[..51].to_vec(), "dropped PktTooSmall");
}

#[test]
fn a_bad_timestamp_option_is_told_unless_worse_is_wrong() {
    // Of 14 bytes, those from the ninth on are no room for address and time.
    let options = [
        68, 14, 9, 1, 0, 0, 0x34, 0x70, 0x49, 0x42, 0x20, 2, 1, 5, 0, 0,
    ];
    let packet = packets::ipv4_with_options(SRC4, DST4, protocol::UDP, &options, &[0; 16]);
    let flags = FLAG_RESERVED | FLAG_DF | FLAG_MF;
    let odd = with_header(packet.clone(), |ip| ip.fragment = flags.into());
    let told = "rejected IpOptions icmp 12/0";
    meet(&[(odd.clone(), told, told)]);
    let mut worse = odd;
    worse[10] ^= 1;
    meet_anywhere(worse, "dropped IpCsum");
}

#[test]
fn the_reserved_flag_means_nothing() {
    let packet = packets::udp(SRC4, DST4, 30_000, PORT, b"EVIL");
    let flagged = with_header(packet, |ip| ip.fragment = (FLAG_RESERVED | FLAG_DF).into());
    meet(&[(flagged, "forwarded", "delivered 4")]);
}

#[test]
fn protocols_that_nobody_speaks_are_told_so() {
    let inner = packets::udp(SRC4, DST4, 30_000, PORT, b"EVIL");
    let gre = [&[0, 0, 8, 0][..], &inner].concat();
    meet(&[(
        packets::ipv4(SRC4, DST4, GRE, &gre),
        "forwarded",
        "rejected IpNoProto icmp 3/2",
    )]);
    meet(&[(
        packets::ipv6(SRC6, DST6, IPV4_IN_IP, &inner),
        "forwarded",
        "rejected IpNoProto icmp 4/1",
    )]);
    // A length of 0 makes 8 bytes, fewer than an authentication header has.
    let zero_length = [&[58, 0, 0, 0, 0, 0, 0, 0][..], &[0x1f; 158]].concat();
    meet(&[(
        packets::ipv6(SRC6, DST6, AUTHENTICATION, &zero_length),
        "forwarded",
        "rejected IpNoProto icmp 4/1",
    )]);
}

#[test]
fn the_home_address_option_is_one_to_complain_about() {
    let mut options = vec![protocol::UDP, 2, 1, 2, 0, 0, 0xc9, 16];
    options.extend(SRC6.octets());
    options.extend(datagram6(PORT, b"XXXX"));
    let packet = packets::ipv6(SRC6, DST6, 60, &options);
    meet(&[(packet, "forwarded", "rejected Ipv6Option icmp 4/2")]);
}

#[test]
fn harmless_extension_headers_are_passed_over() {
    let syn = segment(SRC6.into(), DST6.into(), FLAG_SYN, &[], &[]);
    let padding = [1, 4, 0, 0, 0, 0];
    let finished_route = [0, 0, 0, 0, 0, 0];
    for (kind, rest) in [(60, padding), (0, padding), (43, finished_route)] {
        let header = [&[protocol::TCP, 0][..], &rest, &syn].concat();
        meet(&[(packets::ipv6(SRC6, DST6, kind, &header), "forwarded", RESET)]);
    }
}

#[test]
fn padding_is_no_part_of_the_packet() {
    let mut padded = packets::udp(SRC4, DST4, 30_000, PORT, b"hello");
    padded.resize(46, 0xee);
    meet(&[(padded, "forwarded", "delivered 5")]);
    let mut padded = tcp4(FLAG_ACK | FLAG_PSH, &[], b"x");
    padded.extend([0xca, 0xfe]);
    meet(&[(padded, "forwarded", RESET)]);
    let mut padded = packets::udp(SRC6, DST6, 30_000, PORT, b"hello");
    padded.extend([0xee; 9]);
    meet(&[(padded, "forwarded", "delivered 5")]);
}

#[test]
fn tags_are_taken_off_however_many() {
    let packet = packets::udp(SRC4, DST4, 30_000, PORT, b"tagged");
    let macs = [0xaa; 12];
    // Priority 5 and "drop eligible" on VLAN 0; three tags; 802.1ad outside.
    let stacks: [&[u8]; 4] = [
        &[],
        &[0x81, 0, 0xb0, 0],
        &[0x81, 0, 0, 30, 0x81, 0, 0, 20, 0x81, 0, 0, 10],
        &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 123],
    ];
    for stack in stacks {
        let frame = [&macs[..], stack, &[8, 0], &packet].concat();
        let stripped = strip_link_header(LinkType::ETHERNET, &frame).expect("IPv4");
        meet(&[(stripped.to_vec(), "forwarded", "delivered 6")]);
        let frame = [&macs[..], stack, &[8, 6], &[0; 46]].concat();
        let arp = strip_link_header(LinkType::ETHERNET, &frame);
        assert_eq!(arp, Err(NotIp::EtherType(0x0806)));
    }
}

#[test]
fn a_length_of_nothing_is_a_jumbograms() {
    // The payload length is 0, and no option says another.
    let syn = segment(SRC6.into(), DST6.into(), FLAG_SYN, &[], &[]);
    let padding = [&[protocol::TCP, 0, 1, 4, 0, 0, 0, 0][..], &syn].concat();
    let mut packet = packets::ipv6(SRC6, DST6, 0, &padding);
    packet[4..6].copy_from_slice(&[0, 0]);
    meet_anywhere(packet, "rejected Ipv6ExtHdr icmp 4/0");
}
