//! Options, and what they are set to.

use std::io;

use forebay_stack::udp::{MtuDiscover, SocketOptions};

use super::UdpSocket;
use crate::error;

/// Options that may be set at any time. Those that both families have are one setting for both.
impl UdpSocket {
    /// Allows broadcasts (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        let set = self.inner().udp_set_broadcast(self.id(), on);
        set.map_err(error::not_open)
    }

    /// What was set by [`set_broadcast`](Self::set_broadcast).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.options()?.broadcast)
    }

    /// TTL or hop limit of datagrams sent: 1 to 255 (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for anything else.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).map_err(|_| io::ErrorKind::InvalidInput)?;
        let set = self.inner().udp_set_ttl(self.id(), Some(ttl));
        set.map_err(error::option)
    }

    /// What was set by [`set_ttl`](Self::set_ttl), or else by `net.ipv4.ip_default_ttl` or
    /// `net.ipv6.conf.*.hop_limit`.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.options()?.ttl.into())
    }

    /// Type of service or traffic class of datagrams sent (`IP_TOS`, `IPV6_TCLASS`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        let set = self.inner().udp_set_tos(self.id(), tos);
        set.map_err(error::not_open)
    }

    /// What was set by [`set_tos`](Self::set_tos).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn tos(&self) -> io::Result<u8> {
        Ok(self.options()?.tos)
    }

    /// Asks for a receive buffer of this many bytes (`SO_RCVBUF`) and returns what Linux's
    /// `getsockopt` would: twice that, within `net.core.rmem_max`. A datagram is charged the buffers
    /// it lies in, 2,112 bytes each.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<u32> {
        let set = self.inner().udp_set_rcvbuf(self.id(), bytes);
        set.map_err(error::not_open)
    }

    /// The same without regard to `net.core.rmem_max` (`SO_RCVBUFFORCE`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn force_recv_buffer_size(&self, bytes: u32) -> io::Result<u32> {
        let set = self.inner().udp_force_rcvbuf(self.id(), bytes);
        set.map_err(error::not_open)
    }

    /// Bytes of buffers that the receive queue may hold; `net.core.rmem_default` unless set.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        let info = self.inner().udp_info(self.id());
        Ok(info.map_err(error::not_open)?.rcvbuf)
    }

    /// Datagrams that came for this socket since it was opened and were not kept, by now: no room,
    /// refused by its filter, or a wrong checksum found when they were to be read
    /// (`SO_RXQ_OVFL`, which tells how many they were when a datagram came).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn drops(&self) -> io::Result<u32> {
        let info = self.inner().udp_info(self.id());
        Ok(info.map_err(error::not_open)?.drops)
    }

    /// Keeps what the network says about datagrams: soft errors, too, and for a socket that is not
    /// connected (`IP_RECVERR`). The next call returns the error, and
    /// [`recv_error`](Self::recv_error) says more of it.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_recv_err(&self, on: bool) -> io::Result<()> {
        let set = self.inner().udp_set_recv_err(self.id(), on);
        set.map_err(error::not_open)
    }

    /// What was set by [`set_recv_err`](Self::set_recv_err).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn recv_err(&self) -> io::Result<bool> {
        Ok(self.options()?.recv_err)
    }

    /// What is done about the MTU of paths (`IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`);
    /// [`MtuDiscover::Want`] unless `net.ipv4.ip_no_pmtu_disc` says otherwise.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_mtu_discover(&self, how: MtuDiscover) -> io::Result<()> {
        let set = self.inner().udp_set_mtu_discover(self.id(), how);
        set.map_err(error::not_open)
    }

    /// What was set by [`set_mtu_discover`](Self::set_mtu_discover).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn mtu_discover(&self) -> io::Result<MtuDiscover> {
        Ok(self.options()?.mtu_discover)
    }

    /// Largest IP packet that the path to the peer takes, as far as is known (`IP_MTU`,
    /// `IPV6_MTU`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`]; [`io::ErrorKind::NetworkUnreachable`] and the like where the
    /// way is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        let now = self.shared.stack.now();
        let mtu = self
            .inner()
            .udp_mtu(now, self.id())
            .map_err(error::option)?;
        mtu.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Takes packets of one interface only, and sends by it; `None` takes all again
    /// (`SO_BINDTODEVICE`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] for an unknown device.
    pub fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
        let index = match name {
            Some(name) => {
                let interface = self.inner().interface_named(name);
                Some(interface.ok_or_else(|| error::no_device(name))?.index)
            }
            None => None,
        };
        let set = self.inner().udp_set_device(self.id(), index);
        set.map_err(error::option)
    }

    /// The interface that the socket is bound to, if any.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if it is there no more.
    pub fn device(&self) -> io::Result<Option<String>> {
        let Some(index) = self.options()?.device else {
            return Ok(None);
        };
        let interface = self.inner().interface(index);
        let interface = interface.ok_or(io::ErrorKind::NotFound)?;
        Ok(Some(interface.name.clone()))
    }

    fn options(&self) -> io::Result<SocketOptions> {
        let options = self.inner().udp_options(self.id());
        options.map_err(error::not_open)
    }
}

/// What was said by [`UdpOptions`](super::UdpOptions).
impl UdpSocket {
    /// Whether the address may be shared (`SO_REUSEADDR`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn reuse_address(&self) -> io::Result<bool> {
        Ok(self.options()?.reuse_addr)
    }

    /// Whether the socket may be one of a group (`SO_REUSEPORT`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn reuse_port(&self) -> io::Result<bool> {
        Ok(self.options()?.reuse_port)
    }

    /// Whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn only_v6(&self) -> io::Result<bool> {
        Ok(self.options()?.v6only)
    }

    /// Whether any address will do as the local one (`IP_TRANSPARENT`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn transparent(&self) -> io::Result<bool> {
        Ok(self.options()?.transparent)
    }

    /// Whether any address would have done to be bound to (`IP_FREEBIND`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn freebind(&self) -> io::Result<bool> {
        Ok(self.options()?.freebind)
    }
}
