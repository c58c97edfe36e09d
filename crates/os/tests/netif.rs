//! Addresses and routes of a TUN device, as the kernel's sockets see them.

mod common;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use common::{in_private_network, ip, tun};
use forebay_os::netif::{Netlink, NextHop, Route};
use forebay_os::tun::TunConfig;
use rustix::io::Errno;

/// The address that packets to `peer` would be sent from; an error if there is no route.
fn source_towards(peer: &str) -> Result<IpAddr, ErrorKind> {
    let any = match ip(peer) {
        IpAddr::V4(_) => "0.0.0.0",
        IpAddr::V6(_) => "::",
    };
    let socket = UdpSocket::bind((any, 0)).expect("bind");
    socket
        .connect((peer, 7))
        .map_err(|error| error.kind())
        .and_then(|()| socket.local_addr().map_err(|error| error.kind()))
        .map(|address| address.ip())
}

fn errno(result: io::Result<()>) -> Option<Errno> {
    Errno::from_io_error(&result.expect_err("an error"))
}

#[test]
fn routes_and_addresses_come_and_go() {
    in_private_network("routes_and_addresses_come_and_go", || {
        let config = TunConfig {
            name: "tun0".into(),
            queues: 1,
            offload: false,
        };
        let families = [
            ("10.9.0.2", 24, "10.9.0.1", "192.0.2.0", 24, "192.0.2.9"),
            ("fd09::2", 64, "fd09::1", "2001:db8::", 32, "2001:db8::9"),
        ];
        let Some(_tun) = tun(&config, &[]) else {
            return;
        };
        let mut netlink = Netlink::open().expect("netlink");
        let index = netlink.index("tun0").expect("index");
        for (address, len, gateway, prefix, prefix_len, peer) in families {
            let unreachable = Err(ErrorKind::NetworkUnreachable);
            let reachable = Ok(ip(address));
            assert_eq!(source_towards(peer), unreachable);
            netlink.add_address(index, ip(address), len).expect("add");
            let again = netlink.add_address(index, ip(address), len);
            assert_eq!(errno(again), Some(Errno::EXIST));
            assert_eq!(source_towards(gateway), reachable);
            assert_eq!(source_towards(peer), unreachable);

            let specific = |next_hop| Route {
                destination: ip(prefix),
                prefix_len,
                next_hop,
            };
            for route in [
                specific(NextHop::Via(ip(gateway))),
                specific(NextHop::Interface(index)),
                Route::default_via(ip(gateway)),
            ] {
                netlink.add_route(&route).expect("add");
                assert_eq!(errno(netlink.add_route(&route)), Some(Errno::EXIST));
                assert_eq!(source_towards(peer), reachable, "{route:?}");
                netlink.delete_route(&route).expect("delete");
                assert_eq!(errno(netlink.delete_route(&route)), Some(Errno::SRCH));
                assert_eq!(source_towards(peer), unreachable, "{route:?}");
            }
            netlink
                .delete_address(index, ip(address), len)
                .expect("delete");
            let again = netlink.delete_address(index, ip(address), len);
            assert_eq!(errno(again), Some(Errno::ADDRNOTAVAIL));
            assert_eq!(source_towards(gateway), unreachable);
        }
    });
}

#[test]
fn interfaces_are_found_by_name() {
    in_private_network("interfaces_are_found_by_name", || {
        let mut netlink = Netlink::open().expect("netlink");
        let loopback = netlink.index("lo").expect("lo");
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("bind");
        let own = socket.local_addr().expect("address");
        socket.connect(own).expect("lo is up");
        for mtu in [1_400, 9_000] {
            netlink.set_mtu(loopback, mtu).expect("mtu");
            assert_eq!(rustix::net::sockopt::ip_mtu(&socket), Ok(mtu));
        }
        let missing = netlink.index("tun9").expect_err("there is none");
        assert_eq!(Errno::from_io_error(&missing), Some(Errno::NODEV));
        assert_eq!(errno(netlink.set_up(99)), Some(Errno::NODEV));
        assert_eq!(errno(netlink.set_mtu(99, 1_400)), Some(Errno::NODEV));
    });
}
