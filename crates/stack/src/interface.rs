//! Interfaces: what a device looks like from inside the stack.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::task::Waker;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fib::Prefix;
use crate::packet::PacketQueue;
use crate::steer::{QueueAffinity, RxQueue};

/// Index of the loopback interface, which every stack has.
pub const LOOPBACK: u32 = 1;

/// What a new interface is made of.
#[derive(Debug, Clone)]
pub struct InterfaceConfig {
    /// Name, at most 15 bytes, without spaces and slashes.
    pub name: String,
    /// Largest IP packet it takes, in bytes: 68 (RFC 791) to 65,535.
    pub mtu: u32,
    /// Packets that may wait for the device (Linux's `txqueuelen`).
    pub tx_queue_len: usize,
    /// What the device does itself.
    pub offload: Offload,
    /// Queues that the device has for each direction: 1 at least.
    pub queues: u16,
    /// Where the device sends the packets of a flow out by the queue that its replies come in by:
    /// what is known of that.
    pub affinity: Option<Arc<QueueAffinity>>,
}

impl InterfaceConfig {
    /// An interface called `name` with an MTU of 1,500 and Linux's queue of 1,000 packets.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            mtu: 1_500,
            tx_queue_len: 1_000,
            offload: Offload::default(),
            queues: 1,
            affinity: None,
        }
    }
}

/// What a device takes over from the stack on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Fills transport checksums ([`crate::packet::ChecksumState::Partial`]).
    pub checksum: bool,
    /// Segments TCP.
    pub tcp_segmentation: bool,
    /// Segments UDP.
    pub udp_segmentation: bool,
}

/// An interface, immutable; a change publishes a new one.
#[derive(Debug, Clone)]
pub struct Interface {
    /// 1 is the loopback, devices follow.
    pub index: u32,
    /// What people call it.
    pub name: String,
    /// Largest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// What the device does itself.
    pub offload: Offload,
    /// Its addresses, the primary ones first.
    pub addresses: Vec<InterfaceAddress>,
    /// What waits for the device, by its queues: one at least.
    pub(crate) tx: Vec<Arc<TransmitQueue>>,
    /// How packets of each of its queues are steered.
    pub(crate) rx: Vec<RxQueue>,
    /// By which queues the replies of its flows come in.
    pub(crate) affinity: Option<Arc<QueueAffinity>>,
}

/// An address of an interface, with the prefix that is on-link there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address itself.
    pub addr: IpAddr,
    /// Length of the on-link prefix in bits.
    pub prefix_len: u8,
}

impl InterfaceAddress {
    /// The subnet's directed broadcast address: IPv4 prefixes of 30 bits and less have one
    /// (RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.addr {
            IpAddr::V4(addr) if self.prefix_len <= 30 => {
                let host = u32::MAX
                    .checked_shr(u32::from(self.prefix_len))
                    .unwrap_or(0);
                Some(Ipv4Addr::from_bits(addr.to_bits() | host))
            }
            _ => None,
        }
    }
}

impl Interface {
    /// Whether IPv6 works here at all: RFC 8200 section 5 asks for an MTU of 1,280.
    pub fn carries_ipv6(&self) -> bool {
        self.mtu >= 1_280
    }

    /// Whether packets for `group` are taken in: the groups every node is in (RFC 1112 section 4,
    /// RFC 4291 section 2.8).
    pub fn is_member(&self, group: IpAddr, is_router: bool) -> bool {
        match group {
            IpAddr::V4(group) => group == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(group) => match group.segments() {
                [0xff01 | 0xff02, 0, 0, 0, 0, 0, 0, 1] => true,
                [0xff01 | 0xff02 | 0xff05, 0, 0, 0, 0, 0, 0, 2] => is_router,
                [0xff02, 0, 0, 0, 0, 1, 0xff00..=0xffff, _] => self.is_solicited_node(group),
                _ => false,
            },
        }
    }

    /// The groups that every node is in on this interface, those of routers aside.
    pub(crate) fn every_host_groups(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = Ipv4Addr::new(224, 0, 0, 1).into();
        let v6 = [0xff01, 0xff02].map(|scope| Ipv6Addr::new(scope, 0, 0, 0, 0, 0, 0, 1).into());
        let solicited = self.addresses.iter().filter_map(|own| match own.addr {
            IpAddr::V6(addr) => {
                let suffix = addr.to_bits() & 0xff_ffff;
                let prefix = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).to_bits();
                Some(Ipv6Addr::from_bits(prefix | suffix).into())
            }
            IpAddr::V4(_) => None,
        });
        let solicited: BTreeSet<IpAddr> = solicited.collect();
        let v6 = v6.into_iter().chain(solicited);
        let carries_ipv6 = self.carries_ipv6();
        core::iter::once(v4).chain(v6.filter(move |_| carries_ipv6))
    }

    /// Whether the group is the solicited-node group of an address of ours: they share the last
    /// 24 bits (RFC 4291 section 2.7.1).
    fn is_solicited_node(&self, group: Ipv6Addr) -> bool {
        let suffix = |addr: Ipv6Addr| addr.to_bits() & 0xff_ffff;
        self.addresses.iter().any(|own| match own.addr {
            IpAddr::V6(own) => suffix(own) == suffix(group),
            IpAddr::V4(_) => false,
        })
    }

    /// The on-link prefix that covers `addr`, if any address of the interface has one.
    pub fn on_link(&self, addr: IpAddr) -> bool {
        self.addresses.iter().any(|own| match (own.addr, addr) {
            (IpAddr::V4(own_addr), IpAddr::V4(addr)) => {
                Prefix::new(own_addr, own.prefix_len).is_ok_and(|prefix| prefix.contains(addr))
            }
            (IpAddr::V6(own_addr), IpAddr::V6(addr)) => {
                Prefix::new(own_addr, own.prefix_len).is_ok_and(|prefix| prefix.contains(addr))
            }
            _ => false,
        })
    }
}

/// What waits for the device.
impl Interface {
    /// Closes the queues and empties them to `out`.
    pub(crate) fn close(&self, out: &mut PacketQueue) {
        self.tx.iter().for_each(|queue| queue.close(out));
    }

    pub(crate) fn open(&self) {
        self.tx.iter().for_each(|queue| queue.open());
    }

    /// Wakes who drives the device, for something else than packets.
    pub(crate) fn wake(&self) {
        self.tx.iter().take(1).for_each(|queue| queue.wake());
    }

    /// Moves all that waits to `out`.
    pub(crate) fn take_waiting(&self, out: &mut PacketQueue) {
        self.tx.iter().for_each(|queue| queue.take(out));
    }

    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.tx.iter().all(|queue| queue.is_empty())
    }
}

/// All interfaces at one moment.
#[derive(Debug, Clone, Default)]
pub struct Interfaces {
    by_index: Vec<Option<Interface>>,
    /// Every address of every interface.
    addresses: HashSet<IpAddr>,
}

impl Interfaces {
    /// The interface with this index.
    pub fn get(&self, index: u32) -> Option<&Interface> {
        self.by_index.get(index as usize)?.as_ref()
    }

    /// The interface with this name.
    pub fn by_name(&self, name: &str) -> Option<&Interface> {
        self.iter().find(|interface| interface.name == name)
    }

    /// All of them by index.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.by_index.iter().flatten()
    }

    /// Whether an interface has exactly this address.
    pub fn has_address(&self, addr: IpAddr) -> bool {
        self.addresses.contains(&addr)
    }

    /// Changes an interface, if there is one with this index.
    pub(crate) fn change(&mut self, index: u32, change: impl FnOnce(&mut Interface)) -> bool {
        let Some(interface) = self.get_mut(index) else {
            return false;
        };
        change(interface);
        self.collect_addresses();
        true
    }

    fn collect_addresses(&mut self) {
        let all = self
            .by_index
            .iter()
            .flatten()
            .flat_map(|interface| &interface.addresses);
        self.addresses = all.map(|own| own.addr).collect();
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Interface> {
        self.by_index.get_mut(index as usize)?.as_mut()
    }

    /// Adds an interface under the next free index: Linux does not use one again either.
    pub(crate) fn add(&mut self, config: InterfaceConfig) -> u32 {
        let index = u32::try_from(self.by_index.len().max(1)).unwrap_or(u32::MAX);
        self.by_index.resize_with(index as usize, || None);
        let queues = config.queues.max(1);
        self.by_index.push(Some(Interface {
            index,
            name: config.name,
            mtu: config.mtu,
            up: true,
            offload: config.offload,
            addresses: Vec::new(),
            tx: (0..queues)
                .map(|_| Arc::new(TransmitQueue::new(config.tx_queue_len)))
                .collect(),
            rx: vec![RxQueue::default(); queues.into()],
            affinity: config.affinity,
        }));
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Interface> {
        let removed = self.by_index.get_mut(index as usize)?.take();
        self.collect_addresses();
        removed
    }
}

/// Packets that wait for a device: bounded, filled by every core, emptied by who drives the device.
///
/// On lines of its own: the queues of a device are filled by different cores.
#[repr(align(128))]
pub struct TransmitQueue {
    limit: usize,
    state: Mutex<TxState>,
}

#[derive(Default)]
struct TxState {
    packets: PacketQueue,
    /// The interface is down, or gone: nobody would come for what is put here.
    is_closed: bool,
    /// Woken when the queue stops being empty.
    waker: Option<Waker>,
}

impl fmt::Debug for TransmitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransmitQueue")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl TransmitQueue {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Takes what fits of `packets`, in order; what does not fit stays there.
    pub(crate) fn enqueue(&self, packets: &mut PacketQueue) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = state.packets.is_empty();
        let room = match state.is_closed {
            true => 0,
            false => self.limit.saturating_sub(state.packets.len()),
        };
        if packets.len() <= room {
            state.packets.append(packets);
        } else {
            for _ in 0..room {
                let Some(packet) = packets.pop() else { break };
                state.packets.push(packet);
            }
        }
        let waker = if was_empty && !state.packets.is_empty() {
            state.waker.clone()
        } else {
            None
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves everything to `out`.
    pub fn take(&self, out: &mut PacketQueue) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        out.append(&mut state.packets);
    }

    /// Moves everything to `out`, and takes nothing more until it is opened again.
    pub(crate) fn close(&self, out: &mut PacketQueue) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        out.append(&mut state.packets);
    }

    pub(crate) fn open(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_closed = false;
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .packets
            .len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes who drives the device, for something else than packets.
    pub(crate) fn wake(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Has `waker` woken whenever packets begin to wait.
    pub fn set_waker(&self, waker: Waker) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waker = Some(waker);
    }
}
