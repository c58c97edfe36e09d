//! The bare loop: what forwarding costs on this machine if it is nothing but memory. Each packet's
//! header is read, one entry is loaded from a table that has one for each route, and the hop count
//! rewritten.

use forebay::core::packet::Packet;
use forebay::core::wire::checksum::update_u16;

use super::net::Family;

/// The table of the bare loop.
pub(super) struct Floor {
    family: Family,
    table: Vec<u32>,
}

impl Floor {
    /// A table with at least so many entries.
    pub(super) fn new(family: Family, routes: usize) -> Self {
        let entries = routes.next_power_of_two();
        Self {
            family,
            table: (0..entries).map(|entry| entry as u32).collect(),
        }
    }

    /// Does it to a batch.
    pub(super) fn forward(&self, batch: &mut [Packet]) {
        for packet in batch {
            let Some(entry) = self.entry(packet.data()) else {
                continue;
            };
            packet.iif = self.table[entry];
            rewrite(self.family, packet.data_mut());
        }
    }

    /// Where destinations lie in the table: spread, so that neighbours are not.
    fn entry(&self, packet: &[u8]) -> Option<usize> {
        let word = match self.family {
            Family::V4 => u32::from_be_bytes(*packet.get(16..)?.first_chunk()?).into(),
            Family::V6 => u64::from_be_bytes(*packet.get(24..)?.first_chunk()?),
        };
        let spread = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Some(spread as usize & (self.table.len() - 1))
    }
}

/// One hop less.
pub(super) fn rewrite(family: Family, packet: &mut [u8]) {
    match (family, packet) {
        (Family::V4, [_, _, _, _, _, _, _, _, ttl, protocol, sum1, sum2, ..]) => {
            let old = u16::from_be_bytes([*ttl, *protocol]);
            *ttl = ttl.wrapping_sub(1);
            let new = u16::from_be_bytes([*ttl, *protocol]);
            let sum = update_u16(u16::from_be_bytes([*sum1, *sum2]), old, new);
            [*sum1, *sum2] = sum.to_be_bytes();
        }
        (Family::V6, [_, _, _, _, _, _, _, hop_limit, ..]) => {
            *hop_limit = hop_limit.wrapping_sub(1);
        }
        _ => {}
    }
}
