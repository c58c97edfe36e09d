//! Everything about bytes that go out: what is sent when, how often, and when to give up.
//!
//! [`Sender`] is a pure state machine. It knows no packets: [`Sender::poll`] says what may leave
//! now, and takes it for sent; [`Sender::on_ack`] takes in what the peer says; between the two,
//! [`Sender::deadline`] tells when [`Sender::on_timeout`] wants to be called. After each of these,
//! and after [`Sender::write`], `poll` until it returns `None`.
//!
//! | | |
//! |---|---|
//! | [`output`] | what may leave: windows, Nagle, retransmissions ahead of new bytes |
//! | [`ack`] | what an acknowledgement says |
//! | [`sack`] | what has come out of order, and twice |
//! | [`scoreboard`] | what is known of each piece that was sent |
//! | [`rack`] | which pieces are lost, by time; the probe of a silent tail |
//! | [`recovery`] | how the connection goes about loss |
//! | [`undo`] | and takes that back if there was none |
//! | [`timers`] | timeouts, backoff, probes of a closed window, giving up |
//! | [`rate`] | how fast the path delivers |
//! | [`path`] | how large a segment may be |
//!
//! As on Linux, congestion windows and all that is compared with them count packets of one segment.

use std::io::IoSlice;

use self::config::Knobs;
use self::path::MtuProbe;
use self::rack::Rack;
use self::rate::Rate;
use self::recovery::Recovery;
use self::scoreboard::Scoreboard;
use self::timers::Timers;
use super::chunks::{ByteQueue, Chunks};
use super::congestion::{Algorithm, Congestion};
use super::pacing::Pacer;
use super::rtt::{MinRtt, RttEstimator};
use crate::time::Instant;
use crate::wire::seq::Seq;

mod ack;
mod config;
mod info;
mod output;
mod path;
mod rack;
mod rate;
mod recovery;
mod sack;
mod scoreboard;
#[cfg(test)]
mod tests;
mod timers;
mod undo;

pub(crate) use ack::{Ack, AckOutcome};
pub(crate) use config::{SenderConfig, SenderKnobs};
pub(crate) use output::{OutKind, OutSegment};
pub(crate) use recovery::CaState;
pub(crate) use timers::TimerKind;

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    /// What was written and not acknowledged; the first byte is `una`'s.
    queue: ByteQueue,
    /// SND.UNA: the first number that is not acknowledged.
    una: Seq,
    /// SND.NXT: the next number to be sent.
    next: Seq,
    /// Behind the last byte written. The FIN's number, if there is one.
    end: Seq,
    /// The application writes no more.
    is_finished: bool,
    /// A writer found no room, or waits for some.
    wants_room: bool,
    sack: bool,
    timestamps: bool,
    ecn: bool,
    /// The next new segment tells that the congestion window was reduced (RFC 3168 section 6.1.2).
    tell_cwr: bool,
    nodelay: bool,
    cork: bool,
    /// The last write said that more follows.
    more: bool,
    buffer: u32,
    max_buffer: u32,
    /// SND.WND.
    window: u32,
    /// SND.WL1: the segment that the window came with.
    window_seq: Seq,
    /// The largest window ever.
    max_window: u32,
    mss: u16,
    /// What SACK blocks take of a segment now.
    option_bytes: u16,
    /// Behind the last segment sent that was not full (Minshall's variant of Nagle's algorithm).
    small_end: Seq,
    scoreboard: Scoreboard,
    rtt: RttEstimator,
    min_rtt: MinRtt,
    congestion: Congestion,
    algorithm: Algorithm,
    recovery: Recovery,
    rack: Rack,
    rate: Rate,
    timers: Timers,
    mtu_probe: MtuProbe,
    /// The window of congestion is what held the last flight back.
    is_cwnd_limited: bool,
    /// The most packets that were under way in this round trip, which ends at `usage_end`.
    max_packets_out: u32,
    usage_end: Seq,
    pacer: Pacer,
    /// The last poll found that it is too early.
    is_held_by_pacing: bool,
    initial_cwnd: u32,
    knobs: Knobs,
    totals: Totals,
}

/// What `TCP_INFO` adds up.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    bytes_sent: u64,
    bytes_retrans: u64,
    bytes_acked: u64,
    data_segs_out: u64,
    retrans: u32,
    last_sent: Instant,
    last_ack: Instant,
}

impl Sender {
    /// A sender whose handshake is done.
    pub(crate) fn new(config: &SenderConfig, now: Instant) -> Self {
        let knobs = config.knobs;
        let cwnd = match config.syn_retransmitted && config.handshake_rtt.is_none() {
            // RFC 5681 section 3.1.
            true => 1,
            false => config.initial_cwnd.max(1),
        };
        let mut rtt = RttEstimator::new(knobs.rto_min, knobs.rto_max);
        let mut min_rtt = MinRtt::new(knobs.min_rtt_window);
        match config.handshake_rtt {
            Some(sample) => {
                rtt.sample(sample, config.first, config.first);
                min_rtt.sample(now, sample);
            }
            None if config.syn_retransmitted => rtt.fall_back(),
            None => {}
        }
        Self {
            queue: ByteQueue::default(),
            una: config.first,
            next: config.first,
            end: config.first,
            is_finished: false,
            wants_room: false,
            sack: config.sack,
            timestamps: config.timestamps,
            ecn: config.ecn,
            tell_cwr: false,
            nodelay: false,
            cork: false,
            more: false,
            buffer: config.buffer,
            max_buffer: config.max_buffer,
            window: config.window,
            window_seq: config.window_seq,
            max_window: config.window,
            mss: config.mss.max(1),
            option_bytes: 0,
            small_end: config.first,
            scoreboard: Scoreboard::new(config.first),
            rtt,
            min_rtt,
            congestion: Congestion::new(config.algorithm, cwnd, now),
            algorithm: config.algorithm,
            recovery: Recovery::new(config.first, &knobs),
            rack: Rack::new(),
            rate: Rate::default(),
            timers: Timers::default(),
            mtu_probe: MtuProbe::new(config.mss.max(1), config.timestamps, &knobs),
            is_cwnd_limited: false,
            max_packets_out: 0,
            usage_end: config.first,
            pacer: Pacer::new(now),
            is_held_by_pacing: false,
            initial_cwnd: config.initial_cwnd,
            knobs: Knobs::from(&knobs),
            totals: Totals {
                last_sent: now,
                last_ack: now,
                ..Totals::default()
            },
        }
    }

    /// Takes bytes of the application, as many as there is room and memory for; returns how many.
    /// `more` says that others follow at once (`MSG_MORE`).
    pub(crate) fn write(&mut self, chunks: &mut Chunks, bufs: &[IoSlice<'_>], more: bool) -> usize {
        self.more = more;
        let mut room = self.room();
        let mut written = 0;
        for buf in bufs {
            let take = &buf[..buf.len().min(room)];
            let pushed = self.queue.push(chunks, take);
            written += pushed;
            room -= pushed;
            if pushed < buf.len() {
                self.wants_room = true;
                break;
            }
        }
        self.end += u32::try_from(written).unwrap_or(0);
        written
    }

    /// Bytes that a write would take now.
    pub(crate) fn room(&self) -> usize {
        if self.is_finished {
            return 0;
        }
        (self.buffer as usize).saturating_sub(self.queue.len())
    }

    /// Whether it is worth a writer's while to come back: a third of the buffer is free, as Linux's
    /// `sk_stream_is_writeable` has it.
    pub(crate) fn is_writable(&self) -> bool {
        let room = self.room();
        room > 0 && room >= self.queue.len() / 2
    }

    /// Somebody waits until it is.
    pub(crate) fn want_room(&mut self) {
        self.wants_room |= !self.is_writable();
    }

    /// Bytes written and not sent.
    pub(crate) fn unsent_bytes(&self) -> u32 {
        self.end.since(self.next)
    }

    /// Bytes written and not acknowledged, sent or not.
    pub(crate) fn unacked_bytes(&self) -> u32 {
        self.end.since(self.una)
    }

    /// Bytes of memory held.
    pub(crate) fn charged(&self) -> usize {
        self.queue.charged()
    }

    /// SND.UNA.
    pub(crate) fn una(&self) -> Seq {
        self.una
    }

    /// SND.NXT.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Behind the last byte written, sent or not.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// The largest window that the peer ever announced: acknowledgements older than that are no
    /// honest peer's (RFC 5961 section 5.2).
    pub(crate) fn max_window(&self) -> u32 {
        self.max_window
    }

    /// Bytes that the peer has acknowledged.
    pub(crate) fn bytes_acked(&self) -> u64 {
        self.totals.bytes_acked
    }

    /// No more is to come: a FIN goes behind the last byte.
    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
        self.more = false;
    }

    /// Whether the FIN was sent, at least once.
    pub(crate) fn is_fin_sent(&self) -> bool {
        self.next.is_after(self.end)
    }

    /// Whether the peer has acknowledged the FIN.
    pub(crate) fn is_fin_acked(&self) -> bool {
        self.una.is_after(self.end)
    }

    /// `TCP_NODELAY`. Setting it also sends what waits, corked or not (Linux: `TCP_NAGLE_PUSH`).
    pub(crate) fn set_nodelay(&mut self, on: bool) {
        self.nodelay = on;
    }

    /// `TCP_CORK`.
    pub(crate) fn set_cork(&mut self, on: bool) {
        self.cork = on;
        self.more &= on;
    }

    /// Bytes that may wait for their acknowledgement.
    pub(crate) fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Segments that leave now carry so many bytes of options beside those that `mss` allows for:
    /// blocks of SACK. They are that much shorter.
    pub(crate) fn set_option_bytes(&mut self, bytes: u16) {
        self.option_bytes = bytes;
    }

    /// `SO_SNDBUF`, or the knob's: the buffer's size, and how far it may grow by itself.
    pub(crate) fn set_buffer(&mut self, bytes: u32, max: u32) {
        self.buffer = bytes;
        self.max_buffer = max;
    }

    /// `SO_MAX_PACING_RATE`, bytes a second; `u64::MAX` is none.
    pub(crate) fn set_max_pacing_rate(&mut self, rate: u64) {
        self.pacer.set_max_rate(rate);
    }

    /// `TCP_CONGESTION`: another algorithm takes over with the window that there is.
    pub(crate) fn set_algorithm(&mut self, now: Instant, algorithm: Algorithm) {
        if algorithm != self.algorithm {
            self.congestion.set_algorithm(algorithm, now);
            self.algorithm = algorithm;
        }
    }

    /// What was written from `seq` on, `len` bytes or what there is of them, piece by piece.
    pub(crate) fn slices(&self, seq: Seq, len: u32) -> impl Iterator<Item = &[u8]> + Clone {
        let offset = seq.since(self.una);
        self.queue.slices(offset as usize, len as usize)
    }

    /// Drops all that was written: the connection is over.
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        self.queue.clear(chunks);
        self.scoreboard = Scoreboard::new(self.next);
        (self.una, self.end) = (self.next, self.next);
        self.timers = Timers::default();
        self.is_held_by_pacing = false;
    }

    /// Behind the last number that the peer's window admits.
    fn window_end(&self) -> Seq {
        self.una + self.window
    }
}
