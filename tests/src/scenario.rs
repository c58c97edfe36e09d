//! One scenario in every way that must not matter: either family, early demux on and off.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::rig::{Rig, V4, V6};

/// The rig's addresses of one family, and others that mean something to it.
#[derive(Debug, Clone, Copy)]
pub struct Net {
    /// Of the stack on tun0.
    pub own: IpAddr,
    /// Of the neighbour on tun0.
    pub peer: IpAddr,
    /// Of another neighbour on tun0.
    pub other: IpAddr,
    /// Of the stack on tun1.
    pub own1: IpAddr,
    /// Of the neighbour on tun1.
    pub peer1: IpAddr,
    /// An address to which there is no route.
    pub nowhere: IpAddr,
    /// The unspecified address.
    pub any: IpAddr,
    /// Length of the prefixes on tun0 and tun1.
    pub prefix_len: u8,
}

impl Net {
    /// IPv4.
    pub const V4: Self = Self {
        own: IpAddr::V4(V4::OWN),
        peer: IpAddr::V4(V4::PEER),
        other: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)),
        own1: IpAddr::V4(V4::OWN1),
        peer1: IpAddr::V4(V4::PEER1),
        nowhere: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        any: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        prefix_len: 24,
    };
    /// IPv6.
    pub const V6: Self = Self {
        own: IpAddr::V6(V6::OWN),
        peer: IpAddr::V6(V6::PEER),
        other: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3)),
        own1: IpAddr::V6(V6::OWN1),
        peer1: IpAddr::V6(V6::PEER1),
        nowhere: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        any: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        prefix_len: 64,
    };

    /// Whether it is IPv4's.
    pub fn is_v4(&self) -> bool {
        self.own.is_ipv4()
    }

    /// One thing for IPv4, another for IPv6.
    pub fn pick<T>(&self, v4: T, v6: T) -> T {
        if self.is_v4() { v4 } else { v6 }
    }

    /// The stack's address on tun0 with a port.
    pub fn own(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.own, port)
    }

    /// The neighbour's address on tun0 with a port.
    pub fn peer(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.peer, port)
    }

    /// The unspecified address with a port.
    pub fn any(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.any, port)
    }
}

/// Runs a scenario on a fresh rig, with early demux on and off.
pub fn both(mut scenario: impl FnMut(Rig)) {
    for early_demux in [true, false] {
        // Shown if the scenario fails.
        println!("early demux: {early_demux}");
        scenario(Rig::with_early_demux(early_demux));
    }
}

/// The same in both families.
pub fn everywhere(mut scenario: impl FnMut(Rig, Net)) {
    for net in [Net::V4, Net::V6] {
        println!("{net:?}");
        both(|rig| scenario(rig, net));
    }
}
