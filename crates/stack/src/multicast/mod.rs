//! Multicast groups: who has joined which, and the reports that routers want of it.
//!
//! ```text
//! sockets ─▶ Multicast ─┬▶ joined     what packets are asked for (under their guard)
//!            (members)  └▶ host       what routers are told, and when ─▶ report ─▶ interface
//!  queries, others' reports ─▶ igmp, mld ─▶┘
//! ```
//!
//! A socket joins a group on one interface, with sources that it wants or does not want. The
//! interface wants what any of its sockets does (`members`), and tells routers by IGMPv3
//! (RFC 3376) and MLDv2 (RFC 3810), or the way their older versions did, as long as a router asks in
//! that way. The two protocols are one `host` here, for they differ in how they are written down.
//!
//! Reports are sent by [`Stack::poll`](crate::Stack::poll); who changes something only wakes it.

mod host;
mod igmp;
mod members;
mod message;
mod mld;
mod report;
mod source_filter;

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use forebay_sync::rcu::{Domain, Guard, Rcu};

use self::host::{Host, Settings};
pub(crate) use self::igmp::receive as receive_igmp;
use self::members::Members;
use self::message::Query;
pub(crate) use self::mld::receive as receive_mld;
pub(crate) use self::source_filter::SourceFilter;
pub use self::source_filter::SourceMode;
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::packet::IpVersion;
use crate::socket::lock;
use crate::stack::Stack;
use crate::time::Instant;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Interface and group.
pub(crate) type Place = (u32, IpAddr);

/// Groups of all interfaces.
pub(crate) struct Multicast {
    /// What sockets want. Never locked under a guard: whoever holds it may wait for a grace period.
    members: Mutex<BTreeMap<Place, Members>>,
    /// What packets may come in.
    joined: Rcu<HashMap<Place, SourceFilter>>,
    /// By family. Locked by packets, under their guards.
    hosts: [Mutex<Host>; 2],
    /// When a host has something to do, in nanoseconds, or [`NEVER`].
    deadlines: [AtomicU64; 2],
}

impl Multicast {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            members: Mutex::default(),
            joined: Rcu::new(domain, HashMap::new()),
            hosts: [const { Mutex::new(Host::new()) }; 2],
            deadlines: [const { AtomicU64::new(NEVER) }; 2],
        }
    }

    /// Whether sockets have joined the group on the interface, and want packets of this source;
    /// with `None`, of any.
    pub(crate) fn is_joined(
        &self,
        guard: &Guard<'_>,
        place: Place,
        source: Option<IpAddr>,
    ) -> bool {
        let joined = self.joined.read(guard).get(&place);
        joined.is_some_and(|filter| source.is_none_or(|source| filter.allows(source)))
    }

    fn host(&self, version: IpVersion) -> (&Mutex<Host>, &AtomicU64) {
        let [host4, host6] = &self.hosts;
        let [deadline4, deadline6] = &self.deadlines;
        match version {
            IpVersion::V4 => (host4, deadline4),
            IpVersion::V6 => (host6, deadline6),
        }
    }
}

/// A group of an interface, as ip-maddress(8) shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// The interface.
    pub ifindex: u32,
    /// The group.
    pub group: IpAddr,
    /// Sockets that have joined it; 0 where the interface itself has.
    pub users: u32,
    /// Whether `sources` are those wanted, or those not wanted.
    pub mode: SourceMode,
    /// Sources, in order.
    pub sources: Vec<IpAddr>,
}

/// Changes. To be called without a guard.
impl Stack {
    /// The groups of every interface: those that each host is in, and those that sockets have
    /// joined.
    pub fn multicast_groups(&self) -> Vec<GroupInfo> {
        let members = lock(&self.multicast.members).clone();
        let mut groups = Vec::new();
        for interface in self.interfaces() {
            groups.extend(interface.every_host_groups().map(|group| GroupInfo {
                ifindex: interface.index,
                group,
                users: 1,
                mode: SourceMode::Exclude,
                sources: Vec::new(),
            }));
            let joined = members
                .iter()
                .filter(|((ifindex, _), _)| *ifindex == interface.index);
            groups.extend(joined.map(|((ifindex, group), members)| {
                let filter = members.filter();
                GroupInfo {
                    ifindex: *ifindex,
                    group: *group,
                    users: members.count(),
                    mode: filter.mode,
                    sources: filter.sources.into_iter().collect(),
                }
            }));
        }
        groups.sort_by_key(|info| (info.ifindex, info.group));
        groups
    }

    /// A socket wants other packets of a group than before; `None` is none at all.
    pub(crate) fn change_membership(
        &self,
        place: Place,
        old: Option<&SourceFilter>,
        new: Option<&SourceFilter>,
    ) {
        let mut all = lock(&self.multicast.members);
        let members = all.entry(place).or_default();
        let before = members.filter();
        if let Some(old) = old {
            members.remove(old);
        }
        if let Some(new) = new {
            members.add(new);
        }
        let after = members.filter();
        if members.count() == 0 {
            all.remove(&place);
        }
        if before == after {
            return;
        }
        self.multicast.joined.update(|joined| {
            let mut joined = joined.clone();
            match after.is_nothing() {
                true => joined.remove(&place),
                false => joined.insert(place, after.clone()),
            };
            joined
        });
        let (ifindex, group) = place;
        self.with_context(Instant::ZERO, |cx| {
            let settings = Settings::of(cx.view, version_of(group), ifindex);
            let (host, deadline) = self.multicast.host(version_of(group));
            lock(host).changed(&settings, place, &before, &after);
            deadline.store(0, Ordering::Release);
            wake(cx, ifindex);
        });
    }

    /// An interface has come up: routers behind it have not heard of its groups.
    pub(crate) fn announce_groups(&self, ifindex: u32) {
        let all = lock(&self.multicast.members);
        self.with_context(Instant::ZERO, |cx| {
            let here = all.iter().filter(|((index, _), _)| *index == ifindex);
            for ((_, group), members) in here {
                let settings = Settings::of(cx.view, version_of(*group), ifindex);
                let (host, deadline) = self.multicast.host(version_of(*group));
                let nothing = SourceFilter::NOTHING;
                lock(host).changed(&settings, (ifindex, *group), &nothing, &members.filter());
                deadline.store(0, Ordering::Release);
            }
            wake(cx, ifindex);
        });
    }

    /// An interface has gone down, or away: nobody is to be told anything there.
    pub(crate) fn hush_groups(&self, ifindex: u32) {
        for host in &self.multicast.hosts {
            lock(host).hush(ifindex);
        }
    }
}

/// Sends the reports that are due. Returns when the next are.
pub(crate) fn expire(cx: &mut Context<'_>) -> Option<Instant> {
    let deadlines = [expire_family::<V4>(cx), expire_family::<V6>(cx)];
    deadlines.into_iter().flatten().min()
}

fn expire_family<F: Family>(cx: &mut Context<'_>) -> Option<Instant> {
    let (host, deadline) = cx.stack.multicast.host(F::VERSION);
    let next = deadline.load(Ordering::Acquire);
    if next > cx.now.as_nanos() {
        return (next != NEVER).then_some(Instant::from_nanos(next));
    }
    let mut messages = Vec::new();
    let next = {
        let mut host = lock(host);
        // Before the look-around: what changes afterwards sets it anew.
        deadline.store(NEVER, Ordering::Release);
        let view = cx.view;
        let settings = |ifindex| Settings::of(view, F::VERSION, ifindex);
        host.due(cx.now, &mut cx.core.random, settings, &mut messages);
        host.deadline()
    };
    if let Some(next) = next {
        deadline.fetch_min(next.as_nanos(), Ordering::AcqRel);
    }
    for (ifindex, message) in messages {
        report::send::<F>(cx, ifindex, &message);
    }
    next
}

/// A router asks, on an interface.
fn asked<F: Family>(cx: &mut Context<'_>, ifindex: u32, query: &Query) {
    let settings = Settings::of(cx.view, F::VERSION, ifindex);
    let (host, deadline) = cx.stack.multicast.host(F::VERSION);
    let mut host = lock(host);
    host.asked(cx.now, &mut cx.core.random, &settings, ifindex, query);
    if let Some(next) = host.deadline() {
        deadline.fetch_min(next.as_nanos(), Ordering::AcqRel);
    }
}

/// Another host reports a group, on an interface.
fn heard<F: Family>(cx: &Context<'_>, ifindex: u32, group: IpAddr) {
    let (host, _) = cx.stack.multicast.host(F::VERSION);
    lock(host).heard((ifindex, group));
}

fn version_of(group: IpAddr) -> IpVersion {
    match group {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    }
}

/// Whoever drives the interface's device polls the stack next.
fn wake(cx: &Context<'_>, ifindex: u32) {
    if let Some(interface) = cx.view.interfaces.get(ifindex) {
        interface.wake();
    }
}
