//! Groups that sockets join, and what datagrams to groups look like.

use core::net::IpAddr;

use super::socket::NotOpen;
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::multicast::{SourceFilter, SourceMode};
use crate::packet::IpVersion;
use crate::socket::{Control, Flag, Membership, MulticastOptions, Rare, Slot, SocketId};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::transmit;

/// Why a membership was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EINVAL.
    #[error("{0} is not a multicast group")]
    NotAGroup(IpAddr),
    /// EINVAL: source and group are of two families, or the socket speaks neither.
    #[error("address family not supported by the socket")]
    FamilyNotSupported,
    /// ENODEV.
    #[error("no such device")]
    NoDevice,
    /// EADDRINUSE.
    #[error("the socket has joined the group on this interface already")]
    AlreadyMember,
    /// EADDRNOTAVAIL.
    #[error("the socket has not joined the group on this interface")]
    NotMember,
    /// EINVAL: it names sources that it wants, or such that it does not want, not both.
    #[error("the socket has joined the group in the other way, with sources or without")]
    OtherMode,
    /// EADDRNOTAVAIL.
    #[error("the source is named already")]
    SourceListed,
    /// EADDRNOTAVAIL.
    #[error("the source is not named")]
    SourceNotListed,
    /// ENOBUFS: `igmp_max_memberships`, `igmp_max_msf` or `mld_max_msf` is reached.
    #[error("too many groups, or sources of one group")]
    TooMany,
}

/// What to do with one source of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceChange {
    /// Want it, and join the group for that (`MCAST_JOIN_SOURCE_GROUP`).
    Join,
    /// Want it no more; with the last one goes the membership (`MCAST_LEAVE_SOURCE_GROUP`).
    Leave,
    /// Of a group joined with all sources, do not want this one (`MCAST_BLOCK_SOURCE`).
    Block,
    /// Want it again (`MCAST_UNBLOCK_SOURCE`).
    Unblock,
}

/// An option about datagrams to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MulticastOption {
    /// TTL or hop limit of what is sent; 0 stays on this host (`IP_MULTICAST_TTL`).
    Ttl(u8),
    /// Whether what is sent comes to members on this host as well (`IP_MULTICAST_LOOP`).
    Loop(bool),
    /// The interface to send by; 0 leaves it to the routes (`IP_MULTICAST_IF`).
    Interface(u32),
    /// Whether datagrams come in to groups that other sockets have joined (`IP_MULTICAST_ALL`).
    All(bool),
}

/// Membership. These may wait until batches that are under way are through.
impl Stack {
    /// Joins a group, whatever the source, on an interface or where routes to the group lead
    /// (`MCAST_JOIN_GROUP`).
    ///
    /// # Errors
    ///
    /// [`MembershipError`].
    pub fn udp_join_group(
        &self,
        id: SocketId,
        group: IpAddr,
        ifindex: Option<u32>,
    ) -> Result<(), MembershipError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        let ifindex = self.group_interface(group, ifindex)?;
        let mut change = Change::begin(self, slot, &mut control, group, ifindex)?;
        if change.position().is_some() {
            return Err(MembershipError::AlreadyMember);
        }
        change.join(SourceFilter::EVERYTHING)?;
        change.publish();
        Ok(())
    }

    /// Leaves a group with whatever sources; on an interface, or on the first where the socket is in
    /// it (`MCAST_LEAVE_GROUP`).
    ///
    /// # Errors
    ///
    /// [`MembershipError`].
    pub fn udp_leave_group(
        &self,
        id: SocketId,
        group: IpAddr,
        ifindex: Option<u32>,
    ) -> Result<(), MembershipError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        let joined = self.memberships(slot);
        let is_it = |membership: &&Membership| {
            membership.group == group.to_canonical()
                && ifindex.is_none_or(|ifindex| membership.ifindex == ifindex)
        };
        let found = joined.iter().find(is_it);
        let ifindex = found.ok_or(MembershipError::NotMember)?.ifindex;
        let mut change = Change::begin(self, slot, &mut control, group, ifindex)?;
        let at = change.position().ok_or(MembershipError::NotMember)?;
        change.now.remove(at);
        change.publish();
        Ok(())
    }

    /// Changes what a socket wants of one source of a group.
    ///
    /// # Errors
    ///
    /// [`MembershipError`].
    pub fn udp_change_source(
        &self,
        id: SocketId,
        group: IpAddr,
        source: IpAddr,
        ifindex: Option<u32>,
        what: SourceChange,
    ) -> Result<(), MembershipError> {
        let source = source.to_canonical();
        if source.is_ipv4() != group.to_canonical().is_ipv4() {
            return Err(MembershipError::FamilyNotSupported);
        }
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        let ifindex = self.group_interface(group, ifindex)?;
        let mut change = Change::begin(self, slot, &mut control, group, ifindex)?;
        match (what, change.position()) {
            (SourceChange::Join, None) => change.join(SourceFilter::only(source))?,
            (SourceChange::Block | SourceChange::Unblock, None) => {
                return Err(MembershipError::NotMember);
            }
            (SourceChange::Leave, None) => return Err(MembershipError::SourceNotListed),
            (_, Some(at)) => change.source(at, source, what)?,
        }
        change.publish();
        Ok(())
    }

    /// Sets an option about datagrams of one family to groups.
    ///
    /// # Errors
    ///
    /// [`MembershipError::NoDevice`] for an interface that does not exist.
    pub fn udp_set_multicast(
        &self,
        id: SocketId,
        version: IpVersion,
        option: MulticastOption,
    ) -> Result<(), MembershipError> {
        if let MulticastOption::Interface(ifindex) = option
            && ifindex != 0
            && self.interface(ifindex).is_none()
        {
            return Err(MembershipError::NoDevice);
        }
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        let rare = self.rare(slot)?;
        let mut options = rare.multicast(version);
        match option {
            MulticastOption::Ttl(ttl) => options.ttl = ttl,
            MulticastOption::Loop(on) => options.loops = on,
            MulticastOption::Interface(ifindex) => options.interface = ifindex,
            MulticastOption::All(on) => options.all = on,
        }
        rare.set_multicast(version, options);
        Ok(())
    }

    /// The options about datagrams of one family to groups.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_multicast(
        &self,
        id: SocketId,
        version: IpVersion,
    ) -> Result<MulticastOptions, NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        Ok(options_of(self.demux.sockets().rare(slot), version))
    }

    /// Leaves every group of a socket that closes. The caller holds the control lock.
    pub(super) fn leave_all_groups(&self, slot: &Slot) {
        let Some(rare) = self.demux.sockets().rare(slot) else {
            return;
        };
        for version in [IpVersion::V4, IpVersion::V6] {
            rare.set_multicast(version, MulticastOptions::default());
        }
        let joined = self.memberships(slot);
        if joined.is_empty() {
            return;
        }
        rare.memberships.publish(Vec::new());
        for membership in joined {
            self.change_membership(membership.place(), Some(&membership.filter), None);
        }
    }

    /// The interface to join a group on: the one that was named, or where routes lead.
    fn group_interface(&self, group: IpAddr, ifindex: Option<u32>) -> Result<u32, MembershipError> {
        let group = group.to_canonical();
        if !group.is_multicast() {
            return Err(MembershipError::NotAGroup(group));
        }
        let found = self.with_context(Instant::ZERO, |cx| match group {
            IpAddr::V4(_) => interface_for::<V4>(cx, group, ifindex),
            IpAddr::V6(_) => interface_for::<V6>(cx, group, ifindex),
        });
        found.ok_or(MembershipError::NoDevice)
    }

    fn memberships(&self, slot: &Slot) -> Vec<Membership> {
        let Some(rare) = self.demux.sockets().rare(slot) else {
            return Vec::new();
        };
        self.with_context(Instant::ZERO, |cx| {
            rare.memberships.read(cx.view.guard).clone()
        })
    }

    fn rare(&self, slot: &Slot) -> Result<&Rare, MembershipError> {
        let rare = self.demux.sockets().make_rare(slot);
        rare.ok_or(MembershipError::TooMany)
    }
}

/// A change of one membership of a socket whose control lock is held.
struct Change<'a> {
    stack: &'a Stack,
    rare: &'a Rare,
    place: (u32, IpAddr),
    before: Vec<Membership>,
    now: Vec<Membership>,
    max_memberships: usize,
    max_sources: usize,
}

impl<'a> Change<'a> {
    fn begin(
        stack: &'a Stack,
        slot: &'a Slot,
        _control: &mut Control,
        group: IpAddr,
        ifindex: u32,
    ) -> Result<Self, MembershipError> {
        let group = group.to_canonical();
        if group.is_ipv6() && !slot.options().has(Flag::Inet6) {
            return Err(MembershipError::FamilyNotSupported);
        }
        let (max_memberships, max_sources) = stack.with_context(Instant::ZERO, |cx| match group {
            IpAddr::V4(_) => (
                limit(cx, Knob::IgmpMaxMemberships),
                limit(cx, Knob::IgmpMaxMsf),
            ),
            IpAddr::V6(_) => (usize::MAX, limit(cx, Knob::MldMaxMsf)),
        });
        let rare = stack.rare(slot)?;
        let before = stack.memberships(slot);
        Ok(Self {
            stack,
            rare,
            place: (ifindex, group),
            now: before.clone(),
            before,
            max_memberships,
            max_sources,
        })
    }

    fn position(&self) -> Option<usize> {
        let is_it = |membership: &Membership| membership.place() == self.place;
        self.now.iter().position(is_it)
    }

    fn join(&mut self, filter: SourceFilter) -> Result<(), MembershipError> {
        let (ifindex, group) = self.place;
        let same_family = |other: &&Membership| other.group.is_ipv4() == group.is_ipv4();
        if self.now.iter().filter(same_family).count() >= self.max_memberships {
            return Err(MembershipError::TooMany);
        }
        self.now.push(Membership {
            group,
            ifindex,
            filter,
        });
        Ok(())
    }

    /// Linux's `ip_mc_source`.
    fn source(
        &mut self,
        at: usize,
        source: IpAddr,
        what: SourceChange,
    ) -> Result<(), MembershipError> {
        let mode = match what {
            SourceChange::Join | SourceChange::Leave => SourceMode::Include,
            SourceChange::Block | SourceChange::Unblock => SourceMode::Exclude,
        };
        let filter = &mut self.now[at].filter;
        if filter.mode != mode {
            if !filter.sources.is_empty() {
                return Err(MembershipError::OtherMode);
            }
            filter.mode = mode;
        }
        match what {
            SourceChange::Join | SourceChange::Block => {
                if filter.sources.contains(&source) {
                    return Err(MembershipError::SourceListed);
                }
                if filter.sources.len() >= self.max_sources {
                    return Err(MembershipError::TooMany);
                }
                filter.sources.insert(source);
            }
            SourceChange::Leave | SourceChange::Unblock => {
                if !filter.sources.remove(&source) {
                    return Err(MembershipError::SourceNotListed);
                }
                if what == SourceChange::Leave && filter.sources.is_empty() {
                    self.now.remove(at);
                }
            }
        }
        Ok(())
    }

    /// The change is in force when this returns.
    fn publish(self) {
        let filter_in = |memberships: &[Membership]| {
            let is_it = |membership: &&Membership| membership.place() == self.place;
            memberships
                .iter()
                .find(is_it)
                .map(|membership| membership.filter.clone())
        };
        let (old, new) = (filter_in(&self.before), filter_in(&self.now));
        self.rare.memberships.publish(self.now);
        self.stack
            .change_membership(self.place, old.as_ref(), new.as_ref());
    }
}

fn interface_for<F: Family>(cx: &Context<'_>, group: IpAddr, ifindex: Option<u32>) -> Option<u32> {
    match ifindex {
        Some(ifindex) => cx.view.interfaces.get(ifindex).map(|found| found.index),
        None => transmit::group_interface::<F>(cx, F::from_ip(group)?, None),
    }
}

fn limit(cx: &Context<'_>, knob: Knob) -> usize {
    usize::try_from(cx.view.sysctls.get(knob)).unwrap_or(usize::MAX)
}

/// Whether a socket takes datagrams to a group from this source: as its membership says, or where
/// it has none, if it takes what other sockets have joined (Linux's `ip_mc_sf_allow`).
pub(super) fn allows(cx: &Context<'_>, id: SocketId, place: (u32, IpAddr), source: IpAddr) -> bool {
    let sockets = cx.stack.demux.sockets();
    let Some(slot) = sockets.slot(id.slot) else {
        return false;
    };
    let Some(rare) = sockets.rare(slot) else {
        return true;
    };
    let mut memberships = rare.memberships.read(cx.view.guard).iter();
    match memberships.find(|membership| membership.place() == place) {
        Some(membership) => membership.filter.allows(source),
        None => rare.multicast(version_of(place.1)).all,
    }
}

/// What a socket says about datagrams that it sends to a group.
pub(super) fn options(cx: &Context<'_>, slot: &Slot, group: IpAddr) -> MulticastOptions {
    options_of(cx.stack.demux.sockets().rare(slot), version_of(group))
}

fn options_of(rare: Option<&Rare>, version: IpVersion) -> MulticastOptions {
    rare.map_or_else(MulticastOptions::default, |rare| rare.multicast(version))
}

fn version_of(addr: IpAddr) -> IpVersion {
    match addr {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    }
}
