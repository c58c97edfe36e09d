//! Devices that come and go.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use forebay::device::tun::{TunConfig, TunDevice, TunError};
use forebay_os::netif::Netlink;
use forebay_tests::kernel::{
    Family, Host, Lab, LabConfig, PATIENCE, Ping, assert_workers_sleep, attach, forwarding_stack,
    in_private_network, ip, is_role, pass_over, ping, this_test,
};

/// The kernel's end of a device goes away: that interface is down, and the others go on. Another
/// device may take its place while the worker runs.
#[test]
fn a_vanished_device_is_given_up_alone() {
    in_private_network("a_vanished_device_is_given_up_alone", || {
        let config = LabConfig::default();
        let Some(mut lab) = Lab::start(config) else {
            return;
        };
        let [v4, v6] = Family::both();
        let answers = |lab: &Lab| {
            ping(&lab.left, v4.right, Ping::default()) && ping(&lab.left, v6.right, Ping::default())
        };
        assert!(answers(&lab));

        if !ip_link(&lab.right, "delete") {
            return;
        }
        assert!(!ping(&lab.left, v4.right, Ping::in_vain()));
        assert!(ping(&lab.left, v4.own, Ping::default()));
        let error = lab.stack.device_status("tun1").expect("tun1").error;
        assert_eq!(error.as_deref(), Some("TUN device tun0 was deleted"));
        assert!(!lab.stack.inner().interface_named("tun1").expect("tun1").up);
        assert_workers_sleep();

        lab.stack.remove_device("tun1").expect("tun1");
        let Some((right, tun1)) = Lab::right(config) else {
            return;
        };
        Lab::attach_right(&lab.stack, tun1, config);
        lab.right = right;
        assert!(answers(&lab));
    });
}

/// The kernel's interface is down for a while: nothing comes and goes, and nobody is kept busy.
#[test]
fn an_interface_may_be_down_for_a_while() {
    in_private_network("an_interface_may_be_down_for_a_while", || {
        let Some(lab) = Lab::start(LabConfig::default()) else {
            return;
        };
        let v4 = Family::both()[0];
        assert!(ping(&lab.right, v4.own1, Ping::default()));
        if !ip_link(&lab.right, "set down") {
            return;
        }
        assert!(!ping(&lab.left, v4.right, Ping::in_vain()));
        assert_workers_sleep();
        assert!(ip_link(&lab.right, "set up"));
        assert!(ping(&lab.right, v4.own1, Ping::default()));
        assert_eq!(lab.stack.device_status("tun1").expect("tun1").error, None);
    });
}

/// Does something to a host's device with ip(8); `false` where that is not installed.
fn ip_link(host: &Host, what: &str) -> bool {
    let mut command = Command::new("ip");
    command
        .arg("link")
        .args(what.split(' ').take(1))
        .arg("tun0")
        .args(what.split(' ').skip(1));
    let done = host
        .run(|| command.status())
        .is_ok_and(|status| status.success());
    if !done {
        eprintln!("not tested: no `ip` to {what} a link with");
    }
    done
}

const TEST: &str = "a_killed_process_leaves_nothing_behind";
const VICTIM: &str = "victim";

#[test]
fn a_killed_process_leaves_nothing_behind() {
    in_private_network(TEST, || {
        if is_role(VICTIM) {
            return echo_for_ever();
        }
        for _ in 0..3 {
            let Some(mut victim) = start() else { return };
            for address in ["10.9.0.1", "fd09::1"] {
                let client = UdpSocket::bind(if address.contains(':') {
                    "[::]:0"
                } else {
                    "0.0.0.0:0"
                })
                .expect("bind");
                client.set_read_timeout(Some(PATIENCE)).expect("timeout");
                client.connect((address, 7)).expect("a route");
                client.send(b"alive").expect("send");
                assert_eq!(client.recv(&mut [0; 8]).expect("an echo"), 5);
            }
            // While it lives the device is its own.
            let error = TunDevice::open(&device(), 1_500)
                .err()
                .expect("the device is taken");
            assert!(matches!(error, TunError::Busy { .. }), "{error}");
            victim.kill().expect("kill");
            victim.wait().expect("wait");
        }
    });
}

fn device() -> TunConfig {
    TunConfig {
        name: "fb0".into(),
        queues: 1,
        offload: true,
    }
}

/// A process that echoes; `None` where the machine does not permit it.
fn start() -> Option<Child> {
    let mut victim = this_test(TEST, VICTIM);
    let mut victim = victim.stdout(Stdio::piped()).spawn().expect("spawn");
    let output = BufReader::new(victim.stdout.take().expect("a pipe"));
    let is_ready = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line.ends_with("ready"));
    if is_ready {
        return Some(victim);
    }
    assert!(
        victim.wait().expect("wait").success(),
        "the victim died by itself"
    );
    None
}

fn echo_for_ever() {
    let tun = match TunDevice::open(&device(), 1_500) {
        Err(error @ (TunError::Missing(_) | TunError::OpenNotPermitted(_))) => {
            return pass_over(&error);
        }
        other => other.expect("a device"),
    };
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(tun.name()).expect("index");
    netlink.set_up(index).expect("up");
    let stack = forwarding_stack();
    attach(
        &stack,
        "fb0",
        tun,
        &[(ip("10.9.0.1"), 24), (ip("fd09::1"), 64)],
    );
    let _worker = stack.spawn_workers().expect("a worker");
    let socket = forebay::UdpSocket::bind(&stack, "[::]:7").expect("bind");
    for (address, prefix_len) in [("10.9.0.2", 24), ("fd09::2", 64)] {
        netlink
            .add_address(index, ip(address), prefix_len)
            .expect("an address");
    }
    println!("ready");
    let mut buf = [0; 2_048];
    loop {
        let (len, from) = socket.recv_from(&mut buf).expect("receive");
        socket.send_to(&buf[..len], from).expect("send");
    }
}
