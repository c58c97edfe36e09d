//! A stack to be measured: its interfaces, addresses, routes and sockets.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use forebay::core::core::Core;
use forebay::core::fib::{
    Address, Fib, Prefix, Route, RouteError, RouteKind, Rule, RuleAction, TableId,
};
use forebay::core::interface::{InterfaceConfig, LOOPBACK, TransmitQueue};
use forebay::core::packet::{IpVersion, Packet};
use forebay::core::socket::SocketId;
use forebay::core::time::Instant;
use forebay::core::{Stack, StackConfig};

use super::net::{Family, Prefixes};
use super::packet::{Flow, Protocol};
use crate::random::Random;

mod apart;
mod chunk;
mod crowd;
mod reader;
mod receive;

pub(super) use chunk::BATCH;
pub(super) use crowd::Crowd;
pub(super) use reader::Call;
pub(super) use receive::{PAYLOAD, Way};

/// Packets of a chunk, all in buffers of their own.
pub(super) const CHUNK: usize = 16_384;

/// Buffers that lie in caches while a chunk is under way.
const SPARE_BUFFERS: usize = 8_192;

/// Routers that the routes lead to.
const GATEWAYS: usize = 16;

/// Ports that sockets are bound to, from this one on; more sockets than ports share them.
const FIRST_PORT: u32 = 1_024;
const PORTS: u32 = 60_000;

/// Addresses of its own that a stack is given at most: each is compared with those that its interface
/// has already.
const MAX_OWN: u32 = 10_000;

/// Where a transparent proxy's local route stands.
const PROXY_TABLE: TableId = TableId(100);

/// What the stack takes for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// So many addresses.
    Addresses(u32),
    /// Everything, by a local route in a table for packets of another interface: what a transparent
    /// proxy has.
    Everything,
}

impl Own {
    pub(super) fn name(self, family: Family) -> String {
        match (self, family) {
            (Self::Addresses(count), _) => count.to_string(),
            (Self::Everything, Family::V4) => "0.0.0.0/0".to_owned(),
            (Self::Everything, Family::V6) => "::/0".to_owned(),
        }
    }
}

impl FromStr for Own {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match (word, word.parse()) {
            ("0.0.0.0/0" | "::/0", _) => Ok(Self::Everything),
            (_, Ok(count @ 1..=MAX_OWN)) => Ok(Self::Addresses(count)),
            _ => Err(format!(
                "expected a number from 1 to {MAX_OWN}, or 0.0.0.0/0"
            )),
        }
    }
}

/// Which way the routes lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Back to where the packets come from.
    Near,
    /// On.
    Far,
}

/// The stack, the core that works for it, and the buffers that go through it.
pub(super) struct Bed {
    family: Family,
    /// What transit is.
    transit: Protocol,
    stack: Arc<Stack>,
    core: Core,
    /// For who polls a queue of its own.
    second_core: Core,
    now: Instant,
    near: u32,
    /// What leaves by the far interface.
    far: Arc<TransmitQueue>,
    routes_by: u32,
    prefixes: Prefixes,
    own: HashSet<u128>,
    sockets: Vec<(SocketId, Flow)>,
    /// All buffers of a chunk, when none is under way.
    buffers: Vec<Packet>,
    random: Random,
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").finish_non_exhaustive()
    }
}

impl Bed {
    /// A router between two interfaces with a default route, and without sockets.
    pub(super) fn new(family: Family, own: Own, side: Side, seed: u64) -> anyhow::Result<Self> {
        let stack = Arc::new(Stack::new(&StackConfig {
            buffers: CHUNK + SPARE_BUFFERS,
            reserve: SPARE_BUFFERS / 2,
            seed: [seed, !seed],
            ..StackConfig::default()
        }));
        let near = stack.add_interface(InterfaceConfig::new("near"))?;
        let far = stack.add_interface(InterfaceConfig::new("far"))?;
        for (knob, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            // One socket may be told all packets of a chunk.
            ("net.core.rmem_max", "1000000000"),
        ] {
            stack.set_sysctl(knob, value)?;
        }
        let queue = stack.transmit_queue(far);
        let mut bed = Self {
            family,
            transit: Protocol::default(),
            core: stack.core(),
            second_core: stack.core(),
            now: Instant::from_nanos(1_000_000_000),
            near,
            far: queue.context("the far interface has gone")?,
            routes_by: match side {
                Side::Near => near,
                Side::Far => far,
            },
            prefixes: Prefixes::new(family),
            own: HashSet::new(),
            sockets: Vec::new(),
            buffers: Vec::with_capacity(CHUNK),
            random: Random::new(seed),
            stack,
        };
        bed.add_own(own)?;
        bed.add_route((0, 0))?;
        Ok(bed)
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// Says what transit is, which was UDP so far.
    pub(super) fn set_transit(&mut self, protocol: Protocol) {
        self.transit = protocol;
    }

    /// Sets a knob, if it is set otherwise.
    pub(super) fn set(&self, knob: &str, value: i64) -> anyhow::Result<()> {
        let value = value.to_string();
        if self.stack.sysctl(knob)? != value {
            self.stack.set_sysctl(knob, &value)?;
        }
        Ok(())
    }

    /// Adds routes until there are so many.
    pub(super) fn grow_routes(&mut self, routes: usize) -> anyhow::Result<()> {
        while self.prefixes.len() < routes {
            let prefix = self.prefixes.grow(&mut self.random);
            self.add_route(prefix)?;
        }
        Ok(())
    }

    /// Opens connected sockets until there are so many, their peers where the routes lead.
    pub(super) fn grow_connected(&mut self, sockets: usize) -> anyhow::Result<()> {
        while self.sockets.len() < sockets {
            let nth = self.sockets.len() as u32;
            let flow = Flow {
                src: self.stranger(),
                src_port: FIRST_PORT as u16 + self.random.below(PORTS as usize) as u16,
                dst: self.family.own(),
                dst_port: (FIRST_PORT + nth % PORTS) as u16,
            };
            let id = open(&self.stack, self.family, &flow)?;
            connect(&self.stack, self.family, self.now, id, &flow)?;
            self.sockets.push((id, flow));
        }
        Ok(())
    }

    /// Opens one socket that takes datagrams from anybody.
    pub(super) fn open_unconnected(&mut self) -> anyhow::Result<()> {
        let flow = Flow {
            src: self.family.peer(),
            src_port: FIRST_PORT as u16,
            dst: self.family.own(),
            dst_port: FIRST_PORT as u16,
        };
        let id = open(&self.stack, self.family, &flow)?;
        self.sockets.push((id, flow));
        Ok(())
    }

    /// Opens sockets that take datagrams from anybody until there are so many, each at a port of its
    /// own; where ports run out, at a further address.
    pub(super) fn grow_unconnected(&mut self, sockets: usize) -> anyhow::Result<()> {
        while self.sockets.len() < sockets {
            let nth = self.sockets.len() as u32;
            let flow = Flow {
                src: self.stranger(),
                src_port: FIRST_PORT as u16,
                dst: self.family.own() + u128::from(nth / PORTS),
                dst_port: (FIRST_PORT + nth % PORTS) as u16,
            };
            if !self.own.contains(&flow.dst) {
                self.add_address(flow.dst)?;
            }
            let id = open(&self.stack, self.family, &flow)?;
            self.sockets.push((id, flow));
        }
        Ok(())
    }

    /// An address where the routes lead that is not our own.
    fn stranger(&mut self) -> u128 {
        loop {
            let addr = self.prefixes.address(&mut self.random);
            if !self.own.contains(&addr) {
                return addr;
            }
        }
    }

    /// The first of our addresses is the one that sockets have, the others lie among those that
    /// transit goes to.
    fn add_own(&mut self, own: Own) -> anyhow::Result<()> {
        self.add_address(self.family.own())?;
        match own {
            Own::Addresses(count) => {
                while self.own.len() < count as usize {
                    let addr = self.stranger();
                    self.add_address(addr)?;
                }
            }
            Own::Everything => self.add_proxy()?,
        }
        Ok(())
    }

    fn add_address(&mut self, addr: u128) -> anyhow::Result<()> {
        let (addr_of, len) = (self.family.address(addr), self.family.bits());
        self.stack.add_address(self.near, addr_of, len)?;
        self.own.insert(addr);
        Ok(())
    }

    /// A third interface, all of whose packets end here.
    fn add_proxy(&self) -> anyhow::Result<()> {
        let proxied = self.stack.add_interface(InterfaceConfig::new("proxied"))?;
        match self.family {
            Family::V4 => take_everything(self.stack.fib4(), proxied),
            Family::V6 => take_everything(self.stack.fib6(), proxied),
        }
    }

    fn add_route(&mut self, prefix: (u128, u8)) -> anyhow::Result<()> {
        let (addr, len) = (self.family.address(prefix.0), prefix.1);
        let gateway = self.family.gateway(self.random.below(GATEWAYS));
        let (gateway, dev) = (self.family.address(gateway), self.routes_by);
        match (addr, gateway) {
            (IpAddr::V4(addr), IpAddr::V4(gateway)) => {
                add_route(self.stack.fib4(), Prefix::new(addr, len)?, gateway, dev)?;
            }
            (IpAddr::V6(addr), IpAddr::V6(gateway)) => {
                add_route(self.stack.fib6(), Prefix::new(addr, len)?, gateway, dev)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A socket at the flow's destination that takes as much as anybody sends.
fn open(stack: &Stack, family: Family, flow: &Flow) -> anyhow::Result<SocketId> {
    let version = match family {
        Family::V4 => IpVersion::V4,
        Family::V6 => IpVersion::V6,
    };
    let id = stack.udp_open(version)?;
    stack.udp_set_rcvbuf(id, u32::MAX)?;
    stack.udp_set_reuse_addr(id, true)?;
    let own = SocketAddr::new(family.address(flow.dst), flow.dst_port);
    stack.udp_bind(id, own)?;
    Ok(id)
}

/// Connects it to the flow's source.
fn connect(
    stack: &Stack,
    family: Family,
    now: Instant,
    id: SocketId,
    flow: &Flow,
) -> anyhow::Result<()> {
    let peer = SocketAddr::new(family.address(flow.src), flow.src_port);
    stack.udp_connect(now, id, peer)?;
    Ok(())
}

pub(super) fn add_route<A: Address>(
    fib: &Fib<A>,
    prefix: Prefix<A>,
    gateway: A,
    dev: u32,
) -> Result<(), RouteError> {
    let route = Route::new(RouteKind::Unicast, prefix).via(gateway).dev(dev);
    let onlink = true;
    fib.add(TableId::MAIN, Route { onlink, ..route })
}

fn take_everything<A: Address>(fib: &Fib<A>, iif: u32) -> anyhow::Result<()> {
    let route = Route::new(RouteKind::Local, Prefix::DEFAULT).dev(LOOPBACK);
    fib.add(PROXY_TABLE, route)?;
    let rule = Rule::all(100, RuleAction::Lookup(PROXY_TABLE));
    fib.add_rule(Rule {
        iif: Some(iif),
        ..rule
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_reads_and_prints() {
        let table = [
            ("1", Own::Addresses(1), "1"),
            ("1000", Own::Addresses(1_000), "1000"),
            ("0.0.0.0/0", Own::Everything, "0.0.0.0/0"),
            ("::/0", Own::Everything, "0.0.0.0/0"),
        ];
        for (word, own, name) in table {
            assert_eq!(word.parse(), Ok(own));
            assert_eq!(own.name(Family::V4), name);
        }
        for word in ["0", "", "10.0.0.0/8", "10001"] {
            assert!(word.parse::<Own>().is_err(), "{word:?}");
        }
    }
}
