//! Changes at random, held against a plain list of routes.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A change to the model and to the real thing.
#[derive(Debug, Clone)]
enum Step {
    Add {
        table: usize,
        place: u64,
        len: u8,
        metric: u32,
        kind: usize,
        oif: u32,
    },
    Replace {
        table: usize,
        place: u64,
        len: u8,
        metric: u32,
        kind: usize,
        oif: u32,
    },
    Delete(Index),
    Flush(u32),
}

const TABLES: [TableId; 4] = [LOCAL, MAIN, TableId::DEFAULT, TableId(100)];

const KINDS: [RouteKind; 5] = [
    RouteKind::Unicast,
    RouteKind::Local,
    RouteKind::Broadcast,
    RouteKind::Blackhole,
    RouteKind::Unreachable,
];

/// An address from few distinct octets, so that prefixes nest and meet.
fn crowded<A: Address>(place: u64) -> A {
    let octets = [0u8, 1, 128, 255];
    let bits = (0..16).fold(0, |bits, i| {
        let octet = octets[(place >> (2 * i) & 3) as usize];
        bits << 8 | u128::from(octet)
    });
    A::from_u128(bits)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let route = || {
        (
            0..4usize,
            any::<u64>(),
            any::<u8>(),
            0..3u32,
            0..5usize,
            1..5u32,
        )
    };
    let step = prop_oneof![
        6 => route().prop_map(|(table, place, len, metric, kind, oif)| Step::Add {
            table, place, len, metric, kind, oif
        }),
        3 => route().prop_map(|(table, place, len, metric, kind, oif)| Step::Replace {
            table, place, len, metric, kind, oif
        }),
        5 => any::<Index>().prop_map(Step::Delete),
        1 => (1..5u32).prop_map(Step::Flush),
    ];
    prop::collection::vec(step, 1..50)
}

/// Routes in a plain list, in the order they came.
struct Model<A>(Vec<(TableId, Route<A>)>);

impl<A: Address> Model<A> {
    fn is_own(&self, dst: A) -> bool {
        let mut routes = self.0.iter();
        routes.any(|(_, route)| route.kind.is_own() && route.prefix.contains(dst))
    }

    fn lookup(&self, tables: &[TableId], dst: A) -> Result<(RouteKind, u32), LookupError> {
        let in_table = |table| {
            let mut routes: Vec<_> = self.0.iter().filter(|(id, _)| id == table).collect();
            routes.retain(|(_, route)| route.prefix.contains(dst));
            routes.sort_by_key(|(_, route)| (A::BITS - route.prefix.len(), route.metric));
            routes
                .first()
                .map(|(_, route)| (route.kind, route.oif.unwrap_or(0)))
        };
        match tables.iter().find_map(in_table) {
            None => Err(LookupError::NoRoute),
            Some((RouteKind::Blackhole, _)) => Err(LookupError::Blackhole),
            Some((RouteKind::Unreachable, _)) => Err(LookupError::Unreachable),
            Some(found) => Ok(found),
        }
    }
}

fn agrees_with_a_list<A: Address>(steps: Vec<Step>, with_rule: bool) {
    let bench = Bench::<A>::new();
    let mut tables = vec![LOCAL, MAIN];
    if A::HAS_TABLE_DEFAULT {
        tables.push(TableId::DEFAULT);
    }
    if with_rule {
        let rule = Rule::all(5, RuleAction::Lookup(TableId(100)));
        bench.fib.add_rule(rule).expect("a new rule");
        tables.insert(1, TableId(100));
    }
    let make = |place, len: u8, metric, kind: usize, oif| {
        let prefix = Prefix::truncated(crowded::<A>(place), len % (A::BITS + 1));
        let route = Route {
            metric,
            ..Route::new(KINDS[kind], prefix)
        };
        if route.kind.is_refusal() {
            route
        } else {
            route.dev(oif)
        }
    };
    let mut model = Model(Vec::new());
    let mut places = Vec::new();
    for step in steps {
        match step {
            Step::Add {
                table,
                place,
                len,
                metric,
                kind,
                oif,
            } => {
                let (table, route) = (TABLES[table], make(place, len, metric, kind, oif));
                let key = (table, route.prefix, route.metric);
                let mut keys = model
                    .0
                    .iter()
                    .map(|(id, old)| (*id, old.prefix, old.metric));
                let expected = match keys.any(|old| old == key) {
                    true => Err(RouteError::Exists),
                    false => Ok(()),
                };
                assert_eq!(bench.fib.add(table, route), expected);
                if expected.is_ok() {
                    model.0.push((table, route));
                }
                places.push(place);
            }
            Step::Replace {
                table,
                place,
                len,
                metric,
                kind,
                oif,
            } => {
                let (table, route) = (TABLES[table], make(place, len, metric, kind, oif));
                let key = (table, route.prefix, route.metric);
                model
                    .0
                    .retain(|(id, old)| (*id, old.prefix, old.metric) != key);
                model.0.push((table, route));
                assert_eq!(bench.fib.replace(table, route), Ok(()));
                places.push(place);
            }
            Step::Delete(which) if !model.0.is_empty() => {
                let (table, route) = model.0.remove(which.index(model.0.len()));
                let what = RouteMatch {
                    metric: Some(route.metric),
                    ..RouteMatch::prefix(route.prefix)
                };
                assert_eq!(bench.fib.delete(table, &what), Ok(route));
            }
            Step::Delete(_) => continue,
            Step::Flush(oif) => {
                let before = model.0.len();
                model.0.retain(|(_, route)| route.oif != Some(oif));
                assert_eq!(bench.fib.flush_oif(oif), before - model.0.len());
            }
        }
        check_places(&bench, &model, &tables, &places);
    }
}

fn check_places<A: Address>(
    bench: &Bench<A>,
    model: &Model<A>,
    tables: &[TableId],
    places: &[u64],
) {
    let around = places
        .iter()
        .rev()
        .take(10)
        .flat_map(|place| [*place, place ^ 1, place ^ 64]);
    let dsts: Vec<A> = around.map(crowded).collect();
    bench.with(|view| {
        let queries: Vec<_> = dsts.iter().map(|dst| to(*dst)).collect();
        for (query, found) in queries.iter().zip(lookup_all(view, &queries)) {
            let known = Query {
                own: Some(view.is_own(query.dst)),
                ..*query
            };
            assert_eq!(view.is_own(query.dst), model.is_own(query.dst), "{query:?}");
            let expected = model.lookup(tables, query.dst);
            for found in [found, view.lookup(query), view.lookup(&known)] {
                let found = found.map(|found| (found.next_hop.kind, found.next_hop.oif));
                assert_eq!(found, expected, "{query:?} in {:?}", model.0);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn v4_agrees_with_a_list(steps in steps(), with_rule: bool) {
        agrees_with_a_list::<Ipv4Addr>(steps, with_rule);
    }

    #[test]
    fn v6_agrees_with_a_list(steps in steps(), with_rule: bool) {
        agrees_with_a_list::<Ipv6Addr>(steps, with_rule);
    }
}
