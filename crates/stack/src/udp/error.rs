//! Errors that the network reports about our datagrams.

use crate::core::Context;
use crate::demux::flow::Flow;
use crate::family::Family;
use crate::ip::icmp::Quoted;
use crate::socket::SocketError;
use crate::wire::protocol;

/// Tells the socket that sent the quoted datagram, if it is connected to where that went: others
/// have asked for no errors (RFC 1122 section 4.1.3.3 leaves it to them), and a soft error may pass.
/// The next call on the socket returns it. False if no socket here can have sent the datagram.
pub(crate) fn receive_error<F: Family>(
    cx: &mut Context<'_>,
    quoted: &Quoted<F>,
    error: SocketError,
) -> bool {
    let local = (quoted.local.into(), quoted.local_port);
    let remote = (quoted.remote.into(), quoted.remote_port);
    let flow = Flow::new(protocol::UDP, local, remote);
    let demux = &cx.stack.demux;
    if demux.lookup(&flow, local, quoted.iif).is_none() {
        return false;
    }
    if error.is_hard() {
        demux.report(&flow, quoted.iif, error);
    }
    true
}
