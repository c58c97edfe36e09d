//! Plain transit: nearly all that a router sees, told by a glance at the header and validated with it.
//!
//! What is not plain is [validated](super::validate) as ever: nothing depends on this look but speed.
//! Plain packets lie in one buffer that stands for one packet, have neither options nor padding, and
//! are from a stranger to a stranger, so that nothing but their hop limit, and the next hop, can keep
//! them from being forwarded as they are.

use zerocopy::FromBytes;

use crate::batch::Sorted;
use crate::devices::InDevice;
use crate::family::{Family, V4, V6};
use crate::packet::{ChecksumState, Destination, Packet, Verdict};
use crate::wire::{Ipv4Header, Ipv6Header, protocol};

/// Writes down what later stages need of a plain packet and puts its lane into the list of transit.
/// False, and no change, if it is none.
#[inline(always)]
pub(crate) fn admit(
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    lane: usize,
    packet: &mut Packet,
) -> bool {
    admit_v4(device, sorted, lane, packet) || admit_v6(device, sorted, lane, packet)
}

#[inline(always)]
fn admit_v4(device: &InDevice<'_>, sorted: &mut Sorted, lane: usize, packet: &mut Packet) -> bool {
    let Ok((ip, _)) = Ipv4Header::ref_from_prefix(packet.data()) else {
        return false;
    };
    let (src, dst, len) = (ip.src(), ip.dst(), ip.total_len.get().into());
    let strangers = device.strangers4;
    let is_plain = ip.has_no_options()
        && strangers.has(dst)
        && strangers.has(src)
        && is_single(packet, len)
        && ip.checksum_is_right();
    if !is_plain {
        return false;
    }
    let (protocol, is_fragment) = (ip.protocol, ip.is_fragment());
    packet.protocol = protocol;
    packet.is_fragment = is_fragment;
    note_transit::<V4>(device, packet);
    sorted.arrived4.add(len);
    sorted.transit4.push(lane, dst);
    true
}

#[inline(always)]
fn admit_v6(device: &InDevice<'_>, sorted: &mut Sorted, lane: usize, packet: &mut Packet) -> bool {
    let Ok((ip, _)) = Ipv6Header::ref_from_prefix(packet.data()) else {
        return false;
    };
    let (src, dst) = (ip.src(), ip.dst());
    let len = Ipv6Header::LEN + usize::from(ip.payload_len.get());
    let strangers = device.strangers6;
    // Addresses of our own are no sources to be refused, in IPv6.
    let is_plain = ip.version() == 6
        && strangers.has(dst)
        && strangers.is_ordinary(src)
        && is_single(packet, len)
        && ip.next_header != protocol::HOP_BY_HOP
        && device.carries_v6;
    if !is_plain {
        return false;
    }
    packet.protocol = ip.next_header;
    note_transit::<V6>(device, packet);
    sorted.arrived6.add(len);
    sorted.transit6.push(lane, dst);
    true
}

/// Whether the buffer holds a whole packet of `len` bytes, no more, that leaves nothing to be done: no
/// checksum to be filled, no segments to be made of it.
#[inline]
fn is_single(packet: &Packet, len: usize) -> bool {
    packet.len() == len
        && !packet.has_frags()
        && packet.gso.is_none()
        && !matches!(packet.checksum, ChecksumState::Partial { .. })
        && !packet.from_host
}

#[inline]
fn note_transit<F: Family>(device: &InDevice<'_>, packet: &mut Packet) {
    packet.iif = device.interface.index;
    packet.version = F::VERSION;
    packet.destination = Destination::Transit;
    packet.l4_offset = F::HEADER_LEN as u16;
    packet.verdict = Verdict::Undecided;
    packet.is_plain = true;
}
