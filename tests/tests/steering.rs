//! RPS and RFS through the stack's own interface, with cores and time driven by hand.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_stack::core::Core;
use forebay_stack::drop::DropReason;
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::packet::{IpVersion, PacketQueue};
use forebay_stack::random::Random;
use forebay_stack::socket::SocketId;
use forebay_stack::steer::RxId;
use forebay_stack::time::Instant;
use forebay_stack::{Stack, StackConfig};
use forebay_tests::packets;

const MAP: &str = "class/net/tun0/queues/rx-0/rps_cpus";
const FLOWS: &str = "class/net/tun0/queues/rx-0/rps_flow_cnt";
const SOCK_FLOWS: &str = "net.core.rps_sock_flow_entries";

thread_local! {
    /// The core that the test pretends to run on.
    static CPU: Cell<Option<u16>> = const { Cell::new(None) };
}

/// A host with some cores, all of which one thread drives.
struct Host {
    stack: Stack,
    cores: Vec<Core>,
    tun0: u32,
}

impl Host {
    fn new(cores: u16) -> Self {
        let stack = Stack::new(&StackConfig {
            seed: [3, 4],
            current_cpu: || CPU.get(),
            ..StackConfig::default()
        });
        let tun0 = stack
            .add_interface(InterfaceConfig::new("tun0"))
            .expect("a new name");
        for (addr, len) in [(own(false), 24), (own(true), 64)] {
            stack.add_address(tun0, addr, len).expect("a new address");
        }
        let cores = (0..cores).map(|cpu| stack.core_on(cpu)).collect();
        Self { stack, cores, tun0 }
    }

    fn set(&self, knob: &str, value: &str) {
        self.stack
            .set_sysctl(knob, value)
            .expect("a knob and a value");
    }

    /// Packets come in by the queue, which core 0 polls.
    fn receive(&mut self, packets: &[Vec<u8>]) {
        let core = &mut self.cores[0];
        let mut queue = PacketQueue::new();
        for bytes in packets {
            let mut packet = core.cache().alloc().expect("a buffer");
            packet
                .put(bytes.len())
                .expect("it fits")
                .copy_from_slice(bytes);
            queue.push(packet);
        }
        let from = RxId {
            ifindex: self.tun0,
            queue: 0,
        };
        self.stack
            .receive_from(core, Instant::ZERO, from, &mut queue);
        assert!(queue.is_empty());
    }

    /// A core looks at what the others have left to it.
    fn turn(&mut self, cpu: usize, budget: usize) {
        let core = &mut self.cores[cpu];
        self.stack.receive_backlog(core, Instant::ZERO, budget);
    }

    fn turn_all(&mut self) {
        for cpu in 0..self.cores.len() {
            self.turn(cpu, usize::MAX);
        }
    }

    /// What a core has taken in so far, by itself and from others.
    fn processed(&self, cpu: u16) -> u64 {
        self.stack.softnet_stats(cpu).expect("a core").processed
    }

    /// A socket connected to a peer's port.
    fn connected(&self, v6: bool, peer_port: u16) -> SocketId {
        let socket = self.stack.udp_open(version(v6)).expect("a socket");
        self.stack
            .udp_bind(socket, SocketAddr::new(own(v6), 10_000 + peer_port))
            .expect("a free port");
        let peer = SocketAddr::new(peer(v6), peer_port);
        self.stack
            .udp_connect(Instant::ZERO, socket, peer)
            .expect("a route");
        socket
    }

    /// Reads all that a socket has, as an application on a core does. Returns the numbers in the
    /// datagrams.
    fn read_on(&self, cpu: u16, socket: SocketId) -> Vec<u32> {
        CPU.set(Some(cpu));
        let mut numbers = Vec::new();
        let mut payload = [0; 4];
        while let Some(received) = self
            .stack
            .udp_recv(socket, &mut payload, false)
            .expect("open")
        {
            assert_eq!(received.len, 4);
            numbers.push(u32::from_be_bytes(payload));
        }
        CPU.set(None);
        numbers
    }
}

fn version(v6: bool) -> IpVersion {
    match v6 {
        false => IpVersion::V4,
        true => IpVersion::V6,
    }
}

fn own(v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, 1).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

fn peer(v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, 2).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).into(),
    }
}

fn datagram(v6: bool, peer_port: u16, number: u32) -> Vec<u8> {
    let payload = number.to_be_bytes();
    packets::udp(peer(v6), own(v6), peer_port, 10_000 + peer_port, &payload)
}

#[test]
fn nothing_is_steered_unless_told() {
    let mut host = Host::new(2);
    let socket = host.connected(false, 1);
    host.receive(&[datagram(false, 1, 7)]);
    assert_eq!(host.read_on(1, socket), [7]);
    host.receive(&[datagram(false, 1, 8)]);
    assert_eq!(host.read_on(1, socket), [8]);
    assert_eq!((host.processed(0), host.processed(1)), (2, 0));
    assert_eq!(host.stack.sock_flows(), (0, 0));
}

#[test]
fn rps_spreads_flows_and_keeps_each_on_one_core() {
    for v6 in [false, true] {
        let mut host = Host::new(4);
        host.set(MAP, "e");
        let sockets: Vec<_> = (1..=200).map(|port| host.connected(v6, port)).collect();
        for number in 0..5 {
            for port in 1..=200 {
                host.receive(&[datagram(v6, port, number)]);
            }
        }
        host.turn_all();
        for socket in sockets {
            assert_eq!(host.read_on(0, socket), [0, 1, 2, 3, 4]);
        }
        assert_eq!(host.processed(0), 0);
        let shares = [1, 2, 3].map(|cpu| host.processed(cpu));
        assert_eq!(shares.iter().sum::<u64>(), 1_000);
        // A flow is whole somewhere, and 200 flows are spread more or less.
        assert!(
            shares.iter().all(|share| share % 5 == 0 && *share > 200),
            "{shares:?}"
        );
    }
}

#[test]
fn a_mask_of_cores_that_do_not_exist_leaves_packets_where_they_are() {
    let mut host = Host::new(2);
    let socket = host.connected(false, 1);
    host.set(MAP, "fc");
    host.receive(&[datagram(false, 1, 7)]);
    assert_eq!(host.read_on(0, socket), [7]);
    assert_eq!(host.processed(0), 1);
}

#[test]
fn rfs_follows_the_reader() {
    for v6 in [false, true] {
        let mut host = Host::new(3);
        host.set(SOCK_FLOWS, "1024");
        host.set(FLOWS, "256");
        let socket = host.connected(v6, 1);
        let mut number = 0;
        for reader in [0, 1, 2, 1, 0] {
            // The first is where the reader was before; then it is known where it is now.
            for steered in [false, true] {
                number += 1;
                let before = host.processed(reader);
                host.receive(&[datagram(v6, 1, number)]);
                host.turn_all();
                assert_eq!(host.read_on(reader, socket), [number]);
                if steered {
                    assert_eq!(host.processed(reader), before + 1, "to core {reader}");
                }
            }
        }
        assert_eq!(host.stack.sock_flows(), (1, 1_024));
    }
}

#[test]
fn a_socket_that_anybody_sends_to_fills_no_table() {
    for v6 in [false, true] {
        let mut host = Host::new(2);
        host.set(SOCK_FLOWS, "65536");
        host.set(FLOWS, "4096");
        host.set(MAP, "2");
        let server = host.stack.udp_open(version(v6)).expect("a socket");
        host.stack
            .udp_bind(server, SocketAddr::new(own(v6), 53))
            .expect("free");
        for client in 0..10_000_u16 {
            let query = packets::udp(peer(v6), own(v6), 1_000 + client, 53, &[0, 0, 0, 1]);
            host.receive(&[query]);
            host.turn(1, usize::MAX);
            assert_eq!(host.read_on(1, server), [1]);
        }
        assert_eq!(host.stack.sock_flows(), (0, 65_536));
    }
}

#[test]
fn another_flow_of_the_same_entry_goes_where_rps_says() {
    let mut host = Host::new(3);
    host.set(MAP, "2");
    host.set(SOCK_FLOWS, "1");
    host.set(FLOWS, "4096");
    let (read, other) = (host.connected(false, 1), host.connected(false, 2));
    host.receive(&[datagram(false, 1, 1)]);
    host.turn_all();
    assert_eq!(host.read_on(2, read), [1]);
    host.receive(&[datagram(false, 1, 2), datagram(false, 2, 1)]);
    assert_eq!(host.read_on(0, other), [0_u32; 0]);
    host.turn(2, usize::MAX);
    assert_eq!(host.read_on(2, read), [2]);
    host.turn(1, usize::MAX);
    assert_eq!(host.read_on(0, other), [1]);
}

#[test]
fn a_full_backlog_drops_and_counts() {
    let mut host = Host::new(2);
    host.set(MAP, "2");
    host.set("net.core.netdev_max_backlog", "10");
    let socket = host.connected(false, 1);
    let burst: Vec<_> = (0..16).map(|number| datagram(false, 1, number)).collect();
    host.receive(&burst);
    host.turn_all();
    // As many as Linux takes, which drops when there are more than that already.
    assert_eq!(host.read_on(0, socket), (0..11).collect::<Vec<_>>());
    assert_eq!(host.stack.counters().dropped(DropReason::CpuBacklog), 5);
    // The rest of a burst that was taken out does not count against the next.
    host.receive(&burst);
    host.turn(1, 4);
    host.receive(&burst);
    host.turn_all();
    assert_eq!(host.read_on(0, socket).len(), 22);
    assert_eq!(host.stack.softnet_stats(1).expect("a core").time_squeeze, 1);
}

#[test]
fn no_flow_is_reordered_while_its_readers_move() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut host = Host::new(4);
        host.set(SOCK_FLOWS, "64");
        // Few entries, so that flows share them.
        host.set(FLOWS, ["1", "4", "64"][seed as usize % 3]);
        host.set(MAP, ["0", "f", "6"][seed as usize / 3 % 3]);
        host.set("net.core.netdev_max_backlog", "100000");
        const PORTS: u16 = 8;
        let v6 = seed % 2 == 1;
        let sockets: Vec<_> = (0..PORTS)
            .map(|port| host.connected(v6, port + 1))
            .collect();
        for socket in &sockets {
            host.stack.udp_set_rcvbuf(*socket, 200_000).expect("open");
        }
        let mut sent = [0_u32; PORTS as usize];
        let mut read = [0_u32; PORTS as usize];
        for _ in 0..4_000 {
            match random.below(4) {
                0 => {
                    let burst: Vec<_> = (0..=random.below(8))
                        .map(|_| {
                            let flow = random.below(PORTS.into()) as usize;
                            sent[flow] += 1;
                            datagram(v6, flow as u16 + 1, sent[flow])
                        })
                        .collect();
                    host.receive(&burst);
                }
                1 | 2 => {
                    let cpu = random.below(4) as usize;
                    host.turn(cpu, random.below(32) as usize);
                }
                _ => {
                    let flow = random.below(PORTS.into()) as usize;
                    let cpu = random.below(4) as u16;
                    for number in host.read_on(cpu, sockets[flow]) {
                        read[flow] += 1;
                        assert_eq!(number, read[flow], "seed {seed}, flow {flow}");
                    }
                }
            }
        }
        for _ in 0..1_000 {
            (0..4).for_each(|cpu| host.turn(cpu, 16));
            for (flow, socket) in sockets.iter().enumerate() {
                for number in host.read_on(0, *socket) {
                    read[flow] += 1;
                    assert_eq!(number, read[flow], "seed {seed}, flow {flow}");
                }
            }
        }
        let drops: Vec<_> = host
            .stack
            .counters()
            .drops()
            .filter(|(_, n)| *n > 0)
            .collect();
        assert_eq!(drops, [], "seed {seed}");
        assert_eq!(sent, read);
        let steered: u64 = (1..4).map(|cpu| host.processed(cpu)).sum();
        assert!(steered > 0, "seed {seed}: nothing was steered");
    }
}

#[test]
fn tables_are_sized_as_linux_sizes_them() {
    let host = Host::new(2);
    for (written, kept) in [
        ("0", "0"),
        ("1", "1"),
        ("2", "2"),
        ("3", "4"),
        ("100", "128"),
        ("32768", "32768"),
        ("32769", "65536"),
        ("0", "0"),
    ] {
        host.set(SOCK_FLOWS, written);
        assert_eq!(host.stack.sysctl(SOCK_FLOWS).expect("a knob"), kept);
        host.set(FLOWS, written);
        assert_eq!(host.stack.sysctl(FLOWS).expect("a knob"), kept);
    }
    for name in [SOCK_FLOWS, FLOWS] {
        host.set(name, "64");
        for bad in ["-1", "536870913", "abc", "", "1 2"] {
            assert!(
                host.stack.set_sysctl(name, bad).is_err(),
                "{name} = {bad:?}"
            );
            assert_eq!(host.stack.sysctl(name).expect("a knob"), "64");
        }
    }
    for bad in [
        "",
        "x",
        "0x3",
        "-1",
        "80000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000",
    ] {
        assert!(host.stack.set_sysctl(MAP, bad).is_err(), "{bad:?}");
    }
    host.set(MAP, "00000003");
    assert_eq!(
        host.stack.sysctl(&format!("/sys/{MAP}")).expect("a knob"),
        "3"
    );
    for unknown in [
        "class/net/tun1/queues/rx-0/rps_cpus",
        "class/net/tun0/queues/rx-1/rps_cpus",
        "class/net/tun0/queues/tx-0/rps_cpus",
        "class/net/tun0/queues/rx-0/rps",
        "class/net/tun0/queues/rx-0/rps_cpus/x",
    ] {
        assert!(host.stack.sysctl(unknown).is_err(), "{unknown}");
        assert!(host.stack.set_sysctl(unknown, "1").is_err(), "{unknown}");
    }
}

#[test]
fn steering_stops_with_the_last_who_wants_it() {
    let mut host = Host::new(2);
    host.set(FLOWS, "64");
    let socket = host.connected(false, 1);
    let mut number = 0;
    let mut follows = |host: &mut Host| {
        let before = host.processed(1);
        for _ in 0..2 {
            number += 1;
            host.receive(&[datagram(false, 1, number)]);
            host.turn_all();
            assert_eq!(host.read_on(1, socket), [number]);
        }
        host.processed(1) > before
    };
    for (entries, steers) in [
        ("0", false),
        ("64", true),
        ("128", true),
        ("64", true),
        ("0", false),
        ("0", false),
        ("64", true),
    ] {
        host.set(SOCK_FLOWS, entries);
        // Also the same size again is a new table.
        assert_eq!(host.stack.sock_flows().0, 0);
        assert_eq!(follows(&mut host), steers, "{entries}");
    }
}

#[test]
fn a_device_that_goes_takes_its_mask_along() {
    let host = Host::new(2);
    assert!(!host.stack.is_steering());
    host.set(MAP, "2");
    assert!(host.stack.is_steering());
    host.stack.remove_interface(host.tun0).expect("it is there");
    assert!(!host.stack.is_steering());
}
