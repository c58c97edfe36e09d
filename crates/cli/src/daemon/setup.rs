//! Carries a configuration out on a stack: devices, knobs, addresses, rules, routes, services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::Context;
use forebay::Stack;
use forebay::fib::{self, Address, Fib, Prefix, RouteKind};
use forebay::interface::LOOPBACK;
use forebay::sysctl::{self, SysctlError};

use super::captures;
use super::devices::Devices;
use super::services::{self, Bound};
use crate::config::{Config, Net, Problem, Route, Rule, RuleAction, Sysctl, suggestion};

/// A knob set on the command line, which wins over the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Knob {
    name: String,
    value: String,
}

impl FromStr for Knob {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text
            .split_once('=')
            .ok_or("expected NAME=VALUE, as in net.ipv4.ip_early_demux=0")?;
        Ok(Self {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    }
}

impl Knob {
    /// As it was given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn set(&self, stack: &Stack) -> anyhow::Result<()> {
        let Self { name, value } = self;
        let set = stack.inner().set_sysctl(name, value);
        set.with_context(|| format!("--set {name}={value}"))
    }
}

/// Everything but what runs: the services are bound, and to be started.
pub(super) fn set_up(
    stack: &Stack,
    config: &Config,
    knobs: &[Knob],
    devices: &mut Devices,
) -> anyhow::Result<Vec<Bound>> {
    let services = captures::check(config).and_then(|()| configure(stack, config, devices));
    let services = services.map_err(|problem| config.source.explain(problem))?;
    knobs.iter().try_for_each(|knob| knob.set(stack))?;
    Ok(services)
}

fn configure(stack: &Stack, config: &Config, devices: &mut Devices) -> Result<Vec<Bound>, Problem> {
    let for_devices = set_sysctls_of_the_stack(stack, config)?;
    for device in &config.devices {
        let (name, opened) = (&device.name, devices.open(device)?);
        let added = stack.add_device(name.get_ref(), opened);
        let ifindex = added.map_err(|error| Problem::new(name.span(), error.to_string()))?;
        for address in &device.addresses {
            let Net { addr, len } = *address.get_ref();
            let added = stack.inner().add_address(ifindex, addr, len);
            added.map_err(|error| Problem::new(address.span(), error.to_string()))?;
        }
    }
    for knob in for_devices {
        set_sysctl(stack, knob).map_err(|error| sysctl_problem(knob, &error))?;
    }
    for rule in &config.rules {
        add_rule(stack, rule)?;
    }
    for route in &config.routes {
        add_route(stack, route)?;
    }
    services::bind(stack, config)
}

/// Sets all knobs but those of devices, which don't exist yet, and returns the latter: what is
/// said about `default` has to be said before.
fn set_sysctls_of_the_stack<'c>(
    stack: &Stack,
    config: &'c Config,
) -> Result<Vec<&'c Sysctl>, Problem> {
    let mut for_devices = Vec::new();
    for knob in &config.sysctls {
        match set_sysctl(stack, knob) {
            Ok(()) => {}
            Err(SysctlError::NotFound(_)) => for_devices.push(knob),
            Err(error) => return Err(sysctl_problem(knob, &error)),
        }
    }
    Ok(for_devices)
}

fn set_sysctl(stack: &Stack, knob: &Sysctl) -> Result<(), SysctlError> {
    let (name, value) = (knob.name.get_ref(), knob.value.get_ref());
    stack.inner().set_sysctl(name, value)
}

fn sysctl_problem(knob: &Sysctl, error: &SysctlError) -> Problem {
    match error {
        SysctlError::NotFound(name) => {
            let problem = Problem::new(knob.name.span(), format!("no knob is called {name:?}"));
            problem.help(similar_knob(name))
        }
        SysctlError::Invalid {
            name,
            value,
            expected,
        } => {
            let what = format!("{name}: found {value:?}, expected {expected}");
            Problem::new(knob.value.span(), what)
        }
        SysctlError::ReadOnly(_) => Problem::new(knob.name.span(), error.to_string()),
    }
}

fn similar_knob(name: &str) -> String {
    let names: Vec<_> = sysctl::names()
        .map(|name| name.replace('*', "all"))
        .chain(["net.ipv4.ip_forward".to_owned()])
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    match suggestion(name, &names) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`forebay sysctl -a` lists those of a running stack".to_owned(),
    }
}

fn add_rule(stack: &Stack, rule: &Rule) -> Result<(), Problem> {
    let network = rule.from.as_ref().or(rule.to.as_ref());
    let family = network.map(|net| net.get_ref().addr);
    if family.is_none_or(|addr| addr.is_ipv4()) {
        add_rule_of(stack, stack.inner().fib4(), rule, v4)?;
    }
    if family.is_none_or(|addr| addr.is_ipv6()) {
        add_rule_of(stack, stack.inner().fib6(), rule, v6)?;
    }
    Ok(())
}

fn add_rule_of<A: Address>(
    stack: &Stack,
    fib: &Fib<A>,
    rule: &Rule,
    pick: fn(IpAddr) -> Option<A>,
) -> Result<(), Problem> {
    let net = |net: &Option<toml::Spanned<Net>>| {
        let net = net.as_ref()?.get_ref();
        Prefix::new(pick(net.addr)?, net.len).ok()
    };
    let priority = rule
        .priority
        .unwrap_or_else(|| fib.unspecified_rule_priority());
    let added = fib.add_rule(fib::Rule {
        priority,
        from: net(&rule.from),
        to: net(&rule.to),
        iif: rule
            .iif
            .as_ref()
            .and_then(|name| index(stack, name.get_ref())),
        action: match rule.action {
            RuleAction::Lookup(table) => fib::RuleAction::Lookup(table),
            RuleAction::Blackhole => fib::RuleAction::Blackhole,
            RuleAction::Unreachable => fib::RuleAction::Unreachable,
            RuleAction::Prohibit => fib::RuleAction::Prohibit,
        },
    });
    added.map_err(|error| Problem::new(rule.span.clone(), error.to_string()))
}

fn add_route(stack: &Stack, route: &Route) -> Result<(), Problem> {
    match route.to.addr {
        IpAddr::V4(_) => add_route_of(stack, stack.inner().fib4(), route, v4),
        IpAddr::V6(_) => add_route_of(stack, stack.inner().fib6(), route, v6),
    }
}

fn add_route_of<A: Address>(
    stack: &Stack,
    fib: &Fib<A>,
    route: &Route,
    pick: fn(IpAddr) -> Option<A>,
) -> Result<(), Problem> {
    let problem = |what: String| Problem::new(route.span.clone(), what);
    let addr = pick(route.to.addr).unwrap_or(A::UNSPECIFIED);
    let prefix = Prefix::new(addr, route.to.len).map_err(|error| problem(error.to_string()))?;
    let mut added = fib::Route {
        pref_src: route.src.as_ref().and_then(|src| pick(*src.get_ref())),
        protocol: fib::Protocol::STATIC,
        mtu: route.mtu,
        onlink: route.onlink,
        ..fib::Route::new(route.kind, prefix)
    };
    if let Some(metric) = route.metric {
        added.metric = metric;
    }
    if let Some(via) = route.via.as_ref().and_then(|via| pick(*via.get_ref())) {
        added = added.via(via);
    }
    let dev = route.dev.as_ref();
    if let Some(ifindex) = dev.and_then(|name| index(stack, name.get_ref())) {
        added = added.dev(ifindex);
    } else if route.kind == RouteKind::Local {
        added = added.dev(LOOPBACK);
    }
    let added = fib.add(route.table, added);
    added.map_err(|error| problem(error.to_string()))
}

fn index(stack: &Stack, name: &str) -> Option<u32> {
    stack
        .inner()
        .interface_named(name)
        .map(|interface| interface.index)
}

fn v4(addr: IpAddr) -> Option<Ipv4Addr> {
    match addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    }
}

fn v6(addr: IpAddr) -> Option<Ipv6Addr> {
    match addr {
        IpAddr::V6(addr) => Some(addr),
        IpAddr::V4(_) => None,
    }
}
