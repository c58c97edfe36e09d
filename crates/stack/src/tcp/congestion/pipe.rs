//! A path for tests: a bottleneck with a queue, and a sender that always has something to send.
//!
//! Packets stay in order, and the sender learns of a loss from the third packet that comes behind
//! it. What is lost is not sent again but counted: for windows it makes no difference.

use core::time::Duration;
use std::collections::VecDeque;

use super::{AckSample, Congestion, CongestionControl as _, RateSample};
use crate::tcp::pacing::{Load, Pacer};
use crate::time::Instant;

const PACKET: u64 = 1500;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pipe {
    /// Bytes a second.
    pub(super) rate: u64,
    /// A round trip without a queue.
    pub(super) delay: Duration,
    /// Packets.
    pub(super) queue: usize,
    pub(super) lose_one_in: Option<u64>,
}

pub(super) struct Flow {
    pub(super) congestion: Congestion,
    pub(super) now: Instant,
    /// Packets, since the last `measure`.
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// Sum of round trips of what was delivered.
    rtts: Duration,
    pub(super) pipe: Pipe,
    pacer: Pacer,
    packets: VecDeque<Packet>,
    sent: u64,
    /// The link is busy until then.
    link_free: Instant,
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
    recovery_until: Option<u64>,
    total: u64,
    total_at: Instant,
    first_sent_at: Instant,
    measured_from: Instant,
}

struct Packet {
    number: u64,
    sent_at: Instant,
    /// `None`: lost.
    acked_at: Option<Instant>,
    prior_delivered: u64,
    prior_delivered_at: Instant,
    first_sent_at: Instant,
}

impl Pipe {
    pub(super) fn flow(self, congestion: Congestion) -> Flow {
        let start = Instant::from_nanos(1_000_000_000);
        Flow {
            congestion,
            now: start,
            delivered: 0,
            lost: 0,
            rtts: Duration::ZERO,
            pipe: self,
            pacer: Pacer::new(start),
            packets: VecDeque::new(),
            sent: 0,
            link_free: start,
            srtt: None,
            min_rtt: None,
            recovery_until: None,
            total: 0,
            total_at: start,
            first_sent_at: start,
            measured_from: start,
        }
    }
}

impl Flow {
    /// Runs for `time` and counts anew.
    pub(super) fn measure(&mut self, time: Duration) {
        (self.delivered, self.lost, self.rtts) = (0, 0, Duration::ZERO);
        self.measured_from = self.now;
        self.run(time);
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let next_send = self.send();
            let next_ack = self.packets.iter().find_map(|it| it.acked_at);
            let next = match (next_send, next_ack) {
                (Some(send), Some(ack)) => send.min(ack),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => {
                    self.time_out();
                    continue;
                }
            };
            self.now = self.now.max(next);
            if next_ack.is_some_and(|at| at <= self.now) {
                self.take_ack();
            }
        }
    }

    /// Bytes a second that came since `measure`.
    pub(super) fn throughput(&self) -> u64 {
        let millis = (self.now - self.measured_from).as_millis() as u64;
        self.delivered * PACKET * 1000 / millis
    }

    /// The mean round trip since `measure`.
    pub(super) fn mean_rtt(&self) -> Duration {
        self.rtts / self.delivered as u32
    }

    /// Sends what may leave now. Returns when it goes on, if the pace is what stops it.
    fn send(&mut self) -> Option<Instant> {
        let is_paced = self.pacer.is_on(&self.congestion);
        while (self.packets.len() as u32) < self.congestion.cwnd() {
            if is_paced && self.pacer.earliest() > self.now {
                return Some(self.pacer.earliest());
            }
            self.send_one();
            let load = Load {
                packets_out: self.packets.len() as u32,
                mss: PACKET as u32,
                srtt: self.srtt,
                ss_ratio: 200,
                ca_ratio: 120,
            };
            if let Some(rate) = self.pacer.rate(&self.congestion, &load) {
                self.pacer.sent(self.now, PACKET as u32, rate);
            }
        }
        None
    }

    fn send_one(&mut self) {
        if self.packets.is_empty() {
            self.first_sent_at = self.now;
            self.total_at = self.now;
        }
        let takes = Duration::from_nanos(PACKET * 1_000_000_000 / self.pipe.rate);
        let waiting = (self.link_free - self.now).as_nanos() / takes.as_nanos();
        self.sent += 1;
        let is_unlucky = self.pipe.lose_one_in.is_some_and(|n| {
            // Scattered, but the same each time.
            self.sent
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23)
                .is_multiple_of(n)
        });
        let acked_at = (!is_unlucky && waiting <= self.pipe.queue as u128).then(|| {
            self.link_free = self.link_free.max(self.now) + takes;
            self.link_free + self.pipe.delay
        });
        self.packets.push_back(Packet {
            number: self.sent,
            sent_at: self.now,
            acked_at,
            prior_delivered: self.total,
            prior_delivered_at: self.total_at,
            first_sent_at: self.first_sent_at,
        });
    }

    fn take_ack(&mut self) {
        let in_flight = self.packets.len() as u32;
        let Some(place) = self.packets.iter().position(|it| it.acked_at.is_some()) else {
            return;
        };
        let packet = self.packets.remove(place).unwrap();
        let before = self.packets.len();
        self.packets
            .retain(|it| it.acked_at.is_some() || it.number + 3 > packet.number);
        let losses = (before - self.packets.len()) as u32;
        self.lost += u64::from(losses);
        self.delivered += 1;
        self.total += 1;
        self.total_at = self.now;

        let rtt = self.now - packet.sent_at;
        self.rtts += rtt;
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        if self
            .recovery_until
            .is_some_and(|end| packet.number > end + 3)
        {
            self.recovery_until = None;
        }
        let sets_window = !self.congestion.wants_pacing();
        if losses > 0 && self.recovery_until.is_none() {
            self.recovery_until = Some(self.sent);
            let ssthresh = self.congestion.ssthresh_after_loss(self.now);
            if sets_window {
                self.congestion.set_cwnd(ssthresh);
            }
        }
        let interval =
            (packet.sent_at - packet.first_sent_at).max(self.now - packet.prior_delivered_at);
        self.first_sent_at = packet.sent_at;
        let delivered = self.total - packet.prior_delivered;
        let rate = RateSample {
            bytes_per_sec: (u128::from(delivered * PACKET) * 1_000_000_000 / interval.as_nanos())
                as u64,
            interval,
            is_app_limited: false,
            delivered,
            prior_delivered: packet.prior_delivered,
            losses,
        };
        if self.recovery_until.is_none() || !sets_window {
            self.congestion.on_ack(&AckSample {
                now: self.now,
                acked: 1,
                in_flight,
                rtt: Some(rtt),
                min_rtt: self.min_rtt,
                srtt: self.srtt,
                mss: PACKET as u32,
                rate: Some(rate),
                is_cwnd_limited: true,
                in_recovery: self.recovery_until.is_some(),
            });
        }
    }

    fn time_out(&mut self) {
        self.now += Duration::from_secs(1);
        self.lost += self.packets.len() as u64;
        self.packets.clear();
        self.recovery_until = None;
        self.congestion.ssthresh_after_loss(self.now);
        self.congestion.on_rto(self.now);
        self.congestion.set_cwnd(1);
    }
}
