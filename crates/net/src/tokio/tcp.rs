//! TCP sockets for programs on tokio.

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use ::tokio::net::{ToSocketAddrs, lookup_host};
use ::tokio::task::coop;
use forebay_stack::tcp::{SendFlags, Side};

use super::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::waiting::{Waitable, or_would_block, wait_until};
use crate::stack::Stack;
use crate::tcp::{self, TcpSocket};

/// Waits for TCP connections to a [`Stack`], in the manner of [`tokio::net::TcpListener`].
///
/// Any number of tasks may accept at a time. Futures can be dropped at any time: no connection is lost
/// with them.
///
/// ```
/// use forebay::Stack;
/// use forebay::tokio::{TcpListener, TcpStream};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let listener = TcpListener::bind(&stack, "[::]:7").await?;
/// let client = TcpStream::connect(&stack, "127.0.0.1:7").await?;
/// let (server, from) = listener.accept().await?;
/// assert_eq!(from.port(), client.local_addr()?.port());
/// # assert_eq!(server.peer_addr()?, from);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpListener {
    inner: tcp::TcpListener,
}

impl From<tcp::TcpListener> for TcpListener {
    /// With all options that were set. `set_nonblocking` has no effect here.
    fn from(inner: tcp::TcpListener) -> Self {
        Self { inner }
    }
}

impl TcpListener {
    /// Listens at the first address that works, as
    /// [`forebay::TcpListener::bind`](crate::TcpListener::bind).
    ///
    /// # Errors
    ///
    /// Those of [`forebay::TcpListener::bind`](crate::TcpListener::bind), and of looking a name up.
    pub async fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let addrs: Vec<_> = lookup_host(addr).await?.collect();
        tcp::TcpListener::bind(stack, &addrs[..]).map(Self::from)
    }

    /// The listener inside, for its options.
    pub fn get_ref(&self) -> &tcp::TcpListener {
        &self.inner
    }

    /// The listener inside.
    pub fn into_inner(self) -> tcp::TcpListener {
        self.inner
    }

    /// Takes a connection, and tells whose.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let attempt = || or_would_block(self.inner.take_connection()?);
        let (stream, peer) = wait_until(&self.inner, Interest::READABLE, attempt).await?;
        Ok((stream.into(), peer))
    }

    /// The same. Of the tasks that poll, the last one is woken.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        with_budget(cx, |cx| self.inner.poll_accept(cx))
            .map_ok(|(stream, peer)| (stream.into(), peer))
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// A TCP connection of a [`Stack`], in the manner of [`tokio::net::TcpStream`].
///
/// ```
/// use forebay::Stack;
/// use forebay::tokio::{TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let listener = TcpListener::bind(&stack, "[::1]:7").await?;
/// let mut client = TcpStream::connect(&stack, "[::1]:7").await?;
/// let (mut server, _) = listener.accept().await?;
///
/// client.write_all(b"over the loopback").await?;
/// client.shutdown().await?;
/// let mut text = String::new();
/// server.read_to_string(&mut text).await?;
/// assert_eq!(text, "over the loopback");
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpStream {
    inner: tcp::TcpStream,
}

impl From<tcp::TcpStream> for TcpStream {
    /// With all options that were set. `set_nonblocking` and timeouts have no effect here.
    fn from(inner: tcp::TcpStream) -> Self {
        Self { inner }
    }
}

impl TcpStream {
    /// Connects to the first address that works, as
    /// [`forebay::TcpStream::connect`](crate::TcpStream::connect).
    ///
    /// # Errors
    ///
    /// Those of [`forebay::TcpStream::connect`](crate::TcpStream::connect), and of looking a name up.
    pub async fn connect(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let nowhere = "could not resolve to any addresses";
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, nowhere);
        for addr in lookup_host(addr).await? {
            match Self::connect_with(TcpSocket::new_for(stack, addr.ip())?, addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects a socket whose options are set.
    ///
    /// # Errors
    ///
    /// Those of [`forebay::TcpSocket::connect`](crate::TcpSocket::connect).
    pub async fn connect_with(socket: TcpSocket, addr: SocketAddr) -> io::Result<Self> {
        let stream = Self::from(socket.start_connect(addr)?);
        let attempt = || or_would_block(stream.inner.is_connected()?.then_some(()));
        wait_until(&stream.inner, Interest::WRITABLE, attempt).await?;
        Ok(stream)
    }

    /// The connection inside, for its options.
    pub fn get_ref(&self) -> &tcp::TcpStream {
        &self.inner
    }

    /// The connection inside.
    pub fn into_inner(self) -> tcp::TcpStream {
        self.inner
    }

    /// Two halves, for one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        halves::split(self)
    }

    /// Two halves, which may go to different tasks. The connection is closed with the second one.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        halves::split_owned(self)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The peer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] after the connection is over.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// Whether small segments leave at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    /// Whether small segments leave at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.inner.set_nodelay(on)
    }

    /// The error that waits to be told, if any; told once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    /// Waits for one of what `interest` names, and tells what there is of it.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        wait_until(&self.inner, interest, || self.try_ready(interest)).await
    }

    /// Waits until a read would return at once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Waits until a write would return at once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Waits until a read would return at once. Of the tasks that poll, the last one is woken.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_budget(cx, |cx| self.inner.poll_readable(cx))
    }

    /// Waits until a write would return at once. Of the tasks that poll, the last one is woken.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_budget(cx, |cx| self.inner.poll_writable(cx))
    }

    /// Reads what is there, or says [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_read_vectored(&mut [IoSliceMut::new(buf)])
    }

    /// The same, into several buffers.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        or_would_block(self.inner.try_recv(bufs, false)?)
    }

    /// Writes what there is room for, or says [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(buf)])
    }

    /// The same, from several buffers.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.inner.try_send(bufs, SendFlags::default())?)
    }

    /// Reads, and leaves the bytes where they are.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let bufs = &mut [IoSliceMut::new(buf)];
        let attempt = || or_would_block(self.inner.try_recv(bufs, true)?);
        wait_until(&self.inner, Interest::READABLE, attempt).await
    }

    /// The same. Of the tasks that poll, the last one is woken.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let peeked = with_budget(cx, |cx| self.inner.poll_peek(cx, buf.initialize_unfilled()));
        buf.advance(ready!(peeked)?);
        Poll::Ready(Ok(()))
    }

    fn try_ready(&self, interest: Interest) -> io::Result<Ready> {
        let readiness = self.inner.readiness()?;
        let found = [
            (
                interest.is_readable() && readiness.readable,
                Ready::READABLE,
            ),
            (
                interest.is_readable() && readiness.read_closed,
                Ready::READ_CLOSED,
            ),
            (
                interest.is_writable() && readiness.writable,
                Ready::WRITABLE,
            ),
            (
                interest.is_writable() && readiness.write_closed,
                Ready::WRITE_CLOSED,
            ),
            (interest.is_error() && readiness.error, Ready::ERROR),
        ];
        let found = found.into_iter().filter(|(is, _)| *is);
        let ready = found.fold(Ready::EMPTY, |all, (_, ready)| all | ready);
        or_would_block((!ready.is_empty()).then_some(ready))
    }

    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = with_budget(cx, |cx| self.inner.poll_read(cx, buf.initialize_unfilled()));
        buf.advance(ready!(read)?);
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_budget(cx, |cx| self.inner.poll_write_vectored(cx, bufs))
    }

    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        self.inner.shutdown(Shutdown::Write)
    }
}

/// A task that always finds something lets others have their turn.
fn with_budget<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let progress = ready!(coop::poll_proceed(cx));
    poll(cx).map(|done| {
        progress.made_progress();
        done
    })
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_shared(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }
}

impl Waitable for tcp::TcpListener {
    fn arm(&self, _: Interest, waker: &Waker) -> io::Result<()> {
        self.register_waker(waker)
    }

    fn forget(&self, waker: &Waker) {
        self.forget_waker(waker);
    }
}

impl Waitable for tcp::TcpStream {
    fn arm(&self, interest: Interest, waker: &Waker) -> io::Result<()> {
        // Whoever asks for errors alone hears of them either way.
        if interest.is_writable() {
            self.register_waker(Side::Write, waker)?;
        }
        if interest.is_readable() || !interest.is_writable() {
            self.register_waker(Side::Read, waker)?;
        }
        Ok(())
    }

    fn forget(&self, waker: &Waker) {
        self.forget_waker(waker);
    }
}
