//! What the calls on TCP sockets may fail with: the errors that Linux returns.

use crate::socket::SocketError;
use crate::transmit::SendError;
use crate::udp::{BindError, NotOpen};

/// Why a call on a connection failed, or the connection itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// ENOTCONN: no connection yet, or none any more.
    #[error("the socket is not connected")]
    NotConnected,
    /// EINVAL: the call is not for this kind of socket.
    #[error("invalid argument")]
    InvalidArgument,
    /// ECONNREFUSED: the peer answered the handshake with a reset.
    #[error("connection refused")]
    ConnectionRefused,
    /// ECONNRESET: the peer reset the connection.
    #[error("connection reset by peer")]
    ConnectionReset,
    /// ECONNABORTED: somebody here gave the connection up.
    #[error("connection aborted")]
    ConnectionAborted,
    /// ETIMEDOUT: the peer was silent for too long.
    #[error("connection timed out")]
    TimedOut,
    /// EPIPE: this side has said that it sends no more.
    #[error("broken pipe")]
    BrokenPipe,
    /// What a router or the peer's host said.
    #[error(transparent)]
    Network(#[from] SocketError),
}

/// Why a socket does not listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The socket had no address yet, and got none; or another one listens there.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// EINVAL: it is connected, or was.
    #[error("a connected socket can't listen")]
    Connected,
}

/// Why a handshake was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TcpConnectError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EAFNOSUPPORT.
    #[error("address family not supported by the socket")]
    FamilyNotSupported,
    /// EISCONN.
    #[error("the socket is connected already")]
    IsConnected,
    /// EALREADY.
    #[error("a handshake is under way already")]
    AlreadyConnecting,
    /// EINVAL: it listens, or was connected before.
    #[error("invalid argument")]
    InvalidArgument,
    /// EADDRNOTAVAIL: the socket had no port, and none is free towards this peer.
    #[error("cannot assign requested address: no local port is free")]
    NoPort,
    /// EADDRNOTAVAIL: there is such a connection already, between the same addresses and ports.
    #[error("cannot assign requested address: there is such a connection")]
    InUse,
    /// No way there.
    #[error(transparent)]
    Network(#[from] SendError),
}
