//! Routes and rules of a rig in either family.

use std::net::IpAddr;

use forebay_stack::fib::{
    Address, Fib, Prefix, Route, RouteKind, RouteMatch, Rule, RuleAction, RuleMatch, TableId,
};

use crate::rig::Rig;

impl Rig {
    /// Adds a host route to the main table through an interface.
    pub fn route_dev(&self, addr: IpAddr, interface: &str) {
        let len = if addr.is_ipv4() { 32 } else { 128 };
        self.add_route(
            TableId::MAIN,
            RouteKind::Unicast,
            (addr, len),
            Some(interface),
        );
    }

    /// Adds a route to a table.
    pub fn add_route(
        &self,
        table: TableId,
        kind: RouteKind,
        (addr, len): (IpAddr, u8),
        interface: Option<&str>,
    ) {
        let oif = interface.map(|name| self.ifindex(name));
        match addr {
            IpAddr::V4(addr) => add(self.stack.fib4(), table, kind, addr, len, oif),
            IpAddr::V6(addr) => add(self.stack.fib6(), table, kind, addr, len, oif),
        }
    }

    /// Deletes the route to a prefix from a table.
    pub fn delete_route(&self, table: TableId, (addr, len): (IpAddr, u8)) {
        match addr {
            IpAddr::V4(addr) => delete(self.stack.fib4(), table, addr, len),
            IpAddr::V6(addr) => delete(self.stack.fib6(), table, addr, len),
        }
    }

    /// Adds a rule for packets from a host.
    pub fn add_rule_from(&self, priority: u32, from: IpAddr, action: RuleAction) {
        match from {
            IpAddr::V4(from) => add_rule(self.stack.fib4(), priority, Some(from), action),
            IpAddr::V6(from) => add_rule(self.stack.fib6(), priority, Some(from), action),
        }
    }

    /// Adds a rule for all packets of the family of `like`.
    pub fn add_rule(&self, priority: u32, like: IpAddr, action: RuleAction) {
        match like {
            IpAddr::V4(_) => add_rule(self.stack.fib4(), priority, None, action),
            IpAddr::V6(_) => add_rule(self.stack.fib6(), priority, None, action),
        }
    }

    /// Deletes the first rule of this priority in the family of `like`.
    pub fn delete_rule(&self, priority: u32, like: IpAddr) {
        let result = match like {
            IpAddr::V4(_) => self
                .stack
                .fib4()
                .delete_rule(&RuleMatch::priority(priority)),
            IpAddr::V6(_) => self
                .stack
                .fib6()
                .delete_rule(&RuleMatch::priority(priority)),
        };
        result.expect("a rule that is there");
    }
}

fn add<A: Address>(
    fib: &Fib<A>,
    table: TableId,
    kind: RouteKind,
    addr: A,
    len: u8,
    oif: Option<u32>,
) {
    let mut route = Route::new(kind, Prefix::new(addr, len).expect("a prefix"));
    if let Some(oif) = oif {
        route = route.dev(oif);
    }
    fib.add(table, route).expect("a new route");
}

fn delete<A: Address>(fib: &Fib<A>, table: TableId, addr: A, len: u8) {
    let prefix = Prefix::new(addr, len).expect("a prefix");
    fib.delete(table, &RouteMatch::prefix(prefix))
        .expect("a route that is there");
}

fn add_rule<A: Address>(fib: &Fib<A>, priority: u32, from: Option<A>, action: RuleAction) {
    let from = from.map(Prefix::host);
    let rule = Rule {
        from,
        ..Rule::all(priority, action)
    };
    fib.add_rule(rule).expect("a new rule");
}
