//! What all cores and applications share of TCP.

use core::net::IpAddr;

use forebay_sync::rcu::Domain;

use super::chunks::ChunkStore;
use super::connection::Wake;
use super::isn::FirstNumbers;
use super::listeners::Listeners;
use super::ports::{InUse, PortClaim, PortUse, Ports};
use super::request::Requests;
use super::socket::{Held, Role, Socket, with_socket};
use super::table::Connections;
use super::table::slots::Slots;
use super::time_wait::{Ended, Inheritance, TimeWait};
use super::timers::Timers;
use super::{TcpSocketInfo, TcpState, TcpTimer};
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::packet::IpVersion;
use crate::siphash::Key;
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::wire::protocol;

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
    let tcp = &cx.stack.tcp;
    let Some(mut socket) = tcp.slots.close(id) else {
        return;
    };
    match &mut socket.role {
        Role::Connected(connection) => connection.free(&mut cx.core.chunks),
        Role::Listener(backlog) => {
            let ready = core::mem::take(&mut backlog.ready);
            tcp.listeners.remove(&socket.listens_at(), id);
            tcp.requests.remove_all(id);
            for accepted in ready {
                abandon(cx, accepted.id);
            }
        }
        Role::Idle | Role::Connecting(_) | Role::Failed(_) => {}
    }
    if let Some(held) = &socket.held {
        tcp.ports.release(&held.claim, held.is);
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
    /// Takes the port of a claim, or, if it names none, a free one: the claim that holds.
    pub(super) fn bind(&self, cx: &Context<'_>, claim: &PortClaim) -> Result<PortClaim, InUse> {
        if claim.port != 0 {
            self.ports.bind(claim)?;
            return Ok(*claim);
        }
        let range = cx.view.sysctls.local_port_range();
        let port = self.ports.bind_ephemeral(claim, range)?;
        Ok(PortClaim { port, ..*claim })
    }

    /// Has connections come to a socket. One that holds no port takes every address and every port.
    pub(super) fn start_listening(&self, socket: &mut Socket, id: SocketId) -> Result<(), InUse> {
        if let Some(held) = &mut socket.held {
            self.ports.listen(&held.claim)?;
            held.is = PortUse::Listening;
        }
        let is_ipv6 = socket.version == IpVersion::V6;
        self.listeners.add(&socket.listens_at(), is_ipv6, id);
        Ok(())
    }

    /// Enters a socket that connects: its local port, and what it has to heed of a connection in
    /// whose place it steps (`tcp_tw_reuse`).
    pub(super) fn enter(
        &self,
        cx: &Context<'_>,
        socket: &mut Socket,
        id: SocketId,
        local: IpAddr,
        peer: (IpAddr, u16),
    ) -> Result<(u16, Option<Inheritance>), InUse> {
        let may_reuse = match cx.view.sysctls.get(Knob::TcpTwReuse) {
            0 => false,
            1 => true,
            _ => local.is_loopback() || peer.0.is_loopback(),
        };
        let flow = |port| Flow::new(protocol::TCP, (local, port), peer);
        let device = socket.settings.device;
        let mut ended = None;
        let mut enter = |port| {
            let connections = &self.connections;
            let entered = connections.insert_reusing(&flow(port), device, id, cx.now, may_reuse);
            ended = entered.ok().flatten();
            entered.is_ok()
        };
        // What an attempt that failed has chosen, the next chooses anew.
        if let Some(held) = socket.held.take_if(|held| held.is == PortUse::Chosen) {
            self.ports.release(&held.claim, held.is);
        }
        let port = match &mut socket.held {
            Some(held) => {
                if !enter(held.claim.port) {
                    return Err(InUse);
                }
                let claim = held.claim.at(local);
                self.ports.move_to(&held.claim, &claim, held.is);
                held.claim = claim;
                claim.port
            }
            None => {
                let claim = socket.claim(local, 0);
                let range = cx.view.sysctls.local_port_range();
                let port = self.ports.connect(&claim, peer, range, enter)?;
                socket.held = Some(Held {
                    claim: PortClaim { port, ..claim },
                    is: PortUse::Chosen,
                });
                port
            }
        };
        if let Some((_, entry)) = &ended {
            self.release_time_wait(&flow(port), entry);
        }
        Ok((port, ended.map(|(inheritance, _)| inheritance)))
    }

    /// Gives back the port of a connection that has ended for good.
    pub(super) fn release_time_wait(&self, flow: &Flow, entry: &TimeWait) {
        let (addr, port) = flow.local();
        let claim = PortClaim {
            addr,
            port,
            device: entry.device,
            dual_stack: false,
            reuse_addr: entry.reuse_addr,
            reuse_port: entry.reuse_port,
        };
        self.ports.release(&claim, entry.port_use);
    }

    pub(super) fn for_each_half_open(&self, mut f: impl FnMut(TcpSocketInfo)) {
        self.requests.for_each(|flow, request| {
            f(TcpSocketInfo::of_remains(
                flow,
                0,
                TcpState::SynRecv,
                TcpTimer {
                    name: "on",
                    left: request.deadline - request.sent_at,
                    retransmits: request.retransmits.into(),
                },
            ));
        });
    }

    pub(super) fn for_each_time_wait(&self, now: Instant, mut f: impl FnMut(TcpSocketInfo)) {
        self.connections
            .for_each_time_wait(now, |flow, entry, left| {
                let state = match entry.state {
                    Ended::FinWait2 => TcpState::FinWait2,
                    Ended::TimeWait => TcpState::TimeWait,
                };
                let timer = TcpTimer {
                    name: "timewait",
                    left,
                    retransmits: 0,
                };
                f(TcpSocketInfo::of_remains(flow, entry.device, state, timer));
            });
    }
}

impl TcpSocketInfo {
    /// A line for what has no socket.
    fn of_remains(flow: &Flow, device: u32, state: TcpState, timer: TcpTimer) -> Self {
        let (local, peer) = (flow.local(), flow.remote());
        Self {
            id: None,
            state,
            local: local.into(),
            peer: peer.into(),
            device: (device != 0).then_some(device),
            recv_queue: 0,
            send_queue: 0,
            receive_memory: (0, 0),
            send_memory: (0, 0),
            timer: Some(timer),
            info: None,
        }
    }
}
