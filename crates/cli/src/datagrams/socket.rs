//! One face for the kernel's UDP sockets and Forebay's.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{self, SocketAddr};
use std::time::Duration;

use forebay::filter::{Instruction, code};
use forebay::{Message, Stack, UdpOptions, kernel_udp};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, MMsgHdr, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketFlags, SocketType,
};

/// Whose sockets they are.
#[derive(Clone)]
pub(crate) enum Host {
    Kernel,
    Forebay(Stack),
}

/// Whether a socket shares its port with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    No,
    /// With those that say so, too (`SO_REUSEPORT`): a flow goes to one of them.
    ReusePort,
    /// A program picks by the number of the core that receives (`SO_ATTACH_REUSEPORT_CBPF`).
    ByCore,
}

impl Host {
    /// A socket that has its port for itself.
    pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<Socket> {
        self.bind_shared(addr, Sharing::No)
    }

    pub(crate) fn bind_shared(&self, addr: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
        let is_shared = sharing != Sharing::No;
        let socket = match self {
            Self::Kernel => Socket::Kernel(bind_kernels(addr, is_shared)?),
            Self::Forebay(stack) => {
                let options = UdpOptions::new().reuse_port(is_shared);
                Socket::Forebay(options.bind(stack, addr)?)
            }
        };
        if sharing == Sharing::ByCore {
            socket.pick_member_by_core()?;
        }
        Ok(socket)
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

fn bind_kernels(addr: SocketAddr, reuse_port: bool) -> io::Result<net::UdpSocket> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, reuse_port)?;
    rustix::net::bind(&socket, &addr)?;
    Ok(socket.into())
}

/// A UDP socket.
pub(crate) enum Socket {
    Kernel(net::UdpSocket),
    Forebay(forebay::UdpSocket),
}

/// A way to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveCall {
    /// Several datagrams a call.
    RecvMmsg,
    Recvmsg,
    Read,
    Recvfrom,
    Recv,
}

impl ReceiveCall {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Self; 5] = [
        Self::RecvMmsg,
        Self::Recvmsg,
        Self::Read,
        Self::Recvfrom,
        Self::Recv,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RecvMmsg => "recvMmsg",
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
    /// Several datagrams a call.
    SendMmsg,
    Write,
}

impl SendCall {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Self; 5] = [
        Self::Send,
        Self::Sendto,
        Self::Sendmsg,
        Self::SendMmsg,
        Self::Write,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendto => "sendto",
            Self::Sendmsg => "sendmsg",
            Self::SendMmsg => "sendMmsg",
            Self::Write => "write",
        }
    }

    /// Whether only the kernel has it.
    pub(crate) fn is_kernels(self) -> bool {
        self == Self::Write
    }
}

impl Socket {
    /// Receives a datagram and says how long it was.
    ///
    /// Forebay's `recvmsg` is what `recvmsg` with all control messages is elsewhere. It has no
    /// `read`: that is `recv`. A batch of one is a message.
    pub(super) fn receive(&self, call: ReceiveCall, buf: &mut [u8]) -> io::Result<usize> {
        match (self, call) {
            (Self::Kernel(socket), ReceiveCall::RecvMmsg | ReceiveCall::Recvmsg) => {
                let mut control = RecvAncillaryBuffer::default();
                let mut pieces = [IoSliceMut::new(buf)];
                let flags = RecvFlags::empty();
                Ok(rustix::net::recvmsg(socket, &mut pieces, &mut control, flags)?.bytes)
            }
            (Self::Kernel(socket), ReceiveCall::Read) => Ok(rustix::io::read(socket, buf)?),
            (Self::Kernel(socket), ReceiveCall::Recvfrom) => Ok(socket.recv_from(buf)?.0),
            (Self::Kernel(socket), ReceiveCall::Recv) => socket.recv(buf),
            (Self::Forebay(socket), ReceiveCall::RecvMmsg | ReceiveCall::Recvmsg) => {
                let received = socket.recv_vectored(&mut [IoSliceMut::new(buf)])?;
                Ok(received.len)
            }
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
    /// Forebay has no `write`: that is `send`. A batch of one is a message.
    pub(super) fn send(&self, call: SendCall, buf: &[u8], peer: SocketAddr) -> io::Result<()> {
        match (self, call) {
            (Self::Kernel(socket), SendCall::Send) => socket.send(buf)?,
            (Self::Kernel(socket), SendCall::Sendto) => socket.send_to(buf, peer)?,
            (Self::Kernel(socket), SendCall::Sendmsg | SendCall::SendMmsg) => {
                let mut control = SendAncillaryBuffer::default();
                let pieces = [IoSlice::new(buf)];
                rustix::net::sendmsg(socket, &pieces, &mut control, SendFlags::empty())?
            }
            (Self::Kernel(socket), SendCall::Write) => rustix::io::write(socket, buf)?,
            (Self::Forebay(socket), SendCall::Sendto) => socket.send_to(buf, peer)?,
            (Self::Forebay(socket), SendCall::Sendmsg | SendCall::SendMmsg) => socket
                .send_message(&Message {
                    payload: &[IoSlice::new(buf)],
                    ..Message::default()
                })?,
            (Self::Forebay(socket), SendCall::Send | SendCall::Write) => socket.send(buf)?,
        };
        Ok(())
    }

    /// Sends several datagrams to the peer in one call, and says how many were sent.
    pub(super) fn send_many(&self, datagrams: &[Vec<u8>]) -> io::Result<usize> {
        let pieces: Vec<_> = datagrams
            .iter()
            .map(|bytes| [IoSlice::new(bytes)])
            .collect();
        match self {
            Self::Kernel(socket) => {
                let mut controls: Vec<_> = pieces
                    .iter()
                    .map(|_| SendAncillaryBuffer::default())
                    .collect();
                let messages = pieces.iter().zip(&mut controls);
                let mut messages: Vec<_> = messages
                    .map(|(piece, control)| MMsgHdr::new(piece, control))
                    .collect();
                Ok(rustix::net::sendmmsg(
                    socket,
                    &mut messages,
                    SendFlags::empty(),
                )?)
            }
            Self::Forebay(socket) => {
                let messages = pieces.iter().map(|piece| Message {
                    payload: piece,
                    ..Message::default()
                });
                socket.send_batch(&messages.collect::<Vec<_>>())
            }
        }
    }

    fn pick_member_by_core(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => kernel_udp::pick_member_by_cpu(socket),
            Self::Forebay(socket) => socket.attach_reuse_port_program(&[
                Instruction::stmt(
                    code::LD | code::W | code::ABS,
                    code::AD_OFF.wrapping_add(code::AD_CPU),
                ),
                Instruction::stmt(code::RET | code::A, 0),
            ]),
        }
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
