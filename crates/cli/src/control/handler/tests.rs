//! Requests on a stack, without a socket.

use std::net::IpAddr;

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
            Errno::EExist,
            "`replace`",
        );
        let delete = |selector| handle(&stack, "run", Request::DeleteRoute(selector));
        assert_eq!(delete(selector(addr, len)), Reply::Done);
        assert_refused(
            delete(selector(addr, len)),
            Errno::ESrch,
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
            Errno::ENoDev,
            "`forebay link`",
        ),
        (
            Route {
                kind: "x".to_owned(),
                ..good.clone()
            },
            Errno::EInval,
            "unknown route type",
        ),
        (
            Route {
                scope: Some("x".to_owned()),
                ..good.clone()
            },
            Errno::EInval,
            "unknown scope",
        ),
        (
            Route {
                via: Some(ip("10.200.0.1")),
                ..good.clone()
            },
            Errno::ENetUnreach,
            "`onlink`",
        ),
        (
            Route {
                via: Some(ip("fd09::2")),
                ..good.clone()
            },
            Errno::EInval,
            "other family",
        ),
        (
            Route {
                via: Some(ip("10.9.0.1")),
                ..good.clone()
            },
            Errno::EInval,
            "invalid gateway",
        ),
        (
            Route {
                src: Some(ip("10.1.1.1")),
                ..good.clone()
            },
            Errno::EInval,
            "`forebay addr`",
        ),
        (
            Route {
                via: None,
                ..good.clone()
            },
            Errno::ENoDev,
            "`dev`",
        ),
        (
            Route {
                prefix: network("10.7.0.1", 16),
                ..good.clone()
            },
            Errno::EInval,
            "the prefix is 10.7.0.0/16",
        ),
        (
            Route {
                prefix: network("10.7.0.0", 77),
                ..good
            },
            Errno::EInval,
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
    assert_refused(look_up("192.0.2.1"), Errno::ENetUnreach, "no route matches");
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
        Errno::EExist,
        "another priority",
    );
    let delete = || handle(&stack, "run", Request::DeleteRule(selector.clone()));
    assert_eq!(delete(), Reply::Done);
    assert_refused(delete(), Errno::ENoEnt, "`forebay rule`");
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
        Errno::EInval,
        "MTU 1 is out of range",
    );
    assert_refused(set("x", Some(true), None), Errno::ENoDev, "`forebay link`");
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
    assert_refused(add(network("10.9.0.1", 24)), Errno::EExist, "10.9.0.1");
    assert_refused(add(network("10.9.0.1", 99)), Errno::EInval, "/99");
    assert_refused(add(network("224.0.0.1", 4)), Errno::EInval, "224.0.0.1");
    assert_eq!(delete(network("10.9.0.1", 24)), Reply::Done);
    assert_refused(
        delete(network("10.9.0.1", 24)),
        Errno::EAddrNotAvail,
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
