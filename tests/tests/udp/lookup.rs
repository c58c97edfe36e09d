//! Which socket gets what.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_stack::counters::Counter;
use forebay_stack::fib::{Prefix, Route, RouteKind, Rule, RuleAction, TableId};
use forebay_stack::interface::LOOPBACK;
use forebay_stack::transmit::SendError;
use forebay_stack::udp::{BindError, ConnectError};
use forebay_tests::{Rig, V4, V6, packets};

use super::*;

fn wildcard(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// In one batch: what is remembered of the datagram before must not decide about the next.
#[test]
fn a_batch_of_many_flows_goes_where_each_would_go_alone() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let open = bound(&rig, own, 53);
            let elsewhere = bound(&rig, wildcard(own), 54);
            let flow = connected(&rig, own, 53, peer, 1000);
            let sent = [
                (1001, 53, "open 1"),
                (1002, 53, "open 2"),
                (1000, 53, "flow 1"),
                (1001, 53, "open 3"),
                (1001, 54, "elsewhere 1"),
                (1003, 54, "elsewhere 2"),
                (1000, 53, "flow 2"),
                (1000, 53, "flow 3"),
                (1002, 53, "open 4"),
            ];
            rig.inject_all(
                "tun0",
                sent.map(|(from, to, payload)| {
                    packets::udp(peer, own, from, to, payload.as_bytes())
                }),
            );
            for (id, name) in [(open, "open"), (elsewhere, "elsewhere"), (flow, "flow")] {
                let expected: Vec<&[u8]> = sent
                    .iter()
                    .map(|(.., payload)| payload.as_bytes())
                    .filter(|payload| payload.starts_with(name.as_bytes()))
                    .collect();
                assert_eq!(drain(&rig, id), expected);
                rig.stack.udp_close(id).expect("open");
            }
        }
        assert_eq!(rig.drops(), []);
        assert_eq!((rig.buffers_in_use(), rig.stack.socket_memory()), (0, 0));
    });
}

#[test]
fn the_last_one_bound_gets_it_and_the_one_before_after_its_end() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let (first, second) = (bound(&rig, own, 53), bound(&rig, own, 53));
        datagram(&mut rig, peer, own, (1000, 53), b"1");
        assert_eq!(
            (drain(&rig, first).len(), drain(&rig, second).len()),
            (0, 1)
        );
        rig.stack.udp_close(second).expect("open");
        datagram(&mut rig, peer, own, (1000, 53), b"2");
        assert_eq!(drain(&rig, first), [b"2"]);
    }
}

#[test]
fn a_socket_bound_to_a_device_goes_before_one_that_is_not() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let tun1 = rig.ifindex("tun1");
            let special = bound(&rig, own, 54);
            rig.stack
                .udp_set_device(special, Some(tun1))
                .expect("it exists");
            let general = bound(&rig, own, 54);
            for interface in ["tun0", "tun1"] {
                rig.inject(
                    interface,
                    packets::udp(peer, own, 1000, 54, interface.as_bytes()),
                );
            }
            assert_eq!(drain(&rig, general), [b"tun0"]);
            assert_eq!(drain(&rig, special), [b"tun1"]);
        }
    });
}

#[test]
fn a_dual_stack_socket_may_be_connected_to_ipv4_and_freed_again() {
    both(|mut rig| {
        let dual = bound(&rig, Ipv6Addr::UNSPECIFIED.into(), 53);
        // Connected to a mapped peer, it is found early for IPv4 packets.
        let peer = SocketAddr::new(V4::PEER.to_ipv6_mapped().into(), 1000);
        rig.stack
            .udp_connect(rig.now(), dual, peer)
            .expect("a route");
        assert_eq!(rig.stack.udp_peer_addr(dual), Ok(Some(peer)));
        let local = SocketAddr::new(V4::OWN.to_ipv6_mapped().into(), 53);
        assert_eq!(rig.stack.udp_local_addr(dual), Ok(local));
        for _ in 0..2 {
            datagram(
                &mut rig,
                V4::PEER.into(),
                V4::OWN.into(),
                (1000, 53),
                b"again",
            );
        }
        assert_eq!(drain(&rig, dual).len(), 2);
        rig.stack.udp_disconnect(dual).expect("open");
        datagram(
            &mut rig,
            V6::PEER.into(),
            V6::OWN.into(),
            (1000, 53),
            b"six again",
        );
        assert_eq!(drain(&rig, dual), [b"six again"]);
    });
}

#[test]
fn a_socket_for_every_address_and_port_is_told_where_a_datagram_went() {
    both(|mut rig| {
        let everywhere = Prefix::new(Ipv4Addr::UNSPECIFIED, 0).expect("a prefix");
        let local = Route::new(RouteKind::Local, everywhere).dev(LOOPBACK);
        rig.stack
            .fib4()
            .add(TableId(100), local)
            .expect("a new route");
        let rule = Rule {
            iif: Some(rig.ifindex("tun0")),
            ..Rule::all(100, RuleAction::Lookup(TableId(100)))
        };
        rig.stack.fib4().add_rule(rule).expect("a new rule");
        let proxy = open(&rig, V4::OWN.into());
        rig.stack.udp_bind_any(proxy).expect("not bound yet");
        let dns = bound(&rig, V4::OWN.into(), 53);

        datagram(
            &mut rig,
            V4::PEER.into(),
            "192.0.2.7".parse().unwrap(),
            (1000, 443),
            b"away",
        );
        datagram(
            &mut rig,
            V4::PEER.into(),
            V4::OWN.into(),
            (1000, 53),
            b"here",
        );
        assert_eq!(drain(&rig, dns), [b"here"]);
        let (received, _) = recv(&rig, proxy).expect("what nobody else takes");
        assert_eq!(received.local, "192.0.2.7:443".parse().unwrap());
        assert!(recv(&rig, proxy).is_none());

        let now = rig.now();
        let answer = rig.stack.udp_send_from(
            now,
            proxy,
            b"from there",
            Some(received.from),
            Some(received.local),
        );
        assert_eq!(answer, Ok(()));
        let sent = packets::parse(&rig.output("tun0")[0]);
        assert_eq!(
            (sent.src, sent.udp()),
            (
                "192.0.2.7".parse().unwrap(),
                (443, 1000, &b"from there"[..])
            )
        );
    });
}

#[test]
fn addresses_that_are_not_ours_and_ports_in_use_are_refused() {
    let rig = Rig::new();
    let id = open(&rig, V4::OWN.into());
    let bind = |addr: &str| rig.stack.udp_bind(id, addr.parse().unwrap());
    assert_eq!(bind("192.0.2.1:53"), Err(BindError::NotAvailable));
    assert_eq!(bind("[fd00::1]:53"), Err(BindError::FamilyNotSupported));
    let other = bound(&rig, V4::OWN.into(), 53);
    assert_eq!(bind("10.0.0.1:53"), Err(BindError::InUse));
    assert_eq!(bind("0.0.0.0:53"), Err(BindError::InUse));
    rig.stack.udp_close(other).expect("open");
    assert_eq!(bind("10.0.0.1:53"), Ok(()));
    assert_eq!(bind("10.0.0.1:54"), Err(BindError::AlreadyBound));
    rig.set("net.ipv4.ip_nonlocal_bind", 1);
    let away = open(&rig, V4::OWN.into());
    assert_eq!(
        rig.stack.udp_bind(away, "192.0.2.1:53".parse().unwrap()),
        Ok(())
    );

    rig.stack
        .set_sysctl("net.ipv4.ip_local_port_range", "5000 5001")
        .expect("a range");
    let mut ports = Vec::new();
    for _ in 0..2 {
        let id = open(&rig, V4::OWN.into());
        rig.stack
            .udp_bind(id, "0.0.0.0:0".parse().unwrap())
            .expect("a free port");
        ports.push(rig.stack.udp_local_addr(id).expect("open").port());
    }
    ports.sort_unstable();
    assert_eq!(ports, [5000, 5001]);
    let id = open(&rig, V4::OWN.into());
    assert_eq!(
        rig.stack.udp_bind(id, "0.0.0.0:0".parse().unwrap()),
        Err(BindError::InUse)
    );
    let peer = SocketAddr::new(V4::PEER.into(), 7);
    assert_eq!(
        rig.stack.udp_connect(rig.now(), id, peer),
        Err(ConnectError::NoPort)
    );
}

#[test]
fn broadcasts_go_to_every_socket_that_wants_them() {
    both(|mut rig| {
        let (peer, everybody) = (V4::PEER.into(), IpAddr::from([10, 0, 0, 255]));
        let any = bound(&rig, Ipv4Addr::UNSPECIFIED.into(), 67);
        let also = bound(&rig, Ipv4Addr::UNSPECIFIED.into(), 67);
        let specific = bound(&rig, everybody, 67);
        let unicast = bound(&rig, V4::OWN.into(), 67);
        datagram(&mut rig, peer, everybody, (68, 67), b"all");
        for (id, count) in [(any, 1), (also, 1), (specific, 1), (unicast, 0)] {
            assert_eq!(drain(&rig, id).len(), count);
        }
        datagram(
            &mut rig,
            peer,
            Ipv4Addr::BROADCAST.into(),
            (68, 67),
            &[7; 5000],
        );
        for (id, count) in [(any, 1), (also, 1), (specific, 0), (unicast, 0)] {
            assert_eq!(drain(&rig, id), vec![[7; 5000]; count]);
        }
        datagram(&mut rig, peer, everybody, (68, 69), b"nobody");
        assert_eq!(rig.count(Counter::UdpIgnoredMulti), 1);
        assert!(rig.output("tun0").is_empty());
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn a_socket_bound_to_mapped_addresses_is_an_ipv4_one() {
    let mut rig = Rig::new();
    let id = open(&rig, V6::OWN.into());
    rig.stack
        .udp_bind(id, "[::ffff:0.0.0.0]:53".parse().unwrap())
        .expect("free");
    let now = rig.now();
    let six = SocketAddr::new(V6::PEER.into(), 1000);
    let refused = Err(ConnectError::Network(SendError::NetworkUnreachable));
    assert_eq!(rig.stack.udp_connect(now, id, six), refused);
    connect(&rig, id, V4::PEER.to_ipv6_mapped().into(), 1000);
    assert_eq!(rig.stack.udp_connect(now, id, six), refused);
    assert!(rig.stack.udp_send(now, id, b"x", Some(six)).is_err());
    rig.stack.udp_disconnect(id).expect("open");
    datagram(
        &mut rig,
        V6::PEER.into(),
        V6::OWN.into(),
        (1000, 53),
        b"six",
    );
    datagram(
        &mut rig,
        V4::PEER.into(),
        V4::OWN.into(),
        (1000, 53),
        b"four",
    );
    assert_eq!(drain(&rig, id), [b"four"]);
}

#[test]
fn what_a_socket_did_not_choose_it_gives_up_when_it_disconnects() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        // Neither address nor port.
        let id = open(&rig, own);
        connect(&rig, id, peer, 1000);
        let local = rig.stack.udp_local_addr(id).expect("open");
        assert_eq!(local.ip(), own);
        rig.stack.udp_disconnect(id).expect("open");
        let gone = rig.stack.udp_local_addr(id).expect("open");
        assert_eq!(gone, SocketAddr::new(wildcard(own), 0));
        datagram(&mut rig, peer, own, (1000, local.port()), b"late");
        assert!(drain(&rig, id).is_empty());
        connect(&rig, id, peer, 1000);
        let port = rig.stack.udp_local_addr(id).expect("open").port();
        datagram(&mut rig, peer, own, (1000, port), b"again");
        assert_eq!(drain(&rig, id), [b"again"]);
        // The port, not the address; connected anew, the address stays.
        let id = bound(&rig, wildcard(own), 53);
        for port in [1000, 1001] {
            connect(&rig, id, peer, port);
            assert_eq!(rig.stack.udp_local_addr(id), Ok((own, 53).into()));
        }
        rig.stack.udp_disconnect(id).expect("open");
        assert_eq!(rig.stack.udp_local_addr(id), Ok((wildcard(own), 53).into()));
        assert_eq!(rig.stack.udp_peer_addr(id), Ok(None));
        rig.stack.udp_close(id).expect("open");
    }
}
