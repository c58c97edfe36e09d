use core::num::NonZeroU16;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::ip::bench::{Bench, OWN_V4, OWN_V6, PEER_V4, PEER_V6, bytes_of, pattern};
use crate::socket::SocketId;
use crate::wire::{Ipv6Header, ipv4};

const PORT: u16 = 7;

/// A datagram as a peer makes it, and what of it tests change.
#[derive(Debug, Clone)]
struct Datagram {
    version: IpVersion,
    payload: usize,
    src_port: u16,
    dst_port: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    tos: u8,
    flow_label: u8,
    last_of_src: u8,
    options: bool,
    checksum: Sum,
    /// Bytes that the UDP header claims beyond those that are there.
    claims: i16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    Right,
    Wrong,
    None,
}

impl Datagram {
    fn new(version: IpVersion, payload: usize, id: u16) -> Self {
        Self {
            version,
            payload,
            src_port: 1_000,
            dst_port: PORT,
            id,
            fragment: 0,
            ttl: 64,
            tos: 0,
            flow_label: 0,
            last_of_src: 2,
            options: false,
            checksum: Sum::Right,
            claims: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let len = UdpHeader::LEN + self.payload;
        let udp = UdpHeader {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            len: (len as u16).wrapping_add_signed(self.claims).into(),
            checksum: 0.into(),
        };
        let mut payload = pattern(self.payload);
        if let Some(first) = payload.first_mut() {
            *first = self.id as u8;
        }
        let mut transport = [udp.as_bytes(), &payload].concat();
        let mut sum = match self.version {
            IpVersion::V4 => {
                V4::pseudo_header(self.src_v4().into(), OWN_V4.into(), protocol::UDP, len)
            }
            IpVersion::V6 => {
                V6::pseudo_header(self.src_v6().into(), OWN_V6.into(), protocol::UDP, len)
            }
        };
        sum.add_bytes(&transport);
        let sum = match (self.checksum, sum.finish()) {
            (Sum::None, _) => 0,
            (Sum::Wrong, sum) => (sum ^ 0x1234).max(1),
            (Sum::Right, 0) => 0xffff,
            (Sum::Right, sum) => sum,
        };
        transport[6..8].copy_from_slice(&sum.to_be_bytes());
        match self.version {
            IpVersion::V4 => self.in_v4(&transport),
            IpVersion::V6 => self.in_v6(&transport),
        }
    }

    fn src_v4(&self) -> [u8; 4] {
        let [a, b, c, _] = PEER_V4;
        [a, b, c, self.last_of_src]
    }

    fn src_v6(&self) -> [u16; 8] {
        let mut src = PEER_V6;
        src[7] = self.last_of_src.into();
        src
    }

    fn in_v4(&self, transport: &[u8]) -> Vec<u8> {
        let options: &[u8] = if self.options { &[1; 4] } else { &[] };
        let len = Ipv4Header::LEN + options.len() + transport.len();
        let (src, dst) = (self.src_v4().into(), OWN_V4.into());
        let mut header = Ipv4Header::new(src, dst, protocol::UDP, self.ttl, len as u16);
        header.set_header_len(Ipv4Header::LEN + options.len());
        header.id = self.id.into();
        header.fragment = self.fragment.into();
        header.tos = self.tos;
        let mut packet = [header.as_bytes(), options, transport].concat();
        ipv4::fill_checksum(&mut packet);
        packet
    }

    fn in_v6(&self, transport: &[u8]) -> Vec<u8> {
        let options: &[u8] = match self.options {
            true => &[protocol::UDP, 0, 1, 4, 0, 0, 0, 0],
            false => &[],
        };
        let next = match self.options {
            true => protocol::DESTINATION_OPTIONS,
            false => protocol::UDP,
        };
        let (src, dst) = (self.src_v6().into(), OWN_V6.into());
        let len = options.len() + transport.len();
        let mut header = Ipv6Header::new(src, dst, next, self.ttl, len as u16);
        header.set_traffic_class(self.tos);
        let mut packet = [header.as_bytes(), options, transport].concat();
        packet[3] = self.flow_label;
        packet
    }
}

/// A stack with a socket on [`PORT`] that takes joined datagrams.
fn bench() -> (Bench, SocketId) {
    let bench = Bench::new();
    let id = open(&bench, PORT);
    bench.stack.udp_set_gro(id, true).unwrap();
    (bench, id)
}

fn open(bench: &Bench, port: u16) -> SocketId {
    let id = bench.stack.udp_open(IpVersion::V6).unwrap();
    let any = core::net::Ipv6Addr::UNSPECIFIED;
    bench.stack.udp_bind(id, (any, port).into()).unwrap();
    id
}

/// What a batch of packets is after the stage.
fn coalesced(bench: &mut Bench, packets: &[Vec<u8>], per_buffer: usize) -> Vec<Packet> {
    let mut sorted = Sorted::new();
    let mut batch: Vec<_> = packets
        .iter()
        .enumerate()
        .map(|(lane, bytes)| bench.packet_in_lane(&mut sorted, lane, bytes, per_buffer))
        .collect();
    bench.run(|cx| coalesce(cx, &mut sorted, &mut batch));
    let lanes: Vec<_> = sorted.others.iter().collect();
    let kept: Vec<_> = (0..batch.len()).collect();
    assert_eq!(lanes, kept, "each packet has its lane");
    batch
}

/// How many datagrams the packets are that come out of a batch.
fn counts(bench: &mut Bench, datagrams: &[Datagram]) -> Vec<usize> {
    let bytes: Vec<_> = datagrams.iter().map(Datagram::bytes).collect();
    let batch = coalesced(bench, &bytes, 1_800);
    batch.iter().map(datagrams_in).collect()
}

fn datagrams_in(packet: &Packet) -> usize {
    let payload = packet.total_len() - usize::from(packet.l4_offset) - UdpHeader::LEN;
    let size = packet.gso.map_or(usize::MAX, |gso| gso.size.get().into());
    payload.div_ceil(size).max(1)
}

/// Three datagrams of a flow with these identifications, the second one changed.
fn with_odd_second(
    version: IpVersion,
    ids: [u16; 3],
    change: impl Fn(&mut Datagram),
) -> [Datagram; 3] {
    let mut datagrams = ids.map(|id| Datagram::new(version, 100, id));
    change(&mut datagrams[1]);
    datagrams
}

/// What hosts number most datagrams with today: all alike.
const ATOMIC: [u16; 3] = [0; 3];

type Change = fn(&mut Datagram);

#[test]
fn what_is_joined_and_what_is_not() {
    let cases: &[(&str, &[usize], Change)] = &[
        ("alike", &[3], |_| {}),
        ("a shorter one is the last", &[2, 1], |it| it.payload = 99),
        ("a longer one begins anew", &[1, 2], |it| it.payload = 101),
        ("an empty one", &[1, 1, 1], |it| it.payload = 0),
        ("another source port", &[2, 1], |it| it.src_port += 1),
        ("another destination port", &[2, 1], |it| it.dst_port += 1),
        ("another source", &[2, 1], |it| it.last_of_src += 1),
        ("another TTL", &[1, 1, 1], |it| it.ttl -= 1),
        ("another TOS", &[1, 1, 1], |it| it.tos = 1),
        ("no checksum", &[1, 1, 1], |it| it.checksum = Sum::None),
        ("a wrong checksum", &[1, 1, 1], |it| {
            it.checksum = Sum::Wrong;
        }),
        ("options", &[1, 1, 1], |it| it.options = true),
        ("shorter than IP says", &[1, 1, 1], |it| it.claims = -1),
        ("longer than IP says", &[1, 1, 1], |it| it.claims = 1),
    ];
    for version in [IpVersion::V4, IpVersion::V6] {
        for (what, expected, change) in cases {
            let (mut bench, _) = bench();
            let datagrams = with_odd_second(version, ATOMIC, change).map(|datagram| Datagram {
                fragment: ipv4::FLAG_DF,
                ..datagram
            });
            let found = counts(&mut bench, &datagrams);
            assert_eq!(&found, expected, "{what}, {version:?}");
            assert_eq!(bench.in_use(), 0);
        }
    }
}

#[test]
fn what_concerns_one_family_alone() {
    const DF: u16 = ipv4::FLAG_DF;
    let (v4, v6) = (IpVersion::V4, IpVersion::V6);
    let cases: &[(&str, IpVersion, &[usize], Change)] = &[
        ("another flow label", v6, &[1, 1, 1], |it| it.flow_label = 1),
        ("DF on one alone", v4, &[1, 1, 1], |it| it.fragment = DF),
        ("another identification", v4, &[1, 1, 1], |it| it.id = 9),
        ("the same one, without DF", v4, &[1, 1, 1], |it| it.id = 5),
        ("a first fragment", v4, &[1, 1, 1], |it| {
            it.fragment = 0x2000;
        }),
        ("a later fragment", v4, &[1, 1, 1], |it| {
            it.fragment = 0x0010;
        }),
    ];
    for (what, version, expected, change) in cases {
        let (mut bench, _) = bench();
        let found = counts(&mut bench, &with_odd_second(*version, [5, 6, 7], change));
        assert_eq!(&found, expected, "{what}");
    }
}

#[test]
fn with_df_identifications_count_up_or_stay() {
    for (ids, expected) in [
        ([1, 2, 3], &[3][..]),
        ([0, 0, 0], &[3]),
        ([65_535, 0, 1], &[3]),
        ([1, 1, 2], &[2, 1]),
        ([1, 2, 2], &[2, 1]),
        ([9, 4, 7], &[1, 1, 1]),
    ] {
        let datagrams = ids.map(|id| Datagram {
            fragment: ipv4::FLAG_DF,
            ..Datagram::new(IpVersion::V4, 50, id)
        });
        let (mut bench, _) = bench();
        assert_eq!(counts(&mut bench, &datagrams), expected, "{ids:?}");
    }
}

#[test]
fn who_gets_them_joined() {
    type Prepare = fn(&Bench, SocketId);
    let cases: &[(&str, bool, Prepare)] = &[
        ("who asked", true, |_, _| {}),
        ("who asked no more", false, |bench, id| {
            bench.stack.udp_set_gro(id, false).unwrap();
        }),
        ("not who filters", false, |bench, id| {
            let all = [crate::filter::Instruction {
                code: 0x06,
                jt: 0,
                jf: 0,
                k: u32::MAX,
            }];
            bench.stack.udp_attach_filter(id, &all).unwrap();
        }),
        ("nobody, where only another asked", false, |bench, id| {
            let other = open(bench, PORT + 1);
            bench.stack.udp_set_gro(other, true).unwrap();
            bench.stack.udp_set_gro(id, false).unwrap();
        }),
        ("nobody, once it is closed", false, |bench, id| {
            bench.stack.udp_close(id).unwrap();
        }),
    ];
    for version in [IpVersion::V4, IpVersion::V6] {
        for (what, joined, prepare) in cases {
            let (mut bench, id) = bench();
            prepare(&bench, id);
            let datagrams = with_odd_second(version, [5, 6, 7], |_| {});
            let expected: &[usize] = if *joined { &[3] } else { &[1, 1, 1] };
            assert_eq!(counts(&mut bench, &datagrams), expected, "{what}");
        }
    }
}

#[test]
fn the_key_is_on_while_a_socket_asks() {
    let (bench, id) = bench();
    let is_on = || bench.stack.demux.gro_key().is_enabled();
    assert!(is_on());
    bench.stack.udp_set_gro(id, true).unwrap();
    bench.stack.udp_set_gro(id, false).unwrap();
    assert!(!is_on(), "it counts sockets, not calls");
    bench.stack.udp_set_gro(id, true).unwrap();
    let other = open(&bench, PORT + 1);
    bench.stack.udp_set_gro(other, true).unwrap();
    bench.stack.udp_close(id).unwrap();
    assert!(is_on());
    bench.stack.udp_close(other).unwrap();
    assert!(!is_on());
}

#[test]
fn more_flows_than_are_held_lose_only_the_joining() {
    let (mut bench, _) = bench();
    let flows = MAX_HEADS as u16 + 1;
    let datagrams: Vec<_> = (0..3 * flows)
        .map(|nth| Datagram {
            src_port: 1_000 + nth % flows,
            ..Datagram::new(IpVersion::V4, 20, nth / flows)
        })
        .collect();
    let found = counts(&mut bench, &datagrams);
    assert_eq!(found.iter().sum::<usize>(), datagrams.len());
    assert_eq!(
        counts(&mut bench, &datagrams[..usize::from(flows) - 1]).len(),
        MAX_HEADS
    );
}

#[test]
fn a_packet_never_grows_beyond_what_its_length_field_holds() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let (mut bench, _) = bench();
        let datagrams: Vec<_> = (0..60)
            .map(|id| Datagram::new(version, 1_400, id))
            .collect();
        let bytes: Vec<_> = datagrams.iter().map(Datagram::bytes).collect();
        let batch = coalesced(&mut bench, &bytes, 1_800);
        assert_eq!(batch.iter().map(datagrams_in).collect::<Vec<_>>(), [46, 14]);
        assert!(batch.iter().all(|packet| packet.total_len() <= 65_535));
    }
}

/// What a peer might send: few flows, so that there is something to join, and of all oddities some.
fn any_datagram() -> impl Strategy<Value = Datagram> {
    let version = prop_oneof![Just(IpVersion::V4), Just(IpVersion::V6)];
    let payload = prop_oneof![6 => Just(60_usize), 2 => 0..60_usize, 1 => 60..2_500_usize];
    let checksum = prop_oneof![20 => Just(Sum::Right), 1 => Just(Sum::Wrong), 1 => Just(Sum::None)];
    let fragment = prop_oneof![12 => Just(ipv4::FLAG_DF), 1 => Just(0_u16), 1 => Just(0x2000_u16)];
    let rare = || prop_oneof![15 => Just(0_u8), 1 => Just(1_u8)];
    let options = prop::bool::weighted(0.04);
    (
        version,
        payload,
        0..3_u16,
        (checksum, fragment),
        (rare(), rare(), rare()),
        options,
    )
        .prop_map(
            |(version, payload, port, (checksum, fragment), (ttl, tos, flow_label), options)| {
                Datagram {
                    src_port: 1_000 + port,
                    checksum,
                    fragment,
                    ttl: 64 - ttl,
                    tos,
                    flow_label,
                    options,
                    ..Datagram::new(version, payload, 0)
                }
            },
        )
}

/// Gives each flow identifications that count up, or that stay.
fn number(datagrams: &mut [Datagram], fixed: [bool; 3]) {
    let mut next = [0_u16; 3];
    for datagram in datagrams {
        let flow = usize::from(datagram.src_port - 1_000);
        datagram.id = next[flow];
        if !fixed[flow] {
            next[flow] += 1;
        }
    }
}

/// Cut again, a packet is what it was made of.
fn segments(bench: &mut Bench, packet: Packet) -> Vec<Vec<u8>> {
    let segments = bench.run(|cx| segment::segment(cx, packet));
    segments.iter().map(bytes_of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_lost_changed_or_overtaken(
        mut datagrams in prop::collection::vec(any_datagram(), 1..64),
        fixed: [bool; 3],
        per_buffer in 70_usize..1_800,
    ) {
        number(&mut datagrams, fixed);
        let (mut bench, _) = bench();
        let sent: Vec<_> = datagrams.iter().map(Datagram::bytes).collect();
        let batch = coalesced(&mut bench, &sent, per_buffer);
        let came: Vec<_> = batch
            .into_iter()
            .flat_map(|packet| segments(&mut bench, packet))
            .collect();
        // Of each source, everything in its order; those between flows may change places.
        let of_source = |all: &[Vec<u8>], port: u16, version: u8| -> Vec<Vec<u8>> {
            let is_of = |packet: &&Vec<u8>| {
                let at = if version == 6 { 40 } else { usize::from(packet[0] & 15) * 4 };
                packet[0] >> 4 == version && packet[at..at + 2] == port.to_be_bytes()
            };
            all.iter().filter(is_of).cloned().collect()
        };
        for port in 1_000..1_003 {
            for version in [4, 6] {
                prop_assert_eq!(
                    of_source(&came, port, version),
                    of_source(&sent, port, version)
                );
            }
        }
        prop_assert_eq!(came.len(), sent.len());
        prop_assert_eq!(bench.in_use(), 0);
    }
}

#[test]
fn a_joined_packet_is_what_a_sender_leaves_to_its_device() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let (mut bench, _) = bench();
        let bytes: Vec<_> = [(100, 1), (100, 2), (30, 3)]
            .map(|(payload, id)| Datagram::new(version, payload, id).bytes())
            .into();
        let mut batch = coalesced(&mut bench, &bytes, 1_800);
        let packet = batch.pop().unwrap();
        assert!(batch.is_empty());
        let size = NonZeroU16::new(100).unwrap();
        assert_eq!(packet.gso, Some(Gso::new(size, GsoKind::Udp)));
        assert_eq!(packet.buffers(), 3, "nothing was copied");
        assert_eq!(bench.count(Counter::ForebayGroJoined), 2);
        let mut whole = bytes_of(&packet);
        let start = packet.l4_offset;
        assert_eq!(packet.checksum, ChecksumState::Partial { start, offset: 6 });
        let at = usize::from(start);
        assert_eq!(whole.len(), at + 8 + 230);
        assert_eq!(whole[at + 4..at + 6], 238_u16.to_be_bytes());
        match version {
            IpVersion::V4 => {
                assert_eq!(whole[2..4], 258_u16.to_be_bytes());
                let found = whole[10..12].to_vec();
                ipv4::fill_checksum(&mut whole);
                assert_eq!(whole[10..12], found);
            }
            IpVersion::V6 => assert_eq!(whole[4..6], 238_u16.to_be_bytes()),
        }
        drop(packet);
    }
}
