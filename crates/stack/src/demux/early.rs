//! The early look: a connected socket, found before any route is looked up.
//!
//! A hit saves two lookups. The socket keeps the input route that its packets were last delivered
//! by, as a stamp: incoming interface, and the generation of what routed them. While both are the
//! packet's, its route is known: it ends here. The stamp belongs to the flow, for it lies beside
//! the flow's words and is void when they are written anew.

use core::sync::atomic::Ordering;

use super::established::Line;
use super::flow::Flow;
use super::train;
use super::{Candidate, Hit};
use crate::batch::{Lanes, Train};
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{Family, V4, V6};
use crate::fib::RpFilter;
use crate::packet::{Destination, IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::socket::{Mode, SocketId};
use crate::sysctl::Knob;
use crate::udp::Taker;
use crate::wire::protocol;

/// Looks for the sockets of a batch's packets in `lanes` that are for addresses of our own and whose
/// ports are known. A fragment is looked up when it is whole, transit never.
pub(crate) fn demux(
    cx: &mut Context<'_>,
    lanes: &Lanes,
    trains: &mut [Train],
    batch: &mut [Packet],
) {
    if !trains.is_empty() {
        train::demux(cx, trains, batch);
    }
    if !lanes.is_empty() {
        demux_each(cx, lanes, batch);
    }
}

#[inline(never)]
fn demux_each(cx: &mut Context<'_>, lanes: &Lanes, batch: &mut [Packet]) {
    let asked = Asked::new(cx);
    if !asked.udp {
        return;
    }
    let buckets = cx.stack.demux.established.buckets();
    let mut looks = [Look::default(); MAX_BATCH];
    let mut len = 0;
    // A flow sends in runs: of each run, one packet is looked up. Who is published meanwhile may
    // come too late for the batch.
    let mut last = None;
    for lane in lanes.iter() {
        let Some(packet) = batch.get(lane).filter(|packet| asked.includes(packet)) else {
            continue;
        };
        let look = &mut looks[len % MAX_BATCH];
        look.lane = lane;
        look.is_repeat = last.as_ref().is_some_and(|last| is_of(last, packet));
        if !look.is_repeat {
            let flow = flow_of(packet);
            look.hash = flow.hash(cx.stack.demux.key);
            look.line = cx.stack.demux.established.prefetch(look.hash, buckets);
            last = Some(flow);
        }
        len += 1;
    }
    let looks = looks.get_mut(..len).unwrap_or_default();
    for look in looks.iter_mut().filter(|look| !look.is_repeat) {
        let demux = &cx.stack.demux;
        let candidate = |line| demux.candidate(line, look.hash, asked.prefetch_rmem);
        look.candidate = look.line.and_then(candidate);
    }
    // All came in by one interface.
    let iif = batch.first().map_or(0, |packet| packet.iif);
    let routes = InputRoutes::new(cx, iif);
    let (mut hits, mut stale) = (0, 0);
    let mut found = None;
    for look in &*looks {
        let Some(packet) = batch.get_mut(look.lane) else {
            continue;
        };
        if !look.is_repeat {
            found = match packet.version {
                IpVersion::V4 => find::<V4>(cx, routes.v4, packet, look),
                IpVersion::V6 => find::<V6>(cx, routes.v6, packet, look),
            };
        }
        let Some(found) = &found else { continue };
        packet.socket = Some(found.id);
        if found.is_routed {
            packet.verdict = Verdict::Deliver;
            hits += 1;
        } else {
            stale += 1;
        }
    }
    cx.core.add(Counter::ForebayEarlyDemuxHits, hits);
    cx.core.add(Counter::ForebayEarlyDemuxStale, stale);
}

/// A packet that is looked up.
#[derive(Clone, Copy, Default)]
pub(super) struct Look<'a> {
    lane: usize,
    /// Of its flow, unless it is the same as that of the packet before.
    pub(super) hash: u64,
    is_repeat: bool,
    /// The bucket's first line.
    pub(super) line: Option<&'a Line>,
    /// What the table has for it, at first sight.
    pub(super) candidate: Option<Candidate<'a>>,
}

/// Whether datagrams are looked up, and what is done on a hit.
pub(super) struct Asked {
    pub(super) udp: bool,
    pub(super) prefetch_rmem: bool,
}

impl Asked {
    /// They are if the knobs are on, and there is a connected socket at all.
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let (sysctls, demux) = (cx.view.sysctls, &cx.stack.demux);
        Self {
            udp: sysctls.is_on(Knob::IpEarlyDemux)
                && sysctls.is_on(Knob::UdpEarlyDemux)
                && demux.early_key().is_enabled(),
            prefetch_rmem: sysctls.is_on(Knob::PrefetchRmem),
        }
    }

    fn includes(&self, packet: &Packet) -> bool {
        self.udp
            && packet.protocol == protocol::UDP
            && packet.has_ports
            && packet.destination == Destination::Own
            && packet.verdict == Verdict::Undecided
    }
}

/// What [`input_route`] says of a batch.
pub(crate) struct InputRoutes {
    pub(crate) v4: Option<u64>,
    pub(crate) v6: Option<u64>,
}

impl InputRoutes {
    pub(crate) fn new(cx: &Context<'_>, iif: u32) -> Self {
        Self {
            v4: input_route::<V4>(cx, iif),
            v6: input_route::<V6>(cx, iif),
        }
    }
}

/// A packet's socket.
pub(super) struct Found {
    pub(super) id: SocketId,
    /// Which of its key sets says that it is connected so.
    pub(super) keys: usize,
    /// The socket's input route is the packet's.
    pub(super) is_routed: bool,
}

/// Looks for the packet's socket, and with it for its route.
#[inline(always)]
pub(super) fn find<F: Family>(
    cx: &Context<'_>,
    route: Option<u64>,
    packet: &Packet,
    look: &Look<'_>,
) -> Option<Found> {
    let demux = &cx.stack.demux;
    let candidate = look
        .candidate
        .and_then(|candidate| demux.check_candidate::<F>(&candidate, packet));
    let hit = match candidate {
        Some(hit) => hit,
        None => search::<F>(cx, packet, look.hash)?,
    };
    let known = hit.keys.input_route.load(Ordering::Relaxed);
    Some(Found {
        id: hit.id,
        keys: hit.which,
        is_routed: route == Some(known),
    })
}

/// Where the first sight does not tell.
#[inline(never)]
fn search<'a, F: Family>(cx: &Context<'a>, packet: &Packet, hash: u64) -> Option<Hit<'a>> {
    let demux = &cx.stack.demux;
    demux.find_connected(&Flow::of_packet::<F>(packet), hash, packet.iif)
}

#[inline]
fn is_of(flow: &Flow, packet: &Packet) -> bool {
    match packet.version {
        IpVersion::V4 => flow.is_of_packet::<V4>(packet),
        IpVersion::V6 => flow.is_of_packet::<V6>(packet),
    }
}

fn flow_of(packet: &Packet) -> Flow {
    match packet.version {
        IpVersion::V4 => Flow::of_packet::<V4>(packet),
        IpVersion::V6 => Flow::of_packet::<V6>(packet),
    }
}

/// Remembers on the socket that a packet of the flow was delivered by the routes of this batch.
pub(crate) fn remember_route<F: Family>(cx: &Context<'_>, taker: &Taker<'_>, packet: &Packet) {
    if taker.status.mode != Mode::Connected {
        return;
    }
    let Some(stamp) = input_route::<F>(cx, packet.iif) else {
        return;
    };
    // Under our guard the words of a set do not change, so the stamp goes to the right flow; should
    // the socket be leaving it, nobody reads the stamp any more.
    let keys = taker.slot.key_set(taker.status.keys);
    if keys.is_of_packet::<F>(packet) && keys.input_route.load(Ordering::Relaxed) != stamp {
        keys.input_route.store(stamp, Ordering::Relaxed);
    }
}

/// Everything that a local delivery by this interface depends on besides the flow itself. `None`
/// where that can't be said in one word.
///
/// With reverse-path filtering a change anywhere in the FIB may decide otherwise; without it, only
/// one that input routing looks at. Both are numbers of the same count of changes, and switching the
/// filter is one of them, so neither can be taken for the other.
pub(crate) fn input_route<F: Family>(cx: &Context<'_>, iif: u32) -> Option<u64> {
    const GENERATION: u64 = (1 << 48) - 1;

    let interface = u64::from(u16::try_from(iif).ok()?) << 48;
    let generations = F::generations(cx.view);
    let generation = match F::rp_filter(cx.view, iif) {
        RpFilter::Off => generations.input,
        RpFilter::Strict | RpFilter::Loose => generations.all,
    };
    Some(interface | generation & GENERATION)
}
