//! Socket options.

use super::socket::NotOpen;
use crate::socket::{Flag, Mode, Options, SocketId};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;

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

/// Options.
impl Stack {
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
