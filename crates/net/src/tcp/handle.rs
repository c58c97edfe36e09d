//! What all kinds of TCP sockets have in common.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;

use forebay_stack::socket::SocketId;
use forebay_stack::tcp::{Side, TcpOption, TcpOptionValues};
use forebay_stack::time::Instant;

use crate::addrs::version_of;
use crate::busy::{self, BusyPoll};
use crate::error;
use crate::park::Parker;
use crate::patience::Patience;
use crate::stack::Stack;

/// What clones of a socket share, as duplicated descriptors do. The socket is closed with it.
pub(super) struct Handle {
    pub(super) stack: Stack,
    pub(super) id: SocketId,
    read_patience: Patience,
    write_patience: Patience,
    pub(super) busy_poll: BusyPoll,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The id is this socket's alone, so it can only be closed here.
        let _ = self.inner().tcp_close(self.now(), self.id);
    }
}

impl Handle {
    /// Opens a socket for such an address.
    pub(super) fn open(stack: &Stack, family: IpAddr) -> io::Result<Self> {
        let id = stack.inner().tcp_open(version_of(family));
        Ok(Self::of(stack, id.map_err(io::Error::other)?))
    }

    /// Takes over a socket that nobody else has.
    pub(super) fn of(stack: &Stack, id: SocketId) -> Self {
        Self {
            stack: stack.clone(),
            id,
            read_patience: Patience::default(),
            write_patience: Patience::default(),
            busy_poll: BusyPoll::default(),
        }
    }

    pub(super) fn inner(&self) -> &forebay_stack::Stack {
        self.stack.inner()
    }

    pub(super) fn now(&self) -> Instant {
        self.stack.now()
    }

    pub(super) fn belongs_to(&self, stack: &Stack) -> bool {
        Arc::ptr_eq(&self.stack.shared, &stack.shared)
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner()
            .tcp_local_addr(self.id)
            .map_err(error::not_open)
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let pending = self.inner().tcp_take_error(self.id);
        Ok(pending.map_err(error::not_open)?.map(error::tcp))
    }

    pub(super) fn set(&self, option: TcpOption) -> io::Result<()> {
        let set = self.inner().tcp_set(self.now(), self.id, option);
        set.map_err(error::option)
    }

    pub(super) fn options(&self) -> io::Result<TcpOptionValues> {
        let options = self.inner().tcp_options(self.id);
        options.map_err(error::not_open)
    }

    pub(super) fn set_nonblocking(&self, on: bool) {
        self.read_patience.set_nonblocking(on);
        self.write_patience.set_nonblocking(on);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.read_patience.is_nonblocking()
    }

    pub(super) fn patience(&self, side: Side) -> &Patience {
        match side {
            Side::Read => &self.read_patience,
            Side::Write => &self.write_patience,
        }
    }

    /// Has `waker` woken once by what comes from now on, whatever is there already.
    pub(super) fn arm(&self, side: Side, waker: &Waker) -> io::Result<()> {
        let armed = self.inner().tcp_arm_waker(self.id, side, waker);
        armed.map_err(error::not_open)
    }

    /// Forgets a waker that was not woken since.
    pub(super) fn forget(&self, waker: &Waker) {
        self.inner().tcp_forget_waker(self.id, waker);
    }

    /// Calls `look` until it returns something, for as long as the socket may wait.
    pub(super) fn wait_for<T>(
        &self,
        side: Side,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let patience = self.patience(side);
        if patience.is_nonblocking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let parker = Parker::new(patience.timeout());
        if side == Side::Read
            && let Some(found) = busy::look_for(self.busy_poll.get(self.inner()), &mut look)?
        {
            return Ok(found);
        }
        self.sleep_until(side, &parker, look)
    }

    /// The same without haste, for as long as the parker may sleep.
    pub(super) fn sleep_until<T>(
        &self,
        side: Side,
        parker: &Parker,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        loop {
            // Before the look, so that nothing slips in between.
            self.arm(side, parker.waker())?;
            if let Some(found) = look().transpose() {
                self.forget(parker.waker());
                return found;
            }
            parker.park().inspect_err(|_| self.forget(parker.waker()))?;
            // Woken, so there is no waker to forget.
            if let Some(found) = look()? {
                return Ok(found);
            }
        }
    }
}
