//! What the stages need to know of interfaces, looked up once a batch and not for each packet
//! (Linux's `in_device` and `inet6_dev`).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::family::{Family, V4, V6};
use crate::fib::{RpFilter, Strangers};
use crate::interface::{Interface, LOOPBACK};
use crate::ip::validate::carries;
use crate::packet::IpVersion;
use crate::stack::View;
use crate::sysctl::ConfKnob;

/// The incoming interface of a batch, and what its knobs say.
pub(crate) struct InDevice<'a> {
    pub(crate) interface: &'a Interface,
    /// Whether IPv6 packets may come in at all.
    pub(crate) carries_v6: bool,
    /// Whether 127.0.0.0/8 is an address like any other here.
    pub(crate) routes_localnet: bool,
    pub(crate) strangers4: Strangers<'a, Ipv4Addr>,
    pub(crate) strangers6: Strangers<'a, Ipv6Addr>,
    pub(crate) v4: InConf,
    pub(crate) v6: InConf,
}

/// What a family's input routing depends on.
pub(crate) struct InConf {
    /// Whether packets that come in here may go out by another interface.
    pub(crate) forwards: bool,
    /// Whether packets that claim to come from this host are refused.
    pub(crate) checks_own_source: bool,
    pub(crate) rp_filter: RpFilter,
}

impl<'a> InDevice<'a> {
    pub(crate) fn new(view: &View<'a>, interface: &'a Interface) -> Self {
        let index = interface.index;
        Self {
            interface,
            carries_v6: carries::<V6>(view, interface),
            routes_localnet: index == LOOPBACK
                || view.sysctls.conf_or(index, ConfKnob::RouteLocalnet),
            strangers4: view.fib4.strangers(),
            strangers6: view.fib6.strangers(),
            v4: InConf::new::<V4>(view, index),
            v6: InConf::new::<V6>(view, index),
        }
    }
}

impl InConf {
    fn new<F: Family>(view: &View<'_>, iif: u32) -> Self {
        Self {
            forwards: F::forwards(view, iif),
            checks_own_source: F::checks_own_source(view, iif),
            rp_filter: F::rp_filter(view, iif),
        }
    }
}

/// An interface that packets leave by.
#[derive(Clone, Copy)]
pub(crate) struct OutDevice<'a> {
    pub(crate) interface: &'a Interface,
    /// Whether IPv6 packets may leave at all.
    carries_v6: bool,
}

impl<'a> OutDevice<'a> {
    pub(crate) fn new(view: &View<'a>, interface: &'a Interface) -> Self {
        Self {
            interface,
            carries_v6: carries::<V6>(view, interface),
        }
    }

    /// Whether the family's packets may leave.
    #[inline]
    pub(crate) fn carries<F: Family>(&self) -> bool {
        F::VERSION == IpVersion::V4 || self.carries_v6
    }

    /// The largest of the family's packets that may leave in one piece, in bytes.
    pub(crate) fn mtu<F: Family>(&self) -> usize {
        match self.carries::<F>() {
            true => self.interface.mtu as usize,
            false => 0,
        }
    }
}
