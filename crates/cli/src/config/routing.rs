//! `[[route]]` and `[[rule]]`: as `ip route add` and `ip rule add` take them.

use std::net::IpAddr;
use std::ops::Range;

use forebay::fib::{RouteKind, TableId};
use toml::Spanned;

use super::problem::Problem;
use super::reader::{Read, Table, Value, number, text, unexpected};
use super::units::Net;

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    /// The whole entry.
    pub(crate) span: Range<usize>,
    pub(crate) to: Net,
    pub(crate) via: Option<Spanned<IpAddr>>,
    pub(crate) dev: Option<Spanned<String>>,
    pub(crate) metric: Option<u32>,
    pub(crate) table: TableId,
    pub(crate) kind: RouteKind,
    /// Source address of packets of our own.
    pub(crate) src: Option<Spanned<IpAddr>>,
    /// MTU of the path, in bytes.
    pub(crate) mtu: Option<u32>,
    /// The gateway is on the link of `dev` whatever other routes say.
    pub(crate) onlink: bool,
}

/// A rule: which table packets are looked up in, or that they are refused.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) span: Range<usize>,
    pub(crate) priority: Option<u32>,
    pub(crate) from: Option<Spanned<Net>>,
    pub(crate) to: Option<Spanned<Net>>,
    pub(crate) iif: Option<Spanned<String>>,
    pub(crate) action: RuleAction,
}

/// What a rule does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RuleAction {
    Lookup(TableId),
    Blackhole,
    Unreachable,
    Prohibit,
}

const ROUTE_KINDS: &[(&str, RouteKind)] = &[
    ("unicast", RouteKind::Unicast),
    ("local", RouteKind::Local),
    ("broadcast", RouteKind::Broadcast),
    ("multicast", RouteKind::Multicast),
    ("blackhole", RouteKind::Blackhole),
    ("unreachable", RouteKind::Unreachable),
    ("prohibit", RouteKind::Prohibit),
];

const REFUSALS: &[(&str, RuleAction)] = &[
    ("blackhole", RuleAction::Blackhole),
    ("unreachable", RuleAction::Unreachable),
    ("prohibit", RuleAction::Prohibit),
];

impl Route {
    pub(super) fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let via: Option<Spanned<IpAddr>> = table.optional("via")?;
        let to = table.value("to").ok_or_else(|| table.missing("to"))?;
        let route = Self {
            span: table.span(),
            to: destination(to, via.as_ref()).map_err(|problem| problem.of_key("to"))?,
            via,
            dev: table.optional("dev")?,
            metric: table.number("metric", 0..=u64::from(u32::MAX))?,
            table: table.optional("table")?.unwrap_or(TableId::MAIN),
            kind: table
                .word("type", ROUTE_KINDS)?
                .unwrap_or(RouteKind::Unicast),
            src: table.optional("src")?,
            mtu: path_mtu(&mut table)?,
            onlink: table.optional("onlink")?.unwrap_or(false),
        };
        table.finish()?;
        let addresses = route.via.iter().chain(&route.src);
        for addr in addresses {
            same_family(addr.span(), *addr.get_ref(), route.to.addr)?;
        }
        if route.kind.is_refusal() && (route.via.is_some() || route.dev.is_some()) {
            let what = "a route that refuses packets has neither `via` nor `dev`";
            return Err(Problem::new(route.span, what));
        }
        if route.kind == RouteKind::Unicast && route.via.is_none() && route.dev.is_none() {
            let what = "a unicast route needs `via`, `dev` or both";
            return Err(Problem::new(route.span, what));
        }
        Ok(route)
    }
}

/// As `ip route` has it, 0 leaves the MTU to the device.
fn path_mtu(table: &mut Table<'_, '_>) -> Result<Option<u32>, Problem> {
    let Some(value) = table.value("mtu") else {
        return Ok(None);
    };
    match number(value, &(0..=65_535)) {
        Ok(0) => Ok(None),
        Ok(mtu @ 68..) => Ok(Some(mtu)),
        _ => {
            let expected = "a whole number from 68 to 65535, or 0";
            Err(unexpected(value, expected).of_key("mtu"))
        }
    }
}

/// A network; `default` is that of the gateway's family.
fn destination(value: &Value<'_>, via: Option<&Spanned<IpAddr>>) -> Result<Net, Problem> {
    if value.get_ref().as_str() != Some("default") {
        return network(value);
    }
    match via.map(Spanned::get_ref) {
        Some(IpAddr::V4(_)) => Ok(Net {
            addr: IpAddr::from([0_u8; 4]),
            len: 0,
        }),
        Some(IpAddr::V6(_)) => Ok(Net {
            addr: IpAddr::from([0_u8; 16]),
            len: 0,
        }),
        None => Err(unexpected(
            value,
            "\"0.0.0.0/0\" or \"::/0\", as no `via` says which family",
        )),
    }
}

/// A network: an address with nothing set behind the prefix.
fn network(value: &Value<'_>) -> Result<Net, Problem> {
    let expected =
        "\"default\", or a network with its prefix length: \"10.9.0.0/24\", \"fd09::/64\"";
    let net: Net = text(value, expected, |text| text.parse().ok())?;
    let masked = net.masked();
    if masked != net {
        let what = format!("{net} has bits set behind the prefix length");
        return Err(Problem::new(value.span(), what).help(format!("the network is \"{masked}\"")));
    }
    Ok(net)
}

fn same_family(span: Range<usize>, addr: IpAddr, other: IpAddr) -> Result<(), Problem> {
    if addr.is_ipv4() == other.is_ipv4() {
        return Ok(());
    }
    let name = |addr: IpAddr| if addr.is_ipv4() { "IPv4" } else { "IPv6" };
    let expected = format!("an {} address, as the destination is one", name(other));
    Err(Problem::expected(
        span,
        &format!("{addr}, which is {}", name(addr)),
        &expected,
    ))
}

impl Rule {
    pub(super) fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let lookup = table.optional("table")?.map(RuleAction::Lookup);
        let refusal = table.word("type", REFUSALS)?;
        let rule = Self {
            span: table.span(),
            priority: table.number("priority", 0..=u64::from(u32::MAX))?,
            from: network_at(&mut table, "from")?,
            to: network_at(&mut table, "to")?,
            iif: table.optional("iif")?,
            action: match (lookup, refusal) {
                (Some(action), None) | (None, Some(action)) => action,
                _ => {
                    let what = "a rule needs either a `table` to look in or a `type` of refusal";
                    return Err(Problem::new(table.span(), what));
                }
            },
        };
        table.finish()?;
        if let (Some(from), Some(to)) = (&rule.from, &rule.to) {
            same_family(from.span(), from.get_ref().addr, to.get_ref().addr)?;
        }
        Ok(rule)
    }
}

fn network_at(
    table: &mut Table<'_, '_>,
    key: &'static str,
) -> Result<Option<Spanned<Net>>, Problem> {
    let read = |value: &Value<'_>| Ok(Spanned::new(value.span(), network(value)?));
    let net = table.value(key).map(read).transpose();
    net.map_err(|problem: Problem| problem.of_key(key))
}

impl Read for TableId {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let expected = "a table: \"main\", \"local\", \"default\" or a number up to 4294967295";
        let word = match value.get_ref().as_integer() {
            Some(integer) => integer.as_str(),
            None => value.get_ref().as_str().unwrap_or_default(),
        };
        match word.parse() {
            // RT_TABLE_UNSPEC: none in particular.
            Ok(Self(0)) => Ok(Self::MAIN),
            Ok(table) => Ok(table),
            Err(_) => Err(unexpected(value, expected)),
        }
    }
}
