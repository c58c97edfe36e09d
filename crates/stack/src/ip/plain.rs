//! Plain transit: nearly all that a router sees, told by a glance at the header and validated with it.
//!
//! What is not plain is [validated](super::validate) as ever: nothing depends on this look but speed.
//! Plain packets lie in one buffer that stands for one packet, have neither options nor padding, and
//! are from a stranger to a stranger, so that nothing but their hop limit, and the next hop, can keep
//! them from being forwarded as they are.

use zerocopy::FromBytes;

use crate::batch::Sorted;
use crate::devices::InDevice;
use crate::packet::{ChecksumState, Destination, IpVersion, Packet, Verdict};
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
    match packet.data().first() {
        Some(0x45) => admit_v4(device, sorted, lane, packet),
        Some(0x60..=0x6f) => admit_v6(device, sorted, lane, packet),
        _ => false,
    }
}

#[inline(always)]
fn admit_v4(device: &InDevice<'_>, sorted: &mut Sorted, lane: usize, packet: &mut Packet) -> bool {
    let Ok((ip, _)) = Ipv4Header::ref_from_prefix(packet.data()) else {
        return false;
    };
    let (src, dst, len) = (ip.src(), ip.dst(), ip.total_len.get());
    let (protocol, is_fragment) = (ip.protocol, ip.is_fragment());
    let strangers = device.strangers4;
    let is_plain = strangers.has(dst)
        && strangers.has(src)
        && is_single(packet, len.into())
        && ip.checksum_is_right();
    if !is_plain {
        return false;
    }
    packet.version = IpVersion::V4;
    packet.l4_offset = Ipv4Header::LEN as u16;
    packet.protocol = protocol;
    packet.is_fragment = is_fragment;
    note_transit(device, packet);
    sorted.arrived4.add(len.into());
    sorted.transit4.push(lane, dst);
    true
}

#[inline(always)]
fn admit_v6(device: &InDevice<'_>, sorted: &mut Sorted, lane: usize, packet: &mut Packet) -> bool {
    let Ok((ip, _)) = Ipv6Header::ref_from_prefix(packet.data()) else {
        return false;
    };
    let (src, dst, next_header) = (ip.src(), ip.dst(), ip.next_header);
    let len = Ipv6Header::LEN + usize::from(ip.payload_len.get());
    let strangers = device.strangers6;
    // Addresses of our own are no sources to be refused, in IPv6.
    let is_plain = strangers.has(dst)
        && strangers.is_ordinary(src)
        && is_single(packet, len)
        && next_header != protocol::HOP_BY_HOP
        && device.carries_v6;
    if !is_plain {
        return false;
    }
    packet.version = IpVersion::V6;
    packet.l4_offset = Ipv6Header::LEN as u16;
    packet.protocol = next_header;
    note_transit(device, packet);
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
fn note_transit(device: &InDevice<'_>, packet: &mut Packet) {
    packet.iif = device.interface.index;
    packet.destination = Destination::Transit;
    packet.is_plain = true;
    packet.verdict = Verdict::Undecided;
}
