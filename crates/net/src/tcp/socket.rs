//! Sockets that are neither listener nor stream yet.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use forebay_stack::tcp::{Side, TcpOption};

use super::handle::Handle;
use super::listener::TcpListener;
use super::stream::TcpStream;
use crate::error;
use crate::park::Parker;
use crate::patience::no_time;
use crate::stack::Stack;

/// A TCP socket to be [connected](Self::connect) or to [listen](Self::listen), for options that must
/// be set before.
///
/// What is set on one that listens holds for the connections that it accepts, too.
///
/// ```
/// use forebay::{Stack, TcpSocket};
///
/// let stack = Stack::builder().build()?;
/// let socket = TcpSocket::new_v6(&stack)?;
/// socket.set_reuse_address(true)?;
/// socket.set_only_v6(true)?;
/// socket.bind("[::]:80".parse()?)?;
/// let listener = socket.listen(1_024)?;
/// assert_eq!(listener.local_addr()?.port(), 80);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpSocket {
    pub(super) handle: Handle,
}

impl TcpSocket {
    /// An IPv4 socket.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn new_v4(stack: &Stack) -> io::Result<Self> {
        Self::new_for(stack, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// An IPv6 socket, which takes IPv4, too, unless [`set_only_v6`](Self::set_only_v6).
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn new_v6(stack: &Stack) -> io::Result<Self> {
        Self::new_for(stack, IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }

    /// A socket of the address's family.
    pub(crate) fn new_for(stack: &Stack, addr: IpAddr) -> io::Result<Self> {
        let handle = Handle::open(stack, addr)?;
        Ok(Self { handle })
    }

    /// Gives the socket a local address: one of the stack or, unspecified, all of them; a port or, 0,
    /// a free one.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`];
    /// [`io::ErrorKind::InvalidInput`] if it has one already.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let bound = self.handle.inner().tcp_bind(self.handle.id, addr);
        bound.map_err(error::bind)
    }

    /// Has the socket take connections that no other socket takes, whatever their destination address
    /// and port, in both families if it is an IPv6 socket: see
    /// [`TcpListener::bind_any`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if there is such a socket already.
    pub fn bind_any(&self) -> io::Result<()> {
        let bound = self.handle.inner().tcp_bind_any(self.handle.id);
        bound.map_err(error::bind)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.local_addr()
    }

    /// Waits for connections, of which at most `backlog` and no more than `net.core.somaxconn` wait to
    /// be accepted. Binds to a free port if the socket has none.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if another socket listens there.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let Self { handle } = self;
        let listens = handle.inner().tcp_listen(handle.id, backlog);
        listens.map_err(error::listen)?;
        Ok(TcpListener::of(handle))
    }

    /// Connects, and waits until the peer has answered.
    ///
    /// # Errors
    ///
    /// Those of [`TcpStream::connect`].
    pub fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        self.connect_within(addr, None)
    }

    /// The same, for no longer than `timeout` by the machine's clock.
    ///
    /// # Errors
    ///
    /// Those of [`TcpStream::connect_timeout`].
    pub fn connect_timeout(self, addr: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(no_time());
        }
        self.connect_within(addr, Some(timeout))
    }

    fn connect_within(self, addr: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
        let stream = self.start_connect(addr)?;
        let handle = &stream.handle;
        let look = || Ok(stream.is_connected()?.then_some(()));
        let connected = handle.sleep_until(Side::Write, &Parker::new(timeout), look);
        connected.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
            }
            _ => error,
        })?;
        Ok(stream)
    }

    /// Begins to connect, and does not wait: for a poller, which tells of the stream as writable once
    /// the handshake is over, one way or the other. [`TcpStream::is_connected`] says which.
    ///
    /// ```
    /// use forebay::{Events, Interest, Poller, Stack, TcpListener, TcpSocket};
    ///
    /// let stack = Stack::builder().build()?;
    /// let _worker = stack.spawn_workers()?;
    /// let _listener = TcpListener::bind(&stack, "127.0.0.1:80")?;
    /// let stream = TcpSocket::new_v4(&stack)?.start_connect("127.0.0.1:80".parse()?)?;
    /// stream.set_nonblocking(true)?;
    /// let poller = Poller::new(&stack);
    /// poller.add(&stream, 0, Interest::WRITABLE)?;
    /// let mut events = Events::with_capacity(1);
    /// while !stream.is_connected()? {
    ///     poller.wait(&mut events, None)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What is known at once: [`io::ErrorKind::NetworkUnreachable`],
    /// [`io::ErrorKind::AddrNotAvailable`] if no port is free.
    pub fn start_connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        let Self { handle } = self;
        let begun = handle.inner().tcp_connect(handle.now(), handle.id, addr);
        begun.map_err(error::tcp_connect)?;
        Ok(TcpStream::of(Arc::new(handle)))
    }
}

/// Options that must be set before a socket is bound.
impl TcpSocket {
    /// Allows the local address of connections that are not quite over (`SO_REUSEADDR`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::ReuseAddr(on))
    }

    /// Forms a group with other listeners of the same address and port that say so, too
    /// (`SO_REUSEPORT`): each connection goes to one of them.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_reuse_port(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::ReusePort(on))
    }

    /// Whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`); `net.ipv6.bindv6only` unless set.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an IPv4 socket, and for one that is bound.
    pub fn set_only_v6(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::V6Only(on))
    }

    /// Allows local addresses that are not the stack's (`IP_TRANSPARENT`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_transparent(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::Transparent(on))
    }

    /// Allows to bind to an address that is not the stack's, or not yet (`IP_FREEBIND`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_freebind(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::Freebind(on))
    }

    /// Takes packets of one interface only, and sends by it; `None` takes all again
    /// (`SO_BINDTODEVICE`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] for an unknown device, [`io::ErrorKind::InvalidInput`] if the
    /// socket is bound.
    pub fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
        let index = match name {
            Some(name) => {
                let interface = self.handle.inner().interface_named(name);
                Some(interface.ok_or_else(|| error::no_device(name))?.index)
            }
            None => None,
        };
        self.handle.set(TcpOption::Device(index))
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSocket")
            .field("addr", &self.local_addr().ok())
            .finish()
    }
}
