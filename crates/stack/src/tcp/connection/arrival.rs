//! A segment comes in (RFC 9293 section 3.10.7.4, with what RFC 5961 and RFC 7323 have made of it).

use super::segment::{Outgoing, Segment};
use super::{Connection, Hands, State, Wake};
use crate::counters::Counter;
use crate::tcp::TcpError;
use crate::tcp::receiver::{Arrival, Text};
use crate::tcp::sender::{Ack, AckOutcome};
use crate::wire::tcp::{
    FLAG_ACK, FLAG_CWR, FLAG_ECE, FLAG_FIN, FLAG_PSH, FLAG_RST, FLAG_SYN, FLAG_URG,
};

impl Connection {
    /// Takes in a segment; `payload` is its bytes, in pieces.
    pub(crate) fn on_segment(
        &mut self,
        hands: &mut Hands<'_>,
        segment: &Segment,
        payload: &[&[u8]],
    ) -> Wake {
        if self.is_closed() {
            return Wake::default();
        }
        self.tally.segs_in += 1;
        if self.is_refused(hands, segment) {
            return Wake::default();
        }
        if segment.has(FLAG_RST) {
            return self.on_reset(hands, segment);
        }
        if segment.has(FLAG_SYN) {
            // Never a reason to end a connection (RFC 5961 section 4.2).
            hands.events.count(Counter::TcpExtTCPSYNChallenge);
            self.challenge(hands);
            return Wake::default();
        }
        if !segment.has(FLAG_ACK) {
            return Wake::default();
        }
        self.manners.keepalive.heard(hands.now);
        let Some(mut wake) = self.on_ack(hands, segment) else {
            return Wake::default();
        };
        if self.is_closed() {
            return wake;
        }
        wake |= self.on_text(hands, segment, payload);
        wake
    }

    /// Whether the segment is not of this connection, or not of now. Whoever sent it may be told
    /// where we are.
    fn is_refused(&mut self, hands: &mut Hands<'_>, segment: &Segment) -> bool {
        if !segment.has(FLAG_RST) && self.is_of_the_past(hands, segment) {
            hands.events.count(Counter::TcpExtPAWSEstab);
            self.answer_invalid(hands, segment);
            return true;
        }
        let range = segment.range();
        if self.receiver.is_acceptable(range.start, range.len()) {
            return false;
        }
        if segment.has(FLAG_RST) {
            return !self.is_reset_behind_fin(segment);
        }
        if segment.has(FLAG_SYN) {
            hands.events.count(Counter::TcpExtTCPSYNChallenge);
            self.challenge(hands);
        } else {
            self.answer_invalid(hands, segment);
            // Who sent again what had come is told so (RFC 2883).
            self.receiver.note_duplicate(range, hands.events);
        }
        true
    }

    /// PAWS (RFC 7323 section 5.3).
    fn is_of_the_past(&self, hands: &Hands<'_>, segment: &Segment) -> bool {
        let (Some(clock), Some(theirs)) = (&self.clock, segment.options.timestamps) else {
            return false;
        };
        clock.is_old(theirs, hands.now) && !self.is_overtaken_ack(segment)
    }

    /// A pure acknowledgement that another one has overtaken says nothing wrong.
    fn is_overtaken_ack(&self, segment: &Segment) -> bool {
        segment.range().is_empty()
            && segment.seq == self.receiver.next()
            && segment.ack == self.sender.una()
    }

    /// A reset at the exact place ends the connection; elsewhere in the window it may be a
    /// stranger's guess, and whoever sent it is asked to repeat it (RFC 5961 section 3.2).
    fn on_reset(&mut self, hands: &mut Hands<'_>, segment: &Segment) -> Wake {
        if segment.seq != self.receiver.next() && !self.is_reset_behind_fin(segment) {
            self.challenge(hands);
            return Wake::default();
        }
        hands.events.count(match self.state {
            State::Established | State::CloseWait => Counter::TcpEstabResets,
            _ => return self.reset_by_peer(),
        });
        self.reset_by_peer()
    }

    fn reset_by_peer(&mut self) -> Wake {
        self.fail(match self.state {
            // It has said that it sends no more; it does not hear us either.
            State::CloseWait => TcpError::BrokenPipe,
            _ => TcpError::ConnectionReset,
        })
    }

    /// Some send the reset of a closed connection at the place of the FIN.
    fn is_reset_behind_fin(&self, segment: &Segment) -> bool {
        let is_finished = matches!(
            self.state,
            State::CloseWait | State::LastAck | State::Closing
        );
        is_finished && segment.has(FLAG_RST) && segment.seq + 1 == self.receiver.next()
    }

    /// What the segment says of our bytes. `None` if it is to be forgotten.
    fn on_ack(&mut self, hands: &mut Hands<'_>, segment: &Segment) -> Option<Wake> {
        let round_trip = match (&self.clock, segment.options.timestamps) {
            (Some(clock), Some(theirs)) => clock.round_trip(theirs, hands.now),
            _ => None,
        };
        if let Some(theirs) = segment.options.timestamps
            && let Some(clock) = &mut self.clock
            && !segment.seq.is_after(self.last_ack_sent)
        {
            clock.update(theirs, hands.now);
        }
        if self.is_ack_too_old(segment) {
            // A blind guess (RFC 5961 section 5.2).
            self.challenge(hands);
            return None;
        }
        let ack = Ack {
            ack: segment.ack,
            window: u32::from(segment.window) << self.send_scale,
            seq: segment.seq,
            sack: segment.options.sack,
            rtt_from_timestamps: round_trip,
            has_data: !segment.range().is_empty(),
            ece: self.ecn.is_some() && segment.has(FLAG_ECE),
            segments: 1,
        };
        let (now, chunks) = (hands.now, &mut *hands.chunks);
        let outcome = self.sender.on_ack(now, chunks, &ack, hands.events);
        let mut wake = Wake::default();
        match outcome {
            AckOutcome::TooNew => {
                if self.state != State::Established {
                    self.challenge(hands);
                }
                return None;
            }
            AckOutcome::Old | AckOutcome::Duplicate => {}
            AckOutcome::Advanced { room_made, .. } => {
                wake.write = room_made;
            }
        }
        if self.sender.is_fin_acked() {
            wake |= self.on_fin_acked();
        }
        Some(wake)
    }

    /// Whether nobody who has heard from us can acknowledge so little: it lies further back than
    /// any window that we had, or than our first byte.
    fn is_ack_too_old(&self, segment: &Segment) -> bool {
        let sender = &self.sender;
        let acked = u32::try_from(sender.bytes_acked()).unwrap_or(u32::MAX);
        let oldest = sender.una() - sender.max_window().min(acked);
        segment.ack.is_before(oldest)
    }

    fn on_fin_acked(&mut self) -> Wake {
        self.state = match self.state {
            State::FinWait1 => State::FinWait2,
            State::Closing => State::TimeWait,
            State::LastAck => State::Closed,
            _ => return Wake::default(),
        };
        Wake::BOTH
    }

    /// What the segment carries.
    fn on_text(&mut self, hands: &mut Hands<'_>, segment: &Segment, payload: &[&[u8]]) -> Wake {
        if !matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            // The peer has finished already. If it sends that again, it has not heard from us.
            let range = segment.range();
            if !range.is_empty() && range.start.is_before(self.receiver.next()) {
                self.receiver.note_duplicate(range, hands.events);
                self.receiver.request_ack();
            }
            return Wake::default();
        }
        self.on_congestion_mark(segment);
        if segment.len > 0 && self.is_unwanted(segment) {
            hands.events.count(Counter::TcpExtTCPAbortOnData);
            self.reply = Some(Outgoing::reset_for(segment));
            self.state = State::Closed;
            return Wake::BOTH;
        }
        if segment.has(FLAG_URG) {
            let stdurg = self.manners.stdurg;
            self.receiver
                .set_urgent(segment.seq, segment.urgent, stdurg);
        }
        let fin = segment.has(FLAG_FIN);
        if segment.len == 0 && !fin {
            return Wake::default();
        }
        self.tally.last_recv = hands.now;
        self.tally.data_segs_in += u64::from(segment.len > 0);
        let Arrival {
            bytes, finished, ..
        } = self.receiver.accept(
            hands.now,
            hands.chunks,
            &Text {
                seq: segment.seq,
                payload,
                segment_size: segment.segment_size,
                fin,
                psh: segment.has(FLAG_PSH),
            },
            hands.events,
        );
        self.tally.bytes_received += u64::from(bytes);
        if self.is_read_shut && bytes > 0 {
            self.receiver.discard(hands.now, hands.chunks);
        }
        if let (Some(clock), Some(theirs)) = (&self.clock, segment.options.timestamps)
            && segment.len > 0
            && let Some(rtt) = clock.round_trip(theirs, hands.now)
        {
            self.receiver.note_rtt(rtt);
        }
        let mut wake = Wake {
            read: bytes > 0 || finished,
            write: false,
        };
        if finished {
            wake |= self.on_fin();
        }
        wake
    }

    /// The peer sends no more.
    fn on_fin(&mut self) -> Wake {
        self.receiver.request_ack();
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            state => state,
        };
        Wake::BOTH
    }

    /// Whether nobody will read what the segment brings beyond what we had, nor say any more.
    fn is_unwanted(&self, segment: &Segment) -> bool {
        let is_new = (segment.seq + segment.len).is_after(self.receiver.next());
        let is_half_closed = matches!(self.state, State::FinWait1 | State::FinWait2);
        self.is_read_shut && is_half_closed && is_new
    }

    /// RFC 3168 section 6.1.3.
    fn on_congestion_mark(&mut self, segment: &Segment) {
        if let Some(ecn) = &mut self.ecn {
            if segment.has(FLAG_CWR) {
                ecn.echo = false;
            }
            if segment.is_ce {
                ecn.echo = true;
                self.receiver.request_ack();
            }
        }
    }

    /// A challenge (RFC 5961 section 7): says where we are, but not to everybody and always.
    fn challenge(&mut self, hands: &mut Hands<'_>) {
        if self.is_rate_limited(hands) {
            hands.events.count(Counter::TcpExtTCPACKSkippedChallenge);
            return;
        }
        hands.events.count(Counter::TcpExtTCPChallengeACK);
        self.receiver.request_ack();
    }

    /// Says where we are to the sender of a segment that is not for now. One that brings nothing
    /// could be the answer to ours, so it is not answered without end.
    fn answer_invalid(&mut self, hands: &mut Hands<'_>, segment: &Segment) {
        if segment.len == 0 && self.is_rate_limited(hands) {
            return;
        }
        self.receiver.request_ack();
    }

    fn is_rate_limited(&mut self, hands: &Hands<'_>) -> bool {
        let wait = self.manners.invalid_ratelimit;
        let last = self.answered_invalid;
        if last.is_some_and(|last| hands.now - last < wait) {
            return true;
        }
        self.answered_invalid = Some(hands.now);
        false
    }
}
