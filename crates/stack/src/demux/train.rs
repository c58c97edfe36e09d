//! The early look for the sockets of trains: as [`early`](super::early)'s, once for a train, and with
//! the socket's state, so that delivery has nothing left to ask.

use core::num::NonZeroU64;

use super::early::{self, Asked, Found, InputRoutes, Look};
use super::flow::Flow;
use crate::batch::Train;
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{V4, V6};
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
    let (mut hits, mut stale) = (0, 0);
    for (look, train) in looks.iter().zip(trains) {
        let Some(packets) = batch.get_mut(train.lanes()) else {
            continue;
        };
        let Some(first) = packets.first() else {
            continue;
        };
        let found = match first.version {
            IpVersion::V4 => early::find::<V4>(cx, routes.v4, first, look),
            IpVersion::V6 => early::find::<V6>(cx, routes.v6, first, look),
        };
        let Some(found) = found else { continue };
        let id = Some(found.id);
        if !found.is_routed {
            packets.iter_mut().for_each(|packet| packet.socket = id);
            stale += u64::from(train.len);
            continue;
        }
        for packet in packets {
            packet.socket = id;
            packet.verdict = Verdict::Deliver;
        }
        hits += u64::from(train.len);
        train.state = state_of(&found);
    }
    cx.core.add(Counter::ForebayEarlyDemuxHits, hits);
    cx.core.add(Counter::ForebayEarlyDemuxStale, stale);
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
