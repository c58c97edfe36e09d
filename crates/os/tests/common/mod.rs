//! What the tests of this crate share: re-executing themselves in a private network, and talking
//! to the kernel's sockets over a queue.

// Each test binary uses its own part of this; a test that cannot go on panics.
#![allow(dead_code, clippy::panic)]

use std::env;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_os::netif::Netlink;
use forebay_os::netns::{PrivateNetwork, PrivateNetworkError};
use forebay_os::poll;
use forebay_os::tun::{Queue, Tun, TunConfig, TunError};
use forebay_os::vnet::VnetHeader;

const ROLE: &str = "FOREBAY_OS_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `body` in a process that has a network of its own: the test named `test` starts itself
/// once more there.
pub(crate) fn in_private_network(test: &str, body: impl FnOnce()) {
    if is_role("inside") {
        return body();
    }
    let child = PrivateNetwork::new().spawn(this_test(test, "inside"));
    let Some(mut child) = unless_refused(child) else {
        return;
    };
    assert!(child.wait().expect("wait").success(), "failed inside");
}

/// This test once more, in another role.
pub(crate) fn this_test(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("current executable"));
    command.args(["--exact", test, "--nocapture"]);
    command.env(ROLE, role);
    command
}

pub(crate) fn is_role(role: &str) -> bool {
    env::var_os(ROLE).is_some_and(|value| value == role)
}

/// Lets a test pass over what this machine does not permit, but not where that is demanded.
pub(crate) fn unless_refused<T>(result: Result<T, PrivateNetworkError>) -> Option<T> {
    match result {
        Ok(it) => Some(it),
        Err(PrivateNetworkError::Tun(error)) => pass_over(&error),
        Err(error @ PrivateNetworkError::Step { .. }) => pass_over(&error),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn pass_over<T>(error: &dyn std::error::Error) -> Option<T> {
    let demanded = env::var_os("FOREBAY_REQUIRE_NET").is_some_and(|value| value == "1");
    assert!(!demanded, "{error}");
    eprintln!("not tested: {error}");
    None
}

/// Opens a TUN device, brings it up, and gives it addresses.
pub(crate) fn tun(config: &TunConfig, addresses: &[(&str, u8)]) -> Option<Tun> {
    let tun = match Tun::open(config) {
        Ok(tun) => tun,
        Err(error @ (TunError::Missing(_) | TunError::OpenNotPermitted(_))) => {
            return pass_over(&error);
        }
        Err(error) => panic!("{error}"),
    };
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(tun.name()).expect("index");
    netlink.set_up(index).expect("up");
    for &(address, prefix_len) in addresses {
        netlink
            .add_address(index, ip(address), prefix_len)
            .expect(address);
    }
    Some(tun)
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// A packet, and the queue that it came from.
pub(crate) struct Frame {
    pub(crate) header: VnetHeader,
    pub(crate) bytes: Vec<u8>,
    pub(crate) queue: usize,
}

/// Waits for a UDP packet to `port`. Others, such as the kernel's own router solicitations, are
/// passed over.
pub(crate) fn receive_udp(queues: &mut [Queue], port: u16) -> Frame {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no packet to port {port}");
        let fds: Vec<_> = queues.iter().map(AsFd::as_fd).collect();
        for queue in poll::wait(&fds, Some(left)).expect("poll") {
            let frame = receive(&mut queues[queue], queue);
            if udp_ports(&frame.bytes).is_some_and(|(_, destination)| destination == port) {
                return frame;
            }
        }
    }
}

/// Receives into two buffers, as packets with fragments are.
fn receive(queue: &mut Queue, position: usize) -> Frame {
    let (mut first, mut second) = ([0; 30], vec![0; 70_000]);
    let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let (header, len) = queue.recv(&mut bufs).expect("a packet");
    let mut bytes = [&first[..], &second[..]].concat();
    bytes.truncate(len);
    Frame {
        header,
        bytes,
        queue: position,
    }
}

/// Sends a packet back where it came from. Exchanging addresses and exchanging ports leaves a
/// checksum as right as it was, or as much left to be filled in.
pub(crate) fn send_back(queue: &mut Queue, frame: &Frame) -> io::Result<()> {
    let mut bytes = frame.bytes.clone();
    let (source, len, ports) = match bytes[0] >> 4 {
        4 => (12, 4, 20),
        _ => (8, 16, 40),
    };
    exchange(&mut bytes[source..][..2 * len]);
    exchange(&mut bytes[ports..][..4]);
    let (head, rest) = bytes.split_at(21);
    queue.send(&frame.header, &[IoSlice::new(head), IoSlice::new(rest)])
}

fn exchange(halves: &mut [u8]) {
    halves.rotate_left(halves.len() / 2);
}

/// The ports of a UDP packet without options or extension headers.
fn udp_ports(packet: &[u8]) -> Option<(u16, u16)> {
    const UDP: u8 = 17;
    let ports = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&UDP) => packet.get(20..24)?,
        6 if packet.get(6) == Some(&UDP) => packet.get(40..44)?,
        _ => return None,
    };
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Some((port(0), port(2)))
}
