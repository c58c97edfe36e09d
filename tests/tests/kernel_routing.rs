//! Kernel hosts routed by Forebay: UDP and TCP of the kernels' own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use forebay::device::wire::{WireConfig, wire};
use forebay::fib::{Route, RouteKind, TableId};
use forebay::{Stack, Workers};
use forebay_tests::kernel::{
    Family, Host, Lab, LabConfig, PATIENCE, Ping, SILENCE, add_route, assert_workers_sleep, attach,
    delete_route, exchange, forwarding_stack, in_private_network, ip, ping, trace,
};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};

/// What each test of TCP sends each way.
const STREAM: usize = 20_000_000;

#[test]
fn datagrams_of_all_sizes_pass() {
    in_private_network("datagrams_of_all_sizes_pass", || {
        for offload in [true, false] {
            let config = LabConfig {
                offload,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            for Family { right, .. } in Family::both() {
                let server = lab.right.udp(right, 0);
                let client = lab.left.udp_to(server.local_addr().expect("address"));
                for size in [0, 1, 1_400, 1_472, 3_000, 20_000, 65_507] {
                    echo(&client, &server, size)
                        .unwrap_or_else(|error| panic!("{right}, {size} bytes: {error}"));
                }
                // The error of the host at the other end comes back, too.
                drop(server);
                client.send(b"gone").expect("send");
                let error = client.recv(&mut [0; 4]).expect_err("nobody is there");
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            }
        }
    });
}

fn echo(client: &UdpSocket, server: &UdpSocket, size: usize) -> io::Result<()> {
    let payload: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let mut buf = vec![0; 70_000];
    client.send(&payload)?;
    let (len, from) = server.recv_from(&mut buf)?;
    assert!(buf[..len] == payload, "wrong bytes there");
    server.send_to(&payload, from)?;
    let len = client.recv(&mut buf)?;
    assert!(buf[..len] == payload, "wrong bytes back");
    Ok(())
}

#[test]
fn tcp_passes_in_super_packets() {
    in_private_network("tcp_passes_in_super_packets", || {
        let Some(lab) = Lab::start(LabConfig::default()) else {
            return;
        };
        for Family { right, .. } in Family::both() {
            exchange(&lab.left, &lab.right, right, STREAM);
        }
        let status = lab.stack.device_status("tun0").expect("tun0");
        let mean = status.stats.rx_bytes / status.stats.rx_packets;
        assert!(
            mean > 3_000,
            "the kernel sent super-packets: {mean} bytes a packet"
        );
    });
}

/// The kernel spreads flows over the queues; each keeps its order.
#[test]
fn tcp_passes_over_several_queues() {
    in_private_network("tcp_passes_over_several_queues", || {
        let config = LabConfig {
            queues: 4,
            ..LabConfig::default()
        };
        let Some(lab) = Lab::start(config) else {
            return;
        };
        for Family { right, .. } in Family::both() {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| exchange(&lab.left, &lab.right, right, STREAM / 4));
                }
            });
        }
    });
}

#[test]
fn tcp_passes_segment_by_segment() {
    in_private_network("tcp_passes_segment_by_segment", || {
        let config = LabConfig {
            offload: false,
            early_demux: false,
            ..LabConfig::default()
        };
        let Some(lab) = Lab::start(config) else {
            return;
        };
        for Family { right, .. } in Family::both() {
            exchange(&lab.left, &lab.right, right, STREAM);
        }
    });
}

/// One kernel sends super-packets, the other's device takes none: Forebay segments.
#[test]
fn super_packets_are_segmented_for_a_device_that_takes_none() {
    in_private_network(
        "super_packets_are_segmented_for_a_device_that_takes_none",
        || {
            let (whole, cut) = (
                LabConfig::default(),
                LabConfig {
                    offload: false,
                    ..LabConfig::default()
                },
            );
            let Some((left, tun0)) = Lab::left(whole) else {
                return;
            };
            let Some((right, tun1)) = Lab::right(cut) else {
                return;
            };
            let stack = forwarding_stack();
            Lab::attach_left(&stack, tun0, whole);
            Lab::attach_right(&stack, tun1, cut);
            let _worker = stack.spawn_workers().expect("a worker");
            for addresses in Family::both() {
                exchange(&left, &right, addresses.right, STREAM);
            }
        },
    );
}

/// Two routers in a row between the hosts, on a wire of their own.
struct Chain {
    left: Host,
    right: Host,
    near: Stack,
    far: Stack,
    _workers: [Workers; 2],
}

/// The middle of the chain: near, far.
const MIDDLE: [[&str; 2]; 2] = [["10.9.0.1", "10.9.0.2"], ["fd09::1", "fd09::2"]];

impl Chain {
    fn start(wire_mtu: u32) -> Option<Self> {
        let config = LabConfig::default();
        let (left, tun0) = Lab::left(config)?;
        let (right, tun1) = Lab::right(config)?;
        let (near, far) = (forwarding_stack(), forwarding_stack());
        Lab::attach_left(&near, tun0, config);
        Lab::attach_right(&far, tun1, config);
        let config = WireConfig {
            mtu: wire_mtu,
            ..WireConfig::default()
        };
        let (near_end, far_end) = wire(config);
        let [v4, v6] = MIDDLE;
        attach(&near, "w0", near_end, &[(ip(v4[0]), 24), (ip(v6[0]), 64)]);
        attach(&far, "w0", far_end, &[(ip(v4[1]), 24), (ip(v6[1]), 64)]);
        for (middle, [left, right]) in MIDDLE
            .into_iter()
            .zip([["10.0.0.0/24", "10.1.0.0/24"], ["fd00::/64", "fd01::/64"]])
        {
            add_route(&near, right, ip(middle[1]));
            add_route(&far, left, ip(middle[0]));
        }
        let workers = [&near, &far].map(|stack| stack.spawn_workers().expect("a worker"));
        Some(Self {
            left,
            right,
            near,
            far,
            _workers: workers,
        })
    }
}

#[test]
fn a_trace_shows_both_routers() {
    in_private_network("a_trace_shows_both_routers", || {
        let Some(chain) = Chain::start(1_500) else {
            return;
        };
        for (addresses, middle) in Family::both().into_iter().zip(MIDDLE) {
            let there = [addresses.own, ip(middle[1]), addresses.right];
            assert_eq!(trace(&chain.left, addresses.right), there);
            let back = [addresses.own1, ip(middle[0]), addresses.left];
            assert_eq!(trace(&chain.right, addresses.left), back);
            // Echo requests run out of hops no less than datagrams do.
            let request = |ttl, ping: Ping| Ping { ttl, ..ping };
            for ttl in [1, 2] {
                let too_few = request(ttl, Ping::in_vain());
                assert!(!ping(&chain.left, addresses.right, too_few));
            }
            let enough = request(3, Ping::default());
            assert!(ping(&chain.left, addresses.right, enough));
        }
        assert_workers_sleep();
    });
}

/// The hosts can't know of the narrow wire but by what the routers tell them.
#[test]
fn the_kernels_find_the_path_mtu() {
    in_private_network("the_kernels_find_the_path_mtu", || {
        let Some(chain) = Chain::start(1_400) else {
            return;
        };
        for addresses in Family::both() {
            assert_eq!(path_mtu(&chain.left, addresses.right), 1_500);
            exchange(&chain.left, &chain.right, addresses.right, STREAM);
            assert_eq!(path_mtu(&chain.left, addresses.right), 1_400);
            assert_eq!(path_mtu(&chain.right, addresses.left), 1_400);
            // Datagrams the kernel cuts into fragments of that size itself.
            let server = chain.right.udp(addresses.right, 0);
            let client = chain.left.udp_to(server.local_addr().expect("address"));
            echo(&client, &server, 20_000).expect("an echo");
        }
        for stack in [&chain.near, &chain.far] {
            assert_eq!(stack.device_status("w0").expect("w0").error, None);
        }
    });
}

/// What the kernel of `host` believes about the path to `to`.
fn path_mtu(host: &Host, to: IpAddr) -> u32 {
    let socket = host.udp_to(SocketAddr::new(to, 9));
    match to {
        IpAddr::V4(_) => sockopt::ip_mtu(&socket),
        IpAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    }
    .expect("mtu")
}

/// A host that lets routers fragment is served, too.
#[test]
fn routers_fragment_what_they_may() {
    in_private_network("routers_fragment_what_they_may", || {
        let Some(chain) = Chain::start(1_400) else {
            return;
        };
        let [v4, _] = Family::both();
        let server = chain.right.udp(v4.right, 0);
        let client = chain.left.udp_to(server.local_addr().expect("address"));
        sockopt::set_ip_mtu_discover(&client, Ipv4PathMtuDiscovery::DONT).expect("discovery off");
        sockopt::set_ip_mtu_discover(&server, Ipv4PathMtuDiscovery::DONT).expect("discovery off");
        for size in [1_372, 1_373, 1_472, 1_473, 20_000] {
            echo(&client, &server, size).unwrap_or_else(|error| panic!("{size} bytes: {error}"));
        }
        assert_eq!(path_mtu(&chain.left, v4.right), 1_500, "nobody was told");
    });
}

/// A connection outlives an interruption, since what is lost is sent again.
#[test]
fn tcp_stops_and_goes_on_with_forwarding() {
    in_private_network("tcp_stops_and_goes_on_with_forwarding", || {
        let Some(lab) = Lab::start(LabConfig::default()) else {
            return;
        };
        for addresses in Family::both() {
            let listener = lab.right.listen(addresses.right);
            let client = lab
                .left
                .connect(listener.local_addr().expect("address"))
                .expect("connect");
            let (server, _) = listener.accept().expect("accept");
            say(&client, &server).expect("a path");

            lab.set(addresses.forwarding, 0);
            say(&client, &server).expect_err("no forwarding");
            lab.set(addresses.forwarding, 1);
            hear(&server).expect("sent again");

            let put_back = delete_route(&lab.stack, addresses.right_prefix);
            say(&client, &server).expect_err("no route");
            put_back();
            hear(&server).expect("sent again");
        }
    });
}

/// Sends one byte, which does not arrive in time if the path is cut.
fn say(mut from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    from.write_all(b"x")?;
    hear_within(to, SILENCE)
}

fn hear(to: &TcpStream) -> io::Result<()> {
    hear_within(to, PATIENCE)
}

fn hear_within(mut to: &TcpStream, patience: Duration) -> io::Result<()> {
    to.set_read_timeout(Some(patience))?;
    to.read_exact(&mut [0])
}

/// What the kernels' programs are told when there is no way.
#[test]
fn a_connection_that_cannot_be_is_refused_for_the_right_reason() {
    in_private_network(
        "a_connection_that_cannot_be_is_refused_for_the_right_reason",
        || {
            let Some(lab) = Lab::start(LabConfig::default()) else {
                return;
            };
            lab.set("net.ipv4.icmp_ratelimit", 0);
            lab.set("net.ipv6.icmp.ratelimit", 0);
            for (prefix, kind) in [
                ("192.0.2.0/26", RouteKind::Unreachable),
                ("192.0.2.64/26", RouteKind::Prohibit),
                ("2001:db8:1::/48", RouteKind::Unreachable),
                ("2001:db8:2::/48", RouteKind::Prohibit),
            ] {
                refuse(&lab.stack, prefix, kind);
            }
            let cases = [
                ("10.0.0.1", ErrorKind::ConnectionRefused),
                ("10.1.0.1", ErrorKind::ConnectionRefused),
                ("10.1.0.2", ErrorKind::ConnectionRefused),
                ("192.0.2.1", ErrorKind::HostUnreachable),
                ("192.0.2.65", ErrorKind::HostUnreachable),
                ("192.0.2.129", ErrorKind::NetworkUnreachable),
                ("fd00::1", ErrorKind::ConnectionRefused),
                ("fd01::1", ErrorKind::ConnectionRefused),
                ("fd01::2", ErrorKind::ConnectionRefused),
                // Linux's IPv6 tells of such a route as of none, and so does Forebay.
                ("2001:db8:1::1", ErrorKind::NetworkUnreachable),
                ("2001:db8:2::1", ErrorKind::PermissionDenied),
                ("2001:db8:3::1", ErrorKind::NetworkUnreachable),
            ];
            for (to, expected) in cases {
                let error = lab
                    .left
                    .connect(SocketAddr::new(ip(to), 9))
                    .expect_err("nobody");
                assert_eq!(error.kind(), expected, "{to}: {error}");
            }
        },
    );
}

fn refuse(stack: &Stack, prefix: &str, kind: RouteKind) {
    let stack = stack.inner();
    let added = if prefix.contains(':') {
        let route = Route::new(kind, prefix.parse().expect("a prefix"));
        stack.fib6().add(TableId::MAIN, route)
    } else {
        let route = Route::new(kind, prefix.parse().expect("a prefix"));
        stack.fib4().add(TableId::MAIN, route)
    };
    added.expect("a new route");
}
