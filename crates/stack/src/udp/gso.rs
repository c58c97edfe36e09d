//! Packets that stand for several datagrams: a send that is cut on its way out as late as can be
//! (`UDP_SEGMENT`), and datagrams that a socket takes together (`UDP_GRO`).

use core::num::NonZeroU16;

use super::burst;
use super::options::OptionError;
use super::receive::{self, is_for_one, taker_of};
use super::recv::payload_offset;
use super::socket::NotOpen;
use crate::core::Context;
use crate::family::Family;
use crate::packet::{Gso, GsoKind, Packet};
use crate::segment;
use crate::socket::{Flag, Slot, SocketId};
use crate::stack::Stack;
use crate::transmit::SendError;
use crate::wire::UdpHeader;

/// Most datagrams that one send is cut into (Linux's `UDP_MAX_SEGMENTS`).
pub const MAX_SEGMENTS: usize = 128;

/// Segmentation.
impl Stack {
    /// Has what is sent cut into datagrams of so many bytes of payload, the last one shorter
    /// (`UDP_SEGMENT`); 0 sends it as it is. [`Message::segment_size`](super::Message::segment_size)
    /// does it for one send.
    ///
    /// # Errors
    ///
    /// [`OptionError`].
    pub fn udp_set_segment(&self, id: SocketId, bytes: u16) -> Result<(), OptionError> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        if bytes != 0 {
            let rare = self.demux.sockets().make_rare(slot);
            rare.ok_or(OptionError::TooMany)?.set_segment_size(bytes);
        }
        slot.options().set(Flag::UdpSegment, bytes != 0);
        Ok(())
    }

    /// Payload bytes of each datagram that a send is cut into; 0 if it is not.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_segment(&self, id: SocketId) -> Result<u16, NotOpen> {
        let sockets = self.demux.sockets();
        let slot = sockets.get(id).ok_or(NotOpen)?;
        Ok(sockets.segment_size(slot))
    }

    /// Takes datagrams of one flow together that came together (`UDP_GRO`): a read returns as many
    /// of one size as there are, the last one perhaps shorter, and
    /// [`Received::segment_size`](super::Received::segment_size). A socket with a filter gets them
    /// one by one, whatever it asks for. What is in the queue already stays as it is.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_set_gro(&self, id: SocketId, on: bool) -> Result<(), NotOpen> {
        let (slot, _control) = self.demux.control(id).ok_or(NotOpen)?;
        self.switch_gro(slot, on);
        Ok(())
    }

    /// Whether datagrams may come together.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_gro(&self, id: SocketId) -> Result<bool, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        Ok(slot.options().has(Flag::UdpGro))
    }

    /// The caller holds the control lock.
    pub(super) fn switch_gro(&self, slot: &Slot, on: bool) {
        match (slot.options().has(Flag::UdpGro), on) {
            (false, true) => self.demux.gro_key().inc(),
            (true, false) => self.demux.gro_key().dec(),
            _ => return,
        }
        slot.options().set(Flag::UdpGro, on);
    }
}

/// Whether a socket takes several datagrams as one packet. A filter's program judges each by itself.
pub(crate) fn takes_joined(slot: &Slot) -> bool {
    slot.options().has(Flag::UdpGro) && !slot.options().has(Flag::Filter)
}

/// How a send of `len` bytes is cut into datagrams of `size` that fit `mtu`; not at all, if it is no
/// longer than that. The errors are those of Linux's `udp_send_skb`.
pub(super) fn plan<F: Family>(
    len: usize,
    size: NonZeroU16,
    mtu: u32,
) -> Result<Option<Gso>, SendError> {
    let each = usize::from(size.get());
    if F::HEADER_LEN + UdpHeader::LEN + len.min(each) > mtu as usize {
        return Err(SendError::MessageTooLong);
    }
    if len > each * MAX_SEGMENTS {
        return Err(SendError::InvalidArgument);
    }
    Ok((len > each).then_some(Gso::new(size, GsoKind::Udp)))
}

/// Datagrams in a packet.
pub(super) fn datagrams(packet: &Packet) -> usize {
    let payload = packet.total_len().saturating_sub(payload_offset(packet));
    packet.gso.map_or(1, |gso| {
        payload.div_ceil(usize::from(gso.size.get())).max(1)
    })
}

/// Takes a packet that stands for several datagrams. It goes whole to a socket that has asked for
/// that, to others one datagram after the other (Linux's `udp_unexpected_gso`).
pub(super) fn receive<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    if is_for_one::<F>(cx, &packet) {
        let taker = taker_of::<F>(cx, &packet, packet.socket);
        if let Some(taker) = taker.filter(|taker| takes_joined(taker.slot)) {
            return burst::add(cx, &taker, packet);
        }
    }
    let mut datagrams = segment::segment(cx, packet);
    while let Some(datagram) = datagrams.pop() {
        receive::receive::<F>(cx, datagram);
    }
}

/// The socket has moved meanwhile, and who takes its place may not take them together.
#[cold]
pub(super) fn deliver_alone(cx: &mut Context<'_>, packet: Packet) {
    let mut datagrams = segment::segment(cx, packet);
    while let Some(datagram) = datagrams.pop() {
        receive::deliver_alone(cx, datagram);
    }
}
