//! Socket options.

use core::net::IpAddr;

use super::socket::{NotOpen, local_route};
use crate::demux::Seat;
use crate::family::{Family, V4, V6};
use crate::socket::{Flag, Mode, Options, SocketId};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::transmit::SendError;

/// Smallest receive buffer, in bytes (Linux's `SOCK_MIN_RCVBUF`).
const MIN_RCVBUF: u32 = 2_304;

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
    /// ENOMEM: too many sockets have options of the kind.
    #[error("too many sockets have such options")]
    TooMany,
    /// No way to the peer.
    #[error(transparent)]
    Network(#[from] SendError),
}

/// What is done about the MTU of paths (`IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`); the numbers are
/// Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum MtuDiscover {
    /// Datagrams go without DF, and in fragments if they don't fit the path as far as it is known.
    Dont = 0,
    /// With DF if they fit the path, else in fragments.
    #[default]
    Want = 1,
    /// With DF; what does not fit the path is refused.
    Do = 2,
    /// With DF; what does not fit the first link is refused, what is known of the path ignored.
    Probe = 3,
    /// Without DF; what does not fit the first link is refused. Routers are not heard.
    Interface = 4,
    /// Without DF; what does not fit the first link goes in fragments. Routers are not heard.
    Omit = 5,
}

impl MtuDiscover {
    pub(super) fn of(options: &Options) -> Self {
        match options.mtu_discover() {
            0 => Self::Dont,
            2 => Self::Do,
            3 => Self::Probe,
            4 => Self::Interface,
            5 => Self::Omit,
            _ => Self::Want,
        }
    }

    /// Whether routers are heard (Linux's `ip_sk_accept_pmtu`).
    pub(super) fn accepts(self) -> bool {
        !matches!(self, Self::Interface | Self::Omit)
    }

    /// Whether the path counts, as far as it is known, or the first link alone.
    pub(super) fn uses_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    /// Whether what does not fit is refused.
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Do | Self::Probe | Self::Interface)
    }

    /// Whether routers may not fragment; `locked` says that nothing is to be discovered.
    pub(super) fn forbids_fragments(self, locked: bool) -> bool {
        match self {
            Self::Do | Self::Probe => true,
            Self::Want => !locked,
            Self::Dont | Self::Interface | Self::Omit => false,
        }
    }
}

/// What a socket's options are set to, or come to unless set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketOptions {
    /// Broadcasts may be sent (`SO_BROADCAST`).
    pub broadcast: bool,
    /// `SO_REUSEADDR`.
    pub reuse_addr: bool,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// Local addresses may be anybody's (`IP_TRANSPARENT`).
    pub transparent: bool,
    /// Local addresses may be such as are not there yet (`IP_FREEBIND`).
    pub freebind: bool,
    /// An IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    pub v6only: bool,
    /// Errors are kept with all that is known of them (`IP_RECVERR`).
    pub recv_err: bool,
    /// TTL or hop limit of datagrams to one host (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    pub ttl: u8,
    /// Type of service or traffic class (`IP_TOS`, `IPV6_TCLASS`).
    pub tos: u8,
    /// What is done about the MTU of paths.
    pub mtu_discover: MtuDiscover,
    /// Index of the interface that the socket is bound to (`SO_BINDTODEVICE`).
    pub device: Option<u32>,
}

/// Options.
impl Stack {
    /// What a socket's options are set to.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_options(&self, id: SocketId) -> Result<SocketOptions, NotOpen> {
        let device = self.udp_info(id)?.device;
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        let options = slot.options();
        let default_ttl = || {
            let oif = device.unwrap_or(0);
            self.with_context(Instant::ZERO, |cx| match options.has(Flag::Inet6) {
                true => V6::default_ttl(cx.view, oif),
                false => V4::default_ttl(cx.view, oif),
            })
        };
        Ok(SocketOptions {
            broadcast: options.has(Flag::Broadcast),
            reuse_addr: options.has(Flag::ReuseAddr),
            reuse_port: options.has(Flag::ReusePort),
            transparent: options.has(Flag::Transparent),
            freebind: options.has(Flag::Freebind),
            v6only: options.has(Flag::V6Only),
            recv_err: options.has(Flag::RecvErr),
            ttl: options.ttl().unwrap_or_else(default_ttl),
            tos: options.tos(),
            mtu_discover: MtuDiscover::of(options),
            device,
        })
    }

    /// Largest IP packet that the path to a connected socket's peer takes, as far as is known
    /// (`IP_MTU`); `None` if the socket is not connected.
    ///
    /// # Errors
    ///
    /// [`OptionError::NotOpen`], [`OptionError::Network`] if there is no way there any more.
    pub fn udp_mtu(&self, now: Instant, id: SocketId) -> Result<Option<u32>, OptionError> {
        let (slot, control) = self.demux.control(id).ok_or(NotOpen)?;
        let seat = self.demux.seat(slot, &control);
        let Some(Seat {
            binding,
            peer: Some((peer, _)),
        }) = seat
        else {
            return Ok(None);
        };
        let device = binding.class.device;
        let mtu = self.with_context(now, |cx| match peer {
            IpAddr::V4(_) => local_route::<V4>(cx, peer, binding.addr, device).map(|r| r.mtu),
            IpAddr::V6(_) => local_route::<V6>(cx, peer, binding.addr, device).map(|r| r.mtu),
        })?;
        Ok(Some(mtu))
    }

    /// Sets what is done about the MTU of paths.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_mtu_discover(&self, id: SocketId, how: MtuDiscover) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.options().set_mtu_discover(how as u32);
        Ok(())
    }

    /// Keeps what the network says about datagrams, soft errors, too, and for a socket that is not
    /// connected (`IP_RECVERR`, `IPV6_RECVERR`). The next call returns the error;
    /// [`udp_recv_error`](Self::udp_recv_error) says more.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_recv_err(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.options().set(Flag::RecvErr, on);
        if !on {
            *slot.reports() = None;
        }
        Ok(())
    }

    /// Sets the receive buffer (`SO_RCVBUF`): as in Linux, twice what is asked for, since the limit
    /// counts whole buffers, at most twice `net.core.rmem_max`, at least 2,304 bytes. Returns what
    /// it is now.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_rcvbuf(&self, id: SocketId, bytes: u32) -> Result<u32, NotOpen> {
        let max = self.with_context(Instant::ZERO, |cx| cx.view.sysctls.get(Knob::RmemMax));
        self.udp_force_rcvbuf(id, bytes.min(u32::try_from(max).unwrap_or(u32::MAX)))
    }

    /// The same without regard to `net.core.rmem_max` (`SO_RCVBUFFORCE`): up to 2^31 - 2 bytes.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_force_rcvbuf(&self, id: SocketId, bytes: u32) -> Result<u32, NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        let doubled = bytes.min(i32::MAX as u32 / 2) * 2;
        slot.queue.set_limit(doubled.max(MIN_RCVBUF));
        Ok(slot.queue.memory().limit)
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

    /// Lets sockets share address and port in a group if all of them say so before they are bound
    /// (`SO_REUSEPORT`): each flow goes to one of those that are not connected, by its hash.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_reuse_port(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::ReusePort, on)
    }

    /// Allows local addresses that are not ours (`IP_TRANSPARENT`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_transparent(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::Transparent, on)
    }

    /// Allows the socket to be bound to addresses that are not ours, or not yet (`IP_FREEBIND`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_freebind(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        self.set_flag(id, Flag::Freebind, on)
    }

    /// Sets whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    ///
    /// # Errors
    ///
    /// [`OptionError::InvalidArgument`] for an IPv4 socket, or one that is bound.
    pub fn udp_set_v6only(&self, id: SocketId, on: bool) -> Result<(), OptionError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        if slot.status().mode != Mode::Open || !slot.options().has(Flag::Inet6) {
            return Err(OptionError::InvalidArgument);
        }
        slot.options().set(Flag::V6Only, on);
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
        slot.options().set_ttl(ttl);
        Ok(())
    }

    /// Sets type of service or traffic class of datagrams sent (`IP_TOS`, `IPV6_TCLASS`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_tos(&self, id: SocketId, tos: u8) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.options().set_tos(tos);
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
            None => control.class.device = device,
        }
        Ok(())
    }

    fn set_flag(&self, id: SocketId, flag: Flag, on: bool) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.options().set(flag, on);
        Ok(())
    }
}
