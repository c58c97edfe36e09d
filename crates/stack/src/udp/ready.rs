//! Whether a socket has something to tell, and who wants to hear of it: what pollers ask.

use core::task::Waker;

use super::recv::read;
use super::socket::NotOpen;
use crate::socket::{Flag, Slot, SocketId};
use crate::stack::Stack;

/// What a socket has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// A read returns at once, with a datagram or an error.
    pub readable: bool,
    /// An error waits to be told by the next call, or a report of one to be read (`POLLERR`).
    pub error: bool,
}

/// Readiness.
impl Stack {
    /// Whether a read would return something at once: a datagram or an error (poll(2)'s `POLLIN`,
    /// `POLLERR`).
    ///
    /// For a socket whose reads block, bad datagrams at the front are dropped here, lest the read
    /// wait; for one whose reads don't, they are left to the read, which then finds nothing. Linux
    /// has it so.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_is_readable(&self, id: SocketId, blocking: bool) -> Result<bool, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        if slot.queue.has_error() {
            return Ok(true);
        }
        if blocking {
            return Ok(self.first_good(slot, id, |_| ()).is_some());
        }
        let mut reading = read(slot, id).ok_or(NotOpen)?;
        Ok(reading.front().is_some())
    }

    /// The same, and whether there are errors; bad datagrams at the front are dropped here.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_readiness(&self, id: SocketId) -> Result<Readiness, NotOpen> {
        let readable = self.udp_is_readable(id, true)?;
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        Ok(Readiness {
            readable,
            error: slot.queue.has_error() || slot.has_reports(),
        })
    }

    /// Has `waker` woken once, as soon as [`udp_recv`](Self::udp_recv) has something to return: a
    /// datagram, an error, or that the socket is closed.
    ///
    /// It is woken in the middle of a batch, and so must do no more than say so: a call from there
    /// that changes sockets would wait for the batch, and the batch for it.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_register_waker(&self, id: SocketId, waker: &Waker) -> Result<(), NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        slot.queue.register(waker);
        still_open(slot, id, waker)
    }

    /// The same for who looks afterwards: has `waker` woken once by what comes from now on, even if
    /// there is something already. An error report wakes it, too.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_arm_waker(&self, id: SocketId, waker: &Waker) -> Result<(), NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        slot.queue.arm(waker);
        still_open(slot, id, waker)
    }

    /// Forgets a waker that was registered and not woken yet. Harmless if there is none such, and if
    /// the socket is closed.
    pub fn udp_forget_waker(&self, id: SocketId, waker: &Waker) {
        if let Some(slot) = self.demux.sockets().get(id) {
            slot.queue.disarm(waker);
        }
    }
}

/// If the socket was closed before we registered, nobody will wake us.
pub(super) fn still_open(slot: &Slot, id: SocketId, waker: &Waker) -> Result<(), NotOpen> {
    if slot.status_of(id).is_none() {
        slot.queue.disarm(waker);
        return Err(NotOpen);
    }
    Ok(())
}

impl Slot {
    /// Whether the error queue has something; only who asked for errors has one.
    fn has_reports(&self) -> bool {
        self.options().has(Flag::RecvErr)
            && self.reports().as_ref().is_some_and(|it| !it.is_empty())
    }
}
