//! What few sockets have: kept apart from the slots, so that the many others don't pay for it.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;

use forebay_sync::rcu::{Domain, Rcu};
use forebay_sync::segments::Segments;

use super::{Slot, lock};
use crate::filter::Program;
use crate::multicast::{Place, SourceFilter};
use crate::packet::IpVersion;

/// What a socket has that few have. It stays with the slot for the sockets to come.
pub(crate) struct Rare {
    /// The program that decides what gets into the queue (`SO_ATTACH_FILTER`).
    pub(crate) filter: Rcu<Option<Program>>,
    /// The program that picks members of its group (`SO_ATTACH_REUSEPORT_CBPF`).
    pub(crate) group_program: Rcu<Option<Program>>,
    /// The groups that it has joined.
    pub(crate) memberships: Rcu<Vec<Membership>>,
    /// [`MulticastOptions`], of IPv4 and IPv6.
    multicast: [AtomicU64; 2],
    /// Payload bytes of each datagram that a send is cut into, while `Flag::UdpSegment` says that it
    /// is.
    segment_size: AtomicU16,
}

/// A group that a socket has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: IpAddr,
    pub(crate) ifindex: u32,
    pub(crate) filter: SourceFilter,
}

/// How a socket sends to groups, and whether it takes what others have joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MulticastOptions {
    /// TTL or hop limit (`IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`).
    pub ttl: u8,
    /// Members on this host hear it, too (`IP_MULTICAST_LOOP`).
    pub loops: bool,
    /// Datagrams come in to groups that other sockets have joined (`IP_MULTICAST_ALL`).
    pub all: bool,
    /// The interface to send by (`IP_MULTICAST_IF`); 0 leaves it to the routes.
    pub interface: u32,
}

impl Rare {
    fn new(domain: &Domain) -> Self {
        let options = MulticastOptions::default().pack();
        Self {
            filter: Rcu::new(domain, None),
            group_program: Rcu::new(domain, None),
            memberships: Rcu::new(domain, Vec::new()),
            multicast: [AtomicU64::new(options), AtomicU64::new(options)],
            segment_size: AtomicU16::new(0),
        }
    }

    pub(crate) fn segment_size(&self) -> u16 {
        self.segment_size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_segment_size(&self, bytes: u16) {
        self.segment_size.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn multicast(&self, version: IpVersion) -> MulticastOptions {
        MulticastOptions::unpack(self.multicast_word(version).load(Ordering::Relaxed))
    }

    /// Sets the options, under the socket's control lock.
    pub(crate) fn set_multicast(&self, version: IpVersion, options: MulticastOptions) {
        self.multicast_word(version)
            .store(options.pack(), Ordering::Relaxed);
    }

    fn multicast_word(&self, version: IpVersion) -> &AtomicU64 {
        let [v4, v6] = &self.multicast;
        match version {
            IpVersion::V4 => v4,
            IpVersion::V6 => v6,
        }
    }
}

impl Membership {
    pub(crate) fn place(&self) -> Place {
        (self.ifindex, self.group)
    }
}

impl Default for MulticastOptions {
    fn default() -> Self {
        Self {
            ttl: 1,
            loops: true,
            all: true,
            interface: 0,
        }
    }
}

impl MulticastOptions {
    fn pack(self) -> u64 {
        u64::from(self.interface) << 32
            | u64::from(self.all) << 9
            | u64::from(self.loops) << 8
            | u64::from(self.ttl)
    }

    fn unpack(word: u64) -> Self {
        Self {
            ttl: word as u8,
            loops: word & 1 << 8 != 0,
            all: word & 1 << 9 != 0,
            interface: (word >> 32) as u32,
        }
    }
}

/// Those of all slots.
pub(super) struct Rares {
    domain: Domain,
    rares: Segments<Rare>,
    growing: Mutex<()>,
}

/// Which one is a slot's; 0 is none.
#[derive(Debug, Default)]
pub(super) struct RareIndex(AtomicU32);

impl Rares {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            rares: Segments::new(),
            growing: Mutex::default(),
        }
    }

    pub(super) fn of(&self, slot: &Slot) -> Option<&Rare> {
        let nth = slot.rear.rare.0.load(Ordering::Acquire);
        self.rares.get(nth.checked_sub(1)?)
    }

    /// The slot's, made if it has none. `None` where there are too many.
    pub(super) fn make(&self, slot: &Slot) -> Option<&Rare> {
        let _growing = lock(&self.growing);
        if let Some(rare) = self.of(slot) {
            return Some(rare);
        }
        let index = self.rares.len();
        let nth = index.checked_add(1)?;
        self.rares.grow_to(nth, || Rare::new(&self.domain));
        slot.rear.rare.0.store(nth, Ordering::Release);
        self.rares.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_options_are_one_word() {
        for (ttl, loops, all, interface) in [
            (0, true, false, 0),
            (255, false, true, u32::MAX),
            (1, true, true, 7),
        ] {
            let options = MulticastOptions {
                ttl,
                loops,
                all,
                interface,
            };
            assert_eq!(MulticastOptions::unpack(options.pack()), options);
        }
    }
}
