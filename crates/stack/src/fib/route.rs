//! Routes as people write them.

use super::address::Address;
use super::prefix::Prefix;

/// A route in a routing table.
///
/// A table holds any number of routes to a prefix; packets take the one with the lowest metric,
/// and among equal metrics the one that has been there longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route<A> {
    /// The destinations.
    pub prefix: Prefix<A>,
    /// Lower is better.
    pub metric: u32,
    /// What happens to packets.
    pub kind: RouteKind,
    /// The router to send to; it must itself be on a link that a route with scope
    /// [`Link`](Scope::Link) names, unless `onlink` is set.
    pub gateway: Option<A>,
    /// Index of the outgoing interface; none is 0. May be left out if the gateway's route says it.
    pub oif: Option<u32>,
    /// Source address for packets of our own; one of our addresses.
    pub pref_src: Option<A>,
    /// How far the destination is away.
    pub scope: Scope,
    /// Who made the route.
    pub protocol: Protocol,
    /// MTU of the path in bytes, if it is lower than the interface's.
    pub mtu: Option<u32>,
    /// The gateway is on the link of `oif` even if no route says so.
    pub onlink: bool,
}

impl<A: Address> Route<A> {
    /// A route of this kind with what iproute2 fills in where nothing is said: the family's usual
    /// metric, protocol boot, and the scope that belongs to the kind.
    pub fn new(kind: RouteKind, prefix: Prefix<A>) -> Self {
        let scope = match kind {
            RouteKind::Local => Scope::Host,
            RouteKind::Unicast | RouteKind::Broadcast | RouteKind::Multicast => Scope::Link,
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => Scope::Universe,
        };
        Route {
            prefix,
            metric: A::USER_METRIC,
            kind,
            gateway: None,
            oif: None,
            pref_src: None,
            scope,
            protocol: Protocol::BOOT,
            mtu: None,
            onlink: false,
        }
    }

    /// The same route through a router, which makes its scope universe.
    pub fn via(self, gateway: A) -> Self {
        Route {
            gateway: Some(gateway),
            scope: Scope::Universe,
            ..self
        }
    }

    /// The same route out of an interface.
    pub fn dev(self, ifindex: u32) -> Self {
        Route {
            oif: Some(ifindex),
            ..self
        }
    }
}

impl<A: Address> Route<A> {
    /// Whether `addr` is this host's by this route.
    pub(super) fn makes_local(&self, addr: A) -> bool {
        self.kind == RouteKind::Local && self.prefix.contains(addr)
    }
}

/// Which route to delete: the first that agrees in every field given.
#[derive(Debug, Clone, Copy)]
pub struct RouteMatch<A> {
    /// The destinations, exactly.
    pub prefix: Prefix<A>,
    /// See [`Route::metric`].
    pub metric: Option<u32>,
    /// See [`Route::kind`].
    pub kind: Option<RouteKind>,
    /// See [`Route::gateway`].
    pub gateway: Option<A>,
    /// See [`Route::oif`].
    pub oif: Option<u32>,
    /// See [`Route::pref_src`].
    pub pref_src: Option<A>,
    /// See [`Route::scope`].
    pub scope: Option<Scope>,
    /// See [`Route::protocol`].
    pub protocol: Option<Protocol>,
}

impl<A: Address> RouteMatch<A> {
    /// Matches every route to exactly this prefix.
    pub fn prefix(prefix: Prefix<A>) -> Self {
        RouteMatch {
            prefix,
            metric: None,
            kind: None,
            gateway: None,
            oif: None,
            pref_src: None,
            scope: None,
            protocol: None,
        }
    }

    /// Whether `route` agrees in every field given.
    pub fn matches(&self, route: &Route<A>) -> bool {
        self.prefix == route.prefix
            && self.metric.is_none_or(|metric| metric == route.metric)
            && self.kind.is_none_or(|kind| kind == route.kind)
            && (self.gateway.is_none() || self.gateway == route.gateway)
            && (self.oif.is_none() || self.oif == route.oif)
            && (self.pref_src.is_none() || self.pref_src == route.pref_src)
            && self.scope.is_none_or(|scope| scope == route.scope)
            && self
                .protocol
                .is_none_or(|protocol| protocol == route.protocol)
    }
}

/// What a route does with a packet; Linux's `rtm_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sent on.
    Unicast,
    /// Delivered here.
    Local,
    /// Delivered here if it came as a link broadcast, sent as one otherwise.
    Broadcast,
    /// Sent to a group.
    Multicast,
    /// Dropped in silence (EINVAL).
    Blackhole,
    /// Dropped; the sender is told that the host can't be reached (EHOSTUNREACH).
    Unreachable,
    /// Dropped; the sender is told that it is forbidden (EACCES).
    Prohibit,
}

impl RouteKind {
    /// Whether packets to such a destination may end here.
    pub fn is_own(self) -> bool {
        matches!(self, RouteKind::Local | RouteKind::Broadcast)
    }

    /// Whether packets are dropped, so that neither gateway nor interface makes sense.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit
        )
    }
}

/// How far away destinations are; Linux's `rtm_scope`, in the order of growing nearness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Anywhere, behind a gateway (0).
    Universe,
    /// In this site (200).
    Site,
    /// On a link of ours (253).
    Link,
    /// In this host (254).
    Host,
}

/// Who made a route; the numbers of Linux's `rtm_protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// The stack itself, for its addresses.
    pub const KERNEL: Self = Protocol(2);
    /// Somebody, without saying who: a command at start-up.
    pub const BOOT: Self = Protocol(3);
    /// The administrator.
    pub const STATIC: Self = Protocol(4);
}

/// A routing table's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// Our own addresses.
    pub const LOCAL: Self = TableId(255);
    /// Where routes go if nobody says otherwise.
    pub const MAIN: Self = TableId(254);
    /// The last resort.
    pub const DEFAULT: Self = TableId(253);
}
