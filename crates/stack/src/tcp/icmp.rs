//! What the network reports about our segments.
//!
//! A report can be forged by whoever guesses the ports, so it must quote a sequence number that is
//! under way (RFC 5927 section 4.1). Only of a handshake it can be the end, and only if it says that
//! nobody speaks TCP there, or not on that port; what else it may say can pass (RFC 1122 section
//! 4.2.3.9, RFC 5461), and is told if the connection times out.

use super::TcpError;
use super::connection::Wake;
use super::socket::{Role, Socket, with_socket};
use super::table::Found;
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::flow::Flow;
use crate::family::Family;
use crate::ip::path_mtu;
use crate::socket::SocketError;
use crate::udp::IcmpReport;
use crate::wire::protocol;
use crate::wire::seq::Seq;

/// Where the sequence number lies in a TCP header, and what every quote has of that (RFC 792).
const SEQ: core::ops::Range<usize> = 4..8;

/// Tells the connection that sent the quoted segment. False if none here can have sent it.
pub(crate) fn receive_error<F: Family>(cx: &mut Context<'_>, report: &IcmpReport<'_, F>) -> bool {
    let quoted = &report.quoted;
    let local = (quoted.local.into(), quoted.local_port);
    let remote = (quoted.remote.into(), quoted.remote_port);
    let flow = Flow::new(protocol::TCP, local, remote);
    let Some(Found::Socket(id)) = cx.stack.tcp.connections.lookup(&flow, quoted.iif) else {
        return false;
    };
    let Some(&[a, b, c, d]) = report.datagram.get(SEQ) else {
        return false;
    };
    let seq = Seq(u32::from_be_bytes([a, b, c, d]));
    let told = with_socket(cx, id, |cx, socket| {
        if socket.flow() != Some(flow) || !socket.is_under_way(seq) {
            cx.core.count(Counter::TcpExtOutOfWindowIcmps);
            return (false, Wake::default());
        }
        let wake = match quoted.mtu {
            Some(mtu) => {
                if path_mtu::is_heard::<F>(cx) {
                    path_mtu::hear::<F>(cx, quoted, mtu);
                    // What did not fit is sent again.
                    let _ = socket.path::<F>(cx);
                }
                Wake::default()
            }
            None => socket.on_error(cx, report.error),
        };
        (true, wake)
    });
    told.unwrap_or(false)
}

impl Socket {
    /// Whether the byte was sent and is not acknowledged.
    fn is_under_way(&self, seq: Seq) -> bool {
        match &self.role {
            Role::Connecting(handshake) => seq == handshake.offer().iss,
            Role::Connected(connection) => {
                let sender = connection.sender();
                !seq.is_before(sender.una()) && !seq.is_after(sender.next())
            }
            Role::Idle | Role::Listener(_) | Role::Failed(_) => false,
        }
    }

    fn on_error(&mut self, cx: &mut Context<'_>, error: SocketError) -> Wake {
        let ends_handshake = matches!(
            error,
            SocketError::ConnectionRefused | SocketError::ProtocolUnavailable
        );
        match &mut self.role {
            Role::Connecting(_) if ends_handshake => {
                cx.core.count(Counter::TcpAttemptFails);
                self.fail(match error {
                    SocketError::ConnectionRefused => TcpError::ConnectionRefused,
                    error => TcpError::Network(error),
                })
            }
            Role::Connecting(_) | Role::Connected(_) => {
                self.soft_error = Some(error);
                Wake::default()
            }
            Role::Idle | Role::Listener(_) | Role::Failed(_) => Wake::default(),
        }
    }
}
