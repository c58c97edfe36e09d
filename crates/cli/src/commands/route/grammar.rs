//! The words behind `forebay route`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay::fib::{Protocol, RouteKind, Scope, TableId};

use crate::commands::words::{self, Words, command, common_family, is_everything, is_short_for};
use crate::control::protocol::{Conflict, Family, Lookup, Network, Route, RouteSelector};

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteCommand {
    Show(Filter),
    Get(Lookup),
    Add { route: Route, conflict: Conflict },
    Delete(RouteSelector),
}

/// Which routes to show: those that agree in all that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Both if none is named.
    pub(super) family: Option<Family>,
    /// All if none is named.
    pub(super) table: Option<u32>,
    pub(super) dev: Option<String>,
    pub(super) via: Option<IpAddr>,
    pub(super) src: Option<IpAddr>,
    pub(super) protocol: Option<u8>,
    pub(super) scope: Option<String>,
    pub(super) kind: Option<String>,
    /// The routes' prefixes lie in this one.
    pub(super) root: Option<Network>,
    /// The routes' prefixes hold this one.
    pub(super) matching: Option<Network>,
}

/// ip(8)'s commands in the order in which it compares them.
const COMMANDS: &[&str] = &[
    "list", "show", "lst", "get", "add", "change", "replace", "append", "delete",
];

/// # Errors
///
/// What is wrong with the words, for people.
pub(super) fn parse(words: &[String], family: Option<Family>) -> Result<RouteCommand, String> {
    let mut words = Words::new(words);
    let Some(word) = words.next() else {
        return parse_filter(words, family).map(RouteCommand::Show);
    };
    match command(word, COMMANDS) {
        Some("list" | "show" | "lst") => parse_filter(words, family).map(RouteCommand::Show),
        Some("get") => parse_lookup(words, family).map(RouteCommand::Get),
        Some("add") => add(words, family, Conflict::Refuse),
        Some("append") => add(words, family, Conflict::Append),
        Some("replace") => add(words, family, Conflict::Replace),
        Some("delete") => {
            let given = RouteWords::parse(words, family)?;
            given.into_selector().map(RouteCommand::Delete)
        }
        Some("change") => Err(
            "`change` is not supported; `replace` does the same and adds a missing route".into(),
        ),
        _ => Err(format!(
            "command {word:?} is unknown; try `forebay route --help`"
        )),
    }
}

fn add(words: Words, family: Option<Family>, conflict: Conflict) -> Result<RouteCommand, String> {
    let route = RouteWords::parse(words, family)?.into_route()?;
    Ok(RouteCommand::Add { route, conflict })
}

/// A route as far as it was given.
#[derive(Debug, Default)]
struct RouteWords {
    kind: Option<RouteKind>,
    prefix: Option<Network>,
    via: Option<IpAddr>,
    dev: Option<String>,
    src: Option<IpAddr>,
    metric: Option<u32>,
    table: Option<u32>,
    scope: Option<Scope>,
    protocol: Option<Protocol>,
    mtu: Option<u32>,
    onlink: bool,
}

impl RouteWords {
    fn parse(mut words: Words, family: Option<Family>) -> Result<Self, String> {
        let mut given = Self::default();
        let mut to = None;
        while let Some(word) = words.next() {
            match word {
                "via" => given.via = Some(gateway(&mut words)?),
                "dev" | "oif" => given.dev = Some(words.value(word)?.to_owned()),
                "src" => given.src = Some(words.address(word)?),
                "mtu" => given.mtu = Some(words.number(word)?),
                "onlink" => given.onlink = true,
                "to" => set_once(&mut to, words.value(word)?)?,
                _ if is_short_for(word, "metric")
                    || is_short_for(word, "priority") && word.len() > 2
                    || is_short_for(word, "preference") =>
                {
                    given.metric = Some(words.number(word)?);
                }
                _ if is_short_for(word, "table") => given.table = Some(words.table(word)?),
                _ if is_short_for(word, "protocol") => given.protocol = Some(protocol(&mut words)?),
                _ if is_short_for(word, "scope") => given.scope = Some(scope(&mut words)?),
                "nexthop" | "nhid" | "encap" => {
                    return Err(format!(
                        "{word:?} is not supported: a route has one next hop here"
                    ));
                }
                "throw" | "nat" | "anycast" | "xresolve" => {
                    return Err(format!("routes of type {word:?} are not supported"));
                }
                _ => match word.parse() {
                    Ok(kind) if given.kind.is_none() && to.is_none() => given.kind = Some(kind),
                    _ => set_once(&mut to, word)?,
                },
            }
        }
        let to = to.ok_or("the route needs a prefix: ADDRESS/LENGTH or \"default\"")?;
        given.prefix = Some(given.resolve(to, family)?);
        Ok(given)
    }

    /// The prefix, in the family that the other words speak of.
    fn resolve(&self, to: &str, asked: Option<Family>) -> Result<Network, String> {
        let prefix = if is_everything(to) {
            None
        } else {
            Some(words::network(to)?)
        };
        let addresses = prefix.map(|prefix| prefix.addr).into_iter();
        let family = common_family(asked, addresses.chain(self.via).chain(self.src))?;
        Ok(prefix.unwrap_or(everything(family.unwrap_or(Family::Inet))))
    }

    fn into_route(self) -> Result<Route, String> {
        Ok(Route {
            table: self.table.unwrap_or_else(|| usual_table(self.kind)),
            kind: self.kind.unwrap_or(RouteKind::Unicast).to_string(),
            prefix: self.prefix.ok_or("the route needs a prefix")?,
            via: self.via,
            dev: self.dev,
            src: self.src,
            metric: self.metric,
            scope: self.scope.map(|scope| scope.to_string()),
            protocol: self.protocol.unwrap_or(Protocol::BOOT).0,
            mtu: self.mtu,
            onlink: self.onlink,
        })
    }

    fn into_selector(self) -> Result<RouteSelector, String> {
        Ok(RouteSelector {
            table: self.table.unwrap_or_else(|| usual_table(self.kind)),
            prefix: self.prefix.ok_or("the route needs a prefix")?,
            kind: self.kind.map(|kind| kind.to_string()),
            via: self.via,
            dev: self.dev,
            src: self.src,
            metric: self.metric,
            scope: self.scope.map(|scope| scope.to_string()),
            protocol: self.protocol.map(|protocol| protocol.0),
        })
    }
}

/// Where iproute2 puts a route if nobody says.
fn usual_table(kind: Option<RouteKind>) -> u32 {
    match kind {
        Some(RouteKind::Local | RouteKind::Broadcast) => TableId::LOCAL.0,
        _ => TableId::MAIN.0,
    }
}

fn set_once<'a>(place: &mut Option<&'a str>, word: &'a str) -> Result<(), String> {
    match place {
        None => *place = Some(word),
        Some(prefix) => {
            return Err(format!(
                "{word:?} is garbage, or a second prefix beside {prefix:?}; \
                 `forebay route --help` lists the words"
            ));
        }
    }
    Ok(())
}

fn everything(family: Family) -> Network {
    let addr = match family {
        Family::Inet => Ipv4Addr::UNSPECIFIED.into(),
        Family::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    Network { addr, len: 0 }
}

/// `via ADDRESS`, or with the family named first.
fn gateway(words: &mut Words) -> Result<IpAddr, String> {
    let mut ahead = words.clone();
    if let Some("inet" | "inet6") = ahead.next() {
        *words = ahead;
    }
    words.address("via")
}

fn protocol(words: &mut Words) -> Result<Protocol, String> {
    let word = words.value("protocol")?;
    word.parse().map_err(|_| {
        format!("a protocol must follow: kernel, boot, static, or a number to 255, not {word:?}")
    })
}

fn scope(words: &mut Words) -> Result<Scope, String> {
    let word = words.value("scope")?;
    word.parse()
        .map_err(|_| format!("a scope must follow: global, site, link or host, not {word:?}"))
}

fn parse_lookup(mut words: Words, family: Option<Family>) -> Result<Lookup, String> {
    let (mut to, mut from, mut iif, mut oif) = (None, None, None, None);
    while let Some(word) = words.next() {
        match word {
            "from" | "src" => from = Some(words.address(word)?),
            "iif" => iif = Some(words.value(word)?.to_owned()),
            "oif" | "dev" => oif = Some(words.value(word)?.to_owned()),
            "to" => set_once(&mut to, words.value(word)?)?,
            _ => set_once(&mut to, word)?,
        }
    }
    let to = to.ok_or("`route get` needs an address")?;
    let to = words::network(to)?;
    if to.len != words::bits(to.addr) {
        return Err("`route get` needs an address, not a prefix".to_owned());
    }
    common_family(family, [to.addr].into_iter().chain(from))?;
    if iif.is_some() && oif.is_some() {
        return Err("a packet that came in by `iif` chooses no `oif`".to_owned());
    }
    Ok(Lookup {
        to: to.addr,
        from,
        iif,
        oif,
    })
}

fn parse_filter(mut words: Words, family: Option<Family>) -> Result<Filter, String> {
    let mut filter = Filter {
        table: Some(TableId::MAIN.0),
        ..Filter::default()
    };
    let (mut root, mut matching) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "dev" | "oif" => filter.dev = Some(words.value(word)?.to_owned()),
            "via" => filter.via = Some(gateway(&mut words)?),
            "src" => filter.src = Some(words.address(word)?),
            "type" => filter.kind = Some(kind(words.value(word)?)?),
            "root" => root = Some(words.value(word)?),
            "match" => matching = Some(words.value(word)?),
            "exact" | "to" => match words.value(word)? {
                "root" => root = Some(words.value("root")?),
                "match" => matching = Some(words.value("match")?),
                "exact" => (root, matching) = both(words.value("exact")?),
                prefix => (root, matching) = both(prefix),
            },
            _ if is_short_for(word, "table") => filter.table = table_or_all(&mut words)?,
            _ if is_short_for(word, "protocol") => {
                filter.protocol = Some(protocol(&mut words)?.0);
            }
            _ if is_short_for(word, "scope") => filter.scope = Some(scope(&mut words)?.to_string()),
            _ if word.parse::<RouteKind>().is_ok() => filter.kind = Some(word.to_owned()),
            prefix => (root, matching) = both(prefix),
        }
    }
    let in_family = |word: Option<&str>| match word {
        Some(word) if is_everything(word) => Ok(Some(everything(family.unwrap_or(Family::Inet)))),
        Some(word) => words::network(word).map(Some),
        None => Ok(None),
    };
    (filter.root, filter.matching) = (in_family(root)?, in_family(matching)?);
    let prefixes = filter
        .root
        .into_iter()
        .chain(filter.matching)
        .map(|prefix| prefix.addr);
    let family = common_family(family, prefixes.chain(filter.via).chain(filter.src))?;
    // As in ip(8): both families only where every table is asked for.
    filter.family = family.or(filter.table.map(|_| Family::Inet));
    Ok(filter)
}

fn both(prefix: &str) -> (Option<&str>, Option<&str>) {
    (Some(prefix), Some(prefix))
}

fn table_or_all(words: &mut Words) -> Result<Option<u32>, String> {
    let mut ahead = words.clone();
    if let Some("all") = ahead.next() {
        *words = ahead;
        return Ok(None);
    }
    // RT_TABLE_UNSPEC is all of them, too.
    let table = words.table("table")?;
    Ok(Some(table).filter(|table| *table != 0))
}

fn kind(word: &str) -> Result<String, String> {
    let kind = word
        .parse::<RouteKind>()
        .map_err(|error| error.to_string())?;
    Ok(kind.to_string())
}

impl Filter {
    pub(super) fn matches(&self, route: &Route) -> bool {
        fn agrees<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none() || wanted == found
        }
        agrees(self.dev.as_ref(), route.dev.as_ref())
            && agrees(self.via.as_ref(), route.via.as_ref())
            && agrees(self.src.as_ref(), route.src.as_ref())
            && agrees(self.protocol.as_ref(), Some(&route.protocol))
            && agrees(self.scope.as_ref(), route.scope.as_ref())
            && agrees(self.kind.as_ref(), Some(&route.kind))
            && self.root.is_none_or(|root| holds(&root, &route.prefix))
            && self
                .matching
                .is_none_or(|matching| holds(&route.prefix, &matching))
    }
}

fn holds(outer: &Network, inner: &Network) -> bool {
    let covers = |outer_bits: u128, inner_bits: u128, bits: u8| {
        let host_bits = u32::from(bits.saturating_sub(outer.len));
        outer.len <= inner.len
            && (outer_bits ^ inner_bits)
                .checked_shr(host_bits)
                .unwrap_or(0)
                == 0
    };
    match (outer.addr, inner.addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => covers(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => covers(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
