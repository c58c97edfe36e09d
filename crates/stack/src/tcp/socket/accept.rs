//! Connections that listeners have.

use super::Role;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::tcp::{Accepted, TcpError};
use crate::udp::NotOpen;

impl Stack {
    /// Takes the connection that has waited for longest, if any waits. It may have ended meanwhile.
    ///
    /// # Errors
    ///
    /// [`TcpError::InvalidArgument`] if the socket does not listen, [`TcpError::NotOpen`].
    pub fn tcp_accept(&self, id: SocketId) -> Result<Option<Accepted>, TcpError> {
        let mut socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        match &mut socket.role {
            Role::Listener(backlog) => Ok(backlog.ready.pop_front()),
            _ => Err(TcpError::InvalidArgument),
        }
    }
}
