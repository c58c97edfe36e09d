//! Opening, binding, listening.

use core::net::{IpAddr, SocketAddr};

use super::settings::Settings;
use super::{Backlog, Role, Socket, with_socket};
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::packet::IpVersion;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::tcp::ListenError;
use crate::tcp::connection::Wake;
use crate::tcp::ports::{InUse, PortClaim};
use crate::time::Instant;
use crate::udp::{BindError, NotOpen, TooManySockets, scope_id};

impl Stack {
    /// Opens a TCP socket. An IPv6 socket takes IPv4, too, unless `net.ipv6.bindv6only` says
    /// otherwise or [`TcpOption::V6Only`](crate::tcp::TcpOption::V6Only) does.
    ///
    /// # Errors
    ///
    /// [`TooManySockets`].
    pub fn tcp_open(&self, version: IpVersion) -> Result<SocketId, TooManySockets> {
        let settings =
            self.with_context(Instant::ZERO, |cx| Settings::new(version, cx.view.sysctls));
        let socket = Box::new(Socket::new(version, settings));
        self.tcp.slots.open(socket).ok_or(TooManySockets)
    }

    /// Binds a socket to an address of ours, or to all of them if it is unspecified, and to a port,
    /// or a free one of `net.ipv4.ip_local_port_range` if it is 0.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn tcp_bind(&self, id: SocketId, addr: SocketAddr) -> Result<(), BindError> {
        self.with_context(Instant::ZERO, |cx| {
            let bound = with_socket(cx, id, |cx, socket| {
                (socket.bind(cx, addr), Wake::default())
            });
            bound.ok_or(NotOpen)?
        })
    }

    /// Has a socket that will listen take connections to every address and every port that no other
    /// socket takes: what a transparent proxy needs, together with a local route for what it is to
    /// take. Accepted connections tell where they were meant to go.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn tcp_bind_any(&self, id: SocketId) -> Result<(), BindError> {
        let mut socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        if socket.is_bound || !matches!(socket.role, Role::Idle) {
            return Err(BindError::AlreadyBound);
        }
        socket.settings.flags.transparent = true;
        socket.is_bound = true;
        Ok(())
    }

    /// Listens for connections; at most `backlog` (and no more than `net.core.somaxconn`) wait to be
    /// accepted. A socket that listens already gets another backlog.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn tcp_listen(&self, id: SocketId, backlog: u32) -> Result<(), ListenError> {
        self.with_context(Instant::ZERO, |cx| {
            let listens = with_socket(cx, id, |cx, socket| {
                (socket.listen(cx, id, backlog), Wake::default())
            });
            listens.ok_or(BindError::NotOpen(NotOpen))?
        })
    }
}

impl Socket {
    fn bind(&mut self, cx: &Context<'_>, addr: SocketAddr) -> Result<(), BindError> {
        if self.is_bound || !matches!(self.role, Role::Idle) {
            return Err(BindError::AlreadyBound);
        }
        let ip = addr.ip().to_canonical();
        match (self.version, ip.is_ipv6()) {
            (IpVersion::V6, false) if self.settings.flags.v6only => {
                return Err(BindError::OnlyIpv6);
            }
            (IpVersion::V4, true) => return Err(BindError::FamilyNotSupported),
            _ => {}
        }
        if !self.may_be_local(cx, ip) {
            return Err(BindError::NotAvailable);
        }
        if let (0, Some(scope)) = (self.settings.device, scope_id(&addr)) {
            self.settings.device = scope;
        }
        if ip.is_ipv6() && !ip.is_unspecified() {
            // There is nothing of IPv4 that could come to it.
            self.settings.flags.v6only = true;
        }
        let port = self
            .take_port(cx, ip, addr.port())
            .map_err(|InUse| BindError::InUse)?;
        self.local = (ip, port);
        self.is_bound = true;
        Ok(())
    }

    fn listen(
        &mut self,
        cx: &mut Context<'_>,
        id: SocketId,
        backlog: u32,
    ) -> Result<(), ListenError> {
        let most = u32::try_from(cx.view.sysctls.get(Knob::Somaxconn)).unwrap_or(u32::MAX);
        let limit = backlog.min(most);
        match &mut self.role {
            Role::Listener(queue) => {
                queue.limit = limit;
                return Ok(());
            }
            Role::Idle => {}
            Role::Connecting(_) | Role::Connected(_) | Role::Failed(_) => {
                return Err(ListenError::Connected);
            }
        }
        if !self.is_bound {
            let every = SocketAddr::new(super::every_address(self.version), 0);
            self.bind(cx, every)?;
        }
        self.enter_listeners(cx, id)
            .map_err(|InUse| BindError::InUse)?;
        self.role = Role::Listener(Box::new(Backlog {
            limit,
            ..Backlog::default()
        }));
        Ok(())
    }

    /// How the socket stands, or is to stand, at a local address and port.
    pub(in crate::tcp) fn claim(&self, addr: IpAddr, port: u16) -> PortClaim {
        let flags = &self.settings.flags;
        let is_every_ipv6 = addr.is_ipv6() && addr.is_unspecified();
        PortClaim {
            addr,
            port,
            device: self.settings.device,
            dual_stack: is_every_ipv6 && !flags.v6only,
            reuse_addr: flags.reuse_addr,
            reuse_port: flags.reuse_port,
        }
    }

    /// Whether the socket may call the address its own.
    pub(super) fn may_be_local(&self, cx: &Context<'_>, addr: IpAddr) -> bool {
        let flags = &self.settings.flags;
        let is_ours = match addr {
            IpAddr::V4(addr) => V4::is_unicast(addr) && V4::routes(cx.view).is_own(addr),
            IpAddr::V6(addr) => V6::is_unicast(addr) && V6::routes(cx.view).is_own(addr),
        };
        addr.is_unspecified()
            || is_ours
            || flags.freebind
            || flags.transparent
            || cx.view.sysctls.is_on(Knob::IpNonlocalBind)
    }
}
