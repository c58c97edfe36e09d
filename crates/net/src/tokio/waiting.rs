//! Futures that wait at a socket.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use ::tokio::io::Interest;
use ::tokio::task::coop;

use crate::waiter::Waiter;

/// A socket at which a future can wait.
pub(super) trait Waitable {
    /// Has `waker` woken once by what comes from now on, whatever is there already.
    fn arm(&self, interest: Interest, waker: &Waker) -> io::Result<()>;

    /// Forgets a waker that was not woken since.
    fn forget(&self, waker: &Waker);
}

/// Calls `attempt` until it says something else than [`WouldBlock`](io::ErrorKind::WouldBlock), and
/// waits in between.
pub(super) async fn wait_until<T>(
    socket: &impl Waitable,
    interest: Interest,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut waiting = Waiting {
        socket,
        interest,
        waiter: None,
    };
    poll_fn(|cx| {
        let progress = ready!(coop::poll_proceed(cx));
        let done = match attempt() {
            Err(none) if none.kind() == io::ErrorKind::WouldBlock => {
                ready!(waiting.poll_again(cx, &mut attempt))
            }
            done => done,
        };
        progress.made_progress();
        Poll::Ready(done)
    })
    .await
}

/// What a call that does not wait says, where it found nothing.
pub(super) fn or_would_block<T>(found: Option<T>) -> io::Result<T> {
    found.ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

/// A future's wait, which ends with it.
struct Waiting<'a, S: Waitable> {
    socket: &'a S,
    interest: Interest,
    waiter: Option<Arc<Waiter>>,
}

impl<S: Waitable> Waiting<'_, S> {
    /// Sees to it that the task is woken, and then tries again, since something may have come before.
    fn poll_again<T>(
        &mut self,
        cx: &Context<'_>,
        attempt: &mut impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let waiter = self.waiter.get_or_insert_default();
        let armed = self
            .socket
            .arm(self.interest, &waiter.waker_for(cx.waker()));
        if let Err(error) = armed {
            return Poll::Ready(Err(error));
        }
        match attempt() {
            Err(none) if none.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            done => Poll::Ready(done),
        }
    }
}

impl<S: Waitable> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            self.socket.forget(&waiter.waker());
        }
    }
}
