//! Which rule and which route decide: for people. Packets find the outcome in the tries, which
//! know no longer whose it is.

use std::sync::PoisonError;

use super::rib::Rib;
use super::{Address, Fib, Prefix, Query, Route, Rule, RuleAction, TableId};

/// Who decided about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation<A> {
    /// The rule that matched.
    pub rule: Rule<A>,
    /// What it found; none if the rule itself refuses.
    pub found: Option<(TableId, Route<A>)>,
}

impl<A: Address> Fib<A> {
    /// The rule and the route that a [lookup](super::View::lookup) of the same query comes to;
    /// `None` if no table has a route.
    ///
    /// It walks the management side prefix by prefix: some microseconds, under its lock.
    pub fn explain(&self, query: &Query<A>) -> Option<Explanation<A>> {
        let rib = self.rib.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = rib.rules().list();
        let mut matching = rules
            .iter()
            .filter(|rule| rule.matches(query.src, query.dst, query.iif));
        matching.find_map(|rule| match rule.action {
            RuleAction::Lookup(table) => {
                let route = longest_match(&rib, table, query.dst)?;
                let found = Some((table, route));
                Some(Explanation { rule: *rule, found })
            }
            _ => Some(Explanation {
                rule: *rule,
                found: None,
            }),
        })
    }
}

fn longest_match<A: Address>(rib: &Rib<A>, table: TableId, dst: A) -> Option<Route<A>> {
    let mut lengths = (0..=A::BITS).rev();
    lengths.find_map(|len| {
        let routes = rib.routes_to(table, &Prefix::truncated(dst, len));
        routes.into_iter().next()
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use forebay_sync::rcu::Domain;

    use super::*;
    use crate::fib::{LOOPBACK_IFINDEX, LookupError, RouteKind};

    fn route(kind: RouteKind, prefix: &str, dev: u32) -> Route<Ipv4Addr> {
        let route = Route::new(kind, prefix.parse().unwrap());
        if kind.is_refusal() {
            route
        } else {
            route.dev(dev)
        }
    }

    #[test]
    fn names_what_the_lookup_comes_to() {
        let domain = Domain::new();
        let fib = Fib::<Ipv4Addr>::new(&domain);
        for (table, route) in [
            (TableId::LOCAL, route(RouteKind::Local, "10.0.0.1/32", 2)),
            (TableId::MAIN, route(RouteKind::Unicast, "10.0.0.0/8", 2)),
            (TableId::MAIN, route(RouteKind::Unicast, "10.1.0.0/16", 3)),
            (TableId::MAIN, route(RouteKind::Prohibit, "10.2.0.0/16", 0)),
            (TableId(100), route(RouteKind::Unicast, "0.0.0.0/0", 4)),
        ] {
            fib.add(table, route).unwrap();
        }
        for (priority, iif, action) in [
            (10, 7, RuleAction::Lookup(TableId(100))),
            (11, 8, RuleAction::Blackhole),
        ] {
            let iif = Some(iif);
            fib.add_rule(Rule {
                iif,
                ..Rule::all(priority, action)
            })
            .unwrap();
        }
        let reader = domain.reader();
        let guard = reader.guard();
        let view = fib.view(&guard);
        let cases = [
            ("10.0.0.1", 1, Some((0, Some((TableId::LOCAL, "10.0.0.1"))))),
            (
                "10.1.2.3",
                1,
                Some((32_766, Some((TableId::MAIN, "10.1.0.0/16")))),
            ),
            (
                "10.3.2.3",
                1,
                Some((32_766, Some((TableId::MAIN, "10.0.0.0/8")))),
            ),
            (
                "10.2.0.9",
                1,
                Some((32_766, Some((TableId::MAIN, "10.2.0.0/16")))),
            ),
            ("10.1.2.3", 7, Some((10, Some((TableId(100), "default"))))),
            ("192.0.2.1", 8, Some((11, None))),
            ("192.0.2.1", LOOPBACK_IFINDEX, None),
        ];
        for (dst, iif, expected) in cases {
            let query = Query {
                dst: dst.parse().unwrap(),
                src: Ipv4Addr::UNSPECIFIED,
                iif,
                own: None,
            };
            let explained = fib.explain(&query);
            let shown = explained.map(|explained| {
                let found = explained.found;
                let found = found.map(|(table, route)| (table, route.prefix.to_string()));
                (explained.rule.priority, found)
            });
            let expected = expected.map(|(priority, found)| {
                (
                    priority,
                    found.map(|(table, prefix)| (table, prefix.to_owned())),
                )
            });
            assert_eq!(shown, expected, "{dst} by {iif}");
            match (view.lookup(&query), explained) {
                (Ok(found), Some(explained)) => {
                    let (_, route) = explained.found.unwrap();
                    assert_eq!(route.oif, Some(found.next_hop.oif), "{dst}");
                }
                (Err(error), None) => assert_eq!(error, LookupError::NoRoute, "{dst}"),
                (Err(error), Some(_)) => assert_ne!(error, LookupError::NoRoute, "{dst}"),
                (Ok(_), None) => unreachable!("{dst} has a route that nobody can name"),
            }
        }
    }
}
