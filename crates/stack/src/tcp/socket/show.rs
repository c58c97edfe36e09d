//! What sockets say of themselves: addresses, `TCP_INFO`, the lines of ss(8).

use core::net::SocketAddr;

use super::{Role, Socket, every_address};
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::tcp::chunks::CHUNK;
use crate::tcp::sender::TimerKind;
use crate::tcp::{TcpError, TcpInfo, TcpSocketInfo, TcpState, TcpTimer};
use crate::time::Instant;
use crate::udp::NotOpen;

impl Stack {
    /// The local address and port; unspecified and 0 before the socket has any.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_local_addr(&self, id: SocketId) -> Result<SocketAddr, NotOpen> {
        let socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        Ok(socket.shown(socket.local))
    }

    /// The other end.
    ///
    /// # Errors
    ///
    /// [`TcpError::NotConnected`] unless there is a connection, [`TcpError::NotOpen`].
    pub fn tcp_peer_addr(&self, id: SocketId) -> Result<SocketAddr, TcpError> {
        let socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        match (&socket.role, socket.peer) {
            (Role::Connected(connection), Some(peer)) if !connection.is_closed() => {
                Ok(socket.shown(peer))
            }
            _ => Err(TcpError::NotConnected),
        }
    }

    /// A connection's inner state (`TCP_INFO`).
    ///
    /// # Errors
    ///
    /// [`TcpError::NotConnected`], [`TcpError::NotOpen`].
    pub fn tcp_info(&self, now: Instant, id: SocketId) -> Result<TcpInfo, TcpError> {
        let socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        socket.info(now).ok_or(TcpError::NotConnected)
    }

    /// Every TCP socket, connection and half-open connection, and what is left of those that ended
    /// (TIME-WAIT).
    pub fn tcp_sockets(&self, now: Instant) -> Vec<TcpSocketInfo> {
        let mut sockets = Vec::new();
        self.tcp
            .slots
            .for_each(|id, socket| sockets.push(socket.line(now, id)));
        self.tcp.for_each_half_open(|line| sockets.push(line));
        self.tcp.for_each_time_wait(now, |line| sockets.push(line));
        sockets
    }

    /// Bytes of memory that all connections' buffers hold together, sent and received.
    pub fn tcp_memory(&self) -> usize {
        self.tcp.memory.used() * CHUNK
    }
}

impl Socket {
    fn line(&self, now: Instant, id: SocketId) -> TcpSocketInfo {
        let (recv_queue, send_queue) = self.queues();
        let (receive_memory, send_memory) = match &self.role {
            Role::Connected(connection) => {
                let (receiver, sender) = (connection.receiver(), connection.sender());
                let held = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
                (
                    (held(receiver.charged()), receiver.buffer()),
                    (held(sender.charged()), sender.buffer()),
                )
            }
            _ => ((0, 0), (0, 0)),
        };
        TcpSocketInfo {
            id: Some(id),
            state: self.state(),
            local: self.shown(self.local),
            peer: self.shown(self.peer.unwrap_or((every_address(self.version), 0))),
            device: (self.settings.device != 0).then_some(self.settings.device),
            recv_queue,
            send_queue,
            receive_memory,
            send_memory,
            timer: self.timer(now),
            info: self.info(now),
        }
    }

    fn queues(&self) -> (u32, u32) {
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        match &self.role {
            Role::Listener(backlog) => (short(backlog.ready.len()), backlog.limit),
            Role::Connected(connection) => {
                let (receiver, sender) = (connection.receiver(), connection.sender());
                let unacked = sender.unacked_bytes() + sender.unsent_bytes();
                (short(receiver.readable()), unacked)
            }
            Role::Connecting(_) => (0, 1),
            Role::Idle | Role::Failed(_) => (0, 0),
        }
    }

    fn timer(&self, now: Instant) -> Option<TcpTimer> {
        match &self.role {
            Role::Connecting(handshake) => Some(TcpTimer {
                name: "on",
                left: handshake.deadline() - now,
                retransmits: handshake.retransmits().into(),
            }),
            Role::Connected(connection) => {
                let sender = connection.sender();
                if let Some((kind, deadline)) = sender.timer() {
                    let info = sender.info(now);
                    let (name, retransmits) = match kind {
                        TimerKind::Persist => ("persist", info.probes),
                        _ => ("on", info.retransmits),
                    };
                    return Some(TcpTimer {
                        name,
                        left: deadline - now,
                        retransmits: retransmits.into(),
                    });
                }
                let keepalive = connection.keepalive();
                Some(TcpTimer {
                    name: "keepalive",
                    left: keepalive.deadline()? - now,
                    retransmits: keepalive.probes().into(),
                })
            }
            _ => None,
        }
    }

    fn info(&self, now: Instant) -> Option<TcpInfo> {
        let Role::Connected(connection) = &self.role else {
            return None;
        };
        let (receiver, tally) = (connection.receiver(), connection.tally());
        let sender = connection.sender().info(now);
        Some(TcpInfo {
            state: TcpState::from(connection.state()),
            congestion: sender.algorithm,
            ca_state: sender.ca_state.name(),
            timestamps: connection.clock().is_some(),
            sack: connection.has_sack(),
            ecn: connection.has_ecn(),
            window_scale: connection.scales(),
            rto: sender.rto,
            rtt: sender.srtt.unwrap_or_default(),
            rttvar: sender.rttvar,
            min_rtt: sender.min_rtt.unwrap_or_default(),
            ato: receiver.ack_timeout(),
            snd_mss: sender.mss.into(),
            rcv_mss: receiver.segment(),
            advmss: connection.own_mss().into(),
            pmtu: self.path_mtu,
            cwnd: sender.cwnd,
            ssthresh: sender.ssthresh,
            bytes_sent: sender.bytes_sent,
            bytes_retrans: sender.bytes_retrans,
            bytes_acked: sender.bytes_acked,
            bytes_received: tally.bytes_received,
            segs_out: tally.segs_out,
            segs_in: tally.segs_in,
            data_segs_out: sender.data_segs_out,
            data_segs_in: tally.data_segs_in,
            unacked: sender.unacked,
            retrans: sender.retrans,
            total_retrans: sender.total_retrans,
            lost: sender.lost,
            sacked: sender.sacked,
            reordering: sender.reordering,
            pacing_rate: sender.pacing_rate,
            delivery_rate: sender.delivery_rate,
            backoff: sender.backoff.into(),
            probes: sender.probes.into(),
            last_send: sender.last_sent,
            last_recv: now - tally.last_recv,
            last_ack: sender.last_ack,
            snd_wnd: sender.window,
            rcv_wnd: receiver.window(),
            rcv_space: receiver.space(),
            rcv_rtt: receiver.rtt(),
            notsent: sender.unsent,
        })
    }
}
