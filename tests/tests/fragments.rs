//! Fragments in, fragments out, segments, options and extension headers, seen from the neighbours.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::{Gso, GsoKind, PacketQueue};
use forebay_stack::wire::icmp::{v4, v6};
use forebay_stack::wire::ipv4::{FLAG_DF, FLAG_MF};
use forebay_stack::wire::{FragmentHeader, Ipv4Header, TcpHeader, ipv4, protocol};
use forebay_tests::packets::{self, parse};
use forebay_tests::{Rig, V4, V6};
use zerocopy::{FromBytes, IntoBytes};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn echo(src: impl Into<IpAddr>, dst: impl Into<IpAddr>, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    let kind = if src.is_ipv4() { v4::ECHO } else { v6::ECHO };
    packets::icmp(src, dst, kind, 0, 0x1234_5678, payload)
}

/// Cuts a packet after every `size` bytes of payload.
fn cut(packet: &[u8], size: usize, id: u32) -> Vec<Vec<u8>> {
    let is_v4 = packet[0] >> 4 == 4;
    let (header, payload) = packet.split_at(if is_v4 { 20 } else { 40 });
    let mut fragments = vec![];
    for (at, part) in payload.chunks(size).enumerate() {
        let (offset, more) = (at * size, (at + 1) * size < payload.len());
        let mut fragment = if is_v4 {
            [header, part].concat()
        } else {
            let next = FragmentHeader::new(header[6], offset as u16, more, id);
            let mut fragment = [header, next.as_bytes(), part].concat();
            fragment[4..6].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
            fragment[6] = protocol::FRAGMENT;
            fragment
        };
        if is_v4 {
            let len = fragment.len() as u16;
            let (ip, _) = Ipv4Header::mut_from_prefix(&mut fragment).expect("an IPv4 header");
            ip.total_len = len.into();
            ip.id = (id as u16).into();
            ip.fragment = ((offset / 8) as u16 | if more { FLAG_MF } else { 0 }).into();
            ipv4::fill_checksum(&mut fragment);
        }
        fragments.push(fragment);
    }
    fragments
}

/// Puts fragments that come in order together again; gives header and payload.
fn join(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = vec![];
    for fragment in fragments {
        let parsed = parse(fragment);
        let (offset, data) = match parsed.protocol {
            protocol::FRAGMENT => {
                let (header, data) =
                    FragmentHeader::ref_from_prefix(&parsed.payload).expect("a fragment header");
                (header.fragment_offset(), data)
            }
            _ => {
                let (ip, _) = Ipv4Header::ref_from_prefix(fragment).expect("an IPv4 header");
                (ip.fragment_offset(), &parsed.payload[..])
            }
        };
        assert_eq!(offset, payload.len());
        payload.extend_from_slice(data);
    }
    payload
}

#[test]
fn a_large_echo_comes_and_goes_in_fragments() {
    let pairs: [(IpAddr, IpAddr); 2] = [
        (V4::PEER.into(), V4::OWN.into()),
        (V6::PEER.into(), V6::OWN.into()),
    ];
    for (peer, own) in pairs {
        let mut rig = Rig::new();
        let request = echo(peer, own, &pattern(3_000));
        let mut fragments = cut(&request, 1_000, 7);
        fragments.reverse();
        rig.inject_all("tun0", &fragments);
        let reply = join(&rig.output("tun0"));
        assert_eq!(&reply[8..], pattern(3_000));
        let is_reply = reply[0] == v4::ECHO_REPLY || reply[0] == v6::ECHO_REPLY;
        assert!(is_reply, "{}", reply[0]);
        assert_eq!(rig.buffers_in_use(), 0);
    }
}

#[test]
fn routers_cut_what_may_be_cut() {
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    rig.stack.set_mtu(tun1, 1_000).unwrap();
    let packet = packets::udp(V4::PEER, V4::PEER1, 5, 6, &pattern(1_200));
    rig.inject("tun0", &packet);
    let fragments = rig.output("tun1");
    let described: Vec<_> = fragments
        .iter()
        .map(|fragment| {
            let (ip, payload) = Ipv4Header::ref_from_prefix(fragment).unwrap();
            (ip.fragment.get(), payload.len(), ip.ttl)
        })
        .collect();
    assert_eq!(described, [(FLAG_MF, 976, 63), (976 / 8, 232, 63)]);
    assert_eq!(join(&fragments), packet[20..]);
    assert_eq!(rig.count(Counter::IpFragCreates), 2);

    let mut unwilling = packet.clone();
    unwilling[6..8].copy_from_slice(&FLAG_DF.to_be_bytes());
    ipv4::fill_checksum(&mut unwilling);
    rig.inject("tun0", &unwilling);
    assert!(rig.output("tun1").is_empty());
    let told = parse(&rig.output("tun0")[0]);
    assert_eq!((told.icmp(), told.icmp_rest()), ((3, 4), 1_000));
}

#[test]
fn a_merged_packet_is_judged_by_its_segments_and_leaves_in_them() {
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    rig.stack.set_mtu(tun1, 1_466).unwrap();
    let pairs: [(IpAddr, IpAddr); 2] = [
        (V4::PEER.into(), V4::PEER1.into()),
        (V6::PEER.into(), V6::PEER1.into()),
    ];
    for (src, dst) in pairs {
        let bytes = packets::tcp((src, 5), (dst, 6), 1_000, 0, 0x18, &pattern(20_000));
        let mut packet = rig.packet(&bytes);
        packet.gso = Some(Gso::new(
            NonZeroU16::new(1_400).unwrap(),
            GsoKind::Tcp { ecn: false },
        ));
        let mut queue = PacketQueue::new();
        queue.push(packet);
        rig.receive("tun0", &mut queue);
        let segments = rig.output("tun1");
        assert_eq!(segments.len(), 15);
        let mut stream = vec![];
        for segment in &segments {
            let parsed = parse(segment);
            let (tcp, data) = TcpHeader::ref_from_prefix(&parsed.payload).unwrap();
            assert_eq!(tcp.seq.get() as usize, 1_000 + stream.len());
            stream.extend_from_slice(data);
            assert_eq!(
                tcp.flags & 8 != 0,
                stream.len() == 20_000,
                "PSH on the last"
            );
        }
        assert_eq!(stream, pattern(20_000));
    }
    assert_eq!(rig.buffers_in_use(), 0);
}

/// Datagrams that came as one packet go on by their own sizes: as they are, in fragments where that
/// is allowed, or not at all.
#[test]
fn datagrams_that_came_as_one_go_on_by_their_own_sizes() {
    let pairs: [(IpAddr, IpAddr); 2] = [
        (V4::PEER.into(), V4::PEER1.into()),
        (V6::PEER.into(), V6::PEER1.into()),
    ];
    for ((src, dst), headers) in pairs.into_iter().zip([28, 48]) {
        for (size, df, goes) in [
            (1_466 - headers, true, true),
            (1_467 - headers, true, false),
            (1_466 - headers, false, true),
            (1_467 - headers, false, src.is_ipv4()),
        ] {
            let mut rig = Rig::new();
            let tun1 = rig.ifindex("tun1");
            rig.stack.set_mtu(tun1, 1_466).unwrap();
            let mut bytes = packets::udp(src, dst, 5, 6, &pattern(10_000));
            if src.is_ipv4() {
                bytes = packets::with_fragment_field(bytes, if df { FLAG_DF } else { 0 });
            }
            let mut packet = rig.packet(&bytes);
            let each = NonZeroU16::new(size).unwrap();
            packet.gso = Some(Gso::new(each, GsoKind::Udp));
            let mut queue = PacketQueue::new();
            queue.push(packet);
            rig.receive("tun0", &mut queue);
            let output = rig.output("tun1");
            assert!(output.iter().all(|packet| packet.len() <= 1_466));
            let told = rig.output("tun0");
            if !goes {
                assert!(output.is_empty());
                let told = parse(&told[0]);
                let expected = if src.is_ipv4() { (3, 4) } else { (2, 0) };
                assert_eq!((told.icmp(), told.icmp_rest()), (expected, 1_466));
                continue;
            }
            assert!(told.is_empty());
            let whole = usize::from(size);
            let fits = whole + usize::from(headers) <= 1_466;
            let datagrams = 10_000_usize.div_ceil(whole);
            // All but the last are a byte too long for one piece.
            let pieces = if fits { datagrams } else { 2 * datagrams - 1 };
            assert_eq!(output.len(), pieces, "{src}: {size} bytes");
            if fits {
                let parsed = output.iter().map(|packet| parse(packet));
                let sent = parsed.flat_map(|packet| packet.udp().2.to_vec());
                assert_eq!(sent.collect::<Vec<_>>(), pattern(10_000));
            } else {
                assert_eq!(rig.count(Counter::IpFragOKs), datagrams as u64 - 1);
                let datagram = join(&output[..2]);
                assert_eq!(datagram[8..], pattern(10_000)[..whole]);
            }
            assert_eq!(rig.buffers_in_use(), 0);
        }
    }
}

#[test]
fn fragments_are_forwarded_as_they_are() {
    let mut rig = Rig::new();
    let packet = packets::udp(V4::PEER, V4::PEER1, 5, 6, &pattern(2_000));
    let last_first: Vec<_> = cut(&packet, 1_000, 9).into_iter().rev().collect();
    rig.inject_all("tun0", &last_first);
    let forwarded = rig.output("tun1");
    assert_eq!(forwarded.len(), last_first.len());
    for (before, after) in last_first.iter().zip(&forwarded) {
        assert_eq!(before[20..], after[20..]);
        assert_eq!(before[4..8], after[4..8]);
    }
    assert_eq!(rig.count(Counter::IpReasmReqds), 0);
}

#[test]
fn time_runs_out_for_half_a_datagram() {
    let mut rig = Rig::new();
    let pairs: [(IpAddr, IpAddr); 2] = [
        (V4::PEER.into(), V4::OWN.into()),
        (V6::PEER.into(), V6::OWN.into()),
    ];
    for (peer, own) in pairs {
        let fragments = cut(&echo(peer, own, &pattern(2_000)), 1_000, 9);
        rig.inject("tun0", &fragments[0]);
        let without_first = cut(&echo(peer, own, &pattern(2_000)), 1_000, 10);
        rig.inject("tun0", &without_first[1]);
    }
    assert!(rig.poll().is_some());
    rig.advance(Duration::from_secs(61));
    let told: Vec<_> = rig
        .output("tun0")
        .iter()
        .map(|packet| parse(packet).icmp())
        .collect();
    assert_eq!(told, [(11, 1), (3, 1)]);
    assert_eq!(rig.dropped(DropReason::FragTimeout), 4);
    assert_eq!(rig.poll(), None);
    assert_eq!(rig.buffers_in_use(), 0);
}

#[test]
fn options_are_checked_on_every_way() {
    let told = |code, pointer| Some((code, pointer));
    type Case = (&'static str, &'static [u8], Option<(u8, u32)>, bool);
    let table: &[Case] = &[
        ("unknown", &[222, 4, 0, 0], None, true),
        ("router alert", &[148, 4, 0, 0], None, true),
        ("length 0", &[222, 0, 0, 0], told(0, 20), false),
        ("length 1", &[222, 1, 0, 0], told(0, 20), false),
        (
            "length beyond the header",
            &[222, 9, 0, 0],
            told(0, 20),
            false,
        ),
        (
            "pointer too small",
            &[7, 7, 3, 0, 0, 0, 0, 0],
            told(0, 22),
            false,
        ),
        ("twice", &[7, 3, 4, 7, 3, 4, 0, 0], told(0, 23), false),
        (
            "loose source route",
            &[131, 7, 4, 10, 0, 0, 9, 0],
            None,
            false,
        ),
        (
            "strict source route",
            &[137, 7, 4, 10, 0, 0, 9, 0],
            None,
            false,
        ),
    ];
    for (name, options, expected, passes) in table {
        for (dst, is_transit) in [(V4::OWN, false), (V4::PEER1, true)] {
            let mut rig = Rig::new();
            let udp = packets::udp_datagram(V4::PEER.into(), dst.into(), 5, 6, b"x");
            let packet = packets::ipv4_with_options(V4::PEER, dst, protocol::UDP, options, &udp);
            rig.inject("tun0", &packet);
            assert_eq!(
                rig.output("tun1").len(),
                usize::from(*passes && is_transit),
                "{name}"
            );
            let answers = rig.output("tun0");
            let answer = answers.first().map(|answer| parse(answer));
            match (expected, *passes && !is_transit) {
                (Some((code, pointer)), _) => {
                    let answer = answer.expect(name);
                    assert_eq!(answer.icmp(), (v4::PARAMETER_PROBLEM, *code), "{name}");
                    assert_eq!(answer.icmp_rest() >> 24, *pointer, "{name}");
                }
                (None, true) => assert_eq!(answer.expect(name).icmp(), (3, 3), "{name}"),
                (None, false) => assert_eq!(answer, None, "{name}"),
            }
        }
    }
}

#[test]
fn a_router_writes_its_address_where_it_is_asked_to() {
    let mut rig = Rig::new();
    let udp = packets::udp_datagram(V4::PEER.into(), V4::PEER1.into(), 5, 6, b"x");
    let options = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let packet = packets::ipv4_with_options(V4::PEER, V4::PEER1, protocol::UDP, &options, &udp);
    rig.inject("tun0", &packet);
    let forwarded = &rig.output("tun1")[0];
    parse(forwarded);
    let own = V4::OWN1.octets();
    assert_eq!(forwarded[20..32], [&[7, 11, 8][..], &own, &[0; 5]].concat());
}

#[test]
fn extension_headers_are_answered_with_code_and_pointer() {
    let pad = |next| vec![next, 0, 1, 4, 0, 0, 0, 0];
    let unreachable = Some((v6::DEST_UNREACH, v6::UNREACH_PORT, 0));
    let problem = |code, pointer| Some((v6::PARAMETER_PROBLEM, code, pointer));
    let (hbh, dst, routing) = (0, 60, 43);
    type Case = (&'static str, u8, Vec<u8>, Option<(u8, u8, u32)>);
    let table: &[Case] = &[
        ("options that mean nothing", hbh, pad(17), unreachable),
        ("skip", dst, vec![17, 0, 0x3e, 4, 0, 0, 0, 0], unreachable),
        ("discard", dst, vec![17, 0, 0x7e, 4, 0, 0, 0, 0], None),
        (
            "tell",
            dst,
            vec![17, 0, 0xbe, 4, 0, 0, 0, 0],
            problem(2, 42),
        ),
        (
            "tell one host",
            hbh,
            vec![17, 0, 0xfe, 4, 0, 0, 0, 0],
            problem(2, 42),
        ),
        (
            "hop-by-hop later",
            dst,
            [pad(hbh), pad(17)].concat(),
            problem(1, 40),
        ),
        (
            "segments left",
            routing,
            vec![17, 0, 0, 1, 0, 0, 0, 0],
            problem(0, 42),
        ),
        (
            "no segments left",
            routing,
            vec![17, 0, 0, 0, 0, 0, 0, 0],
            unreachable,
        ),
        ("unknown", 253, vec![], problem(1, 6)),
        ("unknown behind options", dst, pad(253), problem(1, 40)),
        ("nothing follows", 59, vec![], None),
        ("cut", dst, vec![17, 255, 1, 4, 0, 0, 0, 0], None),
    ];
    for (name, next, headers, expected) in table {
        let mut rig = Rig::new();
        let udp = packets::udp_datagram(V6::PEER.into(), V6::OWN.into(), 5, 6, b"x");
        let packet = packets::ipv6(V6::PEER, V6::OWN, *next, &[&headers[..], &udp].concat());
        rig.inject("tun0", &packet);
        let answer = rig.output("tun0").first().map(|answer| {
            let answer = parse(answer);
            let (kind, code) = answer.icmp();
            (kind, code, answer.icmp_rest())
        });
        assert_eq!(answer, *expected, "{name}");
    }
}
