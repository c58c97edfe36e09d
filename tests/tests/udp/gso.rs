//! One send, many datagrams (`UDP_SEGMENT`).

use std::io::{IoSlice, IoSliceMut};

use forebay_stack::counters::Counter;
use forebay_stack::interface::{InterfaceConfig, Offload};
use forebay_stack::packet::{ChecksumState, Gso, GsoKind};
use forebay_stack::transmit::SendError;
use forebay_stack::udp::{Message, MtuDiscover, UdpSendError};
use forebay_stack::wire::protocol;
use forebay_tests::{Net, everywhere, packets};

use super::*;

const PORT: u16 = 53;

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn send(
    rig: &Rig,
    id: SocketId,
    to: SocketAddr,
    len: usize,
    size: Option<u16>,
) -> Result<(), UdpSendError> {
    let bytes = payload(len);
    let message = Message {
        payload: &[IoSlice::new(&bytes)],
        to: Some(to),
        segment_size: size,
        ..Message::default()
    };
    rig.stack.udp_send_message(rig.now(), id, &message)
}

/// The payloads of what left by tun0; each packet is right in itself.
fn sent(rig: &mut Rig) -> Vec<Vec<u8>> {
    let output = rig.output("tun0");
    let parsed = output.iter().map(|packet| packets::parse(packet));
    let datagrams = parsed.filter(|packet| packet.protocol == protocol::UDP);
    datagrams.map(|packet| packet.udp().2.to_vec()).collect()
}

/// As Linux 6.18 answers, whatever is done about the path's MTU.
#[test]
fn sizes_are_checked_as_linux_does() {
    const TOO_LONG: Result<(), SendError> = Err(SendError::MessageTooLong);
    const INVALID: Result<(), SendError> = Err(SendError::InvalidArgument);
    let hows = [
        MtuDiscover::Dont,
        MtuDiscover::Want,
        MtuDiscover::Do,
        MtuDiscover::Probe,
        MtuDiscover::Interface,
        MtuDiscover::Omit,
    ];
    for net in [Net::V4, Net::V6] {
        let fits = net.pick(1_472, 1_452);
        let largest = net.pick(65_507, 65_527);
        let cases: [(usize, u16, Result<(), SendError>); 17] = [
            (2 * 1_400, fits, Ok(())),
            (2 * 1_400, fits + 1, TOO_LONG),
            (usize::from(fits), fits + 1, Ok(())),
            (usize::from(fits) + 1, fits + 1, TOO_LONG),
            (100, u16::MAX, Ok(())),
            (0, 10, Ok(())),
            (10, 10, Ok(())),
            (128, 1, Ok(())),
            (129, 1, INVALID),
            (1_280, 10, Ok(())),
            (1_281, 10, INVALID),
            (largest, 1_400, Ok(())),
            (largest + 1, 1_400, TOO_LONG),
            (largest + 1, 1, TOO_LONG),
            (largest, fits + 1, TOO_LONG),
            (largest, 1, INVALID),
            (100, 0, Ok(())),
        ];
        let mut rig = Rig::new();
        let id = rig.bind(net.own(PORT));
        for how in hows {
            rig.stack.udp_set_mtu_discover(id, how).expect("open");
            for (len, size, expected) in cases {
                let expected = expected.map_err(UdpSendError::Network);
                let by_message = send(&rig, id, net.peer(7), len, Some(size));
                assert_eq!(by_message, expected, "{len} bytes by {size}, {how:?}");
                assert_eq!(rig.stack.udp_set_segment(id, size), Ok(()));
                assert_eq!(rig.stack.udp_segment(id), Ok(size));
                let by_option = send(&rig, id, net.peer(7), len, None);
                assert_eq!(by_option, expected, "{len} bytes by {size}, {how:?}");
                let mut one_send: Vec<_> = match size {
                    0 => vec![payload(len)],
                    _ => payload(len).chunks(size.into()).map(Vec::from).collect(),
                };
                if len == 0 {
                    one_send.push(Vec::new());
                }
                let mut all = [one_send.clone(), one_send].concat();
                all.retain(|_| expected.is_ok());
                assert_eq!(sent(&mut rig), all, "{len} bytes by {size}");
            }
            rig.stack.udp_set_segment(id, 0).expect("open");
        }
    }
}

#[test]
fn a_message_says_otherwise_than_its_socket() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        rig.stack.udp_set_segment(id, 1_000).expect("open");
        for (size, expected) in [
            (None, &[1_000, 200][..]),
            (Some(700), &[700, 500]),
            (Some(0), &[1_200]),
            (Some(1_200), &[1_200]),
        ] {
            send(&rig, id, net.peer(7), 1_200, size).expect("a route");
            let lens: Vec<_> = sent(&mut rig).iter().map(Vec::len).collect();
            assert_eq!(lens, expected, "{size:?}");
        }
        // The slot's next socket begins without.
        rig.close(id);
        let next = rig.bind(net.own(PORT));
        assert_eq!(rig.stack.udp_segment(next), Ok(0));
    });
}

#[test]
fn it_counts_as_one_and_leaves_as_several() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        send(&rig, id, net.peer(7), 3_001, Some(1_000)).expect("a route");
        let output = rig.output("tun0");
        assert_eq!(output.len(), 4);
        if net.is_v4() {
            let field = |at: usize| -> Vec<_> {
                let field = |packet: &Vec<u8>| u16::from_be_bytes([packet[at], packet[at + 1]]);
                output.iter().map(field).collect()
            };
            let first = field(4)[0];
            let counted: Vec<_> = (0..4).map(|nth| first.wrapping_add(nth)).collect();
            assert_eq!(field(4), counted, "identifications");
            assert_eq!(field(6), [0x4000; 4], "DF");
        }
        let sent = net.pick(Counter::UdpOutDatagrams, Counter::Udp6OutDatagrams);
        let requests = net.pick(Counter::IpOutRequests, Counter::Ip6OutRequests);
        assert_eq!((rig.count(sent), rig.count(requests)), (1, 1));
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn a_device_that_segments_gets_one_packet() {
    everywhere(|mut rig, net| {
        let offload = Offload {
            checksum: true,
            udp_segmentation: true,
            ..Offload::default()
        };
        let config = InterfaceConfig {
            offload,
            ..InterfaceConfig::new("tun2")
        };
        let tun2 = rig.stack.add_interface(config).expect("a new name");
        let own: IpAddr = if net.is_v4() {
            "10.2.0.1".parse().expect("an address")
        } else {
            "fd02::1".parse().expect("an address")
        };
        let added = rig.stack.add_address(tun2, own, net.prefix_len);
        added.expect("a new address");
        let peer: SocketAddr = net.pick("10.2.0.2:7", "[fd02::2]:7").parse().expect("one");
        let id = rig.bind((own, PORT));
        send(&rig, id, peer, 3_001, Some(1_000)).expect("a route");
        send(&rig, id, peer, 1_000, Some(1_000)).expect("a route");
        let output = rig.output_with_meta("tun2");
        let [(whole, meta), (one, alone)] = &output[..] else {
            panic!("{} packets", output.len());
        };
        let headers = net.pick(28, 48);
        let size = 1_000.try_into().expect("not 0");
        assert_eq!(whole.len(), headers + 3_001);
        assert_eq!(whole[headers..], payload(3_001));
        assert_eq!(meta.gso, Some(Gso::new(size, GsoKind::Udp)));
        let start = headers as u16 - 8;
        let left = ChecksumState::Partial { start, offset: 6 };
        assert_eq!(meta.checksum, left);
        assert_eq!((one.len(), alone.gso), (headers + 1_000, None));
    });
}

#[test]
fn over_the_loopback_it_goes_whole_to_who_asked_and_one_by_one_to_others() {
    everywhere(|mut rig, net| {
        let sender = rig.bind(net.own(PORT));
        let (asks, other) = (rig.bind(net.own(1)), rig.bind(net.own(2)));
        rig.stack.udp_set_gro(asks, true).expect("open");
        for connected in [false, true] {
            if connected {
                for id in [asks, other] {
                    rig.connect(id, net.own(PORT));
                }
            }
            for port in [1, 2] {
                send(&rig, sender, net.own(port), 2_500, Some(1_000)).expect("a route");
                send(&rig, sender, net.own(port), 900, Some(1_000)).expect("a route");
            }
            rig.poll();
            assert_eq!(rig.stack.udp_next_len(asks), Ok(2_500));
            let (received, bytes) = recv(&rig, asks).expect("all of it");
            assert_eq!(
                (received.full_len, received.segment_size),
                (2_500, Some(1_000))
            );
            assert_eq!(bytes, payload(2_500));
            let (received, bytes) = recv(&rig, asks).expect("one alone");
            assert_eq!((bytes.len(), received.segment_size), (900, None));
            assert_eq!(recv(&rig, asks), None);

            assert_eq!(rig.stack.udp_next_len(other), Ok(1_000));
            let singly: Vec<_> = std::iter::from_fn(|| recv(&rig, other)).collect();
            let lens: Vec<_> = singly.iter().map(|(it, _)| it.len).collect();
            assert_eq!(lens, [1_000, 1_000, 500, 900]);
            assert!(singly.iter().all(|(it, _)| it.segment_size.is_none()));
            let joined: Vec<u8> = singly[..3].iter().flat_map(|it| it.1.clone()).collect();
            assert_eq!(joined, payload(2_500));
        }
        let read = net.pick(Counter::UdpInDatagrams, Counter::Udp6InDatagrams);
        assert_eq!(rig.count(read), 2 * (2 + 4));
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
        assert_eq!(rig.drops(), []);
    });
}

#[test]
fn peeking_cutting_off_and_handing_out_know_it_whole() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        rig.stack.udp_set_gro(id, true).expect("open");
        let again = |rig: &mut Rig| {
            send(rig, id, net.own(PORT), 2_500, Some(1_000)).expect("a route");
            rig.poll();
        };
        again(&mut rig);
        let mut buf = [0; 1_500];
        for peek in [true, false] {
            let bufs = &mut [IoSliceMut::new(&mut buf)];
            let received = rig.stack.udp_recv_vectored(id, bufs, peek);
            let received = received.expect("open").expect("a datagram");
            let lens = (received.len, received.full_len, received.segment_size);
            assert_eq!(lens, (1_500, 2_500, Some(1_000)), "peek: {peek}");
            assert_eq!(buf[..], payload(1_500));
        }
        assert_eq!(recv(&rig, id), None, "what did not fit is lost");
        again(&mut rig);
        let mut slots = [RecvSlot::new(&mut buf)];
        assert_eq!(rig.stack.udp_recv_batch(id, &mut slots), Ok(1));
        let [slot] = slots;
        assert_eq!(slot.received.expect("one").segment_size, Some(1_000));
        again(&mut rig);
        let taken = rig.stack.udp_take(id).expect("open").expect("one");
        assert_eq!(taken.about().segment_size, Some(1_000));
        let bytes: Vec<u8> = taken.chunks().flatten().copied().collect();
        assert_eq!(bytes, payload(2_500));
        drop(taken);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn every_member_of_a_group_gets_the_datagrams() {
    everywhere(|mut rig, net| {
        let group: IpAddr = net.pick("239.1.1.1", "ff05::1:1").parse().expect("one");
        let tun0 = rig.ifindex("tun0");
        let members = [7, 7].map(|port| rig.bind(net.any(port)));
        rig.stack.udp_set_gro(members[0], true).expect("open");
        for id in members {
            let joined = rig.stack.udp_join_group(id, group, Some(tun0));
            joined.expect("a new membership");
        }
        rig.output("tun0");
        let sender = rig.bind(net.own(PORT));
        send(&rig, sender, (group, 7).into(), 2_500, Some(1_000)).expect("a route");
        rig.poll();
        for id in members {
            let lens: Vec<_> = drain(&rig, id).iter().map(Vec::len).collect();
            assert_eq!(lens, [1_000, 1_000, 500]);
        }
        let on_the_wire: Vec<_> = sent(&mut rig).iter().map(Vec::len).collect();
        assert_eq!(on_the_wire, [1_000, 1_000, 500]);
        for id in members {
            rig.close(id);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}
