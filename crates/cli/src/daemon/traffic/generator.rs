//! Paced traffic from the hosts at a wire's far end, and the sockets in the stack that it is for.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use forebay::device::port::Port;
use forebay::{Stack, UdpSocket};
use toml::Spanned;

use super::packets;
use super::tally::Tally;
use crate::config::{Device, Kind, Mix, Net, Traffic};
use crate::random::Random;

/// The hosts' ports that connected sockets are connected to begin here.
const FIRST_PEER_PORT: u16 = 40_000;

/// How far sending may lag behind, as on a busy machine, before the rest is given up instead of sent
/// in one go: bursts would fill queues that the rate itself does not.
const MOST_LAG: Duration = Duration::from_millis(20);

/// Most packets sent before what has come back is looked at.
const BURST: usize = 256;

/// Sends the traffic of one `[[traffic]]` entry.
pub(super) struct Generator {
    port: Port,
    random: Random,
    rate: f64,
    /// Until when packets are counted in `due`.
    since: Instant,
    /// Packets that should have been sent by then and were not.
    due: f64,
    mix: Mix,
    sizes: (usize, usize),
    families: Vec<Family>,
    transit_to: Vec<Net>,
}

/// Hosts and sockets of one address family.
struct Family {
    hosts: Vec<IpAddr>,
    connected: Vec<Flow>,
    unconnected: UdpSocket,
    /// Where the unconnected socket, and the stack itself, are reached.
    at: SocketAddr,
}

/// A connected socket and the host that it is connected to.
struct Flow {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
}

/// What to send next.
#[derive(Clone, Copy)]
enum What {
    Transit,
    Connected,
    Unconnected,
    Ping,
    Malformed,
}

impl Generator {
    pub(super) fn new(
        stack: &Stack,
        device: &Device,
        traffic: &Traffic,
        port: Port,
    ) -> io::Result<Self> {
        let peers: &[_] = match &device.kind {
            Kind::Wire(wire) => &wire.peer_addresses,
            _ => &[],
        };
        let of_family = |nets: &[Spanned<Net>], is_ipv4: bool| -> Vec<IpAddr> {
            let addresses = nets.iter().map(|net| net.get_ref().addr);
            addresses.filter(|addr| addr.is_ipv4() == is_ipv4).collect()
        };
        let mut families = Vec::new();
        for is_ipv4 in [true, false] {
            let hosts = of_family(peers, is_ipv4);
            let own = of_family(&device.addresses, is_ipv4);
            if let (Some(own), false) = (own.first(), hosts.is_empty()) {
                families.push(Family::new(stack, *own, hosts, traffic.sockets)?);
            }
        }
        let (smallest, largest) = traffic.sizes;
        let mtu = port.mtu() as usize;
        Ok(Self {
            port,
            random: Random::new(traffic.seed),
            rate: f64::from(traffic.rate),
            since: Instant::now(),
            due: 0.0,
            mix: traffic.mix,
            sizes: (smallest.min(mtu), largest.min(mtu)),
            families,
            transit_to: traffic
                .transit_to
                .iter()
                .map(|net| *net.get_ref())
                .collect(),
        })
    }

    /// Sends what is due by now, or part of it. Says whether more is due.
    pub(super) fn send_due(&mut self, now: Instant, tally: &mut Tally) -> bool {
        let most = self.rate * MOST_LAG.as_secs_f64();
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = now;
        self.due = (self.due + passed * self.rate).min(most.max(1.0));
        for _ in 0..BURST {
            if self.due < 1.0 {
                return false;
            }
            self.due -= 1.0;
            self.send_one(tally);
        }
        true
    }

    fn send_one(&mut self, tally: &mut Tally) {
        let what = self.choose();
        let Some(packet) = self.packet(what) else {
            return;
        };
        let count = match (self.port.try_send(&packet), what) {
            (Err(_), _) => &mut tally.refused,
            (Ok(()), What::Transit) => &mut tally.sent_transit,
            (Ok(()), What::Connected) => &mut tally.sent_connected,
            (Ok(()), What::Unconnected) => &mut tally.sent_unconnected,
            (Ok(()), What::Ping) => &mut tally.sent_ping,
            (Ok(()), What::Malformed) => &mut tally.sent_malformed,
        };
        *count += 1;
    }

    fn choose(&mut self) -> What {
        let Mix {
            transit,
            connected,
            unconnected,
            ping,
            malformed,
        } = self.mix;
        let weights = [
            (What::Transit, transit),
            (What::Connected, connected),
            (What::Unconnected, unconnected),
            (What::Ping, ping),
            (What::Malformed, malformed),
        ];
        let mut ticket = self.random.below(self.mix.total() as usize);
        for (what, weight) in weights {
            match ticket.checked_sub(weight as usize) {
                Some(rest) => ticket = rest,
                None => return what,
            }
        }
        What::Transit
    }

    fn packet(&mut self, what: What) -> Option<Vec<u8>> {
        let random = &mut self.random;
        let (smallest, largest) = self.sizes;
        let size = smallest + random.below(largest - smallest + 1);
        if let What::Transit = what {
            let net = random.pick(&self.transit_to)?;
            let dst = random_address(*net, random);
            let is_ipv4 = dst.is_ipv4();
            let family = self
                .families
                .iter()
                .find(|family| family.at.is_ipv4() == is_ipv4)?;
            let host = *random.pick(&family.hosts)?;
            let (src, dst) = (random_port(host, random), random_port(dst, random));
            return Some(packets::udp(src, dst, size, packets::TRANSIT_MARK));
        }
        let family = random.pick(&self.families)?;
        let host = *random.pick(&family.hosts)?;
        let local =
            |random: &mut Random| packets::udp(random_port(host, random), family.at, size, &[]);
        Some(match what {
            What::Connected | What::Transit => {
                let flow = random.pick(&family.connected)?;
                packets::udp(flow.peer, flow.local, size, &[])
            }
            What::Unconnected => local(random),
            What::Ping => {
                let sequence = (random.next() & 0xffff) as u16;
                packets::echo_request(host, family.at.ip(), sequence, size)
            }
            What::Malformed => {
                let mut packet = local(random);
                packets::damage(&mut packet, random);
                packet
            }
        })
    }

    /// Takes what the sockets got, as their applications would.
    pub(super) fn read_sockets(&self, buf: &mut [u8], tally: &mut Tally) {
        for family in &self.families {
            for flow in &family.connected {
                while flow.socket.recv(buf).is_ok() {
                    tally.read_connected += 1;
                }
            }
            while family.unconnected.recv_from(buf).is_ok() {
                tally.read_unconnected += 1;
            }
        }
    }
}

impl Family {
    fn new(stack: &Stack, own: IpAddr, hosts: Vec<IpAddr>, flows: usize) -> io::Result<Self> {
        let open = || {
            let socket = UdpSocket::bind(stack, (own, 0))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        let mut connected = Vec::with_capacity(flows);
        for (host, port) in hosts.iter().cycle().zip(FIRST_PEER_PORT..).take(flows) {
            let (socket, peer) = (open()?, SocketAddr::new(*host, port));
            socket.connect(peer)?;
            connected.push(Flow {
                local: socket.local_addr()?,
                socket,
                peer,
            });
        }
        let unconnected = open()?;
        Ok(Self {
            hosts,
            connected,
            at: unconnected.local_addr()?,
            unconnected,
        })
    }
}

/// An ephemeral port of a host.
fn random_port(host: IpAddr, random: &mut Random) -> SocketAddr {
    let ports = usize::from(u16::MAX - FIRST_PEER_PORT);
    let port = u16::try_from(random.below(ports)).unwrap_or_default();
    SocketAddr::new(host, 1_024 + port)
}

fn random_address(net: Net, random: &mut Random) -> IpAddr {
    let bits = u128::from(random.next()) << 64 | u128::from(random.next());
    let len = u32::from(net.len);
    match net.addr {
        IpAddr::V4(addr) => {
            let host = u32::MAX.checked_shr(len).unwrap_or(0);
            let low = u32::try_from(bits & u128::from(u32::MAX)).unwrap_or_default();
            IpAddr::V4((addr.to_bits() | (low & host)).into())
        }
        IpAddr::V6(addr) => {
            let host = u128::MAX.checked_shr(len).unwrap_or(0);
            IpAddr::V6((addr.to_bits() | (bits & host)).into())
        }
    }
}
