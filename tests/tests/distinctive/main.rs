//! The distinctive packets of the public captures, built by hand: what a router makes of each, and
//! a host that all of them are for ([`forebay_tests::lab`]). `captures.rs` has the captures
//! themselves, where they are there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::wire::ipv4::{self, FLAG_MF};
use forebay_stack::wire::{Ipv4Header, TcpHeader, protocol};
use forebay_tests::lab::{Lab, Role};
use forebay_tests::packets;
use zerocopy::{FromBytes, IntoBytes};

mod addresses;
mod fragments;
mod headers;
mod transport;

const SRC4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const DST4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);
const SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
const DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xdead);
/// A UDP port where the host has a socket.
const PORT: u16 = 13_000;
/// One where nobody listens.
const CLOSED: u16 = 137;

const AUTHENTICATION: u8 = 51;
const GRE: u8 = 47;
const IPV4_IN_IP: u8 = 4;
/// The reserved bit of IPv4's flags.
const FLAG_RESERVED: u16 = 0x8000;

/// Checks what becomes of packets that come in one after the other: in a router, and in a host.
fn meet(packets: &[(Vec<u8>, &str, &str)]) {
    for role in Role::ALL {
        let mut lab = Lab::new(role);
        for (at, (packet, router, host)) in packets.iter().enumerate() {
            let expected = match role {
                Role::Router => router,
                Role::Host => host,
            };
            let found = lab.meet(packet).to_string();
            assert_eq!(found, **expected, "{role:?}, packet {at}: {packet:02x?}");
        }
        lab.close();
    }
}

/// The same for both.
fn meet_anywhere(packet: Vec<u8>, expected: &str) {
    meet(&[(packet, expected, expected)]);
}

const RESET: &str = "rejected TcpNoSocket reset";

/// A TCP segment with options (a multiple of 4 bytes), without an IP header.
fn segment(src: IpAddr, dst: IpAddr, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader::new(12_345, 80, 1_000, 3_001, flags);
    let mut segment = [header.as_bytes(), options, payload].concat();
    segment[12] = ((20 + options.len()) as u8) << 2;
    let sum = packets::transport_checksum(src, dst, protocol::TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn tcp4(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let segment = segment(SRC4.into(), DST4.into(), flags, options, payload);
    packets::ipv4(SRC4, DST4, protocol::TCP, &segment)
}

/// Changes an IPv4 packet's header, and makes its checksum right again.
fn with_header(mut packet: Vec<u8>, change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
    let (ip, _) = Ipv4Header::mut_from_prefix(&mut packet).expect("an IPv4 header");
    change(ip);
    ipv4::fill_checksum(&mut packet);
    packet
}

/// An IPv4 fragment: `offset` is in bytes.
fn piece4(protocol: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let flags = if more { FLAG_MF } else { 0 };
    with_header(packets::ipv4(SRC4, DST4, protocol, data), |ip| {
        ip.id = 242.into();
        ip.fragment = ((offset / 8) | flags).into();
    })
}

/// An IPv6 fragment: `offset` is in bytes.
fn piece6(protocol: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let [high, low] = ((offset & !7) | u16::from(more)).to_be_bytes();
    let header = [protocol, 0, high, low, 0xfa, 0xce, 0xf0, 0xe1];
    packets::ipv6(SRC6, DST6, 44, &[&header[..], data].concat())
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    packets::udp_datagram(SRC4.into(), DST4.into(), 30_000, port, payload)
}

fn datagram6(port: u16, payload: &[u8]) -> Vec<u8> {
    packets::udp_datagram(SRC6.into(), DST6.into(), 30_000, port, payload)
}
