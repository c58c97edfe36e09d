//! A network emulator: wraps a device, and makes its packets fare as on a bad link.
//!
//! What is drawn at random is drawn from a seed, and time is the driver's: under a simulated clock
//! a run repeats to the nanosecond.

mod direction;
#[cfg(test)]
mod tests;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

use forebay_stack::random::Random;

use self::direction::Direction;
use super::{Device, DeviceStats, Instant, PacketCache, PacketQueue};

/// What happens in each direction. Nothing, unless set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ImpairConfig {
    /// To what comes into the stack.
    pub receive: Impairment,
    /// To what the stack sends.
    pub transmit: Impairment,
    /// What chance goes by: the same seed, packets and times have the same outcome.
    pub seed: u64,
}

/// What happens to packets in one direction. Nothing, unless set.
///
/// Probabilities are from 0 (never) to 1 (always), for each packet anew. A packet may first be
/// lost, then duplicated; each copy may be corrupted, waits for the rate, and is then delayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Loss in bursts, if any.
    pub burst: Option<Burst>,
    /// Time that every packet takes.
    pub delay: Duration,
    /// Most that the delay differs from `delay`, in either direction; all differences are equally
    /// likely, and none makes it negative. As with Linux's netem, packets overtake each other by
    /// it.
    pub jitter: Duration,
    /// Probability that a packet is not delayed, and so overtakes those that are.
    pub reorder: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is turned over. Checksums are then not believed,
    /// whatever the device said of them. A packet that stands for several has no checksums that
    /// could tell, and is lost.
    pub corrupt: f64,
    /// Bits of IP packets in a second, if limited.
    pub rate: Option<NonZeroU64>,
    /// Bytes of packet memory that may be under way; as long as fewer are, one more packet is
    /// taken, and what comes then is lost. 2 MiB unless set: about a thousand packets of one
    /// buffer each.
    pub limit: usize,
}

/// Loss in bursts, after Gilbert and Elliott: a link is either good, where
/// [`loss`](Impairment::loss) holds, or bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Probability that a good link turns bad before a packet.
    pub begin: f64,
    /// Probability that a bad link turns good before a packet: bursts are 1 / `end` packets long
    /// on average.
    pub end: f64,
    /// Probability that a packet is lost while the link is bad.
    pub loss: f64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            rate: None,
            limit: 2 << 20,
        }
    }
}

/// What has happened in one direction, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpairStats {
    /// Lost by chance.
    pub lost: u64,
    /// Lost because too much was under way.
    pub overflowed: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Corrupted.
    pub corrupted: u64,
    /// Sent ahead of those that are delayed.
    pub reordered: u64,
}

/// A device behind a bad link.
///
/// Packets are impaired one by one, so the device does no segmentation and no checksums on the way
/// out, whatever the wrapped one could do.
///
/// ```
/// use forebay::device::impair::{ImpairConfig, Impaired, Impairment};
/// use forebay::device::wire::{WireConfig, wire};
/// use std::time::Duration;
///
/// let (left, right) = wire(WireConfig::default());
/// let satellite = Impairment { delay: Duration::from_millis(270), loss: 0.01, ..Impairment::default() };
/// let left = Impaired::new(
///     left,
///     &ImpairConfig { receive: satellite, transmit: satellite, seed: 1 },
/// );
/// ```
pub struct Impaired<D> {
    device: D,
    inward: Direction,
    outward: Direction,
    /// From the device, not yet impaired.
    arrived: PacketQueue,
    /// Impaired and due, not yet taken by the device.
    departing: PacketQueue,
}

impl<D: Device> Impaired<D> {
    /// Puts `device` behind a link as in `config`.
    pub fn new(device: D, config: &ImpairConfig) -> Self {
        let mut seeds = Random::new(config.seed);
        Self {
            device,
            inward: Direction::new(config.receive, Random::new(seeds.next_u64())),
            outward: Direction::new(config.transmit, Random::new(seeds.next_u64())),
            arrived: PacketQueue::new(),
            departing: PacketQueue::new(),
        }
    }

    /// What has happened to what came into the stack.
    pub fn receive_stats(&self) -> ImpairStats {
        self.inward.stats
    }

    /// What has happened to what the stack sent.
    pub fn transmit_stats(&self) -> ImpairStats {
        self.outward.stats
    }
}

impl<D: Device> Device for Impaired<D> {
    fn mtu(&self) -> u32 {
        self.device.mtu()
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let taken = self.device.receive(now, cache, &mut self.arrived, budget);
        while let Some(packet) = self.arrived.pop() {
            self.inward.admit(now, packet, cache);
        }
        let released = self.inward.release(now, out, budget);
        // There may be more to take in, or to release.
        Ok(taken?.max(released))
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        while let Some(packet) = packets.pop() {
            self.outward.admit(now, packet, cache);
        }
        if self.departing.is_empty() {
            self.outward.release(now, &mut self.departing, usize::MAX);
        }
        self.device.transmit(now, &mut self.departing, cache)
    }

    fn next_event(&self) -> Option<Instant> {
        // While the device takes no more, being due is no reason to try.
        let outward = self
            .outward
            .next_event()
            .filter(|_| self.departing.is_empty());
        [self.inward.next_event(), outward, self.device.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.fds(fds);
    }

    fn set_waker(&mut self, waker: Waker) {
        self.device.set_waker(waker);
    }

    fn stats(&self) -> DeviceStats {
        let mut stats = self.device.stats();
        stats.rx_dropped += self.inward.dropped();
        stats.tx_dropped += self.outward.dropped();
        stats
    }
}
