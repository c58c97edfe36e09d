//! A registered socket.
//!
//! It lies in the ready list while somebody should look at it. When somebody did and it has nothing
//! to tell, its waker is left with the socket, which wakes it once; so who reads as fast as datagrams
//! come is not told of each. Edge-triggered, the waker is left in any case, before the look: what
//! comes later is a new edge.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use forebay_stack::Stack;
use forebay_stack::socket::SocketId;
use forebay_stack::tcp::Side;
use forebay_stack::udp::NotOpen;
use forebay_sync::loom::atomic::{AtomicBool, Ordering};
use forebay_sync::loom::{Mutex, MutexGuard, lock};

use super::events::{Event, Interest};
use super::ready::ReadyList;
use crate::later;

pub(super) struct Source {
    socket: AnySocket,
    /// It is in the ready list.
    queued: AtomicBool,
    /// Weak, since the list has sources in it, too.
    ready: Weak<ReadyList>,
    /// Locked while the waker is put somewhere, so that none is after the end.
    registration: Mutex<Option<Registration>>,
}

#[derive(Clone, Copy)]
struct Registration {
    key: usize,
    interest: Interest,
    /// Not told yet that the socket is writable.
    fresh: bool,
}

/// A socket of any protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnySocket {
    Udp(SocketId),
    Tcp(SocketId),
}

/// What a socket has to tell, whoever wants to know it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) error: bool,
    pub(super) read_closed: bool,
    pub(super) closed: bool,
}

/// Whom a source asks about its socket.
pub(super) trait Sockets {
    /// What the socket has to tell.
    fn readiness(&self, socket: AnySocket) -> Result<Readiness, NotOpen>;

    /// Has the waker woken once by what comes from now on: of what interests, and errors.
    fn arm(&self, socket: AnySocket, interest: Interest, waker: &Waker) -> Result<(), NotOpen>;

    /// Forgets a waker.
    fn forget(&self, socket: AnySocket, waker: &Waker);
}

impl Sockets for Stack {
    fn readiness(&self, socket: AnySocket) -> Result<Readiness, NotOpen> {
        Ok(match socket {
            AnySocket::Udp(id) => {
                let readiness = self.udp_readiness(id)?;
                Readiness {
                    readable: readiness.readable,
                    writable: true,
                    error: readiness.error,
                    ..Readiness::default()
                }
            }
            AnySocket::Tcp(id) => {
                let readiness = self.tcp_readiness(id)?;
                Readiness {
                    readable: readiness.readable,
                    writable: readiness.writable,
                    error: readiness.error,
                    read_closed: readiness.read_closed,
                    closed: readiness.write_closed,
                }
            }
        })
    }

    fn arm(&self, socket: AnySocket, interest: Interest, waker: &Waker) -> Result<(), NotOpen> {
        match socket {
            AnySocket::Udp(id) => self.udp_arm_waker(id, waker),
            AnySocket::Tcp(id) => {
                if interest.readable {
                    self.tcp_arm_waker(id, Side::Read, waker)?;
                }
                if interest.writable {
                    self.tcp_arm_waker(id, Side::Write, waker)?;
                }
                Ok(())
            }
        }
    }

    fn forget(&self, socket: AnySocket, waker: &Waker) {
        match socket {
            AnySocket::Udp(id) => self.udp_forget_waker(id, waker),
            AnySocket::Tcp(id) => self.tcp_forget_waker(id, waker),
        }
    }
}

/// What came of a look.
pub(super) struct Visit {
    pub(super) event: Option<Event>,
    /// Somebody should look again the next time.
    pub(super) again: bool,
}

/// The socket is closed, or was taken out.
#[derive(Debug)]
pub(super) struct Gone;

impl Source {
    pub(super) fn new(
        socket: AnySocket,
        key: usize,
        interest: Interest,
        ready: &Arc<ReadyList>,
    ) -> Arc<Self> {
        Arc::new(Self {
            socket,
            queued: AtomicBool::new(false),
            ready: Arc::downgrade(ready),
            registration: Mutex::new(Some(Registration::new(key, interest))),
        })
    }

    pub(super) fn socket(&self) -> AnySocket {
        self.socket
    }

    pub(super) fn set(&self, key: usize, interest: Interest) {
        if let Some(registration) = self.registration().as_mut() {
            *registration = Registration::new(key, interest);
        }
    }

    /// Ends the registration: no events from now on, and no waker is left behind.
    pub(super) fn retire(self: &Arc<Self>, sockets: &impl Sockets) {
        let mut registration = self.registration();
        *registration = None;
        sockets.forget(self.socket, &self.waker());
    }

    /// Marks it as in the ready list; whether it was already.
    pub(super) fn set_queued(&self) -> bool {
        // Pairs with the swap of `visit`, which so sees what we were woken for.
        self.queued.swap(true, Ordering::AcqRel)
    }

    /// Looks what the socket has to tell, and sees to it that we come back when there is more.
    pub(super) fn visit(self: &Arc<Self>, sockets: &impl Sockets) -> Result<Visit, Gone> {
        self.queued.swap(false, Ordering::AcqRel);
        let mut registration = self.registration();
        let registration = registration.as_mut().ok_or(Gone)?;
        let interest = registration.interest;
        let edge = interest.edge;
        if edge {
            self.arm(sockets, interest)?;
        }
        let mut event = self.look(sockets, registration)?;
        if event.is_none() && !edge {
            self.arm(sockets, interest)?;
            // Something may have come before the waker was there.
            event = self.look(sockets, registration)?;
        }
        registration.fresh &= event.is_none();
        Ok(Visit {
            event,
            again: event.is_some() && !edge,
        })
    }

    fn look(
        &self,
        sockets: &impl Sockets,
        registration: &Registration,
    ) -> Result<Option<Event>, Gone> {
        let Registration {
            key,
            interest,
            fresh,
        } = *registration;
        let readiness = sockets.readiness(self.socket)?;
        let event = Event {
            key,
            readable: interest.readable && readiness.readable,
            writable: interest.writable && readiness.writable,
            error: readiness.error,
            read_closed: interest.readable && readiness.read_closed,
            closed: readiness.closed,
        };
        // Where it comes and goes, who wakes us edge-triggered may do so for it.
        let comes_and_goes = matches!(self.socket, AnySocket::Tcp(_));
        let writable_counts = event.writable && (fresh || !interest.edge || comes_and_goes);
        let is_news =
            event.readable || event.error || event.read_closed || event.closed || writable_counts;
        Ok(is_news.then_some(event))
    }

    fn arm(self: &Arc<Self>, sockets: &impl Sockets, interest: Interest) -> Result<(), Gone> {
        sockets.arm(self.socket, interest, &self.waker())?;
        Ok(())
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn registration(&self) -> MutexGuard<'_, Option<Registration>> {
        lock(&self.registration)
    }
}

/// Comes in the middle of a batch, and does no more than say so.
impl Wake for Source {
    fn wake(self: Arc<Self>) {
        if later::put_off(|| Waker::from(Arc::clone(&self))) {
            return;
        }
        if let Some(ready) = self.ready.upgrade() {
            ready.push(self);
        }
    }
}

impl Registration {
    fn new(key: usize, interest: Interest) -> Self {
        Self {
            key,
            interest,
            fresh: true,
        }
    }
}

impl From<NotOpen> for Gone {
    fn from(NotOpen: NotOpen) -> Self {
        Self
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.socket).finish()
    }
}
