use proptest::prelude::*;

use super::*;
use crate::commands::words::{print_prefix, split};

fn parsed(line: &str) -> Result<RouteCommand, String> {
    parse(&split(line), None)
}

/// The route of an `add`, as `ip route add` would be told it in full.
fn added(line: &str) -> String {
    let RouteCommand::Add { route, conflict } = parsed(line).unwrap() else {
        panic!("{line} adds nothing");
    };
    let mut text = format!("{} {}", route.kind, print_prefix(&route.prefix));
    let mut push = |name: &str, value: Option<String>| {
        text.extend(value.map(|value| format!(" {name} {value}")));
    };
    push("via", route.via.map(|addr| addr.to_string()));
    push("dev", route.dev);
    push("src", route.src.map(|addr| addr.to_string()));
    push("metric", route.metric.map(|metric| metric.to_string()));
    push("scope", route.scope);
    push("mtu", route.mtu.map(|mtu| mtu.to_string()));
    push(
        "table",
        Some(route.table.to_string()).filter(|table| table != "254"),
    );
    push(
        "proto",
        Some(route.protocol.to_string()).filter(|protocol| protocol != "3"),
    );
    push("onlink", route.onlink.then(String::new));
    push(
        "conflict",
        Some(format!("{conflict:?}")).filter(|conflict| conflict != "Refuse"),
    );
    text
}

#[test]
fn reads_routes_as_ip_does() {
    for (line, expected) in [
        ("add default via 10.0.0.1", "unicast default via 10.0.0.1"),
        ("a 10.1.0.0/16 dev tun0", "unicast 10.1.0.0/16 dev tun0"),
        ("add to 10/8 dev tun0", "unicast 10.0.0.0/8 dev tun0"),
        ("add dev tun0 10/8", "unicast 10.0.0.0/8 dev tun0"),
        (
            "add blackhole 10/8 metric 7",
            "blackhole 10.0.0.0/8 metric 7",
        ),
        (
            "add 10/8 dev a priority 7",
            "unicast 10.0.0.0/8 dev a metric 7",
        ),
        ("add 10/8 dev a pref 7", "unicast 10.0.0.0/8 dev a metric 7"),
        (
            "add local 0/0 dev lo table 100",
            "local default dev lo table 100",
        ),
        (
            "add local 10.0.0.5 dev lo",
            "local 10.0.0.5 dev lo table 255",
        ),
        (
            "add unicast 10/8 via inet 10.0.0.1 dev a src 10.0.0.2 mtu 1400 proto static scope global onlink",
            "unicast 10.0.0.0/8 via 10.0.0.1 dev a src 10.0.0.2 scope global mtu 1400 proto 4 onlink ",
        ),
        (
            "append default dev a",
            "unicast default dev a conflict Append",
        ),
        ("r default dev a", "unicast default dev a conflict Replace"),
        (
            "add fd00::/8 via fe80::1 dev a",
            "unicast fd00::/8 via fe80::1 dev a",
        ),
        ("add 10/8 dev dev", "unicast 10.0.0.0/8 dev dev"),
        ("add local local dev a", ""),
    ] {
        match expected {
            "" => drop(parsed(line).expect_err(line)),
            _ => assert_eq!(added(line), expected, "{line}"),
        }
    }
}

#[test]
fn the_family_follows_from_the_addresses_or_the_option() {
    let family = |line, asked| match parse(&split(line), asked) {
        Ok(RouteCommand::Add { route, .. }) => Ok(Family::of(route.prefix.addr)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    assert_eq!(family("add default via fd00::1", None), Ok(Family::Inet6));
    assert_eq!(family("add default dev a", None), Ok(Family::Inet));
    assert_eq!(
        family("add default dev a", Some(Family::Inet6)),
        Ok(Family::Inet6)
    );
    assert!(family("add default via fd00::1", Some(Family::Inet)).is_err());
    assert!(
        family("add 10/8 via fd00::1", None)
            .unwrap_err()
            .contains("is IPv6")
    );
}

#[test]
fn says_what_is_wrong() {
    for (line, why) in [
        ("frob", "command \"frob\" is unknown"),
        ("add", "needs a prefix"),
        ("add via 10.0.0.1", "needs a prefix"),
        ("add 10/8 via", "something must follow \"via\""),
        ("add 10/8 via tun0", "an address must follow \"via\""),
        ("add 10/8 metric x", "a number must follow \"metric\""),
        ("add 10/8 metric -1", "a number must follow \"metric\""),
        ("add 10/8 table x", "a table must follow"),
        ("add 10/8 proto x", "a protocol must follow"),
        ("add 10/8 scope x", "a scope must follow"),
        ("add 10/8 frob", "\"frob\" is garbage"),
        (
            "add 10/99",
            "the length in \"10/99\" must be a number from 0 to 32",
        ),
        ("add frob", "neither an address nor ADDRESS/LENGTH"),
        (
            "add throw 10/8",
            "routes of type \"throw\" are not supported",
        ),
        ("add default nexthop via 10.0.0.1", "one next hop"),
        ("change default via 10.0.0.1", "`replace`"),
        ("get", "needs an address"),
        ("get 10/8", "not a prefix"),
        ("get 10.0.0.1 iif a oif b", "chooses no `oif`"),
    ] {
        let error = parsed(line).expect_err(line);
        assert!(error.contains(why), "{line}: {error}");
    }
}

#[test]
fn deletes_by_what_is_given_alone() {
    let Ok(RouteCommand::Delete(selector)) = parsed("del 10/8 via 10.0.0.1") else {
        panic!()
    };
    let expected = RouteSelector {
        table: 254,
        prefix: words::network("10/8").unwrap(),
        kind: None,
        via: Some("10.0.0.1".parse().unwrap()),
        dev: None,
        src: None,
        metric: None,
        scope: None,
        protocol: None,
    };
    assert_eq!(selector, expected);
}

#[test]
fn looks_up_an_address() {
    let lookup = |line| match parsed(line) {
        Ok(RouteCommand::Get(lookup)) => lookup,
        other => panic!("{line}: {other:?}"),
    };
    let plain = Lookup {
        to: "10.0.0.1".parse().unwrap(),
        from: None,
        iif: None,
        oif: None,
    };
    assert_eq!(lookup("get 10.0.0.1"), plain);
    assert_eq!(lookup("g to 10.0.0.1/32"), plain);
    let full = Lookup {
        from: Some("10.0.0.2".parse().unwrap()),
        iif: Some("tun0".to_owned()),
        ..plain
    };
    assert_eq!(lookup("get 10.0.0.1 from 10.0.0.2 iif tun0"), full);
}

#[test]
fn lists_main_of_ipv4_or_what_is_asked_for() {
    let filter = |line| match parsed(line) {
        Ok(RouteCommand::Show(filter)) => filter,
        other => panic!("{line}: {other:?}"),
    };
    let main = Filter {
        table: Some(254),
        family: Some(Family::Inet),
        ..Filter::default()
    };
    for line in [
        "",
        "s",
        "show",
        "ls",
        "list",
        "show table main",
        "show t 254",
    ] {
        assert_eq!(filter(line), main, "{line:?}");
    }
    assert_eq!(filter("show table all"), Filter::default());
    assert_eq!(filter("show table 0"), Filter::default());
    assert_eq!(filter("show fd00::/8").family, Some(Family::Inet6));
    let by_dev = Filter {
        dev: Some("tun0".to_owned()),
        ..main
    };
    assert_eq!(filter("show dev tun0"), by_dev);
}

#[test]
fn filters_by_prefix() {
    for (line, prefix, expected) in [
        ("show 10.1.0.0/16", "10.1.0.0/16", true),
        ("show 10.1.0.0/16", "10.1.1.0/24", false),
        ("show root 10.1.0.0/16", "10.1.1.0/24", true),
        ("show root 10.1.0.0/16", "10.0.0.0/8", false),
        ("show match 10.1.2.3", "10.0.0.0/8", true),
        ("show match 10.1.2.3", "0/0", true),
        ("show match 10.1.2.3", "11.0.0.0/8", false),
        ("show to match fd00::1", "::/0", true),
        ("show to match fd00::1", "fd00::1", true),
        ("show default", "0/0", true),
        ("show default", "10/8", false),
        ("show root 0/0", "::/0", false),
    ] {
        let Ok(RouteCommand::Show(filter)) = parsed(line) else {
            panic!("{line}")
        };
        let Ok(RouteCommand::Add { mut route, .. }) = parsed("add default dev a") else {
            panic!()
        };
        route.prefix = words::network(prefix).unwrap();
        assert_eq!(filter.matches(&route), expected, "{line}: {prefix}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_words_panic(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(&[
                    "add", "show", "del", "get", "via", "dev", "metric", "table", "to", "default",
                    "10/8", "::/0", "local", "root", "match", "src", "mtu", "inet", "all", "0",
                ][..]).prop_map(str::to_owned),
                "\\PC{0,6}",
            ],
            0..8,
        ),
    ) {
        let _ = parse(&words, None);
        let _ = parse(&words, Some(Family::Inet6));
    }
}
