//! Datagrams handed to an application as they came, without a copy.

use core::fmt;

use super::memory::SocketMemory;
use super::recv::{Received, payload_offset};
use crate::packet::Packet;

/// A datagram in the buffers that it came in.
///
/// They are missing from the packet pool, and from what all sockets may hold together, until it is
/// dropped or [recycled](crate::Stack::udp_recycle).
pub struct Datagram {
    /// Some until the datagram goes away.
    packet: Option<Packet>,
    about: Received,
    memory: SocketMemory,
}

impl Datagram {
    pub(super) fn new(packet: Packet, about: Received, memory: &SocketMemory) -> Self {
        let memory = memory.clone();
        let about = Received {
            len: about.full_len,
            ..about
        };
        Self {
            packet: Some(packet),
            about,
            memory,
        }
    }

    /// Who sent it, and the like.
    pub fn about(&self) -> &Received {
        &self.about
    }

    /// The payload, buffer by buffer: a datagram that came in one piece mostly lies in one.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.packet.as_ref().map_or(0, payload_offset);
        let chunks = self.packet.iter().flat_map(Packet::chunks);
        chunks.filter_map(move |chunk| {
            let rest = chunk.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(chunk.len());
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// The packet; its memory is the caller's to give back.
    pub(super) fn into_packet(mut self) -> Option<Packet> {
        self.packet.take()
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take() {
            self.memory.give_back(packet.truesize());
        }
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}
