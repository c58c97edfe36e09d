//! The handshake, begun from here.

use core::net::{IpAddr, SocketAddr};

use super::{Role, Socket, with_socket};
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::family::{Family, V4, V6};
use crate::fib::RouteKind;
use crate::packet::IpVersion;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::tcp::connection::Wake;
use crate::tcp::connection::handshake::Handshake;
use crate::tcp::ports::InUse;
use crate::tcp::terms::Terms;
use crate::tcp::{TcpConnectError, TcpError};
use crate::time::Instant;
use crate::transmit::SendError;
use crate::udp::{NotOpen, local_route, or_loopback, scope_id};
use crate::wire::protocol;

impl Stack {
    /// Begins a handshake with `peer`. It is done when the socket is writable.
    ///
    /// # Errors
    ///
    /// [`TcpConnectError`].
    pub fn tcp_connect(
        &self,
        now: Instant,
        id: SocketId,
        peer: SocketAddr,
    ) -> Result<(), TcpConnectError> {
        self.with_context(now, |cx| {
            let begun = with_socket(cx, id, |cx, socket| {
                (socket.connect(cx, id, peer), Wake::default())
            });
            begun.ok_or(NotOpen)?
        })
    }

    /// Whether the handshake is done; false while it is under way.
    ///
    /// # Errors
    ///
    /// What made it fail, told once; [`TcpError::NotConnected`] if none was begun.
    pub fn tcp_is_connected(&self, id: SocketId) -> Result<bool, TcpError> {
        let mut socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        match &mut socket.role {
            Role::Connecting(_) => Ok(false),
            Role::Connected(_) => Ok(true),
            Role::Failed(error) => Err(error.take().unwrap_or(TcpError::NotConnected)),
            Role::Idle | Role::Listener(_) => Err(TcpError::NotConnected),
        }
    }
}

impl Socket {
    fn connect(
        &mut self,
        cx: &mut Context<'_>,
        id: SocketId,
        peer: SocketAddr,
    ) -> Result<(), TcpConnectError> {
        match &self.role {
            Role::Idle | Role::Failed(_) => {}
            Role::Connecting(_) => return Err(TcpConnectError::AlreadyConnecting),
            Role::Connected(_) => return Err(TcpConnectError::IsConnected),
            Role::Listener(_) => return Err(TcpConnectError::InvalidArgument),
        }
        let ip = or_loopback(peer.ip().to_canonical());
        match (self.version, ip.is_ipv6()) {
            (IpVersion::V4, true) => return Err(TcpConnectError::FamilyNotSupported),
            (IpVersion::V6, false) if self.settings.flags.v6only => {
                return Err(SendError::NetworkUnreachable.into());
            }
            _ => {}
        }
        if let (0, Some(scope)) = (self.settings.device, scope_id(&peer)) {
            self.settings.device = scope;
        }
        match ip {
            IpAddr::V4(_) => self.connect_to::<V4>(cx, id, (ip, peer.port())),
            IpAddr::V6(_) => self.connect_to::<V6>(cx, id, (ip, peer.port())),
        }
    }

    fn connect_to<F: Family>(
        &mut self,
        cx: &mut Context<'_>,
        id: SocketId,
        peer: (IpAddr, u16),
    ) -> Result<(), TcpConnectError> {
        let own = self.local.0;
        if self.is_bound && !own.is_unspecified() && own.is_ipv4() != peer.0.is_ipv4() {
            return Err(SendError::NetworkUnreachable.into());
        }
        let route = local_route::<F>(cx, peer.0, own, self.settings.device)?;
        if !F::is_unicast(route.dst) || route.kind == RouteKind::Broadcast {
            return Err(SendError::NetworkUnreachable.into());
        }
        let local: IpAddr = route.src.into();
        let is_bound = self.is_bound;
        let entered =
            self.enter_connections(cx, id, local, peer)
                .map_err(|InUse| match is_bound {
                    true => TcpConnectError::InUse,
                    false => TcpConnectError::NoPort,
                })?;
        self.local = (local, entered.port);
        self.peer = Some(peer);
        let flow = Flow::new(protocol::TCP, self.local, peer);
        self.path_mtu = route.mtu;
        let terms = Terms::new(cx.view.sysctls, &self.settings, route.mtu, F::HEADER_LEN);
        let first_numbers = &cx.stack.tcp.first_numbers;
        let mut iss = first_numbers.iss(&flow, cx.now);
        if let Some(inheritance) = entered.inheritance {
            iss = iss.max(inheritance.min_iss);
        }
        let offset = first_numbers.timestamp_offset(&flow);
        let retries = u8::try_from(cx.view.sysctls.get(Knob::TcpSynRetries)).unwrap_or(u8::MAX);
        let handshake = Handshake::new(terms.offer(iss, offset, retries), cx.now);
        self.role = Role::Connecting(Box::new(handshake));
        cx.core.count(crate::counters::Counter::TcpActiveOpens);
        Ok(())
    }
}
