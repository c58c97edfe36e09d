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
pub(super) fn is_single(packet: &Packet, len: usize) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::core::Context;
    use crate::ip::bench::{Bench, OWN_V4, OWN_V6, bytes_of};
    use crate::ip::validate::validate;
    use crate::packet::Gso;
    use crate::wire::ipv4;

    const NEAR_V4: [u8; 4] = [10, 0, 0, 9];
    const FAR_V4: [u8; 4] = [192, 0, 2, 1];
    const NEAR_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 9];
    const FAR_V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];

    fn v4(src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
        let header = Ipv4Header::new(src.into(), dst.into(), protocol::UDP, 64, 64);
        let mut bytes = [header.as_bytes(), &[0; 44]].concat();
        ipv4::fill_checksum(&mut bytes);
        bytes
    }

    fn v6(src: [u16; 8], dst: [u16; 8]) -> Vec<u8> {
        let header = Ipv6Header::new(src.into(), dst.into(), protocol::UDP, 64, 24);
        [header.as_bytes(), &[0; 24]].concat()
    }

    /// A packet in one buffer, as a device hands it over, and what changes it.
    fn packet(cx: &mut Context<'_>, bytes: &[u8], change: impl FnOnce(&mut Packet)) -> Packet {
        let mut packet = cx.core.alloc().expect("a buffer");
        packet
            .put(bytes.len())
            .expect("room")
            .copy_from_slice(bytes);
        change(&mut packet);
        packet
    }

    fn is_admitted(bytes: &[u8], change: impl FnOnce(&mut Packet)) -> bool {
        let mut bench = Bench::new();
        bench.run(|cx| {
            let interface = cx.view.interfaces.by_name("tun0").expect("it has one");
            let device = InDevice::new(cx.view, interface);
            let mut packet = packet(cx, bytes, change);
            admit(&device, &mut Sorted::new(), 0, &mut packet)
        })
    }

    #[test]
    fn strangers_to_strangers_are_plain_and_others_are_not() {
        let as_it_is = |_: &mut Packet| {};
        assert!(is_admitted(&v4(NEAR_V4, FAR_V4), as_it_is));
        assert!(is_admitted(&v6(NEAR_V6, FAR_V6), as_it_is));
        for bytes in [
            v4(NEAR_V4, OWN_V4),
            v4(OWN_V4, FAR_V4),
            v4(NEAR_V4, [224, 0, 0, 5]),
            v4([127, 0, 0, 1], FAR_V4),
            v6(NEAR_V6, OWN_V6),
            v6([0xfe80, 0, 0, 0, 0, 0, 0, 1], FAR_V6),
            v6(NEAR_V6, [0xff02, 0, 0, 0, 0, 0, 0, 1]),
            v6([0, 0, 0, 0, 0, 0xffff, 0x0a00, 9], FAR_V6),
            [v4(NEAR_V4, FAR_V4), vec![0]].concat(),
        ] {
            assert!(!is_admitted(&bytes, as_it_is), "{bytes:?}");
        }
        let size = core::num::NonZeroU16::MIN;
        let kind = crate::packet::GsoKind::Udp;
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
        for change in changes {
            let change = |packet: &mut Packet| {
                change(
                    packet,
                    Gso {
                        size,
                        kind,
                        fixed_id: false,
                    },
                );
            };
            assert!(!is_admitted(&v4(NEAR_V4, FAR_V4), change));
            assert!(!is_admitted(&v6(NEAR_V6, FAR_V6), change));
        }
    }

    /// What the stages write down, but for how much of it is known to be plain.
    fn noted(packet: &Packet) -> impl PartialEq + core::fmt::Debug {
        (
            (packet.iif, packet.l4_offset, packet.protocol),
            (packet.version, packet.destination, packet.verdict),
            (packet.is_fragment, packet.has_options, packet.has_ports),
            bytes_of(packet),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever is in the header, who is admitted is what validation would have made of it.
        #[test]
        fn validation_says_the_same(
            is_v6: bool,
            changes in prop::collection::vec((0_usize..40, any::<u8>()), 0..3),
            is_mended in prop::bool::weighted(0.8),
        ) {
            let mut bytes = if is_v6 { v6(NEAR_V6, FAR_V6) } else { v4(NEAR_V4, FAR_V4) };
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if is_mended && bytes[0] >> 4 == 4 {
                ipv4::fill_checksum(&mut bytes);
            }
            let mut bench = Bench::new();
            bench.run(|cx| {
                let interface = cx.view.interfaces.by_name("tun0").expect("it has one");
                let device = InDevice::new(cx.view, interface);
                let mut plain = packet(cx, &bytes, |_| {});
                let mut other = packet(cx, &bytes, |_| {});
                let (mut by_glance, mut closely) = (Sorted::new(), Sorted::new());
                if admit(&device, &mut by_glance, 0, &mut plain) {
                    other.verdict = validate(cx, &device, &mut closely, 0, &mut other);
                    prop_assert_eq!(noted(&plain), noted(&other));
                    let lists = |sorted: &Sorted| {
                        let (v4, v6) = (sorted.transit4.lanes(), sorted.transit6.lanes());
                        let arrived = [sorted.arrived4, sorted.arrived6];
                        (v4.to_vec(), v6.to_vec(), arrived.map(|sum| (sum.packets, sum.octets)))
                    };
                    prop_assert_eq!(lists(&by_glance), lists(&closely));
                }
                cx.core.consume(plain);
                cx.core.consume(other);
                Ok(())
            })?;
        }
    }
}
