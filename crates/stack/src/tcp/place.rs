//! Where sockets stand: their local ports, their places among connections and listeners.

use core::net::IpAddr;

use super::ports::{InUse, PortClaim, PortUse};
use super::socket::{Role, Socket};
use super::table::Freed;
use super::time_wait::{Inheritance, TimeWait};
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::packet::IpVersion;
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::wire::protocol;

/// A port, and what for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    claim: PortClaim,
    used: PortUse,
}

/// Where a socket that connects has come to stand.
pub(super) struct Entered {
    pub(super) port: u16,
    /// What it has to heed of the connection that was there before.
    pub(super) inheritance: Option<Inheritance>,
}

impl Socket {
    /// Takes a local port, a free one if it is 0; returns it.
    pub(super) fn take_port(
        &mut self,
        cx: &Context<'_>,
        addr: IpAddr,
        port: u16,
    ) -> Result<u16, InUse> {
        let ports = &cx.stack.tcp.ports;
        let mut claim = self.claim(addr, port);
        if port == 0 {
            claim.port = ports.bind_ephemeral(&claim, cx.view.sysctls.local_port_range())?;
        } else {
            ports.bind(&claim)?;
        }
        self.held = Some(Held {
            claim,
            used: PortUse::Bound,
        });
        Ok(claim.port)
    }

    /// Is found by who connects from here on; on every address and port, if it has no port.
    pub(super) fn enter_listeners(&mut self, cx: &Context<'_>, id: SocketId) -> Result<(), InUse> {
        let tcp = &cx.stack.tcp;
        let claim = self.claim(self.local.0, self.local.1);
        if let Some(held) = &mut self.held {
            tcp.ports.listen(&held.claim)?;
            held.used = PortUse::Listening;
        }
        let is_ipv6 = self.version == IpVersion::V6;
        tcp.listeners.add(&claim, is_ipv6, id)
    }

    /// Is found by who connects no more.
    pub(super) fn leave_listeners(&self, cx: &Context<'_>, id: SocketId) {
        let tcp = &cx.stack.tcp;
        let claim = self.claim(self.local.0, self.local.1);
        tcp.listeners.remove(&claim, id);
        tcp.requests.remove_all(id);
    }

    /// Enters the table of connections as one from `local` to `peer`, by the port that the socket
    /// has, or by one that is free towards this peer.
    pub(super) fn enter_connections(
        &mut self,
        cx: &Context<'_>,
        id: SocketId,
        local: IpAddr,
        peer: (IpAddr, u16),
    ) -> Result<Entered, InUse> {
        let tcp = &cx.stack.tcp;
        let device = self.settings.device;
        let may_reuse = match cx.view.sysctls.get(Knob::TcpTwReuse) {
            0 => false,
            1 => true,
            _ => peer.0.is_loopback(),
        };
        let mut freed = None;
        let mut enter = |port| {
            let flow = Flow::new(protocol::TCP, (local, port), peer);
            let entered = tcp
                .connections
                .insert_reusing(&flow, device, id, cx.now, may_reuse);
            let is_in = entered.is_ok();
            freed = entered.ok().flatten();
            is_in
        };
        let claim = self.claim(local, self.local.1);
        let (port, held) = match self.held {
            Some(held) => {
                if !enter(held.claim.port) {
                    return Err(InUse);
                }
                let claim = PortClaim {
                    port: held.claim.port,
                    ..claim
                };
                tcp.ports.move_to(&held.claim, &claim, held.used);
                (claim.port, Held { claim, ..held })
            }
            None => {
                let range = cx.view.sysctls.local_port_range();
                let port = tcp.ports.connect(&claim, peer, range, enter)?;
                let claim = PortClaim { port, ..claim };
                let used = PortUse::Chosen;
                (port, Held { claim, used })
            }
        };
        self.held = Some(held);
        self.is_in_table = true;
        if let Some(Freed { entry, .. }) = &freed {
            release_port_of(cx, (local, port), entry);
        }
        Ok(Entered {
            port,
            inheritance: freed.map(|freed| freed.inheritance),
        })
    }

    /// Has its listener's port, too.
    pub(super) fn inherit_port(&mut self, cx: &Context<'_>) {
        let claim = self.claim(self.local.0, self.local.1);
        cx.stack.tcp.ports.inherit(&claim);
        self.held = Some(Held {
            claim,
            used: PortUse::Bound,
        });
    }

    /// Leaves the port to what is left of the connection.
    pub(super) fn bequeath_port(&mut self, entry: &mut TimeWait) {
        let Some(Held { claim, used }) = self.held.take() else {
            return;
        };
        entry.port_use = used;
        entry.reuse_addr = claim.reuse_addr;
        entry.reuse_port = claim.reuse_port;
    }

    /// Gives back the port.
    pub(super) fn release_port(&mut self, cx: &Context<'_>) {
        if let Some(held) = self.held.take() {
            cx.stack.tcp.ports.release(&held.claim, held.used);
        }
    }

    /// Nothing leads to the socket from here on.
    pub(super) fn leave_everything(&mut self, cx: &Context<'_>, id: SocketId) {
        if let Role::Listener(_) = self.role {
            self.leave_listeners(cx, id);
        }
        if core::mem::take(&mut self.is_in_table) {
            cx.stack.tcp.connections.remove(id);
        }
        self.release_port(cx);
    }
}

/// Gives back the port that what was left of a connection had.
pub(super) fn release_port_of(cx: &Context<'_>, local: (IpAddr, u16), entry: &TimeWait) {
    let claim = PortClaim {
        addr: local.0,
        port: local.1,
        device: entry.device,
        dual_stack: false,
        reuse_addr: entry.reuse_addr,
        reuse_port: entry.reuse_port,
    };
    cx.stack.tcp.ports.release(&claim, entry.port_use);
}
