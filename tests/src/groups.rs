//! What hosts and routers say about multicast groups: IGMP and MLD, built and taken apart by hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::wire::checksum::checksum;
use forebay_stack::wire::protocol;

use crate::packets;

/// What a host says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupMessage {
    /// IGMPv3, MLDv2: record type, group, sources.
    Records(Vec<(u8, IpAddr, Vec<IpAddr>)>),
    /// IGMPv1: type and group.
    V1Report(IpAddr),
    /// IGMPv2, MLDv1.
    Report(IpAddr),
    /// IGMPv2, MLDv1.
    Leave(IpAddr),
}

/// Takes a packet apart, if it is a message about groups that a host may send: with TTL 1, the
/// router alert, the right checksum and destination.
///
/// # Panics
///
/// If it is one that no host may send.
pub fn group_message(packet: &[u8]) -> Option<GroupMessage> {
    match packet[0] >> 4 {
        4 if packet[9] == protocol::IGMP => Some(igmp(packet)),
        6 if packet[6] == protocol::HOP_BY_HOP && packet[40] == protocol::ICMPV6 => mld(packet),
        _ => None,
    }
}

fn igmp(packet: &[u8]) -> GroupMessage {
    let header = usize::from(packet[0] & 0xf) * 4;
    let message = &packet[header..];
    assert_eq!(checksum(&packet[..header]), 0, "the header's checksum");
    assert_eq!(checksum(message), 0, "the message's checksum");
    assert_eq!((packet[8], &packet[20..24]), (1, &[0x94, 4, 0, 0][..]));
    assert_eq!(packet[1], 0xc0, "internetwork control");
    let dst = v4(&packet[16..]);
    let (said, to) = match message[0] {
        0x22 => (records(&message[6..], 4), v4(&[224, 0, 0, 22])),
        0x12 => (GroupMessage::V1Report(v4(&message[4..])), v4(&message[4..])),
        0x16 => (GroupMessage::Report(v4(&message[4..])), v4(&message[4..])),
        0x17 => (GroupMessage::Leave(v4(&message[4..])), v4(&[224, 0, 0, 2])),
        other => panic!("an IGMP message of type {other:#x}"),
    };
    assert_eq!(dst, to, "{said:?}");
    said
}

fn mld(packet: &[u8]) -> Option<GroupMessage> {
    let (src, dst, message) = (v6(&packet[8..]), v6(&packet[24..]), &packet[48..]);
    let routers = |last| IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last));
    let (said, to) = match message[0] {
        143 => (records(&message[6..], 16), routers(0x16)),
        131 => (GroupMessage::Report(v6(&message[8..])), v6(&message[8..])),
        132 => (GroupMessage::Leave(v6(&message[8..])), routers(2)),
        _ => return None,
    };
    assert_eq!(
        packets::transport_checksum(src, dst, protocol::ICMPV6, message),
        0
    );
    assert_eq!((packet[7], &packet[42..46]), (1, &[5, 2, 0, 0][..]));
    assert_eq!(dst, to, "{said:?}");
    Some(said)
}

fn records(counted: &[u8], address: usize) -> GroupMessage {
    let addr = |bytes: &[u8]| if address == 4 { v4(bytes) } else { v6(bytes) };
    let count = u16::from_be_bytes([counted[0], counted[1]]);
    let mut rest = &counted[2..];
    let records = (0..count).map(|_| {
        let kind = rest[0];
        let sources = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let group = addr(&rest[4..]);
        let (sources, behind) = rest[4 + address..].split_at(sources * address);
        rest = behind;
        (kind, group, sources.chunks(address).map(addr).collect())
    });
    let records = records.collect();
    assert!(rest.is_empty(), "bytes behind the records");
    GroupMessage::Records(records)
}

fn v4(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 4] = bytes[..4].try_into().expect("an address");
    octets.into()
}

fn v6(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 16] = bytes[..16].try_into().expect("an address");
    octets.into()
}

/// An IGMP query in a packet from 10.0.0.2: for all groups (of 0.0.0.0, to all hosts) or for one;
/// `tail` is what version 3 has behind the group.
pub fn igmp_query(group: Ipv4Addr, code: u8, tail: &[u8]) -> Vec<u8> {
    let dst = match group.is_unspecified() {
        true => Ipv4Addr::new(224, 0, 0, 1),
        false => group,
    };
    igmp_message(0x11, code, dst, group, tail)
}

/// Any IGMP message from 10.0.0.2.
pub fn igmp_message(kind: u8, code: u8, dst: Ipv4Addr, group: Ipv4Addr, tail: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0], &group.octets()[..], tail].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let alert = [0x94, 4, 0, 0];
    let src = Ipv4Addr::new(10, 0, 0, 2);
    let packet = packets::ipv4_with_options(src, dst, protocol::IGMP, &alert, &message);
    packets::with_ttl(packet, 1)
}

/// An MLD query in a packet from a link-local address: for all groups (of ::, to all nodes) or for
/// one, with a time to answer in milliseconds.
pub fn mld_query(group: Ipv6Addr, millis: u16, tail: &[u8]) -> Vec<u8> {
    let dst = match group.is_unspecified() {
        true => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        false => group,
    };
    mld_message(130, millis, dst, group, tail)
}

/// Any MLD message from a link-local address.
pub fn mld_message(kind: u8, millis: u16, dst: Ipv6Addr, group: Ipv6Addr, tail: &[u8]) -> Vec<u8> {
    let src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    let [high, low] = millis.to_be_bytes();
    let head = [kind, 0, 0, 0, high, low, 0, 0];
    let mut message = [&head, &group.octets()[..], tail].concat();
    let sum = packets::transport_checksum(src.into(), dst.into(), protocol::ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let hop_by_hop = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
    let payload = [&hop_by_hop, &message[..]].concat();
    packets::with_ttl(packets::ipv6(src, dst, protocol::HOP_BY_HOP, &payload), 1)
}
