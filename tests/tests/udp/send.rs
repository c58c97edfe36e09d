//! What leaves, and what is refused.

use forebay_stack::counters::Counter;
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::packet::ChecksumState;
use forebay_stack::transmit::SendError;
use forebay_stack::udp::UdpSendError;
use forebay_stack::wire::UdpHeader;
use forebay_tests::{V4, V6, packets};

use super::*;

#[test]
fn an_unbound_socket_gets_a_port_and_its_answer() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = open(&rig, own);
            rig.stack.udp_set_ttl(id, Some(7)).expect("a TTL");
            let now = rig.now();
            rig.stack
                .udp_send(now, id, b"question", Some((peer, 53).into()))
                .expect("a route");
            let sent = packets::parse(&rig.output("tun0")[0]);
            let (src_port, dst_port, payload) = sent.udp();
            assert_eq!((sent.src, sent.dst, sent.ttl), (own, peer, 7));
            assert_eq!((dst_port, payload), (53, &b"question"[..]));
            assert!((32_768..=60_999).contains(&src_port));
            let local = rig.stack.udp_local_addr(id).expect("open");
            assert_eq!(
                (local.port(), local.ip().is_unspecified()),
                (src_port, true)
            );
            datagram(&mut rig, peer, own, (53, src_port), b"answer");
            assert_eq!(drain(&rig, id), [b"answer"]);
        }
        assert_eq!(
            (
                rig.count(Counter::UdpOutDatagrams),
                rig.count(Counter::Udp6OutDatagrams)
            ),
            (1, 1)
        );
    });
}

#[test]
fn refusals_are_those_of_linux() {
    let rig = Rig::new();
    let (four, six) = (open(&rig, V4::OWN.into()), open(&rig, V6::OWN.into()));
    let send = |id, payload: &[u8], to: Option<&str>| {
        let to = to.map(|to| to.parse().expect("an address"));
        rig.stack.udp_send(rig.now(), id, payload, to)
    };
    let network = |error| Err(UdpSendError::Network(error));
    let large = vec![0; 65_536];
    assert_eq!(
        send(four, b"x", None),
        Err(UdpSendError::DestinationRequired)
    );
    assert_eq!(
        send(four, b"x", Some("[fd00::2]:7")),
        Err(UdpSendError::FamilyNotSupported)
    );
    assert_eq!(
        send(four, b"x", Some("10.0.0.2:0")),
        network(SendError::InvalidArgument)
    );
    assert_eq!(
        send(four, b"x", Some("192.0.2.1:7")),
        network(SendError::NetworkUnreachable)
    );
    assert_eq!(
        send(four, &large[..65_508], Some("10.0.0.2:7")),
        network(SendError::MessageTooLong)
    );
    assert_eq!(
        send(six, &large[..65_528], Some("[fd00::2]:7")),
        network(SendError::MessageTooLong)
    );
    for broadcast in ["10.0.0.255:7", "255.255.255.255:7"] {
        assert_eq!(
            send(four, b"x", Some(broadcast)),
            network(SendError::AccessDenied)
        );
    }
    rig.stack.udp_set_broadcast(four, true).expect("open");
    assert_eq!(send(four, b"x", Some("10.0.0.255:7")), Ok(()));
    assert_eq!(
        send(six, b"x", Some("10.0.0.2:7")),
        Ok(()),
        "a dual-stack socket"
    );
    let only = open(&rig, V6::OWN.into());
    rig.stack.udp_set_v6only(only, true).expect("not bound");
    assert_eq!(
        send(only, b"x", Some("10.0.0.2:7")),
        network(SendError::NetworkUnreachable)
    );
    rig.stack.udp_close(four).expect("open");
    assert!(matches!(
        send(four, b"x", Some("10.0.0.2:7")),
        Err(UdpSendError::NotOpen(_))
    ));
}

#[test]
fn the_largest_datagrams_leave_in_fragments_and_cross_the_loopback() {
    let mut rig = Rig::new();
    for ((own, peer), largest) in pairs().into_iter().zip([65_507, 65_527]) {
        let payload: Vec<u8> = (0..largest).map(|n| n as u8).collect();
        let id = bound(&rig, own, 53);
        rig.stack
            .udp_send(rig.now(), id, &payload, Some((peer, 7).into()))
            .expect("a route");
        let pieces = rig.output("tun0");
        assert!(pieces.len() > 40 && pieces.iter().all(|piece| piece.len() <= 1500));
        for piece in pieces {
            packets::parse(&piece);
        }
        rig.stack
            .udp_send(rig.now(), id, &payload, Some((own, 53).into()))
            .expect("a route");
        rig.poll();
        assert_eq!(drain(&rig, id), [payload]);
    }
    assert_eq!(rig.buffers_in_use(), 0);
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let id = connected(&rig, own, 1000, peer, 53);
        // The payload that brings the sum to all ones.
        let datagram = packets::udp_datagram(own, peer, 1000, 53, &[0, 0]);
        rig.stack
            .udp_send(rig.now(), id, &datagram[6..8], None)
            .expect("a route");
        let sent = packets::parse(&rig.output("tun0")[0]);
        assert_eq!(sent.payload[6..8], [0xff, 0xff]);
        rig.inject("tun0", packets::udp(peer, own, 53, 1000, b"and back"));
        assert_eq!(drain(&rig, id).len(), 1);
    }
}

#[test]
fn a_device_that_fills_checksums_gets_the_pseudo_header() {
    let mut rig = Rig::new();
    let mut config = InterfaceConfig::new("tun2");
    config.offload.checksum = true;
    let ifindex = rig.stack.add_interface(config).expect("a new name");
    for (own, peer, len) in [("10.2.0.1", "10.2.0.2", 24), ("fd02::1", "fd02::2", 64)] {
        let (own, peer): (IpAddr, IpAddr) = (own.parse().unwrap(), peer.parse().unwrap());
        rig.stack
            .add_address(ifindex, own, len)
            .expect("a new address");
        let id = bound(&rig, own, 1000);
        rig.stack
            .udp_send(rig.now(), id, b"hello", Some((peer, 53).into()))
            .expect("a route");
        let (mut bytes, meta) = rig.output_with_meta("tun2").remove(0);
        let ChecksumState::Partial { start, offset } = meta.checksum else {
            panic!("{:?}", meta.checksum)
        };
        let header = if own.is_ipv4() { 20 } else { 40 };
        assert_eq!((start, offset), (header, UdpHeader::CHECKSUM_OFFSET));
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        let sum = forebay_stack::wire::checksum::checksum(&bytes[start..]);
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        packets::parse(&bytes);
    }
}
