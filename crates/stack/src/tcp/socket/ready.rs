//! Who waits for a socket.

use core::task::Waker;

use super::super::{Side, TcpError, TcpReadiness};
use super::{Role, Socket};
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::tcp::table::slots::Locked;
use crate::udp::NotOpen;

/// Those who want to be woken once, for either side.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    read: Vec<Waker>,
    write: Vec<Waker>,
}

impl Waiting {
    fn add(&mut self, side: Side, waker: &Waker) {
        let wakers = self.of(side);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn remove(&mut self, waker: &Waker) {
        for side in [Side::Read, Side::Write] {
            self.of(side).retain(|known| !known.will_wake(waker));
        }
    }

    /// Everybody of a side; they wait no longer.
    pub(super) fn take(&mut self, side: Side) -> Vec<Waker> {
        core::mem::take(self.of(side))
    }

    fn of(&mut self, side: Side) -> &mut Vec<Waker> {
        match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        }
    }
}

impl Socket {
    fn readiness(&self) -> TcpReadiness {
        match &self.role {
            Role::Idle => TcpReadiness {
                writable: true,
                write_closed: true,
                ..TcpReadiness::default()
            },
            Role::Listener(backlog) => TcpReadiness {
                readable: !backlog.ready.is_empty(),
                ..TcpReadiness::default()
            },
            Role::Connecting(_) => TcpReadiness::default(),
            Role::Failed(error) => TcpReadiness {
                readable: true,
                writable: true,
                urgent: false,
                error: error.is_some(),
                read_closed: true,
                write_closed: true,
            },
            Role::Connected(connection) => {
                let is_at_end = connection.is_at_end();
                let is_writable = connection.is_writable();
                TcpReadiness {
                    readable: is_at_end
                        || connection.receiver().readable() > 0
                        || connection.has_error(),
                    writable: !is_writable || connection.sender().is_writable(),
                    urgent: connection.receiver().has_urgent(),
                    error: connection.has_error(),
                    read_closed: is_at_end,
                    write_closed: is_at_end && !is_writable,
                }
            }
        }
    }
}

/// Readiness.
impl Stack {
    /// What the socket has to tell (poll(2)).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_readiness(&self, id: SocketId) -> Result<TcpReadiness, NotOpen> {
        Ok(self.held_tcp(id)?.readiness())
    }

    /// Has `waker` woken once by what happens from now on to a side of the socket, even if there is
    /// something already. Look again afterwards.
    ///
    /// It is woken in the middle of a batch, and so must do no more than say so: a call from there
    /// that changes sockets would wait for the batch, and the batch for it.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_arm_waker(&self, id: SocketId, side: Side, waker: &Waker) -> Result<(), NotOpen> {
        let mut socket = self.held_tcp(id)?;
        socket.waiting.add(side, waker);
        if let (Side::Write, Role::Connected(connection)) = (side, &mut socket.role) {
            connection.sender_mut().want_room();
        }
        Ok(())
    }

    /// Forgets a waker that was not woken yet, on both sides. Harmless if there is none such, and if
    /// the socket is closed.
    pub fn tcp_forget_waker(&self, id: SocketId, waker: &Waker) {
        if let Some(mut socket) = self.tcp.slots.lock(id) {
            socket.waiting.remove(waker);
        }
    }

    /// Why the socket's connection failed, if nobody was told yet (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_take_error(&self, id: SocketId) -> Result<Option<TcpError>, NotOpen> {
        let mut socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        Ok(match &mut socket.role {
            Role::Connected(connection) => connection.take_error(),
            Role::Failed(error) => error.take(),
            Role::Idle | Role::Listener(_) | Role::Connecting(_) => None,
        })
    }

    /// A socket that somebody holds: one that was closed is not, though its connection may go on.
    fn held_tcp(&self, id: SocketId) -> Result<Locked<'_, Box<Socket>>, NotOpen> {
        let socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
        match &socket.role {
            Role::Connected(connection) if connection.is_orphan() => Err(NotOpen),
            _ => Ok(socket),
        }
    }
}
