use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::fib::route::Protocol;

const MAIN: TableId = TableId::MAIN;
const LOCAL: TableId = TableId::LOCAL;

fn fresh<A: Address>() -> Rib<A> {
    Rib::new(&Domain::new())
}

fn prefix<A: Address>(text: &str) -> Prefix<A> {
    text.parse().expect(text)
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().expect(text)
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect(text)
}

fn unicast<A: Address>(text: &str) -> Route<A> {
    Route::new(RouteKind::Unicast, prefix(text))
}

fn local<A: Address>(text: &str) -> Route<A> {
    Route::new(RouteKind::Local, prefix(text)).dev(1)
}

/// Interface 2 is 10.0.0.1/24, interface 3 is 10.0.1.1/24.
fn two_links() -> Rib<Ipv4Addr> {
    let mut rib = fresh();
    for (table, route) in [
        (LOCAL, local("10.0.0.1")),
        (LOCAL, local("10.0.1.1")),
        (MAIN, unicast("10.0.0.0/24").dev(2)),
        (MAIN, unicast("10.0.1.0/24").dev(3)),
    ] {
        rib.add(table, route, Conflict::Refuse)
            .expect("a valid route");
    }
    rib
}

#[test]
fn add_append_and_replace_meet_an_equal_metric() {
    let mut rib = fresh::<Ipv4Addr>();
    let route = unicast("10.0.0.0/8").dev(2);
    assert_eq!(rib.add(MAIN, route, Conflict::Refuse), Ok(()));
    assert_eq!(
        rib.add(MAIN, route, Conflict::Refuse),
        Err(RouteError::Exists)
    );
    assert_eq!(
        rib.add(MAIN, route.dev(3), Conflict::Refuse),
        Err(RouteError::Exists)
    );
    assert_eq!(
        rib.add(MAIN, route, Conflict::Append),
        Err(RouteError::Exists)
    );
    assert_eq!(rib.add(MAIN, route.dev(3), Conflict::Append), Ok(()));
    assert_eq!(rib.routes(MAIN), [route, route.dev(3)]);
    assert_eq!(rib.add(MAIN, route.dev(4), Conflict::Replace), Ok(()));
    assert_eq!(rib.routes(MAIN), [route.dev(4), route.dev(3)]);
    let worse = Route { metric: 5, ..route };
    assert_eq!(rib.add(MAIN, worse, Conflict::Replace), Ok(()));
    assert_eq!(rib.routes(MAIN), [route.dev(4), route.dev(3), worse]);
}

#[test]
fn delete_takes_the_first_that_matches_what_is_given() {
    let mut rib = fresh::<Ipv4Addr>();
    let route = unicast("10.0.0.0/8").dev(2);
    let worse = Route {
        metric: 7,
        protocol: Protocol::STATIC,
        ..route.dev(3)
    };
    for route in [worse, route] {
        rib.add(MAIN, route, Conflict::Refuse)
            .expect("a valid route");
    }
    let any = RouteMatch::prefix(route.prefix);
    let not_there = [
        RouteMatch {
            metric: Some(1),
            ..any
        },
        RouteMatch {
            kind: Some(RouteKind::Local),
            ..any
        },
        RouteMatch {
            gateway: Some(v4("10.0.0.1")),
            ..any
        },
        RouteMatch {
            oif: Some(4),
            ..any
        },
        RouteMatch {
            pref_src: Some(v4("10.0.0.1")),
            ..any
        },
        RouteMatch {
            scope: Some(Scope::Host),
            ..any
        },
        RouteMatch {
            protocol: Some(Protocol::KERNEL),
            ..any
        },
        RouteMatch::prefix(prefix("10.0.0.0/9")),
    ];
    for what in not_there {
        assert_eq!(
            rib.delete(MAIN, &what),
            Err(RouteError::NotFound),
            "{what:?}"
        );
    }
    assert_eq!(rib.delete(TableId(9), &any), Err(RouteError::NotFound));
    let by_protocol = RouteMatch {
        protocol: Some(Protocol::STATIC),
        ..any
    };
    assert_eq!(rib.delete(MAIN, &by_protocol), Ok(worse));
    assert_eq!(rib.delete(MAIN, &any), Ok(route));
    assert_eq!(rib.delete(MAIN, &any), Err(RouteError::NotFound));
}

#[test]
fn gateways_must_be_on_a_link() {
    let far = "192.0.2.0/24";
    let mut rib = two_links();
    let custom = Rule::all(100, RuleAction::Lookup(TableId(100)));
    rib.add_rule(custom).expect("a new rule");
    rib.add(
        TableId(100),
        unicast("10.9.0.0/24").dev(9),
        Conflict::Refuse,
    )
    .expect("a link");
    let cases = [
        (unicast(far).via(v4("10.0.0.2")), Ok(2)),
        (unicast(far).via(v4("10.0.1.2")), Ok(3)),
        (unicast(far).via(v4("10.0.1.2")).dev(3), Ok(3)),
        (unicast(far).via(v4("10.9.0.2")), Ok(9)),
        (
            unicast(far).via(v4("10.0.1.2")).dev(2),
            Err(RouteError::GatewayUnreachable),
        ),
        (
            unicast(far).via(v4("10.0.2.2")),
            Err(RouteError::GatewayUnreachable),
        ),
        (
            unicast(far).via(v4("10.0.0.1")),
            Err(RouteError::InvalidGateway),
        ),
        (
            unicast(far).via(v4("224.0.0.1")),
            Err(RouteError::InvalidGateway),
        ),
        (
            unicast(far).via(v4("0.0.0.0")),
            Err(RouteError::InvalidGateway),
        ),
        (unicast(far), Err(RouteError::NoDevice)),
        (unicast(far).dev(0), Err(RouteError::NoDevice)),
        (
            local(far).via(v4("10.0.0.2")),
            Err(RouteError::KindWithGateway),
        ),
        (
            Route {
                scope: Scope::Link,
                ..unicast(far).via(v4("10.0.0.2"))
            },
            Err(RouteError::InvalidScope),
        ),
        (
            Route {
                onlink: true,
                ..unicast(far).via(v4("10.0.2.2")).dev(3)
            },
            Ok(3),
        ),
        (
            Route {
                onlink: true,
                ..unicast(far).via(v4("10.0.2.2"))
            },
            Err(RouteError::NoDevice),
        ),
        (
            Route::new(RouteKind::Blackhole, prefix(far)).dev(2),
            Err(RouteError::KindWithGateway),
        ),
        (
            Route {
                pref_src: Some(v4("10.0.0.1")),
                ..unicast(far).dev(2)
            },
            Ok(2),
        ),
        (
            Route {
                pref_src: Some(v4("10.0.0.2")),
                ..unicast(far).dev(2)
            },
            Err(RouteError::InvalidPrefSrc),
        ),
        (
            Route {
                mtu: Some(0),
                ..unicast(far).dev(2)
            },
            Ok(2),
        ),
        (
            Route {
                mtu: Some(67),
                ..unicast(far).dev(2)
            },
            Err(RouteError::InvalidMtu),
        ),
    ];
    for (route, expected) in cases {
        let result = rib.resolve(MAIN, route).map(|route| route.oif.unwrap_or(0));
        assert_eq!(result, expected, "{route:?}");
    }
}

#[test]
fn a_route_through_a_gateway_is_no_link() {
    let mut rib = two_links();
    let far = unicast("192.0.2.0/24").via(v4("10.0.0.2"));
    rib.add(MAIN, far, Conflict::Refuse).expect("a valid route");
    let farther = unicast("198.51.100.0/24").via(v4("192.0.2.1"));
    let result = rib.add(MAIN, farther, Conflict::Refuse);
    assert_eq!(result, Err(RouteError::GatewayUnreachable));
}

#[test]
fn link_local_gateways_need_an_interface_and_no_route() {
    let mut rib = fresh::<Ipv6Addr>();
    let default = unicast("default").via(v6("fe80::1"));
    assert_eq!(
        rib.add(MAIN, default, Conflict::Refuse),
        Err(RouteError::NoDevice)
    );
    assert_eq!(rib.add(MAIN, default.dev(2), Conflict::Refuse), Ok(()));
    assert_eq!(rib.routes(MAIN), [default.dev(2)]);
    assert_eq!(default.metric, 1024);
    let global = unicast("default").via(v6("2001:db8::1")).dev(3);
    let unreachable = Err(RouteError::GatewayUnreachable);
    assert_eq!(rib.add(MAIN, global, Conflict::Replace), unreachable);
}

#[test]
fn an_interface_takes_its_routes_along() {
    let mut rib = two_links();
    let far = unicast("192.0.2.0/24").via(v4("10.0.0.2"));
    let backup = Route {
        metric: 10,
        ..unicast("192.0.2.0/24").via(v4("10.0.1.2"))
    };
    for route in [far, backup] {
        rib.add(MAIN, route, Conflict::Refuse)
            .expect("a valid route");
    }
    rib.add(TableId(7), unicast("10.7.0.0/16").dev(2), Conflict::Refuse)
        .expect("a valid route");
    assert_eq!(rib.flush_oif(0), 0);
    assert_eq!(rib.flush_oif(2), 3);
    assert_eq!(rib.routes(TableId(7)), []);
    assert_eq!(
        rib.routes(MAIN),
        [unicast("10.0.1.0/24").dev(3), backup.dev(3)]
    );
}

#[test]
fn an_address_takes_its_routes_along_or_their_preference() {
    let mut rib = two_links();
    let sourced = Route {
        pref_src: Some(v4("10.0.0.1")),
        ..unicast("192.0.2.0/24").dev(2)
    };
    rib.add(MAIN, sourced, Conflict::Refuse)
        .expect("a valid route");
    assert_eq!(rib.flush_pref_src(v4("10.0.0.9")), 0);
    assert_eq!(rib.flush_pref_src(v4("10.0.0.1")), 1);
    assert_eq!(rib.routes_to(MAIN, &sourced.prefix), []);

    let mut rib = fresh::<Ipv6Addr>();
    rib.add(LOCAL, local("fd09::1"), Conflict::Refuse)
        .expect("a valid route");
    let sourced = Route {
        pref_src: Some(v6("fd09::1")),
        ..unicast("2001:db8::/32").dev(2)
    };
    rib.add(MAIN, sourced, Conflict::Refuse)
        .expect("a valid route");
    assert_eq!(rib.flush_pref_src(v6("fd09::1")), 1);
    assert_eq!(
        rib.routes(MAIN),
        [Route {
            pref_src: None,
            ..sourced
        }]
    );
}

#[test]
fn next_hops_are_shared_and_reused() {
    let mut rib = fresh::<Ipv4Addr>();
    let nets: Vec<_> = (0..200u8)
        .map(|i| Prefix::truncated(Ipv4Addr::new(10, i, 0, 0), 16))
        .collect();
    for net in &nets {
        let route = Route::new(RouteKind::Unicast, *net).dev(2);
        rib.add(MAIN, route, Conflict::Refuse)
            .expect("a valid route");
    }
    assert_eq!(rib.next_hops.in_use().count(), 1);
    for round in 3..1_000 {
        for net in &nets[..2] {
            let route = Route::new(RouteKind::Unicast, *net).dev(round);
            rib.add(MAIN, route, Conflict::Replace)
                .expect("a valid route");
        }
    }
    assert_eq!(rib.next_hops.in_use().count(), 2);
    let one_chunk = rib.next_hops.memory();
    assert!(one_chunk < 64 * 1024, "{one_chunk}");
}

#[test]
fn more_next_hops_than_two_bytes_hold() {
    let mut rib = fresh::<Ipv4Addr>();
    for i in 0..70_000u32 {
        let host = Prefix::host(Ipv4Addr::from(0x0a00_0000 + i));
        let route = Route {
            mtu: Some(MIN_MTU + i),
            ..Route::new(RouteKind::Unicast, host).dev(2)
        };
        rib.add(MAIN, route, Conflict::Refuse).expect("no limit");
    }
    assert_eq!(rib.next_hops.in_use().count(), 70_000);
    let last = Prefix::host(Ipv4Addr::from(0x0a00_0000 + 69_999));
    assert_eq!(rib.routes_to(MAIN, &last)[0].mtu, Some(MIN_MTU + 69_999));
}
