//! What all cores and applications share of TCP.

use core::net::IpAddr;

use forebay_sync::rcu::Domain;

use super::chunks::ChunkStore;
use super::connection::Wake;
use super::isn::FirstNumbers;
use super::listeners::Listeners;
use super::ports::Ports;
use super::request::Requests;
use super::socket::{Role, Socket, with_socket};
use super::table::Connections;
use super::table::slots::Slots;
use super::timers::Timers;
use crate::core::Context;
use crate::siphash::Key;
use crate::socket::SocketId;

/// Every TCP socket and connection of a stack.
pub(crate) struct Tcp {
    pub(super) slots: Slots<Box<Socket>>,
    pub(super) connections: Connections,
    pub(super) ports: Ports,
    pub(super) listeners: Listeners,
    pub(super) requests: Requests,
    pub(super) timers: Timers,
    pub(super) first_numbers: FirstNumbers,
    pub(crate) memory: ChunkStore,
}

impl Tcp {
    /// None yet. `key` is what strangers must not know.
    pub(crate) fn new(domain: &Domain, key: Key, tcp_mem: [u32; 3]) -> Self {
        Self {
            slots: Slots::new(domain),
            connections: Connections::new(key),
            ports: Ports::new(key),
            listeners: Listeners::new(key),
            requests: Requests::new(key),
            timers: Timers::new(),
            first_numbers: FirstNumbers::new(key),
            memory: ChunkStore::new(tcp_mem),
        }
    }
}

/// Frees a socket that nothing leads to any more.
pub(super) fn free(cx: &mut Context<'_>, id: SocketId) {
    let Some(mut socket) = cx.stack.tcp.slots.close(id) else {
        return;
    };
    if let Role::Connected(connection) = &mut socket.role {
        connection.free(&mut cx.core.chunks);
    }
}

/// Resets a connection that nobody will accept any more.
pub(super) fn abandon(cx: &mut Context<'_>, id: SocketId) {
    let _ = with_socket(cx, id, |cx, socket| {
        if let Role::Connected(connection) = &mut socket.role {
            connection.abort(cx.now);
            cx.with_hands(|hands| connection.close(hands));
        }
        ((), Wake::BOTH)
    });
}

impl Tcp {
    // TEMP
    pub(super) fn bind(
        &self,
        _cx: &Context<'_>,
        claim: &super::ports::PortClaim,
    ) -> Result<u16, super::ports::InUse> {
        Ok(if claim.port == 0 {
            self.ports.ephemeral()
        } else {
            claim.port
        })
    }
    pub(super) fn start_listening(
        &self,
        claim: &super::ports::PortClaim,
        id: SocketId,
    ) -> Result<(), super::ports::InUse> {
        self.listeners.add(claim, id);
        Ok(())
    }
    pub(super) fn enter(
        &self,
        _cx: &Context<'_>,
        socket: &Socket,
        id: SocketId,
        local: IpAddr,
        peer: (IpAddr, u16),
    ) -> Result<u16, super::ports::InUse> {
        let port = if socket.is_bound {
            socket.local.1
        } else {
            self.ports.ephemeral()
        };
        let flow = crate::demux::flow::Flow::new(crate::wire::protocol::TCP, (local, port), peer);
        self.connections
            .insert(&flow, socket.settings.device, id)
            .map_err(|_| super::ports::InUse)?;
        Ok(port)
    }
    pub(super) fn for_each_half_open(&self, _f: impl FnMut(super::TcpSocketInfo)) {}
    pub(super) fn for_each_time_wait(
        &self,
        _now: crate::time::Instant,
        _f: impl FnMut(super::TcpSocketInfo),
    ) {
    }
}
