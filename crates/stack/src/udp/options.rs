//! Socket options.

use super::socket::NotOpen;
use crate::socket::{Flag, Mode, SocketId};
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
