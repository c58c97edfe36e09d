//! Whatever comes, and whatever is changed in between: early demux on or off, batches of 1, 2 or
//! 64, the outcome is the same. Outputs, what sockets receive, drop reasons and counters.

use std::net::{IpAddr, SocketAddr};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::udp::Received;
use forebay_stack::wire::protocol;
use forebay_tests::{Rig, V4, V6, packets};
use proptest::prelude::*;

/// What happens to a rig.
#[derive(Debug, Clone)]
enum Event {
    /// Packets come in together.
    Inject(&'static str, Vec<Shape>),
    /// A knob is turned.
    Knob(&'static str, i64),
    /// An address of tun0 goes, or comes back.
    Address(bool, bool),
    /// A socket connects to the peer and port, or is disconnected.
    Connect(usize, Option<u16>),
    /// A socket reads all it has.
    Drain(usize),
    /// A socket is closed and opened anew.
    Reopen(usize),
    /// A socket sends.
    Send(usize, u16, usize),
    /// Time passes, in milliseconds.
    Wait(u16),
}

/// A packet before it is built.
#[derive(Debug, Clone)]
struct Shape {
    v6: bool,
    src: u8,
    dst: u8,
    src_port: u16,
    dst_port: u16,
    len: usize,
    kind: Kind,
    ttl: u8,
    /// A byte that is overwritten, and with what.
    damage: Option<(usize, u8)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Udp,
    UdpFragments,
    Tcp,
    Echo,
    Unreachable,
    Options,
    Raw(u8),
}

const SRC_V4: [&str; 6] = [
    "10.0.0.2",
    "10.0.0.3",
    "10.1.0.2",
    "10.0.0.1",
    "127.0.0.1",
    "0.0.0.0",
];
const DST_V4: [&str; 8] = [
    "10.0.0.1",
    "10.1.0.1",
    "10.1.0.2",
    "10.0.0.255",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "10.0.0.7",
];
const SRC_V6: [&str; 6] = ["fd00::2", "fd00::3", "fd01::2", "fd00::1", "::1", "::"];
const DST_V6: [&str; 8] = [
    "fd00::1",
    "fd01::1",
    "fd01::2",
    "ff02::1",
    "ff02::2",
    "2001:db8::1",
    "fd00::7",
    "fd00::1",
];

fn pick(list: &[&str], index: u8) -> IpAddr {
    list[usize::from(index) % list.len()]
        .parse()
        .expect("an address")
}

impl Shape {
    fn build(&self) -> Vec<Vec<u8>> {
        let (src, dst) = match self.v6 {
            false => (pick(&SRC_V4, self.src), pick(&DST_V4, self.dst)),
            true => (pick(&SRC_V6, self.src), pick(&DST_V6, self.dst)),
        };
        let payload: Vec<u8> = (0..self.len).map(|i| i as u8).collect();
        let udp = || packets::udp(src, dst, self.src_port, self.dst_port, &payload);
        let mut built = match self.kind {
            Kind::Udp => vec![udp()],
            Kind::UdpFragments => fragments(src, dst, self.src_port, self.dst_port, &payload),
            Kind::Tcp => {
                let (from, to) = ((src, self.src_port), (dst, self.dst_port));
                vec![packets::tcp(from, to, 1, 2, 0x10, &payload)]
            }
            Kind::Echo => {
                let kind = if self.v6 { 128 } else { 8 };
                vec![packets::icmp(src, dst, kind, 0, 7, &payload)]
            }
            Kind::Unreachable => {
                // About a datagram that we sent from `dst_port` to `src_port`.
                let about = packets::udp(dst, src, self.dst_port, self.src_port, &payload);
                let (kind, code) = if self.v6 { (1, 4) } else { (3, 3) };
                vec![packets::icmp(src, dst, kind, code, 0, &about)]
            }
            Kind::Options => match (src, dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => {
                    let options = [7, 7, 4, 0, 0, 0, 0, 0];
                    vec![packets::ipv4_with_options(
                        src,
                        dst,
                        protocol::UDP,
                        &options,
                        &udp()[20..],
                    )]
                }
                _ => vec![packets::ip(
                    src,
                    dst,
                    60,
                    &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp()[40..]].concat(),
                )],
            },
            Kind::Raw(protocol) => vec![packets::ip(src, dst, protocol, &payload)],
        };
        for packet in &mut built {
            match packet[0] >> 4 {
                4 => {
                    packet[8] = self.ttl;
                    forebay_stack::wire::ipv4::fill_checksum(packet);
                }
                _ => packet[7] = self.ttl,
            }
            if let Some((at, byte)) = self.damage {
                let at = at % packet.len();
                packet[at] = byte;
            }
        }
        built
    }
}

/// A datagram in two fragments.
fn fragments(
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
    payload: &[u8],
) -> Vec<Vec<u8>> {
    let datagram = packets::udp_datagram(src, dst, src_port, dst_port, payload);
    let cut = (datagram.len() / 2 / 8 * 8).max(8);
    let (first, second) = datagram.split_at(cut.min(datagram.len()));
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [(first, 0x2000), (second, cut as u16 / 8)]
            .map(|(part, field): (&[u8], u16)| {
                let mut packet = packets::ipv4(src, dst, protocol::UDP, part);
                packet[4..6].copy_from_slice(&src_port.to_be_bytes());
                packet[6..8].copy_from_slice(&field.to_be_bytes());
                forebay_stack::wire::ipv4::fill_checksum(&mut packet);
                packet
            })
            .to_vec(),
        _ => [(first, 1), (second, cut as u16)]
            .map(|(part, field): (&[u8], u16)| {
                let [high, low] = field.to_be_bytes();
                let header = [17, 0, high, low, 0, 0, 0, 9];
                packets::ip(src, dst, 44, &[&header[..], part].concat())
            })
            .to_vec(),
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let kind = prop_oneof![
        8 => Just(Kind::Udp),
        2 => Just(Kind::UdpFragments),
        1 => Just(Kind::Tcp),
        1 => Just(Kind::Echo),
        1 => Just(Kind::Unreachable),
        1 => Just(Kind::Options),
        1 => any::<u8>().prop_map(Kind::Raw),
    ];
    // The first of each list are what connected sockets wait for.
    let index = || prop_oneof![4 => Just(0_u8), 1 => any::<u8>()];
    let port = || prop_oneof![4 => Just(2000_u16), 2 => Just(1000), 1 => Just(3000), 1 => Just(9)];
    let ttl = prop_oneof![6 => Just(64_u8), 1 => 0..3_u8];
    let damage = prop_oneof![6 => Just(None), 1 => (0..100_usize, any::<u8>()).prop_map(Some)];
    let addresses = (any::<bool>(), index(), index());
    (addresses, port(), port(), 0..80_usize, kind, ttl, damage).prop_map(
        |((v6, src, dst), src_port, dst_port, len, kind, ttl, damage)| Shape {
            v6,
            src,
            dst,
            src_port,
            dst_port,
            len,
            kind,
            ttl,
            damage,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let interface = prop_oneof![3 => Just("tun0"), 1 => Just("tun1")];
    let knob = prop_oneof![
        Just(("net.ipv4.ip_forward", 0)),
        Just(("net.ipv4.ip_forward", 1)),
        Just(("net.ipv6.conf.all.forwarding", 0)),
        Just(("net.ipv6.conf.all.forwarding", 1)),
        Just(("net.ipv4.conf.tun0.rp_filter", 1)),
        Just(("net.ipv4.conf.all.rp_filter", 2)),
        Just(("net.ipv4.conf.all.rp_filter", 0)),
        Just(("net.ipv4.conf.all.accept_local", 1)),
        Just(("net.ipv4.udp_early_demux", 0)),
        Just(("net.ipv4.udp_early_demux", 1)),
    ];
    let socket = 0..SOCKETS;
    prop_oneof![
        10 => (interface, prop::collection::vec(shape(), 1..12)).prop_map(|(name, shapes)| Event::Inject(name, shapes)),
        1 => knob.prop_map(|(name, value)| Event::Knob(name, value)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(v6, on)| Event::Address(v6, on)),
        2 => (socket.clone(), prop_oneof![Just(None), Just(Some(2000)), Just(Some(3000))])
            .prop_map(|(socket, port)| Event::Connect(socket, port)),
        1 => socket.clone().prop_map(Event::Drain),
        1 => socket.clone().prop_map(Event::Reopen),
        1 => (socket, prop_oneof![Just(2000_u16), Just(9)], prop_oneof![Just(10_usize), Just(3000)])
            .prop_map(|(socket, port, len)| Event::Send(socket, port, len)),
        1 => (0..40_000_u16).prop_map(Event::Wait),
    ]
}

const SOCKETS: usize = 6;
/// Bound address of each socket.
const BOUND: [&str; SOCKETS] = [
    "10.0.0.1:2000",
    "[fd00::1]:2000",
    "0.0.0.0:1000",
    "[::]:3000",
    "10.0.0.1:1000",
    "[::]:2000",
];

/// The log, the counters, and the drops by reason.
type Outcome = (Vec<String>, Vec<(Counter, u64)>, Vec<(DropReason, u64)>);

struct World {
    rig: Rig,
    sockets: Vec<SocketId>,
    log: Vec<String>,
}

impl World {
    fn new(early_demux: bool, weight: i64) -> Self {
        let rig = Rig::with_early_demux(early_demux);
        rig.set("net.core.dev_weight", weight);
        let sockets = BOUND.iter().map(|bound| open(&rig, bound)).collect();
        Self {
            rig,
            sockets,
            log: Vec::new(),
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Inject(interface, shapes) => {
                self.rig
                    .inject_all(interface, shapes.iter().flat_map(Shape::build));
            }
            Event::Knob(name, value) => self.rig.set(name, *value),
            Event::Address(v6, on) => {
                let (addr, len): (IpAddr, u8) = if *v6 {
                    (V6::OWN.into(), 64)
                } else {
                    (V4::OWN.into(), 24)
                };
                let tun0 = self.rig.ifindex("tun0");
                let _ = match on {
                    true => self.rig.stack.add_address(tun0, addr, len),
                    false => self.rig.stack.remove_address(tun0, addr, len),
                };
            }
            Event::Connect(index, None) => {
                self.rig
                    .stack
                    .udp_disconnect(self.sockets[*index])
                    .expect("an open socket");
            }
            Event::Connect(index, Some(port)) => {
                let peer = peer_of(*index, *port);
                let result = self
                    .rig
                    .stack
                    .udp_connect(self.rig.now(), self.sockets[*index], peer);
                self.log.push(format!("connect {index}: {result:?}"));
            }
            Event::Drain(index) => self.drain(*index),
            Event::Reopen(index) => {
                self.rig
                    .stack
                    .udp_close(self.sockets[*index])
                    .expect("an open socket");
                self.sockets[*index] = open(&self.rig, BOUND[*index]);
            }
            Event::Send(index, port, len) => {
                let (now, id) = (self.rig.now(), self.sockets[*index]);
                let to = Some(peer_of(*index, *port));
                let result = self.rig.stack.udp_send(now, id, &vec![7; *len], to);
                self.log.push(format!("send {index}: {result:?}"));
                self.rig.poll();
            }
            Event::Wait(millis) => {
                self.rig
                    .advance(std::time::Duration::from_millis(u64::from(*millis)));
            }
        }
        for interface in ["tun0", "tun1"] {
            for packet in self.rig.output(interface) {
                self.log.push(format!("{interface}: {packet:02x?}"));
            }
        }
    }

    fn drain(&mut self, index: usize) {
        let mut buf = [0; 4_096];
        loop {
            match self
                .rig
                .stack
                .udp_recv(self.sockets[index], &mut buf, false)
            {
                Ok(None) => break,
                Ok(Some(Received {
                    len,
                    from,
                    local,
                    iif,
                    ..
                })) => {
                    let payload = &buf[..len];
                    self.log.push(format!(
                        "socket {index}: {from} {local} {iif} {payload:02x?}"
                    ));
                }
                Err(error) => self.log.push(format!("socket {index}: {error}")),
            }
        }
    }

    /// What all worlds must agree in, at the end.
    fn finish(mut self) -> Outcome {
        for index in 0..SOCKETS {
            self.drain(index);
        }
        let snapshot = self.rig.counters();
        let is_about_outcome = |(counter, _): &(Counter, u64)| {
            !matches!(
                counter,
                Counter::ForebayEarlyDemuxHits | Counter::ForebayEarlyDemuxStale
            )
        };
        let counters = snapshot.counters().filter(is_about_outcome).collect();
        let drops = snapshot.drops().collect();
        (self.log, counters, drops)
    }
}

fn open(rig: &Rig, bound: &str) -> SocketId {
    let bound: SocketAddr = bound.parse().expect("an address and port");
    let version = if bound.is_ipv4() {
        IpVersion::V4
    } else {
        IpVersion::V6
    };
    let id = rig.stack.udp_open(version).expect("a socket");
    rig.stack
        .udp_set_reuse_addr(id, true)
        .expect("an open socket");
    // The address may be gone just now; the socket is left unbound then.
    let _ = rig.stack.udp_bind(id, bound);
    id
}

fn peer_of(index: usize, port: u16) -> SocketAddr {
    let peer: IpAddr = match BOUND[index].starts_with('[') {
        true => V6::PEER.into(),
        false => V4::PEER.into(),
    };
    SocketAddr::new(peer, port)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn early_demux_and_batch_size_never_show(events in prop::collection::vec(event(), 1..40)) {
        let run = |early_demux, weight| {
            let mut world = World::new(early_demux, weight);
            for event in &events {
                world.apply(event);
            }
            world.finish()
        };
        let expected = run(false, 1);
        for (early_demux, weight) in [(true, 1), (true, 2), (true, 64), (false, 64)] {
            let (log, counters, drops) = run(early_demux, weight);
            prop_assert_eq!(&log, &expected.0, "early demux {}, batches of {}", early_demux, weight);
            prop_assert_eq!(&counters, &expected.1, "early demux {}, batches of {}", early_demux, weight);
            prop_assert_eq!(&drops, &expected.2, "early demux {}, batches of {}", early_demux, weight);
        }
    }
}

#[test]
fn early_demux_does_take_connected_flows() {
    let mut world = World::new(true, 64);
    world.apply(&Event::Connect(0, Some(2000)));
    world.apply(&Event::Connect(1, Some(2000)));
    for (src, dst) in [
        (IpAddr::from(V4::PEER), IpAddr::from(V4::OWN)),
        (V6::PEER.into(), V6::OWN.into()),
    ] {
        for _ in 0..3 {
            world
                .rig
                .inject("tun0", packets::udp(src, dst, 2000, 2000, b"flow"));
        }
    }
    assert_eq!(world.rig.count(Counter::ForebayEarlyDemuxHits), 4);
    // The first of each flow warms the cached route.
    assert_eq!(world.rig.count(Counter::ForebayEarlyDemuxStale), 2);
}
