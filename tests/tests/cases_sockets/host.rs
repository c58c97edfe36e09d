//! A host of the library's between two ports, driven by hand.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::counters::Counter;
use forebay::device::Instant;
use forebay::device::port::{Port, PortConfig, port};
use forebay::drop::DropReason;
use forebay::{Stack, UdpOptions, UdpSocket};
use forebay_tests::{Net, V4, V6, packets};

pub(crate) const PORT: u16 = 2_000;
pub(crate) const PEER_PORT: u16 = 3_000;

/// How long a reader waits for what is not to come.
const GRACE: Duration = Duration::from_millis(1);

/// The addresses of the rig, at sockets of the library's.
pub(crate) struct Host {
    pub(crate) stack: Stack,
    /// Of the family that is tried.
    pub(crate) net: Net,
    /// Whether sockets block.
    pub(crate) blocking: bool,
    pub(crate) early_demux: bool,
    ports: [(&'static str, Port); 2],
    now: Cell<Instant>,
}

/// Runs a scenario in every way that must not matter.
pub(crate) fn everywhere(scenario: impl Fn(Host)) {
    for net in [Net::V4, Net::V6] {
        for early_demux in [true, false] {
            for blocking in [true, false] {
                // Shown if the scenario fails.
                println!("{net:?}, early demux {early_demux}, blocking {blocking}");
                scenario(Host::of(net, early_demux, blocking));
            }
        }
    }
}

impl Host {
    pub(crate) fn of(net: Net, early_demux: bool, blocking: bool) -> Self {
        let stack = Stack::builder().seed([1, 2]).manual_clock().build();
        let stack = stack.expect("a stack");
        let ports = [("tun0", V4::OWN, V6::OWN), ("tun1", V4::OWN1, V6::OWN1)];
        let ports = ports.map(|(name, v4, v6)| {
            let (device, port) = port(PortConfig::default());
            let ifindex = stack.add_device(name, device).expect("a new name");
            let inner = stack.inner();
            let added = inner.add_address(ifindex, v4.into(), 24);
            added.expect("a new address");
            let added = inner.add_address(ifindex, v6.into(), 64);
            added.expect("a new address");
            (name, port)
        });
        let host = Self {
            stack,
            net,
            blocking,
            early_demux,
            ports,
            now: Cell::new(Instant::from_nanos(1_000_000_000)),
        };
        host.set("net.ipv4.ip_early_demux", i64::from(early_demux));
        host.set("net.ipv4.ip_forward", 1);
        host.set("net.ipv6.conf.all.forwarding", 1);
        host.set("net.ipv4.icmp_ratelimit", 0);
        host.set("net.ipv6.icmp.ratelimit", 0);
        host
    }

    /// Sets a knob.
    pub(crate) fn set(&self, name: &str, value: i64) {
        let set = self.stack.inner().set_sysctl(name, &value.to_string());
        set.expect("a knob and a value it takes");
    }

    pub(crate) fn ifindex(&self, name: &str) -> u32 {
        let interface = self.stack.inner().interface_named(name);
        interface.expect("an interface of the host").index
    }

    /// Takes tun0's address of the family away, or gives it back.
    pub(crate) fn own_address(&self, is_there: bool) {
        let (tun0, inner) = (self.ifindex("tun0"), self.stack.inner());
        let Net {
            own, prefix_len, ..
        } = self.net;
        match is_there {
            true => inner.add_address(tun0, own, prefix_len).expect("it is new"),
            false => inner
                .remove_address(tun0, own, prefix_len)
                .expect("it is there"),
        }
    }

    /// Packets come in together.
    pub(crate) fn inject_all(&self, by: &str, packets: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        for packet in packets {
            let sent = self.port(by).try_send(packet.as_ref());
            sent.expect("a port with room");
        }
        self.poll();
    }

    pub(crate) fn inject(&self, by: &str, packet: impl AsRef<[u8]>) {
        self.inject_all(by, [packet]);
    }

    /// A datagram of the peer's comes in by tun0.
    pub(crate) fn peer_sends(&self, payload: &[u8]) {
        let (from, to) = (self.net.peer(PEER_PORT), self.net.own(PORT));
        self.deliver("tun0", from, to, payload);
    }

    /// A datagram comes in, in fragments if it is long.
    pub(crate) fn deliver(&self, by: &str, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        self.inject_all(by, packets_of(from, to, payload));
    }

    /// Does what is to be done.
    pub(crate) fn poll(&self) {
        for _ in 0..4 {
            self.now.set(self.now.get() + Duration::from_millis(1));
            self.stack.poll(self.now.get());
        }
    }

    /// What has left by an interface.
    pub(crate) fn output(&self, by: &str) -> Vec<Vec<u8>> {
        self.poll();
        let mut buf = [0; 2_000];
        let next = || {
            let len = self.port(by).try_recv(&mut buf).ok()?;
            Some(buf[..len].to_vec())
        };
        std::iter::from_fn(next).collect()
    }

    /// Whether nothing has left.
    pub(crate) fn is_silent(&self) -> bool {
        self.output("tun0").is_empty() && self.output("tun1").is_empty()
    }

    /// A socket that shares its port.
    pub(crate) fn bind(&self, to: SocketAddr) -> UdpSocket {
        self.bind_with(&UdpOptions::new().reuse_address(true), to)
    }

    pub(crate) fn bind_with(&self, options: &UdpOptions, to: SocketAddr) -> UdpSocket {
        let socket = options.bind(&self.stack, to).expect("an address of ours");
        let set = socket.set_nonblocking(!self.blocking);
        set.expect("an open socket");
        socket
            .set_read_timeout(Some(GRACE))
            .expect("more than nothing");
        socket
    }

    /// A socket that is connected to the peer.
    pub(crate) fn flow(&self) -> UdpSocket {
        let socket = self.bind(self.net.own(PORT));
        socket.connect(self.net.peer(PEER_PORT)).expect("a way");
        socket
    }

    /// The same, with its route cached where early demux is on.
    pub(crate) fn warm_flow(&self) -> UdpSocket {
        let socket = self.flow();
        for _ in 0..2 {
            self.peer_sends(b"warm");
            assert_eq!(rx(&socket).as_deref(), Some(&b"warm"[..]));
        }
        socket
    }

    /// Of one family or the other.
    pub(crate) fn count(&self, v4: Counter, v6: Counter) -> u64 {
        let counters = self.stack.inner().counters();
        counters.get(self.net.pick(v4, v6))
    }

    pub(crate) fn csum_errors(&self) -> u64 {
        let errors = self.count(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors);
        assert!(errors <= self.in_errors());
        errors
    }

    pub(crate) fn in_errors(&self) -> u64 {
        self.count(Counter::UdpInErrors, Counter::Udp6InErrors)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.stack.inner().counters().dropped(reason)
    }

    fn port(&self, name: &str) -> &Port {
        let mut ports = self.ports.iter();
        let found = ports.find(|(of, _)| *of == name);
        &found.expect("an interface of the host").1
    }
}

/// What a program gets of a socket: nothing is EAGAIN, at once or when it has waited enough.
pub(crate) fn rx(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buf = vec![0; 1 << 16];
    match socket.recv_from(&mut buf) {
        Ok((len, _)) => Some(buf[..len].to_vec()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            None
        }
    }
}

/// All that a socket has.
pub(crate) fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| rx(socket)).collect()
}

/// The packets of a datagram.
pub(crate) fn packets_of(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<Vec<u8>> {
    let packet = packets::udp(from.ip(), to.ip(), from.port(), to.port(), payload);
    match packet.len() <= 1_500 {
        true => vec![packet],
        // Each length has an identification of its own.
        false => packets::fragments(&packet, payload.len() as u32, 1_400),
    }
}

/// The same with a checksum that is wrong by the last byte.
pub(crate) fn bad_packets_of(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = packets_of(from, to, payload);
    let last = packets.last_mut().and_then(|packet| packet.last_mut());
    *last.expect("a payload") ^= 1;
    packets
}
