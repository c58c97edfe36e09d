//! Devices: where packets come from and go to.
//!
//! A stack knows no cards and no files; it knows [`Device`]s. Here are
//!
//! - [`tun`]: the kernel's network stack on the other side;
//! - [`wire`]: two ends in memory, to join two stacks;
//! - [`port`]: for programs that bring their own packets;
//! - [`pcap`]: a capture file in, another one out;
//! - [`impair`]: around any other device, to lose, delay, reorder, duplicate and corrupt.
//!
//! # A device of one's own
//!
//! A device that sends everything back:
//!
//! ```
//! use forebay::device::{Device, Instant, Meta, PacketCache, PacketPool, PacketQueue};
//! use std::io;
//!
//! #[derive(Default)]
//! struct Mirror {
//!     held: PacketQueue,
//! }
//!
//! impl Device for Mirror {
//!     fn mtu(&self) -> u32 {
//!         1_500
//!     }
//!
//!     fn receive(
//!         &mut self,
//!         _now: Instant,
//!         _cache: &mut PacketCache,
//!         out: &mut PacketQueue,
//!         budget: usize,
//!     ) -> io::Result<usize> {
//!         let mut received = 0;
//!         while received < budget {
//!             let Some(mut packet) = self.held.pop() else { break };
//!             // Nothing that the sender knew about it holds for the receiver.
//!             *packet = Meta::default();
//!             out.push(packet);
//!             received += 1;
//!         }
//!         Ok(received)
//!     }
//!
//!     fn transmit(
//!         &mut self,
//!         _now: Instant,
//!         packets: &mut PacketQueue,
//!         cache: &mut PacketCache,
//!     ) -> io::Result<()> {
//!         // Bounded: what does not fit is lost, as on a wire.
//!         while let Some(packet) = packets.pop() {
//!             if self.held.len() < 256 {
//!                 self.held.push(packet);
//!             } else {
//!                 cache.free(packet);
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let pool = PacketPool::new(512);
//! let mut cache = pool.cache();
//! let mut mirror = Mirror::default();
//! let mut sent = PacketQueue::new();
//! let mut packet = cache.alloc().expect("a fresh pool has buffers");
//! packet.put(20).expect("a fresh buffer has room").fill(0x45);
//! sent.push(packet);
//! mirror.transmit(Instant::ZERO, &mut sent, &mut cache)?;
//!
//! let mut received = PacketQueue::new();
//! assert_eq!(mirror.receive(Instant::ZERO, &mut cache, &mut received, 64)?, 1);
//! assert_eq!(received.peek().map(|packet| packet.len()), Some(20));
//! # Ok::<(), io::Error>(())
//! ```

mod frame;
pub mod impair;
pub mod pcap;
pub mod port;
mod stats;
#[cfg(test)]
mod testing;
pub mod tun;
pub mod wire;

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Waker;

pub use forebay_stack::interface::Offload;
pub use forebay_stack::packet::{
    ChecksumState, Gso, GsoKind, Meta, Packet, PacketCache, PacketPool, PacketQueue,
};
pub use forebay_stack::time::Instant;

pub use frame::packet_of;
pub use stats::{BadFrame, BadFrames, DeviceStats};

/// A network device, driven by one thread at a time. None of its functions block.
///
/// Packets are bytes from the IP header on; a device that has link headers strips and writes them
/// itself. `now` is the driver's clock, which devices with deadlines of their own go by.
pub trait Device: Send {
    /// Largest IP packet it takes, in bytes.
    fn mtu(&self) -> u32;

    /// What it does itself on the way out; what it does not, the stack has done before
    /// [`transmit`](Self::transmit).
    fn offload(&self) -> Offload {
        Offload::default()
    }

    /// Takes in up to `budget` frames and appends those that are packets to `out`. Returns how
    /// many frames were taken, as Linux's NAPI `poll` does: if it is `budget`, more may wait.
    ///
    /// Packets are made of buffers from `cache`, with fresh metadata but for what the device knows:
    /// [`checksum`](Meta::checksum) and [`gso`](Meta::gso).
    ///
    /// # Errors
    ///
    /// Only what will not pass: the device is gone. Frames that are no packets are counted in
    /// [`stats`](Self::stats) and left out. What was appended before an error stays in `out`.
    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize>;

    /// Sends from the front of `packets` what can be sent now, and frees it to `cache`; the rest
    /// stays where it is, to be tried again.
    ///
    /// # Errors
    ///
    /// Only what will not pass: the device is gone. A packet that it refuses is counted in
    /// [`stats`](Self::stats) and freed.
    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()>;

    /// Takes one of the device's queues out of it, for another worker to drive, as long as there is
    /// more than one: each is a device then, of one interface. Asked when the device is added to a
    /// stack with several workers, or [follows flows](Self::follows_flows).
    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        None
    }

    /// Whether the packets of a flow are to go out by the queue that its replies come in by, as
    /// with Linux's TUN devices. The stack remembers up to 4,096 flows for it.
    fn follows_flows(&self) -> bool {
        false
    }

    /// When the device has something to do by itself. From then on it wants both
    /// [`receive`](Self::receive) and [`transmit`](Self::transmit) called, even with nothing to
    /// send.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Adds the descriptors that become readable when packets come in, for the driver to sleep on.
    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        let _ = fds;
    }

    /// Whom to wake when packets come in, or can be sent again, at a device that has no
    /// descriptors. It is woken any number of times, and from any thread.
    fn set_waker(&mut self, waker: Waker) {
        drop(waker);
    }

    /// What has gone through, and what has not.
    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn mtu(&self) -> u32 {
        (**self).mtu()
    }

    fn offload(&self) -> Offload {
        (**self).offload()
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        (**self).receive(now, cache, out, budget)
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        (**self).transmit(now, packets, cache)
    }

    fn take_queue(&mut self) -> Option<Box<dyn Device>> {
        (**self).take_queue()
    }

    fn follows_flows(&self) -> bool {
        (**self).follows_flows()
    }

    fn next_event(&self) -> Option<Instant> {
        (**self).next_event()
    }

    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        (**self).fds(fds);
    }

    fn set_waker(&mut self, waker: Waker) {
        (**self).set_waker(waker);
    }

    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }
}
