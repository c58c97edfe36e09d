//! Urgent bytes, and bytes that are read where they lie.

use std::io::IoSliceMut;

use crate::socket::SocketId;
use crate::stack::Stack;
use crate::tcp::TcpError;
use crate::tcp::connection::Wake;
use crate::tcp::receiver::NoUrgent;
use crate::time::Instant;

impl Stack {
    /// Takes the urgent byte, or looks at it (`MSG_OOB`): `None` if the peer has announced it and it
    /// has not come yet.
    ///
    /// # Errors
    ///
    /// [`TcpError::InvalidArgument`] if no byte is urgent, if it was taken, or if it stays in the
    /// stream (`SO_OOBINLINE`); others as [`tcp_recv`](Self::tcp_recv) has them.
    pub fn tcp_recv_urgent(
        &self,
        now: Instant,
        id: SocketId,
        peek: bool,
    ) -> Result<Option<u8>, TcpError> {
        self.with_tcp(now, id, |_, socket| {
            let byte = socket.connection().and_then(|connection| {
                match connection.receiver_mut().take_urgent(peek) {
                    Ok(byte) => Ok(Some(byte)),
                    Err(NoUrgent::NotYet) => Ok(None),
                    Err(NoUrgent::None) => Err(TcpError::InvalidArgument),
                }
            });
            (byte, Wake::default())
        })?
    }

    /// Whether the next byte of the stream is the urgent one (`SIOCATMARK`).
    ///
    /// # Errors
    ///
    /// As [`tcp_recv`](Self::tcp_recv) has them.
    pub fn tcp_is_at_mark(&self, now: Instant, id: SocketId) -> Result<bool, TcpError> {
        self.with_tcp(now, id, |_, socket| {
            let connection = socket.connection();
            let is_at_mark = connection.map(|connection| connection.receiver().is_at_mark());
            (is_at_mark, Wake::default())
        })?
    }

    /// Shows what has come first, uncopied, and reads as many bytes of it as `f` returns; what that
    /// is, or `Some(0)` at the stream's end, `None` if nothing has come yet. The connection is locked
    /// meanwhile: `f` should not take long, and must not use it.
    ///
    /// # Errors
    ///
    /// As [`tcp_recv`](Self::tcp_recv) has them.
    pub fn tcp_recv_with(
        &self,
        now: Instant,
        id: SocketId,
        f: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Option<usize>, TcpError> {
        self.with_tcp(now, id, |cx, socket| {
            let read = socket.connection().and_then(|connection| {
                cx.with_hands(|hands| {
                    let bytes = connection.receiver().fill_buf();
                    if bytes.is_empty() {
                        // Why, a read knows.
                        return connection.read(hands, &mut [IoSliceMut::new(&mut [0])], false);
                    }
                    let len = f(bytes).min(bytes.len());
                    connection
                        .receiver_mut()
                        .consume(hands.now, hands.chunks, len);
                    Ok(Some(len))
                })
            });
            (read, Wake::default())
        })?
    }
}
