//! The early look: a connected socket, found before any route is looked up.
//!
//! A hit saves two lookups. The socket keeps the input route that its packets were last delivered
//! by, as a stamp: incoming interface, and the generation of what routed them. While both are the
//! packet's, its route is known: it ends here. The stamp belongs to the flow, for it lies beside
//! the flow's words and is void when they are written anew.

use core::sync::atomic::Ordering;

use super::flow::Flow;
use crate::core::Context;
use crate::counters::Counter;
use crate::family::Family;
use crate::fib::RpFilter;
use crate::packet::{Packet, Verdict};
use crate::socket::{Mode, SocketId};

/// Fetches what [`look`] will read.
#[inline]
pub(crate) fn prefetch<F: Family>(cx: &mut Context<'_>, packet: &mut Packet) {
    let demux = &cx.stack.demux;
    demux
        .established
        .prefetch(Flow::of_packet::<F>(packet).hash(demux.key));
}

/// Looks for the packet's socket, and with it for its route.
///
/// For packets to addresses of our own whose ports are known, and only those: a fragment is looked
/// up when it is whole, transit never.
pub(crate) fn look<F: Family>(cx: &mut Context<'_>, packet: &mut Packet) {
    let demux = &cx.stack.demux;
    let flow = Flow::of_packet::<F>(packet);
    let Some(hit) = demux.find_connected(&flow, flow.hash(demux.key), packet.iif) else {
        return;
    };
    packet.socket = Some(hit.id);
    if let Some(slot) = demux.sockets.slot(hit.id.slot) {
        slot.prefetch();
    }
    let is_known = |stamp| hit.keys.input_route.load(Ordering::Relaxed) == stamp;
    if input_route::<F>(cx, packet.iif).is_some_and(is_known) {
        packet.verdict = Verdict::Deliver;
        cx.core.count(Counter::ForebayEarlyDemuxHits);
    } else {
        cx.core.count(Counter::ForebayEarlyDemuxStale);
    }
}

/// Remembers on the socket that a packet of the flow was delivered by the routes of this batch.
pub(crate) fn remember_route<F: Family>(cx: &Context<'_>, id: SocketId, flow: &Flow, iif: u32) {
    let Some(stamp) = input_route::<F>(cx, iif) else {
        return;
    };
    let demux = &cx.stack.demux;
    let Some(slot) = demux.sockets.get(id) else {
        return;
    };
    let status = slot.status();
    if status.mode != Mode::Connected {
        return;
    }
    // Under our guard the words of a set do not change, so the stamp goes to the right flow; should
    // the socket be leaving it, nobody reads the stamp any more.
    let keys = slot.key_set(status.keys);
    if keys.is(flow, iif) && keys.input_route.load(Ordering::Relaxed) != stamp {
        keys.input_route.store(stamp, Ordering::Relaxed);
    }
}

/// Everything that a local delivery by this interface depends on besides the flow itself. `None`
/// where that can't be said in one word.
///
/// With reverse-path filtering a change anywhere in the FIB may decide otherwise; without it, only
/// one that input routing looks at. Both are numbers of the same count of changes, and switching the
/// filter is one of them, so neither can be taken for the other.
fn input_route<F: Family>(cx: &Context<'_>, iif: u32) -> Option<u64> {
    const GENERATION: u64 = (1 << 48) - 1;

    let interface = u64::from(u16::try_from(iif).ok()?) << 48;
    let generations = F::generations(cx.view);
    let generation = match F::rp_filter(cx.view, iif) {
        RpFilter::Off => generations.input,
        RpFilter::Strict | RpFilter::Loose => generations.all,
    };
    Some(interface | generation & GENERATION)
}
