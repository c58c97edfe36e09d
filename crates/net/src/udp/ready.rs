//! Sockets for who does not wait in a call: polls and wakers, as async runtimes have them.

use std::io::{self, IoSliceMut};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use std::net::SocketAddr;

use forebay_stack::udp::Received;

use super::UdpSocket;
use crate::error;
use crate::stack::Stack;

/// The waker of the last poll that found nothing.
#[derive(Default)]
pub(super) struct LastWaker(Mutex<Option<Waker>>);

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
        self.poll_for(cx, |socket| {
            let readable = socket.inner().udp_is_readable(socket.id(), true);
            readable
                .map(|readable| readable.then_some(()))
                .map_err(error::not_open)
        })
    }

    /// Forgets a waker that [`register_waker`](Self::register_waker) was given, if it was not woken
    /// since: what a future that is dropped owes to a socket on which nothing comes for long.
    pub fn forget_waker(&self, waker: &Waker) {
        self.inner().udp_forget_waker(self.id(), waker);
    }

    pub(crate) fn belongs_to(&self, stack: &Stack) -> bool {
        std::sync::Arc::ptr_eq(&self.shared.stack.shared, &stack.shared)
    }

    fn poll_for<T>(
        &self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&Self) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(found) = look(self).transpose() {
            return Poll::Ready(found);
        }
        self.remember(cx.waker());
        // Woken at once if something came meanwhile.
        match self.register_waker(cx.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Puts `waker` in the last one's place, lest those of dropped futures gather.
    fn remember(&self, waker: &Waker) {
        let LastWaker(last) = &self.last_waker;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some(last) if last.will_wake(waker) => {}
            Some(last) => {
                self.forget_waker(last);
                last.clone_from(waker);
            }
            none => *none = Some(waker.clone()),
        }
    }
}
