//! The early look for the sockets of trains: as [`early`](super::early)'s, once for a train, and with
//! the socket's state, so that delivery has nothing left to ask.

use core::num::NonZeroU64;

use super::early::{self, Asked, Found, InputRoutes, Look};
use super::flow::Flow;
use crate::batch::Train;
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::socket::{Mode, Status};

/// Looks for the sockets of a batch's trains.
#[inline(never)]
pub(crate) fn demux(cx: &mut Context<'_>, trains: &mut [Train], batch: &mut [Packet]) {
    let asked = Asked::new(cx);
    let Some(iif) = batch.first().map(|packet| packet.iif) else {
        return;
    };
    if !asked.udp {
        return;
    }
    let demux = &cx.stack.demux;
    let buckets = demux.established.buckets();
    let mut looks = [Look::default(); MAX_BATCH];
    for (look, train) in looks.iter_mut().zip(&*trains) {
        let Some(first) = batch.get(usize::from(train.first)) else {
            continue;
        };
        look.hash = match first.version {
            IpVersion::V4 => Flow::of_packet::<V4>(first).hash(demux.key),
            IpVersion::V6 => Flow::of_packet::<V6>(first).hash(demux.key),
        };
        look.line = demux.established.prefetch(look.hash, buckets);
    }
    for look in looks.iter_mut().take(trains.len()) {
        let candidate = |line| demux.candidate(line, look.hash, asked.prefetch_rmem);
        look.candidate = look.line.and_then(candidate);
    }
    let routes = InputRoutes::new(cx, iif);
    let mut tally = Hits::default();
    for (look, train) in looks.iter().zip(trains) {
        let Some(packets) = batch.get_mut(train.lanes()) else {
            continue;
        };
        match packets.first().map(|first| first.version) {
            Some(IpVersion::V4) => find::<V4>(cx, routes.v4, look, train, packets, &mut tally),
            Some(IpVersion::V6) => find::<V6>(cx, routes.v6, look, train, packets, &mut tally),
            None => {}
        }
    }
    cx.core.add(Counter::ForebayEarlyDemuxHits, tally.routed);
    cx.core.add(Counter::ForebayEarlyDemuxStale, tally.stale);
}

/// Packets whose socket was found.
#[derive(Default)]
struct Hits {
    routed: u64,
    stale: u64,
}

/// Looks for a train's socket, and with it for its route and its state.
#[inline(always)]
fn find<F: Family>(
    cx: &Context<'_>,
    route: Option<u64>,
    look: &Look<'_>,
    train: &mut Train,
    packets: &mut [Packet],
    tally: &mut Hits,
) {
    let Some(first) = packets.first() else { return };
    let Some(found) = early::find::<F>(cx, route, first, look) else {
        return;
    };
    let verdict = match found.is_routed {
        true => Verdict::Deliver,
        false => Verdict::Undecided,
    };
    let tell = |packet: &mut Packet| {
        packet.socket = Some(found.id);
        packet.verdict = verdict;
    };
    match packets {
        // Where flows are many, most trains are no longer.
        [only] => tell(only),
        packets => packets.iter_mut().for_each(tell),
    }
    if found.is_routed {
        train.state = state_of(&found);
        tally.routed += u64::from(train.len);
    } else {
        tally.stale += u64::from(train.len);
    }
}

/// The state in which a socket is connected as it was found.
#[inline]
fn state_of(found: &Found) -> Option<NonZeroU64> {
    let status = Status {
        generation: found.id.generation.get(),
        mode: Mode::Connected,
        keys: found.keys,
    };
    NonZeroU64::new(status.pack())
}
