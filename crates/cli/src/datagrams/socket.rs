//! One face for the kernel's UDP sockets and Forebay's.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{self, SocketAddr};
use std::time::Duration;

use forebay::Stack;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

/// Whose sockets they are.
#[derive(Clone)]
pub(crate) enum Host {
    Kernel,
    Forebay(Stack),
}

impl Host {
    pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<Socket> {
        Ok(match self {
            Self::Kernel => Socket::Kernel(net::UdpSocket::bind(addr)?),
            Self::Forebay(stack) => Socket::Forebay(forebay::UdpSocket::bind(stack, addr)?),
        })
    }

    /// What `net.ipv4.ip_early_demux` is; 0 where nobody tells.
    pub(crate) fn ip_early_demux(&self) -> u32 {
        let value = match self {
            Self::Kernel => fs::read_to_string("/proc/sys/net/ipv4/ip_early_demux").ok(),
            Self::Forebay(stack) => stack.inner().sysctl("net.ipv4.ip_early_demux").ok(),
        };
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    }
}

/// A UDP socket.
pub(crate) enum Socket {
    Kernel(net::UdpSocket),
    Forebay(forebay::UdpSocket),
}

/// A way to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveCall {
    Recvmsg,
    Read,
    Recvfrom,
    Recv,
}

impl ReceiveCall {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Self; 4] = [Self::Recvmsg, Self::Read, Self::Recvfrom, Self::Recv];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Recvmsg => "recvmsg",
            Self::Read => "read",
            Self::Recvfrom => "recvfrom",
            Self::Recv => "recv",
        }
    }

    /// Whether only the kernel has it.
    pub(crate) fn is_kernels(self) -> bool {
        self == Self::Read
    }
}

/// A way to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendCall {
    Send,
    Sendto,
    Sendmsg,
    Write,
}

impl SendCall {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Self; 4] = [Self::Send, Self::Sendto, Self::Sendmsg, Self::Write];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendto => "sendto",
            Self::Sendmsg => "sendmsg",
            Self::Write => "write",
        }
    }

    /// Whether only the kernel has it.
    pub(crate) fn is_kernels(self) -> bool {
        matches!(self, Self::Sendmsg | Self::Write)
    }
}

impl Socket {
    /// Receives a datagram and says how long it was.
    ///
    /// Forebay's `recvmsg` is what `recvmsg` with `IP_PKTINFO` is elsewhere: the datagram, its sender,
    /// and the address that it was sent to. It has no `read`: that is `recv`.
    pub(super) fn receive(&self, call: ReceiveCall, buf: &mut [u8]) -> io::Result<usize> {
        match (self, call) {
            (Self::Kernel(socket), ReceiveCall::Recvmsg) => {
                let mut control = RecvAncillaryBuffer::default();
                let mut pieces = [IoSliceMut::new(buf)];
                let flags = RecvFlags::empty();
                Ok(rustix::net::recvmsg(socket, &mut pieces, &mut control, flags)?.bytes)
            }
            (Self::Kernel(socket), ReceiveCall::Read) => Ok(rustix::io::read(socket, buf)?),
            (Self::Kernel(socket), ReceiveCall::Recvfrom) => Ok(socket.recv_from(buf)?.0),
            (Self::Kernel(socket), ReceiveCall::Recv) => socket.recv(buf),
            (Self::Forebay(socket), ReceiveCall::Recvmsg) => Ok(socket.recv_from_to(buf)?.0),
            (Self::Forebay(socket), ReceiveCall::Recvfrom) => Ok(socket.recv_from(buf)?.0),
            (Self::Forebay(socket), ReceiveCall::Read | ReceiveCall::Recv) => socket.recv(buf),
        }
    }

    /// Receives a datagram and says who sent it.
    pub(super) fn sender(&self, buf: &mut [u8]) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => Ok(socket.recv_from(buf)?.1),
            Self::Forebay(socket) => Ok(socket.recv_from(buf)?.1),
        }
    }

    /// Sends a datagram to `peer`, which the socket is connected to.
    ///
    /// Forebay has neither `sendmsg` nor `write`: they are `send`.
    pub(super) fn send(&self, call: SendCall, buf: &[u8], peer: SocketAddr) -> io::Result<()> {
        match (self, call) {
            (Self::Kernel(socket), SendCall::Send) => socket.send(buf)?,
            (Self::Kernel(socket), SendCall::Sendto) => socket.send_to(buf, peer)?,
            (Self::Kernel(socket), SendCall::Sendmsg) => {
                let mut control = SendAncillaryBuffer::default();
                let pieces = [IoSlice::new(buf)];
                rustix::net::sendmsg(socket, &pieces, &mut control, SendFlags::empty())?
            }
            (Self::Kernel(socket), SendCall::Write) => rustix::io::write(socket, buf)?,
            (Self::Forebay(socket), SendCall::Sendto) => socket.send_to(buf, peer)?,
            (Self::Forebay(socket), _) => socket.send(buf)?,
        };
        Ok(())
    }

    pub(crate) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.connect(peer),
            Self::Forebay(socket) => socket.connect(peer),
        }
    }

    /// Lets anybody's datagrams in again.
    pub(super) fn disconnect(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => Ok(rustix::net::connect_unspec(socket)?),
            Self::Forebay(socket) => socket.disconnect(),
        }
    }

    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.set_nonblocking(nonblocking),
            Self::Forebay(socket) => socket.set_nonblocking(nonblocking),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.set_read_timeout(timeout),
            Self::Forebay(socket) => socket.set_read_timeout(timeout),
        }
    }
}
