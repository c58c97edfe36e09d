//! The whole of routing through its public interface.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

mod model;

const MAIN: TableId = TableId::MAIN;
const LOCAL: TableId = TableId::LOCAL;

/// A family's routing and what a test looks at it with.
struct Bench<A: Address> {
    domain: Domain,
    fib: Fib<A>,
}

/// What a lookup said, without its guard.
type Answer<A> = Result<NextHop<A>, LookupError>;

impl<A: Address> Bench<A> {
    fn new() -> Self {
        let domain = Domain::new();
        Bench {
            fib: Fib::new(&domain),
            domain,
        }
    }

    fn with<R>(&self, ask: impl FnOnce(&View<'_, A>) -> R) -> R {
        let reader = self.domain.reader();
        let guard = reader.guard();
        ask(&self.fib.view(&guard))
    }

    fn lookup(&self, query: &Query<A>) -> Answer<A> {
        self.with(|view| view.lookup(query).map(|found| *found.next_hop))
    }

    fn oif(&self, dst: &str) -> Result<u32, LookupError> {
        self.lookup(&to(addr(dst))).map(|hop| hop.oif)
    }

    fn is_own(&self, dst: &str) -> bool {
        self.with(|view| view.is_own(addr(dst)))
    }

    fn add(&self, table: TableId, route: Route<A>) {
        self.fib.add(table, route).expect("a valid route");
    }

    fn delete(&self, table: TableId, prefix: &str) {
        let what = RouteMatch::prefix(net(prefix));
        self.fib.delete(table, &what).expect("a route");
    }
}

fn addr<A: Address>(text: &str) -> A {
    match text.parse() {
        Ok(addr) => addr,
        Err(_) => panic!("{text} is no address"),
    }
}

fn net<A: Address>(text: &str) -> Prefix<A> {
    text.parse().expect(text)
}

fn to<A: Address>(dst: A) -> Query<A> {
    Query {
        dst,
        src: A::UNSPECIFIED,
        iif: 2,
        own: None,
    }
}

fn route<A: Address>(kind: RouteKind, prefix: &str, oif: u32) -> Route<A> {
    let route = Route::new(kind, net(prefix));
    if kind.is_refusal() {
        route
    } else {
        route.dev(oif)
    }
}

fn unicast<A: Address>(prefix: &str, oif: u32) -> Route<A> {
    route(RouteKind::Unicast, prefix, oif)
}

fn local<A: Address>(prefix: &str, oif: u32) -> Route<A> {
    route(RouteKind::Local, prefix, oif)
}

/// Transit in bulk and the rest one by one, as input routing does.
fn lookup_all<'g, A: Address>(
    view: &View<'g, A>,
    queries: &[Query<A>],
) -> Vec<Result<Resolved<'g, A>, LookupError>> {
    let mut results: Vec<_> = queries.iter().map(|query| view.lookup(query)).collect();
    let Some(transit) = view.transit() else {
        return results;
    };
    let is_transit = |place: &usize| !view.is_own(queries[*place].dst);
    let places: Vec<usize> = (0..queries.len()).filter(is_transit).collect();
    for places in places.chunks(BATCH) {
        let mut dsts = [A::UNSPECIFIED; BATCH];
        for (dst, place) in dsts.iter_mut().zip(places) {
            *dst = queries[*place].dst;
        }
        let found = transit.lookup_many(&dsts, places.len());
        for (place, found) in places.iter().zip(found.iter()) {
            results[*place] = transit.resolve(found);
        }
    }
    results
}

#[test]
fn tables_are_asked_in_the_order_of_the_default_rules() {
    let bench = Bench::<Ipv4Addr>::new();
    assert_eq!(bench.oif("10.0.0.1"), Err(LookupError::NoRoute));
    bench.add(TableId::DEFAULT, unicast("default", 9));
    assert_eq!(bench.oif("10.0.0.1"), Ok(9));
    bench.add(MAIN, unicast("10.0.0.0/8", 3));
    assert_eq!(bench.oif("10.0.0.1"), Ok(3));
    bench.add(LOCAL, local("10.0.0.0/16", 1));
    bench.add(MAIN, unicast("10.0.0.0/24", 4));
    assert_eq!(bench.oif("10.0.0.1"), Ok(1), "table local comes first");
    assert_eq!(bench.oif("10.1.0.1"), Ok(3));
    bench.delete(LOCAL, "10.0.0.0/16");
    assert_eq!(bench.oif("10.0.0.1"), Ok(4), "in force at once");
    assert_eq!(bench.oif("192.0.2.1"), Ok(9));

    let bench = Bench::<Ipv6Addr>::new();
    bench.add(TableId::DEFAULT, unicast("default", 9));
    assert_eq!(bench.oif("2001:db8::1"), Err(LookupError::NoRoute));
}

#[test]
fn table_local_may_hold_other_routes() {
    let bench = Bench::<Ipv6Addr>::new();
    bench.add(LOCAL, local("fd09::1", 1));
    bench.add(MAIN, unicast("default", 2));
    bench.add(LOCAL, route(RouteKind::Multicast, "ff00::/8", 3));
    bench.add(LOCAL, route(RouteKind::Prohibit, "fd08::/16", 0));
    assert_eq!(bench.oif("ff02::1"), Ok(3));
    assert_eq!(bench.oif("fd08::1"), Err(LookupError::Prohibit));
    bench.delete(LOCAL, "ff00::/8");
    bench.delete(LOCAL, "fd08::/16");
    assert_eq!(bench.oif("ff02::1"), Ok(2));
    assert_eq!(bench.oif("fd09::1"), Ok(1));
}

#[test]
fn refusals_say_why() {
    let bench = Bench::<Ipv4Addr>::new();
    let cases = [
        (RouteKind::Blackhole, LookupError::Blackhole),
        (RouteKind::Unreachable, LookupError::Unreachable),
        (RouteKind::Prohibit, LookupError::Prohibit),
    ];
    bench.add(TableId::DEFAULT, unicast("default", 9));
    for (kind, error) in cases {
        bench.add(MAIN, route(kind, "default", 0));
        assert_eq!(
            bench.oif("10.0.0.1"),
            Err(error),
            "and table default isn't asked"
        );
        bench.delete(MAIN, "default");
    }
    assert_eq!(bench.oif("10.0.0.1"), Ok(9));
}

#[test]
fn the_lowest_metric_wins_and_the_next_takes_over() {
    let bench = Bench::<Ipv6Addr>::new();
    for (metric, oif) in [(20, 2), (10, 3), (30, 4)] {
        let route = Route {
            metric,
            ..unicast("2001:db8::/32", oif)
        };
        bench.add(MAIN, route);
    }
    for best in [3, 2, 4] {
        assert_eq!(bench.oif("2001:db8::1"), Ok(best));
        bench.delete(MAIN, "2001:db8::/32");
    }
    assert_eq!(bench.oif("2001:db8::1"), Err(LookupError::NoRoute));
}

#[test]
fn anything_may_be_our_own() {
    let bench = Bench::<Ipv4Addr>::new();
    assert!(!bench.is_own("10.0.0.1"));
    bench.add(LOCAL, local("10.0.0.1", 2));
    bench.add(LOCAL, route(RouteKind::Broadcast, "10.0.0.255", 2));
    bench.add(LOCAL, local("127.0.0.0/8", 1));
    bench.add(MAIN, unicast("10.0.0.0/24", 2));
    for (dst, own) in [
        ("10.0.0.1", true),
        ("10.0.0.255", true),
        ("127.1.2.3", true),
        ("10.0.0.2", false),
    ] {
        assert_eq!(bench.is_own(dst), own, "{dst}");
    }
    bench.add(TableId(100), local("default", 1));
    assert!(bench.is_own("10.0.0.2"), "of any table");
    assert_eq!(bench.oif("10.0.0.2"), Ok(2), "but no rule leads there");
    bench.delete(TableId(100), "default");
    assert!(!bench.is_own("10.0.0.2"));
    bench
        .fib
        .append(LOCAL, local("10.0.0.1", 3))
        .expect("a second one");
    bench.delete(LOCAL, "10.0.0.1");
    assert!(bench.is_own("10.0.0.1"), "another interface still has it");
    assert_eq!(bench.oif("10.0.0.1"), Ok(3));
    bench.delete(LOCAL, "10.0.0.1");
    assert!(!bench.is_own("10.0.0.1"));
}

#[test]
fn rules_choose_by_source_destination_and_interface() {
    let bench = Bench::<Ipv4Addr>::new();
    let rule = |priority, action| Rule::all(priority, action);
    bench.add(LOCAL, local("10.0.0.1", 1));
    bench.add(MAIN, unicast("default", 2));
    bench.add(TableId(100), unicast("192.0.2.0/24", 5));
    let from = Rule {
        from: Some(net("10.1.0.0/16")),
        ..rule(100, RuleAction::Lookup(TableId(100)))
    };
    let to_net = Rule {
        to: Some(net("198.51.100.0/24")),
        ..rule(101, RuleAction::Prohibit)
    };
    let iif = Rule {
        iif: Some(7),
        ..rule(102, RuleAction::Unreachable)
    };
    let missing = rule(103, RuleAction::Lookup(TableId(200)));
    for rule in [iif, from, to_net, missing] {
        bench.fib.add_rule(rule).expect("a new rule");
        assert_eq!(bench.fib.add_rule(rule), Err(RuleError::Exists));
    }
    let query = |src, dst, iif| Query {
        dst: addr(dst),
        src: addr(src),
        iif,
        own: None,
    };
    let cases = [
        (query("10.1.2.3", "192.0.2.1", 3), Ok(5)),
        (query("10.2.2.3", "192.0.2.1", 3), Ok(2)),
        (query("10.1.2.3", "203.0.113.1", 3), Ok(2)),
        (
            query("10.1.2.3", "198.51.100.1", 3),
            Err(LookupError::Prohibit),
        ),
        (
            query("10.1.2.3", "203.0.113.1", 7),
            Err(LookupError::NoRoute),
        ),
        (query("10.1.2.3", "192.0.2.1", 7), Ok(5)),
        (query("10.1.2.3", "10.0.0.1", 7), Ok(1)),
    ];
    for (query, expected) in &cases {
        let found = bench.lookup(query).map(|hop| hop.oif);
        assert_eq!(found, *expected, "{query:?}");
    }
    bench.with(|view| {
        let queries = cases.map(|(query, _)| query);
        let results = lookup_all(view, &queries);
        let oif = |result: &Result<Resolved<'_, _>, _>| result.map(|found| found.next_hop.oif);
        let found: Vec<_> = results.iter().map(oif).collect();
        assert_eq!(found, cases.map(|(_, expected)| expected));
    });
}

#[test]
fn table_local_moves_behind_a_blackhole_for_a_peer() {
    let bench = Bench::<Ipv4Addr>::new();
    bench.add(LOCAL, local("10.0.0.1", 1));
    let query = Query {
        src: addr("10.0.0.2"),
        ..to(addr("10.0.0.1"))
    };
    let oif = || bench.lookup(&query).map(|hop| hop.oif);
    assert_eq!(oif(), Ok(1));
    let local_rule = RuleAction::Lookup(LOCAL);
    bench
        .fib
        .add_rule(Rule::all(200, local_rule))
        .expect("a new rule");
    bench
        .fib
        .delete_rule(&RuleMatch::priority(0))
        .expect("the first rule");
    assert_eq!(oif(), Ok(1));
    let blackhole = Rule {
        from: Some(net("10.0.0.2")),
        ..Rule::all(100, RuleAction::Blackhole)
    };
    bench.fib.add_rule(blackhole).expect("a new rule");
    assert_eq!(oif(), Err(LookupError::Blackhole));
    assert_eq!(bench.oif("10.0.0.1"), Ok(1), "others still come through");
    bench
        .fib
        .delete_rule(&RuleMatch::priority(100))
        .expect("the blackhole");
    assert_eq!(oif(), Ok(1));
    bench
        .fib
        .add_rule(Rule::all(0, local_rule))
        .expect("a new rule");
    bench
        .fib
        .delete_rule(&RuleMatch::priority(200))
        .expect("the moved one");
    assert_eq!(bench.fib.rules(), Bench::<Ipv4Addr>::new().fib.rules());
    let absent = bench.fib.delete_rule(&RuleMatch::priority(200));
    assert_eq!(absent, Err(RuleError::NotFound));
    assert_eq!(bench.fib.unspecified_rule_priority(), 32765);
}

#[test]
fn generations_count_what_they_say() {
    let bench = Bench::<Ipv4Addr>::new();
    let fib = &bench.fib;
    // What a change adds to the generation, and whether the input generation changes.
    let counted = |change: &dyn Fn()| {
        let before = (fib.generation(), fib.input_generation());
        change();
        (
            fib.generation() - before.0,
            u64::from(fib.input_generation() != before.1),
        )
    };
    let other = TableId(100);
    assert_eq!(counted(&|| bench.add(LOCAL, local("10.0.0.1", 1))), (1, 1));
    assert_eq!(counted(&|| bench.add(MAIN, unicast("default", 2))), (1, 0));
    assert_eq!(counted(&|| bench.delete(MAIN, "default")), (1, 0));
    let refused = || assert!(fib.add(LOCAL, local("10.0.0.1", 1)).is_err());
    assert_eq!(counted(&refused), (0, 0));
    assert_eq!(counted(&|| assert_eq!(fib.flush_oif(77), 0)), (0, 0));
    assert_eq!(counted(&|| fib.bump_input_generation()), (1, 1));
    let block = || bench.add(LOCAL, route(RouteKind::Blackhole, "10.0.0.0/8", 0));
    assert_eq!(counted(&block), (1, 1), "table local decides input");
    assert_eq!(counted(&|| bench.delete(LOCAL, "10.0.0.0/8")), (1, 1));

    assert_eq!(
        counted(&|| bench.add(other, unicast("10.0.0.0/8", 2))),
        (1, 0)
    );
    let rule = Rule::all(100, RuleAction::Lookup(other));
    assert_eq!(counted(&|| fib.add_rule(rule).expect("new")), (1, 1));
    assert_eq!(
        counted(&|| bench.add(other, unicast("10.1.0.0/16", 2))),
        (1, 0)
    );
    assert_eq!(
        counted(&|| bench.add(other, local("192.0.2.0/24", 2))),
        (1, 1)
    );
    let unicast_before_local = || bench.add(other, unicast("192.0.2.1", 2));
    assert_eq!(
        counted(&unicast_before_local),
        (1, 1),
        "it may hide a local route"
    );
    assert_eq!(
        counted(&|| bench.add(MAIN, unicast("10.2.0.0/16", 2))),
        (1, 0)
    );
    assert_eq!(counted(&|| assert_eq!(fib.flush_oif(1), 1)), (1, 1));
}

#[test]
fn reverse_path_judges_sources() {
    let bench = Bench::<Ipv4Addr>::new();
    bench.add(LOCAL, local("10.0.2.1", 2));
    bench.add(LOCAL, route(RouteKind::Broadcast, "10.0.2.255", 2));
    bench.add(MAIN, unicast("10.0.2.0/24", 2));
    bench.add(MAIN, unicast("10.0.3.0/24", 3));
    bench.add(MAIN, route(RouteKind::Blackhole, "10.0.4.0/24", 0));
    use ReversePath::{Martian, NoRoute, OtherInterface, Valid};
    // Source, and what is said of it in modes off, strict and loose if it comes in by 2.
    let cases = [
        ("10.0.2.9", [Valid, Valid, Valid]),
        ("10.0.3.9", [Valid, OtherInterface, Valid]),
        ("10.0.4.9", [Valid, NoRoute, NoRoute]),
        ("192.0.2.1", [Valid, NoRoute, NoRoute]),
        ("10.0.2.1", [Martian, Martian, Martian]),
        ("10.0.2.255", [Valid, Martian, Martian]),
    ];
    for (src, expected) in cases {
        let query = Query {
            src: addr(src),
            ..to(addr("10.0.3.1"))
        };
        let modes = [RpFilter::Off, RpFilter::Strict, RpFilter::Loose];
        let said = modes.map(|mode| bench.with(|view| view.reverse_path(&query, 3, mode)));
        assert_eq!(said, expected, "{src}");
    }
    bench.add(MAIN, unicast("default", 3));
    let query = Query {
        src: addr("192.0.2.1"),
        ..to(addr("10.0.2.1"))
    };
    let said = |mode| bench.with(|view| view.reverse_path(&query, 0, mode));
    assert_eq!(said(RpFilter::Loose), Valid, "the default route counts");
    assert_eq!(said(RpFilter::Strict), OtherInterface);
}

/// The addresses and routes of a router with two links, as they come with its interfaces.
fn two_interfaces<A: Address>(bench: &Bench<A>, nets: [(&str, &str, &str); 2]) {
    for ((host, broadcast, prefix), oif) in nets.into_iter().zip(2..) {
        bench.add(LOCAL, local(host, oif));
        bench.add(LOCAL, route(RouteKind::Broadcast, broadcast, oif));
        bench.add(MAIN, unicast(prefix, oif));
    }
    bench.add(MAIN, unicast("default", 3));
}

#[test]
fn a_small_stack_is_small() {
    let v4 = Bench::<Ipv4Addr>::new();
    let v6 = Bench::<Ipv6Addr>::new();
    let fresh = v4.fib.memory() + v6.fib.memory();
    assert!(fresh < 4 * 1024, "{fresh}");
    two_interfaces(
        &v4,
        [
            ("10.0.0.1", "10.0.0.255", "10.0.0.0/24"),
            ("192.168.7.1", "192.168.7.255", "192.168.7.0/24"),
        ],
    );
    two_interfaces(
        &v6,
        [
            ("fd09::1", "fe80::1234:56ff:fe78:9abc", "fd09::/64"),
            (
                "2001:db8:7::1",
                "fe80::1234:56ff:fe78:9abd",
                "2001:db8:7::/64",
            ),
        ],
    );
    let few = v4.fib.memory() + v6.fib.memory();
    assert!(few < 256 * 1024, "{few}");
}

#[test]
fn fifty_thousand_routes_go_in_and_out() {
    let bench = Bench::<Ipv4Addr>::new();
    bench.add(LOCAL, local("10.0.0.1", 1));
    let prefix = |i: u32| {
        let addr = Ipv4Addr::from(i.wrapping_mul(0x9e37_79b9));
        Prefix::truncated(addr, 24 - (i % 5) as u8)
    };
    let mut model = BTreeMap::new();
    for i in 0..50_000 {
        let oif = 2 + i % 16;
        let route = Route::new(RouteKind::Unicast, prefix(i)).dev(oif);
        bench.fib.replace(MAIN, route).expect("a valid route");
        model.insert(prefix(i), oif);
    }
    assert_eq!(bench.fib.routes(MAIN).len(), model.len());
    let expected = |model: &BTreeMap<Prefix<Ipv4Addr>, u32>, addr| {
        let mut lens = (20..=24).rev();
        let found = lens.find_map(|len| model.get(&Prefix::truncated(addr, len)));
        found.copied().ok_or(LookupError::NoRoute)
    };
    let check = |model: &BTreeMap<Prefix<Ipv4Addr>, u32>| {
        bench.with(|view| {
            let addrs = (0..20_000).map(|i: u32| Ipv4Addr::from(i.wrapping_mul(0x85eb_ca6b)));
            let queries: Vec<_> = addrs.map(to).collect();
            for (query, result) in queries.iter().zip(lookup_all(view, &queries)) {
                let oif = result.map(|found| found.next_hop.oif);
                assert_eq!(oif, expected(model, query.dst), "{query:?}");
            }
        });
    };
    check(&model);
    for i in (0..50_000).step_by(2) {
        if model.remove(&prefix(i)).is_some() {
            let what = RouteMatch::prefix(prefix(i));
            bench.fib.delete(MAIN, &what).expect("a route");
        }
    }
    check(&model);
    assert_eq!(
        (2..18).map(|oif| bench.fib.flush_oif(oif)).sum::<usize>(),
        model.len()
    );
    check(&BTreeMap::new());
}

/// A writer moves a /24 back and forth between two next hops, replacing, deleting and re-adding
/// it with other prefixes around; readers must always find one of the answers there can be.
#[test]
fn readers_see_the_old_or_the_new() {
    let bench = Bench::<Ipv4Addr>::new();
    bench.add(MAIN, unicast("10.0.0.0/8", 100));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = bench.domain.reader();
                while !done.load(Ordering::Relaxed) {
                    let guard = reader.guard();
                    let view = bench.fib.view(&guard);
                    let queries = [
                        to(addr("10.1.2.3")),
                        to(addr("10.1.3.3")),
                        to(addr("11.0.0.1")),
                    ];
                    let results = lookup_all(&view, &queries);
                    let [moving, still, none] = results[..] else {
                        panic!("three answers");
                    };
                    let found = moving.expect("always a route").next_hop;
                    let is_one = found.oif == 100 || (1_000..4_000).contains(&found.oif);
                    assert!(is_one, "{found:?}");
                    assert_eq!(still.expect("always a route").next_hop.oif, 100);
                    assert!(none.is_err());
                }
            });
        }
        for round in 0..3_000u32 {
            let route = unicast("10.1.2.0/24", 1_000 + round);
            bench.fib.replace(MAIN, route).expect("a valid route");
            if round % 3 == 0 {
                bench.delete(MAIN, "10.1.2.0/24");
            }
            // Other routes make the trie grow and go wide under the readers.
            let other = Ipv4Addr::from(0x1400_0000 + (round << 12));
            let other = Route::new(RouteKind::Unicast, Prefix::truncated(other, 24)).dev(5);
            bench.fib.replace(MAIN, other).expect("a valid route");
        }
        done.store(true, Ordering::Relaxed);
    });
}
