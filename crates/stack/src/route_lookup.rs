//! Asking where a packet would go, without sending one: `ip route get`.

use core::net::IpAddr;

use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::fib::{LookupError, NextHop, Query, RouteKind};
use crate::interface::LOOPBACK;
use crate::stack::Stack;
use crate::time::Instant;
use crate::transmit;

/// The way that a packet would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRoute {
    /// Sent on, delivered here, or to a group or broadcast address.
    pub kind: RouteKind,
    /// The router that it goes to; none if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the interface that it leaves by; the loopback's if it ends here.
    pub oif: Option<u32>,
    /// The source that a packet of our own without one gets; the packet's if it had one.
    pub src: Option<IpAddr>,
    /// The path's MTU in bytes, if a route lowers the interface's.
    pub mtu: Option<u32>,
}

impl Stack {
    /// Finds the way of a packet to `dst`: of one of our own, bound to the interface `oif` if that
    /// is given, or of one that came in by `iif`. Counts nothing.
    ///
    /// # Errors
    ///
    /// [`LookupError`]: why the packet would go nowhere.
    pub fn look_up_route(
        &self,
        dst: IpAddr,
        src: Option<IpAddr>,
        iif: Option<u32>,
        oif: Option<u32>,
    ) -> Result<FoundRoute, LookupError> {
        // Nothing in a lookup depends on the time.
        self.with_context(Instant::from_nanos(0), |cx| match dst {
            IpAddr::V4(dst) => look_up::<V4>(cx, dst, src.and_then(V4::from_ip), iif, oif),
            IpAddr::V6(dst) => look_up::<V6>(cx, dst, src.and_then(V6::from_ip), iif, oif),
        })
    }
}

fn look_up<F: Family>(
    cx: &Context<'_>,
    dst: F::Addr,
    src: Option<F::Addr>,
    iif: Option<u32>,
    oif: Option<u32>,
) -> Result<FoundRoute, LookupError> {
    let query = Query {
        dst,
        src: src.unwrap_or(F::UNSPECIFIED),
        iif: iif.unwrap_or(LOOPBACK),
        own: None,
    };
    let looked_up = F::routes(cx.view).lookup(&query);
    let by_route = looked_up.map(|found| FoundRoute::new::<F>(found.next_hop, src));
    if iif.is_some() {
        return by_route;
    }
    let is_broadcast = matches!(dst.into(), IpAddr::V4(dst) if dst.is_broadcast());
    if by_route.is_err() && !is_broadcast && !F::is_multicast(dst) {
        // Asking on would count a packet that there is not.
        return by_route;
    }
    match transmit::route_output::<F>(cx, dst, src, oif) {
        Ok(route) => {
            let by_route = by_route.ok().filter(|found| found.oif == Some(route.oif));
            Ok(FoundRoute {
                kind: route.kind,
                gateway: by_route.and_then(|found| found.gateway),
                oif: Some(route.oif),
                src: Some(route.src.into()),
                mtu: by_route.and_then(|found| found.mtu),
            })
        }
        // There is a way, but no address to send from, or the interface is down.
        Err(_) => by_route,
    }
}

impl FoundRoute {
    fn new<F: Family>(next_hop: &NextHop<F::Addr>, src: Option<F::Addr>) -> Self {
        let oif = match next_hop.kind {
            RouteKind::Local => LOOPBACK,
            _ => next_hop.oif,
        };
        Self {
            kind: next_hop.kind,
            gateway: next_hop.gateway.map(Into::into),
            oif: Some(oif).filter(|oif| *oif != 0),
            src: src.map(Into::into),
            mtu: next_hop.mtu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::{Prefix, Route, TableId};
    use crate::interface::InterfaceConfig;
    use crate::stack::StackConfig;

    fn stack() -> (Stack, u32) {
        let stack = Stack::new(&StackConfig::default());
        let tun = stack.add_interface(InterfaceConfig::new("tun0")).unwrap();
        for (addr, len) in [("10.0.0.1", 24), ("fd00::1", 64)] {
            stack.add_address(tun, addr.parse().unwrap(), len).unwrap();
        }
        let behind = Route::new(RouteKind::Unicast, "10.7.0.0/16".parse().unwrap());
        let behind = Route {
            mtu: Some(1_400),
            ..behind.via([10, 0, 0, 2].into())
        };
        stack.fib4().add(TableId::MAIN, behind).unwrap();
        let refused = Route::new(
            RouteKind::Prohibit,
            Prefix::new([10, 8, 0, 0].into(), 16).unwrap(),
        );
        stack.fib4().add(TableId::MAIN, refused).unwrap();
        (stack, tun)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn finds_gateway_interface_source_and_mtu() {
        let (stack, tun) = stack();
        let found = stack
            .look_up_route(ip("10.7.1.1"), None, None, None)
            .unwrap();
        let expected = FoundRoute {
            kind: RouteKind::Unicast,
            gateway: Some(ip("10.0.0.2")),
            oif: Some(tun),
            src: Some(ip("10.0.0.1")),
            mtu: Some(1_400),
        };
        assert_eq!(found, expected);
        let found = stack
            .look_up_route(ip("fd00::9"), None, None, None)
            .unwrap();
        assert_eq!((found.oif, found.src), (Some(tun), Some(ip("fd00::1"))));
    }

    #[test]
    fn own_addresses_lead_to_the_loopback() {
        let (stack, tun) = stack();
        for (dst, iif) in [
            ("10.0.0.1", None),
            ("fd00::1", None),
            ("10.0.0.1", Some(tun)),
        ] {
            let found = stack.look_up_route(ip(dst), None, iif, None).unwrap();
            assert_eq!(
                (found.kind, found.oif),
                (RouteKind::Local, Some(LOOPBACK)),
                "{dst}"
            );
        }
    }

    #[test]
    fn says_why_not_and_counts_nothing() {
        let (stack, tun) = stack();
        let before = stack.counters();
        for (dst, iif, why) in [
            ("192.0.2.1", None, LookupError::NoRoute),
            ("192.0.2.1", Some(tun), LookupError::NoRoute),
            ("10.8.0.1", None, LookupError::Prohibit),
            ("0.0.0.0", None, LookupError::NoRoute),
            ("2001:db8::1", None, LookupError::NoRoute),
        ] {
            assert_eq!(
                stack.look_up_route(ip(dst), None, iif, None),
                Err(why),
                "{dst}"
            );
        }
        assert_eq!(stack.counters(), before);
    }
}
