//! Connections.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_stack::tcp::{SendFlags, Side, TcpInfo};

use super::halves::{TcpReadHalf, TcpWriteHalf};
use super::handle::Handle;
use super::socket::TcpSocket;
use crate::addrs::first_that_works;
use crate::error;
use crate::stack::Stack;
use crate::waiter::Waiter;

/// A TCP connection of a [`Stack`].
///
/// It works as [`std::net::TcpStream`] does on Linux, from any thread. Calls that block wait for
/// the stack to be driven: by a worker, or by another thread that polls it. When the last clone is
/// dropped, the connection is closed: what was written still goes out, and who drops it does not wait
/// for that, whatever [`set_linger`](Self::set_linger) says.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// use forebay::{Stack, TcpListener, TcpStream};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let listener = TcpListener::bind(&stack, "127.0.0.1:7")?;
/// let echo = std::thread::spawn(move || -> std::io::Result<u64> {
///     let (stream, _) = listener.accept()?;
///     std::io::copy(&mut &stream, &mut &stream)
/// });
///
/// let mut client = TcpStream::connect(&stack, "127.0.0.1:7")?;
/// client.write_all(b"there and back")?;
/// client.shutdown(Shutdown::Write)?;
/// let mut text = String::new();
/// client.read_to_string(&mut text)?;
/// assert_eq!(text, "there and back");
/// # assert_eq!(echo.join().expect("no panic")?, 14);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream {
    pub(super) handle: Arc<Handle>,
    /// Who polls this handle, to read and to write.
    pub(super) waiters: [OnceLock<Arc<Waiter>>; 2],
}

impl TcpStream {
    /// Connects to the first address that works, and waits until the peer has answered.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`] after
    /// `net.ipv4.tcp_syn_retries`, [`io::ErrorKind::NetworkUnreachable`],
    /// [`io::ErrorKind::HostUnreachable`], [`io::ErrorKind::AddrNotAvailable`] if no port is free.
    pub fn connect(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        first_that_works(addr, |addr| {
            TcpSocket::new_for(stack, addr.ip())?.connect(addr)
        })
    }

    /// Connects, and waits for no longer than `timeout` by the machine's clock.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect); [`io::ErrorKind::InvalidInput`] for zero.
    pub fn connect_timeout(
        stack: &Stack,
        addr: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        TcpSocket::new_for(stack, addr.ip())?.connect_timeout(*addr, timeout)
    }

    pub(super) fn of(handle: Arc<Handle>) -> Self {
        Self {
            handle,
            waiters: Default::default(),
        }
    }

    /// The peer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] before the handshake is over, and after the connection is.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.handle.inner().tcp_peer_addr(self.handle.id);
        peer.map_err(error::tcp)
    }

    /// The local address: of a connection that was accepted, where the peer wanted to go.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.local_addr()
    }

    /// Whether the handshake is over; false while it is under way. For who does not wait for it:
    /// [`TcpSocket::start_connect`].
    ///
    /// # Errors
    ///
    /// Why there is no connection, told once: those of [`connect`](Self::connect).
    pub fn is_connected(&self) -> io::Result<bool> {
        let connected = self.handle.inner().tcp_is_connected(self.handle.id);
        connected.map_err(error::tcp)
    }

    /// Ends one direction or both. After [`Shutdown::Write`] the peer reads the end of the stream once
    /// it has read all that was written; after [`Shutdown::Read`] so does who reads here.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`].
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let Handle { stack, id, .. } = &*self.handle;
        let shut = stack.inner().tcp_shutdown(stack.now(), *id, how);
        shut.map_err(error::tcp)
    }

    /// Another handle on the same connection; options are shared.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpStream`].
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::of(Arc::clone(&self.handle)))
    }

    /// Two halves, which may go to different threads. The connection is closed with the second one.
    pub fn into_split(self) -> (TcpReadHalf, TcpWriteHalf) {
        let stream = Arc::new(self);
        let writes = Arc::clone(&stream);
        (TcpReadHalf::new(stream), TcpWriteHalf::new(writes))
    }

    /// Reads, and leaves the bytes where they are.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let bufs = &mut [IoSliceMut::new(buf)];
        self.handle
            .wait_for(Side::Read, || self.try_recv(bufs, true))
    }

    /// Waits for bytes, shows `f` those that come first, uncopied, and reads as many of them as `f`
    /// returns: how many that is, or 0 at the end of the stream. The connection is locked meanwhile,
    /// so `f` should not take long, and must not use it.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn recv_with(&self, mut f: impl FnMut(&[u8]) -> usize) -> io::Result<usize> {
        let Handle { stack, id, .. } = &*self.handle;
        self.handle.wait_for(Side::Read, || {
            let received = stack.inner().tcp_recv_with(stack.now(), *id, &mut f);
            received.map_err(error::tcp)
        })
    }

    /// Takes the urgent byte, or only looks at it (`MSG_OOB`). Never waits.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if it is announced and has not come yet;
    /// [`io::ErrorKind::InvalidInput`] if there is none, or it stays in the stream
    /// ([`set_oob_inline`](Self::set_oob_inline)).
    pub fn recv_urgent(&self, peek: bool) -> io::Result<u8> {
        let Handle { stack, id, .. } = &*self.handle;
        let byte = stack.inner().tcp_recv_urgent(stack.now(), *id, peek);
        let byte = byte.map_err(error::tcp)?;
        byte.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Whether the next byte to be read is where the urgent one is, or was (`SIOCATMARK`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn is_at_mark(&self) -> io::Result<bool> {
        let Handle { stack, id, .. } = &*self.handle;
        let is_at_mark = stack.inner().tcp_is_at_mark(stack.now(), *id);
        is_at_mark.map_err(error::tcp)
    }

    /// Writes from several buffers, and tells TCP more of it (`sendmsg` with `MSG_MORE`, `MSG_OOB`).
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn send(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        let send = |bufs: &[IoSlice<'_>]| {
            let sent = || self.try_send(bufs, flags);
            self.handle.wait_for(Side::Write, sent)
        };
        let first = send(bufs)?;
        let all: usize = bufs.iter().map(|buf| buf.len()).sum();
        if first == all || self.handle.is_nonblocking() {
            return Ok(first);
        }
        // As in Linux, who may wait does so until all is taken.
        let mut rest = bufs.to_vec();
        let mut rest = &mut rest[..];
        let mut sent = first;
        IoSlice::advance_slices(&mut rest, first);
        while sent < all {
            // The error is told by the next call, if it lasts.
            let Ok(more) = send(rest) else { break };
            IoSlice::advance_slices(&mut rest, more);
            sent += more;
        }
        Ok(sent)
    }

    /// Whether reads and writes return [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpStream`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.handle.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a read may wait before it returns [`io::ErrorKind::WouldBlock`]; `None` is for ever.
    /// By the machine's clock.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.handle.patience(Side::Read).set_timeout(timeout)
    }

    /// What was set by [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpStream`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.handle.patience(Side::Read).timeout())
    }

    /// How long a write may wait before it returns [`io::ErrorKind::WouldBlock`], or how much was
    /// taken if some was; `None` is for ever. By the machine's clock.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.handle.patience(Side::Write).set_timeout(timeout)
    }

    /// What was set by [`set_write_timeout`](Self::set_write_timeout).
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpStream`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.handle.patience(Side::Write).timeout())
    }

    /// The error that waits to be told, if any; told once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.handle.take_error()
    }

    /// The connection's inner state, as ss(8) shows it (`TCP_INFO`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn info(&self) -> io::Result<TcpInfo> {
        let Handle { stack, id, .. } = &*self.handle;
        let info = stack.inner().tcp_info(stack.now(), *id);
        info.map_err(error::tcp)
    }

    /// Reads what is there; `None` if that is nothing yet.
    pub(crate) fn try_recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> io::Result<Option<usize>> {
        let Handle { stack, id, .. } = &*self.handle;
        let received = stack.inner().tcp_recv(stack.now(), *id, bufs, peek);
        received.map_err(error::tcp)
    }

    /// Writes what there is room for; `None` if that is nothing yet.
    pub(crate) fn try_send(
        &self,
        bufs: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> io::Result<Option<usize>> {
        let Handle { stack, id, .. } = &*self.handle;
        let sent = stack.inner().tcp_send(stack.now(), *id, bufs, flags);
        sent.map_err(error::tcp)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.handle
            .wait_for(Side::Read, || self.try_recv(bufs, false))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(bufs, SendFlags::default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for waiter in self.waiters.iter().filter_map(OnceLock::get) {
            self.handle.forget(&waiter.waker());
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("addr", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
