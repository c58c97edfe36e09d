//! UDP sockets for programs on tokio.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker, ready};

use ::tokio::io::{Interest, ReadBuf, Ready};
use ::tokio::net::{ToSocketAddrs, lookup_host};
use ::tokio::task::coop;

use super::waiting::{Waitable, wait_until};
use crate::stack::Stack;
use crate::udp;

/// A UDP socket of a [`Stack`] in the manner of [`tokio::net::UdpSocket`].
///
/// Any number of tasks may receive and send at a time. Sending never waits. Futures can be dropped at
/// any time: nothing is lost with them.
///
/// ```
/// use forebay::Stack;
/// use forebay::tokio::UdpSocket;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let server = UdpSocket::bind(&stack, "[::]:7").await?;
/// let client = UdpSocket::bind(&stack, "127.0.0.1:0").await?;
/// client.connect("127.0.0.1:7").await?;
/// client.send(b"over the loopback").await?;
///
/// let mut buf = [0; 64];
/// let (len, from) = server.recv_from(&mut buf).await?;
/// assert_eq!(&buf[..len], b"over the loopback");
/// server.send_to(&buf[..len], from).await?;
/// assert_eq!(client.recv(&mut buf).await?, len);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    inner: udp::UdpSocket,
}

impl From<udp::UdpSocket> for UdpSocket {
    /// With all options that were set. `set_nonblocking` and `set_read_timeout` have no effect here.
    fn from(inner: udp::UdpSocket) -> Self {
        Self { inner }
    }
}

impl UdpSocket {
    /// Opens a socket and binds it to the first address that works, as
    /// [`forebay::UdpSocket::bind`](crate::UdpSocket::bind).
    ///
    /// # Errors
    ///
    /// Those of [`forebay::UdpSocket::bind`](crate::UdpSocket::bind), and of looking a name up.
    pub async fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let addrs: Vec<_> = lookup_host(addr).await?.collect();
        udp::UdpSocket::bind(stack, &addrs[..]).map(Self::from)
    }

    /// The socket inside, for its options and for calls that tell more of a datagram.
    pub fn get_ref(&self) -> &udp::UdpSocket {
        &self.inner
    }

    /// The socket inside.
    pub fn into_inner(self) -> udp::UdpSocket {
        self.inner
    }

    /// Connects to the first address that works.
    ///
    /// # Errors
    ///
    /// Those of [`forebay::UdpSocket::connect`](crate::UdpSocket::connect), and of looking a name up.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        let addrs: Vec<_> = lookup_host(addr).await?.collect();
        self.inner.connect(&addrs[..])
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The connected peer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// The error that the network has reported, if any; told once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }
}

/// Receiving. Errors are those of [`forebay::UdpSocket::recv_from`](crate::UdpSocket::recv_from).
#[allow(clippy::missing_errors_doc)]
impl UdpSocket {
    /// Receives a datagram of the connected peer.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(|| self.try_recv(buf)).await
    }

    /// Receives a datagram: how many bytes, and from whom.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(|| self.try_recv_from(buf)).await
    }

    /// As [`recv`](Self::recv), and leaves the datagram where it is.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let peeked = self.peek_from(buf).await?;
        Ok(peeked.0)
    }

    /// As [`recv_from`](Self::recv_from), and leaves the datagram where it is.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(|| self.try_peek_from(buf)).await
    }

    /// Receives what is there, or says [`WouldBlock`](io::ErrorKind::WouldBlock).
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_recv_from(buf).map(|(len, _)| len)
    }

    /// As [`try_recv`](Self::try_recv), and tells from whom.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.inner.try_recv_vectored(&mut [IoSliceMut::new(buf)])?;
        Ok((received.len, received.from))
    }

    /// As [`try_recv_from`](Self::try_recv_from), and leaves the datagram where it is.
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let peeked = self.inner.try_peek_vectored(&mut [IoSliceMut::new(buf)])?;
        Ok((peeked.len, peeked.from))
    }

    /// Receives a datagram of the connected peer. Of the tasks that poll, the last one is woken.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(drop)
    }

    /// As [`poll_recv`](Self::poll_recv), and tells from whom.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let progress = ready!(coop::poll_proceed(cx));
        let received = ready!(self.inner.poll_recv_from(cx, buf.initialize_unfilled()));
        progress.made_progress();
        let (len, from) = received?;
        buf.advance(len);
        Poll::Ready(Ok(from))
    }

    /// Waits for something to receive; another task may be quicker to take it. Of the tasks that
    /// poll, the last one is woken.
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = ready!(coop::poll_proceed(cx));
        self.inner.poll_readable(cx).map(|readable| {
            progress.made_progress();
            readable
        })
    }

    /// Waits for something to receive; another task may be quicker to take it.
    pub async fn readable(&self) -> io::Result<()> {
        self.receive(|| match self.inner.has_something()? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
        .await
    }

    /// Calls `attempt` until it says something else than
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), and waits in between. For calls of
    /// [`get_ref`](Self::get_ref) that don't wait themselves:
    ///
    /// ```
    /// use forebay::tokio::UdpSocket;
    /// use forebay::{RecvSlot, Stack};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let stack = Stack::builder().build()?;
    /// let _worker = stack.spawn_workers()?;
    /// let socket = UdpSocket::bind(&stack, "127.0.0.1:7").await?;
    /// socket.get_ref().set_nonblocking(true)?;
    /// socket.send_to(b"one of a batch", "127.0.0.1:7").await?;
    ///
    /// let mut memory = [[0; 2048]; 8];
    /// let mut slots: Vec<_> = memory.iter_mut().map(|buf| RecvSlot::new(buf)).collect();
    /// let received = socket.receive(|| socket.get_ref().recv_batch(&mut slots)).await?;
    /// assert_eq!(received, 1);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn receive<T>(&self, attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        wait_until(&self.inner, Interest::READABLE, attempt).await
    }
}

/// Sending. Errors are those of [`forebay::UdpSocket::send_to`](crate::UdpSocket::send_to).
#[allow(clippy::missing_errors_doc)]
impl UdpSocket {
    /// Sends a datagram to the connected peer.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// Sends a datagram to the first address that `target` gives.
    pub async fn send_to(&self, buf: &[u8], target: impl ToSocketAddrs) -> io::Result<usize> {
        let no_addr =
            || io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to");
        let target = lookup_host(target).await?.next().ok_or_else(no_addr)?;
        poll_fn(|cx| self.poll_send_to(cx, buf, target)).await
    }

    /// Sends a datagram to the connected peer.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.send(buf)
    }

    /// Sends a datagram.
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.inner.send_to(buf, target)
    }

    /// Sends a datagram to the connected peer.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = ready!(coop::poll_proceed(cx));
        progress.made_progress();
        Poll::Ready(self.try_send(buf))
    }

    /// Sends a datagram.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let progress = ready!(coop::poll_proceed(cx));
        progress.made_progress();
        Poll::Ready(self.try_send_to(buf, target))
    }

    /// Ready: sending never waits.
    pub fn poll_send_ready(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Returns at once: sending never waits.
    pub async fn writable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Waits for one of what `interest` names, and tells what there is of it.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        if !interest.is_writable() {
            self.readable().await?;
            return Ok(Ready::READABLE);
        }
        let readable = interest.is_readable() && self.inner.has_something()?;
        Ok(match readable {
            true => Ready::READABLE | Ready::WRITABLE,
            false => Ready::WRITABLE,
        })
    }
}

impl Waitable for udp::UdpSocket {
    fn arm(&self, _: Interest, waker: &Waker) -> io::Result<()> {
        self.arm_waker(waker)
    }

    fn forget(&self, waker: &Waker) {
        self.forget_waker(waker);
    }
}
