//! One connection whose handshake is done (RFC 9293 section 3.3.2: ESTABLISHED and what follows).
//!
//! A pure state machine: segments, calls of the application, and the time come in; segments,
//! deadlines, and what the application should be told come out. It knows no packet, no address, no
//! socket. Bytes that go out are the [`Sender`]'s, bytes that come in the [`Receiver`]'s; here is what
//! concerns both.
//!
//! | | |
//! |---|---|
//! | [`segment`] | segments in words |
//! | [`handshake`] | how a connection comes to be, on the side that begins |
//! | [`clock`] | timestamps |
//! | `arrival` | a segment comes in |
//! | `departure` | a segment goes out |
//! | `keepalive` | an idle peer is asked whether it is still there |

mod arrival;
pub(crate) mod clock;
mod departure;
pub(crate) mod handshake;
mod keepalive;
pub(crate) mod segment;

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use self::clock::TimestampClock;
use self::handshake::Agreed;
pub(crate) use self::keepalive::Keepalive;
use self::segment::Outgoing;
use super::chunks::Chunks;
use super::events::Events;
use super::info::TcpState;
use super::receiver::{Receiver, ReceiverConfig};
use super::sender::{Sender, SenderConfig};
use super::{SendFlags, TcpError};
use crate::counters::Counter;
use crate::socket::SocketError;
use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp::{FLAG_ACK, FLAG_RST};

/// Bytes that timestamps take of each segment, padded.
pub(crate) const TIMESTAMPS_LEN: u16 = 12;

/// How far a connection is. Before, it is a [handshake](handshake::Handshake) or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Established,
    FinWait1,
    FinWait2,
    Closing,
    TimeWait,
    CloseWait,
    LastAck,
    Closed,
}

impl From<State> for TcpState {
    fn from(state: State) -> Self {
        match state {
            State::Established => Self::Established,
            State::FinWait1 => Self::FinWait1,
            State::FinWait2 => Self::FinWait2,
            State::Closing => Self::Closing,
            State::TimeWait => Self::TimeWait,
            State::CloseWait => Self::CloseWait,
            State::LastAck => Self::LastAck,
            State::Closed => Self::Closed,
        }
    }
}

/// What the application should look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "somebody may wait for it"]
pub(crate) struct Wake {
    /// Something to read, the stream's end, an error.
    pub(crate) read: bool,
    /// Room to write, an error.
    pub(crate) write: bool,
}

impl Wake {
    pub(crate) const BOTH: Self = Self {
        read: true,
        write: true,
    };
}

impl core::ops::BitOrAssign for Wake {
    fn bitor_assign(&mut self, other: Self) {
        self.read |= other.read;
        self.write |= other.write;
    }
}

/// What a call is handed: the time, memory for bytes, and where to count.
pub(crate) struct Hands<'a> {
    pub(crate) now: Instant,
    pub(crate) chunks: &'a mut Chunks,
    pub(crate) events: &'a mut Events,
}

/// What a connection is told beside what both ends agreed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    pub(crate) keepalive: Keepalive,
    /// How long one that nobody owns any more waits for the peer's FIN (`tcp_fin_timeout`).
    pub(crate) fin_timeout: Duration,
    /// Timeouts before one that nobody owns any more is given up (`tcp_orphan_retries`).
    pub(crate) orphan_retries: u8,
    /// The urgent pointer names the last urgent byte (`tcp_stdurg`).
    pub(crate) stdurg: bool,
    /// Segments are not made smaller than this, options included, whatever the peer asks for: tiny
    /// ones cost us, not it (`tcp_min_snd_mss`).
    pub(crate) min_mss: u16,
    /// The least time between two answers to segments that don't belong (`tcp_invalid_ratelimit`).
    pub(crate) invalid_ratelimit: Duration,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    state: State,
    sender: Sender,
    receiver: Receiver,
    /// Shifts of the peer's window, and of ours.
    send_scale: u8,
    receive_scale: u8,
    scales: bool,
    sack: bool,
    /// What the peer takes in one segment, and what we do, as each said.
    peer_mss: u16,
    own_mss: u16,
    clock: Option<TimestampClock>,
    ecn: Option<Ecn>,
    /// What the last segment that left acknowledged (Last.ACK.sent, RFC 7323 section 4.3).
    last_ack_sent: Seq,
    /// Behind the last urgent byte that the application has written (SND.UP).
    urgent_end: Option<Seq>,
    /// To be sent before anything else.
    reply: Option<Outgoing>,
    /// When a segment that does not belong was last answered.
    answered_invalid: Option<Instant>,
    manners: Manners,
    /// The application has closed its socket.
    is_orphan: bool,
    /// The application reads no more (`shutdown`), though it may still hold the socket.
    is_read_shut: bool,
    /// Why it ended, until somebody is told.
    error: Option<TcpError>,
    tally: Tally,
}

/// Explicit congestion notification (RFC 3168), where both ends speak it.
#[derive(Debug, Clone, Copy, Default)]
struct Ecn {
    /// Tell the peer of congestion, until it says that it has heard.
    echo: bool,
}

/// What is counted for who asks (`TCP_INFO`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) segs_in: u64,
    pub(crate) data_segs_in: u64,
    pub(crate) segs_out: u64,
    pub(crate) bytes_received: u64,
    pub(crate) last_recv: Instant,
}

impl Connection {
    /// A connection as both ends agreed.
    pub(crate) fn new(
        agreed: &Agreed,
        sender: &SenderConfig,
        receiver: &ReceiverConfig,
        manners: Manners,
        now: Instant,
    ) -> Self {
        let (send_scale, receive_scale) = agreed.scales.unwrap_or_default();
        let mut connection = Self {
            state: State::Established,
            sender: Sender::new(sender, now),
            receiver: Receiver::new(receiver),
            send_scale,
            receive_scale,
            scales: agreed.scales.is_some(),
            sack: agreed.sack,
            peer_mss: agreed.mss,
            own_mss: receiver.mss,
            clock: agreed.clock,
            ecn: agreed.ecn.then(Ecn::default),
            last_ack_sent: agreed.irs + 1,
            urgent_end: None,
            reply: None,
            answered_invalid: None,
            manners,
            is_orphan: false,
            is_read_shut: false,
            error: None,
            tally: Tally {
                last_recv: now,
                ..Tally::default()
            },
        };
        connection.manners.keepalive.heard(now);
        connection
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(crate) fn sender_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(crate) fn receiver_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(crate) fn keepalive_mut(&mut self) -> &mut Keepalive {
        &mut self.manners.keepalive
    }

    pub(crate) fn keepalive(&self) -> &Keepalive {
        &self.manners.keepalive
    }

    pub(crate) fn clock(&self) -> Option<&TimestampClock> {
        self.clock.as_ref()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Shifts of the peer's window and of ours, if both scale.
    pub(crate) fn scales(&self) -> Option<(u8, u8)> {
        self.scales.then_some((self.send_scale, self.receive_scale))
    }

    /// What we take in one segment, as we said.
    pub(crate) fn own_mss(&self) -> u16 {
        self.own_mss
    }

    pub(crate) fn has_sack(&self) -> bool {
        self.sack
    }

    pub(crate) fn has_ecn(&self) -> bool {
        self.ecn.is_some()
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Whether it is over: nothing comes in, nothing goes out.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed | State::TimeWait)
    }

    /// Whether this side may still send.
    pub(crate) fn is_writable(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Whether nothing more will come to be read than is there.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_read_shut || self.receiver.is_finished() || self.is_closed()
    }

    /// Why it ended; the caller is the one to be told.
    pub(crate) fn take_error(&mut self) -> Option<TcpError> {
        self.error.take()
    }

    pub(crate) fn has_error(&self) -> bool {
        self.error.is_some()
    }
}

/// What the application does.
impl Connection {
    /// Takes bytes to be sent, as many as there is room for.
    pub(crate) fn write(
        &mut self,
        hands: &mut Hands<'_>,
        bufs: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> Result<Option<usize>, TcpError> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if !self.is_writable() {
            return Err(TcpError::BrokenPipe);
        }
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(Some(0));
        }
        let taken = self.sender.write(hands.chunks, bufs, flags.more);
        if taken == 0 {
            return Ok(None);
        }
        if flags.urgent && taken == bufs.iter().map(|buf| buf.len()).sum::<usize>() {
            self.urgent_end = Some(self.sender.end());
        }
        Ok(Some(taken))
    }

    /// Reads what has come in order: `Some(0)` at the stream's end, `None` if nothing has come yet.
    pub(crate) fn read(
        &mut self,
        hands: &mut Hands<'_>,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<usize>, TcpError> {
        if self.receiver.readable() > 0 {
            let len = self.receiver.read(hands.now, hands.chunks, bufs, peek);
            return Ok(Some(len));
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.is_at_end() || bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(Some(0));
        }
        Ok(None)
    }

    /// This side sends no more: a FIN follows what is still to be sent.
    pub(crate) fn shutdown_write(&mut self) {
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return,
        };
        self.sender.finish();
    }

    /// The application reads no more. What comes later is acknowledged and thrown away, as on Linux.
    pub(crate) fn shutdown_read(&mut self) {
        self.is_read_shut = true;
    }

    /// The application has closed the socket: the connection goes on alone, to its end. With bytes
    /// that nobody has read, the peer must not think that they were (RFC 2525 section 2.17).
    pub(crate) fn close(&mut self, hands: &mut Hands<'_>) {
        self.is_orphan = true;
        self.is_read_shut = true;
        self.sender.set_orphaned(self.manners.orphan_retries);
        if self.is_closed() {
            return;
        }
        if self.receiver.readable() > 0 {
            hands.events.count(Counter::TcpExtTCPAbortOnClose);
            return self.abort(hands.now);
        }
        self.shutdown_write();
    }

    /// Ends the connection at once, and tells the peer.
    pub(crate) fn abort(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        let (seq, ack) = (self.sender.next(), self.receiver.next());
        let mut reset = Outgoing::bare(seq, ack, FLAG_RST | FLAG_ACK);
        reset.options.timestamps = self.clock.map(|clock| clock.stamp(now));
        self.reply = Some(reset);
        self.state = State::Closed;
    }

    /// Ends it without a word, for `error`.
    pub(crate) fn fail(&mut self, error: TcpError) -> Wake {
        self.state = State::Closed;
        self.error = Some(error);
        Wake::BOTH
    }

    /// If it has just timed out, this may be why.
    pub(crate) fn explain(&mut self, error: SocketError) {
        if self.error == Some(TcpError::TimedOut) {
            self.error = Some(TcpError::Network(error));
        }
    }

    /// What is left of it is somebody else's from here on.
    pub(crate) fn end(&mut self) {
        self.state = State::TimeWait;
    }

    /// How long a connection without a socket waits for the peer's FIN.
    pub(crate) fn fin_timeout(&self) -> Duration {
        self.manners.fin_timeout
    }

    /// A segment's payload without options may be so long from now on, as the path's MTU says.
    pub(crate) fn set_payload(&mut self, payload: u16, hands: &mut Hands<'_>) {
        let options = if self.clock.is_some() {
            TIMESTAMPS_LEN
        } else {
            0
        };
        let mss = payload.min(self.peer_mss).max(self.manners.min_mss);
        let mss = mss.saturating_sub(options).max(1);
        self.sender.set_mss(mss, hands.events);
    }

    /// Gives all memory back. What was not read is gone.
    pub(crate) fn free(&mut self, chunks: &mut Chunks) {
        self.sender.clear(chunks);
        self.receiver.free(chunks);
    }
}

/// What time does.
impl Connection {
    /// When [`on_deadline`](Self::on_deadline) wants to be called, at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let keepalive = match self.is_idle() {
            true => self.manners.keepalive.deadline(),
            false => None,
        };
        let deadlines = [
            self.sender.deadline(),
            self.receiver.ack_deadline(),
            keepalive,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn on_deadline(&mut self, hands: &mut Hands<'_>) -> Wake {
        let now = hands.now;
        if self.is_closed() {
            return Wake::default();
        }
        if self.sender.on_timeout(now, hands.events).is_some() {
            hands.events.count(Counter::TcpExtTCPAbortOnTimeout);
            return self.fail(TcpError::TimedOut);
        }
        self.receiver.on_ack_timeout(now, hands.events);
        if self.is_idle() && self.on_keepalive(hands) {
            hands.events.count(Counter::TcpExtTCPAbortOnTimeout);
            self.abort(now);
            return self.fail(TcpError::TimedOut);
        }
        Wake::default()
    }

    /// Whether nothing of ours is under way, so that silence means nothing.
    fn is_idle(&self) -> bool {
        self.sender.unacked_bytes() == 0 && self.sender.unsent_bytes() == 0
    }
}

#[cfg(test)]
mod tests;
