//! UDP sockets in the manner of [`std::net::UdpSocket`].

mod filter;
mod messages;
mod multicast;
mod options;
mod ready;
mod segments;

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use forebay_stack::socket::{SocketError, SocketId};
use forebay_stack::udp::Received;

use crate::addrs::{first_that_works, version_of};
use crate::busy::{self, BusyPoll};
use crate::error;
use crate::park::Parker;
use crate::patience::Patience;
use crate::stack::Stack;
use crate::waiter::Waiter;

/// A UDP socket of a [`Stack`].
///
/// It works as [`std::net::UdpSocket`] does on Linux, from any thread. Calls that block wait for
/// the stack to be driven: by a worker, or by another thread that polls it.
///
/// ```
/// use forebay::{Stack, UdpSocket};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let server = UdpSocket::bind(&stack, "[::]:7")?;
/// let client = UdpSocket::bind(&stack, "127.0.0.1:0")?;
/// client.connect("127.0.0.1:7")?;
/// client.send(b"over the loopback")?;
///
/// let mut buf = [0; 64];
/// let (len, from) = server.recv_from(&mut buf)?;
/// assert_eq!(&buf[..len], b"over the loopback");
/// assert_eq!(from.port(), client.local_addr()?.port());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket {
    shared: Arc<Shared>,
    /// Who polls this handle.
    waiter: OnceLock<Arc<Waiter>>,
}

/// What clones of a socket share, as duplicated descriptors do.
struct Shared {
    stack: Stack,
    id: SocketId,
    patience: Patience,
    busy_poll: BusyPoll,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The id is this socket's alone, so it can only be closed here.
        let _ = self.stack.inner().udp_close(self.id);
    }
}

/// Options that must be set before a socket is bound.
///
/// ```
/// use forebay::{Stack, UdpOptions};
///
/// let stack = Stack::builder().build()?;
/// let socket = UdpOptions::new().only_v6(true).reuse_address(true).bind(&stack, "[::]:53")?;
/// assert_eq!(socket.local_addr()?.port(), 53);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct UdpOptions {
    reuse_address: bool,
    reuse_port: bool,
    transparent: bool,
    freebind: bool,
    only_v6: Option<bool>,
    device: Option<String>,
}

impl UdpOptions {
    /// None set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shares address and port with other sockets that say so, too (`SO_REUSEADDR`).
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Forms a group with other sockets of the same address and port that say so, too
    /// (`SO_REUSEPORT`): each flow goes to one of them.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Allows addresses that are not the stack's (`IP_TRANSPARENT`).
    pub fn transparent(mut self, on: bool) -> Self {
        self.transparent = on;
        self
    }

    /// Allows to bind to an address that is not the stack's, or not yet (`IP_FREEBIND`).
    pub fn freebind(mut self, on: bool) -> Self {
        self.freebind = on;
        self
    }

    /// Whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`); `net.ipv6.bindv6only` unless said.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Takes packets of one interface only, and sends by it (`SO_BINDTODEVICE`).
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Opens a socket and binds it to the first address that works.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind`]; [`io::ErrorKind::NotFound`] for an unknown device.
    pub fn bind(&self, stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        first_that_works(addr, |addr| {
            let socket = self.open(stack, addr.ip())?;
            let bound = stack.inner().udp_bind(socket.shared.id, addr);
            bound.map_err(error::bind).map(|()| socket)
        })
    }

    fn open(&self, stack: &Stack, family: IpAddr) -> io::Result<UdpSocket> {
        let inner = stack.inner();
        let id = inner
            .udp_open(version_of(family))
            .map_err(io::Error::other)?;
        let shared = Shared {
            stack: stack.clone(),
            id,
            patience: Patience::default(),
            busy_poll: BusyPoll::default(),
        };
        let socket = UdpSocket {
            shared: Arc::new(shared),
            waiter: OnceLock::new(),
        };
        inner
            .udp_set_reuse_addr(id, self.reuse_address)
            .map_err(error::not_open)?;
        inner
            .udp_set_reuse_port(id, self.reuse_port)
            .map_err(error::not_open)?;
        inner
            .udp_set_transparent(id, self.transparent)
            .map_err(error::not_open)?;
        inner
            .udp_set_freebind(id, self.freebind)
            .map_err(error::not_open)?;
        if let Some(only_v6) = self.only_v6.filter(|_| family.is_ipv6()) {
            inner.udp_set_v6only(id, only_v6).map_err(error::option)?;
        }
        if let Some(name) = &self.device {
            socket.bind_device(Some(name))?;
        }
        Ok(socket)
    }
}

impl UdpSocket {
    /// Opens a socket and binds it: to an address of the stack or, unspecified, to all of them; to a
    /// port or, 0, to a free one. An IPv6 socket on `[::]` takes IPv4, too.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        UdpOptions::new().bind(stack, addr)
    }

    /// Opens a socket that takes what no other socket takes, whatever its destination address and
    /// port, in both families: what a transparent proxy needs. The stack must take the packets for
    /// its own, so give it a local route, for instance to `0.0.0.0/0` in table main: in table local,
    /// which is asked first, it would take the answers for the stack's own as well.
    /// [`recv_from_to`](Self::recv_from_to) tells where a datagram was meant to go,
    /// [`send_from_to`](Self::send_from_to) answers from there.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if there is such a socket already.
    pub fn bind_any(stack: &Stack) -> io::Result<Self> {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let socket = UdpOptions::new().only_v6(false).open(stack, any)?;
        stack
            .inner()
            .udp_bind_any(socket.shared.id)
            .map_err(error::bind)?;
        Ok(socket)
    }

    /// Receives a datagram into `buf`: how many bytes it got, and from whom. What does not fit is
    /// lost.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when non-blocking or timed out; what the network said about a
    /// datagram sent earlier, such as [`io::ErrorKind::ConnectionRefused`].
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.wait_for(|socket| {
            let received = socket.inner().udp_recv_from(socket.id(), buf);
            received.map_err(error::receive)
        })
    }

    /// Receives a datagram: how many bytes, from whom, and where it was sent to.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn recv_from_to(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        self.receive(buf, false)
            .map(|received| (received.len, received.from, received.local))
    }

    /// As [`recv_from`](Self::recv_from), and leaves the datagram where it is.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf, true)
            .map(|received| (received.len, received.from))
    }

    /// Receives a datagram of the connected peer.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buf).map(|(len, _)| len)
    }

    /// As [`recv`](Self::recv), and leaves the datagram where it is.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, true).map(|received| received.len)
    }

    /// Sends a datagram to the first address that `addr` gives.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NetworkUnreachable`], [`io::ErrorKind::HostUnreachable`],
    /// [`io::ErrorKind::PermissionDenied`] (a broadcast without leave, a prohibiting route),
    /// [`io::ErrorKind::InvalidInput`] (port 0, more than 65,507 bytes), and what the network said
    /// about an earlier one.
    pub fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let no_addr =
            || io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to");
        let to = addr.to_socket_addrs()?.next().ok_or_else(no_addr)?;
        self.transmit(buf, Some(to), None)
    }

    /// Sends a datagram from another address than the socket's own, as the answer of a transparent
    /// proxy.
    ///
    /// # Errors
    ///
    /// Those of [`send_to`](Self::send_to); [`io::ErrorKind::AddrNotAvailable`] if the socket may not
    /// use the address.
    pub fn send_from_to(&self, buf: &[u8], from: SocketAddr, to: SocketAddr) -> io::Result<usize> {
        self.transmit(buf, Some(to), Some(from))
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    ///
    /// Those of [`send_to`](Self::send_to); [`io::ErrorKind::NotConnected`] without a peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.transmit(buf, None, None)
    }

    /// Connects to a peer: only its datagrams are received from now on. May be called again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NetworkUnreachable`] and other reasons for which there is no way there.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        let Shared { stack, id, .. } = &*self.shared;
        first_that_works(addr, |peer| {
            stack
                .inner()
                .udp_connect(stack.now(), *id, peer)
                .map_err(error::connect)
        })
    }

    /// Undoes [`connect`](Self::connect): datagrams from anybody are received again.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn disconnect(&self) -> io::Result<()> {
        self.inner()
            .udp_disconnect(self.shared.id)
            .map_err(error::not_open)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner()
            .udp_local_addr(self.shared.id)
            .map_err(error::not_open)
    }

    /// The connected peer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self
            .inner()
            .udp_peer_addr(self.shared.id)
            .map_err(error::not_open)?;
        peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Another handle on the same socket; options are shared.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::UdpSocket`].
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::clone(&self.shared),
            waiter: OnceLock::new(),
        })
    }

    /// The error that the network has reported, if any; told once.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let pending = self
            .inner()
            .udp_take_error(self.shared.id)
            .map_err(error::not_open)?;
        Ok(pending.map(|pending: SocketError| error::pending(pending)))
    }

    /// Whether calls return [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::UdpSocket`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.patience.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long receiving may wait; `None` is for ever. By the machine's clock.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.patience.set_timeout(timeout)
    }

    /// How long receiving may wait.
    ///
    /// # Errors
    ///
    /// None: the result is there for likeness to [`std::net::UdpSocket`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.patience.timeout())
    }

    /// Sets how long a read looks for datagrams itself before it sleeps (`SO_BUSY_POLL`), in whole
    /// microseconds: zero not at all.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for more than [`i32::MAX`] microseconds.
    pub fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        self.shared.busy_poll.set(time)
    }

    /// How long a read looks for datagrams itself before it sleeps: `net.core.busy_read` unless
    /// [set](Self::set_busy_poll).
    pub fn busy_poll(&self) -> Duration {
        self.shared.busy_poll.get(self.inner())
    }

    /// Has `waker` woken once, when the socket has something to receive. For pollers: register,
    /// then try to receive, and wait only if that would block.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn register_waker(&self, waker: &Waker) -> io::Result<()> {
        self.inner()
            .udp_register_waker(self.shared.id, waker)
            .map_err(error::not_open)
    }

    fn inner(&self) -> &forebay_stack::Stack {
        self.shared.stack.inner()
    }

    fn transmit(
        &self,
        buf: &[u8],
        to: Option<SocketAddr>,
        from: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let Shared { stack, id, .. } = &*self.shared;
        let sent = stack.inner().udp_send_from(stack.now(), *id, buf, to, from);
        sent.map(|()| buf.len()).map_err(error::send)
    }

    fn receive(&self, buf: &mut [u8], peek: bool) -> io::Result<Received> {
        self.wait_for(|socket| {
            let received = socket.inner().udp_recv(socket.id(), buf, peek);
            received.map_err(error::receive)
        })
    }

    fn try_receive(&self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<Option<Received>> {
        self.inner()
            .udp_recv_vectored(self.id(), bufs, peek)
            .map_err(error::receive)
    }

    /// Calls `look` until it returns something, for as long as the socket may wait.
    fn wait_for<T>(&self, mut look: impl FnMut(&Self) -> io::Result<Option<T>>) -> io::Result<T> {
        if let Some(found) = look(self)? {
            return Ok(found);
        }
        if self.shared.patience.is_nonblocking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let parker = Parker::new(self.read_timeout()?);
        if let Some(found) = busy::look_for(self.busy_poll(), || look(self))? {
            return Ok(found);
        }
        loop {
            // Registered before the queue is looked at, so that nothing slips in between.
            self.register_waker(parker.waker())?;
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            // Nothing came and took the waker away.
            parker
                .park()
                .inspect_err(|_| self.forget_waker(parker.waker()))?;
        }
    }

    fn id(&self) -> SocketId {
        self.shared.id
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.get() {
            self.forget_waker(&waiter.waker());
        }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unbound = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        f.debug_struct("UdpSocket")
            .field("addr", &self.local_addr().unwrap_or(unbound))
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
