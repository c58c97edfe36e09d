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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::bench::{self, Bench, OWN_V4, OWN_V6, PEER_V4, PEER_V6, bytes_of};
    use crate::ip::validate::validate;
    use crate::packet::{Gso, GsoKind};
    use crate::udp;
    use crate::wire::{Checksum, ipv4};

    /// A datagram from the peer to us, all checksums right.
    fn datagram(is_v6: bool, src_port: u16, payload: usize) -> Vec<u8> {
        let len = (UdpHeader::LEN + payload) as u16;
        let ports = [src_port.to_be_bytes(), 53_u16.to_be_bytes()].concat();
        let mut bytes = [&ports[..], &len.to_be_bytes(), &[0; 2]].concat();
        bytes.extend(bench::pattern(payload));
        let mut packet = match is_v6 {
            true => bench::v6(protocol::UDP, &bytes),
            false => bench::v4(protocol::UDP, 1, 0, &[], &bytes),
        };
        mend(&mut packet);
        packet
    }

    /// Puts both checksums right.
    fn mend(packet: &mut [u8]) {
        let is_v4 = packet[0] >> 4 == 4;
        let (addrs, at) = if is_v4 { (12, 20) } else { (8, 40) };
        packet[at + 6..at + 8].fill(0);
        let mut sum = Checksum::new();
        sum.add_bytes(&packet[addrs..at]);
        sum.add_u16(protocol::UDP.into());
        sum.add_u16((packet.len() - at) as u16);
        sum.add_bytes(&packet[at..]);
        let sum = sum.finish().to_be_bytes();
        packet[at + 6..at + 8].copy_from_slice(&sum);
        if is_v4 {
            ipv4::fill_checksum(packet);
        }
    }

    fn packet(cx: &mut Context<'_>, bytes: &[u8]) -> Packet {
        let mut packet = cx.core.alloc().expect("a buffer");
        let room = packet.put(bytes.len()).expect("room");
        room.copy_from_slice(bytes);
        packet
    }

    /// The trains of a batch whose first packets are plain datagrams, as first lane and length.
    fn trains(batch: &[Vec<u8>], change: impl FnOnce(&mut Packet)) -> Vec<(u8, u8)> {
        let mut trains = Vec::new();
        Bench::new().run(|cx| {
            let interface = cx.view.interfaces.by_name("tun0").expect("it has one");
            let device = InDevice::new(cx.view, interface);
            let mut packets: Vec<_> = batch.iter().map(|bytes| packet(cx, bytes)).collect();
            packets.first_mut().map(change);
            let sorted = &mut Sorted::new();
            let taken = admit(cx, &device, sorted, &mut trains, 0, &mut packets);
            let lens = trains.iter().map(|train| usize::from(train.len));
            assert_eq!(taken, lens.sum());
        });
        let lanes = trains.iter().map(|train| (train.first, train.len));
        lanes.collect()
    }

    #[test]
    fn a_train_is_of_one_flow_and_ends_with_what_is_not_plain() {
        for is_v6 in [false, true] {
            let [one, other] = [1, 2].map(|port| datagram(is_v6, port, 18));
            let alien = datagram(!is_v6, 1, 18);
            let mut bad = one.clone();
            bad[45] ^= 1;
            let one = || one.clone();
            for last in [
                &alien,
                &bad,
                &one()[..40].to_vec(),
                &[one(), vec![0]].concat(),
            ] {
                let batch = [one(), one(), other.clone(), one(), last.clone(), one()];
                let expected = [(0, 2), (2, 1), (3, 1)];
                assert_eq!(trains(&batch, |_| {}), expected, "{last:?}");
            }
        }
    }

    #[test]
    fn what_is_more_than_it_looks_is_not_plain() {
        let size = core::num::NonZeroU16::MIN;
        let kind = GsoKind::Udp;
        let changes: [fn(&mut Packet, Gso); 3] = [
            |packet, gso| packet.gso = Some(gso),
            |packet, _| {
                packet.checksum = ChecksumState::Partial {
                    start: 20,
                    offset: 6,
                }
            },
            |packet, _| packet.from_host = true,
        ];
        for is_v6 in [false, true] {
            for change in changes {
                let gso = Gso::new(size, kind);
                let batch = [datagram(is_v6, 1, 18)];
                assert_eq!(trains(&batch, |packet| change(packet, gso)), []);
            }
        }
    }

    /// What the stages write down.
    fn noted(packet: &Packet) -> impl PartialEq + core::fmt::Debug {
        (
            (packet.iif, packet.l4_offset, packet.protocol),
            (packet.version, packet.destination, packet.verdict),
            (packet.is_fragment, packet.has_options, packet.has_ports),
            (packet.src_port, packet.dst_port, bytes_of(packet)),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever is in the headers, who is admitted is what validation would have made of it, and
        /// its checksum is what it is said to be.
        #[test]
        fn validation_says_the_same(
            is_v6: bool,
            payload in 0_usize..100,
            src in prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)],
            changes in prop::collection::vec((0_usize..48, any::<u8>()), 0..3),
            is_mended in prop::bool::weighted(0.8),
        ) {
            let mut bytes = datagram(is_v6, 7, payload);
            if src == Some(true) {
                // From ourselves, or so it says.
                match is_v6 {
                    true => bytes.copy_within(24..40, 8),
                    false => bytes.copy_within(16..20, 12),
                }
            }
            let len = bytes.len();
            for (at, byte) in changes {
                bytes[at % len] = byte;
            }
            if is_mended && bytes[0] == datagram(is_v6, 7, 0)[0] {
                mend(&mut bytes);
            }
            let mut bench = Bench::new();
            bench.run(|cx| {
                let interface = cx.view.interfaces.by_name("tun0").expect("it has one");
                let device = InDevice::new(cx.view, interface);
                let (mut by_glance, mut closely) = (Sorted::new(), Sorted::new());
                let mut batch = [packet(cx, &bytes)];
                let mut other = packet(cx, &bytes);
                let mut trains = Vec::new();
                if admit(cx, &device, &mut by_glance, &mut trains, 0, &mut batch) == 1 {
                    other.verdict = validate(cx, &device, &mut closely, 0, &mut other);
                    prop_assert_eq!(noted(&batch[0]), noted(&other));
                    prop_assert_eq!(closely.others.len(), 1);
                    let arrived = |sorted: &Sorted| {
                        let both = [sorted.arrived4, sorted.arrived6];
                        both.map(|sum| (sum.packets, sum.octets))
                    };
                    prop_assert_eq!(arrived(&by_glance), arrived(&closely));
                    let at = usize::from(other.l4_offset);
                    let udp_len = u16::from_be_bytes([bytes[at + 4], bytes[at + 5]]);
                    prop_assert_eq!(usize::from(udp_len), len - at);
                    let has_none = bytes[at + 6..at + 8] == [0, 0];
                    prop_assert!(!(has_none && is_v6));
                    let is_verified = batch[0].checksum == ChecksumState::Verified;
                    prop_assert_eq!(is_verified, has_none || usize::from(udp_len) <= MAX_ON_ARRIVAL);
                    if is_verified && !has_none {
                        prop_assert!(udp::has_good_checksum(&other));
                    }
                }
                let [first] = batch;
                cx.core.consume(first);
                cx.core.consume(other);
                Ok(())
            })?;
        }
    }

    #[test]
    fn the_peer_is_a_stranger_and_we_are_not() {
        Bench::new().run(|cx| {
            let interface = cx.view.interfaces.by_name("tun0").expect("it has one");
            let device = InDevice::new(cx.view, interface);
            assert!(device.strangers4.has(PEER_V4.into()) && device.strangers6.has(PEER_V6.into()));
            assert!(device.strangers4.has_own_host(OWN_V4.into()));
            assert!(device.strangers6.has_own_host(OWN_V6.into()));
        });
    }
}
