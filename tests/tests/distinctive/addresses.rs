//! Where packets may come from and go to.

use forebay_stack::wire::tcp::FLAG_SYN;

use super::*;

#[test]
fn link_local_addresses_stay_on_their_link() {
    let solicitation = [&[0; 4][..], &DST6.octets()].concat();
    let message = |src, dst| packets::icmp(src, dst, 135, 0, 0, &solicitation[4..]);
    let ignored = "dropped IcmpIgnored";
    meet(&[
        (
            message(NEIGHBOUR, DST6),
            "rejected NotForwardable icmp 1/2",
            ignored,
        ),
        (message(SRC6, NEIGHBOUR), "dropped NotForwardable", ignored),
        (
            message(NEIGHBOUR, NEIGHBOUR),
            "dropped NotForwardable",
            ignored,
        ),
    ]);
    // An error is not answered, wherever it goes.
    let error = packets::icmp(NEIGHBOUR, DST6, 1, 0, 0, &[]);
    meet(&[(error, "dropped NotForwardable", "dropped IcmpInvalid")]);
}

#[test]
fn groups_are_for_members() {
    let everybody = Ipv4Addr::new(224, 0, 0, 1);
    let alert = [148, 4, 0, 0];
    let query = [0x11, 0, 0xee, 0xff, 0, 0, 0, 0];
    let igmp = packets::ipv4_with_options(SRC4, everybody, protocol::IGMP, &alert, &query);
    let igmp = with_header(igmp, |ip| ip.ttl = 1);
    meet_anywhere(igmp.clone(), "consumed");
    let mut damaged = igmp;
    damaged[10] ^= 1;
    meet_anywhere(damaged, "dropped IpCsum");
    let from_group = packets::ipv4(Ipv4Addr::new(235, 247, 89, 226), everybody, 2, &query);
    meet_anywhere(from_group, "dropped IpInvalidSource");

    let mdns = packets::udp(SRC4, Ipv4Addr::new(224, 0, 0, 251), 5_353, 5_353, b"?");
    meet_anywhere(mdns, "dropped MulticastNotJoined");
    let mdns6 = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    let mdns = packets::udp(SRC6, mdns6, 5_353, 5_353, b"?");
    meet_anywhere(mdns, "dropped MulticastNotJoined");

    // A multicast listener report, with its router alert.
    let listeners = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    let report = packets::icmp(NEIGHBOUR, listeners, 143, 0, 1, &[0; 20]);
    let alerted = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &report[40..]].concat();
    let report = packets::ipv6(NEIGHBOUR, listeners, 0, &alerted);
    meet_anywhere(report, "dropped MulticastNotJoined");

    let everybody = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let advertisement = packets::icmp(NEIGHBOUR, everybody, 134, 0, 0, &[0; 48]);
    meet_anywhere(advertisement, "dropped IcmpIgnored");
}

#[test]
fn a_limited_broadcast_stays_on_its_link() {
    let packet = packets::udp(SRC4, Ipv4Addr::BROADCAST, 40_190, PORT, &[0; 173]);
    meet(&[(packet, "dropped UdpIgnoredMulti", "delivered 173")]);
}

#[test]
fn loopback_addresses_are_on_no_wire() {
    let localhost = Ipv4Addr::LOCALHOST;
    let sack = [5, 10, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0];
    let syn = segment(localhost.into(), localhost.into(), FLAG_SYN, &sack, &[]);
    let packet = packets::ipv4(localhost, localhost, protocol::TCP, &syn);
    meet_anywhere(packet, "dropped IpLocalnet");
    let packet = packets::udp(SRC4, localhost, 1, PORT, b"hello");
    meet_anywhere(packet, "dropped IpLocalnet");
    let localhost = Ipv6Addr::LOCALHOST;
    let packet = packets::udp(localhost, localhost, 1, PORT, b"hello");
    meet_anywhere(packet, "dropped IpLocalnet");
}
