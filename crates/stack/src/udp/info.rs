//! What sockets say of themselves: addresses, and the lines of ss(8).

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::socket::{NotOpen, every_address};
use crate::demux::Seat;
use crate::socket::{Flag, SocketId};
use crate::stack::Stack;

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
    /// An IPv6 socket that takes no IPv4.
    pub v6only: bool,
    /// Takes what is not for an address of ours.
    pub transparent: bool,
    /// Bytes of buffers that its receive queue holds.
    pub recv_q: u32,
    /// Bytes that the queue may hold.
    pub rcvbuf: u32,
    /// Datagrams that it did not keep: no room, or a checksum found wrong when they were read.
    pub drops: u32,
}

/// What a socket says of itself.
impl Stack {
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
        let inet6 = slot.options().has(Flag::Inet6);
        let seat = self.demux.seat(slot, &control);
        let (local, peer, device) = match seat {
            Some(Seat { binding, peer }) => {
                ((binding.addr, binding.port), peer, binding.class.device)
            }
            None => ((every_address(slot), 0), None, control.class.device),
        };
        let shown = |(addr, port)| present(addr, port, inet6, device);
        let memory = slot.queue.memory();
        Ok(SocketInfo {
            id,
            state: match peer {
                Some(_) => SocketState::Established,
                None => SocketState::Unconnected,
            },
            local: shown(local),
            peer: peer.map(shown),
            device: (device != 0).then_some(device),
            v6only: slot.options().has(Flag::V6Only),
            transparent: slot.options().has(Flag::Transparent),
            recv_q: memory.used,
            rcvbuf: memory.limit,
            drops: slot.drops(),
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

/// An address as the socket's family writes it: on an IPv6 socket, IPv4 is mapped.
pub(crate) fn present(addr: IpAddr, port: u16, inet6: bool, ifindex: u32) -> SocketAddr {
    match addr {
        IpAddr::V4(addr) if inet6 => present_v6(addr.to_ipv6_mapped(), port, ifindex),
        IpAddr::V4(_) => SocketAddr::new(addr, port),
        IpAddr::V6(addr) => present_v6(addr, port, ifindex),
    }
}

/// Addresses that mean something on one link only name the interface.
#[inline]
pub(super) fn present_v6(addr: Ipv6Addr, port: u16, ifindex: u32) -> SocketAddr {
    let scope = if addr.is_unicast_link_local() {
        ifindex
    } else {
        0
    };
    SocketAddrV6::new(addr, port, 0, scope).into()
}
