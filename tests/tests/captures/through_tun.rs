//! All captures through real TUN devices:
//!
//! ```text
//! capture ─▶ router ─▶ TUN ─▶ the kernel, which routes ─▶ TUN ─▶ host
//! ```
//!
//! The kernel drops what it likes, and answers what it likes. What matters is that nothing here
//! panics, and that every buffer comes home.

use std::env;
use std::fs;
use std::net::IpAddr;
use std::process::Command;

use forebay::device::Device as _;
use forebay::device::pcap::{PcapConfig, PcapDevice};
use forebay::device::tun::{TunConfig, TunDevice};
use forebay_os::netif::{Netlink, Route};
use forebay_os::netns::{PrivateNetwork, PrivateNetworkError};
use forebay_tests::lab::{Lab, Role};

use super::{captures, table};

const TEST: &str = "through_tun::captures_pass_through_the_kernel";
const INSIDE: &str = "FOREBAY_CAPTURES_TEST_INSIDE";
const MTU: u32 = 1_500;

#[test]
fn captures_pass_through_the_kernel() {
    if env::var_os(INSIDE).is_some() {
        return inside();
    }
    if captures().is_none() {
        return;
    }
    let mut command = Command::new(env::current_exe().expect("this is an executable"));
    command
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, "1");
    match PrivateNetwork::new().spawn(command) {
        Ok(mut child) => {
            let status = child.wait().expect("the child can be waited for");
            assert!(status.success(), "failed inside");
        }
        Err(error @ (PrivateNetworkError::Tun(_) | PrivateNetworkError::Step { .. })) => {
            let demanded = env::var_os("FOREBAY_REQUIRE_NET").is_some_and(|value| value == "1");
            assert!(!demanded, "{error}");
            eprintln!("not tested: {error}");
        }
        Err(error) => panic!("{error}"),
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
    let mut to_kernel = tun("tun0", &[("10.9.0.2", 24), ("fd09::2", 64)]);
    let mut from_kernel = tun("tun1", &[("10.9.1.2", 24), ("fd09:1::2", 64)]);
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

fn tun(name: &str, addresses: &[(&str, u8)]) -> TunDevice {
    let config = TunConfig {
        name: name.to_owned(),
        queues: 1,
        offload: true,
    };
    let device = TunDevice::open(&config, MTU).expect("a TUN device");
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(name).expect("an interface");
    netlink.set_up(index).expect("up");
    for (address, prefix_len) in addresses {
        let address: IpAddr = address.parse().expect("an address");
        netlink
            .add_address(index, address, *prefix_len)
            .expect("a new address");
    }
    device
}
