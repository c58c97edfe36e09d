//! Devices that make packets as fast as their workers ask for them, and look at what comes out.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use forebay::core::packet::{Packet, PacketCache, PacketQueue};
use forebay::core::time::Instant;
use forebay::core::wire::checksum::update_u16;
use forebay::device::Device;

use crate::bench::net::Family;
use crate::bench::packet::{self, Flow, LEN, Protocol};

const MTU: u32 = 1_500;

/// Where a datagram has the number of its flow, from its UDP header on; its own number is in front.
const FLOW_AT: usize = 12;
const CHECKSUM_AT: usize = 6;
const SEQUENCE_AT: usize = 8;

/// When packets come in, by the stack's clock.
#[derive(Default)]
pub(super) struct Window {
    start: AtomicU64,
    end: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

/// What one queue has seen; written by its driver alone.
#[repr(align(128))]
pub(super) struct Lane {
    packets: AtomicU64,
    /// That nobody should have made of what was sent, or out of order.
    wrong: AtomicU64,
    /// When the queue was looked at last.
    seen: AtomicU64,
    /// Packets of each flow, where it is a sink's.
    by_flow: PerFlow,
}

/// A number for each flow, on lines that no other worker writes.
struct PerFlow(Box<[Line]>);

#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU32; FLOWS_A_LINE]);

const FLOWS_A_LINE: usize = 32;

/// A device, or a queue of one, that packets of some flows come from, in turn.
#[repr(align(128))]
pub(super) struct Source {
    family: Family,
    window: Arc<Window>,
    lane: Arc<Lane>,
    streams: Vec<Stream>,
    next: usize,
    /// Queues that nobody has taken yet.
    others: Vec<Source>,
}

/// A flow, and its next packet but for its number.
#[repr(align(128))]
struct Stream {
    packet: [u8; LEN],
    sequence: u32,
}

/// A device, or a queue of one, that packets go to.
#[repr(align(128))]
pub(super) struct Sink {
    family: Family,
    lane: Arc<Lane>,
    flows: Arc<[Flow]>,
    /// The lowest number that the next packet of each flow can have.
    expected: PerFlow,
    others: Vec<Sink>,
}

impl Window {
    /// Lets packets in from `start` to `end`.
    pub(super) fn open(&self, start: Instant, end: Instant) {
        self.end.store(end.as_nanos(), Ordering::Relaxed);
        self.start.store(start.as_nanos(), Ordering::Release);
        let sleepers = self.sleepers();
        sleepers.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn end(&self) -> Instant {
        Instant::from_nanos(self.end.load(Ordering::Relaxed))
    }

    fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    fn is_open(&self, now: Instant) -> bool {
        (self.start()..self.end().as_nanos()).contains(&now.as_nanos())
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn new(flows: usize) -> Self {
        Self {
            packets: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            by_flow: PerFlow::new(flows),
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Acquire)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Acquire)
    }

    /// Whether the queue was looked at since `then`.
    pub(super) fn is_past(&self, then: Instant) -> bool {
        self.seen.load(Ordering::Acquire) >= then.as_nanos()
    }

    /// Of each flow, and perhaps of some that there are not; numbers wrap.
    pub(super) fn by_flow(&self) -> Vec<u32> {
        let lines = self.by_flow.0.iter();
        let counts = lines.flat_map(|line| &line.0);
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// The same of all queues of a device together.
    pub(super) fn by_flow_of_all(lanes: &[Arc<Self>]) -> Vec<u32> {
        let mut sum = Vec::new();
        for lane in lanes {
            let counts = lane.by_flow();
            sum.resize(counts.len(), 0_u32);
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count);
            }
        }
        sum
    }

    fn publish(&self, packets: u64) {
        let before = self.packets.load(Ordering::Relaxed);
        self.packets.store(before + packets, Ordering::Release);
    }
}

impl PerFlow {
    fn new(flows: usize) -> Self {
        let lines = flows.div_ceil(FLOWS_A_LINE);
        Self((0..lines).map(|_| Line::default()).collect())
    }

    fn get(&self, flow: usize) -> Option<&AtomicU32> {
        self.0.get(flow / FLOWS_A_LINE)?.0.get(flow % FLOWS_A_LINE)
    }
}

/// A device with so many queues, on which the flows are spread evenly; and what its queues count.
pub(super) fn source(
    family: Family,
    flows: &[Flow],
    queues: usize,
    window: &Arc<Window>,
) -> (Source, Vec<Arc<Lane>>) {
    let lanes: Vec<_> = (0..queues).map(|_| Arc::new(Lane::new(0))).collect();
    let sources = lanes.iter().enumerate().map(|(queue, lane)| {
        let own = (0..).zip(flows).skip(queue).step_by(queues);
        Source {
            family,
            window: Arc::clone(window),
            lane: Arc::clone(lane),
            streams: own
                .map(|(number, flow)| Stream::new(family, number, flow))
                .collect(),
            next: 0,
            others: Vec::new(),
        }
    });
    (
        first_with_others(sources.collect(), |source, others| source.others = others),
        lanes,
    )
}

/// A device with so many queues that knows what is sent.
pub(super) fn sink(family: Family, flows: &Arc<[Flow]>, queues: usize) -> (Sink, Vec<Arc<Lane>>) {
    let lanes: Vec<_> = (0..queues)
        .map(|_| Arc::new(Lane::new(flows.len())))
        .collect();
    let sinks = lanes.iter().map(|lane| Sink {
        family,
        lane: Arc::clone(lane),
        flows: Arc::clone(flows),
        expected: PerFlow::new(flows.len()),
        others: Vec::new(),
    });
    (
        first_with_others(sinks.collect(), |sink, others| sink.others = others),
        lanes,
    )
}

/// The first of them, which then has the others.
fn first_with_others<T>(mut queues: Vec<T>, give: impl FnOnce(&mut T, Vec<T>)) -> T {
    let mut first = queues.remove(0);
    give(&mut first, queues);
    first
}

impl Stream {
    fn new(family: Family, number: u32, flow: &Flow) -> Self {
        let mut packet = [0; LEN];
        let at = packet::ip_header_len(family) + FLOW_AT;
        packet[at..at + 4].copy_from_slice(&number.to_be_bytes());
        packet::write(&mut packet, family, Protocol::Udp, flow, 0);
        Self {
            packet,
            sequence: 0,
        }
    }

    /// Makes the next one.
    fn write(&mut self, transport: usize, out: &mut Packet) {
        if !out.set_len(LEN) {
            return;
        }
        let bytes = out.data_mut();
        bytes.copy_from_slice(&self.packet);
        let (_, udp) = bytes.split_at_mut(transport);
        let [high, low] = [self.sequence >> 16, self.sequence].map(|word| word as u16);
        let sum = u16::from_be_bytes([udp[CHECKSUM_AT], udp[CHECKSUM_AT + 1]]);
        let sum = update_u16(update_u16(sum, 0, high), 0, low);
        // RFC 768: 0 says that there is none.
        let sum = if sum == 0 { u16::MAX } else { sum };
        udp[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        udp[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&self.sequence.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(1);
    }
}

impl Device for Source {
    fn mtu(&self) -> u32 {
        MTU
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let mut made = 0;
        if self.window.is_open(now) && !self.streams.is_empty() {
            while made < budget
                && let Some(mut packet) = cache.alloc()
            {
                let streams = self.streams.len();
                let stream = &mut self.streams[self.next];
                self.next = (self.next + 1) % streams;
                stream.write(packet::ip_header_len(self.family), &mut packet);
                out.push(packet);
                made += 1;
            }
            self.lane.publish(made as u64);
        }
        self.lane.seen.store(now.as_nanos(), Ordering::Release);
        Ok(made)
    }

    /// Nothing leaves by it.
    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        while let Some(packet) = packets.pop() {
            cache.free(packet);
        }
        Ok(())
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        (!self.others.is_empty()).then(|| Box::new(self.others.remove(0)) as Box<dyn Device>)
    }

    /// When the window opens; and at its end it is looked at once more.
    fn next_event(&self) -> Option<Instant> {
        let seen = self.lane.seen.load(Ordering::Relaxed);
        let (start, end) = (self.window.start(), self.window.end().as_nanos());
        let next = [start, end].into_iter().find(|event| *event > seen);
        next.map(Instant::from_nanos)
    }

    fn set_waker(&mut self, waker: Waker) {
        self.window.sleepers().push(waker);
    }
}

impl Sink {
    /// Whether the packet is what a router makes of one that was sent, and behind those of its flow
    /// that came before.
    fn look(&mut self, bytes: &[u8]) -> Option<()> {
        let udp = bytes.get(packet::ip_header_len(self.family)..)?;
        let word = |at: usize| Some(u32::from_be_bytes(*udp.get(at..)?.first_chunk()?));
        let (sequence, number) = (word(SEQUENCE_AT)?, word(FLOW_AT)? as usize);
        let expected = self.expected.get(number)?;
        let arrived = self.lane.by_flow.get(number)?;
        let dst = self.flows.get(number)?.dst;
        let is_right = sequence >= expected.load(Ordering::Relaxed)
            && packet::is_forwarded(self.family, Protocol::Udp, bytes, dst, sequence);
        expected.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // Nobody else writes.
        let packets = arrived.load(Ordering::Relaxed).wrapping_add(1);
        arrived.store(packets, Ordering::Relaxed);
        is_right.then_some(())
    }
}

impl Device for Sink {
    fn mtu(&self) -> u32 {
        MTU
    }

    /// Nothing comes in by it.
    fn receive(
        &mut self,
        _now: Instant,
        _cache: &mut PacketCache,
        _out: &mut PacketQueue,
        _budget: usize,
    ) -> io::Result<usize> {
        Ok(0)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        let (mut taken, mut wrong) = (0, 0);
        while let Some(packet) = packets.pop() {
            wrong += u64::from(self.look(packet.data()).is_none());
            cache.free(packet);
            taken += 1;
        }
        if wrong > 0 {
            self.lane.wrong.fetch_add(wrong, Ordering::Release);
        }
        if taken > 0 {
            self.lane.publish(taken);
        }
        Ok(())
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        (!self.others.is_empty()).then(|| Box::new(self.others.remove(0)) as Box<dyn Device>)
    }
}
