//! Sockets for who does not wait in a call: polls and wakers, as async runtimes have them.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_stack::udp::Received;

use super::UdpSocket;
use crate::error;
use crate::poller::{AnySocket, Registrable};
use crate::stack::Stack;

/// These never block, whatever [`set_nonblocking`](UdpSocket::set_nonblocking) says. Where nothing is
/// there, the context's waker is woken once something is. As with tokio, each handle remembers the
/// waker of the last poll alone.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// use forebay::{Stack, UdpSocket};
///
/// let stack = Stack::builder().build()?;
/// let socket = UdpSocket::bind(&stack, "127.0.0.1:7")?;
/// let mut buf = [0; 16];
/// // Any executor will do; this one asks once, and once more.
/// let mut received = pin!(poll_fn(|cx| socket.poll_recv_from(cx, &mut buf)));
/// let cx = &mut Context::from_waker(Waker::noop());
/// assert!(received.as_mut().poll(cx).is_pending());
/// socket.send_to(b"hello", "127.0.0.1:7")?;
/// stack.poll(stack.now());
/// let Poll::Ready(Ok((5, from))) = received.as_mut().poll(cx) else {
///     panic!("nothing came");
/// };
/// # assert_eq!(from.port(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
impl UdpSocket {
    /// Receives a datagram of the connected peer.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let bufs = &mut [IoSliceMut::new(buf)];
        self.poll_recv_vectored(cx, bufs)
            .map_ok(|received| received.len)
    }

    /// Receives a datagram: how many bytes, and from whom.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let bufs = &mut [IoSliceMut::new(buf)];
        self.poll_recv_vectored(cx, bufs)
            .map_ok(|received| (received.len, received.from))
    }

    /// Receives a datagram with all that is known of it.
    ///
    /// # Errors
    ///
    /// Those of [`recv_from`](Self::recv_from).
    pub fn poll_recv_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<Received>> {
        self.poll_for(cx, |socket| socket.try_receive(bufs, false))
    }

    /// Waits for something to receive: a datagram whose checksum is good, or an error.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(cx, |socket| Ok(socket.has_something()?.then_some(())))
    }

    /// Forgets a waker that [`register_waker`](Self::register_waker) was given, if it was not woken
    /// since: what a future that is dropped owes to a socket on which nothing comes for long.
    pub fn forget_waker(&self, waker: &Waker) {
        self.inner().udp_forget_waker(self.id(), waker);
    }

    /// Has `waker` woken by what comes from now on, whatever is there already.
    #[cfg(feature = "tokio")]
    pub(crate) fn arm_waker(&self, waker: &Waker) -> io::Result<()> {
        let armed = self.inner().udp_arm_waker(self.id(), waker);
        armed.map_err(error::not_open)
    }

    /// Whether there is something to receive; bad datagrams don't count.
    pub(crate) fn has_something(&self) -> io::Result<bool> {
        let readable = self.inner().udp_is_readable(self.id(), true);
        readable.map_err(error::not_open)
    }

    fn poll_for<T>(
        &self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&Self) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(found) = look(self).transpose() {
            return Poll::Ready(found);
        }
        let waiter = self.waiter.get_or_init(Arc::default);
        // Woken at once if something came meanwhile.
        match self.register_waker(&waiter.waker_for(cx.waker())) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Registrable for UdpSocket {
    fn belongs_to(&self, stack: &Stack) -> bool {
        Arc::ptr_eq(&self.shared.stack.shared, &stack.shared)
    }

    fn socket(&self) -> AnySocket {
        AnySocket::Udp(self.id())
    }
}
