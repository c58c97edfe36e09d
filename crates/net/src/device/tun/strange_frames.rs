//! Frames with virtio-net headers that say anything: refused, or true enough for the stack.

use forebay_stack::fib::{Prefix, Route, RouteKind, TableId};
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::wire::{ipv4, protocol};
use forebay_stack::{Stack, StackConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::device::testing::packet;

const MTU: u32 = 1_500;

/// A packet that is right but for its checksums, which nobody on the way looks at.
fn whole(is_v6: bool, transport: u8, extension: bool, len: usize) -> Vec<u8> {
    let mut payload = vec![0x5a; len];
    payload[12] = 0x50;
    let udp_len = u16::try_from(len).expect("a short payload");
    if transport == protocol::UDP {
        payload[4..6].copy_from_slice(&udp_len.to_be_bytes());
    }
    let mut next = transport;
    if is_v6 && extension {
        payload = [&[transport, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
        next = protocol::DESTINATION_OPTIONS;
    }
    let len = u16::try_from(payload.len()).expect("a short payload");
    let mut header = vec![0; if is_v6 { 40 } else { 20 }];
    if is_v6 {
        header[0] = 0x60;
        header[4..6].copy_from_slice(&len.to_be_bytes());
        (header[6], header[7]) = (next, 64);
        (header[8], header[24]) = (0x20, 0x21);
    } else {
        header[0] = 0x45;
        header[2..4].copy_from_slice(&(len + 20).to_be_bytes());
        (header[8], header[9]) = (64, next);
        (header[12], header[16]) = (192, 198);
    }
    let mut packet = [header, payload].concat();
    if !is_v6 {
        ipv4::fill_checksum(&mut packet);
    }
    packet
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let transport = prop_oneof![Just(protocol::TCP), Just(protocol::UDP)];
    let parts = (any::<bool>(), transport, any::<bool>(), 20..4_000_usize);
    let whole = parts
        .prop_map(|(is_v6, transport, extension, len)| whole(is_v6, transport, extension, len));
    let damage = vec((0..80_usize, any::<u8>()), 0..3);
    let mended = any::<bool>();
    (whole, damage, mended).prop_map(|(mut packet, damage, mended)| {
        for (at, byte) in damage {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        if mended && packet[0] >> 4 == 4 {
            ipv4::fill_checksum(&mut packet);
        }
        packet
    })
}

/// What the kernel would say of the packet, if it were to be segmented.
fn true_header(packet: &[u8], gso_size: u16) -> VnetHeader {
    let (start, next) = match (packet[0] >> 4, packet[6]) {
        (6, protocol::DESTINATION_OPTIONS) => (48, packet[40]),
        (6, next) => (40, next),
        _ => (20, packet[9]),
    };
    let is_v6 = start > 20;
    let (gso_type, csum_offset) = match (next, is_v6) {
        (protocol::UDP, _) => (VnetHeader::GSO_UDP_L4, 6),
        (_, true) => (VnetHeader::GSO_TCPV6, 16),
        (_, false) => (VnetHeader::GSO_TCPV4, 16),
    };
    VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type,
        hdr_len: 0,
        gso_size,
        csum_start: start,
        csum_offset,
    }
}

fn header() -> impl Strategy<Value = VnetHeader> {
    let gso_type = prop_oneof![
        2 => Just(VnetHeader::GSO_NONE),
        6 => prop::sample::select(vec![1_u8, 4, 5, 0x81, 0x84]),
        1 => any::<u8>(),
    ];
    let size = prop_oneof![1..1_500_u16, any::<u16>()];
    let start = prop_oneof![4 => prop::sample::select(vec![20_u16, 40, 48]), 1 => 0..5_000_u16];
    let offset = prop_oneof![4 => prop::sample::select(vec![6_u16, 16]), 1 => 0..5_000_u16];
    (0..4_u8, gso_type, any::<u16>(), size, start, offset).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset)| VnetHeader {
            flags,
            gso_type,
            hdr_len: hdr_len % 100,
            gso_size,
            csum_start,
            csum_offset,
        },
    )
}

/// A router all of whose packets leave by the second interface.
fn router(offload: Offload) -> (Stack, [u32; 2]) {
    let stack = Stack::new(&StackConfig {
        buffers: 256,
        reserve: 64,
        seed: [1, 2],
        ..StackConfig::default()
    });
    let way_in = stack
        .add_interface(InterfaceConfig::new("in"))
        .expect("a new name");
    let config = InterfaceConfig {
        offload,
        ..InterfaceConfig::new("out")
    };
    let way_out = stack.add_interface(config).expect("a new name");
    for knob in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        stack.set_sysctl(knob, "1").expect("a knob");
    }
    let v4 = Prefix::new(Ipv4Addr::UNSPECIFIED, 0).expect("a prefix");
    let v6 = Prefix::new(Ipv6Addr::UNSPECIFIED, 0).expect("a prefix");
    let route = Route::new(RouteKind::Unicast, v4).dev(way_out);
    stack.fib4().add(TableId::MAIN, route).expect("a new route");
    let route = Route::new(RouteKind::Unicast, v6).dev(way_out);
    stack.fib6().add(TableId::MAIN, route).expect("a new route");
    (stack, [way_in, way_out])
}

fn take_sent(stack: &Stack, ifindex: u32, out: &mut PacketQueue) {
    let waiting = stack.transmit_queue(ifindex).expect("an interface");
    waiting.take(out);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_let_in_can_be_passed_on(
        bytes in frame(),
        header in header(),
        lies in any::<bool>(),
        checksum in any::<bool>(),
        segmentation in any::<bool>(),
    ) {
        let offload = Offload {
            checksum: checksum || segmentation,
            tcp_segmentation: segmentation,
            udp_segmentation: segmentation,
        };
        let header = if lies { header } else { true_header(&bytes, header.gso_size) };
        let (stack, [way_in, way_out]) = router(offload);
        let mut core = stack.core();
        let mut packet = packet(core.cache(), &bytes);
        if vnet::accept(&header, &mut packet, MTU).is_err() {
            return Ok(());
        }
        let mut queue = PacketQueue::new();
        queue.push(packet);
        stack.receive(&mut core, Instant::ZERO, way_in, &mut queue);
        take_sent(&stack, way_out, &mut queue);
        while let Some(mut sent) = queue.pop() {
            let described = vnet::describe(&sent);
            prop_assert!(described.is_some(), "{:?}", sent);
            // The next device believes it as little as this one did.
            let again = vnet::accept(&described.unwrap_or_default(), &mut sent, MTU);
            prop_assert_eq!(again, Ok(()), "{:?}", sent);
            core.cache().free(sent);
        }
        take_sent(&stack, way_in, &mut queue);
        drop((queue, core));
        prop_assert_eq!(stack.pool().in_use(), 0);
    }
}
