//! Datagrams with all that is known of them: several buffers, several datagrams in one call, and
//! datagrams handed out without a copy.

use std::io::{self, IoSliceMut};

use forebay_stack::udp::{Datagram, ErrorReport, Message, Received, RecvSlot};

use super::UdpSocket;
use crate::error;

impl UdpSocket {
    /// Receives a datagram into several buffers, each filled before the next, and tells what is
    /// known of it: addresses, interface, TTL, type of service, time of arrival, and how long it was.
    ///
    /// ```
    /// use std::io::IoSliceMut;
    ///
    /// use forebay::{Stack, UdpSocket};
    ///
    /// let stack = Stack::builder().build()?;
    /// let _worker = stack.spawn_workers()?;
    /// let socket = UdpSocket::bind(&stack, "127.0.0.1:7")?;
    /// socket.send_to(b"head and tail", "127.0.0.1:7")?;
    ///
    /// let (mut head, mut tail) = ([0; 4], [0; 5]);
    /// let bufs = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    /// let received = socket.recv_vectored(bufs)?;
    /// assert_eq!((&head, &tail), (b"head", b" and "));
    /// assert_eq!((received.len, received.full_len), (9, 13));
    /// assert_eq!((received.local, received.ttl), ("127.0.0.1:7".parse().unwrap(), 64));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
        self.wait_for(|socket| socket.try_receive(bufs, false))
    }

    /// As [`recv_vectored`](Self::recv_vectored), and leaves the datagram where it is.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn peek_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
        self.wait_for(|socket| socket.try_receive(bufs, true))
    }

    /// As [`recv_vectored`](Self::recv_vectored), but never waits (`MSG_DONTWAIT`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn try_recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
        let received = self.try_receive(bufs, false)?;
        received.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// As [`try_recv_vectored`](Self::try_recv_vectored), and leaves the datagram where it is.
    ///
    /// # Errors
    ///
    /// Those of [`try_recv_vectored`](Self::try_recv_vectored).
    pub fn try_peek_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
        let peeked = self.try_receive(bufs, true)?;
        peeked.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// As [`peek_vectored`](Self::peek_vectored), from byte `offset` of the datagram on: what
    /// `SO_PEEK_OFF` would go on from. Nothing is left at or behind the datagram's end.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn peek_at(&self, offset: usize, bufs: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
        self.wait_for(|socket| {
            let peeked = socket.inner().udp_peek_at(socket.id(), offset, bufs);
            peeked.map_err(error::receive)
        })
    }

    /// Receives as many datagrams as are there and as there are places: recvmmsg(2) with
    /// `MSG_WAITFORONE`. Returns how many; places behind have [`RecvSlot::received`] empty.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn recv_batch(&self, slots: &mut [RecvSlot<'_>]) -> io::Result<usize> {
        if slots.is_empty() {
            return Ok(0);
        }
        self.wait_for(|socket| {
            let received = socket.inner().udp_recv_batch(socket.id(), slots);
            let received = received.map_err(error::receive)?;
            Ok((received > 0).then_some(received))
        })
    }

    /// Receives a datagram as it came, without a copy. Its buffers are missing from the stack's pool
    /// until it is dropped or, which is quicker, [recycled](Self::recycle).
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn recv_datagram(&self) -> io::Result<Datagram> {
        self.wait_for(|socket| {
            let taken = socket.inner().udp_take(socket.id());
            taken.map_err(error::receive)
        })
    }

    /// Gives back the buffers of a datagram that came from a socket of the same stack.
    pub fn recycle(&self, datagram: Datagram) {
        self.inner().udp_recycle(datagram);
    }

    /// Sends a datagram from several places, with an address, interface, TTL or type of service of
    /// its own. Returns its length.
    ///
    /// # Errors
    ///
    /// Those of [`send_to`](Self::send_to); [`io::ErrorKind::AddrNotAvailable`] for a source that the
    /// socket may not use.
    pub fn send_message(&self, message: &Message<'_>) -> io::Result<usize> {
        let now = self.shared.stack.now();
        let sent = self.inner().udp_send_message(now, self.id(), message);
        let len = message.payload.iter().map(|slice| slice.len()).sum();
        sent.map(|()| len).map_err(error::send)
    }

    /// Sends datagrams in order: sendmmsg(2). Returns how many were sent: all, or those before the
    /// first that could not be.
    ///
    /// # Errors
    ///
    /// Those of the first datagram, as of [`send_message`](Self::send_message); nothing was sent.
    pub fn send_batch(&self, messages: &[Message<'_>]) -> io::Result<usize> {
        let now = self.shared.stack.now();
        let sent = self.inner().udp_send_batch(now, self.id(), messages);
        sent.map_err(error::send)
    }

    /// Whether a receiving call would return at once, with a datagram or an error: poll(2).
    ///
    /// As in Linux, bad checksums are found out here for a socket that blocks, which would have to
    /// wait otherwise; a non-blocking one may be readable and have nothing to read.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn is_readable(&self) -> io::Result<bool> {
        let blocking = !self.shared.patience.is_nonblocking();
        let readable = self.inner().udp_is_readable(self.id(), blocking);
        readable.map_err(error::not_open)
    }

    /// Bytes of the datagram that would be received next (`FIONREAD`): 0 if there is none, or if it
    /// is empty.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn next_len(&self) -> io::Result<usize> {
        let len = self.inner().udp_next_len(self.id());
        len.map_err(error::not_open)
    }

    /// Takes the oldest error report (`MSG_ERRQUEUE`), of 16 at most; never waits.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn recv_error(&self) -> io::Result<Option<ErrorReport>> {
        let report = self.inner().udp_recv_error(self.id());
        report.map_err(error::not_open)
    }
}
