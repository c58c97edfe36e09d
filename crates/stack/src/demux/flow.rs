//! Flows, and the words by which a socket's slot holds one.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::family::Family;
use crate::fib::Address;
use crate::packet::{IpVersion, Packet};
use crate::siphash::Key;

/// Both ends of a conversation, as this host sees it. IPv4-mapped addresses are IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    local: [u64; 2],
    remote: [u64; 2],
    /// The local port in the high half.
    ports: u32,
    /// Protocol and IP version.
    kind: u32,
}

impl Flow {
    /// Nobody's.
    pub(crate) const NONE: Self = Self {
        local: [0; 2],
        remote: [0; 2],
        ports: 0,
        kind: 0,
    };

    /// The flow of a packet that came in and whose ports are known.
    #[inline]
    pub(crate) fn of_packet<F: Family>(packet: &Packet) -> Self {
        Self {
            local: split(F::dst(packet).to_u128()),
            remote: split(F::src(packet).to_u128()),
            ports: join_ports(packet.dst_port, packet.src_port),
            kind: kind(packet.protocol, F::VERSION),
        }
    }

    /// Whether the packet is of this flow, without making a flow of it.
    #[inline]
    pub(crate) fn is_of_packet<F: Family>(&self, packet: &Packet) -> bool {
        self.kind == kind(packet.protocol, F::VERSION)
            && self.ports == join_ports(packet.dst_port, packet.src_port)
            && self.remote == split(F::src(packet).to_u128())
            && self.local == split(F::dst(packet).to_u128())
    }

    /// The flow between two ends of one family.
    pub(crate) fn new(protocol: u8, local: (IpAddr, u16), remote: (IpAddr, u16)) -> Self {
        let version = version_of(local.0);
        Self {
            local: split(to_u128(local.0)),
            remote: split(to_u128(remote.0)),
            ports: join_ports(local.1, remote.1),
            kind: kind(protocol, version),
        }
    }

    /// This host's end.
    pub(crate) fn local(&self) -> (IpAddr, u16) {
        (self.addr(self.local), (self.ports >> 16) as u16)
    }

    /// The other end.
    pub(crate) fn remote(&self) -> (IpAddr, u16) {
        (self.addr(self.remote), self.ports as u16)
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.kind & 0xff == 4
    }

    /// A hash of the two addresses alone.
    pub(crate) fn hash_of_hosts(&self, key: Key) -> u64 {
        let ([l0, l1], [r0, r1]) = (self.local, self.remote);
        key.hash([l0, l1, r0, r1], 0, 0)
    }

    /// What nobody can tell who does not know the key, whatever he has seen of it (SipHash): for what
    /// is sent.
    pub(crate) fn secret(&self, key: Key) -> u64 {
        let tail = u64::from(self.ports) | u64::from(self.kind) << 32;
        let ([l0, l1], [r0, r1]) = (self.local, self.remote);
        key.hash([l0, l1, r0, r1], tail, 6)
    }

    /// Of the local end alone, as [`hash_of_local`] has it.
    #[inline]
    pub(super) fn local_hash(&self, key: Key) -> u32 {
        let [low, high] = self.local;
        hash_of_local(key, [low | self.family_mark(), high], self.local_port())
    }

    /// Of the local port on every address.
    #[inline]
    pub(super) fn wildcard_hash(&self, key: Key) -> u32 {
        hash_of_local(key, [self.family_mark(), 0], self.local_port())
    }

    #[inline]
    fn family_mark(&self) -> u64 {
        match self.kind & 0xff {
            4 => IS_V4,
            _ => 0,
        }
    }

    #[inline]
    fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// A number that nobody can foretell who does not know the key: products of secret words and those
    /// of the flow, folded (Wang Yi's wyhash). A tenth of what SipHash takes; and each packet takes one
    /// that is not of the last one's flow.
    #[inline(always)]
    pub(crate) fn hash(&self, key: Key) -> u64 {
        let Key([k0, k1]) = key;
        let ports = u64::from(self.ports) | u64::from(self.kind) << 32;
        let ([l0, l1], [r0, r1]) = (self.local, self.remote);
        let ends = if self.kind & 0xff == 4 {
            l0 ^ r0 << 32
        } else {
            fold(l0 ^ k0 ^ SALTS[0], l1 ^ k1 ^ SALTS[1])
                ^ fold(r0 ^ k0 ^ SALTS[2], r1 ^ k1 ^ SALTS[3])
        };
        finish(key, ends, ports)
    }
}

/// The same of a local address, in words as [`Flow`] has them, and a port: 32 bits.
#[inline]
pub(crate) fn hash_of_local(key: Key, addr: [u64; 2], port: u16) -> u32 {
    let [low, high] = addr;
    (finish(key, low, high ^ u64::from(port) << 32) >> 32) as u32
}

/// The hash of two words.
#[inline(always)]
fn finish(Key([k0, k1]): Key, one: u64, other: u64) -> u64 {
    let mixed = fold(one ^ k0 ^ SALTS[0], other ^ k1 ^ SALTS[1]);
    fold(mixed ^ k0 ^ SALTS[2], k1 ^ SALTS[3])
}

/// An address in words; one of IPv4 has a mark that none of IPv6 in use has: `::1:0:0` is nobody's.
pub(crate) fn split_addr(addr: IpAddr) -> [u64; 2] {
    let [low, high] = split(to_u128(addr));
    match addr {
        IpAddr::V4(_) => [low | IS_V4, high],
        IpAddr::V6(_) => [low, high],
    }
}

/// Sets an IPv4 address apart from IPv6's.
const IS_V4: u64 = 1 << 32;

/// So that a key's words stand for more than two: digits of pi.
const SALTS: [u64; 4] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
];

/// The two halves of the product, one upon the other.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Where a socket is: its local end, its peer if it is connected, the interface it is bound to.
///
/// One cache line, so that to compare a packet costs one miss. A slot has two: packets may still
/// read the one that the socket has left, which is therefore written again only after a grace
/// period.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    local: [AtomicU64; 2],
    remote: [AtomicU64; 2],
    ports: AtomicU32,
    kind: AtomicU32,
    device: AtomicU32,
    /// The socket's generation while it is connected as the words say, else 0. Changes under the
    /// lock of the socket's queue; all above does not change while anybody may read it.
    connected: AtomicU32,
    /// The input route that the flow's packets were last delivered by; see [`super::early`].
    pub(crate) input_route: AtomicU64,
}

impl KeySet {
    /// Writes a set that nobody reads.
    pub(crate) fn write(&self, flow: &Flow, device: u32) {
        let relaxed = Ordering::Relaxed;
        for (word, value) in self.local.iter().zip(flow.local) {
            word.store(value, relaxed);
        }
        for (word, value) in self.remote.iter().zip(flow.remote) {
            word.store(value, relaxed);
        }
        self.ports.store(flow.ports, relaxed);
        self.kind.store(flow.kind, relaxed);
        self.device.store(device, relaxed);
        self.input_route.store(0, relaxed);
    }

    /// Says that the socket of this generation is connected so, or (with 0) no longer is.
    pub(crate) fn set_connected(&self, generation: u32) {
        self.connected.store(generation, Ordering::Release);
    }

    /// The generation of the socket that is connected so.
    pub(crate) fn connected(&self) -> u32 {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether it is the flow's, and may take packets that came in by `iif`.
    #[inline]
    pub(crate) fn is(&self, flow: &Flow, iif: u32) -> bool {
        self.flow() == *flow && self.takes_from(iif)
    }

    /// The same for a packet's flow.
    #[inline]
    pub(crate) fn is_of_packet<F: Family>(&self, packet: &Packet) -> bool {
        self.flow().is_of_packet::<F>(packet) && self.takes_from(packet.iif)
    }

    /// Whether a socket that is bound so, and takes datagrams from anybody, takes the flow's.
    pub(crate) fn covers(&self, flow: &Flow, iif: u32) -> bool {
        let own = self.flow();
        let (port, wanted) = (own.ports >> 16, flow.ports >> 16);
        let any_addr = own.local == [0, 0];
        (port == wanted || port == 0)
            && (any_addr || (own.local, own.kind) == (flow.local, flow.kind))
            && self.takes_from(iif)
    }

    /// The interface that the socket is bound to, or 0.
    pub(crate) fn device(&self) -> u32 {
        self.device.load(Ordering::Relaxed)
    }

    pub(crate) fn local(&self) -> (IpAddr, u16) {
        self.flow().local()
    }

    pub(crate) fn remote(&self) -> (IpAddr, u16) {
        self.flow().remote()
    }

    #[inline]
    pub(crate) fn flow(&self) -> Flow {
        let load = |[low, high]: &[AtomicU64; 2]| {
            [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
        };
        Flow {
            local: load(&self.local),
            remote: load(&self.remote),
            ports: self.ports.load(Ordering::Relaxed),
            kind: self.kind.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn takes_from(&self, iif: u32) -> bool {
        let device = self.device();
        device == 0 || device == iif
    }
}

impl Flow {
    fn addr(&self, words: [u64; 2]) -> IpAddr {
        let bits = u128::from(words[0]) | u128::from(words[1]) << 64;
        if self.kind & 0xff == 4 {
            Ipv4Addr::from_bits(bits as u32).into()
        } else {
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

#[inline]
fn split(addr: u128) -> [u64; 2] {
    [addr as u64, (addr >> 64) as u64]
}

fn to_u128(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

fn version_of(addr: IpAddr) -> IpVersion {
    match addr {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    }
}

#[inline]
fn kind(protocol: u8, version: IpVersion) -> u32 {
    let version = match version {
        IpVersion::V4 => 4,
        IpVersion::V6 => 6,
    };
    u32::from(protocol) << 8 | version
}

#[inline]
fn join_ports(local: u16, remote: u16) -> u32 {
    u32::from(local) << 16 | u32::from(remote)
}
