//! Sockets that move, from a port to a flow and from one interface to another: datagrams find them
//! where they are, at every moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_stack::socket::SocketId;
use forebay_tests::{Net, Rig, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

/// A socket that connects goes from a wildcard's place to a flow's; packets must find it in one or
/// the other at every moment.
#[test]
fn no_datagram_is_lost_while_its_socket_connects_and_disconnects() {
    everywhere(|rig, net| {
        let socket = rig.bind(net.any(OWN_PORT));
        let (stack, now) = (Arc::clone(&rig.stack), rig.now());
        while_it_moves(rig, &net, socket, move || {
            stack
                .udp_connect(now, socket, net.peer(PEER_PORT))
                .expect("a peer that can be reached");
            stack.udp_disconnect(socket).expect("an open socket");
        });
    });
}

/// The same within the table of flows: bound to the interface that its packets come by, and not.
#[test]
fn no_datagram_is_lost_while_its_connected_socket_is_bound_to_an_interface() {
    everywhere(|rig, net| {
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let (stack, tun0) = (Arc::clone(&rig.stack), rig.ifindex("tun0"));
        while_it_moves(rig, &net, socket, move || {
            for device in [Some(tun0), None] {
                stack
                    .udp_set_device(socket, device)
                    .expect("an open socket");
            }
        });
    });
}

/// Brings the peer's datagrams in for as long as another thread moves the socket, and counts.
fn while_it_moves(
    mut rig: Rig,
    net: &Net,
    socket: SocketId,
    mut turn: impl FnMut() + Send + 'static,
) {
    let done = Arc::new(AtomicBool::new(false));
    let mover = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            (0..300).for_each(|_| turn());
            done.store(true, Ordering::Relaxed);
        }
    });
    let packet = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, b"steady");
    while !done.load(Ordering::Relaxed) {
        rig.inject_all("tun0", vec![&packet; 32]);
        let received = rig.drain(socket).len();
        assert_eq!(received, 32, "{:?}", rig.drops());
    }
    mover.join().expect("no panic");
    assert!(rig.is_silent() && rig.drops().is_empty());
}

/// `SO_BINDTODEVICE` is part of the match, in early demux as elsewhere.
#[test]
fn a_socket_bound_to_an_interface_takes_only_what_comes_by_it() {
    everywhere(|mut rig, net| {
        let (from, to) = (SocketAddr::new(net.peer1, PEER_PORT), net.own(OWN_PORT));
        let connected = rig.open(net.own);
        let tun1 = rig.ifindex("tun1");
        rig.stack
            .udp_set_device(connected, Some(tun1))
            .expect("a device");
        rig.stack.udp_bind(connected, to).expect("our address");
        rig.connect(connected, from);
        let unconnected = rig.open(net.own);
        rig.stack
            .udp_set_device(unconnected, Some(tun1))
            .expect("a device");
        let port = SocketAddr::new(net.own, OWN_PORT + 1);
        rig.stack.udp_bind(unconnected, port).expect("our address");

        // Warm, and warm again after the other interface was tried.
        for _ in 0..3 {
            rig.deliver_by("tun1", from, to, b"by tun1");
            assert!(rig.has_received(connected));
            rig.deliver_by("tun1", from, port, b"by tun1");
            assert!(rig.has_received(unconnected));
            assert!(rig.is_silent());
            for (to, socket) in [(to, connected), (port, unconnected)] {
                rig.deliver_by("tun0", from, to, b"by tun0");
                assert!(!rig.has_received(socket));
                let answers = rig.output("tun1");
                let expected = net.pick((3, 3), (1, 4));
                assert_eq!(packets::parse(&answers[0]).icmp(), expected);
            }
            rig.advance(std::time::Duration::from_secs(10));
        }
    });
}

#[test]
fn equal_flows_on_two_interfaces_are_two_flows() {
    everywhere(|mut rig, net| {
        let (from, to) = (SocketAddr::new(net.nowhere, PEER_PORT), net.own(OWN_PORT));
        let sockets = ["tun0", "tun1"].map(|interface| {
            let socket = rig.open(net.own);
            let device = rig.ifindex(interface);
            rig.stack
                .udp_set_device(socket, Some(device))
                .expect("a device");
            rig.stack.udp_bind(socket, to).expect("our address");
            // On the interface that the socket insists on, any address is taken to be a neighbour's.
            rig.connect(socket, from);
            (interface, socket)
        });
        for _ in 0..3 {
            for (interface, mine) in sockets {
                rig.deliver_by(interface, from, to, b"here");
                for (_, socket) in sockets {
                    assert_eq!(rig.has_received(socket), socket == mine, "{interface}");
                }
            }
        }
    });
}
