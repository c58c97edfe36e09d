//! A stack between two interfaces, driven by hand under a simulated clock.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use forebay::device::Device;
use forebay_stack::core::Core;
use forebay_stack::counters::{Counter, Snapshot};
use forebay_stack::drop::DropReason;
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::packet::{Meta, Packet, PacketQueue};
use forebay_stack::time::Instant;
use forebay_stack::{Stack, StackConfig};

/// Addresses of the rig in IPv4.
#[derive(Debug)]
pub struct V4;

impl V4 {
    /// Of the stack on tun0, in 10.0.0.0/24.
    pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    /// Of the neighbour on tun0.
    pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    /// Of the stack on tun1, in 10.1.0.0/24.
    pub const OWN1: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
    /// Of the neighbour on tun1.
    pub const PEER1: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
}

/// Addresses of the rig in IPv6.
#[derive(Debug)]
pub struct V6;

impl V6 {
    /// Of the stack on tun0, in fd00::/64.
    pub const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    /// Of the neighbour on tun0.
    pub const PEER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    /// Of the stack on tun1, in fd01::/64.
    pub const OWN1: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1);
    /// Of the neighbour on tun1.
    pub const PEER1: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2);
}

/// A stack with tun0 (10.0.0.1/24, fd00::1/64) and tun1 (10.1.0.1/24, fd01::1/64) that forwards.
#[derive(Debug)]
pub struct Rig {
    /// The stack itself, which other threads may use meanwhile.
    pub stack: Arc<Stack>,
    core: Core,
    now: Instant,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Rig {
    /// The rig with a pool of 8,192 buffers and a fixed seed.
    pub fn new() -> Self {
        Self::with(&StackConfig {
            buffers: 8_192,
            reserve: 2_048,
            seed: [1, 2],
            ..StackConfig::default()
        })
    }

    /// The rig around a stack of this make.
    pub fn with(config: &StackConfig) -> Self {
        let stack = Arc::new(Stack::new(config));
        let core = stack.core();
        let rig = Self {
            stack,
            core,
            now: Instant::from_nanos(1_000_000_000),
        };
        for (name, v4, v6) in [("tun0", V4::OWN, V6::OWN), ("tun1", V4::OWN1, V6::OWN1)] {
            let ifindex = rig
                .stack
                .add_interface(InterfaceConfig::new(name))
                .expect("a new name");
            rig.stack
                .add_address(ifindex, v4.into(), 24)
                .expect("a new address");
            rig.stack
                .add_address(ifindex, v6.into(), 64)
                .expect("a new address");
        }
        rig.set("net.ipv4.ip_forward", 1);
        rig.set("net.ipv6.conf.all.forwarding", 1);
        rig
    }

    /// The same with early demux on or off.
    pub fn with_early_demux(on: bool) -> Self {
        let rig = Self::new();
        rig.set("net.ipv4.ip_early_demux", i64::from(on));
        rig
    }

    /// Sets a knob.
    pub fn set(&self, name: &str, value: i64) {
        self.stack
            .set_sysctl(name, &value.to_string())
            .expect("a knob and a value it takes");
    }

    /// Index of an interface.
    pub fn ifindex(&self, name: &str) -> u32 {
        self.stack
            .interface_named(name)
            .expect("an interface of the rig")
            .index
    }

    /// The simulated time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Lets time pass, and what is due happen.
    pub fn advance(&mut self, duration: Duration) {
        self.now += duration;
        self.poll();
    }

    /// Does what is due now; returns the next deadline.
    pub fn poll(&mut self) -> Option<Instant> {
        loop {
            let deadline = self.stack.poll(&mut self.core, self.now);
            if deadline.is_none_or(|deadline| deadline > self.now) {
                return deadline;
            }
        }
    }

    /// A packet of the rig's pool with these bytes, in as many buffers as it takes.
    pub fn packet(&mut self, bytes: &[u8]) -> Packet {
        self.try_packet(bytes, 1_800)
            .expect("the rig's pool has buffers")
    }

    /// The same with so many bytes in each buffer; `None` if the pool has not enough.
    pub fn try_packet(&mut self, bytes: &[u8], per_buffer: usize) -> Option<Packet> {
        let mut chunks = bytes.chunks(per_buffer);
        let mut head = self.core.cache().alloc()?;
        fill(&mut head, chunks.next().unwrap_or_default());
        for chunk in chunks {
            let mut buf = self.core.cache().alloc()?;
            fill(&mut buf, chunk);
            head.push_frag(buf);
        }
        Some(head)
    }

    /// A packet comes in by an interface.
    pub fn inject(&mut self, interface: &str, bytes: impl AsRef<[u8]>) {
        self.inject_all(interface, [bytes]);
    }

    /// Packets come in by an interface together.
    pub fn inject_all(
        &mut self,
        interface: &str,
        packets: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) {
        let mut queue = PacketQueue::new();
        for bytes in packets {
            queue.push(self.packet(bytes.as_ref()));
        }
        self.receive(interface, &mut queue);
    }

    /// Packets come in by an interface, with metadata as a device gives it.
    pub fn receive(&mut self, interface: &str, queue: &mut PacketQueue) {
        let ifindex = self.ifindex(interface);
        self.stack.receive(&mut self.core, self.now, ifindex, queue);
        self.poll();
    }

    /// A device's turn: what it has comes in by an interface, up to 64 frames, and what waits there
    /// is sent. Returns how many frames came in.
    pub fn turn(&mut self, interface: &str, device: &mut dyn Device) -> usize {
        let mut queue = PacketQueue::new();
        let taken = device
            .receive(self.now, self.core.cache(), &mut queue, 64)
            .expect("a device that is not gone");
        self.receive(interface, &mut queue);
        let waiting = self.stack.transmit_queue(self.ifindex(interface));
        waiting.expect("an interface of the rig").take(&mut queue);
        device
            .transmit(self.now, &mut queue, self.core.cache())
            .expect("a device that is not gone");
        while let Some(unsent) = queue.pop() {
            self.core.cache().free(unsent);
        }
        taken
    }

    /// What the stack has sent out of an interface since it was last asked.
    pub fn output(&mut self, interface: &str) -> Vec<Vec<u8>> {
        self.output_with_meta(interface)
            .into_iter()
            .map(|(bytes, _)| bytes)
            .collect()
    }

    /// The same, with what a device would be told.
    pub fn output_with_meta(&mut self, interface: &str) -> Vec<(Vec<u8>, Meta)> {
        let mut queue = PacketQueue::new();
        let waiting = self.stack.transmit_queue(self.ifindex(interface));
        waiting.expect("an interface of the rig").take(&mut queue);
        let mut output = Vec::new();
        while let Some(packet) = queue.pop() {
            output.push((packet.chunks().flatten().copied().collect(), *packet));
            self.core.cache().free(packet);
        }
        output
    }

    /// The counters.
    pub fn counters(&self) -> Snapshot {
        self.stack.counters()
    }

    /// One counter.
    pub fn count(&self, counter: Counter) -> u64 {
        self.stack.counters().get(counter)
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.stack.counters().dropped(reason)
    }

    /// The reasons for which packets were dropped, with how many.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.stack
            .counters()
            .drops()
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Buffers of the pool that are not home, once every cache has given back what it holds.
    pub fn buffers_in_use(&mut self) -> usize {
        self.core.cache().flush();
        self.stack.flush_caches();
        self.stack.pool().in_use()
    }
}

fn fill(buf: &mut Packet, bytes: &[u8]) {
    buf.put(bytes.len())
        .expect("a chunk fits")
        .copy_from_slice(bytes);
}
