//! Requests on a stack, without a socket.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::control::protocol::{
    Conflict, Lookup, Route, RouteSelector, Rule, RuleAction, RuleSelector,
};

fn stack() -> Stack {
    let stack = Stack::builder().seed([1, 2]).build().unwrap();
    let (device, _) = forebay::device::wire::wire(forebay::device::wire::WireConfig::default());
    stack.add_device("tun0", device).unwrap();
    for (addr, len) in [("10.9.0.1", 24), ("fd09::1", 64)] {
        let request = Request::AddAddress {
            dev: "tun0".to_owned(),
            address: network(addr, len),
        };
        assert_eq!(handle(&stack, "run", request), Reply::Done);
    }
    stack
}

/// A request over a connection of its own.
fn handle(stack: &Stack, run: &str, request: Request) -> Reply {
    Session::new(stack, run).handle(request)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn network(addr: &str, len: u8) -> Network {
    Network {
        addr: ip(addr),
        len,
    }
}

fn route(addr: &str, len: u8, via: &str) -> Route {
    Route {
        table: 254,
        kind: "unicast".to_owned(),
        prefix: network(addr, len),
        via: Some(ip(via)),
        dev: None,
        src: None,
        metric: None,
        scope: None,
        protocol: 4,
        mtu: None,
        onlink: false,
    }
}

fn selector(addr: &str, len: u8) -> RouteSelector {
    RouteSelector {
        table: 254,
        prefix: network(addr, len),
        kind: None,
        via: None,
        dev: None,
        src: None,
        metric: None,
        scope: None,
        protocol: None,
    }
}

fn add(stack: &Stack, route: Route) -> Reply {
    handle(
        stack,
        "run",
        Request::AddRoute {
            route,
            conflict: Conflict::Refuse,
        },
    )
}

fn routes(stack: &Stack, family: Family) -> Vec<Route> {
    match handle(
        stack,
        "run",
        Request::Routes {
            family,
            table: Some(254),
        },
    ) {
        Reply::Routes(routes) => routes,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_refused(reply: Reply, errno: Errno, advice: &str) {
    let Reply::Failed(failure) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(failure.errno, errno, "{failure}");
    assert!(
        failure.message.starts_with(&format!("{}: ", errno.text())),
        "{failure}"
    );
    assert!(failure.message.contains(advice), "{failure}");
}

#[test]
fn a_paths_mtu_is_none_or_one_that_packets_can_have() {
    let stack = stack();
    for (addr, len, via) in [("10.7.0.0", 16, "10.9.0.2"), ("fd77::", 16, "fd09::2")] {
        let with = |mtu| Route {
            mtu: Some(mtu),
            ..route(addr, len, via)
        };
        for mtu in [1, 67, 65_536, u32::MAX] {
            assert_refused(add(&stack, with(mtu)), Errno::Inval, "68 to 65535");
        }
        for (mtu, stored) in [(0, None), (68, Some(68)), (65_535, Some(65_535))] {
            let replaced = Request::AddRoute {
                route: with(mtu),
                conflict: Conflict::Replace,
            };
            assert_eq!(handle(&stack, "run", replaced), Reply::Done);
            let listed = routes(&stack, Family::of(ip(addr)));
            let listed = listed
                .iter()
                .find(|route| route.prefix == network(addr, len));
            assert_eq!(listed.expect("the route").mtu, stored);
        }
    }
}

#[test]
fn table_0_is_main() {
    let stack = stack();
    let unspecified = Route {
        table: 0,
        ..route("10.7.0.0", 16, "10.9.0.2")
    };
    assert_eq!(add(&stack, unspecified), Reply::Done);
    let is_there = || {
        let mut listed = routes(&stack, Family::Inet).into_iter();
        listed.any(|route| route.prefix == network("10.7.0.0", 16))
    };
    assert!(is_there());
    let delete = Request::DeleteRoute(RouteSelector {
        table: 0,
        ..selector("10.7.0.0", 16)
    });
    assert_eq!(handle(&stack, "run", delete), Reply::Done);
    assert!(!is_there());

    let rule = RuleSelector {
        family: Family::Inet,
        priority: Some(5),
        from: None,
        to: None,
        iif: None,
        action: Some(RuleAction::Lookup(0)),
    };
    assert_eq!(handle(&stack, "run", Request::AddRule(rule)), Reply::Done);
    let family = Family::Inet;
    let Reply::Rules(rules) = handle(&stack, "run", Request::Rules { family }) else {
        panic!("no rules");
    };
    let added = rules
        .iter()
        .find(|rule| rule.priority == 5)
        .expect("the rule");
    assert_eq!(added.action, RuleAction::Lookup(254));
}

#[test]
fn routes_are_added_listed_and_deleted_in_both_families() {
    let stack = stack();
    for (family, addr, len, via) in [
        (Family::Inet, "10.7.0.0", 16, "10.9.0.2"),
        (Family::Inet6, "fd77::", 16, "fd09::2"),
    ] {
        let before = routes(&stack, family);
        assert_eq!(add(&stack, route(addr, len, via)), Reply::Done);
        let after = routes(&stack, family);
        let added: Vec<_> = after
            .iter()
            .filter(|route| !before.contains(route))
            .collect();
        let [added] = added.as_slice() else {
            panic!("{added:?}")
        };
        assert_eq!(
            added.dev.as_deref(),
            Some("tun0"),
            "it follows from the gateway"
        );
        assert_eq!(added.scope.as_deref(), Some("global"));
        assert_refused(
            add(&stack, route(addr, len, via)),
            Errno::Exist,
            "`replace`",
        );
        let delete = |selector| handle(&stack, "run", Request::DeleteRoute(selector));
        assert_eq!(delete(selector(addr, len)), Reply::Done);
        assert_refused(
            delete(selector(addr, len)),
            Errno::Srch,
            "`forebay route show table all`",
        );
        assert_eq!(routes(&stack, family), before);
    }
}

#[test]
fn routes_that_make_no_sense_are_refused() {
    let stack = stack();
    let good = route("10.7.0.0", 16, "10.9.0.2");
    for (bad, errno, advice) in [
        (
            Route {
                dev: Some("x".to_owned()),
                ..good.clone()
            },
            Errno::NoDev,
            "`forebay link`",
        ),
        (
            Route {
                kind: "x".to_owned(),
                ..good.clone()
            },
            Errno::Inval,
            "unknown route type",
        ),
        (
            Route {
                scope: Some("x".to_owned()),
                ..good.clone()
            },
            Errno::Inval,
            "unknown scope",
        ),
        (
            Route {
                via: Some(ip("10.200.0.1")),
                ..good.clone()
            },
            Errno::NetUnreach,
            "`onlink`",
        ),
        (
            Route {
                via: Some(ip("fd09::2")),
                ..good.clone()
            },
            Errno::Inval,
            "other family",
        ),
        (
            Route {
                via: Some(ip("10.9.0.1")),
                ..good.clone()
            },
            Errno::Inval,
            "invalid gateway",
        ),
        (
            Route {
                src: Some(ip("10.1.1.1")),
                ..good.clone()
            },
            Errno::Inval,
            "`forebay addr`",
        ),
        (
            Route {
                via: None,
                ..good.clone()
            },
            Errno::NoDev,
            "`dev`",
        ),
        (
            Route {
                prefix: network("10.7.0.1", 16),
                ..good.clone()
            },
            Errno::Inval,
            "the prefix is 10.7.0.0/16",
        ),
        (
            Route {
                prefix: network("10.7.0.0", 77),
                ..good
            },
            Errno::Inval,
            "0 to 32",
        ),
    ] {
        assert_refused(add(&stack, bad), errno, advice);
    }
}

#[test]
fn looks_up_the_way_of_a_packet() {
    let stack = stack();
    assert_eq!(add(&stack, route("10.7.0.0", 16, "10.9.0.2")), Reply::Done);
    let look_up = |to: &str| {
        let lookup = Lookup {
            to: ip(to),
            from: None,
            iif: None,
            oif: None,
        };
        handle(&stack, "run", Request::LookUp(lookup))
    };
    let Reply::Path(path) = look_up("10.7.1.1") else {
        panic!()
    };
    assert_eq!(
        (path.via, path.src),
        (Some(ip("10.9.0.2")), Some(ip("10.9.0.1")))
    );
    assert_eq!(
        (path.kind.as_str(), path.dev.as_deref()),
        ("unicast", Some("tun0"))
    );
    let Reply::Path(path) = look_up("fd09::1") else {
        panic!()
    };
    assert_eq!(
        (path.kind.as_str(), path.dev.as_deref()),
        ("local", Some("lo"))
    );
    assert_refused(look_up("192.0.2.1"), Errno::NetUnreach, "no route matches");
}

#[test]
fn rules_are_added_listed_and_deleted() {
    let stack = stack();
    let selector = RuleSelector {
        family: Family::Inet,
        priority: None,
        from: Some(network("10.2.0.0", 16)),
        to: None,
        iif: Some("tun0".to_owned()),
        action: None,
    };
    let rules = || match handle(
        &stack,
        "run",
        Request::Rules {
            family: Family::Inet,
        },
    ) {
        Reply::Rules(rules) => rules,
        other => panic!("{other:?}"),
    };
    let before = rules();
    assert_eq!(
        handle(&stack, "run", Request::AddRule(selector.clone())),
        Reply::Done
    );
    let expected = Rule {
        priority: 32_765,
        from: selector.from,
        to: None,
        iif: selector.iif.clone(),
        action: RuleAction::Lookup(254),
    };
    assert_eq!(rules().get(1), Some(&expected));
    let request = Request::AddRule(RuleSelector {
        priority: Some(32_765),
        ..selector.clone()
    });
    assert_refused(
        handle(&stack, "run", request),
        Errno::Exist,
        "another priority",
    );
    let delete = || handle(&stack, "run", Request::DeleteRule(selector.clone()));
    assert_eq!(delete(), Reply::Done);
    assert_refused(delete(), Errno::NoEnt, "`forebay rule`");
    assert_eq!(rules(), before);
}

#[test]
fn interfaces_are_listed_and_set() {
    let stack = stack();
    let links = || match handle(&stack, "run", Request::Links) {
        Reply::Links(links) => links,
        other => panic!("{other:?}"),
    };
    let set = |dev: &str, up, mtu| {
        handle(
            &stack,
            "run",
            Request::SetLink {
                dev: dev.to_owned(),
                up,
                mtu,
            },
        )
    };
    assert_eq!(set("tun0", Some(false), Some(1_400)), Reply::Done);
    let links = links();
    let [lo, tun] = links.as_slice() else {
        panic!("{links:?}")
    };
    assert!(lo.loopback && lo.up);
    assert_eq!((tun.name.as_str(), tun.up, tun.mtu), ("tun0", false, 1_400));
    let own = LinkAddress {
        network: network("10.9.0.1", 24),
        broadcast: Some(ip("10.9.0.255")),
    };
    assert_eq!(tun.addresses.first(), Some(&own));
    assert_refused(
        set("tun0", Some(true), Some(1)),
        Errno::Inval,
        "MTU 1 is out of range",
    );
    assert_refused(set("x", Some(true), None), Errno::NoDev, "`forebay link`");
}

#[test]
fn addresses_come_and_go() {
    let stack = stack();
    let dev = || "tun0".to_owned();
    let add = |address| {
        handle(
            &stack,
            "run",
            Request::AddAddress {
                dev: dev(),
                address,
            },
        )
    };
    let delete = |address| {
        handle(
            &stack,
            "run",
            Request::DeleteAddress {
                dev: dev(),
                address,
            },
        )
    };
    assert_refused(add(network("10.9.0.1", 24)), Errno::Exist, "10.9.0.1");
    assert_refused(add(network("10.9.0.1", 99)), Errno::Inval, "/99");
    assert_refused(add(network("224.0.0.1", 4)), Errno::Inval, "224.0.0.1");
    assert_eq!(delete(network("10.9.0.1", 24)), Reply::Done);
    assert_refused(
        delete(network("10.9.0.1", 24)),
        Errno::AddrNotAvail,
        "10.9.0.1",
    );
    assert_eq!(routes(&stack, Family::Inet), []);
}

#[test]
fn counters_and_sockets_are_the_stacks() {
    let stack = stack();
    let Reply::Counters(counters) = handle(&stack, "this run", Request::Counters) else {
        panic!()
    };
    assert_eq!(counters.run, "this run");
    assert!(counters.snmp.iter().any(|(name, _)| name == "IpInReceives"));
    assert!(counters.drops.iter().all(|drops| !drops.doc.is_empty()));

    let socket = forebay::UdpSocket::bind(&stack, "10.9.0.1:53").unwrap();
    let sockets = || match handle(&stack, "run", Request::UdpSockets) {
        Reply::UdpSockets(sockets) => sockets,
        other => panic!("{other:?}"),
    };
    let [unconnected] = sockets().try_into().unwrap();
    assert_eq!(
        (unconnected.local.to_string().as_str(), unconnected.peer),
        ("10.9.0.1:53", None)
    );
    socket.connect("10.9.0.2:1000").unwrap();
    let [connected] = sockets().try_into().unwrap();
    assert_eq!(connected.peer, Some("10.9.0.2:1000".parse().unwrap()));
    drop(socket);
    assert_eq!(sockets(), []);
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        prop::sample::select(
            &[
                "0.0.0.0",
                "10.9.0.1",
                "10.9.0.2",
                "224.0.0.1",
                "255.255.255.255"
            ][..]
        )
        .prop_map(ip),
        prop::sample::select(&["::", "fd09::1", "fd09::2", "ff02::1", "fe80::1"][..]).prop_map(ip),
        any::<IpAddr>(),
    ]
}

fn any_network() -> impl Strategy<Value = Network> {
    (any_ip(), any::<u8>()).prop_map(|(addr, len)| Network { addr, len })
}

fn any_word() -> impl Strategy<Value = String> {
    let words = &[
        "tun0",
        "lo",
        "unicast",
        "local",
        "blackhole",
        "link",
        "global",
        "",
    ][..];
    prop_oneof![
        prop::sample::select(words).prop_map(str::to_owned),
        "\\PC{0,8}"
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let addresses = || (any_word(), any_network(), any::<Option<u32>>());
    let routes = (
        (
            any::<u32>(),
            any_word(),
            any_network(),
            proptest::option::of(any_ip()),
        ),
        proptest::option::of(any_word()),
        proptest::option::of(any_ip()),
        proptest::option::of(any_word()),
        any::<(Option<u32>, u8, Option<u32>, bool)>(),
    );
    let rules = (
        any::<(bool, Option<u32>, u32)>(),
        proptest::option::of(any_network()),
        proptest::option::of(any_network()),
        proptest::option::of(any_word()),
    );
    prop_oneof![
        (any_word(), any_word()).prop_map(|(name, value)| Request::SetSysctl { name, value }),
        addresses().prop_map(|(dev, address, _)| Request::AddAddress { dev, address }),
        addresses().prop_map(|(dev, address, _)| Request::DeleteAddress { dev, address }),
        addresses().prop_map(|(dev, _, mtu)| Request::SetLink {
            dev,
            up: Some(true),
            mtu
        }),
        routes.prop_map(
            |((table, kind, prefix, via), dev, src, scope, (metric, protocol, mtu, onlink))| {
                let route = Route {
                    table,
                    kind,
                    prefix,
                    via,
                    dev,
                    src,
                    metric,
                    scope,
                    protocol,
                    mtu,
                    onlink,
                };
                Request::AddRoute {
                    route,
                    conflict: Conflict::Replace,
                }
            }
        ),
        (
            any_ip(),
            proptest::option::of(any_ip()),
            proptest::option::of(any_word())
        )
            .prop_map(|(to, from, iif)| Request::LookUp(Lookup {
                to,
                from,
                iif,
                oif: None
            })),
        rules.prop_map(|((is_v6, priority, table), from, to, iif)| {
            let family = if is_v6 { Family::Inet6 } else { Family::Inet };
            let action = Some(RuleAction::Lookup(table));
            Request::AddRule(RuleSelector {
                family,
                priority,
                from,
                to,
                iif,
                action,
            })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn no_request_panics(requests in prop::collection::vec(any_request(), 40)) {
        let stack = stack();
        for request in requests {
            let line = serde_json::to_string(&request).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Request>(&line).unwrap(), &request);
            handle(&stack, "run", request);
        }
        for request in [Request::Links, Request::Sysctls, Request::Rules { family: Family::Inet },
            Request::Routes { family: Family::Inet, table: None },
            Request::Routes { family: Family::Inet6, table: None }] {
            prop_assert!(!matches!(handle(&stack, "run", request), Reply::Failed(_)));
        }
    }
}

#[test]
fn activity_is_told_by_core_and_queue_and_measured_on_one_connection() {
    let stack = stack();
    let is_watched = || stack.is_watched();
    let mut session = Session::new(&stack, "run");
    assert!(!is_watched(), "nobody has asked");
    for _ in 0..2 {
        let Reply::Activity(activity) = session.handle(Request::Activity) else {
            panic!("no activity")
        };
        assert_eq!(activity.run, "run");
        assert_eq!(activity.cores.len(), 1);
        assert_eq!(activity.cores[0].idle, None, "no worker");
        let queues: Vec<_> = activity.queues.iter().map(|queue| &queue.dev).collect();
        assert_eq!(queues, ["tun0"]);
        assert_eq!(activity.sock_flow_entries, None);
        assert!(is_watched());
    }
    drop(session);
    assert!(!is_watched(), "the connection has ended");

    let set = Request::SetSysctl {
        name: "net.core.rps_sock_flow_entries".to_owned(),
        value: "1024".to_owned(),
    };
    assert_eq!(handle(&stack, "run", set), Reply::Done);
    let Reply::Activity(activity) = handle(&stack, "run", Request::Activity) else {
        panic!("no activity")
    };
    assert_eq!(activity.sock_flow_entries, Some(1_024));
    assert_eq!(activity.cores[0].flows_read, Some(0));
}
