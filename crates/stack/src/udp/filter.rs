//! Socket filters: programs that decide which datagrams get into a socket's queue, and how much of
//! them.

use super::queue::Refusal;
use super::socket::NotOpen;
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::filter::{Instruction, Program, ProgramError, Subject};
use crate::packet::Packet;
use crate::segment;
use crate::socket::{Flag, Slot, SocketId};
use crate::stack::Stack;
use crate::wire::UdpHeader;

/// Why a filter was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EINVAL: the program is none.
    #[error("the program can't be attached: {0}")]
    Program(#[from] ProgramError),
    /// EPERM.
    #[error("the socket's filter is locked")]
    Locked,
    /// ENOENT: there is none to detach.
    #[error("no filter is attached")]
    NotAttached,
    /// ENOMEM.
    #[error("too many sockets have filters")]
    TooMany,
}

/// Filters. These may wait until batches that are under way are through.
impl Stack {
    /// Has a program look at each datagram that is for the socket, in place of any before
    /// (`SO_ATTACH_FILTER`). The program sees a datagram from the UDP header on; it returns how many
    /// bytes to keep, header included, and 0 drops the datagram. What is in the queue already stays.
    ///
    /// # Errors
    ///
    /// [`FilterError`].
    pub fn udp_attach_filter(
        &self,
        id: SocketId,
        program: &[Instruction],
    ) -> Result<(), FilterError> {
        let program = Program::new(program)?;
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        check_unlocked(slot)?;
        let sockets = self.demux.sockets();
        let rare = sockets.make_rare(slot).ok_or(FilterError::TooMany)?;
        rare.filter.publish(Some(program));
        slot.head.options.set(Flag::Filter, true);
        Ok(())
    }

    /// Takes the socket's program away (`SO_DETACH_FILTER`).
    ///
    /// # Errors
    ///
    /// [`FilterError`].
    pub fn udp_detach_filter(&self, id: SocketId) -> Result<(), FilterError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        check_unlocked(slot)?;
        if !slot.head.options.has(Flag::Filter) {
            return Err(FilterError::NotAttached);
        }
        self.discard_filter(slot);
        Ok(())
    }

    /// Forbids to attach, change and detach a filter, for as long as the socket lives
    /// (`SO_LOCK_FILTER`).
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_lock_filter(&self, id: SocketId) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        slot.head.options.set(Flag::LockFilter, true);
        Ok(())
    }

    /// Frees a slot's program. The caller holds the control lock.
    pub(super) fn discard_filter(&self, slot: &Slot) {
        if !slot.head.options.has(Flag::Filter) {
            return;
        }
        slot.head.options.set(Flag::Filter, false);
        if let Some(rare) = self.demux.sockets().rare(slot) {
            rare.filter.publish(None);
        }
    }
}

fn check_unlocked(slot: &Slot) -> Result<(), FilterError> {
    match slot.head.options.has(Flag::LockFilter) {
        true => Err(FilterError::Locked),
        false => Ok(()),
    }
}

/// Puts a datagram into a socket's queue: as much of it as the socket's filter keeps.
#[inline]
pub(super) fn deliver(
    cx: &mut Context<'_>,
    id: SocketId,
    flow: &Flow,
    packet: Packet,
) -> Result<(), (Packet, Refusal)> {
    let demux = &cx.stack.demux;
    match demux.sockets().slot(id.slot) {
        Some(slot) if slot.head.options.has(Flag::Filter) => {
            deliver_filtered(cx, id, slot, flow, packet)
        }
        _ => demux.deliver(id, flow, packet),
    }
}

fn deliver_filtered(
    cx: &mut Context<'_>,
    id: SocketId,
    slot: &Slot,
    flow: &Flow,
    packet: Packet,
) -> Result<(), (Packet, Refusal)> {
    let demux = &cx.stack.demux;
    // The program of a socket that the datagram is not for must not decide about it. Our guard keeps
    // the slot this socket's.
    if !slot.takes(id, flow, packet.iif) {
        return Err((packet, Refusal::Moved));
    }
    let Some(kept) = kept(cx, slot, &packet) else {
        return demux.deliver(id, flow, packet);
    };
    if kept == 0 {
        slot.head.memory.count_drop();
        return Err((packet, Refusal::Filtered));
    }
    // The header stays, whatever the program says (Linux's `sk_filter_trim_cap`).
    let len = usize::from(packet.l4_offset) + kept.max(UdpHeader::LEN);
    if len >= packet.total_len() {
        return demux.deliver(id, flow, packet);
    }
    // If the socket has moved meanwhile, the next one gets the datagram in full length. So what is
    // kept is a copy, which also takes no more room in the queue than it needs.
    let Some(copy) = segment::copy_part(cx, &packet, &[], 0, len) else {
        return Err((packet, Refusal::NoMemory));
    };
    match demux.deliver(id, flow, copy) {
        Ok(()) => {
            cx.core.consume(packet);
            Ok(())
        }
        Err((copy, refusal)) => {
            cx.core.consume(copy);
            Err((packet, refusal))
        }
    }
}

/// How many bytes the socket's program keeps, from the UDP header on; `None` if the socket has none
/// any more.
fn kept(cx: &mut Context<'_>, slot: &Slot, packet: &Packet) -> Option<usize> {
    let rare = cx.stack.demux.sockets().rare(slot)?;
    let program = rare.filter.read(cx.view.guard).as_ref()?;
    let kept = program.run(&mut Subject::datagram(cx, packet));
    Some(usize::try_from(kept).unwrap_or(usize::MAX))
}
