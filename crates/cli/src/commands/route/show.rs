//! Routes as ip-route(8) prints them.

use std::net::IpAddr;

use forebay::fib::{Protocol, TableId};
use serde::Serialize;

use super::grammar::Filter;
use crate::commands::words::print_prefix;
use crate::control::protocol::{Family, Lookup, Path, Route};

/// A line. What the filter says of all routes is left out, as in ip(8).
pub(super) fn text(route: &Route, filter: &Filter) -> String {
    let mut words = Vec::new();
    if route.kind != "unicast" {
        words.push(route.kind.clone());
    }
    words.push(print_prefix(&route.prefix));
    let mut push = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
    };
    push(
        "via",
        route
            .via
            .filter(|_| filter.via.is_none())
            .map(|via| via.to_string()),
    );
    push("dev", route.dev.clone().filter(|_| filter.dev.is_none()));
    push("table", table(route).filter(|_| filter.table.is_none()));
    push(
        "proto",
        protocol(route).filter(|_| filter.protocol.is_none()),
    );
    push("scope", scope(route).filter(|_| filter.scope.is_none()));
    push(
        "src",
        route
            .src
            .filter(|_| filter.src.is_none())
            .map(|src| src.to_string()),
    );
    push("metric", metric(route).map(|metric| metric.to_string()));
    if route.onlink {
        words.push("onlink".to_owned());
    }
    if let Some(mtu) = route.mtu {
        words.push(format!("mtu {mtu}"));
    }
    words.join(" ") + "\n"
}

/// The names are those of `ip -j route`.
#[derive(Debug, Serialize)]
pub(super) struct Json {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefsrc: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<u32>,
    flags: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<Metrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iif: Option<String>,
}

#[derive(Debug, Serialize)]
struct Metrics {
    mtu: u32,
}

pub(super) fn json(route: &Route) -> Json {
    Json {
        kind: Some(route.kind.clone()).filter(|kind| kind != "unicast"),
        dst: print_prefix(&route.prefix),
        from: None,
        gateway: route.via,
        dev: route.dev.clone(),
        table: table(route),
        protocol: protocol(route),
        scope: scope(route),
        prefsrc: route.src,
        metric: metric(route),
        flags: if route.onlink {
            vec!["onlink"]
        } else {
            Vec::new()
        },
        metrics: route.mtu.map(|mtu| Metrics { mtu }).into_iter().collect(),
        expires: None,
        iif: None,
    }
}

/// What `route get` says.
pub(super) fn path_text(lookup: &Lookup, path: &Path) -> String {
    let mut words = Vec::new();
    if path.kind != "unicast" {
        words.push(path.kind.clone());
    }
    words.push(lookup.to.to_string());
    let mut push = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
    };
    push("from", lookup.from.map(|from| from.to_string()));
    push("via", path.via.map(|via| via.to_string()));
    push("dev", path.dev.clone());
    push(
        "src",
        chosen_source(lookup, path).map(|src| src.to_string()),
    );
    push("iif", lookup.iif.clone());
    let mtu = path.mtu.map(|mtu| mtu.to_string());
    let Some(expires) = path.expires else {
        push("mtu", mtu);
        return words.join(" ") + "\n";
    };
    // As ip(8) tells what a router has told.
    let mtu = mtu.unwrap_or_default();
    words.join(" ") + &format!("\n    cache expires {expires}sec mtu {mtu}\n")
}

/// [`path_text`] for programs.
pub(super) fn path_json(lookup: &Lookup, path: &Path) -> Json {
    Json {
        kind: Some(path.kind.clone()).filter(|kind| kind != "unicast"),
        dst: lookup.to.to_string(),
        from: lookup.from,
        gateway: path.via,
        dev: path.dev.clone(),
        table: None,
        protocol: None,
        scope: None,
        prefsrc: chosen_source(lookup, path),
        metric: None,
        flags: Vec::new(),
        metrics: path.mtu.map(|mtu| Metrics { mtu }).into_iter().collect(),
        expires: path.expires,
        iif: lookup.iif.clone(),
    }
}

fn chosen_source(lookup: &Lookup, path: &Path) -> Option<IpAddr> {
    path.src.filter(|_| lookup.from.is_none())
}

fn table(route: &Route) -> Option<String> {
    Some(TableId(route.table))
        .filter(|table| *table != TableId::MAIN)
        .map(|table| table.to_string())
}

fn protocol(route: &Route) -> Option<String> {
    let protocol = Some(Protocol(route.protocol));
    protocol
        .filter(|protocol| *protocol != Protocol::BOOT)
        .map(|protocol| protocol.to_string())
}

fn scope(route: &Route) -> Option<String> {
    route.scope.clone().filter(|scope| scope != "global")
}

/// IPv4 does without metric 0; in IPv6 every route has one to speak of.
fn metric(route: &Route) -> Option<u32> {
    route
        .metric
        .filter(|metric| *metric != 0 || Family::of(route.prefix.addr) == Family::Inet6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Network;

    fn route(prefix: &str, len: u8) -> Route {
        Route {
            table: 254,
            kind: "unicast".to_owned(),
            prefix: Network {
                addr: prefix.parse().unwrap(),
                len,
            },
            via: None,
            dev: Some("tun0".to_owned()),
            src: None,
            metric: Some(0),
            scope: Some("global".to_owned()),
            protocol: 3,
            mtu: None,
            onlink: false,
        }
    }

    #[test]
    fn prints_what_ip_prints() {
        let via = |addr: &str| Some(addr.parse().unwrap());
        let all = Filter::default();
        let main = Filter {
            table: Some(254),
            ..Filter::default()
        };
        let default = Route {
            via: via("10.9.0.2"),
            metric: Some(100),
            protocol: 4,
            ..route("0.0.0.0", 0)
        };
        let connected = Route {
            protocol: 2,
            scope: Some("link".to_owned()),
            src: via("10.9.0.1"),
            ..route("10.9.0.0", 24)
        };
        let local = Route {
            kind: "local".to_owned(),
            table: 255,
            scope: Some("host".to_owned()),
            ..Route {
                ..connected.clone()
            }
        };
        let v6 = Route {
            protocol: 2,
            metric: Some(256),
            ..route("fd09::", 64)
        };
        let v6_local = Route {
            kind: "local".to_owned(),
            table: 255,
            protocol: 2,
            ..route("fd09::1", 128)
        };
        let blackhole = Route {
            kind: "blackhole".to_owned(),
            dev: None,
            ..route("10.5.0.0", 16)
        };
        let onlink = Route {
            via: via("10.77.0.1"),
            onlink: true,
            mtu: Some(1_400),
            ..route("10.66.0.0", 16)
        };
        for (route, filter, expected) in [
            (
                &default,
                &main,
                "default via 10.9.0.2 dev tun0 proto static metric 100",
            ),
            (
                &connected,
                &main,
                "10.9.0.0/24 dev tun0 proto kernel scope link src 10.9.0.1",
            ),
            (
                &local,
                &all,
                "local 10.9.0.0/24 dev tun0 table local proto kernel scope host src 10.9.0.1",
            ),
            (
                &local,
                &main,
                "local 10.9.0.0/24 dev tun0 proto kernel scope host src 10.9.0.1",
            ),
            (&v6, &main, "fd09::/64 dev tun0 proto kernel metric 256"),
            (
                &v6_local,
                &all,
                "local fd09::1 dev tun0 table local proto kernel metric 0",
            ),
            (&blackhole, &main, "blackhole 10.5.0.0/16"),
            (
                &onlink,
                &main,
                "10.66.0.0/16 via 10.77.0.1 dev tun0 onlink mtu 1400",
            ),
        ] {
            assert_eq!(text(route, filter), format!("{expected}\n"));
        }
        let by_dev = Filter {
            dev: Some("tun0".to_owned()),
            ..main
        };
        assert_eq!(
            text(&default, &by_dev),
            "default via 10.9.0.2 proto static metric 100\n"
        );
    }

    #[test]
    fn json_has_the_names_that_ip_gives() {
        let via = Some("10.9.0.3".parse().unwrap());
        let full = Route {
            via,
            table: 100,
            protocol: 4,
            src: Some("10.9.0.1".parse().unwrap()),
            metric: Some(5),
            mtu: Some(1_400),
            onlink: true,
            ..route("10.7.0.0", 16)
        };
        let expected = r#"{"dst":"10.7.0.0/16","gateway":"10.9.0.3","dev":"tun0","table":"100","protocol":"static","prefsrc":"10.9.0.1","metric":5,"flags":["onlink"],"metrics":[{"mtu":1400}]}"#;
        assert_eq!(serde_json::to_string(&json(&full)).unwrap(), expected);
        let blackhole = Route {
            kind: "blackhole".to_owned(),
            dev: None,
            ..route("0.0.0.0", 0)
        };
        let expected = r#"{"type":"blackhole","dst":"default","flags":[]}"#;
        assert_eq!(serde_json::to_string(&json(&blackhole)).unwrap(), expected);
    }

    #[test]
    fn a_path_names_what_was_asked_and_found() {
        let mut lookup = Lookup {
            to: "10.7.1.1".parse().unwrap(),
            from: None,
            iif: None,
            oif: None,
        };
        let mut path = Path {
            kind: "unicast".to_owned(),
            via: Some("10.9.0.3".parse().unwrap()),
            dev: Some("tun0".to_owned()),
            src: Some("10.9.0.1".parse().unwrap()),
            mtu: Some(1_400),
            expires: Some(599),
        };
        let expected =
            "10.7.1.1 via 10.9.0.3 dev tun0 src 10.9.0.1\n    cache expires 599sec mtu 1400\n";
        assert_eq!(path_text(&lookup, &path), expected);
        assert_eq!(
            serde_json::to_value(path_json(&lookup, &path)).unwrap()["expires"],
            599
        );
        path.expires = None;
        let expected = "10.7.1.1 via 10.9.0.3 dev tun0 src 10.9.0.1 mtu 1400\n";
        assert_eq!(path_text(&lookup, &path), expected);
        let expected = r#"{"dst":"10.7.1.1","gateway":"10.9.0.3","dev":"tun0","prefsrc":"10.9.0.1","flags":[],"metrics":[{"mtu":1400}]}"#;
        assert_eq!(
            serde_json::to_string(&path_json(&lookup, &path)).unwrap(),
            expected
        );
        lookup.from = Some("10.9.0.77".parse().unwrap());
        lookup.iif = Some("tun1".to_owned());
        path.mtu = None;
        let expected = "10.7.1.1 from 10.9.0.77 via 10.9.0.3 dev tun0 iif tun1\n";
        assert_eq!(path_text(&lookup, &path), expected);
    }
}
