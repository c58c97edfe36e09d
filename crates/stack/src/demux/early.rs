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
use crate::family::{Family, V4, V6};
use crate::fib::RpFilter;
use crate::packet::{IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::socket::{Mode, SocketId};
use crate::udp::Taker;

/// So many connected sockets don't fit the caches that are near: three lines each.
const MANY: usize = 1_024;

/// The looks of one batch at packets of one interface.
///
/// A flow sends its packets in runs: of each run, one is looked up. What is published meanwhile may
/// come too late for the batch.
pub(crate) struct Looks {
    hashes: [u64; MAX_BATCH],
    last: Option<(Flow, Option<Found>)>,
}

/// What the last look found.
#[derive(Debug, Clone, Copy)]
struct Found {
    id: SocketId,
    /// The packet's route is the socket's.
    is_routed: bool,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self {
            hashes: [0; MAX_BATCH],
            last: None,
        }
    }

    /// Fetches the lines of the table that the batch's packets lead to.
    ///
    /// Where so many sockets are open that their lines are out of reach, too, it goes on to those.
    pub(crate) fn prefetch<'p>(
        &mut self,
        cx: &Context<'_>,
        packets: impl Iterator<Item = &'p Packet>,
    ) {
        let demux = &cx.stack.demux;
        let mut last = None;
        let mut count = 0;
        for (packet, place) in packets.zip(&mut self.hashes) {
            let flow = flow_of(packet);
            *place = match last {
                Some((same, hash)) if same == flow => hash,
                _ => {
                    let hash = flow.hash(demux.key);
                    demux.established.prefetch(hash);
                    hash
                }
            };
            last = Some((flow, *place));
            count += 1;
        }
        if demux.established.len() >= MANY {
            for hash in self.hashes.iter().take(count) {
                demux.prefetch_connected(*hash);
            }
        }
    }

    /// Looks for the sockets of the same packets, and with them for their routes.
    ///
    /// For packets to addresses of our own whose ports are known, and only those: a fragment is
    /// looked up when it is whole, transit never.
    pub(crate) fn look<'p>(
        &mut self,
        cx: &Context<'_>,
        packets: impl Iterator<Item = &'p mut Packet>,
    ) {
        let mut routes = None;
        for (packet, hash) in packets.zip(self.hashes) {
            let flow = flow_of(packet);
            let found = match self.last {
                Some((same, found)) if same == flow => found,
                _ => {
                    let routes = routes.get_or_insert_with(|| InputRoutes::new(cx, packet.iif));
                    find(cx, routes, &flow, hash, packet)
                }
            };
            self.last = Some((flow, found));
            let Some(Found { id, is_routed }) = found else {
                continue;
            };
            packet.socket = Some(id);
            if is_routed {
                packet.verdict = Verdict::Deliver;
                cx.core.count(Counter::ForebayEarlyDemuxHits);
            } else {
                cx.core.count(Counter::ForebayEarlyDemuxStale);
            }
        }
    }
}

/// What [`input_route`] says of a batch: all of it came in by one interface.
struct InputRoutes {
    v4: Option<u64>,
    v6: Option<u64>,
}

impl InputRoutes {
    fn new(cx: &Context<'_>, iif: u32) -> Self {
        Self {
            v4: input_route::<V4>(cx, iif),
            v6: input_route::<V6>(cx, iif),
        }
    }
}

fn find(
    cx: &Context<'_>,
    routes: &InputRoutes,
    flow: &Flow,
    hash: u64,
    packet: &Packet,
) -> Option<Found> {
    let demux = &cx.stack.demux;
    let hit = demux.find_connected(flow, hash, packet.iif)?;
    if let Some(slot) = demux.sockets.slot(hit.id.slot) {
        slot.queue.prefetch();
    }
    let route = match packet.version {
        IpVersion::V4 => routes.v4,
        IpVersion::V6 => routes.v6,
    };
    let known = hit.keys.input_route.load(Ordering::Relaxed);
    Some(Found {
        id: hit.id,
        is_routed: route == Some(known),
    })
}

fn flow_of(packet: &Packet) -> Flow {
    match packet.version {
        IpVersion::V4 => Flow::of_packet::<V4>(packet),
        IpVersion::V6 => Flow::of_packet::<V6>(packet),
    }
}

/// Remembers on the socket that a packet of the flow was delivered by the routes of this batch.
pub(crate) fn remember_route<F: Family>(
    cx: &Context<'_>,
    taker: &Taker<'_>,
    flow: &Flow,
    iif: u32,
) {
    if taker.status.mode != Mode::Connected {
        return;
    }
    let Some(stamp) = input_route::<F>(cx, iif) else {
        return;
    };
    // Under our guard the words of a set do not change, so the stamp goes to the right flow; should
    // the socket be leaving it, nobody reads the stamp any more.
    let keys = taker.slot.key_set(taker.status.keys);
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
