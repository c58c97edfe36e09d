//! What routers tell of a path's MTU, and what sockets make of it.

use std::time::Duration;

use forebay_stack::socket::SocketError;
use forebay_stack::transmit::SendError;
use forebay_stack::udp::{ErrorOrigin, MtuDiscover, UdpSendError};
use forebay_stack::wire::icmp;
use forebay_tests::{Net, Rig, everywhere, packets};

use super::*;

const PORT: u16 = 53;
const PEER_PORT: u16 = 1000;

/// A router says that the path takes `mtu`, about a datagram of the flow.
fn too_big(net: &Net, mtu: u32, own_port: u16) -> Vec<u8> {
    let about = packets::udp(
        net.own,
        net.peer,
        own_port,
        PEER_PORT,
        b"too long, they say",
    );
    let (kind, code) = net.pick(
        (icmp::v4::DEST_UNREACH, icmp::v4::UNREACH_FRAG_NEEDED),
        (icmp::v6::PACKET_TOO_BIG, 0),
    );
    packets::icmp(net.peer1, net.own, kind, code, mtu, &about)
}

/// Lengths of the IP packets that a datagram leaves in, and whether each has DF.
fn sent(
    rig: &mut Rig,
    net: &Net,
    id: SocketId,
    ip_len: usize,
) -> Result<Vec<(usize, bool)>, UdpSendError> {
    let payload = vec![7; ip_len - net.pick(28, 48)];
    let now = rig.now();
    rig.stack
        .udp_send(now, id, &payload, Some(net.peer(PEER_PORT)))?;
    let output = rig.output("tun0");
    let df = |packet: &[u8]| net.is_v4() && packet[6] & 0x40 != 0;
    Ok(output
        .iter()
        .map(|packet| (packet.len(), df(packet)))
        .collect())
}

fn known(rig: &Rig, net: &Net) -> Option<u32> {
    let path = rig.stack.path_mtu(rig.now(), net.peer);
    path.map(|path| path.mtu)
}

#[test]
fn a_path_is_learnt_from_routers_and_forgotten_in_time() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        let too_long = Err(UdpSendError::Network(SendError::MessageTooLong));
        let (df, fits) = (net.is_v4(), 1_400);
        let whole = |len| Ok(vec![(len, df)]);
        assert_eq!(sent(&mut rig, &net, id, 1_500), whole(1_500));

        // Not about a datagram of ours, not less, or less than there can be.
        rig.inject("tun0", too_big(&net, 1_400, PORT + 1));
        rig.inject("tun0", too_big(&net, 1_500, PORT));
        rig.inject("tun0", too_big(&net, 9_000, PORT));
        assert_eq!(known(&rig, &net), None);

        rig.inject("tun0", too_big(&net, 1_400, PORT));
        rig.inject("tun0", too_big(&net, 1_450, PORT));
        assert_eq!(known(&rig, &net), Some(1_400));
        assert_eq!(sent(&mut rig, &net, id, fits), whole(fits));
        let pieces = sent(&mut rig, &net, id, 1_500).expect("in fragments");
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|(len, df)| *len <= 1_400 && !df));

        // How a socket wants it: what fits the path, what fits the first link, what fits neither.
        let fragments = |rig: &mut Rig, len| {
            let pieces = sent(rig, &net, id, len).map(|pieces| pieces.len());
            pieces.map(|pieces| pieces > 1)
        };
        let refused = Err(UdpSendError::Network(SendError::MessageTooLong));
        let cases = [
            (MtuDiscover::Dont, false, Ok(true), Ok(true)),
            (MtuDiscover::Want, df, Ok(true), Ok(true)),
            (MtuDiscover::Do, df, refused, refused),
            (MtuDiscover::Probe, df, Ok(false), refused),
            (MtuDiscover::Interface, false, Ok(false), refused),
            (MtuDiscover::Omit, false, Ok(false), Ok(true)),
        ];
        for (how, with_df, link, more) in cases {
            rig.stack.udp_set_mtu_discover(id, how).expect("open");
            assert_eq!(
                sent(&mut rig, &net, id, fits),
                Ok(vec![(fits, with_df)]),
                "{how:?}"
            );
            assert_eq!(fragments(&mut rig, 1_500), link, "{how:?}");
            assert_eq!(fragments(&mut rig, 1_501), more, "{how:?}");
        }

        // Another destination has a path of its own; this one is forgotten after ten minutes.
        assert_eq!(rig.stack.path_mtu(rig.now(), net.other), None);
        rig.stack
            .udp_set_mtu_discover(id, MtuDiscover::Do)
            .expect("open");
        assert_eq!(sent(&mut rig, &net, id, 1_401), too_long);
        rig.advance(Duration::from_secs(600));
        assert_eq!(sent(&mut rig, &net, id, 1_500), whole(1_500));
        assert_eq!(known(&rig, &net), None);
    });
}

#[test]
fn a_connected_socket_can_be_asked_what_its_path_takes() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        let mtu = |rig: &Rig| rig.stack.udp_mtu(rig.now(), id);
        assert_eq!(mtu(&rig), Ok(None), "there is no path to ask for");
        rig.connect(id, net.peer(PEER_PORT));
        assert_eq!(mtu(&rig), Ok(Some(1_500)));
        rig.inject("tun0", too_big(&net, 1_400, PORT));
        assert_eq!(mtu(&rig), Ok(Some(1_400)));
        rig.advance(Duration::from_secs(600));
        assert_eq!(mtu(&rig), Ok(Some(1_500)));
        rig.stack.udp_disconnect(id).expect("open");
        assert_eq!(mtu(&rig), Ok(None));
    });
}

#[test]
fn sockets_that_do_not_listen_to_routers_learn_nothing() {
    everywhere(|mut rig, net| {
        let id = rig.bind_and_connect(net.own(PORT), net.peer(PEER_PORT));
        for how in [MtuDiscover::Interface, MtuDiscover::Omit] {
            rig.stack.udp_set_mtu_discover(id, how).expect("open");
            rig.inject("tun0", too_big(&net, 1_400, PORT));
            assert_eq!((known(&rig, &net), rig.recv(id)), (None, Ok(None)));
        }
        // One that discovers nothing learns it all the same, and is not told.
        rig.stack
            .udp_set_mtu_discover(id, MtuDiscover::Dont)
            .expect("open");
        rig.inject("tun0", too_big(&net, 1_400, PORT));
        assert_eq!((known(&rig, &net), rig.recv(id)), (Some(1_400), Ok(None)));
        rig.stack
            .udp_set_mtu_discover(id, MtuDiscover::Want)
            .expect("open");
        rig.inject("tun0", too_big(&net, 1_300, PORT));
        assert_eq!(known(&rig, &net), Some(1_300));
        assert_eq!(rig.recv(id), Err(SocketError::MessageTooLong));
        assert_eq!(rig.recv(id), Ok(None));
    });
}

/// Below the floor, IPv4 gives DF up; IPv6, whose links all take 1,280, does not believe it.
#[test]
fn no_router_makes_packets_arbitrarily_small() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        for mtu in [0, 68, 551] {
            rig.inject("tun0", too_big(&net, mtu, PORT));
            assert_eq!(known(&rig, &net), net.pick(Some(552), None));
        }
        let whole = sent(&mut rig, &net, id, 500).expect("it fits");
        assert_eq!(whole, [(500, false)]);
        rig.inject("tun0", too_big(&net, 1_280, PORT));
        assert_eq!(known(&rig, &net), net.pick(Some(552), Some(1_280)));
    });
}

#[test]
fn a_knob_turns_discovery_off() {
    everywhere(|mut rig, net| {
        rig.set("net.ipv4.ip_no_pmtu_disc", 1);
        let id = rig.bind(net.own(PORT));
        assert_eq!(sent(&mut rig, &net, id, 1_500), Ok(vec![(1_500, false)]));
        rig.inject("tun0", too_big(&net, 1_400, PORT));
        assert_eq!(known(&rig, &net), net.pick(Some(552), Some(1_400)));
        rig.advance(Duration::from_secs(600));
        rig.set("net.ipv4.ip_no_pmtu_disc", 2);
        rig.inject("tun0", too_big(&net, 1_300, PORT));
        assert_eq!(known(&rig, &net), net.pick(None, Some(1_300)));
    });
}

/// `IP_RECVERR`: everything that is known, for unconnected sockets and soft errors, too.
#[test]
fn an_error_queue_tells_all_that_is_known() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        let about = packets::udp(net.own, net.peer, PORT, PEER_PORT, b"what we sent");
        let unreachable = |code| {
            let kind = net.pick(icmp::v4::DEST_UNREACH, icmp::v6::DEST_UNREACH);
            packets::icmp(net.peer1, net.own, kind, code, 0, &about)
        };
        let port = net.pick(icmp::v4::UNREACH_PORT, icmp::v6::UNREACH_PORT);
        let host = net.pick(icmp::v4::UNREACH_HOST, icmp::v6::UNREACH_ADDRESS);
        rig.inject("tun0", unreachable(port));
        assert_eq!(rig.recv(id), Ok(None), "nobody asked");
        assert_eq!(rig.stack.udp_recv_error(id), Ok(None));

        rig.stack.udp_set_recv_err(id, true).expect("open");
        rig.inject("tun0", unreachable(port));
        rig.inject("tun0", unreachable(host));
        rig.inject("tun0", too_big(&net, 1_400, PORT));
        assert_eq!(rig.stack.udp_is_readable(id, true), Ok(true));
        let report = rig
            .stack
            .udp_recv_error(id)
            .expect("open")
            .expect("a report");
        assert_eq!(report.error, SocketError::ConnectionRefused);
        assert_eq!(
            report.origin,
            net.pick(ErrorOrigin::Icmp, ErrorOrigin::Icmp6)
        );
        assert_eq!((report.code, report.mtu), (port, None));
        assert_eq!(report.offender, Some(net.peer1));
        assert_eq!(report.to, net.peer(PEER_PORT));
        assert_eq!(report.payload, b"what we sent");
        // The next call tells the next one's.
        assert_eq!(rig.recv(id), Err(SocketError::HostUnreachable));
        assert_eq!(rig.recv(id), Ok(None));
        let report = rig
            .stack
            .udp_recv_error(id)
            .expect("open")
            .expect("a report");
        assert_eq!(report.error, SocketError::HostUnreachable);
        assert_eq!(rig.recv(id), Err(SocketError::MessageTooLong));
        let report = rig
            .stack
            .udp_recv_error(id)
            .expect("open")
            .expect("a report");
        assert_eq!(
            (report.error, report.mtu),
            (SocketError::MessageTooLong, Some(1_400))
        );
        assert_eq!(
            (rig.stack.udp_recv_error(id), rig.recv(id)),
            (Ok(None), Ok(None))
        );

        // What is refused here is told here.
        rig.stack
            .udp_set_mtu_discover(id, MtuDiscover::Do)
            .expect("open");
        assert!(sent(&mut rig, &net, id, 1_401).is_err());
        let report = rig
            .stack
            .udp_recv_error(id)
            .expect("open")
            .expect("a report");
        assert_eq!(
            (report.origin, report.mtu),
            (ErrorOrigin::Local, Some(1_400))
        );
        assert_eq!(report.to, net.peer(PEER_PORT));

        // Nobody fills memory with errors, and a closed socket leaves none behind.
        for _ in 0..100 {
            rig.inject("tun0", unreachable(port));
        }
        let reports = || rig.stack.udp_recv_error(id).expect("open");
        assert_eq!(std::iter::from_fn(reports).count(), 16);
        assert_eq!(rig.recv(id), Ok(None));
        rig.inject("tun0", unreachable(port));
        rig.close(id);
        for _ in 0..3 {
            let next = rig.bind(net.own(PORT));
            assert_eq!(
                (rig.stack.udp_recv_error(next), rig.recv(next)),
                (Ok(None), Ok(None))
            );
            rig.close(next);
        }
    });
}
