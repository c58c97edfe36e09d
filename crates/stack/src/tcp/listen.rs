//! A segment that belongs to no connection: it may begin one, or complete a half-open one.

use core::net::IpAddr;
use core::time::Duration;

use super::connection::Wake;
use super::connection::clock::TimestampClock;
use super::connection::handshake::{Agreed, DEFAULT_MSS};
use super::connection::segment::Outgoing;
use super::output::Path;
use super::receive::{Arrived, Fate, to_socket};
use super::request::{Expired, Request};
use super::socket::settings::Settings;
use super::socket::{Role, Socket, with_socket};
use super::terms::{self, Terms};
use super::{Accepted, cookies};
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::flow::Flow;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet};
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::transmit;
use crate::wire::seq::Seq;
use crate::wire::tcp::{FLAG_ACK, FLAG_CWR, FLAG_ECE, FLAG_FIN, FLAG_RST, FLAG_SYN};
use crate::wire::tcp_options::{TcpOptions, Timestamps};

/// Until a SYN-ACK is sent again the first time (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// Takes the segment to a half-open connection or a listener. `None` if there is none, and the
/// sender is to be told so.
pub(super) fn receive<F: Family>(
    cx: &mut Context<'_>,
    packet: &Packet,
    arrived: &Arrived<F>,
    min_iss: Option<Seq>,
) -> Option<Fate> {
    if let Some(request) = cx.stack.tcp.requests.get(&arrived.flow) {
        return half_open(cx, packet, arrived, &request);
    }
    let local = (arrived.local.0.into(), arrived.local.1);
    let tcp = &cx.stack.tcp;
    let hash = tcp.connections.hash(&arrived.flow);
    let listener = tcp.listeners.lookup(local, arrived.iif, hash)?;
    let segment = &arrived.segment;
    if segment.has(FLAG_RST) {
        return Some(Fate::Dropped(DropReason::TcpListenFlags));
    }
    if segment.has(FLAG_ACK) {
        return on_cookie(cx, listener, packet, arrived);
    }
    // One from the listener's own end ("land") would be answered to ourselves.
    let is_from_somebody = F::is_unicast(arrived.peer.0) && arrived.peer != arrived.local;
    if !segment.has(FLAG_SYN) || segment.has(FLAG_FIN) || !is_from_somebody {
        return Some(Fate::Dropped(DropReason::TcpListenFlags));
    }
    Some(on_syn(cx, listener, arrived, min_iss))
}

/// A listener as a SYN meets it.
struct Host {
    version: IpVersion,
    settings: Settings,
    is_full: bool,
    /// Most connections that may wait, half open or to be accepted.
    limit: u32,
}

impl Host {
    /// The way back to who sent the segment, and what is offered on it.
    fn meet<'g, F: Family>(
        &self,
        cx: &Context<'g>,
        arrived: &Arrived<F>,
    ) -> Option<(Path<'g, F>, Terms)> {
        let path = Path {
            ttl: self.settings.ttl,
            tos: self.settings.tos,
            ..Path::back(cx, arrived)?
        };
        let mtu = path.route.mtu;
        let terms = Terms::new(cx.view.sysctls, &self.settings, mtu, F::HEADER_LEN);
        Some((path, terms))
    }
}

fn host(cx: &Context<'_>, listener: SocketId) -> Option<Host> {
    let socket = cx.stack.tcp.slots.lock(listener)?;
    let Role::Listener(backlog) = &socket.role else {
        return None;
    };
    Some(Host {
        version: socket.version,
        settings: socket.settings.clone(),
        is_full: backlog.is_full(),
        limit: backlog.limit,
    })
}

fn overflow(cx: &Context<'_>) -> Fate {
    cx.core.count(Counter::TcpExtListenOverflows);
    cx.core.count(Counter::TcpExtListenDrops);
    Fate::Dropped(DropReason::TcpListenOverflow)
}

/// Somebody wants a connection: it is half open, and the answer leaves.
fn on_syn<F: Family>(
    cx: &mut Context<'_>,
    listener: SocketId,
    arrived: &Arrived<F>,
    min_iss: Option<Seq>,
) -> Fate {
    let Some(host) = host(cx, listener) else {
        return Fate::Dropped(DropReason::TcpNoSocket);
    };
    if host.is_full {
        return overflow(cx);
    }
    let Some((path, terms)) = host.meet(cx, arrived) else {
        return Fate::Dropped(DropReason::TcpNoSocket);
    };
    let segment = &arrived.segment;
    let options = &segment.options;
    let first_numbers = &cx.stack.tcp.first_numbers;
    let iss = match min_iss {
        Some(min_iss) => min_iss,
        None => first_numbers.iss(&arrived.flow, cx.now),
    };
    let mut request = Request {
        listener,
        irs: segment.seq,
        iss,
        mss: options.mss.unwrap_or(DEFAULT_MSS),
        window_scale: options.window_scale,
        sack: options.sack_permitted && terms.sack,
        timestamps: options
            .timestamps
            .filter(|_| terms.timestamps)
            .map(|it| it.value),
        offset: first_numbers.timestamp_offset(&arrived.flow),
        window: segment.window,
        ecn: terms.takes_ecn && segment.has(FLAG_ECE) && segment.has(FLAG_CWR),
        retransmits: 0,
        own_window: terms.window,
        sent_at: Some(cx.now),
        deadline: cx.now + INITIAL_RTO,
        answered_invalid: None,
    };
    let cookies = cx.view.sysctls.get(Knob::TcpSyncookies);
    let max = host.limit.max(1);
    if cookies < 2 && cx.stack.tcp.requests.insert(&arrived.flow, &request, max) {
        let _ = path.send(cx, &request.answer(&terms, cx.now), []);
        return Fate::Taken;
    }
    if cookies == 0 {
        cx.core.count(Counter::TcpExtTCPReqQFullDrop);
        cx.core.count(Counter::TcpExtListenDrops);
        return Fate::Dropped(DropReason::TcpListenOverflow);
    }
    cx.core.count(Counter::TcpExtTCPReqQFullDoCookies);
    cx.core.count(Counter::TcpExtSyncookiesSent);
    let answer = request.cookie(cx, &arrived.flow, &terms);
    let _ = path.send(cx, &answer, []);
    Fate::Taken
}

/// An acknowledgement of something that we know nothing of: if it is a cookie of ours, its sender
/// has a connection. `None` if it is not.
fn on_cookie<F: Family>(
    cx: &mut Context<'_>,
    listener: SocketId,
    packet: &Packet,
    arrived: &Arrived<F>,
) -> Option<Fate> {
    let segment = &arrived.segment;
    let tcp = &cx.stack.tcp;
    if segment.has(FLAG_SYN) || !tcp.cookies.may_come(cx.now) {
        return None;
    }
    let (iss, irs) = (segment.ack - 1, segment.seq - 1);
    let Some(mss) = tcp.cookies.check(&arrived.flow, iss, irs, cx.now) else {
        cx.core.count(Counter::TcpExtSyncookiesFailed);
        return None;
    };
    cx.core.count(Counter::TcpExtSyncookiesRecv);
    let host = host(cx, listener)?;
    if host.is_full {
        return Some(overflow(cx));
    }
    let (_, terms) = host.meet(cx, arrived)?;
    let offset = cx.stack.tcp.first_numbers.timestamp_offset(&arrived.flow);
    let timestamps = segment.options.timestamps;
    let said = timestamps.map(|it| cookies::Agreed::from_timestamp(it.echo.wrapping_sub(offset)));
    let said = said.unwrap_or_default();
    let request = Request {
        listener,
        irs,
        iss,
        mss,
        window_scale: said.window_scale,
        sack: said.sack,
        timestamps: timestamps.map(|it| it.value),
        offset,
        window: segment.window,
        ecn: said.ecn,
        retransmits: 0,
        own_window: terms.window,
        sent_at: None,
        deadline: cx.now,
        answered_invalid: None,
    };
    complete(cx, packet, arrived, &request, host)
}

/// A half-open connection gets a segment (RFC 9293 section 3.10.7.4, SYN-RECEIVED).
fn half_open<F: Family>(
    cx: &mut Context<'_>,
    packet: &Packet,
    arrived: &Arrived<F>,
    request: &Request,
) -> Option<Fate> {
    let segment = &arrived.segment;
    let next = request.irs + 1;
    if segment.has(FLAG_SYN) && !segment.has(FLAG_ACK) && segment.seq == request.irs {
        // Our answer was lost, or is slow.
        if may_answer(cx, arrived) {
            send_answer(cx, arrived, request);
        }
        return Some(Fate::Taken);
    }
    let Some(host) = host(cx, request.listener) else {
        // Nobody listens any more.
        cx.stack.tcp.requests.remove(&arrived.flow);
        return None;
    };
    let range = segment.range();
    // PAWS (RFC 7323 section 5.3): resets are not asked for their time.
    let is_old = request
        .timestamps
        .zip(segment.options.timestamps)
        .is_some_and(|(recent, theirs)| Seq(theirs.value).is_before(Seq(recent)))
        && !segment.has(FLAG_RST);
    if is_old {
        cx.core.count(Counter::TcpExtPAWSEstab);
    }
    let is_in_window =
        !range.end.is_before(next) && !segment.seq.is_after(next + u32::from(request.own_window));
    if is_old || !is_in_window {
        let is_data = segment.len > 0 && !segment.has(FLAG_SYN);
        if !segment.has(FLAG_RST) && (is_data || may_answer(cx, arrived)) {
            let mut ack = Outgoing::bare(request.iss + 1, next, FLAG_ACK);
            ack.window = request.own_window;
            arrived.reply(cx, &ack);
        }
        return Some(Fate::Taken);
    }
    if segment.has(FLAG_RST) || segment.has(FLAG_SYN) {
        cx.stack.tcp.requests.remove(&arrived.flow);
        cx.core.count(Counter::TcpExtEmbryonicRsts);
        cx.core.count(Counter::TcpAttemptFails);
        // A SYN within the window is answered by a reset.
        return segment.has(FLAG_RST).then_some(Fate::Taken);
    }
    if !segment.has(FLAG_ACK) {
        return Some(Fate::Taken);
    }
    if segment.ack != request.iss + 1 {
        return None;
    }
    if host.is_full {
        if cx.view.sysctls.is_on(Knob::TcpAbortOnOverflow) {
            cx.stack.tcp.requests.remove(&arrived.flow);
            overflow(cx);
            return None;
        }
        return Some(overflow(cx));
    }
    cx.stack.tcp.requests.remove(&arrived.flow)?;
    complete(cx, packet, arrived, request, host)
}

/// Whether a segment that completes no handshake is answered: not too often
/// (`tcp_invalid_ratelimit`).
fn may_answer<F: Family>(cx: &Context<'_>, arrived: &Arrived<F>) -> bool {
    let limit = cx
        .view
        .sysctls
        .get(Knob::TcpInvalidRatelimit)
        .unsigned_abs();
    let wait = Duration::from_millis(limit);
    let may = cx
        .stack
        .tcp
        .requests
        .may_answer(&arrived.flow, cx.now, wait);
    if !may {
        cx.core.count(Counter::TcpExtTCPACKSkippedSynRecv);
    }
    may
}

/// The handshake is done: a connection, to be accepted.
fn complete<F: Family>(
    cx: &mut Context<'_>,
    packet: &Packet,
    arrived: &Arrived<F>,
    request: &Request,
    host: Host,
) -> Option<Fate> {
    let (path, terms) = host.meet(cx, arrived)?;
    let agreed = request.agreed(&terms, arrived, cx);
    let mtu = path.route.mtu;
    let connection = terms::connection(cx, &host.settings, &agreed, mtu, F::HEADER_LEN);
    let local: (IpAddr, u16) = (arrived.local.0.into(), arrived.local.1);
    let peer: (IpAddr, u16) = (arrived.peer.0.into(), arrived.peer.1);
    let device = host.settings.device;
    let mut socket = Socket::connected(host.version, host.settings, (local, peer), connection);
    socket.is_in_table = true;
    socket.path_mtu = mtu;
    socket.inherit_port(cx);
    let (shown_local, shown_peer) = (socket.shown(local), socket.shown(peer));
    let id = cx.stack.tcp.slots.open(Box::new(socket))?;
    if cx
        .stack
        .tcp
        .connections
        .insert(&arrived.flow, device, id)
        .is_err()
    {
        super::shared::free(cx, id);
        return None;
    }
    cx.core.count(Counter::TcpPassiveOpens);
    to_socket(cx, id, packet, arrived);
    let accepted = Accepted {
        id,
        peer: shown_peer,
        local: shown_local,
    };
    let is_waiting = with_socket(cx, request.listener, |_, socket| match &mut socket.role {
        Role::Listener(backlog) => {
            backlog.ready.push_back(accepted);
            let wake = Wake {
                read: true,
                write: false,
            };
            (true, wake)
        }
        _ => (false, Wake::default()),
    });
    if is_waiting != Some(true) {
        // Nobody will accept it.
        super::shared::abandon(cx, id);
    }
    Some(Fate::Taken)
}

fn send_answer<F: Family>(cx: &mut Context<'_>, arrived: &Arrived<F>, request: &Request) {
    let Some(host) = host(cx, request.listener) else {
        return;
    };
    let Some((path, terms)) = host.meet(cx, arrived) else {
        return;
    };
    let _ = path.send(cx, &request.answer(&terms, cx.now), []);
}

impl Request {
    /// A SYN-ACK that says all that there is to know; nothing is kept.
    fn cookie(&mut self, cx: &Context<'_>, flow: &Flow, terms: &Terms) -> Outgoing {
        let tcp = &cx.stack.tcp;
        self.iss = tcp.cookies.make(flow, self.irs, self.mss, cx.now);
        if self.timestamps.is_none() {
            // There is no room to say what was agreed on.
            (self.window_scale, self.sack, self.ecn) = (None, false, false);
        }
        let agreed = cookies::Agreed {
            window_scale: self.window_scale.filter(|_| terms.window_scale.is_some()),
            sack: self.sack,
            ecn: self.ecn,
        };
        let mut answer = self.answer(terms, cx.now);
        if let Some(stamp) = &mut answer.options.timestamps {
            stamp.value = agreed.to_timestamp(cx.now).wrapping_add(self.offset);
        }
        answer
    }

    /// The SYN-ACK.
    fn answer(&self, terms: &Terms, now: crate::time::Instant) -> Outgoing {
        let ecn = if self.ecn { FLAG_ECE } else { 0 };
        Outgoing {
            window: self.own_window,
            options: TcpOptions {
                mss: Some(terms.mss),
                window_scale: terms.window_scale.filter(|_| self.window_scale.is_some()),
                sack_permitted: self.sack,
                timestamps: self.timestamps.map(|echo| Timestamps {
                    value: TimestampClock::value(self.offset, now),
                    echo,
                }),
                ..TcpOptions::default()
            },
            ..Outgoing::bare(self.iss, self.irs + 1, FLAG_SYN | FLAG_ACK | ecn)
        }
    }

    fn agreed<F: Family>(&self, terms: &Terms, arrived: &Arrived<F>, cx: &Context<'_>) -> Agreed {
        let segment = &arrived.segment;
        let scales = self.window_scale.zip(terms.window_scale);
        let shift = scales.map_or(0, |(theirs, _)| theirs);
        let clock = self
            .timestamps
            .map(|recent| TimestampClock::new(self.offset, recent, cx.now));
        let was_retransmitted = self.retransmits > 0;
        let echoed = clock
            .zip(segment.options.timestamps)
            .and_then(|(clock, theirs)| clock.round_trip(theirs, cx.now));
        let measured = self
            .sent_at
            .filter(|_| !was_retransmitted)
            .map(|sent_at| cx.now - sent_at);
        Agreed {
            iss: self.iss,
            irs: self.irs,
            mss: self.mss,
            window: u32::from(segment.window) << shift,
            own_window: self.own_window,
            scales,
            sack: self.sack,
            clock,
            ecn: self.ecn,
            round_trip: measured.or(echoed),
            was_retransmitted,
        }
    }
}

/// Answers that nobody has acknowledged are sent again, and given up.
pub(super) fn expire(cx: &mut Context<'_>) {
    let (stack, now) = (cx.stack, cx.now);
    let retries = u8::try_from(cx.view.sysctls.get(Knob::TcpSynackRetries)).unwrap_or(u8::MAX);
    stack
        .tcp
        .requests
        .expire(now, retries, |flow, request, expired| match expired {
            Expired::Resend => {
                cx.core.count(Counter::TcpRetransSegs);
                cx.core.count(Counter::TcpExtTCPTimeouts);
                match flow.is_ipv4() {
                    true => resend::<V4>(cx, flow, request),
                    false => resend::<V6>(cx, flow, request),
                }
            }
            Expired::GiveUp => cx.core.count(Counter::TcpAttemptFails),
        });
}

fn resend<F: Family>(cx: &mut Context<'_>, flow: &Flow, request: &Request) {
    let Some(host) = host(cx, request.listener) else {
        return;
    };
    let ((local, src_port), (peer, dst_port)) = (flow.local(), flow.remote());
    let (Some(src), Some(dst)) = (F::from_ip(local), F::from_ip(peer)) else {
        return;
    };
    let device = (host.settings.device != 0).then_some(host.settings.device);
    let Ok(route) = transmit::route_output::<F>(cx, dst, Some(src), device) else {
        return;
    };
    let terms = Terms::new(cx.view.sysctls, &host.settings, route.mtu, F::HEADER_LEN);
    let path = Path {
        route,
        src_port,
        dst_port,
        ttl: host.settings.ttl,
        tos: host.settings.tos,
    };
    let _ = path.send(cx, &request.answer(&terms, cx.now), []);
}
