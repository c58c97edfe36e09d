//! A TUN device: the kernel's own network stack is at the other end.

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod strange_frames;
#[cfg(test)]
mod tests;
mod vnet;

use std::array;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_os::tun::{MAX_BUFFERS, Queue};
use forebay_os::vnet::VnetHeader;
use forebay_stack::packet::Packet;
use forebay_sync::packet::CAPACITY;
use rustix::io::Errno;

pub use forebay_os::tun::{Tun, TunConfig, TunError};

use super::{BadFrame, Device, DeviceStats, Instant, Offload, PacketCache, PacketQueue, frame};

/// The most that comes in one piece with offloads on: the largest IPv6 packet, header and all.
const MAX_PACKET: usize = 65_535 + 40;

/// How long to wait when the kernel takes no more; it does not say when it does again.
const RETRY: Duration = Duration::from_millis(1);

/// A TUN device.
///
/// It reads from all of its queues in turn, unless several workers drive the stack: then each queue
/// is read and written by one of them. It writes to the first only of those that it reads: the
/// kernel sends a flow's packets to the queue that the flow was last written to, and a flow that
/// changed queues could overtake itself.
///
/// The kernel's interface may be down, and come up again, without an end of the device: meanwhile
/// what is sent is lost and counted. When the interface is deleted, both directions fail with
/// `NotConnected`.
pub struct TunDevice {
    name: String,
    mtu: u32,
    offload: Offload,
    queues: Vec<Queue>,
    /// The queue that is read first next time.
    turn: usize,
    spare: Spare,
    /// When to try again what the kernel did not take.
    retry: Option<Instant>,
    stats: DeviceStats,
}

impl TunDevice {
    /// Opens a TUN device: creates it, or attaches to one.
    ///
    /// `mtu` is the largest IP packet to go through, in bytes. The kernel's interface starts with
    /// an MTU of 1,500, and is down and without addresses.
    ///
    /// # Errors
    ///
    /// See [`TunError`].
    ///
    /// ```no_run
    /// use forebay::device::tun::{TunConfig, TunDevice};
    ///
    /// let config = TunConfig { name: "tun0".into(), queues: 1, offload: true };
    /// let device = TunDevice::open(&config, 1_500)?;
    /// # Ok::<(), forebay::device::tun::TunError>(())
    /// ```
    pub fn open(config: &TunConfig, mtu: u32) -> Result<Self, TunError> {
        Ok(Self::new(Tun::open(config)?, mtu, config.offload))
    }

    /// The device of a TUN that is open, perhaps in another network namespace. `offload` is what
    /// it was opened with.
    pub fn new(tun: Tun, mtu: u32, offload: bool) -> Self {
        Self {
            name: tun.name().to_owned(),
            mtu,
            offload: Offload {
                checksum: offload,
                tcp_segmentation: offload,
                udp_segmentation: offload && tun.udp_segmentation,
            },
            queues: tun.queues,
            turn: 0,
            spare: Spare::for_frames(mtu, offload),
            retry: None,
            stats: DeviceStats::default(),
        }
    }

    /// The interface's name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame. Says whether there was one.
    fn read(
        &mut self,
        queue: usize,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
    ) -> io::Result<bool> {
        let Some(queue) = self.queues.get_mut(queue) else {
            return Ok(false);
        };
        // Without buffers the frame waits in the kernel, whose queue is bounded.
        if !self.spare.fill(cache) {
            return Ok(false);
        }
        let (header, len) = match self.spare.read(queue) {
            Ok(read) => read,
            Err(error) => match Errno::from_io_error(&error) {
                // Nothing there, or the interface is just being deleted.
                Some(Errno::AGAIN | Errno::INTR | Errno::IO) => return Ok(false),
                // The kernel can't describe the packet, and has thrown it away.
                Some(Errno::INVAL) => {
                    self.stats.bad.count(BadFrame::Segmentation);
                    return Ok(true);
                }
                _ => return Err(self.broken(&error)),
            },
        };
        let Some(mut packet) = self.spare.take(len) else {
            return Ok(false);
        };
        match vnet::accept(&header, &mut packet, self.mtu) {
            Ok(()) => {
                self.stats.received(packet.total_len());
                out.push(packet);
            }
            Err(reason) => {
                self.stats.bad.count(reason);
                cache.free(packet);
            }
        }
        Ok(true)
    }

    /// Writes one packet. Says whether the kernel has taken it, or lost it.
    fn write(&mut self, packet: &Packet, cache: &mut PacketCache) -> io::Result<bool> {
        if packet.buffers() <= MAX_BUFFERS {
            return self.gather(packet);
        }
        // Many small fragments: as few full ones fit.
        let Some(dense) = frame::copy(cache, packet) else {
            self.stats.tx_dropped += 1;
            return Ok(true);
        };
        let written = self.gather(&dense);
        cache.free(dense);
        written
    }

    fn gather(&mut self, packet: &Packet) -> io::Result<bool> {
        let (Some(header), Some(queue)) = (vnet::describe(packet), self.queues.first_mut()) else {
            self.stats.tx_errors += 1;
            return Ok(true);
        };
        let mut chunks = packet.chunks();
        let slices: [_; MAX_BUFFERS] =
            array::from_fn(|_| IoSlice::new(chunks.next().unwrap_or_default()));
        let used = slices.get(..packet.buffers()).unwrap_or_default();
        match queue.send(&header, used) {
            Ok(()) => self.stats.sent(packet.total_len()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::BADFD | Errno::NODEV) => return Err(self.broken(&error)),
                // The interface is down, or the kernel is out of memory.
                Some(Errno::IO | Errno::NOMEM | Errno::NOBUFS) => self.stats.tx_dropped += 1,
                _ => self.stats.tx_errors += 1,
            },
        }
        Ok(true)
    }

    fn broken(&self, error: &io::Error) -> io::Error {
        let name = &self.name;
        match Errno::from_io_error(error) {
            Some(Errno::BADFD | Errno::NODEV) => io::Error::new(
                ErrorKind::NotConnected,
                format!("TUN device {name} was deleted"),
            ),
            _ => io::Error::new(error.kind(), format!("TUN device {name}: {error}")),
        }
    }
}

impl Device for TunDevice {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn offload(&self) -> Offload {
        self.offload
    }

    fn receive(
        &mut self,
        _now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let first = self.turn;
        self.turn = (first + 1) % self.queues.len().max(1);
        let mut taken = 0;
        for queue in (first..self.queues.len()).chain(0..first) {
            while taken < budget && self.read(queue, cache, out)? {
                taken += 1;
            }
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        self.retry = None;
        while let Some(packet) = packets.peek() {
            if !self.write(packet, cache)? {
                self.retry = Some(now + RETRY);
                break;
            }
            if let Some(packet) = packets.pop() {
                cache.free(packet);
            }
        }
        Ok(())
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        if self.queues.len() < 2 {
            return None;
        }
        Some(Box::new(Self {
            name: self.name.clone(),
            queues: vec![self.queues.remove(1)],
            turn: 0,
            spare: Spare::for_frames(self.mtu, self.offload.checksum),
            retry: None,
            stats: DeviceStats::default(),
            ..*self
        }))
    }

    fn next_event(&self) -> Option<Instant> {
        self.retry
    }

    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        fds.extend(self.queues.iter().map(AsFd::as_fd));
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

/// Buffers that the next frame is read into: enough for the largest. What a frame does not use is
/// there for the next one.
struct Spare {
    /// Filled from the end on, so that those used are at the end.
    buffers: Vec<Packet>,
    /// Buffers that the largest frame takes.
    wanted: usize,
}

impl Spare {
    fn for_frames(mtu: u32, offload: bool) -> Self {
        let largest = if offload {
            MAX_PACKET
        } else {
            mtu as usize + 1
        };
        let wanted = largest.div_ceil(CAPACITY).min(MAX_BUFFERS);
        Self {
            buffers: Vec::with_capacity(wanted),
            wanted,
        }
    }

    /// Gets what is missing. A frame that finds less room than it needs would be cut without a
    /// sign, so it is all or nothing.
    fn fill(&mut self, cache: &mut PacketCache) -> bool {
        while self.buffers.len() < self.wanted {
            let Some(buffer) = cache.alloc() else {
                return false;
            };
            self.buffers.push(buffer);
        }
        true
    }

    fn read(&mut self, queue: &mut Queue) -> io::Result<(VnetHeader, usize)> {
        let mut buffers = self.buffers.iter_mut().rev();
        let mut slices: [_; MAX_BUFFERS] = array::from_fn(|_| {
            IoSliceMut::new(buffers.next().map(Packet::spare_mut).unwrap_or_default())
        });
        queue.recv(slices.get_mut(..self.wanted).unwrap_or_default())
    }

    /// The packet of `len` bytes that was read.
    fn take(&mut self, len: usize) -> Option<Packet> {
        let mut packet = self.buffers.pop()?;
        let mut rest = len - set_len(&mut packet, len);
        while rest > 0 {
            let mut frag = self.buffers.pop()?;
            rest -= set_len(&mut frag, rest);
            packet.push_frag(frag);
        }
        Some(packet)
    }
}

/// Says that `len` bytes were read into `buffer`, or as many as it holds. Returns how many.
fn set_len(buffer: &mut Packet, len: usize) -> usize {
    let len = len.min(buffer.tailroom());
    if buffer.set_len(len) { len } else { 0 }
}
