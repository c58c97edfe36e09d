//! The router that packets go through, and what is open on it.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_stack::StackConfig;
use forebay_stack::core::Core;
use forebay_stack::fib::{Fib, Prefix, Route, RouteKind, TableId};
use forebay_stack::interface::TransmitQueue;
use forebay_stack::packet::PacketQueue;
use forebay_stack::random::Random;
use forebay_stack::socket::SocketId;
use forebay_tests::{Rig, packets};

use crate::family::Family;

/// The port of every socket.
const PORT: u16 = 7;

/// Peers' ports, from this one on.
const FIRST_PEER: u16 = 10_000;

/// Routes beside the default one.
pub(crate) const ROUTES: usize = 10_000;

/// Connected sockets, once they are opened.
pub(crate) const SOCKETS: u16 = 1_000;

pub(crate) struct Router<F: Family> {
    pub(crate) rig: Rig,
    pub(crate) core: Core,
    pub(crate) near: u32,
    far: Arc<TransmitQueue>,
    /// Where packets go to, whether or not there are routes of their own.
    prefixes: Vec<Prefix<F::Addr>>,
    sockets: Vec<SocketId>,
    random: Random,
}

impl<F: Family> Router<F> {
    /// A router that has a default route.
    pub(crate) fn new() -> Self {
        let rig = Rig::with(&StackConfig {
            buffers: 8_192,
            reserve: 2_048,
            seed: [1, 2],
            ..StackConfig::default()
        });
        let far = rig.stack.transmit_queue(rig.ifindex("tun1"));
        let mut random = Random::new(1);
        let mut known = HashSet::new();
        let mut prefixes = Vec::new();
        while prefixes.len() < ROUTES {
            let prefix = F::prefix(&mut random);
            if known.insert(prefix) {
                prefixes.push(prefix);
            }
        }
        let router = Self {
            core: rig.stack.core(),
            near: rig.ifindex("tun0"),
            far: far.expect("an interface of the rig"),
            prefixes,
            sockets: Vec::new(),
            random,
            rig,
        };
        router.add_route(F::fib(&router.rig.stack), Prefix::DEFAULT);
        router
    }

    /// Adds [`ROUTES`] routes.
    pub(crate) fn add_routes(&self) {
        self.add_routes_to(F::fib(&self.rig.stack));
    }

    /// Adds them to another FIB.
    pub(crate) fn add_routes_to(&self, fib: &Fib<F::Addr>) {
        for prefix in &self.prefixes {
            self.add_route(fib, *prefix);
        }
    }

    fn add_route(&self, fib: &Fib<F::Addr>, prefix: Prefix<F::Addr>) {
        let far = self.rig.ifindex("tun1");
        let route = Route::new(RouteKind::Unicast, prefix)
            .via(F::GATEWAY)
            .dev(far);
        let onlink = true;
        fib.add(TableId::MAIN, Route { onlink, ..route })
            .expect("a new route");
    }

    /// Opens a socket that takes datagrams from anybody.
    pub(crate) fn open_unconnected(&mut self) {
        let id = self.rig.bind((F::OWN.into(), PORT));
        self.sockets.push(id);
    }

    /// Opens [`SOCKETS`] connected sockets.
    pub(crate) fn open_connected(&mut self) {
        for nth in 0..SOCKETS {
            let peer = (F::PEER.into(), FIRST_PEER + nth);
            let id = self.rig.bind_and_connect((F::OWN.into(), PORT), peer);
            self.sockets.push(id);
        }
    }

    /// An address that a route leads to.
    pub(crate) fn stranger(&mut self) -> F::Addr {
        let prefix = self.random.below(ROUTES as u32);
        F::within(&self.prefixes[prefix as usize], &mut self.random)
    }

    /// Packets to addresses that the routes lead to.
    pub(crate) fn transit(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|_| {
                let port = FIRST_PEER + self.random.below(50_000) as u16;
                packets::udp(F::PEER, self.stranger(), port, 53, &[0; 16])
            })
            .collect()
    }

    /// A datagram from each peer of a connected socket.
    pub(crate) fn greetings(&self) -> Vec<Vec<u8>> {
        (0..SOCKETS)
            .map(|nth| datagram::<F>(FIRST_PEER + nth))
            .collect()
    }

    /// Datagrams from any of the peers, or from others.
    pub(crate) fn local(&mut self, count: usize, from_peers: bool) -> Vec<Vec<u8>> {
        let first = if from_peers {
            FIRST_PEER
        } else {
            FIRST_PEER + SOCKETS
        };
        (0..count)
            .map(|_| datagram::<F>(first + self.random.below(SOCKETS.into()) as u16))
            .collect()
    }

    /// Puts packets into buffers.
    pub(crate) fn load(&mut self, packets: &[Vec<u8>]) -> PacketQueue {
        let mut queue = PacketQueue::new();
        for bytes in packets {
            let mut packet = self.core.cache().alloc().expect("a buffer");
            let room = packet.put(bytes.len()).expect("room for a packet");
            room.copy_from_slice(bytes);
            queue.push(packet);
        }
        queue
    }

    /// How many packets have left by the far interface since it was last asked.
    pub(crate) fn forwarded(&mut self) -> usize {
        let mut queue = PacketQueue::new();
        self.far.take(&mut queue);
        let count = queue.len();
        while let Some(packet) = queue.pop() {
            self.core.cache().free(packet);
        }
        count
    }

    /// How many datagrams the sockets have received since they were last asked.
    pub(crate) fn received(&mut self) -> usize {
        let mut buf = [0; 64];
        let mut count = 0;
        for id in &self.sockets {
            while let Ok(Some(_)) = self.rig.stack.udp_recv(*id, &mut buf, false) {
                count += 1;
            }
        }
        count
    }
}

fn datagram<F: Family>(from: u16) -> Vec<u8> {
    packets::udp(F::PEER, F::OWN, from, PORT, &[0; 16])
}
