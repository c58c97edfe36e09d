//! What the tests of this layer share: a stack with one interface, and packets as they come out of
//! validation.

use core::time::Duration;

use zerocopy::IntoBytes;

use crate::batch::Sorted;
use crate::core::{Context, Core};
use crate::counters::Counter;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::interface::InterfaceConfig;
use crate::ip::options;
use crate::ip::validate::validate;
use crate::packet::{Packet, PacketQueue};
use crate::stack::{Stack, StackConfig};
use crate::time::Instant;
use crate::wire::{Ipv4Header, Ipv6Header, ipv4};

pub(crate) const OWN_V4: [u8; 4] = [10, 0, 0, 1];
pub(crate) const PEER_V4: [u8; 4] = [10, 0, 0, 2];
pub(crate) const OWN_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const PEER_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 2];

pub(crate) struct Bench {
    pub(crate) stack: Stack,
    core: Core,
    now: Instant,
    ifindex: u32,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_buffers(4_096)
    }

    pub(crate) fn with_buffers(buffers: usize) -> Self {
        let stack = Stack::new(&StackConfig {
            buffers,
            reserve: 0,
            seed: [7, 11],
            ..StackConfig::default()
        });
        let ifindex = stack.add_interface(InterfaceConfig::new("tun0")).unwrap();
        for (addr, len) in [(OWN_V4.into(), 24), (OWN_V6.into(), 64)] {
            stack.add_address(ifindex, addr, len).unwrap();
        }
        let core = stack.core();
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            stack,
            core,
            now,
            ifindex,
        }
    }

    pub(crate) fn set(&self, knob: &str, value: i64) {
        self.stack.set_sysctl(knob, &value.to_string()).unwrap();
    }

    pub(crate) fn advance(&mut self, duration: Duration) {
        self.now += duration;
    }

    pub(crate) fn run<R>(&mut self, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        self.stack.with_core(&mut self.core, self.now, f)
    }

    /// A packet in buffers of at most `chunk` bytes, parsed.
    pub(crate) fn packet_in_chunks(&mut self, bytes: &[u8], chunk: usize) -> Packet {
        self.packet_in_lane(&mut Sorted::new(), 0, bytes, chunk)
    }

    /// The same as part of a batch.
    pub(crate) fn packet_in_lane(
        &mut self,
        sorted: &mut Sorted,
        lane: usize,
        bytes: &[u8],
        chunk: usize,
    ) -> Packet {
        let iif = self.ifindex;
        self.run(|cx| {
            let mut packet: Option<Packet> = None;
            for chunk in bytes.chunks(chunk) {
                let mut buf = cx.core.alloc().unwrap();
                buf.put(chunk.len()).unwrap().copy_from_slice(chunk);
                match &mut packet {
                    Some(packet) => packet.push_frag(buf),
                    None => packet = Some(buf),
                }
            }
            let mut packet = packet.unwrap_or_else(|| cx.core.alloc().unwrap());
            packet.iif = iif;
            let interface = cx.view.interfaces.get(iif).unwrap();
            let device = InDevice::new(cx.view, interface);
            packet.verdict = validate(cx, &device, sorted, lane, &mut packet);
            packet
        })
    }

    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Packet {
        self.packet_in_chunks(bytes, 1_800)
    }

    /// What a router does to the options of a packet that leaves by the interface.
    pub(crate) fn forward_options(&mut self, packet: &mut Packet) {
        let ifindex = self.ifindex;
        self.run(|cx| {
            let interface = cx.view.interfaces.get(ifindex).unwrap();
            options::forward(cx, packet, interface);
        });
    }

    /// What has left by the interface since the last time.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut queue = PacketQueue::new();
        let interface = self.stack.interface(self.ifindex).unwrap();
        interface.tx.iter().for_each(|tx| tx.take(&mut queue));
        queue.iter().map(bytes_of).collect()
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.stack.counters().get(counter)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.stack.counters().dropped(reason)
    }

    /// Buffers that are neither in the pool nor in the core's own list.
    pub(crate) fn in_use(&mut self) -> usize {
        self.core.flush_cache();
        self.stack.pool().in_use()
    }
}

pub(crate) fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.chunks().flatten().copied().collect()
}

/// An IPv4 packet from the peer to us, its checksum right.
pub(crate) fn v4(protocol: u8, id: u16, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = Ipv4Header::LEN + options.len() + payload.len();
    let mut header = Ipv4Header::new(PEER_V4.into(), OWN_V4.into(), protocol, 64, len as u16);
    header.set_header_len(Ipv4Header::LEN + options.len());
    header.id = id.into();
    header.fragment = fragment.into();
    let mut packet = [header.as_bytes(), options, payload].concat();
    ipv4::fill_checksum(&mut packet);
    packet
}

/// An IPv6 packet from the peer to us.
pub(crate) fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (PEER_V6.into(), OWN_V6.into());
    let header = Ipv6Header::new(src, dst, next_header, 64, payload.len() as u16);
    [header.as_bytes(), payload].concat()
}

/// Bytes that differ wherever a test might mix them up.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
