//! TCP sockets as applications call them.
//!
//! | | |
//! |---|---|
//! | `open` | opened, bound, listening |
//! | `connect` | the handshake, begun from here |
//! | `accept` | connections that listeners have |
//! | `stream` | reading, writing, shutting down, closing |
//! | [`settings`] | options |
//! | `ready` | who waits for a socket |
//! | `show` | what sockets say of themselves |

mod accept;
mod connect;
mod open;
mod ready;
pub(super) mod settings;
mod show;
mod stream;
mod urgent;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::Waker;
use std::collections::VecDeque;

use self::ready::Waiting;
use self::settings::Settings;
use super::connection::handshake::Handshake;
use super::connection::segment::Outgoing;
use super::connection::{Connection, Hands, Wake};
use super::place::Held;
use super::{Accepted, Side, TcpError, TcpState};
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::packet::IpVersion;
use crate::socket::{SocketError, SocketId};
use crate::time::Instant;
use crate::udp::present;
use crate::wire::protocol;

/// What a slot holds: everything of one socket, under the slot's lock.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The family that it was opened for.
    pub(super) version: IpVersion,
    pub(super) settings: Settings,
    /// The local end; IPv4-mapped addresses are IPv4.
    pub(super) local: (IpAddr, u16),
    pub(super) peer: Option<(IpAddr, u16)>,
    /// The application has bound it.
    pub(super) is_bound: bool,
    /// Its local port.
    pub(super) held: Option<Held>,
    /// Segments of its flow lead here.
    pub(super) is_in_table: bool,
    /// What the path to the peer takes, in bytes; 0: not known.
    pub(super) path_mtu: u32,
    /// What the network said last, for which the connection may yet fail.
    pub(super) soft_error: Option<SocketError>,
    pub(super) role: Role,
    waiting: Waiting,
    /// The earliest deadline that the timers know of.
    pub(super) armed: Option<Instant>,
}

/// What a socket is for.
#[derive(Debug)]
pub(super) enum Role {
    /// Nothing yet.
    Idle,
    Listener(Box<Backlog>),
    Connecting(Box<Handshake>),
    Connected(Box<Connection>),
    /// A handshake that failed.
    Failed(Option<TcpError>),
}

/// Connections of a listener that nobody has accepted yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// As `listen` was told.
    pub(super) limit: u32,
    pub(super) ready: VecDeque<Accepted>,
}

impl Backlog {
    /// Whether one more is too many: Linux takes one more than was asked for.
    pub(super) fn is_full(&self) -> bool {
        self.ready.len() > self.limit as usize
    }
}

impl Socket {
    fn new(version: IpVersion, settings: Settings) -> Self {
        Self {
            version,
            settings,
            local: (every_address(version), 0),
            peer: None,
            is_bound: false,
            held: None,
            is_in_table: false,
            path_mtu: 0,
            soft_error: None,
            role: Role::Idle,
            waiting: Waiting::default(),
            armed: None,
        }
    }

    /// One whose connection stands.
    pub(super) fn connected(
        version: IpVersion,
        settings: Settings,
        (local, peer): ((IpAddr, u16), (IpAddr, u16)),
        connection: Connection,
    ) -> Self {
        Self {
            local,
            peer: Some(peer),
            role: Role::Connected(Box::new(connection)),
            ..Self::new(version, settings)
        }
    }

    /// The flow of its segments, if it has a peer.
    pub(super) fn flow(&self) -> Option<Flow> {
        Some(Flow::new(protocol::TCP, self.local, self.peer?))
    }

    pub(super) fn state(&self) -> TcpState {
        match &self.role {
            Role::Idle | Role::Failed(_) => TcpState::Closed,
            Role::Listener(_) => TcpState::Listen,
            Role::Connecting(handshake) if handshake.is_syn_received() => TcpState::SynRecv,
            Role::Connecting(_) => TcpState::SynSent,
            Role::Connected(connection) => connection.state().into(),
        }
    }

    /// The connection, however far it is.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, TcpError> {
        match &mut self.role {
            Role::Connected(connection) => Ok(connection),
            Role::Failed(error) => Err(error.take().unwrap_or(TcpError::NotConnected)),
            Role::Idle | Role::Listener(_) | Role::Connecting(_) => Err(TcpError::NotConnected),
        }
    }

    /// The handshake has failed.
    pub(super) fn fail(&mut self, error: TcpError) -> Wake {
        self.role = Role::Failed(Some(error));
        Wake::BOTH
    }

    /// Whether nobody will ask for it any more, and nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        match &self.role {
            Role::Connected(connection) => connection.is_orphan() && connection.is_closed(),
            _ => false,
        }
    }

    /// The next segment that may leave.
    pub(super) fn transmit(&mut self, hands: &mut Hands<'_>) -> Option<Outgoing> {
        match &mut self.role {
            Role::Connecting(handshake) => handshake.transmit(hands.now),
            Role::Connected(connection) => connection.transmit(hands),
            Role::Idle | Role::Listener(_) | Role::Failed(_) => None,
        }
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Connecting(handshake) => Some(handshake.deadline()),
            Role::Connected(connection) => connection.deadline(),
            Role::Idle | Role::Listener(_) | Role::Failed(_) => None,
        }
    }

    /// Who is to be woken; they wait no longer.
    pub(super) fn take_wakers(&mut self, wake: Wake) -> [Vec<Waker>; 2] {
        let take = |waiting: &mut Waiting, side, is_asked| match is_asked {
            true => waiting.take(side),
            false => Vec::new(),
        };
        [
            take(&mut self.waiting, Side::Read, wake.read),
            take(&mut self.waiting, Side::Write, wake.write),
        ]
    }

    /// An address as the socket's family writes it.
    pub(super) fn shown(&self, (addr, port): (IpAddr, u16)) -> SocketAddr {
        let inet6 = self.version == IpVersion::V6;
        present(addr, port, inet6, self.settings.device)
    }
}

/// The unspecified address of a family.
pub(super) fn every_address(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Runs `f` on a socket under its lock, then does what follows from it. `None` if the socket is
/// closed.
pub(super) fn with_socket<R>(
    cx: &mut Context<'_>,
    id: SocketId,
    f: impl FnOnce(&mut Context<'_>, &mut Socket) -> (R, Wake),
) -> Option<R> {
    let stack = cx.stack;
    let mut socket = stack.tcp.slots.lock(id)?;
    let (result, wake) = f(cx, &mut socket);
    let aftermath = super::aftermath::of(cx, id, &mut socket, wake);
    drop(socket);
    aftermath.carry_out(cx, id);
    Some(result)
}
