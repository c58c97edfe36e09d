//! The management side: tables, rules and next hops under one lock, with Linux's semantics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forebay_sync::rcu::Domain;

use super::address::Address;
use super::next_hop::{Adjacency, NextHop, NextHopIndex, NextHopWriter, NextHops};
use super::own::OwnPrefixes;
use super::prefix::Prefix;
use super::route::{Route, RouteKind, RouteMatch, Scope, TableId};
use super::rules::{Rule, RuleAction, RuleError, RuleMatch, Rules};
use super::snapshot::Snapshot;
use super::table::{Entry, Table};

#[cfg(test)]
mod tests;

/// Why a route was not added or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is a route to this prefix with this metric (EEXIST).
    #[error("File exists: there is a route to this prefix with this metric")]
    Exists,
    /// No route matches (ESRCH).
    #[error("No such process: no route matches")]
    NotFound,
    /// No outgoing interface is given, and none follows from the gateway (ENODEV).
    #[error("No such device: the route needs an outgoing interface")]
    NoDevice,
    /// Gateway or interface with a kind of route that leads nowhere, or a gateway with one that
    /// ends here or on the link (EINVAL).
    #[error("Invalid argument: such a route has no gateway or interface")]
    KindWithGateway,
    /// A gateway with a scope that says that the destination is on the link (EINVAL).
    #[error("Invalid argument: a route through a gateway can't have scope link or host")]
    InvalidScope,
    /// The gateway is one of our own addresses, or none that a neighbour may have (EINVAL).
    #[error("Invalid argument: Nexthop has invalid gateway")]
    InvalidGateway,
    /// No route says on which link the gateway is (ENETUNREACH).
    #[error("Network is unreachable: no route to the gateway's link")]
    GatewayUnreachable,
    /// The preferred source is no address of ours (EINVAL).
    #[error("Invalid argument: the preferred source is no address of this stack")]
    InvalidPrefSrc,
    /// An MTU that no IP packet fits into (EINVAL).
    #[error("Invalid argument: an MTU below 68 carries no IP")]
    InvalidMtu,
}

/// Smallest MTU of a path, in bytes (RFC 791 section 3.2).
const MIN_MTU: u32 = 68;

/// What to do about a route to the same prefix with the same metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Refuse the new one.
    Refuse,
    /// Put the new one behind it.
    Append,
    /// Put the new one in its place.
    Replace,
}

/// What changes have been made since they were last published.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changes {
    /// Anything at all.
    pub(super) any: bool,
    /// Something that may change where a packet ends that ends here.
    pub(super) input: bool,
    /// Something that packets find through a snapshot.
    pub(super) snapshot: bool,
}

/// What becomes of the routes to a next hop.
enum Fate<A> {
    Stay,
    Go,
    Become(NextHop<A>),
}

pub(super) struct Rib<A: Address> {
    domain: Domain,
    tables: BTreeMap<TableId, Table<A>>,
    next_hops: NextHopWriter<A>,
    rules: Rules<A>,
    /// How many routes make each prefix our own.
    own: BTreeMap<Prefix<A>, usize>,
    published_own: Arc<OwnPrefixes<A>>,
    own_changed: bool,
    changes: Changes,
}

impl<A: Address> Rib<A> {
    pub(super) fn new(domain: &Domain) -> Self {
        Rib {
            domain: domain.clone(),
            tables: BTreeMap::new(),
            next_hops: NextHopWriter::new(domain),
            rules: Rules::new(),
            own: BTreeMap::new(),
            published_own: Arc::new(OwnPrefixes::new(std::iter::empty())),
            own_changed: false,
            changes: Changes::default(),
        }
    }

    // What there is.

    pub(super) fn tables(&self) -> Vec<TableId> {
        self.tables.keys().copied().collect()
    }

    pub(super) fn routes(&self, id: TableId) -> Vec<Route<A>> {
        let entries = self.tables.get(&id).into_iter().flat_map(Table::iter);
        entries
            .filter_map(|(prefix, entry)| self.route(prefix, entry))
            .collect()
    }

    pub(super) fn routes_to(&self, id: TableId, prefix: &Prefix<A>) -> Vec<Route<A>> {
        let entries = self.entries(id, prefix).into_iter();
        entries
            .filter_map(|entry| self.route(*prefix, &entry))
            .collect()
    }

    pub(super) fn rules(&self) -> &Rules<A> {
        &self.rules
    }

    pub(super) fn next_hops(&self) -> Arc<NextHops<A>> {
        self.next_hops.published()
    }

    pub(super) fn memory(&self) -> usize {
        let tables: usize = self.tables.values().map(Table::memory).sum();
        tables + self.next_hops.memory() + self.published_own.memory()
    }

    // Changes.

    pub(super) fn add(
        &mut self,
        id: TableId,
        route: Route<A>,
        conflict: Conflict,
    ) -> Result<(), RouteError> {
        let route = self.resolve(id, route)?;
        let prefix = route.prefix;
        let mut entries = self.entries(id, &prefix);
        let same_metric = entries.iter().position(|old| old.metric == route.metric);
        let is_refused = match conflict {
            Conflict::Refuse => same_metric.is_some(),
            Conflict::Append => self.routes_to(id, &prefix).contains(&route),
            Conflict::Replace => false,
        };
        if is_refused {
            return Err(RouteError::Exists);
        }
        let entry = Entry {
            metric: route.metric,
            hop: self.next_hops.acquire(next_hop(&route)),
            protocol: route.protocol,
            onlink: route.onlink,
        };
        let removed = match same_metric {
            Some(at) if conflict == Conflict::Replace => {
                Some(std::mem::replace(&mut entries[at], entry))
            }
            _ => {
                let place = entries.partition_point(|old| old.metric <= entry.metric);
                entries.insert(place, entry);
                None
            }
        };
        self.set_entries(id, prefix, &entries, &[entry], removed.as_slice());
        Ok(())
    }

    pub(super) fn delete(
        &mut self,
        id: TableId,
        what: &RouteMatch<A>,
    ) -> Result<Route<A>, RouteError> {
        let routes = self.routes_to(id, &what.prefix);
        let found = routes.iter().position(|route| what.matches(route));
        let at = found.ok_or(RouteError::NotFound)?;
        let mut entries = self.entries(id, &what.prefix);
        let removed = entries.remove(at);
        self.set_entries(id, what.prefix, &entries, &[], &[removed]);
        Ok(routes[at])
    }

    /// Takes out all routes through an interface; returns how many.
    pub(super) fn flush_oif(&mut self, ifindex: u32) -> usize {
        self.decide_fates(|hop| {
            if hop.oif == ifindex && ifindex != 0 {
                Fate::Go
            } else {
                Fate::Stay
            }
        })
    }

    /// Takes out all routes through an interface but those to this host itself; returns how many.
    pub(super) fn flush_link(&mut self, ifindex: u32) -> usize {
        self.decide_fates(|hop| {
            if hop.oif == ifindex && ifindex != 0 && hop.kind != RouteKind::Local {
                Fate::Go
            } else {
                Fate::Stay
            }
        })
    }

    /// Takes out all routes that prefer a source address that has gone, or in IPv6 only their
    /// preference; returns how many.
    pub(super) fn flush_pref_src(&mut self, addr: A) -> usize {
        self.decide_fates(|hop| {
            if hop.pref_src != Some(addr) {
                Fate::Stay
            } else if A::ROUTE_GOES_WITH_PREF_SRC {
                Fate::Go
            } else {
                Fate::Become(NextHop {
                    pref_src: None,
                    ..*hop
                })
            }
        })
    }

    pub(super) fn add_rule(&mut self, rule: Rule<A>) -> Result<(), RuleError> {
        self.rules.add(rule)?;
        self.rules_changed();
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, what: &RuleMatch<A>) -> Result<(), RuleError> {
        self.rules.delete(what)?;
        self.rules_changed();
        Ok(())
    }

    /// What is to be published, and a clean slate.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn snapshot(&mut self) -> Snapshot<A> {
        if std::mem::take(&mut self.own_changed) {
            self.published_own = Arc::new(OwnPrefixes::new(self.own.keys()));
        }
        // Table local may hold more than our own destinations, if somebody put it there.
        let local = self.tables.get(&TableId::LOCAL);
        let local_is_own = local.is_none_or(|local| local.other_routes == 0);
        let trie = |id: TableId| self.tables.get(&id).map(Table::published);
        Snapshot::new(
            &self.rules,
            trie,
            Arc::clone(&self.published_own),
            local_is_own,
        )
    }

    fn rules_changed(&mut self) {
        self.changes = Changes {
            any: true,
            input: true,
            snapshot: true,
        };
    }

    /// Applies a fate to each route by its next hop; returns how many didn't stay.
    fn decide_fates(&mut self, fate: impl Fn(&NextHop<A>) -> Fate<A>) -> usize {
        let fates = self
            .next_hops
            .in_use()
            .map(|(index, hop)| (index, fate(hop)));
        let fates: HashMap<NextHopIndex, Fate<A>> = fates
            .filter(|(_, fate)| !matches!(fate, Fate::Stay))
            .collect();
        let mut concerned = Vec::new();
        for (id, table) in &self.tables {
            let entries = table.iter();
            let found = entries.filter(|(_, entry)| fates.contains_key(&entry.hop));
            concerned.extend(found.map(|(prefix, _)| (*id, prefix)));
        }
        let count = concerned.len();
        concerned.dedup();
        for (id, prefix) in concerned {
            self.apply_fates(id, prefix, &fates);
        }
        count
    }

    fn apply_fates(
        &mut self,
        id: TableId,
        prefix: Prefix<A>,
        fates: &HashMap<NextHopIndex, Fate<A>>,
    ) {
        let (mut entries, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.entries(id, &prefix) {
            match fates.get(&entry.hop) {
                None | Some(Fate::Stay) => entries.push(entry),
                Some(Fate::Go) => removed.push(entry),
                Some(Fate::Become(hop)) => {
                    let hop = self.next_hops.acquire(*hop);
                    let changed = Entry { hop, ..entry };
                    removed.push(entry);
                    added.push(changed);
                    entries.push(changed);
                }
            }
        }
        self.set_entries(id, prefix, &entries, &added, &removed);
    }

    fn entries(&self, id: TableId, prefix: &Prefix<A>) -> Vec<Entry> {
        let table = self.tables.get(&id);
        table.map_or_else(Vec::new, |table| table.entries(prefix))
    }

    /// The one place where routes change: shows them to packets, then counts what was added and
    /// removed, and lets go of next hops that packets no longer see.
    fn set_entries(
        &mut self,
        id: TableId,
        prefix: Prefix<A>,
        entries: &[Entry],
        added: &[Entry],
        removed: &[Entry],
    ) {
        let table = self.tables.entry(id).or_insert_with(|| {
            self.changes.snapshot = true;
            Table::new(&self.domain)
        });
        table.set_entries(prefix, entries);
        self.changes.any = true;
        self.changes.input |= self.may_decide_input(id);
        for entry in added {
            self.count(id, prefix, entry, 1);
        }
        for entry in removed {
            self.count(id, prefix, entry, -1);
            self.next_hops.release(entry.hop);
        }
    }

    fn count(&mut self, id: TableId, prefix: Prefix<A>, entry: &Entry, change: isize) {
        let Some(hop) = self.next_hops.get(entry.hop) else {
            return;
        };
        let kind = hop.kind;
        let Some(table) = self.tables.get_mut(&id) else {
            return;
        };
        if !kind.is_own() {
            let had_others = table.other_routes > 0;
            table.other_routes = table.other_routes.saturating_add_signed(change);
            let has_others = table.other_routes > 0;
            self.changes.snapshot |= id == TableId::LOCAL && had_others != has_others;
            self.changes.input |= kind == RouteKind::Multicast;
            return;
        }
        table.own_routes = table.own_routes.saturating_add_signed(change);
        self.changes.input = true;
        let users = self.own.entry(prefix).or_insert(0);
        let was_own = *users > 0;
        *users = users.saturating_add_signed(change);
        let is_own = *users > 0;
        if !is_own {
            self.own.remove(&prefix);
        }
        if was_own != is_own {
            self.own_changed = true;
            self.changes.snapshot = true;
        }
    }

    /// Whether a route in this table may change where a packet ends that ends here: whether the
    /// table is looked at no later than the last one that has destinations of ours. With the
    /// default rules table main is not, so that a routing feed leaves sockets' routes alone.
    fn may_decide_input(&self, id: TableId) -> bool {
        let rules = self.rules.list();
        let has_own = |rule: &Rule<A>| {
            let RuleAction::Lookup(id) = rule.action else {
                return false;
            };
            let table = self.tables.get(&id);
            id == TableId::LOCAL || table.is_some_and(|table| table.own_routes > 0)
        };
        let deciding = rules.iter().rposition(has_own).map_or(0, |last| last + 1);
        let mut deciding = rules.iter().take(deciding);
        deciding.any(|rule| rule.action == RuleAction::Lookup(id))
    }

    fn route(&self, prefix: Prefix<A>, entry: &Entry) -> Option<Route<A>> {
        let hop = self.next_hops.get(entry.hop)?;
        Some(Route {
            prefix,
            metric: entry.metric,
            kind: hop.kind,
            gateway: hop.gateway,
            oif: (hop.oif != 0).then_some(hop.oif),
            pref_src: hop.pref_src,
            scope: hop.scope,
            protocol: entry.protocol,
            mtu: hop.mtu,
            onlink: entry.onlink,
        })
    }

    // Whether a route makes sense (Linux: `fib_create_info`, `fib_check_nh`).

    /// The route with its outgoing interface, if it is a valid one.
    fn resolve(&self, id: TableId, route: Route<A>) -> Result<Route<A>, RouteError> {
        // Linux, too, takes 0 as not given.
        let route = Route {
            mtu: route.mtu.filter(|mtu| *mtu != 0),
            ..route
        };
        if route.mtu.is_some_and(|mtu| mtu < MIN_MTU) {
            return Err(RouteError::InvalidMtu);
        }
        let is_somewhere = route.gateway.is_some() || route.oif.is_some();
        if route.kind.is_refusal() {
            return match is_somewhere {
                true => Err(RouteError::KindWithGateway),
                false => Ok(route),
            };
        }
        if route.oif == Some(0) {
            return Err(RouteError::NoDevice);
        }
        let oif = match route.gateway {
            None => route.oif.ok_or(RouteError::NoDevice)?,
            Some(_) if route.kind != RouteKind::Unicast => {
                return Err(RouteError::KindWithGateway);
            }
            Some(_) if route.scope >= Scope::Link => return Err(RouteError::InvalidScope),
            Some(gateway) => self.gateway_oif(id, &route, gateway)?,
        };
        // The local route of an address may prefer the address that it is about to bring.
        let is_ours = |src| self.is_local(id, src) || route.makes_local(src);
        if route.pref_src.is_some_and(|src| !is_ours(src)) {
            return Err(RouteError::InvalidPrefSrc);
        }
        Ok(Route {
            oif: Some(oif),
            ..route
        })
    }

    /// The interface on whose link the gateway is.
    fn gateway_oif(&self, id: TableId, route: &Route<A>, gateway: A) -> Result<u32, RouteError> {
        if !gateway.is_possible_gateway() || self.own.contains_key(&Prefix::host(gateway)) {
            return Err(RouteError::InvalidGateway);
        }
        if route.onlink || gateway.is_on_link_by_definition() {
            return route.oif.ok_or(RouteError::NoDevice);
        }
        let consulted = self.rules.list().iter().filter_map(|rule| {
            let is_for_all = rule.from.is_none() && rule.iif.is_none();
            match rule.action {
                RuleAction::Lookup(id)
                    if is_for_all && rule.to.is_none_or(|to| to.contains(gateway)) =>
                {
                    Some(id)
                }
                _ => None,
            }
        });
        // Linux asks the route's own table first, then the rules as for a packet of our own.
        let tables = std::iter::once(id).chain(consulted);
        let link = tables
            .filter_map(|id| self.tables.get(&id))
            .find_map(|table| self.link_route(table, gateway, route.oif))
            .ok_or(RouteError::GatewayUnreachable)?;
        if link.kind != RouteKind::Unicast {
            return Err(RouteError::InvalidGateway);
        }
        Ok(link.oif)
    }

    /// The next hop of the best route that reaches `addr` without a gateway.
    fn link_route(&self, table: &Table<A>, addr: A, oif: Option<u32>) -> Option<&NextHop<A>> {
        let hops = table
            .covering(addr)
            .filter_map(|entry| self.next_hops.get(entry.hop));
        let is_on_link =
            |hop: &NextHop<A>| hop.gateway.is_none() && !(A::HAS_SCOPES && hop.scope < Scope::Link);
        hops.into_iter()
            .find(|hop| is_on_link(hop) && oif.is_none_or(|oif| oif == hop.oif))
    }

    fn is_local(&self, id: TableId, addr: A) -> bool {
        let tables = [TableId::LOCAL, id].into_iter();
        let mut best = tables
            .filter_map(|id| self.tables.get(&id)?.covering(addr).next())
            .filter_map(|entry| self.next_hops.get(entry.hop));
        best.any(|hop| hop.kind == RouteKind::Local)
    }
}

fn next_hop<A: Address>(route: &Route<A>) -> NextHop<A> {
    NextHop {
        kind: route.kind,
        scope: route.scope,
        oif: route.oif.unwrap_or(0),
        gateway: route.gateway,
        mtu: route.mtu,
        pref_src: route.pref_src,
        adjacency: Adjacency::default(),
    }
}
