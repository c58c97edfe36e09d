//! How packets name sockets.

/// A socket, by its slot and the slot's generation.
///
/// A packet may carry an id past the socket's end: slots are used again under a new generation, so
/// whoever follows an id checks the generation under the socket's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// Index of the slot.
    pub(crate) slot: u32,
    /// Odd while the slot is in use.
    pub(crate) generation: core::num::NonZeroU32,
}

/// What an ICMP error says to a socket; the errors that Linux makes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SocketError {
    /// ECONNREFUSED: no socket at the other end.
    #[error("connection refused")]
    ConnectionRefused,
    /// EHOSTUNREACH, for now.
    #[error("no route to host")]
    HostUnreachable,
    /// EHOSTUNREACH, for good: somebody on the way has a rule against it, or knows no such host.
    #[error("no route to host")]
    HostProhibited,
    /// ENETUNREACH, for now.
    #[error("network is unreachable")]
    NetworkUnreachable,
    /// ENETUNREACH, for good: somebody on the way has a rule against it, or knows no such network.
    #[error("network is unreachable")]
    NetworkProhibited,
    /// EACCES: somebody on the way has a rule against it (ICMPv6 says it so).
    #[error("permission denied")]
    PermissionDenied,
    /// EPROTO: somebody found a header of ours wrong.
    #[error("protocol error")]
    ProtocolError,
    /// ENOPROTOOPT: the other end does not speak the protocol.
    #[error("protocol not available")]
    ProtocolUnavailable,
    /// EMSGSIZE: larger than the path's MTU.
    #[error("message too long")]
    MessageTooLong,
}

impl SocketError {
    /// Whether it is final, so that a connected socket hears of it unasked. Soft errors may pass by
    /// themselves (RFC 1122 section 4.2.3.9, RFC 5461) and are told only to who asked (`IP_RECVERR`).
    pub fn is_hard(self) -> bool {
        !matches!(self, Self::HostUnreachable | Self::NetworkUnreachable)
    }
}
