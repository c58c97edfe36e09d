//! Plain datagrams for this host, told by a glance as [plain transit](super::plain) is, and put in
//! trains: those that follow each other in one flow, which go on together.
//!
//! What is not plain is [validated](super::validate) as ever: nothing depends on this look but speed.
//! A plain datagram lies in one buffer, whole and alone, has neither options nor padding, comes from a
//! stranger, is for a single address of ours, and its checksum is right, or is for the reader to
//! verify. Nothing is left to be asked but which socket takes it, and, if that does not know, the
//! routes.

use zerocopy::FromBytes;

use super::plain::is_single;
use crate::batch::{Sorted, Train};
use crate::core::Context;
use crate::devices::InDevice;
use crate::family::{Family, V4, V6};
use crate::packet::{ChecksumState, Destination, Packet, Verdict};
use crate::udp::MAX_ON_ARRIVAL;
use crate::wire::{Ipv4Header, Ipv6Header, UdpHeader, checksum, protocol};

/// Takes plain datagrams from the front of `packets`, the first of which has the lane `lane`: writes
/// down what later stages need and adds them to `trains`. Returns how many it took.
#[inline(never)]
pub(crate) fn admit(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    trains: &mut Vec<Train>,
    lane: usize,
    packets: &mut [Packet],
) -> usize {
    // Who joins datagrams looks at each by itself.
    if cx.stack.demux.gro_key().is_enabled() {
        return 0;
    }
    let first = packets.first().and_then(|packet| packet.data().first());
    match first.map(|byte| byte >> 4) {
        Some(4) => admit_of::<V4, FlowV4>(device, sorted, trains, lane, packets),
        Some(6) if device.carries_v6 => {
            admit_of::<V6, FlowV6>(device, sorted, trains, lane, packets)
        }
        _ => 0,
    }
}

#[inline(always)]
fn admit_of<F: Family, W: Wire>(
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    trains: &mut Vec<Train>,
    lane: usize,
    packets: &mut [Packet],
) -> usize {
    let mut last = W::default();
    let mut train = Train::of_none(lane);
    let mut octets = 0;
    for packet in packets {
        let flow = W::of(packet);
        let is_next = flow == last && train.len > 0;
        let known = Known {
            is_next,
            is_own: flow.has_dst_of(&last) && train.len > 0,
        };
        let Some(checksum) = W::look(device, packet, known) else {
            break;
        };
        note::<F>(device, packet, checksum);
        octets += packet.len() as u64;
        if !is_next {
            if train.len > 0 {
                trains.push(train);
            }
            train = Train::of_none(train.lanes().end);
            last = flow;
        }
        train.len += 1;
    }
    if train.len > 0 {
        trains.push(train);
    }
    let taken = train.lanes().end - lane;
    let arrived = F::arrived(sorted);
    arrived.packets += taken as u32;
    arrived.octets += octets;
    taken
}

/// What tells flows apart, as it stands in a family's headers.
trait Wire: Copy + PartialEq + Default {
    /// What stands there if this is a datagram; nothing in particular if it is something else.
    fn of(packet: &Packet) -> Self;

    /// Whether both have one destination address.
    fn has_dst_of(&self, other: &Self) -> bool;

    /// What is known of the checksum of a plain datagram; `None` if it is not plain.
    fn look(device: &InDevice<'_>, packet: &Packet, known: Known) -> Option<ChecksumState>;
}

/// What a plain datagram before says of one.
#[derive(Clone, Copy)]
struct Known {
    /// They are of one flow.
    is_next: bool,
    /// They are for one address, which is ours.
    is_own: bool,
}

/// Addresses and ports, which IPv4 without options has in a row.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct FlowV4 {
    addrs: [u32; 2],
    ports: u32,
}

impl Wire for FlowV4 {
    #[inline(always)]
    fn of(packet: &Packet) -> Self {
        let mut flow = Self {
            addrs: [0; 2],
            ports: ports::<V4>(packet),
        };
        let addrs = packet.data().get(V4::ADDRESSES..Ipv4Header::LEN);
        let (words, _) = addrs.unwrap_or_default().as_chunks::<4>();
        for (addr, word) in flow.addrs.iter_mut().zip(words) {
            *addr = u32::from_ne_bytes(*word);
        }
        flow
    }

    #[inline(always)]
    fn has_dst_of(&self, other: &Self) -> bool {
        self.addrs[1] == other.addrs[1]
    }

    #[inline(always)]
    fn look(device: &InDevice<'_>, packet: &Packet, known: Known) -> Option<ChecksumState> {
        let data = packet.data();
        let (ip, rest) = Ipv4Header::ref_from_prefix(data).ok()?;
        let (udp, _) = UdpHeader::ref_from_prefix(rest).ok()?;
        let len = data.len();
        let strangers = device.strangers4;
        let is_plain = ip.has_no_options()
            && ip.protocol == protocol::UDP
            && !ip.is_fragment()
            && is_single(packet, ip.total_len.get().into())
            && usize::from(udp.len.get()) == len - Ipv4Header::LEN
            && (known.is_next || strangers.has(ip.src()))
            && (known.is_own || strangers.has_own_host(ip.dst()))
            && ip.checksum_is_right();
        if !is_plain {
            return None;
        }
        match udp.checksum.get() {
            // The sender computed none (RFC 768).
            0 => Some(ChecksumState::Verified),
            _ => verify(data.get(V4::ADDRESSES..)?, len - Ipv4Header::LEN),
        }
    }
}

/// The same of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct FlowV6 {
    addrs: [u64; 4],
    ports: u32,
}

impl Wire for FlowV6 {
    #[inline(always)]
    fn of(packet: &Packet) -> Self {
        let mut flow = Self {
            addrs: [0; 4],
            ports: ports::<V6>(packet),
        };
        let addrs = packet.data().get(V6::ADDRESSES..Ipv6Header::LEN);
        let (words, _) = addrs.unwrap_or_default().as_chunks::<8>();
        for (addr, word) in flow.addrs.iter_mut().zip(words) {
            *addr = u64::from_ne_bytes(*word);
        }
        flow
    }

    #[inline(always)]
    fn has_dst_of(&self, other: &Self) -> bool {
        self.addrs[2..] == other.addrs[2..]
    }

    #[inline(always)]
    fn look(device: &InDevice<'_>, packet: &Packet, known: Known) -> Option<ChecksumState> {
        let data = packet.data();
        let (ip, rest) = Ipv6Header::ref_from_prefix(data).ok()?;
        let (udp, _) = UdpHeader::ref_from_prefix(rest).ok()?;
        let len = data.len();
        let strangers = device.strangers6;
        // Addresses of our own are no sources to be refused, in IPv6; a datagram without a checksum
        // is not valid (RFC 8200 section 8.1).
        let is_plain = ip.version() == 6
            && ip.next_header == protocol::UDP
            && is_single(packet, Ipv6Header::LEN + usize::from(ip.payload_len.get()))
            && udp.len == ip.payload_len
            && udp.checksum.get() != 0
            && (known.is_next || strangers.is_ordinary(ip.src()))
            && (known.is_own || strangers.has_own_host(ip.dst()));
        if !is_plain {
            return None;
        }
        verify(data.get(V6::ADDRESSES..)?, len - Ipv6Header::LEN)
    }
}

/// Both ports as they stand behind the IP header.
#[inline(always)]
fn ports<F: Family>(packet: &Packet) -> u32 {
    let ports = packet.data().get(F::HEADER_LEN..F::HEADER_LEN + 4);
    ports
        .and_then(|it| it.first_chunk())
        .map_or(0, |it| u32::from_ne_bytes(*it))
}

/// Verifies a short datagram's checksum, over its addresses and all behind; `None` if it is wrong.
/// A longer one's waits for the reader.
#[inline(always)]
fn verify(covered: &[u8], len: usize) -> Option<ChecksumState> {
    if len > MAX_ON_ARRIVAL {
        return Some(ChecksumState::None);
    }
    let others = (len as u16).to_be() as u64 + u64::from(u16::from(protocol::UDP).to_be());
    checksum::is_valid_with(others, covered).then_some(ChecksumState::Verified)
}

#[inline(always)]
fn note<F: Family>(device: &InDevice<'_>, packet: &mut Packet, checksum: ChecksumState) {
    let [s0, s1, d0, d1] = ports::<F>(packet).to_ne_bytes();
    packet.iif = device.interface.index;
    packet.src_port = u16::from_be_bytes([s0, s1]);
    packet.dst_port = u16::from_be_bytes([d0, d1]);
    packet.l4_offset = F::HEADER_LEN as u16;
    packet.verdict = Verdict::Undecided;
    packet.protocol = protocol::UDP;
    packet.version = F::VERSION;
    packet.destination = Destination::Own;
    packet.has_ports = true;
    packet.is_fragment = false;
    packet.is_plain = false;
    packet.checksum = checksum;
}
