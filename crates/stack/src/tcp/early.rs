//! The early look for connections: as [`demux::early`](crate::demux::early) does it for UDP, with one
//! probe, for established ones alone.

use core::sync::atomic::Ordering;

use super::table::Hit;
use crate::batch::Lanes;
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::early::{InputRoutes, input_route};
use crate::demux::established::Line;
use crate::demux::flow::Flow;
use crate::family::{Family, V4, V6};
use crate::packet::{Destination, IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::wire::protocol;

/// A segment that is looked up.
#[derive(Clone, Copy, Default)]
struct Look<'a> {
    lane: usize,
    /// Of its flow, unless it is the same as that of the segment before.
    hash: u64,
    is_repeat: bool,
    /// The bucket's first line.
    line: Option<&'a Line>,
    /// What the table has for it, at first sight: the slot's number.
    candidate: Option<u32>,
}

/// Looks for the connections of a batch's segments in `lanes`, and with them for their routes.
pub(crate) fn demux(cx: &mut Context<'_>, lanes: &Lanes, batch: &mut [Packet]) {
    if !lanes.is_empty() && is_asked(cx) {
        demux_each(cx, lanes, batch);
    }
}

/// Whether the knobs are on, and there is a connection at all.
fn is_asked(cx: &Context<'_>) -> bool {
    let sysctls = cx.view.sysctls;
    cx.stack.tcp.connections.early_key().is_enabled()
        && sysctls.is_on(Knob::IpEarlyDemux)
        && sysctls.is_on(Knob::TcpEarlyDemux)
}

#[inline(never)]
fn demux_each(cx: &mut Context<'_>, lanes: &Lanes, batch: &mut [Packet]) {
    let connections = &cx.stack.tcp.connections;
    let buckets = connections.buckets();
    let mut looks = [Look::default(); MAX_BATCH];
    let mut len = 0;
    // A flow sends in runs: of each run, one segment is looked up.
    let mut last: Option<Flow> = None;
    for lane in lanes.iter() {
        let Some(packet) = batch.get(lane).filter(|packet| is_for_us(packet)) else {
            continue;
        };
        let look = &mut looks[len % MAX_BATCH];
        look.lane = lane;
        let flow = match packet.version {
            IpVersion::V4 => Flow::of_packet::<V4>(packet),
            IpVersion::V6 => Flow::of_packet::<V6>(packet),
        };
        look.is_repeat = last == Some(flow);
        if !look.is_repeat {
            look.hash = connections.hash(&flow);
            look.line = connections.prefetch(look.hash, buckets);
            last = Some(flow);
        }
        len += 1;
    }
    let looks = looks.get_mut(..len).unwrap_or_default();
    for look in looks.iter_mut().filter(|look| !look.is_repeat) {
        let candidate = |line| connections.candidate(line, look.hash);
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
        let Some((id, is_routed)) = found else {
            continue;
        };
        packet.socket = Some(id);
        if is_routed {
            packet.verdict = Verdict::Deliver;
            hits += 1;
        } else {
            stale += 1;
        }
    }
    cx.core.add(Counter::ForebayEarlyDemuxHits, hits);
    cx.core.add(Counter::ForebayEarlyDemuxStale, stale);
}

fn is_for_us(packet: &Packet) -> bool {
    packet.protocol == protocol::TCP
        && packet.has_ports
        && packet.destination == Destination::Own
        && packet.verdict == Verdict::Undecided
}

/// The segment's socket, and whether its input route is the segment's.
fn find<F: Family>(
    cx: &Context<'_>,
    route: Option<u64>,
    packet: &Packet,
    look: &Look<'_>,
) -> Option<(SocketId, bool)> {
    let connections = &cx.stack.tcp.connections;
    let candidate = look
        .candidate
        .and_then(|slot| connections.check_candidate::<F>(slot, packet));
    let Hit { id, keys } = match candidate {
        Some(hit) => hit,
        None => connections.find(&Flow::of_packet::<F>(packet), look.hash, packet.iif)?,
    };
    let known = keys.input_route.load(Ordering::Relaxed);
    Some((id, route == Some(known)))
}

/// Remembers that a segment of the connection was delivered by the routes of this batch. A short
/// connection's line is not written for it: its first segments are a listener's.
pub(super) fn remember_route<F: Family>(cx: &Context<'_>, id: SocketId, packet: &Packet) {
    let Some(stamp) = input_route::<F>(cx, packet.iif) else {
        return;
    };
    let Some(keys) = cx.stack.tcp.connections.keys(id) else {
        return;
    };
    // Under our guard the words do not change, so the stamp goes to the right flow.
    if keys.is_of_packet::<F>(packet) && keys.input_route.load(Ordering::Relaxed) != stamp {
        keys.input_route.store(stamp, Ordering::Relaxed);
    }
}
