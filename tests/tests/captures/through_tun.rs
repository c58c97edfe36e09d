//! All captures through real TUN devices:
//!
//! ```text
//! capture ─▶ router ─▶ TUN ─▶ the kernel, which routes ─▶ TUN ─▶ host
//! ```
//!
//! The kernel drops what it likes, and answers what it likes. What matters is that nothing here
//! panics, and that every buffer comes home.

use std::fs;
use std::net::IpAddr;

use forebay::device::Device as _;
use forebay::device::pcap::{PcapConfig, PcapDevice};
use forebay::device::tun::{TunConfig, TunDevice};
use forebay_os::netif::{Netlink, Route};
use forebay_os::tun::TunError;
use forebay_tests::kernel::{in_private_network, pass_over};
use forebay_tests::lab::{Lab, Role};

use super::{captures, table};

const TEST: &str = "through_tun::captures_pass_through_the_kernel";
const MTU: u32 = 1_500;

#[test]
fn captures_pass_through_the_kernel() {
    if captures().is_some() {
        in_private_network(TEST, inside);
    }
}

fn inside() {
    for (knob, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/all/forwarding", "1"),
    ] {
        fs::write(format!("/proc/sys/net/{knob}"), value).expect(knob);
    }
    let (mut to_kernel, mut from_kernel) = match (
        tun("tun0", &[("10.9.0.2", 24), ("fd09::2", 64)]),
        tun("tun1", &[("10.9.1.2", 24), ("fd09:1::2", 64)]),
    ) {
        (Ok(to), Ok(from)) => (to, from),
        (Err(error @ (TunError::Missing(_) | TunError::OpenNotPermitted(_))), _) => {
            return pass_over(&error);
        }
        (Err(error), _) | (_, Err(error)) => panic!("{error}"),
    };
    let mut netlink = Netlink::open().expect("netlink");
    for gateway in ["10.9.1.1", "fd09:1::1"] {
        let gateway: IpAddr = gateway.parse().expect("an address");
        netlink
            .add_route(&Route::default_via(gateway))
            .expect("a default route");
    }

    let mut router = Lab::new(Role::Router);
    let mut host = Lab::new(Role::Host);
    for path in captures().expect("they were there outside") {
        let config = PcapConfig {
            input: Some(path),
            ..PcapConfig::default()
        };
        let mut capture = PcapDevice::open(&config).expect("a capture");
        let mut idle = 0;
        while !capture.is_finished() || idle < 3 {
            let taken = router.rig.turn("tun0", &mut capture)
                + router.rig.turn("tun1", &mut to_kernel)
                + host.rig.turn("tun0", &mut from_kernel);
            idle = if taken == 0 { idle + 1 } else { 0 };
        }
    }

    let (sent, received) = (to_kernel.stats().tx_packets, from_kernel.stats().rx_packets);
    assert_eq!(
        sent,
        table().forwarded(),
        "packets that the router passed on"
    );
    assert!(
        received > sent / 2,
        "the kernel passed on {received} of {sent}"
    );
    // They keep buffers ready for what comes next.
    drop((to_kernel, from_kernel));
    router.close();
    host.close();
}

fn tun(name: &str, addresses: &[(&str, u8)]) -> Result<TunDevice, TunError> {
    let config = TunConfig {
        name: name.to_owned(),
        queues: 1,
        offload: true,
    };
    let device = TunDevice::open(&config, MTU)?;
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(name).expect("an interface");
    netlink.set_up(index).expect("up");
    for (address, prefix_len) in addresses {
        let address: IpAddr = address.parse().expect("an address");
        netlink
            .add_address(index, address, *prefix_len)
            .expect("a new address");
    }
    Ok(device)
}
