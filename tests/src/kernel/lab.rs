//! Two kernel hosts with Forebay between them.

use std::net::IpAddr;

use forebay::device::Device;
use forebay::device::tun::{Tun, TunConfig, TunDevice};
use forebay::fib::{Route, RouteKind, RouteMatch, TableId};
use forebay::{Stack, Workers};

use super::Host;
use crate::{V4, V6};

/// What a [`Lab`] is like.
#[derive(Debug, Clone, Copy)]
pub struct LabConfig {
    /// Whether the kernels may leave checksums and segmentation to Forebay, and it to them.
    pub offload: bool,
    /// Queues of each TUN device.
    pub queues: usize,
    /// MTU of both sides of the left link, in bytes.
    pub left_mtu: u32,
    /// MTU of both sides of the right link.
    pub right_mtu: u32,
    /// Early demux.
    pub early_demux: bool,
    /// Packet buffers of the stack.
    pub buffers: usize,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            offload: true,
            queues: 1,
            left_mtu: 1_500,
            right_mtu: 1_500,
            early_demux: true,
            buffers: 16_384,
        }
    }
}

/// Two kernel hosts, and between them a Forebay stack that a worker drives: the [`Rig`](crate::Rig)
/// with kernels for neighbours.
///
/// On the left the host has 10.0.0.2 and fd00::2, the stack 10.0.0.1 and fd00::1 on its `tun0`; on
/// the right the host has 10.1.0.2 and fd01::2, the stack 10.1.0.1 and fd01::1 on its `tun1`.
#[derive(Debug)]
pub struct Lab {
    /// The host behind `tun0`.
    pub left: Host,
    /// The host behind `tun1`.
    pub right: Host,
    /// What is between them.
    pub stack: Stack,
    worker: Workers,
}

/// The addresses of a lab in one family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// The host on the left.
    pub left: IpAddr,
    /// The stack on its `tun0`.
    pub own: IpAddr,
    /// The stack on its `tun1`.
    pub own1: IpAddr,
    /// The host on the right.
    pub right: IpAddr,
    /// The prefix of `tun1`.
    pub right_prefix: &'static str,
    /// The knob that turns forwarding on.
    pub forwarding: &'static str,
}

impl Family {
    /// IPv4 and IPv6.
    pub fn both() -> [Self; 2] {
        [
            Self {
                left: V4::PEER.into(),
                own: V4::OWN.into(),
                own1: V4::OWN1.into(),
                right: V4::PEER1.into(),
                right_prefix: "10.1.0.0/24",
                forwarding: "net.ipv4.ip_forward",
            },
            Self {
                left: V6::PEER.into(),
                own: V6::OWN.into(),
                own1: V6::OWN1.into(),
                right: V6::PEER1.into(),
                right_prefix: "fd01::/64",
                forwarding: "net.ipv6.conf.all.forwarding",
            },
        ]
    }
}

impl Lab {
    /// Builds one; `None` where the machine does not permit it.
    pub fn start(config: LabConfig) -> Option<Self> {
        let (left, tun0) = Self::left(config)?;
        let (right, tun1) = Self::right(config)?;
        let stack = Stack::builder()
            .buffers(config.buffers)
            .build()
            .expect("a stack");
        forward(&stack);
        set(
            &stack,
            "net.ipv4.ip_early_demux",
            i64::from(config.early_demux),
        );
        Self::attach_left(&stack, tun0, config);
        Self::attach_right(&stack, tun1, config);
        let worker = stack.spawn_workers().expect("a worker");
        Some(Self {
            left,
            right,
            stack,
            worker,
        })
    }

    /// The host on the left, and the other end of its device.
    pub fn left(config: LabConfig) -> Option<(Host, Tun)> {
        let addresses = [(V4::PEER.into(), 24), (V6::PEER.into(), 64)];
        let gateways = [V4::OWN.into(), V6::OWN.into()];
        Host::start(tun(config), config.left_mtu, &addresses, &gateways)
    }

    /// The host on the right, and the other end of its device.
    pub fn right(config: LabConfig) -> Option<(Host, Tun)> {
        let addresses = [(V4::PEER1.into(), 24), (V6::PEER1.into(), 64)];
        let gateways = [V4::OWN1.into(), V6::OWN1.into()];
        Host::start(tun(config), config.right_mtu, &addresses, &gateways)
    }

    /// Gives a stack the left host for a neighbour on `tun0`.
    pub fn attach_left(stack: &Stack, tun: Tun, config: LabConfig) {
        let device = TunDevice::new(tun, config.left_mtu, config.offload);
        let addresses = [(V4::OWN.into(), 24), (V6::OWN.into(), 64)];
        attach(stack, "tun0", device, &addresses);
    }

    /// Gives a stack the right host for a neighbour on `tun1`.
    pub fn attach_right(stack: &Stack, tun: Tun, config: LabConfig) {
        let device = TunDevice::new(tun, config.right_mtu, config.offload);
        let addresses = [(V4::OWN1.into(), 24), (V6::OWN1.into(), 64)];
        attach(stack, "tun1", device, &addresses);
    }

    /// Sets a knob of the stack.
    pub fn set(&self, name: &str, value: i64) {
        set(&self.stack, name, value);
    }

    /// Stops the worker and takes the devices away; the hosts and the stack are left.
    pub fn stop(self) -> (Host, Host, Stack) {
        let Self {
            left,
            right,
            stack,
            worker,
        } = self;
        worker.stop().expect("a clean end");
        stack.remove_device("tun0").expect("tun0");
        stack.remove_device("tun1").expect("tun1");
        stack.poll(stack.now());
        (left, right, stack)
    }
}

fn tun(config: LabConfig) -> TunConfig {
    TunConfig {
        name: "tun0".into(),
        queues: config.queues,
        offload: config.offload,
    }
}

/// A stack without devices that forwards.
pub fn forwarding_stack() -> Stack {
    let stack = Stack::builder().build().expect("a stack");
    forward(&stack);
    stack
}

fn forward(stack: &Stack) {
    set(stack, "net.ipv4.ip_forward", 1);
    set(stack, "net.ipv6.conf.all.forwarding", 1);
}

/// Sets a knob.
pub fn set(stack: &Stack, name: &str, value: i64) {
    let written = stack.inner().set_sysctl(name, &value.to_string());
    written.expect("a knob and a value it takes");
}

/// Adds a device under this name, with these addresses.
pub fn attach(
    stack: &Stack,
    name: &str,
    device: impl Device + 'static,
    addresses: &[(IpAddr, u8)],
) {
    let ifindex = stack.add_device(name, device).expect("a new device");
    for &(address, prefix_len) in addresses {
        let added = stack.inner().add_address(ifindex, address, prefix_len);
        added.expect("a new address");
    }
}

/// Adds a route to the main table.
pub fn add_route(stack: &Stack, prefix: &str, gateway: IpAddr) {
    let stack = stack.inner();
    let added = match gateway {
        IpAddr::V4(gateway) => {
            let prefix = prefix.parse().expect("a prefix");
            stack.fib4().add(
                TableId::MAIN,
                Route::new(RouteKind::Unicast, prefix).via(gateway),
            )
        }
        IpAddr::V6(gateway) => {
            let prefix = prefix.parse().expect("a prefix");
            stack.fib6().add(
                TableId::MAIN,
                Route::new(RouteKind::Unicast, prefix).via(gateway),
            )
        }
    };
    added.expect("a new route");
}

/// Deletes the route to a prefix from the main table, and returns what puts it back.
pub fn delete_route(stack: &Stack, prefix: &str) -> Box<dyn FnOnce()> {
    let stack = stack.clone();
    if prefix.contains(':') {
        let what = RouteMatch::prefix(prefix.parse().expect("a prefix"));
        let route = stack
            .inner()
            .fib6()
            .delete(TableId::MAIN, &what)
            .expect("a route");
        Box::new(move || {
            stack
                .inner()
                .fib6()
                .add(TableId::MAIN, route)
                .expect("a new route");
        })
    } else {
        let what = RouteMatch::prefix(prefix.parse().expect("a prefix"));
        let route = stack
            .inner()
            .fib4()
            .delete(TableId::MAIN, &what)
            .expect("a route");
        Box::new(move || {
            stack
                .inner()
                .fib4()
                .add(TableId::MAIN, route)
                .expect("a new route");
        })
    }
}
