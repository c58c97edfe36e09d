//! Who may have which port, and who is found on it.

use std::net::{Ipv4Addr, SocketAddr};

use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::tcp::{ListenError, TcpConnectError, TcpOption, TcpState};
use forebay_stack::udp::BindError;

use crate::peer::{ACK, Peer, RST};
use crate::world::{OWN_PORT, PEER_PORT, World, everywhere};

fn open_with(world: &World, reuse_addr: bool, reuse_port: bool) -> SocketId {
    let id = world.open();
    world.set(id, TcpOption::ReuseAddr(reuse_addr));
    world.set(id, TcpOption::ReusePort(reuse_port));
    id
}

/// Linux's `inet_csk_bind_conflict`.
#[test]
fn a_port_is_shared_by_who_wants_to() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum First {
        Bound,
        Listening,
    }
    use First::{Bound, Listening};
    // reuse_addr and reuse_port of the first, and of the second; whether their addresses differ.
    let cases = [
        (Bound, (false, false), (false, false), false, false),
        (Bound, (true, false), (false, false), false, false),
        (Bound, (false, false), (true, false), false, false),
        (Bound, (true, false), (true, false), false, true),
        (Listening, (true, false), (true, false), false, false),
        (Bound, (false, true), (false, true), false, true),
        (Listening, (false, true), (false, true), false, true),
        (Listening, (false, true), (false, false), false, false),
        (Bound, (false, false), (false, false), true, true),
        (Listening, (false, false), (false, false), true, true),
    ];
    for (first, one, two, is_elsewhere, expected) in cases {
        everywhere(|world| {
            let stack = std::sync::Arc::clone(&world.rig.stack);
            let a = open_with(world, one.0, one.1);
            let own = world.net.own(OWN_PORT);
            stack.tcp_bind(a, own).expect("a free port");
            if first == Listening {
                stack.tcp_listen(a, 8).expect("a listener");
            }
            let b = open_with(world, two.0, two.1);
            let addr = match is_elsewhere {
                true => SocketAddr::new(world.net.own1, OWN_PORT),
                false => own,
            };
            let bound = stack.tcp_bind(b, addr);
            let wanted = if expected {
                Ok(())
            } else {
                Err(BindError::InUse)
            };
            assert_eq!(bound, wanted, "{first:?} {one:?} {two:?} {is_elsewhere}");
            // Every address is also this one.
            if !is_elsewhere && !expected {
                let any = world.net.any(OWN_PORT);
                assert_eq!(stack.tcp_bind(b, any), Err(BindError::InUse));
            }
            // With the first gone, it is free.
            world.close(a);
            if !expected {
                assert_eq!(stack.tcp_bind(b, addr), Ok(()));
            }
        });
    }
}

/// Both may be bound with `SO_REUSEADDR`, but one listens.
#[test]
fn of_two_that_share_a_port_one_listens() {
    everywhere(|world| {
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let both = [0; 2].map(|_| open_with(world, true, false));
        for id in both {
            stack
                .tcp_bind(id, world.net.own(OWN_PORT))
                .expect("a shared port");
        }
        assert_eq!(stack.tcp_listen(both[0], 8), Ok(()));
        let second = stack.tcp_listen(both[1], 8);
        assert_eq!(second, Err(ListenError::Bind(BindError::InUse)));
        world.close(both[0]);
        assert_eq!(stack.tcp_listen(both[1], 8), Ok(()));
        let mut peer = world.peer();
        peer.connect(&mut world.rig, both[1]);
    });
}

/// A server that is started again finds its port, if it says `SO_REUSEADDR`, whatever is left of its
/// connections.
#[test]
fn a_server_may_be_started_again() {
    for reuse_addr in [true, false] {
        everywhere(|world| {
            let stack = std::sync::Arc::clone(&world.rig.stack);
            let listener = open_with(world, reuse_addr, false);
            stack
                .tcp_bind(listener, world.net.own(OWN_PORT))
                .expect("a free port");
            stack.tcp_listen(listener, 8).expect("a listener");
            let mut standing = world.peer();
            standing.connect(&mut world.rig, listener);
            let mut ended = world.peer_at(PEER_PORT + 1);
            let id = ended.connect(&mut world.rig, listener);
            world.close(id);
            ended.take_fin(&mut world.rig);
            ended.finish(&mut world.rig);
            world.close(listener);
            assert_eq!(world.states(), [TcpState::Established, TcpState::TimeWait]);
            let next = open_with(world, reuse_addr, false);
            let bound = stack.tcp_bind(next, world.net.own(OWN_PORT));
            assert_eq!(bound.is_ok(), reuse_addr);
            if !reuse_addr {
                return;
            }
            stack.tcp_listen(next, 8).expect("a listener");
            let mut peer = world.peer_at(PEER_PORT + 2);
            peer.connect(&mut world.rig, next);
        });
    }
}

/// The exact address goes before every address.
#[test]
fn the_most_specific_listener_is_found() {
    everywhere(|world| {
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let own1 = SocketAddr::new(world.net.own1, OWN_PORT);
        let [every, exact] = [world.net.any(OWN_PORT), own1].map(|addr| {
            let id = open_with(world, false, true);
            stack.tcp_bind(id, addr).expect("a shared port");
            stack.tcp_listen(id, 8).expect("a listener");
            id
        });
        let mut peer = world.peer();
        peer.connect(&mut world.rig, every);
        let mut peer = Peer::new(world.net.peer(PEER_PORT), own1, world.irs);
        peer.connect(&mut world.rig, exact);
        world.close(exact);
        let mut peer = Peer::new(world.net.peer(PEER_PORT + 1), own1, world.irs);
        peer.connect(&mut world.rig, every);
    });
}

/// A listener of IPv6's unspecified address takes IPv4, too, unless it is told not to.
#[test]
fn a_listener_of_ipv6_takes_ipv4() {
    for v6only in [false, true] {
        everywhere(|world| {
            let stack = std::sync::Arc::clone(&world.rig.stack);
            let listener = stack.tcp_open(IpVersion::V6).expect("a socket");
            world.set(listener, TcpOption::V6Only(v6only));
            let any: SocketAddr = "[::]:80".parse().expect("an address");
            stack.tcp_bind(listener, any).expect("a free port");
            stack.tcp_listen(listener, 8).expect("a listener");
            let mut peer = world.peer();
            if v6only && world.net.is_v4() {
                let syn = peer.syn();
                assert_eq!(world.answered(&mut peer, &syn).flags, RST | ACK);
                // The port is free in IPv4.
                world.listen_on((Ipv4Addr::UNSPECIFIED, OWN_PORT).into(), 8);
                return;
            }
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
            let accepted = stack.tcp_accept(listener).expect("a listener");
            let accepted = accepted.expect("a connection");
            let mapped = |addr: SocketAddr| match addr {
                SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
                SocketAddr::V6(_) => addr,
            };
            assert_eq!(
                (accepted.peer, accepted.local),
                (mapped(peer.addr), mapped(peer.host))
            );
            peer.say(&mut world.rig, b"hello");
            assert_eq!(world.read_all(accepted.id), b"hello");
        });
    }
}

/// A group of listeners shares what comes, each connection with one of them (`SO_REUSEPORT`).
#[test]
fn a_group_shares_connections() {
    everywhere(|world| {
        let group: Vec<_> = (0..4)
            .map(|_| {
                let id = open_with(world, false, true);
                world
                    .rig
                    .stack
                    .tcp_bind(id, world.net.own(OWN_PORT))
                    .expect("a shared port");
                world.rig.stack.tcp_listen(id, 100).expect("a listener");
                id
            })
            .collect();
        let mut peers: Vec<_> = (0..80).map(|n| world.peer_at(PEER_PORT + n)).collect();
        for peer in &mut peers {
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK);
            world.unanswered(peer, &ack);
        }
        let mut counts = Vec::new();
        for id in &group {
            let mut count = 0;
            while world
                .rig
                .stack
                .tcp_accept(*id)
                .expect("a listener")
                .is_some()
            {
                count += 1;
            }
            counts.push(count);
        }
        assert_eq!(counts.iter().sum::<i32>(), 80);
        assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
    });
}

/// A listener on every address and port, and what it tells of where connections were meant to go.
#[test]
fn a_listener_may_take_everything() {
    everywhere(|world| {
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let listener = world.open();
        stack.tcp_bind_any(listener).expect("a new socket");
        stack.tcp_listen(listener, 8).expect("a listener");
        // A port that somebody else has is his.
        let own = world.listen_on(world.net.own(OWN_PORT), 8);
        let mut usual = world.peer();
        usual.connect(&mut world.rig, own);
        for port in [1, OWN_PORT + 1, 65_535] {
            let host = world.net.own(port);
            let mut peer = Peer::new(world.net.peer(PEER_PORT), host, world.irs);
            let id = peer.connect(&mut world.rig, listener);
            peer.say(&mut world.rig, b"hello");
            assert_eq!(world.read_all(id), b"hello");
            assert_eq!(stack.tcp_local_addr(id), Ok(host));
        }
    });
}

/// RFC 6056: each gets one of the range, until there is none towards that peer.
#[test]
fn free_ports_are_found_until_none_is_left() {
    everywhere(|world| {
        let stack = std::sync::Arc::clone(&world.rig.stack);
        let range = stack.set_sysctl("net.ipv4.ip_local_port_range", "50000 50009");
        range.expect("a range");
        let now = world.rig.now();
        let connect = |peer: SocketAddr| {
            let id = world.open();
            let begun = stack.tcp_connect(now, id, peer);
            begun.map(|()| stack.tcp_local_addr(id).expect("open").port())
        };
        for peer in [world.net.peer(PEER_PORT), world.net.peer(PEER_PORT + 1)] {
            let mut ports: Vec<_> = (0..10).map(|_| connect(peer).expect("a port")).collect();
            ports.sort_unstable();
            assert_eq!(ports, Vec::from_iter(50_000..50_010));
            assert_eq!(connect(peer), Err(TcpConnectError::NoPort));
        }
    });
}
