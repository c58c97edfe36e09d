//! Several workers, with real threads: packets come in by a port of several queues, and sockets are
//! read on processors that change.
//!
//! `FOREBAY_STEERING_SECONDS` says how long the tests last that need time.

mod churn;
mod flows;
mod order;

use std::env;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay::device::port::{Port, PortConfig, port};
use forebay::drop::DropReason;
use forebay::{Stack, UdpSocket, Workers};
use forebay_os::cpu;
use forebay_tests::packets;

/// A host with some workers and a port.
struct Host {
    stack: Stack,
    port: Port,
    _workers: Workers,
}

impl Host {
    fn new(workers: u16, queues: u16) -> Self {
        let stack = Stack::builder()
            .buffers(16_384)
            .workers(workers)
            .seed([5, 6])
            .build()
            .expect("a stack");
        let (device, port) = port(PortConfig {
            queues,
            ..PortConfig::default()
        });
        let ifindex = stack.add_device("port0", device).expect("a device");
        for (addr, len) in [(own(false), 24), (own(true), 64)] {
            stack
                .inner()
                .add_address(ifindex, addr, len)
                .expect("an address");
        }
        let _workers = stack.spawn_workers().expect("workers");
        Self {
            stack,
            port,
            _workers,
        }
    }

    fn set(&self, knob: &str, value: &str) {
        self.stack
            .inner()
            .set_sysctl(knob, value)
            .expect("a knob and a value it takes");
    }

    /// Has flows follow their readers, from every queue.
    fn steer_flows(&self, queues: u16) {
        self.set("net.core.rps_sock_flow_entries", "1024");
        for queue in 0..queues {
            self.set(
                &format!("class/net/port0/queues/rx-{queue}/rps_flow_cnt"),
                "256",
            );
        }
    }

    /// A socket connected to one of the peer's ports.
    fn connected(&self, v6: bool, number: u16) -> UdpSocket {
        let socket = UdpSocket::bind(&self.stack, SocketAddr::new(own(v6), 10_000 + number))
            .expect("a free port");
        let peer = SocketAddr::new(peer(v6), 20_000 + number);
        socket.connect(peer).expect("a route");
        let patience = Some(Duration::from_millis(50));
        socket.set_read_timeout(patience).expect("a timeout");
        socket
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.stack.inner().counters().dropped(reason)
    }

    /// Waits until nothing is under way any more.
    fn settle(&self) {
        let state = || {
            (
                self.stack.inner().counters(),
                self.stack.device_status("port0"),
            )
        };
        let (mut before, mut quiet) = (String::new(), 0);
        // A worker that others keep from running looks quiet, too.
        while quiet < 8 {
            thread::sleep(Duration::from_millis(25));
            let now = format!("{:?}", state());
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }
}

fn own(v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, 1).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

fn peer(v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, 2).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
    }
}

/// What the peer's port sends to the socket that is connected to it.
fn datagram(v6: bool, number: u16, payload: u64) -> Vec<u8> {
    packets::udp(
        peer(v6),
        own(v6),
        20_000 + number,
        10_000 + number,
        &payload.to_be_bytes(),
    )
}

/// How long tests last that need time.
fn how_long() -> Duration {
    let asked = env::var("FOREBAY_STEERING_SECONDS").ok();
    let seconds = asked.map_or(2, |asked| asked.parse().expect("a number"));
    Duration::from_secs(seconds)
}

/// The processors there are, if there are two at least: on one, there is nowhere to steer to.
fn processors() -> Option<Vec<usize>> {
    let allowed = cpu::allowed().expect("the system says");
    if allowed.len() < 2 {
        eprintln!("not tested: there is one processor only");
        return None;
    }
    Some(allowed)
}

/// Reads numbers until there have been none for a while and `done` says that none will come.
fn read_all(socket: &UdpSocket, done: &AtomicBool, mut each: impl FnMut(u64)) {
    let mut payload = [0; 8];
    loop {
        let ends = done.load(Ordering::Acquire);
        match socket.recv(&mut payload) {
            Ok(len) => {
                assert_eq!(len, 8);
                each(u64::from_be_bytes(payload));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if ends {
                    return;
                }
            }
            Err(error) => unreachable!("{error}"),
        }
    }
}
