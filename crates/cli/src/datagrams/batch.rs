//! Where datagrams are received: one at a time, or several in one call.

use std::io;

use forebay::RecvSlot;
use forebay::kernel_udp::RecvBatch;

use super::{ReceiveCall, Socket};

/// Room for the longest datagram. A buffer begins on another cache line of its page than the one
/// before, lest all of them be in each other's way in the cache.
const ROOM: usize = 65_536 + 64;

/// Buffers for so many datagrams, to be touched when they are used.
pub(super) struct Buffers {
    bytes: Vec<u8>,
}

impl Buffers {
    pub(super) fn new(batch: usize) -> Self {
        Self {
            bytes: vec![0; ROOM * batch.max(1)],
        }
    }

    /// The first one.
    pub(super) fn one(&mut self) -> &mut [u8] {
        let (one, _) = self.bytes.split_at_mut(ROOM);
        one
    }

    /// To be used by one way to receive.
    pub(super) fn places(&mut self, socket: &Socket, call: ReceiveCall) -> Places<'_> {
        match (call, socket) {
            (ReceiveCall::RecvMmsg, Socket::Kernel(_)) => {
                Places::Kernel(RecvBatch::new(self.bytes.chunks_mut(ROOM)))
            }
            (ReceiveCall::RecvMmsg, Socket::Forebay(_)) => {
                Places::Forebay(self.bytes.chunks_mut(ROOM).map(RecvSlot::new).collect())
            }
            _ => Places::One {
                call,
                buf: self.one(),
                len: 0,
            },
        }
    }
}

/// Places for the datagrams of a call.
pub(super) enum Places<'a> {
    One {
        call: ReceiveCall,
        buf: &'a mut [u8],
        len: usize,
    },
    Kernel(RecvBatch<'a>),
    Forebay(Vec<RecvSlot<'a>>),
}

impl Places<'_> {
    /// Receives at most so many datagrams, and says how many.
    pub(super) fn receive(&mut self, socket: &Socket, wanted: usize) -> io::Result<usize> {
        match (self, socket) {
            (Self::Kernel(batch), Socket::Kernel(socket)) => batch.recv(socket, wanted),
            (Self::Forebay(slots), Socket::Forebay(socket)) => {
                let wanted = wanted.min(slots.len());
                socket.recv_batch(slots.get_mut(..wanted).unwrap_or_default())
            }
            (Self::One { call, buf, len }, _) => {
                *len = socket.receive(*call, buf)?;
                Ok(1)
            }
            (Self::Kernel(_) | Self::Forebay(_), _) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// What the last call received in this place.
    pub(super) fn datagram(&self, nth: usize) -> &[u8] {
        match self {
            Self::One { buf, len, .. } => buf.get(..*len).unwrap_or_default(),
            Self::Kernel(batch) => batch.datagram(nth),
            Self::Forebay(slots) => slots.get(nth).map_or(&[], |slot| {
                let len = slot.received.map_or(0, |received| received.len);
                slot.buf.get(..len).unwrap_or_default()
            }),
        }
    }
}
