//! Sockets for who does not wait in a call: polls and wakers, as async runtimes have them.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use forebay_stack::tcp::{SendFlags, Side, TcpReadiness};

use super::handle::Handle;
use super::listener::TcpListener;
use super::stream::TcpStream;
use crate::error;
use crate::poller::{AnySocket, Registrable};
use crate::stack::Stack;
use crate::waiter::Waiter;

/// These never block, whatever [`set_nonblocking`](TcpStream::set_nonblocking) says. Where nothing can
/// be done, the context's waker is woken once something can. As with tokio, each handle remembers the
/// waker of the last poll alone: one for reading, and one for writing.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// use forebay::{Stack, TcpListener, TcpStream};
///
/// let stack = Stack::builder().build()?;
/// let worker = stack.spawn_workers()?;
/// let listener = TcpListener::bind(&stack, "127.0.0.1:7")?;
/// let client = TcpStream::connect(&stack, "127.0.0.1:7")?;
/// let (server, _) = listener.accept()?;
/// let mut buf = [0; 16];
/// // Any executor will do; this one asks again and again.
/// let mut read = pin!(poll_fn(|cx| server.poll_read(cx, &mut buf)));
/// let cx = &mut Context::from_waker(Waker::noop());
/// assert!(read.as_mut().poll(cx).is_pending());
/// assert!(matches!(client.poll_write(cx, b"hello"), Poll::Ready(Ok(5))));
/// let read = loop {
///     if let Poll::Ready(read) = read.as_mut().poll(cx) {
///         break read?;
///     }
/// };
/// assert_eq!(&buf[..read], b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
impl TcpStream {
    /// Waits for the handshake's end.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(cx, Side::Write, |stream| {
            Ok(stream.is_connected()?.then_some(()))
        })
    }

    /// Reads: 0 bytes at the end of the stream.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buf)])
    }

    /// Reads into several buffers.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_for(cx, Side::Read, |stream| stream.try_recv(bufs, false))
    }

    /// Reads, and leaves the bytes where they are.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let bufs = &mut [IoSliceMut::new(buf)];
        self.poll_for(cx, Side::Read, |stream| stream.try_recv(bufs, true))
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    /// Writes from several buffers what there is room for.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_for(cx, Side::Write, |stream| {
            stream.try_send(bufs, SendFlags::default())
        })
    }

    /// Waits until a read would return at once: with bytes, the stream's end or an error.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(cx, Side::Read, |stream| {
            Ok(stream.readiness()?.readable.then_some(()))
        })
    }

    /// Waits until a write would return at once: with bytes taken or an error.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(cx, Side::Write, |stream| {
            Ok(stream.readiness()?.writable.then_some(()))
        })
    }

    /// Has `waker` woken once by what comes from now on on one side, and by errors. For pollers:
    /// register, then try to read or write, and wait only if that would block.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn register_waker(&self, side: Side, waker: &Waker) -> io::Result<()> {
        self.handle.arm(side, waker)
    }

    /// Forgets a waker that [`register_waker`](Self::register_waker) was given, if it was not woken
    /// since.
    pub fn forget_waker(&self, waker: &Waker) {
        self.handle.forget(waker);
    }

    /// What the stream has to tell.
    pub(crate) fn readiness(&self) -> io::Result<TcpReadiness> {
        self.handle.readiness()
    }

    fn poll_for<T>(
        &self,
        cx: &Context<'_>,
        side: Side,
        mut look: impl FnMut(&Self) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let [reader, writer] = &self.waiters;
        let waiter = match side {
            Side::Read => reader,
            Side::Write => writer,
        };
        self.handle.poll_for(cx, side, waiter, || look(self))
    }
}

/// See [`TcpStream::poll_read`].
impl TcpListener {
    /// Takes a connection, and tells whose.
    ///
    /// # Errors
    ///
    /// Those of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.handle
            .poll_for(cx, Side::Read, &self.waiter, || self.take_connection())
    }

    /// Has `waker` woken once by the next connection. For pollers: register, then try to accept, and
    /// wait only if that would block.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn register_waker(&self, waker: &Waker) -> io::Result<()> {
        self.handle.arm(Side::Read, waker)
    }

    /// Forgets a waker that [`register_waker`](Self::register_waker) was given, if it was not woken
    /// since.
    pub fn forget_waker(&self, waker: &Waker) {
        self.handle.forget(waker);
    }
}

impl Handle {
    fn readiness(&self) -> io::Result<TcpReadiness> {
        let readiness = self.inner().tcp_readiness(self.id);
        readiness.map_err(error::not_open)
    }

    fn poll_for<T>(
        &self,
        cx: &Context<'_>,
        side: Side,
        waiter: &OnceLock<Arc<Waiter>>,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(found) = look().transpose() {
            return Poll::Ready(found);
        }
        let waker = waiter.get_or_init(Arc::default).waker_for(cx.waker());
        if let Err(error) = self.arm(side, &waker) {
            return Poll::Ready(Err(error));
        }
        // Something may have come before the waker was there.
        match look().transpose() {
            Some(found) => {
                self.forget(&waker);
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }
}

impl Registrable for TcpStream {
    fn belongs_to(&self, stack: &Stack) -> bool {
        self.handle.belongs_to(stack)
    }

    fn socket(&self) -> AnySocket {
        AnySocket::Tcp(self.handle.id)
    }
}

impl Registrable for TcpListener {
    fn belongs_to(&self, stack: &Stack) -> bool {
        self.handle.belongs_to(stack)
    }

    fn socket(&self) -> AnySocket {
        AnySocket::Tcp(self.handle.id)
    }
}
