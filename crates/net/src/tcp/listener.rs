//! Listeners.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};

use forebay_stack::tcp::Side;

use super::handle::Handle;
use super::socket::TcpSocket;
use super::stream::TcpStream;
use crate::addrs::first_that_works;
use crate::error;
use crate::stack::Stack;
use crate::waiter::Waiter;

/// Waits for TCP connections to a [`Stack`].
///
/// It works as [`std::net::TcpListener`] does on Linux, from any thread. Calls that block wait for
/// the stack to be driven: by a worker, or by another thread that polls it.
///
/// ```
/// use std::io::{Read, Write};
///
/// use forebay::{Stack, TcpListener, TcpStream};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let listener = TcpListener::bind(&stack, "[::]:7")?;
/// let mut client = TcpStream::connect(&stack, "127.0.0.1:7")?;
/// let (mut server, from) = listener.accept()?;
/// assert_eq!(from.port(), client.local_addr()?.port());
///
/// client.write_all(b"over the loopback")?;
/// drop(client);
/// let mut text = String::new();
/// server.read_to_string(&mut text)?;
/// assert_eq!(text, "over the loopback");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener {
    pub(super) handle: Arc<Handle>,
    /// Who polls this handle.
    pub(super) waiter: OnceLock<Arc<Waiter>>,
}

/// As many as `net.core.somaxconn` lets wait; std has it so, too.
const BACKLOG: u32 = u32::MAX;

impl TcpListener {
    /// Listens at an address of the stack or, unspecified, at all of them; at a port or, 0, at a free
    /// one. On `[::]` it takes IPv4, too. The address may be that of connections which are not quite
    /// over (`SO_REUSEADDR`). [`TcpSocket`] has more to set.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        first_that_works(addr, |addr| {
            let socket = TcpSocket::new_for(stack, addr.ip())?;
            socket.set_reuse_address(true)?;
            socket.bind(addr)?;
            socket.listen(BACKLOG)
        })
    }

    /// Takes the connections that no other socket takes, whatever their destination address and port,
    /// in both families: what a transparent proxy needs. [`TcpStream::local_addr`] tells where a
    /// connection was meant to go. The stack must take the packets for its own, so give it a local
    /// route, for instance to `0.0.0.0/0` in table main.
    ///
    /// ```
    /// use forebay::{Stack, TcpListener, TcpStream};
    ///
    /// let stack = Stack::builder().build()?;
    /// let _worker = stack.spawn_workers()?;
    /// let listener = TcpListener::bind_any(&stack)?;
    /// let _client = TcpStream::connect(&stack, "127.1.2.3:443")?;
    /// let (server, _) = listener.accept()?;
    /// // An address of IPv4, as sockets for both families tell it.
    /// assert_eq!(server.local_addr()?, "[::ffff:127.1.2.3]:443".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if there is such a listener already.
    pub fn bind_any(stack: &Stack) -> io::Result<Self> {
        let socket = TcpSocket::new_for(stack, IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
        socket.set_only_v6(false)?;
        // Lest its connections keep others from listening at the ports that they came to.
        socket.set_reuse_address(true)?;
        socket.bind_any()?;
        socket.listen(BACKLOG)
    }

    pub(super) fn of(handle: Handle) -> Self {
        Self {
            handle: Arc::new(handle),
            waiter: OnceLock::new(),
        }
    }

    /// Takes a connection, and tells whose.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when non-blocking and none is there.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.handle.wait_for(Side::Read, || self.take_connection())
    }

    /// Takes one connection after the other; never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// A connection that is there.
    pub(crate) fn take_connection(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let Handle { stack, id, .. } = &*self.handle;
        let accepted = stack.inner().tcp_accept(*id);
        let accepted = accepted.map_err(error::tcp)?;
        Ok(accepted.map(|accepted| {
            let handle = Handle::of(stack, accepted.id);
            (TcpStream::of(Arc::new(handle)), accepted.peer)
        }))
    }

    /// The local address; unspecified, with port 0, for a listener on any.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.local_addr()
    }

    /// Another handle on the same listener; options are shared, and each connection goes to one of
    /// those that accept.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpListener`].
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            handle: Arc::clone(&self.handle),
            waiter: OnceLock::new(),
        })
    }

    /// Whether [`accept`](Self::accept) returns [`io::ErrorKind::WouldBlock`] instead of waiting.
    /// Connections that are accepted don't inherit it.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::TcpListener`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.handle.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The error that waits to be told, if any; told once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.handle.take_error()
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.get() {
            self.handle.forget(&waiter.waker());
        }
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("addr", &self.local_addr().ok())
            .finish()
    }
}

/// The connections of a [`TcpListener`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
