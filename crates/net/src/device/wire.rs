//! A wire: two ends in memory, full duplex and bounded, to join two stacks (or a stack and a test).

use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::{Device, DeviceStats, Instant, Offload, Packet, PacketCache, PacketQueue, frame};

/// What a wire is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireConfig {
    /// Largest IP packet that goes through, in bytes. 1,500 unless set.
    pub mtu: u32,
    /// Bytes of packet memory that may wait in each direction; as long as fewer do, one more packet
    /// is taken. 2 MiB unless set: about a thousand packets of one buffer each.
    pub queue: usize,
    /// What the sender may leave to the other end. Nothing unless set: packets then look as they
    /// would on a real wire.
    pub offload: Offload,
    /// Whether packets arrive in the sender's buffers. Right for two ends on one pool, where it
    /// saves the copy. Between two pools it would let one stack's unread sockets hold the buffers
    /// that the other needs to receive, so they are copied unless this is set.
    pub share_buffers: bool,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            mtu: 1_500,
            queue: 2 << 20,
            offload: Offload::default(),
            share_buffers: false,
        }
    }
}

/// A wire and its two ends.
///
/// ```
/// use forebay::device::wire::{WireConfig, wire};
/// use forebay::device::{Device, Instant, PacketPool, PacketQueue};
///
/// let (mut left, mut right) = wire(WireConfig::default());
/// let mut cache = PacketPool::new(64).cache();
/// let mut packets = PacketQueue::new();
/// let mut packet = cache.alloc().expect("a fresh pool has buffers");
/// packet.put(1).expect("a fresh buffer has room").fill(0x45);
/// packets.push(packet);
///
/// left.transmit(Instant::ZERO, &mut packets, &mut cache)?;
/// assert_eq!(right.receive(Instant::ZERO, &mut cache, &mut packets, 64)?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wire(config: WireConfig) -> (WireEnd, WireEnd) {
    let (there, back) = (Arc::<Lane>::default(), Arc::<Lane>::default());
    let end = |outward: &Arc<Lane>, inward: &Arc<Lane>| WireEnd {
        config,
        outward: Arc::clone(outward),
        inward: Arc::clone(inward),
        stats: DeviceStats::default(),
    };
    (end(&there, &back), end(&back, &there))
}

/// One end of a [`wire`]. When it is dropped, what the other one sends is lost.
pub struct WireEnd {
    config: WireConfig,
    outward: Arc<Lane>,
    inward: Arc<Lane>,
    stats: DeviceStats,
}

impl Device for WireEnd {
    fn mtu(&self) -> u32 {
        self.config.mtu
    }

    fn offload(&self) -> Offload {
        self.config.offload
    }

    fn receive(
        &mut self,
        _now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let mut arrived = self.inward.take(budget, self.config.queue);
        let taken = arrived.len();
        while let Some(packet) = arrived.pop() {
            let Some(packet) = self.arrive(packet, cache) else {
                self.stats.rx_dropped += 1;
                continue;
            };
            self.stats.received(packet.total_len());
            out.push(packet);
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        let mut state = self.outward.lock();
        let was_empty = state.packets.is_empty();
        while state.closed || state.packets.bytes() < self.config.queue {
            let Some(packet) = packets.pop() else { break };
            if frame::check(&packet, self.config.mtu).is_err() {
                self.stats.tx_errors += 1;
                cache.free(packet);
            } else if state.closed {
                self.stats.tx_dropped += 1;
                cache.free(packet);
            } else {
                self.stats.sent(packet.total_len());
                state.packets.push(packet);
            }
        }
        state.is_blocked = !packets.is_empty();
        let has_arrived = was_empty && !state.packets.is_empty();
        let receiver = state.receiver.clone().filter(|_| has_arrived);
        drop(state);
        wake(receiver);
        Ok(())
    }

    fn set_waker(&mut self, waker: Waker) {
        self.inward.lock().receiver = Some(waker.clone());
        self.outward.lock().sender = Some(waker);
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl WireEnd {
    /// What comes out at this end of a packet that the other end sent.
    fn arrive(&self, mut packet: Packet, cache: &mut PacketCache) -> Option<Packet> {
        if self.config.share_buffers {
            *packet = frame::on_the_wire(&packet);
            return Some(packet);
        }
        let copy = frame::copy(cache, &packet);
        cache.free(packet);
        copy
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        self.inward.close();
    }
}

/// One direction.
#[derive(Default)]
struct Lane(Mutex<LaneState>);

#[derive(Default)]
struct LaneState {
    packets: PacketQueue,
    /// Nobody receives any more.
    closed: bool,
    /// The sender has packets left that did not fit.
    is_blocked: bool,
    /// Woken when packets arrive where none were.
    receiver: Option<Waker>,
    /// Woken when a blocked sender can go on.
    sender: Option<Waker>,
}

impl Lane {
    /// Takes up to `max` packets; a sender that is blocked goes on when fewer than `limit` bytes
    /// are left.
    fn take(&self, max: usize, limit: usize) -> PacketQueue {
        let mut taken = PacketQueue::new();
        let mut state = self.lock();
        while taken.len() < max {
            let Some(packet) = state.packets.pop() else {
                break;
            };
            taken.push(packet);
        }
        let goes_on = state.is_blocked && state.packets.bytes() < limit;
        state.is_blocked &= !goes_on;
        let sender = state.sender.clone().filter(|_| goes_on);
        drop(state);
        wake(sender);
        taken
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let lost = take(&mut state.packets);
        let sender = state.sender.take();
        drop(state);
        drop(lost);
        wake(sender);
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        // Nothing under this lock is half done when something panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes after the lock is released: the woken one may want it at once.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Wakes, packet};
    use crate::device::{ChecksumState, Gso, GsoKind, PacketPool};
    use std::num::NonZeroU16;

    const NOW: Instant = Instant::ZERO;

    fn receive(end: &mut WireEnd, cache: &mut PacketCache, budget: usize) -> Vec<Vec<u8>> {
        let mut out = PacketQueue::new();
        let taken = end
            .receive(NOW, cache, &mut out, budget)
            .expect("a wire never fails");
        assert!(taken <= budget);
        out.iter()
            .map(|packet| packet.chunks().collect::<Vec<_>>().concat())
            .collect()
    }

    #[test]
    fn packets_arrive_whole_and_in_order() {
        for share_buffers in [false, true] {
            let (mut left, mut right) = wire(WireConfig {
                share_buffers,
                mtu: 9_000,
                ..WireConfig::default()
            });
            let pool = PacketPool::new(1024);
            let mut cache = pool.cache();
            let sent: Vec<Vec<u8>> = (0..100_u8)
                .map(|i| [&[0x45, i][..], &vec![i; usize::from(i) * 50]].concat())
                .collect();
            let mut packets = PacketQueue::new();
            sent.iter()
                .for_each(|bytes| packets.push(packet(&mut cache, bytes)));
            left.transmit(NOW, &mut packets, &mut cache)
                .expect("a wire never fails");
            assert!(packets.is_empty());

            let mut received = receive(&mut right, &mut cache, 64);
            assert_eq!(received.len(), 64);
            received.extend(receive(&mut right, &mut cache, 64));
            assert_eq!(received, sent);
            assert!(
                receive(&mut left, &mut cache, 64).is_empty(),
                "the other direction is another"
            );

            let bytes = sent.iter().map(Vec::len).sum::<usize>() as u64;
            assert_eq!(
                (left.stats().tx_packets, left.stats().tx_bytes),
                (100, bytes)
            );
            assert_eq!(
                (right.stats().rx_packets, right.stats().rx_bytes),
                (100, bytes)
            );
            drop((left, right));
            cache.flush();
            assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn a_full_wire_leaves_the_rest_and_wakes_the_sender() {
        let (sender_wakes, receiver_wakes) = (Wakes::new(), Wakes::new());
        let one = PacketPool::new(1)
            .cache()
            .alloc()
            .expect("a fresh pool has buffers")
            .truesize();
        let (mut left, mut right) = wire(WireConfig {
            queue: 3 * one,
            ..WireConfig::default()
        });
        left.set_waker(sender_wakes.waker());
        right.set_waker(receiver_wakes.waker());
        let mut cache = PacketPool::new(64).cache();
        let mut packets = PacketQueue::new();
        (0..5).for_each(|i| packets.push(packet(&mut cache, &[0x45, i])));

        left.transmit(NOW, &mut packets, &mut cache)
            .expect("a wire never fails");
        assert_eq!(packets.len(), 2);
        assert_eq!((sender_wakes.take(), receiver_wakes.take()), (0, 1));
        assert_eq!(receive(&mut right, &mut cache, 2), [[0x45, 0], [0x45, 1]]);
        assert_eq!(sender_wakes.take(), 1);
        left.transmit(NOW, &mut packets, &mut cache)
            .expect("a wire never fails");
        assert!(packets.is_empty());
        assert_eq!(receiver_wakes.take(), 0, "it has packets to take still");
        assert_eq!(
            receive(&mut right, &mut cache, 8),
            [[0x45, 2], [0x45, 3], [0x45, 4]]
        );
        assert_eq!(sender_wakes.take(), 0, "it is not blocked");
    }

    #[test]
    fn what_goes_into_a_cut_wire_is_lost_and_counted() {
        let pool = PacketPool::new(64);
        let mut cache = pool.cache();
        let (mut left, right) = wire(WireConfig::default());
        let mut packets = PacketQueue::new();
        packets.push(packet(&mut cache, &[0x45]));
        left.transmit(NOW, &mut packets, &mut cache)
            .expect("a wire never fails");
        drop(right);
        packets.push(packet(&mut cache, &[0x45]));
        packets.push(packet(&mut cache, &[0x75]));
        left.transmit(NOW, &mut packets, &mut cache)
            .expect("a wire never fails");
        assert!(packets.is_empty());
        let stats = left.stats();
        assert_eq!(
            (stats.tx_packets, stats.tx_dropped, stats.tx_errors),
            (1, 1, 1)
        );
        cache.flush();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn only_offloads_travel_with_a_packet() {
        let checksum = ChecksumState::Partial {
            start: 20,
            offset: 16,
        };
        let gso = NonZeroU16::new(1_000).map(|size| Gso::new(size, GsoKind::Tcp { ecn: false }));
        for share_buffers in [false, true] {
            let (mut left, mut right) = wire(WireConfig {
                share_buffers,
                ..WireConfig::default()
            });
            let mut cache = PacketPool::new(64).cache();
            let mut packets = PacketQueue::new();
            let mut big = packet(&mut cache, &[0x45; 4_000]);
            big.checksum = checksum;
            big.gso = gso;
            big.iif = 7;
            big.l4_offset = 20;
            packets.push(big);
            let mut verified = packet(&mut cache, &[0x45; 40]);
            verified.checksum = ChecksumState::Verified;
            packets.push(verified);
            packets.push(packet(&mut cache, &[0x45; 1_501]));
            left.transmit(NOW, &mut packets, &mut cache)
                .expect("a wire never fails");
            assert_eq!(
                left.stats().tx_errors,
                1,
                "longer than the MTU and not to be segmented"
            );

            right
                .receive(NOW, &mut cache, &mut packets, 64)
                .expect("a wire never fails");
            let big = packets.pop().expect("the first arrives");
            assert_eq!(
                (big.checksum, big.gso, big.iif, big.l4_offset),
                (checksum, gso, 0, 0)
            );
            let verified = packets.pop().expect("the second arrives");
            assert_eq!(verified.checksum, ChecksumState::None);
            assert!(packets.is_empty());
        }
    }
}
