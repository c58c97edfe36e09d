//! Routes and rules of one family, between the words of the protocol and the stack's types.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay::Stack;
use forebay::fib::{
    self, Address, Fib, Prefix, Protocol, RouteKind, RouteMatch, RuleMatch, TableId,
};

use super::{InterfaceNames, Result, ifindex};
use crate::control::protocol::{
    Conflict, Errno, Failure, Lookup, Network, Path, Route, RouteSelector, Rule, RuleAction,
    RuleSelector,
};

/// The routing of a family, whichever.
pub(super) trait Routing {
    fn routes(&self, table: Option<u32>) -> Vec<Route>;
    fn add_route(&self, route: &Route, conflict: Conflict) -> Result<()>;
    fn delete_route(&self, selector: &RouteSelector) -> Result<()>;
    fn rules(&self) -> Vec<Rule>;
    fn add_rule(&self, selector: &RuleSelector) -> Result<()>;
    fn delete_rule(&self, selector: &RuleSelector) -> Result<()>;
}

/// The routing of one family of a stack.
pub(super) struct FamilyRouting<'a, A: Address> {
    stack: &'a Stack,
    fib: &'a Fib<A>,
}

/// What the protocol needs of a family beyond what routing does.
pub(super) trait WireAddress: Address + Into<IpAddr> {
    fn from_ip(addr: IpAddr) -> Option<Self>;
    /// The scope of routes to elsewhere: IPv6 has but one.
    const UNICAST_SCOPE: Option<fib::Scope>;
}

impl WireAddress for Ipv4Addr {
    const UNICAST_SCOPE: Option<fib::Scope> = None;

    fn from_ip(addr: IpAddr) -> Option<Self> {
        match addr {
            IpAddr::V4(addr) => Some(addr),
            IpAddr::V6(_) => None,
        }
    }
}

impl WireAddress for Ipv6Addr {
    const UNICAST_SCOPE: Option<fib::Scope> = Some(fib::Scope::Universe);

    fn from_ip(addr: IpAddr) -> Option<Self> {
        match addr {
            IpAddr::V6(addr) => Some(addr),
            IpAddr::V4(_) => None,
        }
    }
}

impl<'a, A: WireAddress> FamilyRouting<'a, A> {
    pub(super) fn new(stack: &'a Stack, fib: &'a Fib<A>) -> Self {
        Self { stack, fib }
    }
}

impl<A: WireAddress> Routing for FamilyRouting<'_, A> {
    fn routes(&self, table: Option<u32>) -> Vec<Route> {
        let names = InterfaceNames::of(self.stack);
        let tables = match table {
            // RT_TABLE_UNSPEC
            None | Some(0) => self.fib.tables(),
            Some(table) => vec![TableId(table)],
        };
        let list = |table| {
            self.fib
                .routes(table)
                .into_iter()
                .map(move |route| (table, route))
        };
        let routes = tables.into_iter().flat_map(list);
        routes
            .map(|(table, route)| to_wire(table, &route, &names))
            .collect()
    }

    fn add_route(&self, route: &Route, conflict: Conflict) -> Result<()> {
        let table = table_id(route.table);
        let route = self.read_route(route)?;
        match conflict {
            Conflict::Refuse => self.fib.add(table, route)?,
            Conflict::Append => self.fib.append(table, route)?,
            Conflict::Replace => self.fib.replace(table, route)?,
        }
        Ok(())
    }

    fn delete_route(&self, selector: &RouteSelector) -> Result<()> {
        let what = RouteMatch {
            prefix: prefix(selector.prefix)?,
            metric: selector.metric,
            kind: selector.kind.as_deref().map(str::parse).transpose()?,
            gateway: selector.via.map(address).transpose()?,
            oif: self.ifindex(selector.dev.as_deref())?,
            pref_src: selector.src.map(address).transpose()?,
            scope: selector.scope.as_deref().map(str::parse).transpose()?,
            protocol: selector.protocol.map(Protocol),
        };
        self.fib.delete(table_id(selector.table), &what)?;
        Ok(())
    }

    fn rules(&self) -> Vec<Rule> {
        let names = InterfaceNames::of(self.stack);
        let rules = self.fib.rules().into_iter();
        let rules = rules.map(|rule| Rule {
            priority: rule.priority,
            from: rule.from.map(network),
            to: rule.to.map(network),
            iif: rule.iif.map(|ifindex| names.get(ifindex)),
            action: match rule.action {
                fib::RuleAction::Lookup(TableId(table)) => RuleAction::Lookup(table),
                fib::RuleAction::Blackhole => RuleAction::Blackhole,
                fib::RuleAction::Unreachable => RuleAction::Unreachable,
                fib::RuleAction::Prohibit => RuleAction::Prohibit,
            },
        });
        rules.collect()
    }

    fn add_rule(&self, selector: &RuleSelector) -> Result<()> {
        let priority = selector.priority;
        let rule = fib::Rule {
            priority: priority.unwrap_or_else(|| self.fib.unspecified_rule_priority()),
            from: selector.from.map(prefix).transpose()?,
            to: selector.to.map(prefix).transpose()?,
            iif: self.ifindex(selector.iif.as_deref())?,
            action: selector
                .action
                .map_or(fib::RuleAction::Lookup(TableId::MAIN), action),
        };
        self.fib.add_rule(rule)?;
        Ok(())
    }

    fn delete_rule(&self, selector: &RuleSelector) -> Result<()> {
        let what = RuleMatch {
            priority: selector.priority,
            from: selector.from.map(prefix).transpose()?,
            to: selector.to.map(prefix).transpose()?,
            iif: self.ifindex(selector.iif.as_deref())?,
            action: selector.action.map(action),
        };
        self.fib.delete_rule(&what)?;
        Ok(())
    }
}

impl<A: WireAddress> FamilyRouting<'_, A> {
    fn read_route(&self, route: &Route) -> Result<fib::Route<A>> {
        let kind: RouteKind = route.kind.parse()?;
        let usual = fib::Route::new(kind, prefix(route.prefix)?);
        let usual = match route.via {
            Some(gateway) => usual.via(address(gateway)?),
            None => usual,
        };
        let scope = match &route.scope {
            Some(scope) => scope.parse()?,
            None => A::UNICAST_SCOPE.unwrap_or(usual.scope),
        };
        Ok(fib::Route {
            metric: route.metric.unwrap_or(usual.metric),
            oif: self.ifindex(route.dev.as_deref())?,
            pref_src: route.src.map(address).transpose()?,
            scope,
            protocol: Protocol(route.protocol),
            mtu: path_mtu(route.mtu)?,
            onlink: route.onlink,
            ..usual
        })
    }

    fn ifindex(&self, name: Option<&str>) -> Result<Option<u32>> {
        name.map(|name| ifindex(self.stack, name)).transpose()
    }
}

/// The way that a packet would take now.
pub(super) fn look_up(stack: &Stack, lookup: &Lookup) -> Result<Path> {
    let ifindex =
        |name: &Option<String>| name.as_deref().map(|name| ifindex(stack, name)).transpose();
    let (iif, oif) = (ifindex(&lookup.iif)?, ifindex(&lookup.oif)?);
    let found = stack
        .inner()
        .look_up_route(lookup.to, lookup.from, iif, oif)?;
    let now = stack.now();
    let learnt = match iif {
        None => stack.inner().path_mtu(now, lookup.to),
        Some(_) => None,
    };
    let names = InterfaceNames::of(stack);
    Ok(Path {
        kind: found.kind.to_string(),
        via: found.gateway,
        dev: found.oif.map(|oif| names.get(oif)),
        src: found.src,
        mtu: learnt.map(|path| path.mtu).or(found.mtu),
        expires: learnt.map(|path| (path.expires - now).as_secs()),
    })
}

fn to_wire<A: WireAddress>(table: TableId, route: &fib::Route<A>, names: &InterfaceNames) -> Route {
    Route {
        table: table.0,
        kind: route.kind.to_string(),
        prefix: network(route.prefix),
        via: route.gateway.map(Into::into),
        dev: route.oif.map(|oif| names.get(oif)),
        src: route.pref_src.map(Into::into),
        metric: Some(route.metric),
        scope: Some(route.scope.to_string()),
        protocol: route.protocol.0,
        mtu: route.mtu,
        onlink: route.onlink,
    }
}

fn network<A: WireAddress>(prefix: Prefix<A>) -> Network {
    Network {
        addr: prefix.addr().into(),
        len: prefix.len(),
    }
}

fn prefix<A: WireAddress>(network: Network) -> Result<Prefix<A>> {
    let addr: A = address(network.addr)?;
    let prefix =
        Prefix::new(addr, network.len).map_err(|error| Failure::new(Errno::Inval, error))?;
    if prefix.addr() != addr {
        let what = format!(
            "{addr}/{} has bits set behind its length; the prefix is {prefix}",
            network.len
        );
        return Err(Failure::new(Errno::Inval, what));
    }
    Ok(prefix)
}

fn address<A: WireAddress>(addr: IpAddr) -> Result<A> {
    let what = || format!("{addr} is of the other family than the rest");
    A::from_ip(addr).ok_or_else(|| Failure::new(Errno::Inval, what()))
}

/// The table of this number; none in particular, RT_TABLE_UNSPEC, means main.
fn table_id(number: u32) -> TableId {
    match number {
        0 => TableId::MAIN,
        number => TableId(number),
    }
}

/// The MTU of a path. As in Linux, 0 is that of the device; what is below the least that IPv4
/// knows (RFC 791 section 3.2), or above the longest packet, is a slip.
fn path_mtu(mtu: Option<u32>) -> Result<Option<u32>> {
    match mtu {
        None | Some(0) => Ok(None),
        Some(68..=65_535) => Ok(mtu),
        Some(mtu) => {
            let what = format!("{mtu} is no MTU of a path: 68 to 65535, or 0 for the device's");
            Err(Failure::new(Errno::Inval, what))
        }
    }
}

fn action(action: RuleAction) -> fib::RuleAction {
    match action {
        RuleAction::Lookup(table) => fib::RuleAction::Lookup(table_id(table)),
        RuleAction::Blackhole => fib::RuleAction::Blackhole,
        RuleAction::Unreachable => fib::RuleAction::Unreachable,
        RuleAction::Prohibit => fib::RuleAction::Prohibit,
    }
}
