//! Datagrams that an application reads.

use core::net::{IpAddr, SocketAddr};
use core::task::Waker;

use super::info::present;
use super::socket::NotOpen;
use crate::counters::{Counter, MIB_V4, MIB_V6};
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet};
use crate::socket::{Flag, SocketError, SocketId};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::UdpHeader;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// What the network said about an earlier datagram; told once.
    #[error(transparent)]
    Pending(#[from] SocketError),
}

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes copied.
    pub len: usize,
    /// Bytes that the datagram had; if more than were copied, the rest is lost.
    pub full_len: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub local: SocketAddr,
    /// Index of the interface that it came in by.
    pub iif: u32,
}

/// Receiving.
impl Stack {
    /// Takes the datagram at the front of the queue, or with `peek` looks at it: copies what fits
    /// into `buf`. `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn udp_recv(
        &self,
        id: SocketId,
        buf: &mut [u8],
        peek: bool,
    ) -> Result<Option<Received>, RecvError> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        if let Some(error) = slot.queue.take_error() {
            return Err(error.into());
        }
        let inet6 = slot.head.options.has(Flag::Inet6);
        let is_open = || slot.status_of(id).is_some();
        if peek {
            let look = |packet: &Packet| copy_out(packet, inet6, buf);
            return Ok(slot.queue.peek(is_open, look));
        }
        let (memory, share) = (&slot.head.memory, self.demux.memory());
        let Some(packet) = slot.queue.pop(memory, share, is_open) else {
            return Ok(None);
        };
        let received = copy_out(&packet, inet6, buf);
        self.with_context(Instant::ZERO, |cx| {
            // Counted when the application has it, as Linux does.
            cx.core.count(in_datagrams(packet.version));
            cx.core.consume(packet);
        });
        Ok(Some(received))
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
        // If it was closed before we registered, nobody else will wake us.
        slot.status_of(id).map(drop).ok_or(NotOpen)
    }

    /// The error that the network has reported, if any; told once (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_take_error(&self, id: SocketId) -> Result<Option<SocketError>, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        Ok(slot.queue.take_error())
    }
}

fn copy_out(packet: &Packet, inet6: bool, buf: &mut [u8]) -> Received {
    let offset = usize::from(packet.l4_offset) + UdpHeader::LEN;
    let (from, local): (IpAddr, IpAddr) = match packet.version {
        IpVersion::V4 => (V4::src(packet).into(), V4::dst(packet).into()),
        IpVersion::V6 => (V6::src(packet).into(), V6::dst(packet).into()),
    };
    Received {
        len: packet.copy_to(offset, buf),
        full_len: packet.total_len().saturating_sub(offset),
        from: present(from, packet.src_port, inet6, packet.iif),
        local: present(local, packet.dst_port, inet6, packet.iif),
        iif: packet.iif,
    }
}

fn in_datagrams(version: IpVersion) -> Counter {
    match version {
        IpVersion::V4 => MIB_V4.udp_in_datagrams,
        IpVersion::V6 => MIB_V6.udp_in_datagrams,
    }
}
