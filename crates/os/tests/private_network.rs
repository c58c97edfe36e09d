//! Commands in private networks, seen from inside and from outside.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{ip, is_role, receive_udp, send_back, this_test, unless_refused};
use forebay_os::netns::{Interface, PrivateNetwork, PrivateNetworkError};
use forebay_os::tun::{TunConfig, TunError};

fn interface(name: &str, queues: usize) -> Interface {
    Interface::new(TunConfig {
        name: name.into(),
        queues,
        offload: true,
    })
}

#[test]
fn the_only_way_out_is_ours() {
    const TEST: &str = "the_only_way_out_is_ours";
    if is_role("inside") {
        return look_around();
    }
    let interface = interface("tun%d", 2)
        .mtu(1_400)
        .address(ip("10.9.0.2"), 24)
        .address(ip("fd09::2"), 64)
        .default_via(ip("10.9.0.1"))
        .default_via(ip("fd09::1"));
    let network = PrivateNetwork::new().resolv_conf("nameserver 10.9.0.1\n");
    let before = fs::read("/etc/resolv.conf").ok();
    let started = network.spawn_with(this_test(TEST, "inside"), &interface);
    let Some((mut child, mut tun)) = unless_refused(started) else {
        return;
    };
    assert_eq!(tun.name(), "tun0");
    assert_eq!(tun.queues.len(), 2);
    for peer in ["192.0.2.1", "2001:db8::1"] {
        let frame = receive_udp(&mut tun.queues, 7);
        assert!(frame.bytes.ends_with(peer.as_bytes()));
        send_back(&mut tun.queues[frame.queue], &frame).expect("send back");
    }
    assert!(child.wait().expect("wait").success());
    assert_eq!(fs::read("/etc/resolv.conf").ok(), before);
}

fn look_around() {
    for peer in ["192.0.2.1", "2001:db8::1"] {
        let any = if ip(peer).is_ipv4() { "0.0.0.0" } else { "::" };
        let socket = UdpSocket::bind((any, 0)).expect("bind");
        socket.connect((peer, 7)).expect("a default route");
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).expect("timeout");
        socket.send(peer.as_bytes()).expect("send");
        let mut answer = [0; 64];
        let len = socket.recv(&mut answer).expect("an answer");
        assert_eq!(&answer[..len], peer.as_bytes());
    }
    if Path::new("/etc/resolv.conf").exists() {
        let resolv_conf = fs::read_to_string("/etc/resolv.conf").expect("resolv.conf");
        assert_eq!(resolv_conf, "nameserver 10.9.0.1\n");
    }
    assert!(Path::new("/proc/self/status").exists(), "/proc is covered");
    assert!(rustix::process::geteuid().is_root());

    let table = fs::read_to_string("/proc/net/dev").expect("a table");
    let names = table.lines().filter_map(|line| line.split_once(':'));
    let names: Vec<_> = names.map(|(name, _)| name.trim()).collect();
    assert!(names.contains(&"lo") && names.contains(&"tun0"));
    assert!(!names.iter().any(|name| name.starts_with("eth")));

    // What the kernel says about the route's MTU is what the interface was given.
    let flow = UdpSocket::bind("10.9.0.2:0").expect("bind");
    flow.connect("10.9.0.1:9").expect("connect");
    let mtu = rustix::net::sockopt::ip_mtu(&flow).expect("mtu");
    assert_eq!(mtu, 1_400);
}

#[test]
fn a_killed_parent_takes_the_command_along() {
    const TEST: &str = "a_killed_parent_takes_the_command_along";
    if is_role("parent") {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let Some(mut child) = unless_refused(PrivateNetwork::new().spawn(sleep)) else {
            return println!("refused");
        };
        println!("started");
        child.wait().expect("wait");
        return;
    }
    let mut parent = this_test(TEST, "parent");
    let mut parent = parent.stdout(Stdio::piped()).spawn().expect("spawn");
    let mut output = BufReader::new(parent.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.ends_with("started\n") {
        line.clear();
        let read = output.read_line(&mut line).expect("read");
        if read == 0 || line.ends_with("refused\n") {
            let status = parent.wait().expect("wait");
            return assert!(status.success(), "it ended by itself");
        }
    }
    parent.kill().expect("kill");
    parent.wait().expect("wait");
    // The command has the other end of the pipe, too: it is closed when both are dead.
    let reader = thread::spawn(move || output.read_to_end(&mut Vec::new()));
    for _ in 0..1_000 {
        if reader.is_finished() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the command lives on");
}

#[test]
fn a_command_that_cannot_run_says_why() {
    let network = PrivateNetwork::new();
    let quiet = || Command::new("true");
    let Some(mut child) = unless_refused(network.spawn(quiet())) else {
        return;
    };
    assert!(child.wait().expect("wait").success());

    let error = network.spawn(Command::new("/no/such/program"));
    let error = error.expect_err("no such program");
    assert!(matches!(error, PrivateNetworkError::Command { .. }));
    assert!(error.to_string().starts_with("cannot run /no/such/program"));

    let spawn = |interface: &Interface| {
        let result = network.spawn_with(quiet(), interface);
        result.expect_err("a wrong interface").to_string()
    };
    let error = network.spawn_with(quiet(), &interface("sixteen-bytes-xx", 1));
    let error = error.expect_err("a wrong name");
    assert!(matches!(error, PrivateNetworkError::Tun(TunError::Name(_))));

    let Some((mut child, most)) = unless_refused(network.spawn_with(quiet(), &interface("t", 256)))
    else {
        return;
    };
    child.wait().expect("wait");
    assert_eq!(most.queues.len(), 256);

    let error = spawn(&interface("lo", 1));
    assert!(error.contains("lo") && error.contains("exists"), "{error}");
    let error = spawn(&interface("tun0", 1).mtu(7));
    assert!(error.contains("setting the MTU to 7"), "{error}");
    let error = spawn(&interface("tun0", 1).address(ip("10.9.0.2"), 33));
    assert!(error.contains("adding the address 10.9.0.2/33"), "{error}");
    let error = spawn(&interface("tun0", 1).default_via(ip("10.9.0.1")));
    assert!(error.contains("a gateway must lie in"), "{error}");
}
