//! Waiting for many sockets at once, in the manner of epoll(7).

mod events;
#[cfg(all(test, loom))]
mod interleavings;
mod ready;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_stack::sysctl::Knob;

pub use self::events::{Event, Events, Interest};
use self::ready::ReadyList;
pub(crate) use self::source::AnySocket;
use self::source::Source;
use crate::busy;
use crate::stack::Stack;

/// Waits for any of many sockets of a [`Stack`], of whichever kind, to have something to tell.
///
/// It costs what is ready, not what is registered, and what arrives where nobody waits costs nothing.
/// Any number of threads may use it at a time; each event goes to one of those that
/// wait.
///
/// A socket that is closed, with all its clones, is forgotten by itself.
///
/// ```
/// use forebay::{Events, Interest, Poller, Stack, UdpSocket};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let poller = Poller::new(&stack);
/// let sockets = [53, 5353].map(|port| UdpSocket::bind(&stack, ("127.0.0.1", port)));
/// for (key, socket) in sockets.iter().flatten().enumerate() {
///     socket.set_nonblocking(true)?;
///     poller.add(socket, key, Interest::READABLE)?;
/// }
/// let client = UdpSocket::bind(&stack, "127.0.0.1:0")?;
/// client.send_to(b"hello", "127.0.0.1:5353")?;
///
/// let mut events = Events::with_capacity(64);
/// poller.wait(&mut events, None)?;
/// for event in &events {
///     assert_eq!((event.key, event.readable), (1, true));
///     # sockets[1].as_ref().expect("bound").recv(&mut [0; 8])?;
/// }
/// assert_eq!(events.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Poller {
    stack: Stack,
    ready: Arc<ReadyList>,
    sources: Mutex<HashMap<AnySocket, Arc<Source>>>,
}

/// What a [`Poller`] can wait for: [`UdpSocket`](crate::UdpSocket),
/// [`TcpListener`](crate::TcpListener) and [`TcpStream`](crate::TcpStream).
pub trait Pollable: Registrable {}

impl<T: Registrable> Pollable for T {}

/// The part of [`Pollable`] that is nobody else's.
pub trait Registrable {
    /// Whether it is a socket of this stack.
    fn belongs_to(&self, stack: &Stack) -> bool;

    /// The socket; its clones have the same.
    fn socket(&self) -> AnySocket;
}

impl Poller {
    /// For sockets of this stack.
    pub fn new(stack: &Stack) -> Self {
        Self {
            stack: stack.clone(),
            ready: Arc::default(),
            sources: Mutex::default(),
        }
    }

    /// Registers a socket. Its events bear `key`, which need not be its alone. What is ready already
    /// is told as well.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if the socket, or a clone, is registered;
    /// [`io::ErrorKind::InvalidInput`] if it is another stack's.
    pub fn add(&self, socket: &impl Pollable, key: usize, interest: Interest) -> io::Result<()> {
        if !socket.belongs_to(&self.stack) {
            let why = "a socket of another stack";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = socket.socket();
        let mut sources = self.sources();
        if sources.contains_key(&socket) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let source = Source::new(socket, key, interest, &self.ready);
        sources.insert(socket, Arc::clone(&source));
        drop(sources);
        // Whoever waits looks at it first, and so sees what came before.
        self.ready.push(source);
        Ok(())
    }

    /// Changes key and interest. What is ready is told again.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the socket is not registered.
    pub fn modify(&self, socket: &impl Pollable, key: usize, interest: Interest) -> io::Result<()> {
        let source = self.sources().get(&socket.socket()).cloned();
        let source = source.ok_or(io::ErrorKind::NotFound)?;
        source.set(key, interest);
        self.ready.push(source);
        Ok(())
    }

    /// Takes a socket out. Other threads may still have events of it in hand.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the socket is not registered.
    pub fn delete(&self, socket: &impl Pollable) -> io::Result<()> {
        let source = self.sources().remove(&socket.socket());
        source
            .ok_or(io::ErrorKind::NotFound)?
            .retire(self.stack.inner());
        Ok(())
    }

    /// Waits until there are events, for no longer than `timeout` by the machine's clock (`None` is
    /// for ever), and puts them into `events` in place of what was there. Returns how many: none when
    /// the time is over, or after [`notify`](Self::notify).
    ///
    /// # Errors
    ///
    /// None today: the result is there for likeness to other pollers.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        // A timeout beyond what the clock can hold is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let busy = self.busy_poll().min(timeout.unwrap_or(Duration::MAX));
        busy::look_for(busy, || Ok(self.ready.has_something().then_some(())))?;
        let forget = |gone: &Arc<Source>| self.forget(gone);
        self.ready
            .wait(self.stack.inner(), events, deadline, forget);
        Ok(events.len())
    }

    /// Has one [`wait`](Self::wait) return at once: one that is under way, or the next.
    pub fn notify(&self) {
        self.ready.notify();
    }

    /// How long to look before sleeping: `net.core.busy_poll`.
    fn busy_poll(&self) -> Duration {
        let micros = self.stack.inner().knob(Knob::BusyPoll);
        Duration::from_micros(micros.unsigned_abs())
    }

    fn forget(&self, gone: &Arc<Source>) {
        // The socket may be registered anew by now.
        if let Entry::Occupied(entry) = self.sources().entry(gone.socket())
            && Arc::ptr_eq(entry.get(), gone)
        {
            entry.remove();
        }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<AnySocket, Arc<Source>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let sources = core::mem::take(&mut *self.sources());
        for source in sources.values() {
            source.retire(self.stack.inner());
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.sources().len();
        f.debug_struct("Poller")
            .field("registered", &registered)
            .finish_non_exhaustive()
    }
}
