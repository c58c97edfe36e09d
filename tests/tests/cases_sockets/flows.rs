//! Whose a datagram is: early demux must give it to nobody else, and to him only by the rules.

use std::net::{IpAddr, SocketAddr};

use forebay::UdpOptions;
use forebay::counters::Counter;
use forebay::drop::DropReason;
use forebay_tests::{Net, packets};

use super::host::{PEER_PORT, PORT, drain, packets_of, rx};
use super::*;

const NONE: [&[u8]; 0] = [];

/// Connected before specific before wildcard; what passes through is nobody's.
#[test]
fn the_most_specific_socket_has_it_and_transit_is_forwarded() {
    everywhere(|host| {
        let net = host.net;
        let wildcard = host.bind(net.any(PORT));
        let specific = host.bind(net.own(PORT));
        let connected = host.flow();
        // Cold, and warm.
        for _ in 0..3 {
            let own1 = SocketAddr::new(net.own1, PORT);
            host.peer_sends(b"peer");
            host.deliver("tun0", net.peer(9), net.own(PORT), b"other");
            host.deliver("tun0", net.peer(PEER_PORT), own1, b"elsewhere");
            let transit = SocketAddr::new(net.peer1, PORT);
            host.deliver("tun0", net.peer(PEER_PORT), transit, b"transit");
            assert_eq!(drain(&connected), [b"peer"]);
            assert_eq!(drain(&specific), [b"other"]);
            assert_eq!(drain(&wildcard), [b"elsewhere"]);
            assert_eq!(host.output("tun1").len(), 1);
            assert!(host.output("tun0").is_empty());
        }
    });
}

/// A flow's cached route is void with what it was made from.
#[test]
fn a_warm_flow_hears_nothing_once_its_address_is_gone() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.warm_flow();
        // So that the prefix stays on the link.
        let beside = net.pick("10.0.0.9", "fd00::9").parse().expect("an address");
        let (tun0, inner) = (host.ifindex("tun0"), host.stack.inner());
        inner
            .add_address(tun0, beside, net.prefix_len)
            .expect("it is new");
        for _ in 0..2 {
            host.own_address(false);
            host.peer_sends(b"for somebody else by now");
            assert_eq!(rx(&socket), None);
            let output = host.output("tun0");
            let last = packets::parse(output.last().expect("it is forwarded"));
            assert_eq!((last.dst, last.ttl), (net.own, 63));
            host.own_address(true);
            host.peer_sends(b"for us again");
            assert_eq!(drain(&socket), [b"for us again"]);
        }
    });
}

/// The filter of sources holds for a warm flow as for any packet. There is none in IPv6.
#[test]
fn a_warm_flow_passes_no_filter_of_sources() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.warm_flow();
        let by_tun1 = || {
            host.deliver("tun1", net.peer(PEER_PORT), net.own(PORT), b"by tun1");
            rx(&socket).is_some()
        };
        assert!(by_tun1() && by_tun1(), "no filter, and warm there now");
        host.set("net.ipv4.conf.tun1.rp_filter", 1);
        assert_eq!([by_tun1(), by_tun1()], [!net.is_v4(); 2]);
        host.peer_sends(b"the right way");
        assert!(rx(&socket).is_some());
        assert_eq!(by_tun1(), !net.is_v4());
    });
}

/// Sources that no packet may have are refused whatever socket is connected or warm.
#[test]
fn no_socket_hears_a_source_that_cannot_be() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.bind(net.any(PORT));
        let sources: &[&str] = match net.is_v4() {
            true => &[
                "127.0.0.1",
                "10.0.0.1",
                "255.255.255.255",
                "224.0.0.9",
                "0.0.0.0",
            ],
            // Of an own address IPv6 says nothing.
            false => &["::1", "ff02::9", "::ffff:10.0.0.2"],
        };
        for source in sources {
            let from = SocketAddr::new(source.parse().expect("an address"), PEER_PORT);
            host.deliver("tun0", from, net.own(PORT), b"from nobody");
            assert_eq!(rx(&socket), None, "{source}");
            assert!(host.is_silent(), "{source}");
        }
        for source in net.pick(
            &["10.0.0.255", "10.0.0.0", "240.0.0.1", "192.0.2.1"][..],
            &["2001:db8::1"],
        ) {
            let from = SocketAddr::new(source.parse().expect("an address"), PEER_PORT);
            host.deliver("tun0", from, net.own(PORT), b"odd");
            assert_eq!(drain(&socket), [b"odd"], "{source}");
        }
    });
}

/// Groups: whatever the socket knows of its last datagram, each has its source looked at.
#[test]
fn a_member_hears_no_source_that_cannot_be() {
    everywhere(|host| {
        let net = host.net;
        let group: IpAddr = net
            .pick("239.1.2.3", "ff05::1234")
            .parse()
            .expect("a group");
        let member = host.bind(net.any(PORT));
        let tun0 = host.ifindex("tun0");
        match (group, net.own) {
            (IpAddr::V4(group), IpAddr::V4(own)) => member.join_multicast_v4(&group, &own),
            (IpAddr::V6(group), _) => member.join_multicast_v6(&group, tun0),
            _ => unreachable!("a net has one family"),
        }
        .expect("a group");
        let hears = |source: IpAddr| {
            let (from, to) = (
                SocketAddr::new(source, PEER_PORT),
                SocketAddr::new(group, PORT),
            );
            host.deliver("tun0", from, to, b"to all");
            rx(&member).is_some()
        };
        for _ in 0..2 {
            assert!(hears(net.peer) && hears(net.other));
            let loopback = net.pick("127.0.0.1", "::1").parse().expect("an address");
            for source in [loopback, group] {
                assert!(!hears(source), "{source}");
            }
            assert_eq!(hears(net.own), !net.is_v4(), "of which IPv6 says nothing");
        }
        host.set("net.ipv4.conf.tun0.rp_filter", 1);
        for elsewhere in [net.peer1, net.nowhere] {
            assert_eq!(hears(elsewhere), !net.is_v4(), "{elsewhere}");
        }
        assert!(hears(net.peer));
    });
}

/// Later fragments have no ports: what lies there may look like another flow's.
#[test]
fn a_datagram_in_fragments_comes_whole_to_its_flow() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.warm_flow();
        let victim = host.bind(net.own(PORT + 1));
        victim.connect(net.peer(PEER_PORT + 1)).expect("a way");
        let mut payload = vec![7; 3_000];
        // Where the second fragment begins: another flow's ports, a good length, no checksum.
        let ports = [(PEER_PORT + 1).to_be_bytes(), (PORT + 1).to_be_bytes()].concat();
        payload[1_400 - 8 - 8..][..8].copy_from_slice(&[&ports[..], &[3, 232, 0, 0]].concat());
        let mut pieces = packets_of(net.peer(PEER_PORT), net.own(PORT), &payload);
        for _ in 0..2 {
            host.inject_all("tun0", &pieces);
            assert_eq!(drain(&socket), [&payload[..]]);
            pieces.reverse();
        }
        assert_eq!(rx(&victim), None);
    });
}

#[test]
fn a_header_that_is_cut_off_is_dropped_in_silence() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.warm_flow();
        let whole = packets::udp_datagram(net.peer, net.own, PEER_PORT, PORT, b"");
        for len in 0..8 {
            host.inject("tun0", packets::ip(net.peer, net.own, 17, &whole[..len]));
        }
        assert_eq!(rx(&socket), None);
        assert!(host.is_silent());
        host.inject("tun0", packets::ip(net.peer, net.own, 17, &whole));
        assert_eq!(drain(&socket), [b""]);
    });
}

/// A group shares what its connected member leaves; that one has all of its peer's.
#[test]
fn a_connected_member_of_a_group_has_its_peers_datagrams_alone() {
    everywhere(|host| {
        let net = host.net;
        let options = UdpOptions::new().reuse_port(true);
        let member = || host.bind_with(&options, net.own(PORT));
        let (first, connected, third, fourth) = (member(), member(), member(), member());
        connected.connect(net.peer(PEER_PORT)).expect("a way");
        for port in 1..=60 {
            host.deliver("tun0", net.peer(port), net.own(PORT), b"somebody");
        }
        for _ in 0..10 {
            host.peer_sends(b"the peer");
        }
        assert_eq!(drain(&connected), [b"the peer"; 10]);
        let share = [&first, &third, &fourth].map(|socket| drain(socket).len());
        assert_eq!(share.iter().sum::<usize>(), 60);
        assert!(share.iter().all(|share| *share > 5), "{share:?}");
        drop(connected);
        for _ in 0..10 {
            host.peer_sends(b"the peer");
        }
        let share = [first, third, fourth].map(|socket| drain(&socket).len());
        assert_eq!(share.iter().max(), Some(&10), "a flow stays together");
        assert_eq!(share.iter().sum::<usize>(), 10);
    });
}

/// The interface is part of the match, warm or not.
#[test]
fn a_socket_bound_to_a_device_hears_only_what_comes_by_it() {
    everywhere(|host| {
        let net = host.net;
        let connected = host.warm_flow();
        let unconnected = host.bind(net.own(PORT + 1));
        for socket in [&connected, &unconnected] {
            socket.bind_device(Some("tun1")).expect("a device");
        }
        let from = net.peer(PEER_PORT);
        for _ in 0..3 {
            for (socket, port) in [(&connected, PORT), (&unconnected, PORT + 1)] {
                host.deliver("tun0", from, net.own(port), b"by tun0");
                assert_eq!(rx(socket), None);
                let answers = host.output("tun0");
                let answer = packets::parse(&answers[0]).icmp();
                assert_eq!(answer, net.pick((3, 3), (1, 4)), "nobody listens there");
                host.deliver("tun1", from, net.own(port), b"by tun1");
                assert_eq!(drain(socket), [b"by tun1"]);
            }
        }
        connected.bind_device(None).expect("none");
        host.peer_sends(b"any");
        assert_eq!(drain(&connected), [b"any"]);
    });
}

/// Two flows of equal addresses and ports are two where their interfaces are.
#[test]
fn equal_flows_on_two_devices_do_not_mix() {
    everywhere(|host| {
        let net = host.net;
        let flows = ["tun0", "tun1"].map(|device| {
            let options = UdpOptions::new().reuse_address(true).device(device);
            let socket = host.bind_with(&options, net.own(PORT));
            let peer = SocketAddr::new(net.nowhere, PEER_PORT);
            socket.connect(peer).expect("the device is way enough");
            (device, socket)
        });
        for _ in 0..3 {
            for (device, _) in &flows {
                let from = SocketAddr::new(net.nowhere, PEER_PORT);
                host.deliver(device, from, net.own(PORT), device.as_bytes());
            }
            for (device, socket) in &flows {
                assert_eq!(drain(socket), [device.as_bytes()]);
            }
        }
    });
}

/// IPv4 reaches sockets of IPv6, warm or not, unless they say no.
#[test]
fn a_dual_stack_socket_hears_both_families() {
    everywhere(|host| {
        let dual = host.bind(Net::V6.any(PORT));
        let only_v6 = UdpOptions::new().only_v6(true);
        let only_v6 = host.bind_with(&only_v6, Net::V6.any(PORT + 1));
        let shown = |port| {
            let peer = match host.net.peer {
                IpAddr::V4(addr) => IpAddr::V6(addr.to_ipv6_mapped()),
                addr => addr,
            };
            SocketAddr::new(peer, port)
        };
        for connected in [false, true] {
            if connected {
                dual.connect(shown(PEER_PORT)).expect("a way");
            }
            for _ in 0..3 {
                host.peer_sends(b"either");
                let mut buf = [0; 16];
                let (len, from) = dual.recv_from(&mut buf).expect("a datagram");
                assert_eq!((&buf[..len], from), (&b"either"[..], shown(PEER_PORT)));
            }
        }
        let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT + 1));
        host.deliver("tun0", from, to, b"?");
        assert_eq!(rx(&only_v6).is_some(), !host.net.is_v4());
        assert_eq!(host.output("tun0").len(), host.net.pick(1, 0));
    });
}

/// What is closed gets nothing, and what it had goes to who comes next by the rules.
#[test]
fn the_flow_of_a_closed_socket_is_the_ports() {
    everywhere(|host| {
        let connected = host.warm_flow();
        let wildcard = host.bind(host.net.any(PORT));
        drop(connected);
        host.peer_sends(b"late");
        assert_eq!(drain(&wildcard), [b"late"]);
        drop(wildcard);
        host.peer_sends(b"too late");
        assert_eq!(host.output("tun0").len(), 1, "port unreachable");
        assert_eq!(host.dropped(DropReason::UdpNoSocket), 1);
    });
}

/// The knobs of one stack are its own; that of IP goes before that of UDP, in IPv6 as well.
#[test]
fn early_demux_is_what_its_knobs_say_and_never_shows() {
    everywhere(|host| {
        let socket = host.warm_flow();
        let hits = || {
            let counters = host.stack.inner().counters();
            counters.get(Counter::ForebayEarlyDemuxHits)
        };
        for (ip, udp) in [(1, 1), (0, 1), (1, 0), (2, 255), (0, 0)] {
            host.set("net.ipv4.ip_early_demux", ip);
            host.set("net.ipv4.udp_early_demux", udp);
            let before = hits();
            for _ in 0..3 {
                host.peer_sends(b"flow");
            }
            assert_eq!(drain(&socket), [b"flow"; 3]);
            // The first may find its route stale.
            let is_on = ip != 0 && udp != 0;
            assert_eq!(hits() - before >= 2, is_on, "{ip} {udp}");
            assert_eq!(hits() == before, !is_on, "{ip} {udp}");
        }
        let other = Host::of(host.net, host.early_demux, host.blocking);
        let socket = other.warm_flow();
        let before = other.stack.inner().counters();
        other.peer_sends(b"flow");
        assert_eq!(drain(&socket), [b"flow"]);
        let after = other.stack.inner().counters();
        let hits = Counter::ForebayEarlyDemuxHits;
        let hit = after.get(hits) - before.get(hits);
        assert_eq!(hit, u64::from(other.early_demux));
        assert_eq!(drain(&socket), NONE);
    });
}
