//! What is told of TCP sockets: what ss(8) shows, and `TCP_INFO`.

use core::net::SocketAddr;
use core::time::Duration;

use super::congestion::Algorithm;
use crate::socket::SocketId;

/// The states of RFC 9293 section 3.3.2, under the names of ss(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "RFC 9293 defines them")]
pub enum TcpState {
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

/// Which way a waker waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Something to read or to accept, the stream's end, an error.
    Read,
    /// Room to write, the handshake's end, an error.
    Write,
}

/// What a socket has to tell (poll(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpReadiness {
    /// A read or an accept returns at once, with bytes, the stream's end or an error.
    pub readable: bool,
    /// A write returns at once, with bytes taken or an error.
    pub writable: bool,
    /// An urgent byte waits (`POLLPRI`).
    pub urgent: bool,
    /// An error waits to be told.
    pub error: bool,
    /// The peer sends no more (`POLLRDHUP`).
    pub read_closed: bool,
    /// Both directions are shut (`POLLHUP`).
    pub write_closed: bool,
}

/// A connection that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its socket.
    pub id: SocketId,
    /// Who connected.
    pub peer: SocketAddr,
    /// Where to: for a listener on any address, the original destination.
    pub local: SocketAddr,
}

/// What a send does beside sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    /// More is to come: a segment that is not full waits (`MSG_MORE`).
    pub more: bool,
    /// The last byte is urgent (`MSG_OOB`).
    pub urgent: bool,
}

/// A TCP socket, as ss(8) shows one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocketInfo {
    /// Its number, where it is a socket: time-wait and half-open ones are not.
    pub id: Option<SocketId>,
    /// How far it is.
    pub state: TcpState,
    /// The local end.
    pub local: SocketAddr,
    /// The other end; unspecified if there is none.
    pub peer: SocketAddr,
    /// The interface that it is bound to.
    pub device: Option<u32>,
    /// Bytes to be read; of a listener, connections to be accepted.
    pub recv_queue: u32,
    /// Bytes that the peer has not acknowledged; of a listener, its backlog.
    pub send_queue: u32,
    /// Bytes of memory held for reading, and the most allowed.
    pub receive_memory: (u32, u32),
    /// Bytes of memory held for writing, and the most allowed.
    pub send_memory: (u32, u32),
    /// The timer that runs: its name in ss(8), when it ends, how often it has.
    pub timer: Option<TcpTimer>,
    /// More of a connection.
    pub info: Option<TcpInfo>,
}

/// A running timer, as `ss -o` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpTimer {
    /// `on` (retransmission), `keepalive`, `timewait`, `persist`.
    pub name: &'static str,
    /// Until it ends.
    pub left: Duration,
    /// How often it has ended without an answer.
    pub retransmits: u32,
}

/// A connection's inner state (`TCP_INFO`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "tcp(7) and ss(8) define them")]
pub struct TcpInfo {
    pub state: TcpState,
    pub congestion: Algorithm,
    /// Recovery's state, as ss(8) names it: `open`, `disorder`, `cwr`, `recovery`, `loss`.
    pub ca_state: &'static str,
    pub timestamps: bool,
    pub sack: bool,
    pub ecn: bool,
    /// Shifts of the peer's and of our window, if both scale.
    pub window_scale: Option<(u8, u8)>,
    pub rto: Duration,
    pub rtt: Duration,
    pub rttvar: Duration,
    pub min_rtt: Duration,
    pub ato: Duration,
    /// Payload bytes of a segment that is sent.
    pub snd_mss: u32,
    /// Estimate of the peer's.
    pub rcv_mss: u32,
    pub advmss: u32,
    pub pmtu: u32,
    /// Packets.
    pub cwnd: u32,
    /// Packets; `None` until the first loss.
    pub ssthresh: Option<u32>,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u64,
    pub segs_in: u64,
    pub data_segs_out: u64,
    pub data_segs_in: u64,
    /// Packets on their way, retransmitted and not acknowledged, thought lost, known to have come.
    pub unacked: u32,
    pub retrans: u32,
    pub total_retrans: u32,
    pub lost: u32,
    pub sacked: u32,
    pub reordering: u32,
    /// Bytes a second.
    pub pacing_rate: Option<u64>,
    pub delivery_rate: Option<u64>,
    pub backoff: u32,
    pub probes: u32,
    pub last_send: Duration,
    pub last_recv: Duration,
    pub last_ack: Duration,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rcv_space: u32,
    /// The round trip as the receiver knows it; zero if it does not.
    pub rcv_rtt: Duration,
    pub notsent: u32,
}
