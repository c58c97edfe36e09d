//! ICMP errors out and in.

use forebay_stack::socket::SocketError;
use forebay_stack::udp::RecvError;
use forebay_stack::wire::icmp;
use forebay_tests::{V4, V6, packets};

use super::*;

/// Type and code for port and host unreachable, by family.
fn unreachable(own: IpAddr) -> [(u8, u8); 2] {
    if own.is_ipv4() {
        [
            (icmp::v4::DEST_UNREACH, icmp::v4::UNREACH_PORT),
            (icmp::v4::DEST_UNREACH, icmp::v4::UNREACH_HOST),
        ]
    } else {
        [
            (icmp::v6::DEST_UNREACH, icmp::v6::UNREACH_PORT),
            (icmp::v6::DEST_UNREACH, icmp::v6::UNREACH_ADDRESS),
        ]
    }
}

#[test]
fn a_port_without_a_socket_is_told_to_good_unicast_senders_only() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            datagram(&mut rig, peer, own, (1000, 53), b"anybody?");
            let answer = packets::parse(&rig.output("tun0")[0]);
            assert_eq!((answer.dst, answer.icmp()), (peer, unreachable(own)[0]));

            let mut bad = packets::udp(peer, own, 1000, 53, b"anybody?");
            *bad.last_mut().expect("a payload") ^= 1;
            rig.inject("tun0", bad);
            assert!(rig.output("tun0").is_empty());
        }
        for group in ["10.0.0.255", "255.255.255.255", "224.0.0.1"] {
            datagram(
                &mut rig,
                V4::PEER.into(),
                group.parse().unwrap(),
                (1000, 53),
                b"x",
            );
        }
        datagram(
            &mut rig,
            V6::PEER.into(),
            "ff02::1".parse().unwrap(),
            (1000, 53),
            b"x",
        );
        assert!(rig.output("tun0").is_empty());
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn an_error_reaches_the_connected_socket_once() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = connected(&rig, own, 53, peer, 1000);
            let bystander = bound(&rig, own, 53);
            let router: IpAddr = if own.is_ipv4() {
                V4::PEER1.into()
            } else {
                V6::PEER1.into()
            };
            let [port, host] = unreachable(own);
            let sent =
                |src_port, dst_port| packets::udp(own, peer, src_port, dst_port, b"question");
            let error =
                |from, (kind, code), quote: &[u8]| packets::icmp(from, own, kind, code, 0, quote);
            let take = |rig: &Rig, id| rig.stack.udp_recv(id, &mut [], false);

            // From the peer, and from a router on the way.
            for from in [peer, router] {
                let interface = if from == peer { "tun0" } else { "tun1" };
                rig.inject(interface, error(from, port, &sent(53, 1000)));
                assert_eq!(
                    take(&rig, id),
                    Err(RecvError::Pending(SocketError::ConnectionRefused))
                );
                assert_eq!(take(&rig, id), Ok(None));
            }
            let now = rig.now();
            rig.inject("tun0", error(peer, port, &sent(53, 1000)));
            assert!(rig.stack.udp_send(now, id, b"?", None).is_err());
            assert_eq!(rig.stack.udp_send(now, id, b"?", None), Ok(()));
            rig.inject("tun0", error(peer, port, &sent(53, 1000)));
            assert_eq!(
                rig.stack.udp_take_error(id),
                Ok(Some(SocketError::ConnectionRefused))
            );

            let header = if own.is_ipv4() { 20 } else { 40 };
            let short = &sent(53, 1000)[..header + 4];
            let mut corrupt = error(peer, port, &sent(53, 1000));
            *corrupt.last_mut().expect("a quote") ^= 1;
            for ignored in [
                corrupt,
                error(peer, port, short),
                error(peer, port, &sent(53, 1001)),
                error(peer, port, &sent(54, 1000)),
                error(peer, host, &sent(53, 1000)),
            ] {
                rig.inject("tun0", ignored);
                assert_eq!(take(&rig, id), Ok(None));
            }
            assert_eq!(take(&rig, bystander), Ok(None), "it is not connected");
        }
    });
}
