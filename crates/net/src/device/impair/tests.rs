use super::*;
use crate::device::testing::{bytes, packet};
use crate::device::wire::{WireConfig, WireEnd, wire};
use crate::device::{ChecksumState, Gso, GsoKind, PacketPool};
use std::num::NonZeroU16;

/// An impaired wire: what is sent into it, and what comes out at the far end and when.
struct Link {
    near: Impaired<WireEnd>,
    far: WireEnd,
    pool: PacketPool,
    cache: PacketCache,
    now: Instant,
    /// Nanoseconds, and the packet.
    arrivals: Vec<(u64, Vec<u8>)>,
}

impl Link {
    fn new(transmit: Impairment, seed: u64) -> Self {
        let (near, far) = wire(WireConfig {
            mtu: 65_535,
            ..WireConfig::default()
        });
        let config = ImpairConfig {
            transmit,
            seed,
            ..ImpairConfig::default()
        };
        let pool = PacketPool::new(4_096);
        let cache = pool.cache();
        let near = Impaired::new(near, &config);
        Self {
            near,
            far,
            pool,
            cache,
            now: Instant::ZERO,
            arrivals: Vec::new(),
        }
    }

    /// Sends packet number `number`, of `len` bytes, now.
    fn send(&mut self, number: u32, len: usize) {
        let mut bytes = vec![0; len];
        bytes[0] = 0x45;
        bytes[1..5].copy_from_slice(&number.to_be_bytes());
        let mut packets = PacketQueue::new();
        packets.push(packet(&mut self.cache, &bytes));
        self.transmit(&mut packets);
    }

    fn transmit(&mut self, packets: &mut PacketQueue) {
        let Self {
            near,
            far,
            cache,
            now,
            arrivals,
            ..
        } = self;
        near.transmit(*now, packets, cache)
            .expect("a wire never fails");
        assert!(packets.is_empty());
        let mut out = PacketQueue::new();
        far.receive(*now, cache, &mut out, usize::MAX)
            .expect("a wire never fails");
        while let Some(packet) = out.pop() {
            arrivals.push((now.as_nanos(), bytes(&packet)));
            cache.free(packet);
        }
    }

    /// Lets `step` pass between packets of 100 bytes.
    fn send_all(&mut self, packets: u32, step: Duration) {
        for number in 0..packets {
            self.run_until(self.now + step);
            self.send(number, 100);
        }
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(next) = self.near.next_event().filter(|&next| next <= end) {
            assert!(next > self.now, "what was due has left");
            self.now = next;
            self.transmit(&mut PacketQueue::new());
        }
        self.now = end;
    }

    fn drain(&mut self) {
        self.run_until(self.now + Duration::from_secs(3_600));
        assert_eq!(self.near.next_event(), None);
    }

    fn numbers(&self) -> Vec<u32> {
        let number = |(_, bytes): &(u64, Vec<u8>)| {
            u32::from_be_bytes(bytes[1..5].try_into().expect("four bytes"))
        };
        self.arrivals.iter().map(number).collect()
    }
}

const MILLIS: Duration = Duration::from_millis(1);

fn millis(arrivals: &[(u64, Vec<u8>)]) -> Vec<u64> {
    arrivals
        .iter()
        .map(|(nanos, _)| nanos / 1_000_000)
        .collect()
}

#[test]
fn nothing_happens_unless_set() {
    let mut link = Link::new(Impairment::default(), 1);
    link.send_all(1_000, MILLIS);
    assert_eq!(link.near.next_event(), None, "packets pass at once");
    assert_eq!(link.numbers(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(millis(&link.arrivals), (1..=1_000).collect::<Vec<_>>());
    assert_eq!(link.near.transmit_stats(), ImpairStats::default());
}

#[test]
fn each_impairment_is_as_frequent_as_asked_for() {
    // The standard deviation is 30.
    let is_near = |count: u64| (900..1_100).contains(&count);
    let all = |impairment| {
        let mut link = Link::new(impairment, 2);
        link.send_all(10_000, MILLIS);
        link.drain();
        let arrived = link.arrivals.len() as u64;
        (link.near.transmit_stats(), arrived, link)
    };

    let (stats, arrived, link) = all(Impairment {
        loss: 0.1,
        ..Impairment::default()
    });
    assert!(is_near(stats.lost), "{stats:?}");
    assert_eq!(arrived, 10_000 - stats.lost);
    assert_eq!(link.near.stats().tx_dropped, stats.lost);

    let (stats, arrived, link) = all(Impairment {
        duplicate: 0.1,
        ..Impairment::default()
    });
    assert!(is_near(stats.duplicated), "{stats:?}");
    assert_eq!(arrived, 10_000 + stats.duplicated);
    assert!(link.numbers().is_sorted());

    let (stats, arrived, link) = all(Impairment {
        corrupt: 0.1,
        ..Impairment::default()
    });
    assert!(is_near(stats.corrupted), "{stats:?}");
    assert_eq!(
        10_000 - arrived,
        link.near.stats().tx_errors,
        "the wire takes no version 5"
    );

    let delay = 10 * MILLIS;
    let (stats, arrived, link) = all(Impairment {
        reorder: 0.1,
        delay,
        ..Impairment::default()
    });
    assert!(is_near(stats.reordered), "{stats:?}");
    assert_eq!(arrived, 10_000);
    let numbers = link.numbers();
    let overtaking = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    assert!((800..1_100).contains(&overtaking), "{overtaking}");
}

#[test]
fn a_packet_that_is_corrupted_is_off_by_one_bit_and_not_believed() {
    let mut link = Link::new(
        Impairment {
            corrupt: 1.0,
            ..Impairment::default()
        },
        3,
    );
    for len in [20, 2_000, 9_000] {
        let mut packets = PacketQueue::new();
        let mut held = PacketQueue::new();
        let mut sent = packet(&mut link.cache, &vec![0x45; len]);
        sent.checksum = ChecksumState::Verified;
        link.near
            .outward
            .admit(Instant::ZERO, sent, &mut link.cache);
        link.near.outward.release(Instant::ZERO, &mut held, 1);
        let corrupted = held.pop().expect("it is not delayed");
        assert_eq!(corrupted.checksum, ChecksumState::None);
        let bits = bytes(&corrupted)
            .iter()
            .map(|byte| (byte ^ 0x45).count_ones())
            .sum::<u32>();
        assert_eq!(bits, 1);

        let mut large = packet(&mut link.cache, &vec![0x45; len]);
        large.gso = NonZeroU16::new(1_000).map(|size| Gso::new(size, GsoKind::Udp));
        packets.push(large);
        link.transmit(&mut packets);
    }
    assert_eq!(
        (
            link.near.transmit_stats().corrupted,
            link.near.transmit_stats().lost
        ),
        (6, 3)
    );
    assert!(link.arrivals.is_empty());
}

#[test]
fn loss_in_bursts() {
    let burst = Burst {
        begin: 0.01,
        end: 0.25,
        loss: 1.0,
    };
    let mut link = Link::new(
        Impairment {
            burst: Some(burst),
            ..Impairment::default()
        },
        4,
    );
    link.send_all(50_000, MILLIS);
    let numbers = link.numbers();
    let lost = 50_000 - numbers.len();
    let bursts = numbers
        .windows(2)
        .filter(|pair| pair[1] != pair[0] + 1)
        .count();
    // In the long run the link is bad for begin / (begin + end) of the packets, and for 1 / end of
    // them in a row.
    assert!((1_600..2_250).contains(&lost), "{lost}");
    let mean = lost as f64 / bursts as f64;
    assert!((3.5..4.5).contains(&mean), "{mean}");
}

#[test]
fn a_delay_keeps_the_order_and_jitter_its_bounds() {
    let delay = 50 * MILLIS;
    let mut link = Link::new(
        Impairment {
            delay,
            ..Impairment::default()
        },
        5,
    );
    link.send_all(100, MILLIS);
    link.drain();
    assert_eq!(link.numbers(), (0..100).collect::<Vec<_>>());
    assert_eq!(millis(&link.arrivals), (51..151).collect::<Vec<_>>());

    let jitter = 20 * MILLIS;
    let mut link = Link::new(
        Impairment {
            delay,
            jitter,
            ..Impairment::default()
        },
        5,
    );
    link.send_all(1_000, MILLIS);
    link.drain();
    let delays: Vec<u64> = link
        .numbers()
        .iter()
        .zip(&link.arrivals)
        .map(|(number, (nanos, _))| nanos - (u64::from(*number) + 1) * 1_000_000)
        .collect();
    assert_eq!(delays.len(), 1_000);
    let (least, most) = (30_000_000, 70_000_000);
    assert!(delays.iter().all(|delay| (least..=most).contains(delay)));
    assert!(delays.iter().any(|&delay| delay < least + 1_000_000));
    assert!(delays.iter().any(|&delay| delay > most - 1_000_000));
    let mean = delays.iter().sum::<u64>() / 1_000;
    assert!((48_000_000..52_000_000).contains(&mean), "{mean}");
    assert!(!link.numbers().is_sorted());

    let mut link = Link::new(
        Impairment {
            jitter,
            ..Impairment::default()
        },
        5,
    );
    link.send_all(100, MILLIS);
    link.drain();
    assert_eq!(link.arrivals.len(), 100, "a delay is never negative");
}

#[test]
fn a_seed_repeats_a_run() {
    let run = |seed| {
        let bad = Impairment {
            loss: 0.05,
            burst: Some(Burst {
                begin: 0.01,
                end: 0.3,
                loss: 0.8,
            }),
            delay: 10 * MILLIS,
            jitter: 5 * MILLIS,
            reorder: 0.02,
            duplicate: 0.03,
            corrupt: 0.04,
            rate: NonZeroU64::new(500_000),
            limit: 40_000,
        };
        let mut link = Link::new(bad, seed);
        link.send_all(2_000, MILLIS);
        link.drain();
        (link.arrivals, link.near.transmit_stats())
    };
    assert_eq!(run(6), run(6));
    assert_ne!(run(6), run(7));
}

#[test]
fn a_rate_is_kept_and_its_queue_bounded() {
    // 125 bytes are 1,000 bits, and take 1 ms.
    let rate = NonZeroU64::new(1_000_000);
    let mut link = Link::new(
        Impairment {
            rate,
            ..Impairment::default()
        },
        8,
    );
    (0..50).for_each(|number| link.send(number, 125));
    link.drain();
    assert_eq!(millis(&link.arrivals), (1..=50).collect::<Vec<_>>());
    assert_eq!(link.numbers(), (0..50).collect::<Vec<_>>());

    // Nothing is saved up while the link is idle.
    link.arrivals.clear();
    let start = link.now.as_nanos();
    (0..2).for_each(|number| link.send(number, 125));
    link.drain();
    let times: Vec<u64> = link
        .arrivals
        .iter()
        .map(|(nanos, _)| nanos - start)
        .collect();
    assert_eq!(times, [1_000_000, 2_000_000]);

    let one = packet(&mut link.cache, &[0x45]).truesize();
    let limit = 10 * one;
    let mut link = Link::new(
        Impairment {
            rate,
            limit,
            ..Impairment::default()
        },
        8,
    );
    (0..50).for_each(|number| link.send(number, 125));
    assert_eq!(link.near.transmit_stats().overflowed, 40);
    link.drain();
    assert_eq!(link.numbers(), (0..10).collect::<Vec<_>>());
    assert_eq!(link.near.stats().tx_dropped, 40);

    // Three times what the rate lets through.
    let mut link = Link::new(
        Impairment {
            rate,
            limit,
            ..Impairment::default()
        },
        8,
    );
    for number in 0..3_000 {
        link.run_until(link.now + MILLIS / 3);
        link.send(number, 125);
    }
    link.drain();
    assert!(
        (1_000..=1_011).contains(&link.arrivals.len()),
        "{}",
        link.arrivals.len()
    );
    let spaced = link
        .arrivals
        .windows(2)
        .all(|pair| pair[1].0 - pair[0].0 >= 1_000_000);
    assert!(spaced);
    link.cache.flush();
    assert_eq!(link.pool.in_use(), 0);
}

#[test]
fn both_directions_are_impaired_on_their_own() {
    let (near, mut far) = wire(WireConfig::default());
    let delayed = Impairment {
        delay: MILLIS,
        ..Impairment::default()
    };
    let config = ImpairConfig {
        receive: delayed,
        ..ImpairConfig::default()
    };
    let mut near = Impaired::new(near, &config);
    let mut cache = PacketPool::new(64).cache();
    let (mut packets, mut out) = (PacketQueue::new(), PacketQueue::new());
    for i in 0..5 {
        packets.push(packet(&mut cache, &[0x45, i]));
    }
    far.transmit(Instant::ZERO, &mut packets, &mut cache)
        .expect("a wire never fails");
    let later = Instant::ZERO + MILLIS;
    let mut receive = |now, budget| {
        let taken = near
            .receive(now, &mut cache, &mut out, budget)
            .expect("a wire never fails");
        (taken, out.len(), near.next_event())
    };
    assert_eq!(
        receive(Instant::ZERO, 3),
        (3, 0, Some(later)),
        "more may wait"
    );
    assert_eq!(receive(Instant::ZERO, 3), (2, 0, Some(later)));
    assert_eq!(receive(later, 3), (3, 3, Some(later)));
    assert_eq!(receive(later, 3), (2, 5, None));
    assert!(out.iter().map(|packet| packet.data()[1]).eq(0..5));
}

#[test]
fn a_device_that_takes_no_more_is_waited_for() {
    let (near, mut far) = wire(WireConfig {
        queue: 1,
        ..WireConfig::default()
    });
    let mut near = Impaired::new(near, &ImpairConfig::default());
    let mut cache = PacketPool::new(64).cache();
    let mut packets = PacketQueue::new();
    let mut out = PacketQueue::new();
    for i in 0..3 {
        packets.push(packet(&mut cache, &[0x45, i]));
        near.transmit(Instant::ZERO, &mut packets, &mut cache)
            .expect("a wire never fails");
        assert_eq!(near.next_event(), None, "the wire wakes");
    }
    for _ in 0..3 {
        far.receive(Instant::ZERO, &mut cache, &mut out, 64)
            .expect("a wire never fails");
        near.transmit(Instant::ZERO, &mut packets, &mut cache)
            .expect("a wire never fails");
    }
    assert!(out.iter().map(|packet| packet.data()[1]).eq(0..3));
}
