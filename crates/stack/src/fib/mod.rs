//! Routing: routes as people manage them, and as packets find them.
//!
//! The two are kept apart. People add and delete routes and rules in a tree of prefixes
//! (`rib`, `table`, `rules`), serialised by a lock. Packets see what comes of it: for each table a
//! `trie` of the best routes whose entries are updated in place, a table of next hops
//! (`next_hop`), and a `snapshot` of rules and own prefixes. They take no lock: a [`View`] holds a
//! guard, once for a whole batch.
//!
//! # Generations
//! Who keeps the outcome of a lookup longer than a guard keeps a generation with it, read *before*
//! the lookup, and looks again when it differs. A change is counted after it has been published and
//! before its call returns. [`Fib::generation`] counts every change.
//! [`Fib::input_generation`] counts those that may change where packets end that end here; a feed
//! of routes to elsewhere does not touch it. It is the [`Fib::generation`] of the last such change,
//! so that one number stamps what was kept, whichever of the two it depends on.
//!
//! # Memory
//! A table takes nothing before its first route and then 5 KiB, a family's next hops 16 KiB (IPv4)
//! or 32 KiB (IPv6) for each 256 of them. A table grows by pages of 1.25 KiB, up to half as many
//! again in reserve: `forebay bench fib` counts 3 MB for 10,000 routes and 93 MB for a million in
//! IPv4, 3 MB for 10,000 and 58 MB for 200,000 in IPv6, with prefixes at random, which share as
//! little as can be. The management side takes some 60 bytes a route more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_sync::cache_line::CacheLine;
use forebay_sync::rcu::{Domain, Guard, Rcu};

mod address;
mod explain;
mod names;
mod next_hop;
mod own;
mod prefix;
mod prefix_map;
mod rib;
mod route;
mod rules;
mod snapshot;
mod table;
mod trie;
mod view;

pub use address::Address;
pub use explain::Explanation;
pub use names::UnknownName;
pub(crate) use next_hop::FoundNextHops;
pub use next_hop::{Adjacency, NextHop, NextHopIndex};
pub use prefix::{Prefix, PrefixError};
pub use rib::RouteError;
pub use route::{Protocol, Route, RouteKind, RouteMatch, Scope, TableId};
pub use rules::{Rule, RuleAction, RuleError, RuleMatch};
pub(crate) use view::Strangers;
pub use view::{
    BATCH, Found, LOOPBACK_IFINDEX, LookupError, Query, Resolved, ReversePath, RpFilter, Transit,
    View,
};

use next_hop::NextHops;
use rib::{Conflict, Rib};
use snapshot::Snapshot;

#[cfg(test)]
mod tests;

/// The routing of one family in one stack, shared between all cores.
///
/// A change is in force when its call returns: every view whose guard is taken afterwards sees it.
/// The calling thread must hold no guard of the same domain, since a change may wait for guards
/// to be let go.
///
/// ```
/// use forebay_stack::fib::{Fib, Prefix, Query, Route, RouteKind, TableId, LOOPBACK_IFINDEX};
/// use forebay_sync::rcu::Domain;
/// use std::net::Ipv4Addr;
///
/// let domain = Domain::new();
/// let fib = Fib::<Ipv4Addr>::new(&domain);
/// let net = "10.0.0.0/8".parse()?;
/// fib.add(TableId::MAIN, Route::new(RouteKind::Unicast, net).dev(2))?;
/// let router = Route::new(RouteKind::Unicast, Prefix::DEFAULT).via(Ipv4Addr::new(10, 0, 0, 1));
/// fib.add(TableId::MAIN, router)?;
///
/// let reader = domain.reader();
/// let guard = reader.guard();
/// let found = fib.view(&guard).lookup(&Query {
///     dst: Ipv4Addr::new(192, 0, 2, 1),
///     src: Ipv4Addr::UNSPECIFIED,
///     iif: LOOPBACK_IFINDEX,
///     own: None,
/// })?;
/// assert_eq!(found.next_hop.gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
/// assert_eq!(found.next_hop.oif, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fib<A: Address> {
    rib: Mutex<Rib<A>>,
    snapshot: Rcu<Snapshot<A>>,
    next_hops: Arc<NextHops<A>>,
    // Apart, since cores read the one for each packet while a routing feed writes the other.
    generation: CacheLine<AtomicU64>,
    input_generation: CacheLine<AtomicU64>,
}

impl<A: Address> Fib<A> {
    /// No routes yet, and the default rules: in IPv4 tables local (at priority 0), main (32766)
    /// and default (32767), in IPv6 local and main.
    pub fn new(domain: &Domain) -> Self {
        let mut rib = Rib::new(domain);
        Fib {
            snapshot: Rcu::new(domain, rib.snapshot()),
            next_hops: rib.next_hops(),
            rib: Mutex::new(rib),
            generation: CacheLine(AtomicU64::new(0)),
            input_generation: CacheLine(AtomicU64::new(0)),
        }
    }

    /// The packet side.
    pub fn view<'g>(&'g self, guard: &'g Guard<'_>) -> View<'g, A> {
        View::new(self.snapshot.read(guard), &self.next_hops, guard)
    }

    /// Adds a route; `ip route add`.
    ///
    /// # Errors
    /// If there is one to the prefix with the same metric, or the route makes no sense.
    pub fn add(&self, table: TableId, route: Route<A>) -> Result<(), RouteError> {
        self.change(|rib| rib.add(table, route, Conflict::Refuse))
    }

    /// Adds a route behind those to the same prefix with the same metric: for the prefixes of
    /// addresses, which several interfaces may share; `ip route append`.
    ///
    /// # Errors
    /// If the very same route is there, or it makes no sense.
    pub fn append(&self, table: TableId, route: Route<A>) -> Result<(), RouteError> {
        self.change(|rib| rib.add(table, route, Conflict::Append))
    }

    /// Puts a route in the place of the one to the same prefix with the same metric, if there is
    /// one; `ip route replace`. No packet finds neither.
    ///
    /// # Errors
    /// If the route makes no sense.
    pub fn replace(&self, table: TableId, route: Route<A>) -> Result<(), RouteError> {
        self.change(|rib| rib.add(table, route, Conflict::Replace))
    }

    /// Deletes the first route that matches, and returns it.
    ///
    /// # Errors
    /// If none does.
    pub fn delete(&self, table: TableId, what: &RouteMatch<A>) -> Result<Route<A>, RouteError> {
        self.change(|rib| rib.delete(table, what))
    }

    /// Deletes the routes through an interface that goes down, in all tables; returns how many. Its
    /// addresses stay local: the host answers at them, whatever interface a packet comes by.
    pub fn flush_link(&self, ifindex: u32) -> usize {
        self.change(|rib| rib.flush_link(ifindex))
    }

    /// Deletes all routes through an interface, in all tables, when it goes away; returns how many.
    pub fn flush_oif(&self, ifindex: u32) -> usize {
        self.change(|rib| rib.flush_oif(ifindex))
    }

    /// When an address goes: deletes the routes that prefer it as their source, in all tables, or
    /// in IPv6 only the preference; returns how many.
    pub fn flush_pref_src(&self, addr: A) -> usize {
        self.change(|rib| rib.flush_pref_src(addr))
    }

    /// Adds a rule behind those of the same priority.
    ///
    /// # Errors
    /// If the same rule is there.
    pub fn add_rule(&self, rule: Rule<A>) -> Result<(), RuleError> {
        self.change(|rib| rib.add_rule(rule))
    }

    /// Deletes the first rule that matches.
    ///
    /// # Errors
    /// If none does.
    pub fn delete_rule(&self, what: &RuleMatch<A>) -> Result<(), RuleError> {
        self.change(|rib| rib.delete_rule(what))
    }

    /// The tables that have ever had a route.
    pub fn tables(&self) -> Vec<TableId> {
        self.ask(Rib::tables)
    }

    /// The routes of a table, by prefix and then by metric.
    pub fn routes(&self, table: TableId) -> Vec<Route<A>> {
        self.ask(|rib| rib.routes(table))
    }

    /// The routes to exactly this prefix, best first.
    pub fn routes_to(&self, table: TableId, prefix: &Prefix<A>) -> Vec<Route<A>> {
        self.ask(|rib| rib.routes_to(table, prefix))
    }

    /// The rules in the order in which they are tried.
    pub fn rules(&self) -> Vec<Rule<A>> {
        self.ask(|rib| rib.rules().list().to_vec())
    }

    /// The priority of a rule whose author names none: before all but the first.
    pub fn unspecified_rule_priority(&self) -> u32 {
        self.ask(|rib| rib.rules().unspecified_priority())
    }

    /// Bytes of all that packets look at.
    pub fn memory(&self) -> usize {
        self.ask(Rib::memory)
    }

    /// Counts all changes; see [Generations](self#generations).
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Counts the changes that input routing depends on; see [Generations](self#generations).
    #[inline]
    pub fn input_generation(&self) -> u64 {
        self.input_generation.load(Ordering::Acquire)
    }

    /// Counts a change outside the tables that input routing depends on: a link's state, a knob.
    pub fn bump_input_generation(&self) {
        let change = self.generation.fetch_add(1, Ordering::Release) + 1;
        self.input_generation.fetch_max(change, Ordering::Release);
    }

    fn ask<R>(&self, question: impl FnOnce(&Rib<A>) -> R) -> R {
        question(&self.rib.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Rib<A>) -> R) -> R {
        let mut rib = self.rib.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut rib);
        let changes = rib.take_changes();
        if changes.snapshot {
            self.snapshot.publish(rib.snapshot());
        }
        if changes.input {
            self.bump_input_generation();
        } else if changes.any {
            self.generation.fetch_add(1, Ordering::Release);
        }
        result
    }
}
