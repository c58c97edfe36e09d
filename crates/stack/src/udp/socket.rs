//! UDP sockets: the calls, as applications make them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::task::Waker;

use super::send::{UdpSendError, check_family, or_loopback, scope_id};
use crate::core::Context;
use crate::counters::{Counter, MIB_V4, MIB_V6};
use crate::demux::bound::{Binding, InUse};
use crate::demux::row::Class;
use crate::demux::{Bind, Seat};
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::RouteKind;
use crate::packet::{IpVersion, Packet};
use crate::socket::{Control, Flag, Mode, Slot, SocketError, SocketId};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::transmit::{self, SendError};
use crate::wire::UdpHeader;

/// Smallest receive buffer, in bytes (Linux's `SOCK_MIN_RCVBUF`).
const MIN_RCVBUF: u32 = 2_304;

/// The socket is closed (EBADF).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bad socket: it is closed")]
pub struct NotOpen;

/// No further socket can be opened (ENFILE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many open sockets")]
pub struct TooManySockets;

/// Why a socket was not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EINVAL: it has an address already.
    #[error("the socket is bound already")]
    AlreadyBound,
    /// EAFNOSUPPORT.
    #[error("address family not supported by the socket")]
    FamilyNotSupported,
    /// EADDRINUSE; of the ephemeral ports, all are.
    #[error("address already in use")]
    InUse,
    /// EADDRNOTAVAIL: it is none of ours.
    #[error("cannot assign requested address")]
    NotAvailable,
}

/// Why a socket was not connected; it stays as it was, but may have got a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EAFNOSUPPORT.
    #[error("address family not supported by the socket")]
    FamilyNotSupported,
    /// EAGAIN: the socket had no port, and none is free.
    #[error("no local port is free")]
    NoPort,
    /// No way there.
    #[error(transparent)]
    Network(#[from] SendError),
}

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// What the network said about an earlier datagram; told once.
    #[error(transparent)]
    Pending(#[from] SocketError),
}

/// Why an option was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EINVAL: too late, or not for this kind of socket.
    #[error("invalid argument")]
    InvalidArgument,
    /// ENODEV.
    #[error("no such device")]
    NoDevice,
}

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes copied.
    pub len: usize,
    /// Bytes that the datagram had; if more than were copied, the rest is lost.
    pub full_len: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub local: SocketAddr,
    /// Index of the interface that it came in by.
    pub iif: u32,
}

/// How far a socket is, as ss(8) says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketState {
    /// `UNCONN`.
    Unconnected,
    /// `ESTAB`.
    Established,
}

/// A line of ss(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInfo {
    /// Names the socket.
    pub id: SocketId,
    /// Connected or not.
    pub state: SocketState,
    /// The local address; unspecified and port 0 where nothing is bound.
    pub local: SocketAddr,
    /// The peer, if connected.
    pub peer: Option<SocketAddr>,
    /// Index of the interface that it is bound to.
    pub device: Option<u32>,
    /// Bytes of buffers that its receive queue holds.
    pub recv_q: u32,
    /// Bytes that the queue may hold.
    pub rcvbuf: u32,
    /// Datagrams that found no room in it.
    pub drops: u32,
}

/// Opening, binding, connecting, closing.
///
/// These may wait until batches that are under way are through, and so must not be called by who
/// holds up a worker.
impl Stack {
    /// Opens a socket. An IPv6 socket takes IPv4, too, unless `net.ipv6.bindv6only` says otherwise
    /// or [`udp_set_v6only`](Self::udp_set_v6only) does.
    ///
    /// # Errors
    ///
    /// [`TooManySockets`].
    pub fn udp_open(&self, version: IpVersion) -> Result<SocketId, TooManySockets> {
        let (rcvbuf, v6only) = self.with_context(Instant::ZERO, |cx| {
            let sysctls = cx.view.sysctls;
            (
                sysctls.get(Knob::RmemDefault),
                sysctls.is_on(Knob::Bindv6only),
            )
        });
        let (id, slot) = self.demux.sockets().open().ok_or(TooManySockets)?;
        slot.head
            .memory
            .reset(u32::try_from(rcvbuf).unwrap_or(u32::MAX));
        slot.head.options.set(Flag::Inet6, version == IpVersion::V6);
        slot.head
            .options
            .set(Flag::V6Only, version == IpVersion::V6 && v6only);
        Ok(id)
    }

    /// Binds a socket to an address of ours, or to all of them if it is unspecified, and to a port,
    /// or a free one of `net.ipv4.ip_local_port_range` if it is 0.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn udp_bind(&self, id: SocketId, addr: SocketAddr) -> Result<(), BindError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        if slot.status().mode != Mode::Open {
            return Err(BindError::AlreadyBound);
        }
        let ip = addr.ip().to_canonical();
        let options = &slot.head.options;
        let is_foreign = match options.has(Flag::Inet6) {
            true => ip.is_ipv4() && options.has(Flag::V6Only),
            false => ip.is_ipv6(),
        };
        if is_foreign {
            return Err(BindError::FamilyNotSupported);
        }
        let is_ours = ip.is_unspecified()
            || self.with_context(Instant::ZERO, |cx| may_be_local(cx, slot, ip));
        if !is_ours {
            return Err(BindError::NotAvailable);
        }
        if let (0, Some(scope)) = (control.device, scope_id(&addr)) {
            control.device = scope;
        }
        let binding = binding_of(slot, &control, ip, addr.port());
        self.bind(id, slot, &mut control, &binding)?;
        control.chose_addr = ip != every_address(slot);
        control.chose_port = addr.port() != 0;
        Ok(())
    }

    /// Binds a socket to every address and every port: it gets what no other socket takes, and is
    /// told where each datagram was sent to. What a transparent proxy needs, together with a local
    /// route for what it is to take.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn udp_bind_any(&self, id: SocketId) -> Result<(), BindError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        if slot.status().mode != Mode::Open {
            return Err(BindError::AlreadyBound);
        }
        slot.head.options.set(Flag::Transparent, true);
        let binding = binding_of(slot, &control, every_address(slot), 0);
        self.demux
            .bind(id, slot, &mut control, &binding, Bind::Any)
            .map_err(|InUse| BindError::InUse)
    }

    /// Connects a socket: it takes datagrams of this peer alone from now on, and sends to it. A
    /// connected socket can be connected anew; it keeps its local address.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn udp_connect(
        &self,
        now: Instant,
        id: SocketId,
        peer: SocketAddr,
    ) -> Result<(), ConnectError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        let peer_ip = or_loopback(peer.ip().to_canonical());
        check_family(slot, peer_ip).map_err(|error| match error {
            UdpSendError::Network(error) => ConnectError::Network(error),
            _ => ConnectError::FamilyNotSupported,
        })?;
        if peer.port() == 0 {
            return Err(SendError::InvalidArgument.into());
        }
        if slot.status().mode == Mode::Open {
            let binding = binding_of(slot, &control, every_address(slot), 0);
            self.bind(id, slot, &mut control, &binding)
                .map_err(|_| ConnectError::NoPort)?;
        }
        let Seat { binding, .. } = self.demux.seat(slot, &control).ok_or(NotOpen)?;
        if binding.port == 0 {
            return Err(SendError::InvalidArgument.into());
        }
        if binding.addr.is_ipv4() != peer_ip.is_ipv4() && !binding.dual_stack {
            return Err(SendError::NetworkUnreachable.into());
        }
        let device = match binding.class.device {
            0 => scope_id(&peer).unwrap_or(0),
            device => device,
        };
        let local = self.with_context(now, |cx| match peer_ip {
            IpAddr::V4(_) => local_towards::<V4>(cx, slot, peer_ip, binding.addr, device),
            IpAddr::V6(_) => local_towards::<V6>(cx, slot, peer_ip, binding.addr, device),
        })?;
        let class = Class {
            device,
            ..binding.class
        };
        let to = Seat {
            binding: Binding::new(local, binding.port, class, &slot.head.options),
            peer: Some((peer_ip, peer.port())),
        };
        self.demux.reseat(id, slot, &mut control, &to);
        Ok(())
    }

    /// Undoes a connection: the socket takes datagrams from anybody again, if it was bound to a
    /// port before. An address that it did not choose itself is given up.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_disconnect(&self, id: SocketId) -> Result<(), NotOpen> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        let Some(seat @ Seat { peer: Some(_), .. }) = self.demux.seat(slot, &control) else {
            return Ok(());
        };
        if !control.chose_port {
            self.demux.unseat(id, slot, &control);
            return Ok(());
        }
        let Binding {
            addr, port, class, ..
        } = seat.binding;
        let addr = if control.chose_addr {
            addr
        } else {
            every_address(slot)
        };
        let binding = Binding::new(addr, port, class, &slot.head.options);
        self.demux.reseat(
            id,
            slot,
            &mut control,
            &Seat {
                binding,
                peer: None,
            },
        );
        Ok(())
    }

    /// Closes a socket. What waits in its queue is dropped; whoever waits for it is woken.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_close(&self, id: SocketId) -> Result<(), NotOpen> {
        let closed = self.demux.close(id, |slot| {
            let mut packets = slot.queue.purge(&slot.head.memory, self.demux.memory());
            slot.queue.wake();
            self.with_context(Instant::ZERO, |cx| {
                while let Some(packet) = packets.pop() {
                    cx.drop(packet, DropReason::SocketClosed);
                }
            });
        });
        closed.then_some(()).ok_or(NotOpen)
    }

    /// Gives a socket without an address an ephemeral port on all of them.
    pub(super) fn autobind(&self, id: SocketId) -> Result<(), BindError> {
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        if slot.status().mode != Mode::Open {
            return Ok(());
        }
        let binding = binding_of(slot, &control, every_address(slot), 0);
        self.bind(id, slot, &mut control, &binding)
    }

    fn bind(
        &self,
        id: SocketId,
        slot: &Slot,
        control: &mut Control,
        binding: &Binding,
    ) -> Result<(), BindError> {
        let how = if binding.port != 0 {
            Bind::Port
        } else {
            let range = self.with_context(Instant::ZERO, |cx| cx.view.sysctls.local_port_range());
            Bind::Ephemeral { range }
        };
        self.demux
            .bind(id, slot, control, binding, how)
            .map_err(|InUse| BindError::InUse)
    }
}

/// Receiving, and what else happens to an open socket.
impl Stack {
    /// Takes the datagram at the front of the queue, or with `peek` looks at it: copies what fits
    /// into `buf`. `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_recv(
        &self,
        id: SocketId,
        buf: &mut [u8],
        peek: bool,
    ) -> Result<Option<Received>, RecvError> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        if let Some(error) = slot.queue.take_error() {
            return Err(error.into());
        }
        let inet6 = slot.head.options.has(Flag::Inet6);
        let is_open = || slot.status_of(id).is_some();
        if peek {
            let look = |packet: &Packet| copy_out(packet, inet6, buf);
            return Ok(slot.queue.peek(is_open, look));
        }
        let (memory, share) = (&slot.head.memory, self.demux.memory());
        let Some(packet) = slot.queue.pop(memory, share, is_open) else {
            return Ok(None);
        };
        let received = copy_out(&packet, inet6, buf);
        self.with_context(Instant::ZERO, |cx| {
            // Counted when the application has it, as Linux does.
            cx.core.count(in_datagrams(packet.version));
            cx.core.consume(packet);
        });
        Ok(Some(received))
    }

    /// Has `waker` woken once, as soon as [`udp_recv`](Self::udp_recv) has something to return: a
    /// datagram, an error, or that the socket is closed.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_register_waker(&self, id: SocketId, waker: &Waker) -> Result<(), NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        slot.queue.register(waker);
        // If it was closed before we registered, nobody else will wake us.
        slot.status_of(id).map(drop).ok_or(NotOpen)
    }

    /// The error that the network has reported, if any; told once (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_take_error(&self, id: SocketId) -> Result<Option<SocketError>, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        Ok(slot.queue.take_error())
    }

    /// The local address and port; unspecified and 0 before the socket has any.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_local_addr(&self, id: SocketId) -> Result<SocketAddr, NotOpen> {
        Ok(self.udp_info(id)?.local)
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_peer_addr(&self, id: SocketId) -> Result<Option<SocketAddr>, NotOpen> {
        Ok(self.udp_info(id)?.peer)
    }

    /// What ss(8) shows of a socket.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_info(&self, id: SocketId) -> Result<SocketInfo, NotOpen> {
        let (slot, control) = self.demux.control(id).ok_or(NotOpen)?;
        let inet6 = slot.head.options.has(Flag::Inet6);
        let seat = self.demux.seat(slot, &control);
        let (local, peer, device) = match seat {
            Some(Seat { binding, peer }) => {
                ((binding.addr, binding.port), peer, binding.class.device)
            }
            None => ((every_address(slot), 0), None, control.device),
        };
        let shown = |(addr, port)| present(addr, port, inet6, device);
        let memory = &slot.head.memory;
        Ok(SocketInfo {
            id,
            state: match peer {
                Some(_) => SocketState::Established,
                None => SocketState::Unconnected,
            },
            local: shown(local),
            peer: peer.map(shown),
            device: (device != 0).then_some(device),
            recv_q: memory.alloc(),
            rcvbuf: memory.limit(),
            drops: memory.drops(),
        })
    }

    /// Bytes of buffers that all sockets' receive queues hold together.
    pub fn socket_memory(&self) -> usize {
        self.demux.memory().used()
    }

    /// Every open UDP socket.
    pub fn udp_sockets(&self) -> Vec<SocketInfo> {
        let sockets = self.demux.sockets().iter();
        sockets
            .filter_map(|(id, _)| self.udp_info(id).ok())
            .collect()
    }
}

/// Options.
impl Stack {
    /// Sets the receive buffer (`SO_RCVBUF`): as in Linux, twice what is asked for, since the limit
    /// counts whole buffers, at most twice `net.core.rmem_max`, at least 2,304 bytes. Returns what
    /// it is now.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_rcvbuf(&self, id: SocketId, bytes: u32) -> Result<u32, NotOpen> {
        let max = self.with_context(Instant::ZERO, |cx| cx.view.sysctls.get(Knob::RmemMax));
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        let wanted = bytes.min(u32::try_from(max).unwrap_or(u32::MAX));
        slot.head
            .memory
            .set_limit(wanted.saturating_mul(2).max(MIN_RCVBUF));
        Ok(slot.head.memory.limit())
    }

    /// Allows datagrams to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_broadcast(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::Broadcast, on)
    }

    /// Lets sockets share address and port if all of them say so before they are bound
    /// (`SO_REUSEADDR`); the last one bound gets the datagrams.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_reuse_addr(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::ReuseAddr, on)
    }

    /// Allows local addresses that are not ours (`IP_TRANSPARENT`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_transparent(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::Transparent, on)
    }

    /// Sets whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    ///
    /// # Errors
    ///
    /// [`OptionError::InvalidArgument`] for an IPv4 socket, or one that is bound.
    pub fn udp_set_v6only(&self, id: SocketId, on: bool) -> Result<(), OptionError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        if slot.status().mode != Mode::Open || !slot.head.options.has(Flag::Inet6) {
            return Err(OptionError::InvalidArgument);
        }
        slot.head.options.set(Flag::V6Only, on);
        Ok(())
    }

    /// Sets TTL or hop limit of datagrams sent (`IP_TTL`); `None` leaves it to the knob.
    ///
    /// # Errors
    ///
    /// [`OptionError::InvalidArgument`] for 0.
    pub fn udp_set_ttl(&self, id: SocketId, ttl: Option<u8>) -> Result<(), OptionError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        if ttl == Some(0) {
            return Err(OptionError::InvalidArgument);
        }
        slot.head.options.set_ttl(ttl);
        Ok(())
    }

    /// Sets type of service or traffic class of datagrams sent (`IP_TOS`, `IPV6_TCLASS`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_tos(&self, id: SocketId, tos: u8) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.head.options.set_tos(tos);
        Ok(())
    }

    /// Binds a socket to an interface (`SO_BINDTODEVICE`): it takes and sends datagrams only there.
    ///
    /// # Errors
    ///
    /// [`OptionError::NoDevice`].
    pub fn udp_set_device(&self, id: SocketId, device: Option<u32>) -> Result<(), OptionError> {
        if device.is_some_and(|ifindex| self.interface(ifindex).is_none()) {
            return Err(OptionError::NoDevice);
        }
        let device = device.unwrap_or(0);
        let (slot, mut control) = self.demux.control(id).ok_or(NotOpen)?;
        match self.demux.seat(slot, &control) {
            Some(mut seat) => {
                seat.binding.class.device = device;
                self.demux.reseat(id, slot, &mut control, &seat);
            }
            None => control.device = device,
        }
        Ok(())
    }

    fn set_flag(&self, id: SocketId, flag: Flag, on: bool) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.head.options.set(flag, on);
        Ok(())
    }
}

/// Whether a socket may call the address its own: one of ours, a group, a broadcast, or any if knob
/// or socket say so.
pub(super) fn may_be_local(cx: &Context<'_>, slot: &Slot, addr: IpAddr) -> bool {
    let is_ours = match addr {
        IpAddr::V4(addr) => {
            addr.is_multicast() || addr.is_broadcast() || V4::routes(cx.view).is_own(addr)
        }
        IpAddr::V6(addr) => addr.is_multicast() || V6::routes(cx.view).is_own(addr),
    };
    is_ours
        || slot.head.options.has(Flag::Transparent)
        || cx.view.sysctls.is_on(Knob::IpNonlocalBind)
}

/// The local address of a socket that connects: the one that it has, or what routing says.
fn local_towards<F: Family>(
    cx: &Context<'_>,
    slot: &Slot,
    peer: IpAddr,
    own: IpAddr,
    device: u32,
) -> Result<IpAddr, ConnectError> {
    let dst = F::from_ip(peer).ok_or(ConnectError::FamilyNotSupported)?;
    let src = F::from_ip(own).filter(|own| *own != F::UNSPECIFIED);
    let oif = (device != 0).then_some(device);
    let route = transmit::route_output::<F>(cx, dst, src, oif)?;
    if route.kind == RouteKind::Broadcast && !slot.head.options.has(Flag::Broadcast) {
        return Err(SendError::AccessDenied.into());
    }
    Ok(route.src.into())
}

fn binding_of(slot: &Slot, control: &Control, addr: IpAddr, port: u16) -> Binding {
    let share = slot.head.options.has(Flag::ReuseAddr);
    Binding::new(
        addr,
        port,
        Class {
            device: control.device,
            share,
        },
        &slot.head.options,
    )
}

/// The unspecified address of the socket's own family.
fn every_address(slot: &Slot) -> IpAddr {
    if slot.head.options.has(Flag::Inet6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

fn copy_out(packet: &Packet, inet6: bool, buf: &mut [u8]) -> Received {
    let offset = usize::from(packet.l4_offset) + UdpHeader::LEN;
    let (from, local): (IpAddr, IpAddr) = match packet.version {
        IpVersion::V4 => (V4::src(packet).into(), V4::dst(packet).into()),
        IpVersion::V6 => (V6::src(packet).into(), V6::dst(packet).into()),
    };
    Received {
        len: packet.copy_to(offset, buf),
        full_len: packet.total_len().saturating_sub(offset),
        from: present(from, packet.src_port, inet6, packet.iif),
        local: present(local, packet.dst_port, inet6, packet.iif),
        iif: packet.iif,
    }
}

/// An address as the socket's family writes it: on an IPv6 socket, IPv4 is mapped. Addresses that
/// mean something on one link only name the interface.
fn present(addr: IpAddr, port: u16, inet6: bool, ifindex: u32) -> SocketAddr {
    let addr = match addr {
        IpAddr::V4(addr) if inet6 => addr.to_ipv6_mapped(),
        IpAddr::V4(_) => return SocketAddr::new(addr, port),
        IpAddr::V6(addr) => addr,
    };
    let scope = if addr.is_unicast_link_local() {
        ifindex
    } else {
        0
    };
    SocketAddrV6::new(addr, port, 0, scope).into()
}

fn in_datagrams(version: IpVersion) -> Counter {
    match version {
        IpVersion::V4 => MIB_V4.udp_in_datagrams,
        IpVersion::V6 => MIB_V6.udp_in_datagrams,
    }
}
