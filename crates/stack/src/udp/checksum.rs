//! When checksums are verified: once, as late as it makes no difference to anybody.
//!
//! A short datagram's is verified on arrival, for its bytes are at hand. A longer one's waits until
//! the application reads it, on the core that needs the bytes: [`ChecksumState`] says what is still
//! to be done, and it lies with the packet itself, so poll, peek and read cannot disagree.

use crate::family::{Family, V4, V6};
use crate::packet::{ChecksumState, IpVersion, Packet};
use crate::wire::protocol;

/// Longest datagram, its header included, that is verified on arrival (Linux's `CHECKSUM_BREAK`).
pub(crate) const MAX_ON_ARRIVAL: usize = 76;

/// Whether a datagram may be handed to an application: its checksum is right, or was before, or the
/// host itself sent it and left the checksum to a device.
#[inline]
pub(crate) fn is_good(packet: &Packet) -> bool {
    packet.checksum != ChecksumState::None || is_right(packet)
}

/// The same for one whose family is known.
#[inline]
pub(super) fn is_good_of<F: Family>(packet: &Packet) -> bool {
    packet.checksum != ChecksumState::None || sums_up::<F>(packet)
}

#[inline(never)]
fn is_right(packet: &Packet) -> bool {
    match packet.version {
        IpVersion::V4 => sums_up::<V4>(packet),
        IpVersion::V6 => sums_up::<V6>(packet),
    }
}

/// The addresses are what an IP header ends with, so that in most packets all that counts, but for
/// two numbers, lies in one piece.
#[inline]
fn sums_up<F: Family>(packet: &Packet) -> bool {
    let offset = usize::from(packet.l4_offset);
    if packet.has_frags() || offset != F::HEADER_LEN {
        return sums_up_in_pieces::<F>(packet);
    }
    let covered = packet.data().get(F::ADDRESSES..).unwrap_or_default();
    let len = packet.len() - offset.min(packet.len());
    let mut sum = F::pseudo_header(F::UNSPECIFIED, F::UNSPECIFIED, protocol::UDP, len);
    sum.add_bytes(covered);
    sum.is_valid()
}

#[cold]
fn sums_up_in_pieces<F: Family>(packet: &Packet) -> bool {
    let mut skip = usize::from(packet.l4_offset);
    let len = packet.total_len().saturating_sub(skip);
    let (src, dst) = (F::src(packet), F::dst(packet));
    let mut sum = F::pseudo_header(src, dst, protocol::UDP, len);
    for chunk in packet.chunks() {
        sum.add_bytes(chunk.get(skip..).unwrap_or_default());
        skip = skip.saturating_sub(chunk.len());
    }
    sum.is_valid()
}
