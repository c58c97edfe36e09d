//! Socket filters: programs that decide which datagrams get into a socket's queue, and how much of
//! them.

use super::socket::NotOpen;
use super::{burst, checksum};
use crate::core::Context;
use crate::drop::DropReason;
use crate::filter::{Instruction, Program, ProgramError, Subject};
use crate::packet::{ChecksumState, Packet};
use crate::segment;
use crate::socket::{Flag, Slot, SocketId, Status};
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
    /// EINVAL: it shares its port with nobody.
    #[error("the socket is in no group: SO_REUSEPORT is not set")]
    NoGroup,
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
        slot.options().set(Flag::Filter, true);
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
        if !slot.options().has(Flag::Filter) {
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
        slot.options().set(Flag::LockFilter, true);
        Ok(())
    }

    /// Has a program pick the member of the socket's group that gets a datagram
    /// (`SO_ATTACH_REUSEPORT_CBPF`): by place, counted from 0 in the order in which those were bound
    /// that are not connected. The program sees the payload. What it returns beyond the group leaves
    /// the choice to the flow. Of several programs in a group, that of the member bound first
    /// counts.
    ///
    /// # Errors
    ///
    /// [`FilterError`].
    pub fn udp_attach_group_program(
        &self,
        id: SocketId,
        program: &[Instruction],
    ) -> Result<(), FilterError> {
        let program = Program::new(program)?;
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        check_unlocked(slot)?;
        if !slot.options().has(Flag::ReusePort) {
            return Err(FilterError::NoGroup);
        }
        let sockets = self.demux.sockets();
        let rare = sockets.make_rare(slot).ok_or(FilterError::TooMany)?;
        rare.group_program.publish(Some(program));
        if !slot.options().has(Flag::GroupProgram) {
            slot.options().set(Flag::GroupProgram, true);
            self.demux.group_programs().inc();
        }
        Ok(())
    }

    /// Takes the socket's program for its group away (`SO_DETACH_REUSEPORT_BPF`).
    ///
    /// # Errors
    ///
    /// [`FilterError`].
    pub fn udp_detach_group_program(&self, id: SocketId) -> Result<(), FilterError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        if !slot.options().has(Flag::GroupProgram) {
            return Err(FilterError::NotAttached);
        }
        self.discard_group_program(slot);
        Ok(())
    }

    fn discard_group_program(&self, slot: &Slot) {
        if !slot.options().has(Flag::GroupProgram) {
            return;
        }
        slot.options().set(Flag::GroupProgram, false);
        self.demux.group_programs().dec();
        if let Some(rare) = self.demux.sockets().rare(slot) {
            rare.group_program.publish(None);
        }
    }

    /// Frees the programs of a socket that closes. The caller holds the control lock.
    pub(super) fn discard_programs(&self, slot: &Slot) {
        self.discard_filter(slot);
        self.discard_group_program(slot);
    }

    /// Frees a slot's program. The caller holds the control lock.
    fn discard_filter(&self, slot: &Slot) {
        if !slot.options().has(Flag::Filter) {
            return;
        }
        slot.options().set(Flag::Filter, false);
        if let Some(rare) = self.demux.sockets().rare(slot) {
            rare.filter.publish(None);
        }
    }
}

fn check_unlocked(slot: &Slot) -> Result<(), FilterError> {
    match slot.options().has(Flag::LockFilter) {
        true => Err(FilterError::Locked),
        false => Ok(()),
    }
}

/// Puts a datagram into a socket's queue, as much of it as the socket's program keeps, if the socket
/// is still in this state.
///
/// # Errors
///
/// The datagram, whole, if the socket has moved.
pub(super) fn enqueue(
    cx: &mut Context<'_>,
    slot: &Slot,
    status: Status,
    mut packet: Packet,
) -> Result<(), Packet> {
    if !slot.options().has(Flag::Filter) {
        return burst::enqueue(cx, slot, status, packet);
    }
    match judge(cx, slot, &mut packet) {
        Ok(None) => burst::enqueue(cx, slot, status, packet),
        // Should the socket have moved meanwhile, the next one gets the datagram in full length.
        Ok(Some(part)) => match burst::enqueue(cx, slot, status, part) {
            Ok(()) => {
                cx.core.consume(packet);
                Ok(())
            }
            Err(part) => {
                cx.core.consume(part);
                Err(packet)
            }
        },
        Err(reason) => {
            slot.add_drops(1);
            cx.drop(packet, reason);
            Ok(())
        }
    }
}

/// What the socket's program keeps of a datagram: all of it, or a copy of its front, which also
/// takes no more room in the queue than it needs.
fn judge(
    cx: &mut Context<'_>,
    slot: &Slot,
    packet: &mut Packet,
) -> Result<Option<Packet>, DropReason> {
    // Of what is cut nobody could tell any more whether it was right.
    if !checksum::is_good(packet) {
        return Err(DropReason::UdpCsum);
    }
    if packet.checksum == ChecksumState::None {
        packet.checksum = ChecksumState::Verified;
    }
    let Some(kept) = kept(cx, slot, packet) else {
        return Ok(None);
    };
    if kept == 0 {
        return Err(DropReason::SocketFilter);
    }
    // The header stays, whatever the program says (Linux's `sk_filter_trim_cap`).
    let len = usize::from(packet.l4_offset) + kept.max(UdpHeader::LEN);
    if len >= packet.total_len() {
        return Ok(None);
    }
    let part = segment::copy_part(cx, packet, &[], 0, len);
    part.map(Some).ok_or(DropReason::ProtoMem)
}

/// How many bytes the socket's program keeps, from the UDP header on; `None` if the socket has none
/// any more.
fn kept(cx: &mut Context<'_>, slot: &Slot, packet: &Packet) -> Option<usize> {
    let rare = cx.stack.demux.sockets().rare(slot)?;
    let program = rare.filter.read(cx.view.guard).as_ref()?;
    let kept = program.run(&mut Subject::datagram(cx, packet));
    Some(usize::try_from(kept).unwrap_or(usize::MAX))
}

/// The member of a group that its program picks, by its place.
pub(super) fn pick(cx: &mut Context<'_>, slot: &Slot, packet: &Packet) -> Option<usize> {
    let rare = cx.stack.demux.sockets().rare(slot)?;
    let program = rare.group_program.read(cx.view.guard).as_ref()?;
    usize::try_from(program.run(&mut Subject::payload(cx, packet))).ok()
}
