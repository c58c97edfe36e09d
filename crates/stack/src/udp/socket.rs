//! Opening, binding, connecting and closing sockets, as applications call it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::options::MtuDiscover;
use super::send::{UdpSendError, check_family, or_loopback, scope_id};
use crate::core::Context;
use crate::demux::bound::{Binding, InUse};
use crate::demux::row::Class;
use crate::demux::{Bind, Seat};
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::fib::RouteKind;
use crate::packet::IpVersion;
use crate::socket::{Control, Flag, Mode, Slot, SocketId};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::transmit::{self, OutputRoute, SendError};

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
    /// EINVAL: an IPv4 address for an IPv6 socket that takes no IPv4.
    #[error("an IPv4 address for a socket that takes IPv6 only")]
    OnlyIpv6,
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
        let (rcvbuf, v6only, no_pmtu_disc) = self.with_context(Instant::ZERO, |cx| {
            let sysctls = cx.view.sysctls;
            (
                sysctls.get(Knob::RmemDefault),
                sysctls.is_on(Knob::Bindv6only),
                sysctls.is_on(Knob::IpNoPmtuDisc),
            )
        });
        let (id, slot) = self.demux.sockets().open().ok_or(TooManySockets)?;
        slot.queue
            .set_limit(u32::try_from(rcvbuf).unwrap_or(u32::MAX));
        let discover = match no_pmtu_disc {
            true => MtuDiscover::Dont,
            false => MtuDiscover::Want,
        };
        slot.options().set_mtu_discover(discover as u32);
        slot.options().set(Flag::Inet6, version == IpVersion::V6);
        slot.options()
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
        let options = slot.options();
        match (options.has(Flag::Inet6), ip.is_ipv6()) {
            (true, false) if options.has(Flag::V6Only) => return Err(BindError::OnlyIpv6),
            (false, true) => return Err(BindError::FamilyNotSupported),
            _ => {}
        }
        let is_ours = ip.is_unspecified()
            || options.has(Flag::Freebind)
            || self.with_context(Instant::ZERO, |cx| may_be_local(cx, slot, ip));
        if !is_ours {
            return Err(BindError::NotAvailable);
        }
        if let (0, Some(scope)) = (control.class.device, scope_id(&addr)) {
            control.class.device = scope;
        }
        let binding = binding_of(slot, &control, ip, addr.port());
        self.bind(id, slot, &mut control, &binding)?;
        if ip.is_ipv6() && !ip.is_unspecified() {
            // There is nothing of IPv4 that could come to it.
            options.set(Flag::V6Only, true);
        }
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
        slot.options().set(Flag::Transparent, true);
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
            binding: Binding::new(local, binding.port, class, slot.options()),
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
        let binding = Binding::new(addr, port, class, slot.options());
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
            self.discard_programs(slot);
            self.switch_gro(slot, false);
            self.leave_all_groups(slot);
            let mut packets = slot.queue.purge();
            slot.queue.wake();
            if packets.is_empty() {
                return;
            }
            self.with_local(|core| {
                core.allowance.uncharge(packets.bytes());
                while let Some(packet) = packets.pop() {
                    core.drop(packet, DropReason::SocketClosed);
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

/// Whether a socket may call the address its own: one of ours, a group, a broadcast, or any if knob
/// or socket say so.
pub(super) fn may_be_local(cx: &Context<'_>, slot: &Slot, addr: IpAddr) -> bool {
    let is_ours = match addr {
        IpAddr::V4(addr) => {
            addr.is_multicast() || addr.is_broadcast() || V4::routes(cx.view).is_own(addr)
        }
        IpAddr::V6(addr) => addr.is_multicast() || V6::routes(cx.view).is_own(addr),
    };
    is_ours || slot.options().has(Flag::Transparent) || cx.view.sysctls.is_on(Knob::IpNonlocalBind)
}

/// The local address of a socket that connects: the one that it has, or what routing says.
fn local_towards<F: Family>(
    cx: &Context<'_>,
    slot: &Slot,
    peer: IpAddr,
    own: IpAddr,
    device: u32,
) -> Result<IpAddr, ConnectError> {
    let route = local_route::<F>(cx, peer, own, device)?;
    if route.kind == RouteKind::Broadcast && !slot.options().has(Flag::Broadcast) {
        return Err(SendError::AccessDenied.into());
    }
    Ok(route.src.into())
}

/// The way to a peer of the family from an address of ours, or from the one that routing chooses.
pub(crate) fn local_route<'g, F: Family>(
    cx: &Context<'g>,
    peer: IpAddr,
    own: IpAddr,
    device: u32,
) -> Result<OutputRoute<'g, F>, SendError> {
    let dst = F::from_ip(peer).ok_or(SendError::NetworkUnreachable)?;
    let src = F::from_ip(own).filter(|own| *own != F::UNSPECIFIED);
    let oif = (device != 0).then_some(device);
    transmit::route_output::<F>(cx, dst, src, oif)
}

fn binding_of(slot: &Slot, control: &Control, addr: IpAddr, port: u16) -> Binding {
    Binding::new(
        addr,
        port,
        Class {
            device: control.class.device,
            share: slot.options().has(Flag::ReuseAddr),
            group: slot.options().has(Flag::ReusePort),
        },
        slot.options(),
    )
}

/// The unspecified address of the socket's own family.
pub(super) fn every_address(slot: &Slot) -> IpAddr {
    if slot.options().has(Flag::Inet6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}
