//! Several workers at TUN devices with several queues: the kernel sends a flow by the queue that its
//! packets came by last, so both directions of it meet on one worker.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

use forebay::core::packet::{Packet, PacketCache, PacketQueue};
use forebay::core::time::Instant;
use forebay::device::tun::{Tun, TunDevice};
use forebay::device::{Device, DeviceStats};
use forebay::interface::Offload;
use forebay::{Stack, Workers};
use forebay_tests::kernel::{Family, Host, Lab, LabConfig, attach, in_private_network, set};
use forebay_tests::{V4, V6};

const QUEUES: usize = 2;
const FLOWS: usize = 32;
const ECHO: u16 = 7;

/// By which queues of a device a client's port went in and out, the last one of either.
type Seen = Arc<Mutex<HashMap<(Way, u16), usize>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    In,
    Out,
}

/// A TUN device that notes which flows its queues see.
struct Noting {
    inner: Box<dyn Device>,
    queue: usize,
    taken: usize,
    seen: Seen,
}

impl Noting {
    fn new(tun: Tun, config: LabConfig) -> (Self, Seen) {
        let seen = Seen::default();
        let device = Self {
            inner: Box::new(TunDevice::new(tun, config.left_mtu, config.offload)),
            queue: 0,
            taken: 0,
            seen: Arc::clone(&seen),
        };
        (device, seen)
    }

    /// Only what is between a client and the echo counts.
    fn note(&self, way: Way, packet: &Packet) {
        let Some((port, ECHO) | (ECHO, port)) = ports(packet.data()) else {
            return;
        };
        let mut seen = self.seen.lock().expect("no panic");
        seen.insert((way, port), self.queue);
    }
}

/// Of a UDP datagram without options.
fn ports(packet: &[u8]) -> Option<(u16, u16)> {
    let (protocol, udp) = match packet.first()? >> 4 {
        4 => (packet.get(9)?, packet.get(20..)?),
        _ => (packet.get(6)?, packet.get(40..)?),
    };
    let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk()?));
    (*protocol == 17).then_some(())?;
    Some((port(0)?, port(2)?))
}

impl Device for Noting {
    fn mtu(&self) -> u32 {
        self.inner.mtu()
    }

    fn offload(&self) -> Offload {
        self.inner.offload()
    }

    fn follows_flows(&self) -> bool {
        self.inner.follows_flows()
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let received = self.inner.receive(now, cache, out, budget);
        out.iter().for_each(|packet| self.note(Way::In, packet));
        received
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        packets
            .iter()
            .for_each(|packet| self.note(Way::Out, packet));
        self.inner.transmit(now, packets, cache)
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        let inner = self.inner.take_queue()?;
        self.taken += 1;
        Some(Box::new(Self {
            inner,
            queue: self.taken,
            taken: 0,
            seen: Arc::clone(&self.seen),
        }))
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.inner.fds(fds);
    }

    fn set_waker(&mut self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

/// Both ways of a flow go by one queue of either device, and so through one worker, once the kernels
/// have seen it.
#[test]
fn forwarded_flows_keep_to_one_queue() {
    in_private_network("forwarded_flows_keep_to_one_queue", || {
        let Some((lab, [left, right])) = start() else {
            return;
        };
        for family in Family::both() {
            let echo = lab.right.udp(family.right, ECHO);
            thread::scope(|scope| {
                scope.spawn(|| answer(|buf| echo.recv_from(buf), |buf, to| echo.send_to(buf, to)));
                let ports = talk(&lab.left, family.right);
                let queue_of =
                    |seen: &Seen, way, port| seen.lock().expect("no panic")[&(way, port)];
                let mut used = HashSet::new();
                for port in ports {
                    let queue = queue_of(&left, Way::In, port);
                    used.insert(queue);
                    for (seen, way) in [(&left, Way::Out), (&right, Way::In), (&right, Way::Out)] {
                        assert_eq!(queue_of(seen, way, port), queue, "{way:?} of port {port}");
                    }
                }
                assert_eq!(used.len(), QUEUES, "flows are spread");
            });
        }
    });
}

/// What a socket of ours answers leaves by the queue that the flow comes by.
#[test]
fn answers_leave_by_the_queue_of_their_flow() {
    in_private_network("answers_leave_by_the_queue_of_their_flow", || {
        let Some((lab, [left, _])) = start() else {
            return;
        };
        for family in Family::both() {
            let echo = forebay::UdpSocket::bind(&lab.stack, SocketAddr::new(family.own, ECHO));
            let echo = echo.expect("a free port");
            thread::scope(|scope| {
                scope.spawn(|| answer(|buf| echo.recv_from(buf), |buf, to| echo.send_to(buf, to)));
                let ports = talk(&lab.left, family.own);
                let seen = left.lock().expect("no panic");
                let mut used = HashSet::new();
                for port in ports {
                    assert_eq!(
                        seen[&(Way::In, port)],
                        seen[&(Way::Out, port)],
                        "port {port}"
                    );
                    used.insert(seen[&(Way::Out, port)]);
                }
                assert_eq!(used.len(), QUEUES, "flows are spread");
            });
        }
        let took_part = |cpu| {
            let stats = lab.stack.inner().softnet_stats(cpu);
            stats.is_some_and(|stats| stats.processed > 0)
        };
        assert!(took_part(0) && took_part(1), "each worker has a queue");
    });
}

/// Two hosts, and between them a stack with a worker for each queue.
struct Between {
    left: Host,
    right: Host,
    stack: Stack,
    _workers: Workers,
}

fn start() -> Option<(Between, [Seen; 2])> {
    let config = LabConfig {
        queues: QUEUES,
        ..LabConfig::default()
    };
    let (left, tun0) = Lab::left(config)?;
    let (right, tun1) = Lab::right(config)?;
    let stack = Stack::builder().workers(QUEUES as u16).build();
    let stack = stack.expect("a stack");
    for knob in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        set(&stack, knob, 1);
    }
    let (device, left_seen) = Noting::new(tun0, config);
    let addresses = [(V4::OWN.into(), 24), (V6::OWN.into(), 64)];
    attach(&stack, "tun0", device, &addresses);
    let (device, right_seen) = Noting::new(tun1, config);
    let addresses = [(V4::OWN1.into(), 24), (V6::OWN1.into(), 64)];
    attach(&stack, "tun1", device, &addresses);
    let workers = stack.spawn_workers().expect("workers");
    let between = Between {
        left,
        right,
        stack,
        _workers: workers,
    };
    Some((between, [left_seen, right_seen]))
}

/// Flows from a host to an echo there, each one several times to and fro; then the echo is told to
/// end. Returns the flows' ports.
fn talk(host: &Host, to: IpAddr) -> Vec<u16> {
    let clients: Vec<_> = (0..FLOWS)
        .map(|_| host.udp_to(SocketAddr::new(to, ECHO)))
        .collect();
    for round in 1..=4_u8 {
        for client in &clients {
            client.send(&[round]).expect("sent");
        }
        for client in &clients {
            let mut buf = [0; 8];
            let len = client.recv(&mut buf).expect("an answer");
            assert_eq!(buf[..len], [round]);
        }
    }
    clients[0].send(&[]).expect("sent");
    let ports = clients.iter().map(UdpSocket::local_addr);
    ports.map(|addr| addr.expect("bound").port()).collect()
}

/// Sends back what comes, up to an empty datagram.
fn answer(
    receive: impl Fn(&mut [u8]) -> io::Result<(usize, SocketAddr)>,
    send: impl Fn(&[u8], SocketAddr) -> io::Result<usize>,
) {
    let mut buf = [0; 64];
    loop {
        let (len, from) = receive(&mut buf).expect("a datagram");
        if len == 0 {
            return;
        }
        send(&buf[..len], from).expect("sent");
    }
}
