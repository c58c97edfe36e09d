//! A segment for this host, top to bottom.
//!
//! ```text
//! check ─▶ who? ─┬▶ connection or handshake ─▶ aftermath: answers, deadline, who waits
//!                ├▶ time-wait
//!                ├▶ half-open connection ─▶ its connection
//!                ├▶ listener ─▶ half-open connection
//!                └▶ nobody ─▶ reset
//! ```

use zerocopy::FromBytes;

use core::time::Duration;

use super::connection::Wake;
use super::connection::clock::TimestampClock;
use super::connection::handshake::Progress;
use super::connection::segment::{Outgoing, Segment};
use super::output::Path;
use super::place;
use super::socket::{Role, Socket, with_socket};
use super::table::{Found, TimeWaitRef};
use super::terms;
use super::time_wait::{Dropped, Ended, Rules, Seen, TimeWait, Verdict};
use super::{early, listen};
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::flow::Flow;
use crate::drop::DropReason;
use crate::family::Family;
use crate::ip::destination;
use crate::packet::{ChecksumState, Packet};
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::wire::seq::Seq;
use crate::wire::tcp::{FLAG_ACK, FLAG_RST};
use crate::wire::tcp_options::Timestamps;
use crate::wire::{TcpHeader, protocol};

/// The mark of congestion in the traffic class (RFC 3168 section 5).
const ECN_CE: u8 = 0x03;

/// How often a segment's connection is looked for that has just ended each time.
const LOOKS: u32 = 8;

/// Takes in a segment for this host.
pub(crate) fn receive<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    // A connection has two ends (RFC 9293 section 3.9.2.3, MUST-57): who sends segments to a crowd
    // gets no answer.
    if destination::is_to_many::<F>(cx, &packet) {
        return cx.drop(packet, DropReason::TcpNoSocket);
    }
    cx.core.count(Counter::TcpInSegs);
    let Some((header, header_len)) = read_header(&mut packet) else {
        return cx.drop(packet, DropReason::TcpHdr);
    };
    if packet.checksum == ChecksumState::None && !is_checksum_valid::<F>(&packet) {
        return cx.drop(packet, DropReason::TcpCsum);
    }
    let arrived = Arrived::<F>::new(&mut packet, &header, header_len);
    match demux::<F>(cx, &packet, &arrived) {
        Fate::Taken => cx.core.consume(packet),
        Fate::Dropped(reason) => cx.drop(packet, reason),
    }
}

/// A segment, and whose it is.
pub(super) struct Arrived<F: Family> {
    pub(super) segment: Segment,
    pub(super) flow: Flow,
    pub(super) local: (F::Addr, u16),
    pub(super) peer: (F::Addr, u16),
    pub(super) iif: u32,
    /// Where the payload begins.
    payload_at: usize,
    pub(super) tos: u8,
}

/// What became of a segment.
pub(super) enum Fate {
    /// Somebody had a use for it.
    Taken,
    Dropped(DropReason),
}

fn demux<F: Family>(cx: &mut Context<'_>, packet: &Packet, arrived: &Arrived<F>) -> Fate {
    if let Some(id) = packet.socket
        && to_socket(cx, id, packet, arrived)
    {
        return Fate::Taken;
    }
    for _ in 0..LOOKS {
        match cx.stack.tcp.connections.lookup(&arrived.flow, arrived.iif) {
            Some(Found::Socket(id)) => {
                if to_socket(cx, id, packet, arrived) {
                    return Fate::Taken;
                }
                // It has just ended: what is in the table by now?
            }
            Some(Found::TimeWait(entry)) => {
                if let Some(fate) = to_time_wait(cx, entry, packet, arrived) {
                    return fate;
                }
            }
            None => return to_listener(cx, packet, arrived, None),
        }
    }
    // Connections of the flow end and begin as fast as we look. The sender will try again.
    Fate::Dropped(DropReason::TcpNoSocket)
}

/// Hands the segment to who makes connections of segments, or tells the sender that nobody does.
fn to_listener<F: Family>(
    cx: &mut Context<'_>,
    packet: &Packet,
    arrived: &Arrived<F>,
    min_iss: Option<Seq>,
) -> Fate {
    match listen::receive(cx, packet, arrived, min_iss) {
        Some(fate) => fate,
        None => {
            answer_closed_port(cx, arrived);
            Fate::Dropped(DropReason::TcpNoSocket)
        }
    }
}

/// Hands the segment to what is left of a connection. `None` if that is gone.
fn to_time_wait<F: Family>(
    cx: &mut Context<'_>,
    found: TimeWaitRef,
    packet: &Packet,
    arrived: &Arrived<F>,
) -> Option<Fate> {
    let segment = &arrived.segment;
    let seen = Seen {
        range: segment.range(),
        flags: segment.flags,
        timestamp: segment.options.timestamps.map(|it| it.value),
    };
    let sysctls = cx.view.sysctls;
    let limit = sysctls.get(Knob::TcpInvalidRatelimit).unsigned_abs();
    let rules = Rules {
        rfc1337: sysctls.is_on(Knob::TcpRfc1337),
        invalid_ratelimit: Duration::from_millis(limit),
    };
    let connections = &cx.stack.tcp.connections;
    let judged = connections.judge(found, &arrived.flow, &seen, rules, cx.now)?;
    if judged.outcome.is_paws {
        cx.core.count(Counter::TcpExtPAWSEstab);
    }
    let verdict = judged.outcome.verdict;
    if !matches!(verdict, Verdict::Drop(_) | Verdict::Ack) {
        place::release_port_of(cx, arrived.flow.local(), &judged.entry);
    }
    match verdict {
        Verdict::Drop(Dropped::Silently) => {}
        Verdict::Drop(Dropped::RateLimited(Ended::FinWait2)) => {
            cx.core.count(Counter::TcpExtTCPACKSkippedFinWait2);
        }
        Verdict::Drop(Dropped::RateLimited(Ended::TimeWait)) => {
            cx.core.count(Counter::TcpExtTCPACKSkippedTimeWait);
        }
        Verdict::Ack => {
            let answer = judged.entry.acknowledgement(cx.now);
            arrived.reply(cx, &answer);
        }
        Verdict::Reset => arrived.reply(cx, &Outgoing::reset_for(segment)),
        Verdict::End => cx.core.count(Counter::TcpExtTWKilled),
        Verdict::NewConnection { min_iss } => {
            cx.core.count(Counter::TcpExtTWRecycled);
            return Some(to_listener(cx, packet, arrived, Some(min_iss)));
        }
    }
    Some(Fate::Taken)
}

impl TimeWait {
    /// Says where the connection ended.
    fn acknowledgement(&self, now: Instant) -> Outgoing {
        let mut answer = Outgoing::bare(self.snd_nxt, self.rcv_nxt, FLAG_ACK);
        answer.window = self.window();
        answer.options.timestamps = self.clock.map(|clock| Timestamps {
            value: TimestampClock::value(clock.offset, now),
            echo: clock.recent,
        });
        answer
    }
}

/// Hands the segment to a connection or a handshake. False if the socket is not this flow's any more.
pub(super) fn to_socket<F: Family>(
    cx: &mut Context<'_>,
    id: SocketId,
    packet: &Packet,
    arrived: &Arrived<F>,
) -> bool {
    let taken = with_socket(cx, id, |cx, socket| {
        if socket.flow() != Some(arrived.flow) || !socket.is_in_table {
            return (false, Wake::default());
        }
        early::remember_route::<F>(cx, id, packet);
        let wake = socket.on_segment(cx, packet, arrived);
        (true, wake)
    });
    taken.unwrap_or(false)
}

impl Socket {
    fn on_segment<F: Family>(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        arrived: &Arrived<F>,
    ) -> Wake {
        let segment = &arrived.segment;
        match &mut self.role {
            Role::Connected(connection) => arrived.with_payload(packet, |payload| {
                cx.with_hands(|hands| connection.on_segment(hands, segment, payload))
            }),
            Role::Connecting(handshake) => match handshake.on_segment(segment, cx.now) {
                Progress::Waiting => Wake::default(),
                Progress::Reply(outgoing) => {
                    arrived.reply(cx, &outgoing);
                    Wake::default()
                }
                Progress::Failed(error) => {
                    cx.core.count(Counter::TcpAttemptFails);
                    self.fail(error)
                }
                Progress::Done { agreed, more } => {
                    let mtu = self.path_mtu;
                    let connection =
                        terms::connection(cx, &self.settings, &agreed, mtu, F::HEADER_LEN);
                    self.role = Role::Connected(Box::new(connection));
                    let mut wake = Wake::BOTH;
                    if more {
                        wake |= self.on_segment(cx, packet, arrived);
                    } else if let Role::Connected(connection) = &mut self.role {
                        connection.receiver_mut().request_ack();
                    }
                    wake
                }
            },
            Role::Idle | Role::Listener(_) | Role::Failed(_) => Wake::default(),
        }
    }
}

impl<F: Family> Arrived<F> {
    fn new(packet: &mut Packet, header: &TcpHeader, header_len: usize) -> Self {
        let at = usize::from(packet.l4_offset);
        // Of what was in fragments, or behind extension headers, nobody has read them yet.
        packet.src_port = header.src_port.get();
        packet.dst_port = header.dst_port.get();
        let options = packet.data().get(at + TcpHeader::LEN..at + header_len);
        let payload_at = at + header_len;
        let len = packet.total_len().saturating_sub(payload_at);
        let tos = F::traffic_class(packet);
        Self {
            segment: Segment::new(
                header,
                options.unwrap_or_default(),
                u32::try_from(len).unwrap_or(u32::MAX),
                tos & ECN_CE == ECN_CE,
            ),
            flow: Flow::of_packet::<F>(packet),
            local: (F::dst(packet), packet.dst_port),
            peer: (F::src(packet), packet.src_port),
            iif: packet.iif,
            payload_at,
            tos,
        }
    }

    /// Runs `f` on the payload's pieces.
    fn with_payload<R>(&self, packet: &Packet, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let first = packet.data().get(self.payload_at..).unwrap_or_default();
        if !packet.has_frags() {
            return f(&[first]);
        }
        let mut pieces = vec![first];
        pieces.extend(packet.chunks().skip(1));
        f(&pieces)
    }

    /// Sends a segment back where this one came from.
    pub(super) fn reply(&self, cx: &mut Context<'_>, outgoing: &Outgoing) {
        if let Some(path) = Path::back(cx, self) {
            // What can't be sent is as good as lost.
            let _ = path.send(cx, outgoing, []);
        }
    }
}

/// Tells the sender that there is no connection. A reset is never answered.
fn answer_closed_port<F: Family>(cx: &mut Context<'_>, arrived: &Arrived<F>) {
    if !arrived.segment.has(FLAG_RST) && F::is_unicast(arrived.peer.0) {
        arrived.reply(cx, &Outgoing::reset_for(&arrived.segment));
    }
}

/// The header, and how long it is with its options, all in the packet's head.
fn read_header(packet: &mut Packet) -> Option<(TcpHeader, usize)> {
    let offset = usize::from(packet.l4_offset);
    if !packet.linearize(offset + TcpHeader::LEN) {
        return None;
    }
    let (header, _) = TcpHeader::read_from_prefix(packet.data().get(offset..)?).ok()?;
    let len = header.header_len();
    let is_whole = len >= TcpHeader::LEN && packet.linearize(offset + len);
    is_whole.then_some((header, len))
}

fn is_checksum_valid<F: Family>(packet: &Packet) -> bool {
    let mut skip = usize::from(packet.l4_offset);
    let len = packet.total_len().saturating_sub(skip);
    let mut sum = F::pseudo_header(F::src(packet), F::dst(packet), protocol::TCP, len);
    for chunk in packet.chunks() {
        sum.add_bytes(chunk.get(skip..).unwrap_or_default());
        skip = skip.saturating_sub(chunk.len());
    }
    sum.is_valid()
}
