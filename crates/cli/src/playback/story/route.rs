//! The rule, table and route that decided about a packet, in words.

use std::fmt::Write as _;
use std::net::IpAddr;

use forebay::core::packet::Verdict;
use forebay::core::trace::{Story, Summary};
use forebay::drop::DropReason;
use forebay::fib::{Address, Explanation, Fib, LookupError, Query, RouteKind, Rule, RuleAction};

use crate::playback::Rig;

/// The rule and the route that decided, if any was asked for.
pub(super) fn route(rig: &Rig, summary: &Summary, story: &Story) -> Option<String> {
    let routed = story.routed?;
    let was_refused_by_route = matches!(
        routed.verdict,
        Verdict::Reject(_)
            | Verdict::Drop(
                DropReason::Blackhole | DropReason::IpInNoRoutes | DropReason::IpNotForwarding
            )
    );
    let was_decided = story.validated?.verdict != Verdict::Undecided;
    if was_decided || !(routed.has_route || was_refused_by_route) {
        return None;
    }
    let stack = rig.stack().inner();
    let iif = rig.iif();
    Some(match (summary.src, summary.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => explain(rig, stack.fib4(), src, dst, iif),
        (IpAddr::V6(src), IpAddr::V6(dst)) => explain(rig, stack.fib6(), src, dst, iif),
        _ => return None,
    })
}

fn explain<A: Address>(rig: &Rig, fib: &Fib<A>, src: A, dst: A, iif: u32) -> String {
    let query = Query {
        dst,
        src,
        iif,
        own: None,
    };
    match fib.explain(&query) {
        Some(explanation) => explained(rig, &explanation),
        None => format!("no table has a route: {}", LookupError::NoRoute),
    }
}

fn explained<A: Address>(rig: &Rig, explanation: &Explanation<A>) -> String {
    let Explanation { rule, found } = explanation;
    let by_rule = rule_in_words(rig, rule);
    let Some((table, route)) = found else {
        return by_rule;
    };
    let mut words = match route.kind {
        RouteKind::Unicast => route.prefix.to_string(),
        kind => format!("{kind} {}", route.prefix),
    };
    if let Some(gateway) = route.gateway {
        let _ = write!(words, " via {gateway}");
    }
    if let Some(oif) = route.oif {
        let _ = write!(words, " dev {}", interface_name(rig, oif));
    }
    format!("{words} (table {table}, {by_rule})")
}

fn rule_in_words<A: Address>(rig: &Rig, rule: &Rule<A>) -> String {
    let mut words = format!("rule {}:", rule.priority);
    let _ = match rule.from {
        Some(from) => write!(words, " from {from}"),
        None => write!(words, " from all"),
    };
    if let Some(to) = rule.to {
        let _ = write!(words, " to {to}");
    }
    if let Some(iif) = rule.iif {
        let _ = write!(words, " iif {}", interface_name(rig, iif));
    }
    let _ = match rule.action {
        RuleAction::Lookup(table) => write!(words, " lookup {table}"),
        RuleAction::Blackhole => write!(words, " blackhole"),
        RuleAction::Unreachable => write!(words, " unreachable"),
        RuleAction::Prohibit => write!(words, " prohibit"),
    };
    words
}

fn interface_name(rig: &Rig, ifindex: u32) -> String {
    let interface = rig.stack().inner().interface(ifindex);
    interface.map_or_else(|| format!("if{ifindex}"), |interface| interface.name)
}
