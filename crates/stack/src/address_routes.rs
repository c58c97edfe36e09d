//! The routes that come and go with an interface's address (Linux's `fib_add_ifaddr`).

use core::net::{IpAddr, Ipv4Addr};

use crate::fib::{
    Address, Fib, Prefix, Protocol, Route, RouteError, RouteKind, RouteMatch, Scope, TableId,
};
use crate::interface::{InterfaceAddress, LOOPBACK};
use crate::stack::Stack;

/// Metric of an IPv6 prefix that an address brings (Linux's `IP6_RT_PRIO_ADDRCONF`).
const IPV6_ADDRCONF_METRIC: u32 = 256;

/// Makes an address local and, while its interface is up, its prefix on-link and its directed
/// broadcast known.
pub(crate) fn add(stack: &Stack, ifindex: u32, own: InterfaceAddress, up: bool) {
    let is_due = |kind| up || kind == RouteKind::Local;
    match own.addr {
        IpAddr::V4(addr) => {
            let routes = routes_v4(ifindex, addr, own).into_iter();
            for (table, route) in routes.filter(|(_, route)| is_due(route.kind)) {
                append(&stack.fib4, table, route);
            }
        }
        IpAddr::V6(addr) => {
            let routes = routes_v6(ifindex, addr, own.prefix_len).into_iter();
            for (table, route) in routes.filter(|(_, route)| is_due(route.kind)) {
                append(&stack.fib6, table, route);
            }
        }
    }
}

fn append<A: Address>(fib: &Fib<A>, table: TableId, route: Route<A>) {
    let added = fib.append(table, route);
    // Several addresses may bring the same route, and one that is another's broadcast address can't
    // be preferred as a source (Linux leaves its prefix out as well). Nothing else can be wrong.
    debug_assert!(
        matches!(
            added,
            Ok(()) | Err(RouteError::Exists | RouteError::InvalidPrefSrc)
        ),
        "{route:?}: {added:?}"
    );
}

/// Takes back what no other address of the interface brings as well. The address is gone from its
/// interface already.
pub(crate) fn remove(stack: &Stack, ifindex: u32, own: InterfaceAddress) {
    let interfaces = stack.interfaces();
    let is_gone = !interfaces
        .iter()
        .any(|other| other.addresses.iter().any(|a| a.addr == own.addr));
    let siblings = interfaces.iter().filter(|other| other.index == ifindex);
    let siblings: Vec<_> = siblings
        .flat_map(|interface| &interface.addresses)
        .copied()
        .collect();
    match own.addr {
        IpAddr::V4(addr) => {
            let kept = siblings.iter().filter_map(|sibling| match sibling.addr {
                IpAddr::V4(addr) => Some(routes_v4(ifindex, addr, *sibling)),
                IpAddr::V6(_) => None,
            });
            withdraw(
                &stack.fib4,
                routes_v4(ifindex, addr, own),
                &kept.flatten().collect::<Vec<_>>(),
            );
            if is_gone {
                stack.fib4.flush_pref_src(addr);
            }
        }
        IpAddr::V6(addr) => {
            let kept = siblings.iter().filter_map(|sibling| match sibling.addr {
                IpAddr::V6(addr) => Some(routes_v6(ifindex, addr, sibling.prefix_len)),
                IpAddr::V4(_) => None,
            });
            withdraw(
                &stack.fib6,
                routes_v6(ifindex, addr, own.prefix_len),
                &kept.flatten().collect::<Vec<_>>(),
            );
            if is_gone {
                stack.fib6.flush_pref_src(addr);
            }
        }
    }
}

type TableRoute<A> = (TableId, Route<A>);

fn withdraw<A: Address>(fib: &Fib<A>, routes: Vec<TableRoute<A>>, kept: &[TableRoute<A>]) {
    for (table, route) in routes {
        if kept.contains(&(table, route)) {
            continue;
        }
        let what = RouteMatch {
            kind: Some(route.kind),
            oif: route.oif,
            pref_src: route.pref_src,
            protocol: Some(Protocol::KERNEL),
            ..RouteMatch::prefix(route.prefix)
        };
        // Somebody may have deleted it by hand.
        let _ = fib.delete(table, &what);
    }
}

fn routes_v4(ifindex: u32, addr: Ipv4Addr, own: InterfaceAddress) -> Vec<TableRoute<Ipv4Addr>> {
    let route = |kind, prefix| Route {
        protocol: Protocol::KERNEL,
        pref_src: Some(addr),
        ..Route::new(kind, prefix).dev(ifindex)
    };
    let mut routes = vec![(TableId::LOCAL, route(RouteKind::Local, Prefix::host(addr)))];
    if own.prefix_len < 32
        && let Ok(prefix) = Prefix::new(addr.masked(own.prefix_len), own.prefix_len)
    {
        // All of 127/8 is this host.
        let (table, kind) = match ifindex {
            LOOPBACK => (TableId::LOCAL, RouteKind::Local),
            _ => (TableId::MAIN, RouteKind::Unicast),
        };
        routes.push((table, route(kind, prefix)));
    }
    if let Some(broadcast) = own.broadcast().filter(|_| ifindex != LOOPBACK) {
        routes.push((
            TableId::LOCAL,
            route(RouteKind::Broadcast, Prefix::host(broadcast)),
        ));
    }
    routes
}

fn routes_v6<A: Address>(ifindex: u32, addr: A, prefix_len: u8) -> Vec<TableRoute<A>> {
    let route = |kind, prefix, metric| Route {
        protocol: Protocol::KERNEL,
        metric,
        scope: Scope::Universe,
        ..Route::new(kind, prefix).dev(ifindex)
    };
    let mut routes = vec![(
        TableId::LOCAL,
        route(RouteKind::Local, Prefix::host(addr), 0),
    )];
    if prefix_len < A::BITS
        && let Ok(prefix) = Prefix::new(addr.masked(prefix_len), prefix_len)
    {
        routes.push((
            TableId::MAIN,
            route(RouteKind::Unicast, prefix, IPV6_ADDRCONF_METRIC),
        ));
    }
    routes
}
