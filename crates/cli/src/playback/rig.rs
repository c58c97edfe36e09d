//! The stack that a capture is played into.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use forebay::Stack;
use forebay::core::core::Core;
use forebay::core::packet::IpVersion;
use forebay::core::socket::SocketId;
use forebay::core::trace::{Summary, Transport};
use forebay::device::{Instant, Packet, PacketQueue, packet_of};
use forebay::fib::RouteKind;
use forebay::interface::{LOOPBACK, TransmitQueue};

use super::Capture;
use crate::config::{Config, Net};
use crate::daemon::{Knob, StandIn};

const ROUTER: &str = include_str!("../../../../examples/playback.toml");

/// What `--host` adds: whatever comes in is for this host, as a transparent proxy has it. What is
/// sent is not, so that answers leave.
const HOST: &str = r#"
[[rule]]
iif = "in"
table = 100
[[route]]
to = "0.0.0.0/0"
type = "local"
table = 100
[[route]]
to = "::/0"
type = "local"
table = 100
"#;

/// When a rig begins.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// Time goes by in steps of at least so many nanoseconds where what is sent meanwhile matters.
const STEP: u64 = 1_000_000;

/// Which stack the packets meet.
#[derive(Debug, Clone, Args)]
pub(crate) struct RigArgs {
    /// The stack's configuration (docs/config.md describes it); its devices lead nowhere, its
    /// services do not answer. Without one, the stack is a router with default routes
    #[arg(short, long, value_name = "FILE", help_heading = "Stack")]
    config: Option<PathBuf>,

    /// Every packet is for this host
    #[arg(long, conflicts_with_all = ["config", "local"], help_heading = "Stack")]
    host: bool,

    /// An address or prefix that is this host's; may be repeated
    #[arg(
        long, value_name = "PREFIX", value_parser = parse_net, conflicts_with = "config",
        help_heading = "Stack"
    )]
    local: Vec<Net>,

    /// Have a connected UDP socket for each UDP flow to this host; without -c that is so anyway
    #[arg(long, help_heading = "Stack")]
    connect: bool,

    /// The device that packets come in by [default: the first]
    #[arg(long, value_name = "NAME", help_heading = "Stack")]
    dev: Option<String>,

    /// Set a knob, whatever the configuration says; may be repeated
    #[arg(long, value_name = "KNOB=VALUE", help_heading = "Stack")]
    set: Vec<Knob>,
}

fn parse_net(text: &str) -> Result<Net, &'static str> {
    let net: Result<Net, ()> = text.parse();
    net.map(Net::masked)
        .map_err(|()| "expected an address or a prefix: 10.0.0.1, 10.0.0.0/8, fd00::/64")
}

/// A stack, and who stands around it.
pub(crate) struct Rig {
    stand_in: StandIn,
    core: Core,
    iif: u32,
    /// When it is.
    now: Instant,
    /// What the stack sends, by the devices' names.
    waiting: Vec<(String, Arc<TransmitQueue>)>,
    /// Sockets that the configuration's services have.
    services: Vec<SocketId>,
    /// Connected sockets, in the order of the capture.
    connected: Vec<SocketId>,
    /// The same by local address and peer; `None` if the flow's could not be connected.
    flows: HashMap<(SocketAddr, SocketAddr), Option<SocketId>>,
}

/// A packet that the stack sent.
pub(crate) struct Sent {
    pub(crate) interface: String,
    pub(crate) bytes: Vec<u8>,
}

impl RigArgs {
    /// Whether `--set` sets this knob.
    pub(crate) fn sets(&self, knob: &str) -> bool {
        let same = |name: &str| name.replace('/', ".") == knob.replace('/', ".");
        self.set.iter().any(|set| same(set.name()))
    }

    fn config(&self, hosts: &[IpAddr]) -> anyhow::Result<Config> {
        if let Some(path) = &self.config {
            return Config::load(path);
        }
        let mut text = ROUTER.to_owned();
        if self.host {
            text.push_str(HOST);
        }
        let own = hosts.iter().map(ToString::to_string);
        for net in own.chain(self.local.iter().map(ToString::to_string)) {
            let route = format!("[[route]]\nto = \"{net}\"\ntype = \"local\"\ntable = \"local\"\n");
            text.push_str(&route);
        }
        Ok(Config::parse("examples/playback.toml", text)?)
    }
}

impl Rig {
    /// A new stack, with sockets for the flows of `capture` if that was asked for.
    pub(crate) fn new(args: &RigArgs, capture: &Capture) -> anyhow::Result<Self> {
        let config = args.config(&capture.hosts)?;
        let stand_in = StandIn::new(&config, &args.set)?;
        let names = config.devices.iter().map(|device| device.name.get_ref());
        let name = match &args.dev {
            Some(name) => name,
            None => names.clone().next().ok_or_else(|| {
                anyhow!("the configuration has no device that packets could come in by; add a [[device]]")
            })?,
        };
        let interface = stand_in.stack.inner().interface_named(name);
        let Some(interface) = interface.filter(|interface| interface.index != LOOPBACK) else {
            let names: Vec<_> = names.map(String::as_str).collect();
            bail!(
                "--dev {name}: there is no such device; the devices are: {}",
                names.join(", ")
            );
        };
        let stack = stand_in.stack.inner();
        let waiting = stack.interfaces().into_iter().filter_map(|interface| {
            let queue = stack.transmit_queue(interface.index);
            Some((interface.name, queue?)).filter(|_| interface.index != LOOPBACK)
        });
        let (waiting, core) = (waiting.collect(), stack.core());
        let services = stack.udp_sockets().into_iter().map(|socket| socket.id);
        let services = services.collect();
        let mut rig = Self {
            stand_in,
            core,
            iif: interface.index,
            now: START,
            waiting,
            services,
            connected: Vec::new(),
            flows: HashMap::new(),
        };
        if args.config.is_none() || args.connect {
            rig.connect_flows(capture);
        }
        rig.let_sockets_take_all();
        Ok(rig)
    }

    /// The stack.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stand_in.stack
    }

    /// Index of the interface that packets come in by.
    pub(crate) fn iif(&self) -> u32 {
        self.iif
    }

    /// Sets a knob, and says what it is now: there may be several ways to write a value.
    pub(crate) fn set(&self, name: &str, value: &str) -> anyhow::Result<String> {
        let stack = self.stack().inner();
        let set = stack.set_sysctl(name, value);
        let set = set.and_then(|()| stack.sysctl(name));
        set.with_context(|| format!("--compare {name}={value}"))
    }

    /// How many sockets are connected, and how many flows got none.
    pub(crate) fn sockets(&self) -> (usize, usize) {
        let connected = self.connected.len();
        (connected, self.flows.len() - connected)
    }

    /// A packet from the pool.
    pub(crate) fn packet(&mut self, bytes: &[u8]) -> anyhow::Result<Packet> {
        packet_of(self.core.cache(), bytes)
            .context("the packet pool is empty: give the stack more of them (`buffers` in [stack])")
    }

    /// What drives the stack: the core, the time and the stack itself.
    pub(crate) fn parts(&mut self) -> (&Stack, &mut Core, Instant) {
        (&self.stand_in.stack, &mut self.core, self.now)
    }

    /// Nanoseconds since the rig began.
    pub(crate) fn elapsed(&self) -> u64 {
        self.now.as_nanos() - START.as_nanos()
    }

    /// Lets it be `at` nanoseconds since the rig began; what is due then happens.
    pub(crate) fn advance(&mut self, at: u64) {
        self.now = self.now.max(START + Duration::from_nanos(at));
        let (stack, core, now) = self.parts();
        // What the stack sends to itself may be answered, but not for ever.
        for _ in 0..8 {
            let deadline = stack.inner().poll(core, now);
            if deadline.is_none_or(|deadline| deadline > now) {
                break;
            }
        }
    }

    /// Lets time pass until `at`, as [`advance`](Self::advance), but in steps: what is sent by then,
    /// and more than would wait for a device at once.
    pub(crate) fn sent_until(&mut self, at: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(due) = self.due().filter(|due| *due < at) {
            self.advance(due.max(self.elapsed().saturating_add(STEP)).min(at));
            sent.append(&mut self.sent());
        }
        self.advance(at);
        sent.append(&mut self.sent());
        sent
    }

    /// When something happens by itself, in nanoseconds since the rig began.
    fn due(&mut self) -> Option<u64> {
        let (stack, core, now) = self.parts();
        let deadline = stack.inner().poll(core, now)?;
        Some(deadline.as_nanos().saturating_sub(START.as_nanos()))
    }

    /// Nanoseconds after which no fragment waits for others any more.
    pub(crate) fn time_out(&self) -> u64 {
        let knobs = ["net.ipv4.ipfrag_time", "net.ipv6.ip6frag_time"];
        let seconds = knobs.iter().filter_map(|knob| {
            let value = self.stack().inner().sysctl(knob).ok()?;
            value.parse().ok()
        });
        let longest: u64 = seconds.max().unwrap_or_default();
        longest.saturating_add(1).saturating_mul(1_000_000_000)
    }

    /// Bytes of buffers that fragments of the packet's family may hold.
    pub(crate) fn fragments_limit(&self, packet: &[u8]) -> usize {
        let knob = match packet.first().map(|byte| byte >> 4) {
            Some(6) => "net.ipv6.ip6frag_high_thresh",
            _ => "net.ipv4.ipfrag_high_thresh",
        };
        let value = self.stack().inner().sysctl(knob);
        let bytes = value.ok().and_then(|value| value.parse().ok());
        bytes.unwrap_or(usize::MAX)
    }

    /// Takes what waits for the devices.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.each_sent(|interface, packet| {
            let bytes = packet.chunks().flatten().copied().collect();
            let interface = interface.to_owned();
            sent.push(Sent { interface, bytes });
        });
        sent
    }

    /// Throws away what waits for the devices.
    pub(crate) fn discard_sent(&mut self) {
        self.each_sent(|_, _| {});
    }

    fn each_sent(&mut self, mut f: impl FnMut(&str, &Packet)) {
        for (name, waiting) in &self.waiting {
            let mut queue = PacketQueue::new();
            waiting.take(&mut queue);
            while let Some(packet) = queue.pop() {
                f(name, &packet);
                self.core.cache().free(packet);
            }
        }
    }

    /// The socket that is connected for a packet's flow.
    pub(crate) fn flow_socket(&self, packet: &[u8]) -> Option<SocketId> {
        let flow = self.flow(packet)?;
        self.flows.get(&flow).copied().flatten()
    }

    /// The socket that is connected for the flow of a datagram of its own, as an ICMP error quotes
    /// it: from here to the peer.
    pub(crate) fn sender_of(&self, quoted: &[u8]) -> Option<SocketId> {
        let sent = Summary::of(quoted)?;
        let Transport::Ports(src, dst) = sent.transport else {
            return None;
        };
        let flow = (self.scoped(sent.src, src), self.scoped(sent.dst, dst));
        self.flows.get(&flow).copied().flatten()
    }

    /// The sockets of the services.
    pub(crate) fn services(&self) -> &[SocketId] {
        &self.services
    }

    /// The connected sockets.
    pub(crate) fn connected(&self) -> &[SocketId] {
        &self.connected
    }

    /// Whether a datagram waits in any socket.
    pub(crate) fn has_unread(&self) -> bool {
        self.stack().inner().socket_memory() > 0
    }

    /// Reads everything that waits in a socket: the datagrams' lengths, and what the network said.
    pub(crate) fn read(&self, id: SocketId) -> (Vec<usize>, Option<String>) {
        let (mut lens, mut error) = (Vec::new(), None);
        loop {
            match self.stack().inner().udp_recv(id, &mut [], false) {
                Ok(Some(datagram)) => lens.push(datagram.full_len),
                Ok(None) => return (lens, error),
                Err(told) if error.is_none() => error = Some(told.to_string()),
                Err(_) => return (lens, error),
            }
        }
    }

    /// Throws away what waits in a socket.
    pub(crate) fn discard_received(&self, id: SocketId) {
        // An error is told once; then there are datagrams again.
        while !matches!(self.stack().inner().udp_recv(id, &mut [], false), Ok(None)) {
            if self.stack().inner().udp_info(id).is_err() {
                return;
            }
        }
    }

    /// A socket as ss(8) shows it.
    pub(crate) fn socket_name(&self, id: SocketId) -> String {
        match self.stack().inner().udp_info(id) {
            Ok(socket) => match socket.peer {
                Some(peer) => format!("udp {} <- {peer}", socket.local),
                None => format!("udp {}", socket.local),
            },
            Err(_) => "a closed socket".to_owned(),
        }
    }

    /// What a socket got is read behind each packet when stories are told, and behind each batch
    /// when they are measured: a limit would make a difference where there is to be none.
    fn let_sockets_take_all(&self) {
        for id in self.services.iter().chain(&self.connected) {
            // It is open.
            let _ = self.stack().inner().udp_force_rcvbuf(*id, u32::MAX);
        }
    }

    fn connect_flows(&mut self, capture: &Capture) {
        for (_, packet) in capture.packets() {
            let Some(flow) = self.flow(packet) else {
                continue;
            };
            if self.flows.contains_key(&flow) {
                continue;
            }
            let socket = self.connect(flow.0, flow.1);
            self.connected.extend(socket);
            self.flows.insert(flow, socket);
        }
    }

    /// Local address and peer of a whole UDP packet that would end here.
    fn flow(&self, packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
        let summary = Summary::of(packet)?;
        let Transport::Ports(src, dst) = summary.transport else {
            return None;
        };
        let is_one = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => !addr.is_multicast() && !addr.is_broadcast(),
            IpAddr::V6(addr) => !addr.is_multicast(),
        };
        let is_udp = summary.protocol == 17 && !summary.is_fragment;
        // Nobody listens at port 0: to bind to it is to ask for any other.
        if !is_udp || src == 0 || dst == 0 || !is_one(summary.dst) || !is_one(summary.src) {
            return None;
        }
        let iif = Some(self.iif);
        let route = self
            .stack()
            .inner()
            .look_up_route(summary.dst, Some(summary.src), iif, None);
        let is_local = route.is_ok_and(|route| route.kind == RouteKind::Local);
        is_local.then(|| (self.scoped(summary.dst, dst), self.scoped(summary.src, src)))
    }

    /// An address that means something on one link only names the interface.
    fn scoped(&self, addr: IpAddr, port: u16) -> SocketAddr {
        match addr {
            IpAddr::V6(addr) if addr.is_unicast_link_local() => {
                SocketAddrV6::new(addr, port, 0, self.iif).into()
            }
            addr => SocketAddr::new(addr, port),
        }
    }

    fn connect(&self, local: SocketAddr, peer: SocketAddr) -> Option<SocketId> {
        let stack = self.stack().inner();
        let version = match local {
            SocketAddr::V4(_) => IpVersion::V4,
            SocketAddr::V6(_) => IpVersion::V6,
        };
        let id = stack.udp_open(version).ok()?;
        let connected = || {
            stack.udp_set_transparent(id, true).ok()?;
            stack.udp_set_reuse_addr(id, true).ok()?;
            stack.udp_bind(id, local).ok()?;
            stack.udp_connect(self.now, id, peer).ok()
        };
        if connected().is_none() {
            // It was just opened.
            let _ = stack.udp_close(id);
            return None;
        }
        Some(id)
    }
}
