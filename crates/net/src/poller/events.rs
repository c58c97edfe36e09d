//! What is asked of a poller, and what it answers.

use std::ops::BitOr;
use std::sync::Arc;

use super::source::Source;

/// What somebody wants to hear of a socket. Errors are told unasked.
///
/// Level-triggered unless said: an event comes as often as somebody waits while the socket is ready.
/// Edge-triggered, it comes once for what is there, and again when more arrives (`EPOLLET`): read
/// until [`WouldBlock`](std::io::ErrorKind::WouldBlock).
///
/// ```
/// use forebay::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert_eq!(both.edge_triggered(), Interest::WRITABLE | Interest::READABLE.edge_triggered());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) edge: bool,
}

impl Interest {
    /// There is something to read (a datagram, bytes, the end of a stream) or to accept, or an error.
    pub const READABLE: Self = Self {
        readable: true,
        writable: false,
        edge: false,
    };

    /// Sending would not wait: a stream has room, or its handshake is over. On a UDP socket it never
    /// does: edge-triggered, it is told once.
    pub const WRITABLE: Self = Self {
        readable: false,
        writable: true,
        edge: false,
    };

    /// The same, told once each time that it comes about.
    pub const fn edge_triggered(self) -> Self {
        Self { edge: true, ..self }
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            readable: self.readable | other.readable,
            writable: self.writable | other.writable,
            edge: self.edge | other.edge,
        }
    }
}

/// What a socket has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Event {
    /// What it was registered with.
    pub key: usize,
    /// A receiving call returns at once: with a datagram whose checksum is good, bytes, the end of the
    /// stream, a connection, or an error.
    pub readable: bool,
    /// A sending call returns at once.
    pub writable: bool,
    /// The next call returns an error, or
    /// [`recv_error`](crate::UdpSocket::recv_error) has a report to read.
    pub error: bool,
    /// The peer sends no more (`EPOLLRDHUP`); told to who asks for [`READABLE`](Interest::READABLE).
    pub read_closed: bool,
    /// Both directions of a stream are shut, or it is not connected (`EPOLLHUP`); told to everybody.
    pub closed: bool,
}

/// Events of one call, and room for those of the next.
#[derive(Debug)]
pub struct Events {
    pub(super) list: Vec<Event>,
    /// Sources that are being looked at; here for its memory.
    pub(super) seen: Vec<Arc<Source>>,
    pub(super) capacity: usize,
}

impl Events {
    /// Room for as many at a time, at least 1. Where more are ready, the others come first next time.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            list: Vec::with_capacity(capacity),
            seen: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Each, in the order in which they came about.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
