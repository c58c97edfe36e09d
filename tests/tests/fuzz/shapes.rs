//! Packets: right ones of every kind, and what damage makes of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_stack::packet::{ChecksumState, Gso, GsoKind, Meta};
use forebay_stack::wire::{Ipv4Header, TcpHeader, UdpHeader, ipv4, protocol};
use forebay_tests::packets;
use zerocopy::{FromBytes, IntoBytes};

use crate::dice::Dice;
use crate::groups;

const ADDRESSES_V4: [Ipv4Addr; 16] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 1, 0, 1),
    Ipv4Addr::new(10, 1, 0, 2),
    Ipv4Addr::new(10, 0, 0, 255),
    Ipv4Addr::new(10, 1, 0, 255),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(198, 51, 100, 7),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(239, 1, 2, 3),
    Ipv4Addr::new(169, 254, 0, 9),
];

const ADDRESSES_V6: [&str; 16] = [
    "fd00::1",
    "fd00::1",
    "fd00::2",
    "fd00::2",
    "fd01::1",
    "fd01::2",
    "2001:db8::1",
    "2001:db8:7::7",
    "fe80::1",
    "fe80::2",
    "ff02::1",
    "ff02::2",
    "ff02::1:ff00:1",
    "::1",
    "::",
    "::ffff:10.0.0.1",
];

pub(crate) fn address(dice: &Dice, is_v6: bool) -> IpAddr {
    match (is_v6, dice.once_in(30)) {
        (false, false) => dice.pick(&ADDRESSES_V4).into(),
        (false, true) => Ipv4Addr::from_bits(dice.u32()).into(),
        (true, false) => dice.pick(&ADDRESSES_V6).parse().expect("an address"),
        (true, true) => {
            let bits = (u128::from(dice.u64()) << 64) | u128::from(dice.u64());
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

/// The ports that sockets and packets meet at.
pub(crate) fn port(dice: &Dice) -> u16 {
    match dice.below(12) {
        0 => dice.u16(),
        1 => 0,
        _ => dice.pick(&[7, 1_000, 2_000, 40_000]),
    }
}

/// Both ends of a flow that often has a connected socket at this one: here, there.
pub(crate) fn flow(dice: &Dice) -> [SocketAddr; 2] {
    let [here, there] = match dice.coin() {
        true => ["10.0.0.1:2000", "10.0.0.2:1000"],
        false => ["[fd00::1]:2000", "[fd00::2]:1000"],
    };
    [here, there].map(|end| end.parse().expect("an address and port"))
}

/// A packet as a device gives it: its bytes, what the device knows of them, and how many bytes each
/// buffer holds.
pub(crate) struct Arrival {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: ChecksumState,
    pub(crate) gso: Option<Gso>,
    pub(crate) per_buffer: usize,
}

impl Arrival {
    /// What the device knows, as the packet's metadata.
    pub(crate) fn describe(&self, meta: &mut Meta) {
        meta.checksum = self.checksum;
        meta.gso = self.gso;
    }
}

/// Packets that belong together: one, or the fragments of one. What the device says of them is true
/// if `truthful`: as much as a TUN device makes sure of.
pub(crate) fn arrivals(dice: &Dice, truthful: bool) -> Vec<Arrival> {
    if dice.once_in(25) {
        let len = dice.len(3_000);
        let mut bytes = dice.bytes(len);
        if let Some(first) = bytes.first_mut() {
            *first = dice.pick(&[0x45, 0x46, 0x4f, 0x60, *first]);
        }
        return vec![plain(dice, bytes)];
    }
    if dice.once_in(8) {
        let [here, there] = flow(dice);
        let (ports, payload) = ((there.port(), here.port()), dice.bytes(dice.len(500)));
        let packet = packets::udp(there.ip(), here.ip(), ports.0, ports.1, &payload);
        let burst = vec![packet; 1 + dice.below(5)];
        return burst.into_iter().map(|bytes| plain(dice, bytes)).collect();
    }
    if dice.once_in(20) {
        let mut packets = vec![groups::message(dice)];
        disturb(dice, &mut packets);
        return packets
            .into_iter()
            .map(|bytes| plain(dice, bytes))
            .collect();
    }
    let whole = whole(dice);
    let mut packets = match dice.below(4) {
        0 => fragments(dice, &whole),
        _ => vec![whole],
    };
    if packets.len() == 1 && dice.once_in(6) {
        let bytes = packets.remove(0);
        return vec![with_metadata(dice, bytes, truthful)];
    }
    disturb(dice, &mut packets);
    packets
        .into_iter()
        .map(|bytes| plain(dice, bytes))
        .collect()
}

fn plain(dice: &Dice, bytes: Vec<u8>) -> Arrival {
    let per_buffer = if dice.once_in(10) {
        1 + dice.below(100)
    } else {
        1_800
    };
    Arrival {
        bytes,
        checksum: dice.pick(&[
            ChecksumState::None,
            ChecksumState::None,
            ChecksumState::None,
            ChecksumState::Verified,
        ]),
        gso: None,
        per_buffer,
    }
}

/// Reorders, repeats, loses and damages.
fn disturb(dice: &Dice, packets: &mut Vec<Vec<u8>>) {
    if packets.len() > 1 && dice.coin() {
        let (a, b) = (dice.below(packets.len()), dice.below(packets.len()));
        packets.swap(a, b);
    }
    if !packets.is_empty() && dice.once_in(8) {
        let again = dice.pick(packets);
        packets.push(again);
    }
    if packets.len() > 1 && dice.once_in(4) {
        packets.remove(dice.below(packets.len()));
    }
    for packet in packets {
        if dice.once_in(4) {
            damage(dice, packet);
        }
    }
}

fn damage(dice: &Dice, packet: &mut Vec<u8>) {
    for _ in 0..=dice.below(3) {
        if packet.is_empty() {
            return;
        }
        // Headers are worth more than payload.
        let end = if dice.coin() { 64 } else { usize::MAX };
        let at = dice.below(packet.len().min(end));
        match dice.below(8) {
            0..=2 => packet[at] = dice.u8(),
            3 | 4 => packet[at] ^= 1 << dice.below(8),
            5 => packet[at] = dice.pick(&[0, 1, 7, 8, 40, 60, 0x7f, 0x80, 0xff]),
            6 => packet.truncate(at),
            _ => {
                let len = dice.len(300);
                packet.extend(dice.bytes(len));
            }
        }
    }
    // Else nothing but the checksum would ever be wrong with an IPv4 header.
    if packet.first().is_some_and(|first| first >> 4 == 4) && !dice.once_in(4) {
        ipv4::fill_checksum(packet);
    }
}

fn whole(dice: &Dice) -> Vec<u8> {
    let is_v6 = dice.coin();
    let (src, dst) = (address(dice, is_v6), address(dice, is_v6));
    let (protocol, transport) = transport(dice, src, dst);
    let (protocol, payload) = match is_v6 && dice.once_in(3) {
        true => extend(dice, protocol, transport),
        false => (protocol, transport),
    };
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) if dice.once_in(4) => {
            let options = options_v4(dice);
            packets::ipv4_with_options(src, dst, protocol, &options, &payload)
        }
        _ => packets::ip(src, dst, protocol, &payload),
    };
    let hops = dice.pick(&[0, 1, 2, 64, 64, 64, 64, 255]);
    if is_v6 {
        packet[7] = hops;
        packet[1] = dice.u8();
    } else {
        packet[8] = hops;
        packet[1] = dice.pick(&[0, 0, 1, 2, 3, 0xc0]);
        if dice.once_in(3) {
            packet[6] |= 0x40;
        }
        ipv4::fill_checksum(&mut packet);
    }
    packet
}

fn transport(dice: &Dice, src: IpAddr, dst: IpAddr) -> (u8, Vec<u8>) {
    let is_v6 = src.is_ipv6();
    let len = dice.len(if dice.once_in(50) { 60_000 } else { 4_000 });
    let payload = dice.bytes(len);
    match dice.below(16) {
        0..=6 => {
            let (src_port, dst_port) = (port(dice), port(dice));
            let mut datagram = packets::udp_datagram(src, dst, src_port, dst_port, &payload);
            if dice.once_in(8) {
                datagram[6..8].copy_from_slice(&[0, 0]);
            }
            (protocol::UDP, datagram)
        }
        7..=9 => (protocol::TCP, segment(dice, src, dst, &payload)),
        10..=12 => {
            let kinds: &[u8] = if is_v6 {
                &[128, 128, 129, 135]
            } else {
                &[8, 8, 0, 13, 17]
            };
            icmp(src, dst, dice.pick(kinds), 0, dice.u32(), &payload)
        }
        13 | 14 => {
            // An error about something that we may have sent.
            let (src_port, dst_port) = (port(dice), port(dice));
            let mut about = packets::udp(dst, src, src_port, dst_port, &payload[..len.min(500)]);
            if dice.coin() {
                damage(dice, &mut about);
            }
            let kinds: &[u8] = if is_v6 {
                &[1, 2, 3, 4, 137]
            } else {
                &[3, 3, 5, 11, 12]
            };
            let (kind, code) = (dice.pick(kinds), dice.below(6) as u8);
            icmp(src, dst, kind, code, dice.u32(), &about)
        }
        _ => (dice.u8(), payload),
    }
}

fn icmp(src: IpAddr, dst: IpAddr, kind: u8, code: u8, rest: u32, body: &[u8]) -> (u8, Vec<u8>) {
    let packet = packets::icmp(src, dst, kind, code, rest, body);
    match src {
        IpAddr::V4(_) => (protocol::ICMP, packet[20..].to_vec()),
        IpAddr::V6(_) => (protocol::ICMPV6, packet[40..].to_vec()),
    }
}

fn segment(dice: &Dice, src: IpAddr, dst: IpAddr, payload: &[u8]) -> Vec<u8> {
    let flags = dice.pick(&[2, 0x10, 0x18, 0x12, 1, 4, 0x11, 0x92, dice.u8()]);
    let header = TcpHeader::new(port(dice), port(dice), dice.u32(), dice.u32(), flags);
    let words = dice.pick(&[0, 0, 3, 10]);
    let options = dice.bytes(4 * words);
    let mut segment = [header.as_bytes(), &options, payload].concat();
    segment[12] = (5 + words as u8) << 4;
    let sum = packets::transport_checksum(src, dst, protocol::TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn options_v4(dice: &Dice) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..dice.below(4) {
        let option: &[u8] = match dice.below(8) {
            0 => &[1],
            1 => &[7, 7, 4, 0, 0, 0, 0],
            2 => &[7, 11, 8, 1, 2, 3, 4, 0, 0, 0, 0],
            3 => &[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            4 => &[68, 12, 5, 3, 10, 0, 0, 1, 0, 0, 0, 0],
            5 => &[148, 4, 0, 0],
            6 => &[131, 7, 4, 10, 0, 0, 1],
            _ => &[200, 6, 1, 2, 3, 4],
        };
        options.extend(option);
    }
    options.truncate(40);
    options
}

/// Puts extension headers in front of a transport header.
fn extend(dice: &Dice, protocol: u8, transport: Vec<u8>) -> (u8, Vec<u8>) {
    let (mut next, mut payload) = (protocol, transport);
    for _ in 0..=dice.below(3) {
        let (kind, body): (u8, &[u8]) = match dice.below(7) {
            0 => (0, &[5, 2, 0, 0, 1, 0]),
            1 => (60, &[1, 4, 0, 0, 0, 0]),
            2 => (60, &[0xc9, 4, 0, 0, 0, 0]),
            3 => (43, &[0, 0, 0, 0, 0, 0]),
            4 => (43, &[0, 1, 0, 0, 0, 0]),
            5 => (44, &[0, 0, 0, 0, 0, 9]),
            _ => (60, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        };
        let units = (body.len() / 8) as u8;
        let len = if kind == 44 { 0 } else { units };
        payload = [&[next, len][..], body, &payload].concat();
        next = kind;
    }
    (next, payload)
}

/// Cuts a packet into fragments, most of the time rightly.
fn fragments(dice: &Dice, whole: &[u8]) -> Vec<Vec<u8>> {
    let is_v6 = whole[0] >> 4 == 6;
    let (header, payload) = whole.split_at(header_len(whole));
    let size = 8 * (1 + dice.below(if dice.coin() { 16 } else { 180 }));
    // Few identifications, so that strangers' fragments meet.
    let id = dice.below(4) as u16;
    let mut fragments = Vec::new();
    for (at, data) in payload.chunks(size).enumerate().take(40) {
        let offset = at * size;
        let more = offset + data.len() < payload.len();
        let slip = if dice.once_in(40) { 8 } else { 0 };
        let offset = (offset + slip) as u16;
        fragments.push(match is_v6 {
            true => {
                let [high, low] = ((offset & !7) | u16::from(more)).to_be_bytes();
                let between = [header[6], 0, high, low, 0, 0, 0, id as u8];
                let mut fragment = [header, &between, data].concat();
                let len = (between.len() + data.len()) as u16;
                fragment[4..6].copy_from_slice(&len.to_be_bytes());
                fragment[6] = 44;
                fragment
            }
            false => {
                let mut fragment = [header, data].concat();
                let len = fragment.len() as u16;
                let (ip, _) = Ipv4Header::mut_from_prefix(&mut fragment).expect("a header");
                ip.total_len = len.into();
                ip.id = id.into();
                ip.fragment = (((offset / 8) & 0x1fff) | (u16::from(more) << 13)).into();
                ipv4::fill_checksum(&mut fragment);
                fragment
            }
        });
    }
    fragments
}

/// A packet whose checksum is left to the device, or that stands for several.
fn with_metadata(dice: &Dice, mut bytes: Vec<u8>, truthful: bool) -> Arrival {
    if !truthful {
        return with_lies(dice, bytes);
    }
    let start = header_len(&bytes);
    let transport = transport_of(&bytes);
    let is_segmentable = matches!(transport, protocol::UDP | protocol::TCP);
    if is_segmentable && bytes.len() > start + 60 && !dice.once_in(4) {
        let (offset, kind) = match transport {
            protocol::UDP => (UdpHeader::CHECKSUM_OFFSET, GsoKind::Udp),
            _ => {
                let ecn = dice.coin();
                (TcpHeader::CHECKSUM_OFFSET, GsoKind::Tcp { ecn })
            }
        };
        return Arrival {
            checksum: partial(start, offset),
            gso: dice.coin().then(|| gso(dice, kind)),
            ..plain(dice, bytes)
        };
    }
    // A checksum may lie anywhere behind the IP header.
    if dice.coin() {
        damage(dice, &mut bytes);
    }
    let headers = header_len(&bytes);
    let start = headers + dice.len(40);
    let room = bytes.len().saturating_sub(start + 1);
    if headers < 20 || room == 0 {
        return plain(dice, bytes);
    }
    let offset = dice.below(room.min(usize::from(u8::MAX))) as u8;
    Arrival {
        checksum: partial(start, offset),
        ..plain(dice, bytes)
    }
}

fn with_lies(dice: &Dice, mut bytes: Vec<u8>) -> Arrival {
    if dice.coin() {
        damage(dice, &mut bytes);
    }
    let (start, offset) = (dice.u16(), dice.u16() as u8);
    let start = dice.pick(&[0, 20, 40, 1_799, start]);
    let offset = dice.pick(&[0, 2, 6, 16, 255, offset]);
    let kind = dice.pick(&[GsoKind::Udp, GsoKind::Tcp { ecn: true }]);
    Arrival {
        checksum: dice.pick(&[
            ChecksumState::None,
            ChecksumState::Verified,
            ChecksumState::Partial { start, offset },
        ]),
        gso: dice.coin().then(|| gso(dice, kind)),
        ..plain(dice, bytes)
    }
}

fn partial(start: usize, offset: u8) -> ChecksumState {
    let start = u16::try_from(start).expect("a place among the headers");
    ChecksumState::Partial { start, offset }
}

fn gso(dice: &Dice, kind: GsoKind) -> Gso {
    let size = 1 + dice.len(1_460) as u16;
    Gso::new(size.try_into().expect("not 0"), kind)
}

/// Bytes of the IP header without extension headers, as the packet claims.
fn header_len(packet: &[u8]) -> usize {
    match packet.first().map_or(0, |first| first >> 4) {
        6 => 40,
        _ => packet
            .first()
            .map_or(0, |first| usize::from(first & 15) * 4),
    }
}

fn transport_of(packet: &[u8]) -> u8 {
    packet[if packet[0] >> 4 == 6 { 6 } else { 9 }]
}
