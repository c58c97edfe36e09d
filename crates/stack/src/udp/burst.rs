//! Consecutive datagrams of a batch for one socket, which enter its queue together: one lock and one
//! wake-up for all of them.
//!
//! They are collected while the batch is acted upon, in the order of arrival, and delivered when
//! one comes that is for another socket, or when the batch ends. Each has been found to be the
//! socket's while the socket was in a certain state. If it is still in that state when its queue is
//! locked, all are its; else each is looked up anew. A state does not come back meanwhile: to write a
//! key set again takes a grace period, and the batch is read under a guard.

use super::queue::Moved;
use super::{gso, receive};
use crate::core::{Context, Local};
use crate::demux::flow::Flow;
use crate::family::Family;
use crate::packet::{Packet, PacketQueue, Verdict};
use crate::socket::{Mode, Slot, SocketId, Status};

/// The burst in hand.
#[derive(Default)]
pub(crate) struct Burst {
    recipient: Option<Recipient>,
    datagrams: PacketQueue,
}

struct Recipient {
    id: SocketId,
    /// The state in which the socket takes the datagrams, packed.
    state: u64,
    /// Takes what comes to the same address and port from anybody, unless another socket is
    /// connected to them.
    is_open: bool,
}

/// A socket, in the state in which it takes a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub(crate) id: SocketId,
    pub(crate) slot: &'a Slot,
    pub(crate) status: Status,
    /// Chosen from a group: the next datagram may go to another member.
    pub(crate) is_member: bool,
}

impl<'a> Taker<'a> {
    /// The socket `id`, if it takes datagrams of a flow that came in by `iif`.
    #[inline]
    pub(super) fn of(cx: &Context<'a>, id: SocketId, flow: &Flow, iif: u32) -> Option<Self> {
        let slot = cx.stack.demux.sockets().slot(id.slot)?;
        let status = slot.takes(id, flow, iif)?;
        Some(Self {
            id,
            slot,
            status,
            is_member: false,
        })
    }

    /// The socket `id` that early demux has found, if it is still connected so.
    #[inline]
    pub(super) fn found<F: Family>(
        cx: &Context<'a>,
        id: SocketId,
        packet: &Packet,
    ) -> Option<Self> {
        let slot = cx.stack.demux.sockets().slot(id.slot)?;
        let status = slot.still_takes::<F>(id, packet)?;
        Some(Self {
            id,
            slot,
            status,
            is_member: false,
        })
    }
}

/// Whether a datagram goes where the burst's first one went; `found` is what early demux knows.
/// Whoever is published while the batch is under way may come too late for it.
#[inline]
pub(super) fn continues<F: Family>(
    cx: &Context<'_>,
    datagram: &Packet,
    found: Option<SocketId>,
) -> bool {
    let burst = &cx.core.burst;
    let (Some(recipient), Some(first)) = (&burst.recipient, burst.datagrams.peek()) else {
        return false;
    };
    let ends_here = |packet: &Packet| (packet.iif, packet.dst_port, F::dst(packet));
    let begins_at = |packet: &Packet| (packet.src_port, F::src(packet));
    first.version == F::VERSION
        && ends_here(first) == ends_here(datagram)
        && found.is_none_or(|id| id == recipient.id)
        && (begins_at(first) == begins_at(datagram)
            || (recipient.is_open && is_open_to::<F>(cx, datagram)))
}

/// Whether no socket is connected to who sent the datagram.
fn is_open_to<F: Family>(cx: &Context<'_>, datagram: &Packet) -> bool {
    let demux = &cx.stack.demux;
    !demux.is_connected(&Flow::of_packet::<F>(datagram), datagram.iif)
}

impl Burst {
    /// One more of the same.
    #[inline]
    pub(super) fn push(&mut self, datagram: Packet) {
        self.datagrams.push(datagram);
    }
}

/// Adds a datagram for `taker`; whoever the burst is for gets it first, if that is another.
#[inline]
pub(super) fn add(cx: &mut Context<'_>, taker: &Taker<'_>, datagram: Packet) {
    let state = taker.status.pack();
    let last = cx.core.burst.recipient.as_ref();
    if !last.is_some_and(|last| last.state == state && last.id == taker.id) {
        flush(cx);
    }
    let burst = &mut cx.core.burst;
    burst.recipient = Some(Recipient {
        id: taker.id,
        state,
        is_open: taker.status.mode == Mode::Bound && !taker.is_member,
    });
    burst.datagrams.push(datagram);
}

/// Delivers the burst. To be called when a batch ends.
#[inline]
pub(crate) fn flush(cx: &mut Context<'_>) {
    if cx.core.burst.recipient.is_some() {
        deliver(cx);
    }
}

#[inline(never)]
fn deliver(cx: &mut Context<'_>) {
    let Local {
        burst, allowance, ..
    } = &mut *cx.core;
    let Some(Recipient { id, state, .. }) = burst.recipient else {
        return;
    };
    burst.recipient = None;
    let slot = cx.stack.demux.sockets().slot(id.slot);
    let datagrams = &mut burst.datagrams;
    let pushed = slot.map_or(Err(Moved), |slot| {
        let sysctls = cx.view.sysctls;
        slot.queue.push(datagrams, allowance, sysctls, state)
    });
    if !datagrams.is_empty() {
        let left = core::mem::take(datagrams);
        finish(cx, slot, left, pushed);
    }
}

/// Drops what was refused, and looks for the new sockets of what came too late for the old one.
#[cold]
pub(super) fn finish(
    cx: &mut Context<'_>,
    slot: Option<&Slot>,
    mut left: PacketQueue,
    pushed: Result<(), Moved>,
) {
    if let (Ok(()), Some(slot)) = (pushed, slot) {
        return drop_refused(cx, slot, &mut left);
    }
    while let Some(datagram) = left.pop() {
        receive::deliver_alone(cx, datagram);
    }
}

/// Puts one datagram into a socket's queue, if the socket is in the state `status`.
///
/// # Errors
///
/// The datagram, if it is not.
pub(super) fn enqueue(
    cx: &mut Context<'_>,
    slot: &Slot,
    status: Status,
    datagram: Packet,
) -> Result<(), Packet> {
    let mut alone = PacketQueue::new();
    alone.push(datagram);
    let allowance = &mut cx.core.allowance;
    let pushed = slot
        .queue
        .push(&mut alone, allowance, cx.view.sysctls, status.pack());
    match pushed {
        Ok(()) => drop_refused(cx, slot, &mut alone),
        Err(Moved) => return alone.pop().map_or(Ok(()), Err),
    }
    Ok(())
}

fn drop_refused(cx: &mut Context<'_>, slot: &Slot, refused: &mut PacketQueue) {
    slot.add_drops(refused.iter().map(gso::datagrams).sum());
    while let Some(datagram) = refused.pop() {
        match datagram.verdict {
            Verdict::Drop(reason) => cx.drop(datagram, reason),
            _ => cx.core.consume(datagram),
        }
    }
}
