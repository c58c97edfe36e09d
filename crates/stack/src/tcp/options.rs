//! Options of TCP sockets.

use core::time::Duration;

use super::congestion::Algorithm;

/// An option, and what it is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpOption {
    /// Small segments don't wait for acknowledgements (`TCP_NODELAY`).
    NoDelay(bool),
    /// Only full segments leave, for 200 ms at most (`TCP_CORK`).
    Cork(bool),
    /// Acknowledgements don't wait (`TCP_QUICKACK`); for now, as on Linux.
    QuickAck(bool),
    /// An idle peer is asked now and then whether it is still there (`SO_KEEPALIVE`).
    KeepAlive(bool),
    /// How long a connection is idle before that (`TCP_KEEPIDLE`).
    KeepIdle(Duration),
    /// Time between questions (`TCP_KEEPINTVL`).
    KeepInterval(Duration),
    /// Questions without an answer before the connection is given up (`TCP_KEEPCNT`).
    KeepCount(u8),
    /// What a close does about bytes that were not sent (`SO_LINGER`): with `Some(ZERO)`, resets.
    Linger(Option<Duration>),
    /// How long sent bytes may wait for their acknowledgement (`TCP_USER_TIMEOUT`); zero leaves it to
    /// `tcp_retries2`.
    UserTimeout(Duration),
    /// `SO_REUSEADDR`.
    ReuseAddr(bool),
    /// `SO_REUSEPORT`.
    ReusePort(bool),
    /// Bytes of the receive buffer; doubled, as on Linux (`SO_RCVBUF`).
    ReceiveBuffer(u32),
    /// Bytes of the send buffer; doubled, as on Linux (`SO_SNDBUF`).
    SendBuffer(u32),
    /// The congestion control (`TCP_CONGESTION`).
    Congestion(Algorithm),
    /// TTL or hop limit; `None` leaves it to the knob (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    Ttl(Option<u8>),
    /// Type of service or traffic class (`IP_TOS`, `IPV6_TCLASS`); its ECN bits are TCP's own.
    Tos(u8),
    /// Index of the only interface to use (`SO_BINDTODEVICE`).
    Device(Option<u32>),
    /// An IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    V6Only(bool),
    /// Local addresses may be anybody's (`IP_TRANSPARENT`).
    Transparent(bool),
    /// Local addresses may be such as are not there yet (`IP_FREEBIND`).
    Freebind(bool),
    /// Urgent bytes stay in the stream (`SO_OOBINLINE`).
    OobInline(bool),
    /// Largest payload of a segment, in bytes (`TCP_MAXSEG`).
    MaxSegment(u16),
    /// Bytes a second that are sent at most; `u64::MAX` is no limit (`SO_MAX_PACING_RATE`).
    MaxPacingRate(u64),
}

/// What a socket's options are set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as TcpOption says of each")]
pub struct TcpOptionValues {
    pub no_delay: bool,
    pub cork: bool,
    pub quick_ack: bool,
    pub keep_alive: bool,
    pub keep_idle: Duration,
    pub keep_interval: Duration,
    pub keep_count: u8,
    pub linger: Option<Duration>,
    pub user_timeout: Duration,
    pub reuse_addr: bool,
    pub reuse_port: bool,
    /// As doubled.
    pub receive_buffer: u32,
    /// As doubled.
    pub send_buffer: u32,
    pub congestion: Algorithm,
    /// What holds, whether set or the knob's.
    pub ttl: u8,
    pub tos: u8,
    pub device: Option<u32>,
    pub v6only: bool,
    pub transparent: bool,
    pub freebind: bool,
    pub oob_inline: bool,
    /// 0: what the path's MTU leaves.
    pub max_segment: u16,
    pub max_pacing_rate: u64,
}
