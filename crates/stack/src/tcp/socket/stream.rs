//! Reading, writing, shutting down, closing.

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;

use core::time::Duration;

use super::{Role, Socket, with_socket};
use crate::core::Context;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::tcp::connection::{Hands, Wake};
use crate::tcp::{SendFlags, TcpError, shared};
use crate::time::Instant;
use crate::udp::NotOpen;

/// Bytes in and out.
impl Stack {
    /// Reads what has come: `Some(0)` at the stream's end, `None` if nothing has come yet. With
    /// `peek` the bytes stay.
    ///
    /// # Errors
    ///
    /// [`TcpError`]; what ended the connection is told once, after the last byte.
    pub fn tcp_recv(
        &self,
        now: Instant,
        id: SocketId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<usize>, TcpError> {
        self.with_tcp(now, id, |cx, socket| {
            // Until the handshake is done, readers wait, too.
            if let Role::Connecting(_) = socket.role {
                return (Ok(None), Wake::default());
            }
            let read = match socket.connection() {
                Ok(connection) => cx.with_hands(|hands| connection.read(hands, bufs, peek)),
                Err(error) => Err(error),
            };
            (read, Wake::default())
        })?
    }

    /// Takes bytes to be sent, as many as there is room for: `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`TcpError`].
    pub fn tcp_send(
        &self,
        now: Instant,
        id: SocketId,
        bufs: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> Result<Option<usize>, TcpError> {
        self.with_tcp(now, id, |cx, socket| {
            // Until the handshake is done, writers wait.
            if let Role::Connecting(_) = socket.role {
                return (Ok(None), Wake::default());
            }
            let written = match socket.connection() {
                Ok(connection) => cx.with_hands(|hands| connection.write(hands, bufs, flags)),
                Err(TcpError::NotConnected) => Err(TcpError::BrokenPipe),
                Err(error) => Err(error),
            };
            (written, Wake::default())
        })?
    }

    /// Says that this side reads no more, sends no more, or both.
    ///
    /// # Errors
    ///
    /// [`TcpError::NotConnected`], [`TcpError::NotOpen`].
    pub fn tcp_shutdown(&self, now: Instant, id: SocketId, how: Shutdown) -> Result<(), TcpError> {
        self.with_tcp(now, id, |_, socket| {
            let Role::Connected(connection) = &mut socket.role else {
                return (Err(TcpError::NotConnected), Wake::default());
            };
            if connection.is_closed() {
                return (Err(TcpError::NotConnected), Wake::default());
            }
            if matches!(how, Shutdown::Read | Shutdown::Both) {
                connection.shutdown_read();
            }
            if matches!(how, Shutdown::Write | Shutdown::Both) {
                connection.shutdown_write();
            }
            (Ok(()), Wake::BOTH)
        })?
    }

    /// Closes a socket. Its connection goes on alone until all is sent and acknowledged, unless
    /// something was not read, or `SO_LINGER` says otherwise: then it is reset. Never blocks.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_close(&self, now: Instant, id: SocketId) -> Result<(), NotOpen> {
        self.with_context(now, |cx| {
            let closed = with_socket(cx, id, |cx, socket| (socket.close(cx), Wake::BOTH));
            if let Closed::Whole { unaccepted } = closed.ok_or(NotOpen)? {
                shared::free(cx, id);
                for id in unaccepted {
                    shared::abandon(cx, id);
                }
            }
            Ok(())
        })
    }

    /// Runs `f` on a socket, then does what follows from it.
    pub(super) fn with_tcp<R>(
        &self,
        now: Instant,
        id: SocketId,
        f: impl FnOnce(&mut Context<'_>, &mut Socket) -> (R, Wake),
    ) -> Result<R, NotOpen> {
        self.with_context(now, |cx| with_socket(cx, id, f).ok_or(NotOpen))
    }
}

/// What a socket leaves behind that is closed.
enum Closed {
    /// A connection that sees to its own end.
    Connection,
    /// Nothing of its own; but of a listener, connections that nobody has accepted.
    Whole { unaccepted: Vec<SocketId> },
}

impl Socket {
    fn close(&mut self, cx: &mut Context<'_>) -> Closed {
        let linger = self.settings.linger;
        match &mut self.role {
            Role::Connected(connection) => {
                if linger == Some(Duration::ZERO) {
                    connection.abort(cx.now);
                }
                cx.with_hands(|hands| connection.close(hands));
                Closed::Connection
            }
            Role::Listener(backlog) => Closed::Whole {
                unaccepted: backlog.ready.drain(..).map(|it| it.id).collect(),
            },
            Role::Idle | Role::Connecting(_) | Role::Failed(_) => Closed::Whole {
                unaccepted: Vec::new(),
            },
        }
    }
}

impl Context<'_> {
    /// Hands a connection what it needs, and counts what it tells.
    pub(in crate::tcp) fn with_hands<R>(&mut self, f: impl FnOnce(&mut Hands<'_>) -> R) -> R {
        let mut events = core::mem::take(&mut self.core.events);
        let result = f(&mut Hands {
            now: self.now,
            chunks: &mut self.core.chunks,
            events: &mut events,
        });
        for (counter, n) in events.drain() {
            self.core.add(counter, n);
        }
        self.core.events = events;
        result
    }
}
