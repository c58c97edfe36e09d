//! A port: for programs that bring their own packets, as bytes.
//!
//! The program has a [`Port`], the stack the [`PortDevice`]. What the program sends is checked
//! as Linux checks what is written to a TUN device, and comes into the stack; what the stack sends
//! the program receives. Both directions are bounded. The program may block, try, or be polled as
//! a future.
//!
//! A port may have several queues, each with a direction in and one out, for programs with several
//! threads and stacks with several workers. The stack sends a flow's packets out by the queue that
//! the program sends the flow's packets in by, as Linux's TUN devices do.

mod lane;
mod ring;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use self::lane::{Lane, State};
use super::{Device, DeviceStats, Instant, PacketCache, PacketQueue, frame};
use crate::cpu;

/// What a port is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Largest IP packet that goes through, in bytes. 1,500 unless set.
    pub mtu: u32,
    /// Bytes that may wait in each direction, with a few for each packet; as long as fewer do, one
    /// more packet is taken. 1 MiB unless set.
    pub queue: usize,
    /// Queues: 1 unless set, 256 at most.
    pub queues: u16,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            mtu: 1_500,
            queue: 1 << 20,
            queues: 1,
        }
    }
}

/// A device and the program's end of it.
///
/// ```
/// use forebay::device::port::{PortConfig, port};
/// use forebay::device::{Device, Instant, PacketPool, PacketQueue};
///
/// let (mut device, port) = port(PortConfig::default());
/// port.try_send(&[0x45, 0, 0, 20])?;
///
/// // What a stack does with its device:
/// let mut cache = PacketPool::new(64).cache();
/// let mut packets = PacketQueue::new();
/// device.receive(Instant::ZERO, &mut cache, &mut packets, 64)?;
/// device.transmit(Instant::ZERO, &mut packets, &mut cache)?;
///
/// let mut packet = [0; 1_500];
/// let len = port.recv(&mut packet)?;
/// assert_eq!(packet[..len], [0x45, 0, 0, 20]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn port(config: PortConfig) -> (PortDevice, Port) {
    let queues = config.queues.clamp(1, MAX_QUEUES);
    let shared = Arc::new(Shared {
        mtu: config.mtu,
        queues: (0..queues).map(|_| Lanes::new(config.queue)).collect(),
    });
    let device = PortDevice {
        shared: Arc::clone(&shared),
        queues: (0..queues.into()).collect(),
        first: 0,
        stats: DeviceStats::default(),
    };
    let handle = Arc::new(Handle { shared });
    (device, Port { handle, queue: 0 })
}

/// Most queues of a port.
const MAX_QUEUES: u16 = 256;

/// The program's end of a [`port`]. Clones are the same end, for use from several threads and
/// tasks.
///
/// A packet that is received goes to one of those who wait for it. When the device is dropped,
/// both directions fail with `BrokenPipe` (packets that it had sent before can still be
/// received); when the last clone is dropped, what the stack sends is lost.
#[derive(Clone)]
pub struct Port {
    handle: Arc<Handle>,
    queue: usize,
}

impl Port {
    /// The end of another queue of the same port, from 0 to one less than there are; the handle
    /// that [`port`] gives is queue 0's. A packet that the stack sends waits at one of them.
    ///
    /// ```
    /// use forebay::device::port::{PortConfig, port};
    ///
    /// let (_device, first) = port(PortConfig { queues: 2, ..PortConfig::default() });
    /// let second = first.queue(1).expect("there are two");
    /// second.try_send(&[0x45, 0, 0, 20])?;
    /// assert!(first.queue(2).is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn queue(&self, queue: u16) -> Option<Self> {
        let queue = usize::from(queue);
        (queue < self.handle.shared.queues.len()).then(|| Self {
            handle: Arc::clone(&self.handle),
            queue,
        })
    }

    /// Largest IP packet that goes through, in bytes.
    pub fn mtu(&self) -> u32 {
        self.handle.shared.mtu
    }

    /// Sends one IP packet into the stack; waits while the port is full.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no packet: no bytes, an IP version that is neither 4 nor 6, more
    /// bytes than the MTU. (Everything else about a packet is the stack's to judge.) `BrokenPipe`
    /// when the device is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.check(packet)?;
        self.inward()
            .wait(None, |lane, state| offer(lane, state, packet))
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and `WouldBlock` when the port is full.
    pub fn try_send(&self, packet: &[u8]) -> io::Result<()> {
        self.check(packet)?;
        let done = self
            .inward()
            .attempt(|lane, state| offer(lane, state, packet));
        done.unwrap_or_else(would_block)
    }

    /// As [`send`](Self::send), for a task that is woken when there is room.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn poll_send(&self, context: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.check(packet)?;
        self.inward()
            .poll(context, |lane, state| offer(lane, state, packet))
    }

    /// Receives one IP packet from the stack; waits until there is one. Returns its length; a
    /// packet longer than `buffer` is cut, and the rest of it lost.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` when the device is gone and no packet is left.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.outward().wait(None, |_, state| collect(state, buffer))
    }

    /// As [`recv`](Self::recv), and waits no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and `TimedOut`.
    pub fn recv_timeout(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = std::time::Instant::now().checked_add(timeout);
        self.outward()
            .wait(deadline, |_, state| collect(state, buffer))
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and `WouldBlock` when there is no packet.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.outward().attempt(|_, state| collect(state, buffer));
        done.unwrap_or_else(would_block)
    }

    /// As [`recv`](Self::recv), for a task that is woken when there is a packet.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.outward()
            .poll(context, |_, state| collect(state, buffer))
    }

    fn check(&self, packet: &[u8]) -> io::Result<()> {
        match frame::check_bytes(packet, self.mtu()) {
            Ok(_) => Ok(()),
            Err(reason) => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
        }
    }

    fn inward(&self) -> &Lane {
        &self.handle.shared.queues[self.queue].inward
    }

    fn outward(&self) -> &Lane {
        &self.handle.shared.queues[self.queue].outward
    }
}

fn offer(lane: &Lane, state: &mut State, packet: &[u8]) -> Option<io::Result<()>> {
    if state.closed {
        return Some(Err(io::ErrorKind::BrokenPipe.into()));
    }
    if !lane.has_room(state) {
        return None;
    }
    state.ring.push([packet].into_iter());
    state.sender_cpu = cpu::current_worker();
    Some(Ok(()))
}

fn collect(state: &mut State, buffer: &mut [u8]) -> Option<io::Result<usize>> {
    let copied = state.ring.pop(|pieces| {
        let mut rest = &mut *buffer;
        for piece in pieces {
            let (room, later) = rest.split_at_mut(piece.len().min(rest.len()));
            let (fits, _) = piece.split_at(room.len());
            room.copy_from_slice(fits);
            rest = later;
        }
        let unused = rest.len();
        buffer.len() - unused
    });
    match copied {
        Some(len) => Some(Ok(len)),
        None if state.closed => Some(Err(io::ErrorKind::BrokenPipe.into())),
        None => None,
    }
}

fn would_block<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// The stack's end of a [`port`], or of some of its queues.
pub struct PortDevice {
    shared: Arc<Shared>,
    /// Those that it has: one at least.
    queues: Vec<usize>,
    /// Which of them is looked at first next time.
    first: usize,
    stats: DeviceStats,
}

impl PortDevice {
    /// Takes in up to `budget` packets that wait at a queue. Returns how many.
    fn receive_from(
        &mut self,
        queue: usize,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> usize {
        let lane = &self.shared.queues[queue].inward;
        let mut state = lane.lock();
        let mut taken = 0;
        while taken < budget {
            let copied = state
                .ring
                .pop(|pieces| frame::copy_in(cache, pieces.into_iter()));
            let Some(packet) = copied else { break };
            taken += 1;
            match packet {
                Some(mut packet) => {
                    self.stats.received(packet.total_len());
                    packet.sender_cpu = state.sender_cpu;
                    out.push(packet);
                }
                None => self.stats.rx_dropped += 1,
            }
        }
        if taken > 0 {
            lane.wake_program(state);
        }
        taken
    }
}

impl Device for PortDevice {
    fn mtu(&self) -> u32 {
        self.shared.mtu
    }

    fn receive(
        &mut self,
        _now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let queues = self.queues.len();
        self.first = (self.first + 1) % queues;
        let mut taken = 0;
        for nth in self.first..self.first + queues {
            let queue = self.queues[nth % queues];
            taken += self.receive_from(queue, cache, out, budget - taken);
        }
        Ok(taken)
    }

    /// Into the first of its queues: the stack has chosen it, if there was a choice.
    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        if packets.is_empty() {
            return Ok(());
        }
        let lane = &self.shared.queues[self.queues[0]].outward;
        let mut state = lane.lock();
        while state.closed || lane.has_room(&state) {
            let Some(packet) = packets.pop() else { break };
            if frame::check(&packet, self.shared.mtu).is_err() {
                self.stats.tx_errors += 1;
            } else if state.closed {
                self.stats.tx_dropped += 1;
            } else {
                self.stats.sent(packet.total_len());
                state.ring.push(packet.chunks());
            }
            cache.free(packet);
        }
        if !packets.is_empty() {
            state.is_blocked = true;
        }
        lane.wake_program(state);
        Ok(())
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        if self.queues.len() < 2 {
            return None;
        }
        Some(Box::new(Self {
            shared: Arc::clone(&self.shared),
            queues: vec![self.queues.remove(1)],
            first: 0,
            stats: DeviceStats::default(),
        }))
    }

    fn follows_flows(&self) -> bool {
        self.shared.queues.len() > 1
    }

    fn set_waker(&mut self, waker: Waker) {
        for queue in &self.queues {
            let lanes = &self.shared.queues[*queue];
            lanes.inward.set_waker(waker.clone());
            lanes.outward.set_waker(waker.clone());
        }
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl Drop for PortDevice {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Closes the port with the last clone of a [`Port`].
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

struct Shared {
    mtu: u32,
    queues: Box<[Lanes]>,
}

/// A queue's two directions.
struct Lanes {
    /// Into the stack.
    inward: Lane,
    /// Out of the stack.
    outward: Lane,
}

impl Lanes {
    fn new(limit: usize) -> Self {
        Self {
            inward: Lane::new(limit),
            outward: Lane::new(limit),
        }
    }
}

impl Shared {
    fn close(&self) {
        for queue in &self.queues {
            queue.inward.close();
            queue.outward.close();
        }
    }
}
