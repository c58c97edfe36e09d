//! Bytes that come in: what is taken, what is acknowledged, what may come, what is read.
//!
//! The receiving half of a connection. It knows no state but the stream's: where it is, what of it
//! is there, and where its FIN is.
//!
//! | | |
//! |---|---|
//! | `buffer` | the bytes, in order and ahead |
//! | `window` | what the peer may send |
//! | `acks` | when it hears of what it has sent |
//! | `sack` | what it hears of bytes that are ahead |
//! | `urgent` | the byte that is out of band |
//! | `read` | what the application gets of all that |

use core::time::Duration;

use self::acks::Acks;
use self::buffer::Buffer;
pub(crate) use self::buffer::Pieces;
use self::sack::Sack;
pub(crate) use self::text::{Arrival, ArrivalKind, Text};
pub(crate) use self::urgent::NoUrgent;
use self::urgent::Urgent;
use self::window::{Start, Window};
use super::chunks::Chunks;
use super::events::Events;
use crate::counters::Counter;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

mod acks;
mod buffer;
mod read;
mod sack;
#[cfg(test)]
mod tests;
mod text;
mod urgent;
mod window;

/// What a receiver starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiverConfig {
    /// The byte behind the peer's SYN.
    pub(crate) next: Seq,
    /// What our SYN offered, in bytes.
    pub(crate) window: u32,
    /// Shift of our window; 0 if it does not scale.
    pub(crate) window_scale: u8,
    /// Bytes of memory that it may hold (`SO_RCVBUF`, or `tcp_rmem`'s second).
    pub(crate) buffer: u32,
    /// What that may grow to (`tcp_rmem`'s third); `buffer`, if it is to stay (`SO_RCVBUF`,
    /// `tcp_moderate_rcvbuf`).
    pub(crate) max_buffer: u32,
    /// Whether both ends know SACK.
    pub(crate) sack: bool,
    /// Whether the peer hears of what came twice (`tcp_dsack`).
    pub(crate) dsack: bool,
    /// Bytes of payload in the largest segment that comes.
    pub(crate) mss: u16,
    pub(crate) now: Instant,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Buffer,
    /// The place of the FIN, once it has come.
    fin: Option<Seq>,
    /// Everything before the FIN has come.
    is_finished: bool,
    sack_enabled: bool,
    dsack_enabled: bool,
    /// What the last acknowledgement said (Linux's `rcv_wup`).
    acked: Seq,
    acks: Acks,
    window: Window,
    sack: Sack,
    urgent: Urgent,
}

/// Segments.
impl Receiver {
    pub(crate) fn new(config: &ReceiverConfig) -> Self {
        let mss = u32::from(config.mss);
        Self {
            buffer: Buffer::new(config.next),
            fin: None,
            is_finished: false,
            sack_enabled: config.sack,
            dsack_enabled: config.sack && config.dsack,
            acked: config.next,
            acks: Acks::new(mss, config.window),
            window: Window::new(&Start {
                next: config.next,
                window: config.window,
                scale: config.window_scale,
                mss,
                buffer: config.buffer,
                max_buffer: config.max_buffer,
                now: config.now,
            }),
            sack: Sack::default(),
            urgent: Urgent::default(),
        }
    }

    /// RCV.NXT: the next byte that is expected. The FIN counts as one.
    #[inline]
    pub(crate) fn next(&self) -> Seq {
        self.buffer.next() + u32::from(self.is_finished)
    }

    /// What the peer may send, in bytes from [`next`](Self::next) on.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window.edge().since(self.next())
    }

    /// Whether a segment touches the window, so that what it says is of now (RFC 9293 section
    /// 3.10.7.4). As on Linux, one that ends where we last said we are, or begins right behind the
    /// window, does: it brings no data, but its acknowledgement counts, also while the window is
    /// shut. `len` counts SYN and FIN.
    #[inline]
    pub(crate) fn is_acceptable(&self, seq: Seq, len: u32) -> bool {
        let next = self.next();
        !(seq + len).is_before(self.acked) && !seq.is_after(next + self.window())
    }

    /// Takes what the segment carries, as far as it is new and there is room for it.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        text: &Text<'_>,
        events: &mut Events,
    ) -> Arrival {
        let len: usize = text.payload.iter().map(|piece| piece.len()).sum();
        self.window.note_pressure(chunks.under_pressure());
        let Some(part) = self.trim(text, len as u32, events) else {
            return self.refuse(text, len as u32, events);
        };
        let before = self.buffer.next();
        let kind = match part.at == before {
            true => self.take_in_order(now, chunks, text, &part, events),
            false => self.take_ahead(now, chunks, text, &part, events),
        };
        let finished = self.finish(chunks);
        Arrival {
            bytes: self.buffer.next() - before,
            finished,
            kind,
        }
    }

    /// The part of a segment that is new and in the window.
    #[inline]
    fn trim(&mut self, text: &Text<'_>, len: u32, events: &mut Events) -> Option<Part> {
        let next = self.buffer.next();
        let edge = self.window.edge();
        let mut part = Part {
            at: text.seq,
            skip: 0,
            len,
            fin: text.fin,
        };
        // What nearly all are: next in order, and within the window.
        let is_plain = text.seq == next && !text.fin && self.fin.is_none();
        if is_plain && 0 < len && len <= edge.since(next) {
            return Some(part);
        }
        if self.is_finished {
            return None;
        }
        if part.at.is_before(next) {
            let known = next - part.at;
            if known > len || known == len && !part.fin {
                return None;
            }
            self.note_twice(part.at, next, events);
            part.at = next;
            part.skip = known;
            part.len -= known;
        }
        if part.at.is_after(edge) || part.at == edge && part.len > 0 {
            return None;
        }
        // A FIN takes no room, so it may lie right behind the window.
        let room = edge.since(part.at);
        let room = self.fin.map_or(room, |fin| room.min(fin.since(part.at)));
        if part.len > room {
            part.len = room;
            part.fin = false;
        }
        (part.len > 0 || part.fin).then_some(part)
    }

    #[inline]
    fn take_in_order(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        text: &Text<'_>,
        part: &Part,
        events: &mut Events,
    ) -> ArrivalKind {
        let had_ahead = self.buffer.has_ahead();
        let taken = self.append(chunks, text, part, events);
        if taken < part.len && taken == 0 {
            self.be_quick();
            return ArrivalKind::NoRoom;
        }
        if part.fin && taken == part.len {
            self.fin.get_or_insert(part.at + part.len);
        }
        self.on_data(now, text, part.len);
        let next = self.buffer.next();
        self.window.time(now, next);
        if had_ahead || taken < part.len {
            // What fills a gap is acknowledged at once (RFC 5681 section 4.2).
            self.sack.retain(next, self.window.edge());
            self.acks.request();
        } else if taken > 0 {
            let owed = next - self.acked;
            self.acks.schedule(now, owed, self.window.rtt());
        }
        ArrivalKind::InOrder
    }

    /// Adds what is in order; returns how much of it. It is worth more than what is ahead, which is
    /// forgotten if there is no memory for both.
    #[inline]
    fn append(
        &mut self,
        chunks: &mut Chunks,
        text: &Text<'_>,
        part: &Part,
        events: &mut Events,
    ) -> u32 {
        let (skip, len) = (part.skip as usize, part.len as usize);
        let mut taken = self.buffer.append(chunks, text.payload, skip, len);
        if taken < len {
            events.count(Counter::TcpExtPruneCalled);
        }
        while taken < len && self.forget_last(chunks, events) {
            taken += self
                .buffer
                .append(chunks, text.payload, skip + taken, len - taken);
        }
        if taken < len {
            events.count(Counter::TcpExtRcvPruned);
            events.count(Counter::TcpExtTCPRcvQDrop);
        }
        taken as u32
    }

    fn take_ahead(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        text: &Text<'_>,
        part: &Part,
        events: &mut Events,
    ) -> ArrivalKind {
        self.acks.request();
        let end = part.at + part.len;
        let range = SeqRange {
            start: part.at,
            end,
        };
        if let Some(shared) = self.buffer.shared(range) {
            events.count(Counter::TcpExtTCPOFOMerge);
            if self.dsack_enabled {
                events.count(Counter::TcpExtTCPDSACKOfoSent);
                self.sack.note_twice(shared);
            }
        }
        let (skip, len) = (part.skip as usize, part.len as usize);
        if len > 0 {
            let stretch = self.buffer.insert(chunks, part.at, text.payload, skip, len);
            let Some(stretch) = stretch else {
                events.count(Counter::TcpExtTCPOFODrop);
                return ArrivalKind::NoRoom;
            };
            self.on_data(now, text, part.len);
            events.count(Counter::TcpExtTCPOFOQueue);
            if self.sack_enabled {
                self.sack.note(stretch);
            }
            if stretch.end.is_before(end) {
                return ArrivalKind::OutOfOrder;
            }
        }
        if part.fin {
            self.fin.get_or_insert(end);
        }
        ArrivalKind::OutOfOrder
    }

    /// Whether all that comes before the FIN has come just now. What lies behind it is nothing.
    #[inline]
    fn finish(&mut self, chunks: &mut Chunks) -> bool {
        if self.fin != Some(self.buffer.next()) {
            return false;
        }
        while self.buffer.forget_last(chunks).is_some() {}
        self.sack.retain(self.buffer.next(), self.buffer.next());
        self.is_finished = true;
        self.acks.request();
        true
    }

    /// A segment that brings nothing: old, or too far ahead.
    #[cold]
    fn refuse(&mut self, text: &Text<'_>, len: u32, events: &mut Events) -> Arrival {
        let range = SeqRange {
            start: text.seq,
            end: text.seq + len + u32::from(text.fin),
        };
        let kind = match range.end.is_after(self.next()) {
            true => ArrivalKind::NoRoom,
            false => ArrivalKind::Old,
        };
        if kind == ArrivalKind::NoRoom && self.window() == 0 {
            events.count(Counter::TcpExtTCPZeroWindowDrop);
        }
        self.be_quick();
        self.note_duplicate(range, events);
        Arrival {
            bytes: 0,
            finished: false,
            kind,
        }
    }

    /// A segment came that is not for now. If it had come before, the acknowledgement may have been
    /// lost: the next one says that it need not have come again (RFC 2883). Whether one leaves for
    /// it is the caller's to say.
    pub(crate) fn note_duplicate(&mut self, range: SeqRange, events: &mut Events) {
        let next = self.next();
        if range.is_empty() || !range.start.is_before(next) {
            return;
        }
        let window = self.window();
        self.acks.be_quick(window);
        events.count(Counter::TcpExtDelayedACKLost);
        self.note_twice(range.start, range.end.min(next), events);
    }

    fn note_twice(&mut self, start: Seq, end: Seq, events: &mut Events) {
        if self.dsack_enabled {
            events.count(Counter::TcpExtTCPDSACKOldSent);
            self.sack.note_twice(SeqRange { start, end });
        }
    }

    fn be_quick(&mut self) {
        let window = self.window();
        self.acks.be_quick(window);
        self.acks.request();
    }

    #[inline]
    fn on_data(&mut self, now: Instant, text: &Text<'_>, len: u32) {
        if len > 0 {
            let window = self.window();
            self.acks.on_data(now, text.segment_size, text.psh, window);
            self.window.on_data(len);
        }
    }

    /// Gives up what is furthest ahead. The peer sends it again, whatever it was told (RFC 2018
    /// section 8).
    #[cold]
    fn forget_last(&mut self, chunks: &mut Chunks, events: &mut Events) -> bool {
        let Some(last) = self.buffer.forget_last(chunks) else {
            return false;
        };
        events.count(Counter::TcpExtOfoPruned);
        self.sack.retain(self.buffer.next(), last.start);
        true
    }
}

/// What of a segment is taken.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: Seq,
    /// Bytes of the payload that come before.
    skip: u32,
    len: u32,
    /// The FIN follows.
    fin: bool,
}

/// Acknowledgements.
impl Receiver {
    /// An acknowledgement has to leave now.
    #[inline]
    pub(crate) fn request_ack(&mut self) {
        self.acks.request();
    }

    /// Whether one has to.
    #[inline]
    pub(crate) fn ack_is_due(&self) -> bool {
        self.acks.is_due()
    }

    /// When one will have to, if nothing leaves before.
    #[inline]
    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        self.acks.deadline()
    }

    pub(crate) fn on_ack_timeout(&mut self, now: Instant, events: &mut Events) {
        if self.acks.on_timeout(now) {
            events.count(Counter::TcpExtDelayedACKs);
        }
    }

    /// Moves the window, if there is room for it, and returns what a segment is to announce: bytes,
    /// a multiple of the scale.
    #[inline]
    pub(crate) fn window_to_announce(&mut self, events: &mut Events) -> u32 {
        let (next, read) = (self.next(), self.buffer.read_at());
        let before = self.window.announced();
        let window = self.window.announce(next, read, self.acks.segment());
        if (before == 0) != (window == 0) {
            events.count(match window {
                0 => Counter::TcpExtTCPToZeroWindowAdv,
                _ => Counter::TcpExtTCPFromZeroWindowAdv,
            });
        }
        window
    }

    /// The blocks of the SACK option: what came twice, then what changed last.
    #[inline]
    pub(crate) fn sack_blocks(&self) -> SackBlocks {
        self.sack.blocks()
    }

    /// A segment left that acknowledges [`next`](Self::next).
    #[inline]
    pub(crate) fn ack_sent(&mut self) {
        self.acked = self.next();
        self.acks.on_sent();
        self.sack.on_sent();
    }

    /// A segment with data left.
    #[inline]
    pub(crate) fn data_sent(&mut self, now: Instant) {
        self.acks.on_data_sent(now);
    }

    /// `TCP_QUICKACK`.
    pub(crate) fn set_quick_ack(&mut self, is_quick: bool) {
        self.acks.set_quick(is_quick);
    }

    /// A segment with data echoes a timestamp of ours that left so long ago.
    #[inline]
    pub(crate) fn note_rtt(&mut self, rtt: Duration) {
        self.window.note_rtt(rtt);
    }
}

/// Memory.
impl Receiver {
    /// Bytes of memory that it holds.
    pub(crate) fn charged(&self) -> usize {
        self.buffer.charged()
    }

    /// Bytes of memory that it may hold.
    pub(crate) fn buffer(&self) -> u32 {
        self.window.buffer()
    }

    /// Sets that; it stays (`SO_RCVBUF`).
    pub(crate) fn set_buffer(&mut self, bytes: u32) {
        self.window.set_buffer(bytes);
    }

    /// Gives all memory back. What was not read is gone.
    pub(crate) fn free(&mut self, chunks: &mut Chunks) {
        self.buffer.clear(chunks);
    }
}

/// What is told of it.
impl Receiver {
    /// What the peer's full segments seem to have (`rcv_mss`).
    pub(crate) fn segment(&self) -> u32 {
        self.acks.segment()
    }

    /// How long an acknowledgement waits (`ato`).
    pub(crate) fn ack_timeout(&self) -> Duration {
        self.acks.timeout()
    }

    /// Most bytes that were read in a round trip (`rcv_space`).
    pub(crate) fn space(&self) -> u32 {
        self.window.read_in_a_round_trip()
    }

    /// The round trip as this side knows it (`rcv_rtt`); zero if it does not.
    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_nanos(self.window.rtt())
    }
}
