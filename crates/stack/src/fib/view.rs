//! The packet side: lookups under a guard.

use forebay_sync::rcu::Guard;

use super::address::Address;
use super::next_hop::{FoundNextHops, NextHop, NextHopIndex, NextHopReader, NextHops};
use super::own::OwnPrefixes;
use super::route::RouteKind;
use super::rules::Rule;
use super::snapshot::{Policy, Snapshot, Verdict};
use super::trie::TrieReader;

pub use super::trie::BATCH;

/// Interface index of `lo`, by which packets of our own count as having come in.
pub const LOOPBACK_IFINDEX: u32 = 1;

/// What routing depends on.
#[derive(Debug, Clone, Copy)]
pub struct Query<A> {
    /// Destination address.
    pub dst: A,
    /// Source address, unspecified if not chosen yet. Only rules look at it.
    pub src: A,
    /// Index of the incoming interface, [`LOOPBACK_IFINDEX`] for packets of our own. Only rules
    /// look at it.
    pub iif: u32,
    /// What [`View::is_own`] said of `dst` in the same view, if it was asked already.
    pub own: Option<bool>,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy)]
pub struct Resolved<'g, A> {
    /// Names the next hop while the guard lives.
    pub index: NextHopIndex,
    /// The next hop: unicast, local, broadcast or multicast.
    pub next_hop: &'g NextHop<A>,
}

/// Why a packet goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No route, or a rule that says unreachable (ENETUNREACH).
    #[error("Network is unreachable")]
    NoRoute,
    /// A blackhole route or rule (EINVAL): nobody is told.
    #[error("Invalid argument")]
    Blackhole,
    /// An unreachable route (EHOSTUNREACH).
    #[error("No route to host")]
    Unreachable,
    /// A prohibit route or rule (EACCES).
    #[error("Permission denied")]
    Prohibit,
}

/// How strictly a source must be one that its packets could be answered to: Linux's `rp_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpFilter {
    /// Only our own addresses are refused (0).
    Off,
    /// The best route back must leave by the interface that the packet came in by: strict mode of
    /// RFC 3704 section 2.2 (1).
    Strict,
    /// There must be a route back: loose mode of RFC 3704 section 2.4, the default route included
    /// (2).
    Loose,
}

/// What the route back to a source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReversePath {
    /// The packet may pass.
    Valid,
    /// The source is an address of ours, or none that a packet can come from.
    Martian,
    /// No route leads back.
    NoRoute,
    /// The route back leaves by another interface.
    OtherInterface,
}

/// A family's routing as a guard's holder sees it: every change whose call had returned before the
/// guard was taken, and perhaps later ones.
pub struct View<'g, A: Address> {
    guard: &'g Guard<'g>,
    snapshot: &'g Snapshot<A>,
    tables: Tables<'g, A>,
    next_hops: NextHopReader<'g, A>,
}

/// The tables to look in, found once a batch.
enum Tables<'g, A> {
    Default(DefaultTables<'g>),
    Rules(&'g [(Rule<A>, Verdict)]),
}

struct DefaultTables<'g> {
    local: Option<TrieReader<'g>>,
    main: Option<TrieReader<'g>>,
    default: Option<TrieReader<'g>>,
}

impl<'g, A: Address> View<'g, A> {
    pub(super) fn new(
        snapshot: &'g Snapshot<A>,
        next_hops: &'g NextHops<A>,
        guard: &'g Guard<'g>,
    ) -> Self {
        let tables = match &snapshot.policy {
            Policy::Default {
                local,
                main,
                default,
            } => Tables::Default(DefaultTables {
                local: local.as_ref().map(|trie| trie.reader(guard)),
                main: main.as_ref().map(|trie| trie.reader(guard)),
                default: default.as_ref().map(|trie| trie.reader(guard)),
            }),
            Policy::Rules(rules) => Tables::Rules(rules),
        };
        View {
            guard,
            snapshot,
            tables,
            next_hops: next_hops.reader(guard),
        }
    }

    /// Whether a local or broadcast route of any table covers `dst`. If not, the packet can't end
    /// here. (If so, it may still be routed elsewhere, by a longer prefix or a rule.)
    #[inline]
    pub fn is_own(&self, dst: A) -> bool {
        self.snapshot.own.contains(dst)
    }

    /// Tells strangers from others at a glance, for as long as the guard lives.
    #[inline]
    pub(crate) fn strangers(&self) -> Strangers<'g, A> {
        Strangers {
            own: &self.snapshot.own,
        }
    }

    /// Whether a local or broadcast route for `addr` alone may be in some table: false is certain.
    #[inline]
    pub fn may_be_own_host(&self, addr: A) -> bool {
        self.snapshot.own.may_be_host(addr)
    }

    /// Where a packet goes.
    ///
    /// # Errors
    /// Says why it goes nowhere.
    #[inline]
    pub fn lookup(&self, query: &Query<A>) -> Result<Resolved<'g, A>, LookupError> {
        let entry = match &self.tables {
            Tables::Default(tables) => match self.local_entry(tables, query) {
                0 => tables.transit_entry(query.dst),
                entry => entry,
            },
            Tables::Rules(rules) => self.entry_by_rules(rules, query)?,
        };
        self.resolve(NextHopIndex::from_entry(entry))
    }

    /// Looks up transit in bulk, where all of it takes the same tables: with other rules than the
    /// default ones each packet takes its own way, and so it does if table local has more than what
    /// is our own.
    #[inline]
    pub fn transit(&self) -> Option<Transit<'_, 'g, A>> {
        match &self.tables {
            Tables::Default(tables) if self.snapshot.local_is_own => {
                Some(Transit { view: self, tables })
            }
            _ => None,
        }
    }

    /// Whether the destination alone decides where a packet goes: there are no rules but the default
    /// ones.
    #[inline]
    pub(crate) fn goes_by_destination(&self) -> bool {
        matches!(self.tables, Tables::Default(_))
    }

    /// The next hop of an index that a lookup under this guard returned.
    #[inline]
    pub fn next_hop(&self, index: NextHopIndex) -> Option<&'g NextHop<A>> {
        self.next_hops.get(index)
    }

    /// The next hops of all indexes that lookups under this guard have returned so far.
    #[inline]
    pub(crate) fn found_next_hops(&self) -> FoundNextHops<'g, A> {
        self.next_hops.found()
    }

    #[inline]
    fn resolve(&self, found: Option<NextHopIndex>) -> Result<Resolved<'g, A>, LookupError> {
        judge(found.and_then(|index| Some((index, self.next_hop(index)?))))
    }

    /// Whether a packet may have come by `query.iif` from `query.src` (Linux:
    /// `fib_validate_source`).
    ///
    /// `oif` is the interface that the packet is about to leave by, 0 if it ends here: rules see
    /// the answer as coming in by it.
    pub fn reverse_path(&self, query: &Query<A>, oif: u32, mode: RpFilter) -> ReversePath {
        let own = self.is_own(query.src);
        if mode == RpFilter::Off && !own {
            return ReversePath::Valid;
        }
        let back = self.lookup(&Query {
            dst: query.src,
            src: query.dst,
            iif: if oif == 0 { LOOPBACK_IFINDEX } else { oif },
            own: Some(own),
        });
        match (
            mode,
            back.map(|back| (back.next_hop.kind, back.next_hop.oif)),
        ) {
            (_, Ok((RouteKind::Local, _))) => ReversePath::Martian,
            (RpFilter::Off, _) => ReversePath::Valid,
            (_, Err(_)) => ReversePath::NoRoute,
            (RpFilter::Strict, Ok((RouteKind::Unicast, oif))) if oif != query.iif => {
                ReversePath::OtherInterface
            }
            (_, Ok((RouteKind::Unicast, _))) => ReversePath::Valid,
            (_, Ok(_)) => ReversePath::Martian,
        }
    }

    /// What table local says; it isn't asked if it can have nothing to say.
    #[inline]
    fn local_entry(&self, tables: &DefaultTables<'g>, query: &Query<A>) -> u32 {
        match tables.local {
            Some(local) if self.may_be_in_local(query) => local.lookup(query.dst),
            _ => 0,
        }
    }

    #[inline]
    fn may_be_in_local(&self, query: &Query<A>) -> bool {
        !self.snapshot.local_is_own || query.own.unwrap_or_else(|| self.is_own(query.dst))
    }

    fn entry_by_rules(
        &self,
        rules: &'g [(Rule<A>, Verdict)],
        query: &Query<A>,
    ) -> Result<u32, LookupError> {
        let matching = rules
            .iter()
            .filter(|(rule, _)| rule.matches(query.src, query.dst, query.iif));
        for (_, verdict) in matching {
            match verdict {
                Verdict::Lookup { trie, is_local } => {
                    if *is_local && !self.may_be_in_local(query) {
                        continue;
                    }
                    let entry = trie.reader(self.guard).lookup(query.dst);
                    if entry != 0 {
                        return Ok(entry);
                    }
                }
                Verdict::Skip => {}
                Verdict::Blackhole => return Err(LookupError::Blackhole),
                Verdict::Unreachable => return Err(LookupError::NoRoute),
                Verdict::Prohibit => return Err(LookupError::Prohibit),
            }
        }
        Ok(0)
    }
}

/// Who is certainly nobody special: neither one of our own addresses nor one that may mean something
/// else than a host somewhere. Most addresses that a router sees.
#[derive(Clone, Copy)]
pub(crate) struct Strangers<'g, A> {
    own: &'g OwnPrefixes<A>,
}

impl<A: Address> Strangers<'_, A> {
    /// Whether `addr` is one. If not, it may still turn out to be.
    #[inline]
    pub(crate) fn has(self, addr: A) -> bool {
        self.is_ordinary(addr) && !self.own.may_be_host(addr)
    }

    /// Whether `addr` is a single address of our own, and nothing else besides.
    #[inline]
    pub(crate) fn has_own_host(self, addr: A) -> bool {
        self.is_ordinary(addr) && self.own.has_host(addr)
    }

    /// Whether `addr` is one, or else a single address of our own.
    #[inline]
    pub(crate) fn is_ordinary(self, addr: A) -> bool {
        self.own.is_ordinary(addr)
    }
}

/// What a next hop means for the packet.
#[inline]
fn judge<A>(found: Option<(NextHopIndex, &NextHop<A>)>) -> Result<Resolved<'_, A>, LookupError> {
    match found {
        Some((index, next_hop)) if !next_hop.kind.is_refusal() => Ok(Resolved { index, next_hop }),
        found => Err(why_nowhere(found.map(|(_, next_hop)| next_hop.kind))),
    }
}

#[cold]
fn why_nowhere(kind: Option<RouteKind>) -> LookupError {
    match kind {
        Some(RouteKind::Blackhole) => LookupError::Blackhole,
        Some(RouteKind::Unreachable) => LookupError::Unreachable,
        Some(RouteKind::Prohibit) => LookupError::Prohibit,
        _ => LookupError::NoRoute,
    }
}

impl DefaultTables<'_> {
    /// What the tables behind local say.
    #[inline]
    fn transit_entry<A: Address>(&self, dst: A) -> u32 {
        match self.main.map_or(0, |main| main.lookup(dst)) {
            0 => self.default.map_or(0, |default| default.lookup(dst)),
            entry => entry,
        }
    }

    /// [`transit_entry`](Self::transit_entry) for the first `count` destinations.
    #[inline]
    fn transit_entries<A: Address>(
        &self,
        dsts: &[A; BATCH],
        count: usize,
        entries: &mut [u32; BATCH],
    ) {
        if let Some(main) = self.main {
            main.lookup_many(dsts, count, entries);
        }
        if let Some(default) = self.default {
            let found = entries.iter_mut().zip(dsts).take(count);
            for (entry, dst) in found.filter(|(entry, _)| **entry == 0) {
                *entry = default.lookup(*dst);
            }
        }
    }
}

/// The way of everything that does not end here, many packets at a time.
#[derive(Clone, Copy)]
pub struct Transit<'v, 'g, A: Address> {
    view: &'v View<'g, A>,
    tables: &'v DefaultTables<'g>,
}

impl<'g, A: Address> Transit<'_, 'g, A> {
    /// Looks the first `count` destinations up (at most [`BATCH`]), all of which [`View::is_own`]
    /// has said no to, so that their cache misses overlap.
    #[inline]
    pub fn lookup_many(self, dsts: &[A; BATCH], count: usize) -> Found {
        let count = count.min(BATCH);
        let mut entries = [0; BATCH];
        self.tables.transit_entries(dsts, count, &mut entries);
        Found { entries, count }
    }

    /// What [`View::lookup`] would have returned.
    ///
    /// # Errors
    /// Says why the packet goes nowhere.
    #[inline]
    pub fn resolve(self, found: Option<NextHopIndex>) -> Result<Resolved<'g, A>, LookupError> {
        self.view.resolve(found)
    }
}

/// What a lookup in bulk has found.
#[derive(Debug)]
pub struct Found {
    entries: [u32; BATCH],
    count: usize,
}

impl Found {
    /// For each destination in order, what [`Transit::resolve`] makes out.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Option<NextHopIndex>> {
        let entries = self.entries[..self.count].iter();
        entries.map(|entry| NextHopIndex::from_entry(*entry))
    }
}
