//! One direction of a bad link.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::time::Duration;

use forebay_stack::packet::ChecksumState;
use forebay_stack::random::Random;

use super::{ImpairStats, Impairment};
use crate::device::{Instant, Packet, PacketCache, PacketQueue, frame};

pub(super) struct Direction {
    config: Impairment,
    random: Random,
    /// The link is bad: see [`Burst`](super::Burst).
    is_bad: bool,
    /// When the last packet will have left at the configured rate.
    busy_until: Instant,
    /// Packets under way, the one that is due next on top.
    held: BinaryHeap<Held>,
    held_bytes: usize,
    /// Packets ever held: orders those that are due at the same time.
    sequence: u64,
    pub(super) stats: ImpairStats,
}

impl Direction {
    pub(super) fn new(config: Impairment, random: Random) -> Self {
        Self {
            config,
            random,
            is_bad: false,
            busy_until: Instant::ZERO,
            held: BinaryHeap::new(),
            held_bytes: 0,
            sequence: 0,
            stats: ImpairStats::default(),
        }
    }

    /// A packet enters the link.
    pub(super) fn admit(&mut self, now: Instant, packet: Packet, cache: &mut PacketCache) {
        if self.is_lost() {
            self.stats.lost += 1;
            cache.free(packet);
            return;
        }
        if chance(&mut self.random, self.config.duplicate)
            && let Some(copy) = frame::copy(cache, &packet)
        {
            self.stats.duplicated += 1;
            self.hold(now, copy, cache);
        }
        self.hold(now, packet, cache);
    }

    /// Up to `max` packets that are due leave the link. Returns how many.
    pub(super) fn release(&mut self, now: Instant, out: &mut PacketQueue, max: usize) -> usize {
        let mut released = 0;
        while released < max && self.next_event().is_some_and(|due| due <= now) {
            let Some(held) = self.held.pop() else { break };
            self.held_bytes -= held.packet.truesize();
            out.push(held.packet);
            released += 1;
        }
        released
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        self.held.peek().map(|held| held.due)
    }

    /// Packets that went in and will not come out.
    pub(super) fn dropped(&self) -> u64 {
        self.stats.lost + self.stats.overflowed
    }

    fn is_lost(&mut self) -> bool {
        let Some(burst) = self.config.burst else {
            return chance(&mut self.random, self.config.loss);
        };
        let turns = if self.is_bad { burst.end } else { burst.begin };
        self.is_bad ^= chance(&mut self.random, turns);
        let loss = if self.is_bad {
            burst.loss
        } else {
            self.config.loss
        };
        chance(&mut self.random, loss)
    }

    fn hold(&mut self, now: Instant, mut packet: Packet, cache: &mut PacketCache) {
        if self.held_bytes >= self.config.limit {
            self.stats.overflowed += 1;
            cache.free(packet);
            return;
        }
        if chance(&mut self.random, self.config.corrupt) {
            self.stats.corrupted += 1;
            if packet.gso.is_some() {
                // Its checksums are still to be made, and would be right.
                self.stats.lost += 1;
                cache.free(packet);
                return;
            }
            self.corrupt(&mut packet);
        }
        let due = self.leave(now, packet.total_len()) + self.delay();
        self.held_bytes += packet.truesize();
        self.sequence += 1;
        self.held.push(Held {
            due,
            sequence: self.sequence,
            packet,
        });
    }

    fn corrupt(&mut self, packet: &mut Packet) {
        let bit = draw(&mut self.random, packet.total_len() as u64 * 8);
        turn_bit(packet, bit);
        packet.checksum = ChecksumState::None;
    }

    /// When the last bit of a packet of `len` bytes that comes now has left at the configured rate.
    fn leave(&mut self, now: Instant, len: usize) -> Instant {
        let Some(rate) = self.config.rate else {
            return now;
        };
        self.busy_until = self.busy_until.max(now) + time_to_send(len, rate);
        self.busy_until
    }

    fn delay(&mut self) -> Duration {
        let Impairment {
            delay,
            jitter,
            reorder,
            ..
        } = self.config;
        if chance(&mut self.random, reorder) {
            self.stats.reordered += 1;
            return Duration::ZERO;
        }
        let least = delay.saturating_sub(jitter);
        let span = delay.saturating_add(jitter) - least;
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        least.saturating_add(Duration::from_nanos(draw(
            &mut self.random,
            nanos.saturating_add(1),
        )))
    }
}

/// A packet under way.
struct Held {
    due: Instant,
    sequence: u64,
    packet: Packet,
}

impl Ord for Held {
    /// The greatest is the one that is due first: a [`BinaryHeap`] has that on top.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

/// Whether what has this probability happens.
fn chance(random: &mut Random, probability: f64) -> bool {
    // 53 bits are what a double holds: a number from 0 to just below 1.
    ((random.next_u64() >> 11) as f64) * f64::powi(2.0, -53) < probability
}

/// A number below `bound`, or 0.
fn draw(random: &mut Random, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// Rounded up, so that the rate is never exceeded.
fn time_to_send(len: usize, rate: NonZeroU64) -> Duration {
    let nanos = (len as u128 * 8 * 1_000_000_000).div_ceil(u128::from(rate.get()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Turns over bit number `bit` of the packet, counted from its front.
fn turn_bit(packet: &mut Packet, bit: u64) {
    let mut at = (bit / 8) as usize;
    let mut is_done = false;
    packet.for_each_chunk_mut(|chunk| match chunk.get_mut(at) {
        Some(byte) if !is_done => {
            *byte ^= 1 << (bit % 8);
            is_done = true;
        }
        _ => at = at.saturating_sub(chunk.len()),
    });
}
