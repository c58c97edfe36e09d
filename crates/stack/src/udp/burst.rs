//! Consecutive datagrams of a batch for one socket, which enter its queue together: one lock and one
//! wake-up for all of them.
//!
//! They are collected while the batch is acted upon, in the order of arrival, and delivered when
//! one comes that is for another socket, or when the batch ends. Each has been found to be the
//! socket's while the socket was in a certain state. If it is still in that state when its queue is
//! locked, all are its; else each is looked up anew. A state does not come back meanwhile: to write a
//! key set again takes a grace period, and the batch is read under a guard.

use super::queue::{Moved, Refused};
use super::receive;
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::drop::DropReason;
use crate::packet::{Packet, PacketQueue};
use crate::socket::{Slot, SocketId, Status};

/// The burst in hand.
#[derive(Default)]
pub(crate) struct Burst {
    recipient: Option<Recipient>,
    datagrams: PacketQueue,
}

struct Recipient {
    id: SocketId,
    /// The state in which the socket takes the datagrams.
    status: Status,
    /// Of the datagram that came last.
    flow: Flow,
    iif: u32,
}

/// A socket, in the state in which it takes a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub(crate) id: SocketId,
    pub(crate) slot: &'a Slot,
    pub(crate) status: Status,
}

impl Burst {
    /// Whether a datagram of this flow goes where the last one went; `found` is what early demux
    /// knows. Whoever is published while the batch is under way may come too late for it.
    #[inline]
    pub(super) fn continues(&self, flow: &Flow, iif: u32, found: Option<SocketId>) -> bool {
        self.recipient.as_ref().is_some_and(|last| {
            last.flow == *flow && last.iif == iif && found.is_none_or(|id| id == last.id)
        })
    }

    /// One more of the same.
    pub(super) fn push(&mut self, datagram: Packet) {
        self.datagrams.push(datagram);
    }
}

/// Adds a datagram for `taker`; whoever the burst is for gets it first, if that is another.
pub(super) fn add(cx: &mut Context<'_>, taker: &Taker<'_>, flow: Flow, datagram: Packet) {
    let is_same = cx
        .core
        .burst
        .recipient
        .as_ref()
        .is_some_and(|last| (last.id, last.status) == (taker.id, taker.status));
    if !is_same {
        flush(cx);
    }
    let burst = &mut cx.core.burst;
    burst.recipient = Some(Recipient {
        id: taker.id,
        status: taker.status,
        flow,
        iif: datagram.iif,
    });
    burst.datagrams.push(datagram);
}

/// Delivers the burst. To be called when a batch ends.
pub(crate) fn flush(cx: &mut Context<'_>) {
    let Some(Recipient { id, status, .. }) = cx.core.burst.recipient.take() else {
        return;
    };
    let mut datagrams = core::mem::take(&mut cx.core.burst.datagrams);
    let stack = cx.stack;
    let slot = stack.demux.sockets().slot(id.slot);
    let pushed = slot.map_or(Err(Moved), |slot| {
        enqueue(cx, slot, &mut datagrams, || slot.status() == status)
    });
    if pushed == Err(Moved) {
        while let Some(datagram) = datagrams.pop() {
            receive::deliver_alone(cx, datagram);
        }
    }
}

/// Puts datagrams into a socket's queue, and drops those that it has no room for.
pub(super) fn enqueue(
    cx: &mut Context<'_>,
    slot: &Slot,
    datagrams: &mut PacketQueue,
    is_right: impl FnOnce() -> bool,
) -> Result<(), Moved> {
    let sysctls = cx.view.sysctls;
    let pushed = slot
        .queue
        .push(datagrams, &mut cx.core.allowance, sysctls, is_right)?;
    let Refused {
        queue_full,
        no_memory,
    } = pushed;
    let refused = queue_full.len() + no_memory.len();
    if refused > 0 {
        slot.add_drops(refused);
        drop_all(cx, queue_full, DropReason::SocketRcvbuff);
        drop_all(cx, no_memory, DropReason::ProtoMem);
    }
    Ok(())
}

fn drop_all(cx: &mut Context<'_>, mut datagrams: PacketQueue, reason: DropReason) {
    while let Some(datagram) = datagrams.pop() {
        cx.drop(datagram, reason);
    }
}
