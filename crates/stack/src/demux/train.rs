//! The sockets of trains, looked for once a train, and with their state, so that delivery has nothing
//! left to ask: connected ones early, as [`early`](super::early) does it for single packets, others
//! when the route is known.

use core::num::NonZeroU64;

use forebay_sync::prefetch::prefetch_read;

use super::early::{self, Asked, Found, InputRoutes, Look};
use super::flow::Flow;
use super::places::{Table, Who};
use crate::batch::Train;
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, Verdict};
use crate::receive::MAX_BATCH;
use crate::socket::{Mode, Slot, Status};

/// Looks for the connected sockets of a batch's trains.
#[inline(never)]
pub(crate) fn demux(cx: &mut Context<'_>, trains: &mut [Train], batch: &mut [Packet]) {
    let demux = &cx.stack.demux;
    if !demux.early_key().is_enabled() {
        trains
            .iter_mut()
            .for_each(|train| train.is_unconnected = true);
        return;
    }
    let asked = Asked::new(cx);
    let Some(iif) = batch.first().map(|packet| packet.iif) else {
        return;
    };
    if !asked.udp {
        return;
    }
    let buckets = demux.established.buckets();
    let mut looks = [Look::default(); MAX_BATCH];
    for (look, train) in looks.iter_mut().zip(&*trains) {
        let Some(first) = batch.get(usize::from(train.first)) else {
            continue;
        };
        look.hash = flow_of(first).hash(demux.key);
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
        train.is_unconnected = true;
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
        train.slot = found.id.slot;
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

/// Looks for the sockets of trains that no socket is connected to and that are to be delivered: for
/// those that are alone at the address and port, or at the port if nobody is at the address. What is
/// less plain is left to the ordinary lookup. `moves` is how often sockets had moved before
/// [`demux`] looked.
#[inline(never)]
pub(crate) fn find_bound(cx: &Context<'_>, trains: &mut [Train], batch: &[Packet], moves: u64) {
    let is_sought = |train: &Train| train.state.is_none() && train.is_unconnected && train.is_local;
    let demux = &cx.stack.demux;
    let places = demux.bound.places(cx.view.guard);
    let mut looks = [Sought::default(); MAX_BATCH];
    let mut len = 0;
    let mut last = None;
    let sought = trains.iter().enumerate().filter(|(_, it)| is_sought(it));
    for ((nth, train), look) in sought.zip(&mut looks) {
        look.nth = nth;
        len += 1;
        let Some(first) = batch.get(usize::from(train.first)) else {
            continue;
        };
        look.is_repeat = last.is_some_and(|last| ends_alike(last, first));
        if !look.is_repeat {
            look.hash = flow_of(first).local_hash(demux.key);
            places.prefetch(look.hash);
            last = Some(first);
        }
    }
    let looks = looks.get_mut(..len).unwrap_or_default();
    for look in looks.iter_mut().filter(|look| !look.is_repeat) {
        let who = match places.find(look.hash) {
            Who::Nobody => at_any_address(cx, places, trains.get(look.nth), batch),
            who => who,
        };
        let Who::Alone(slot) = who else { continue };
        look.socket = demux.sockets.slot(slot).map(|socket| {
            // The set that most sockets still have.
            prefetch_read(socket.key_set(0));
            socket.queue.prefetch();
            (slot, socket)
        });
    }
    let mut found = (0, None);
    for look in &*looks {
        let Some(train) = trains.get_mut(look.nth) else {
            continue;
        };
        if !look.is_repeat {
            let first = batch.get(usize::from(train.first));
            found = look
                .socket
                .zip(first)
                .map_or((0, None), |((slot, socket), first)| {
                    (slot, bound_state(socket, first))
                });
        }
        (train.slot, train.state) = found;
    }
    if demux.moves() == moves {
        return;
    }
    // One that has moved may have been missed in both tables.
    for look in looks {
        if let Some(train) = trains.get_mut(look.nth) {
            train.state = None;
        }
    }
}

/// A train whose socket is looked for.
#[derive(Clone, Copy, Default)]
struct Sought<'a> {
    nth: usize,
    /// Of its destination, unless that is the one of the train before.
    hash: u32,
    is_repeat: bool,
    socket: Option<(u32, &'a Slot)>,
}

/// The state in which a socket takes a packet from anybody, if it is in such a state.
#[inline]
fn bound_state(socket: &Slot, packet: &Packet) -> Option<NonZeroU64> {
    let status = socket.status();
    let takes = status.mode == Mode::Bound
        && socket
            .key_set(status.keys)
            .covers(&flow_of(packet), packet.iif);
    NonZeroU64::new(status.pack()).filter(|_| takes)
}

/// Whether two packets are for the same address and port.
#[inline]
fn ends_alike(one: &Packet, other: &Packet) -> bool {
    one.dst_port == other.dst_port
        && one.version == other.version
        && match one.version {
            IpVersion::V4 => V4::dst(one) == V4::dst(other),
            IpVersion::V6 => V6::dst(one) == V6::dst(other),
        }
}

#[inline(never)]
fn at_any_address(
    cx: &Context<'_>,
    places: &Table,
    train: Option<&Train>,
    batch: &[Packet],
) -> Who {
    let first = train.and_then(|train| batch.get(usize::from(train.first)));
    let key = cx.stack.demux.key;
    first.map_or(Who::Nobody, |first| {
        places.find(flow_of(first).wildcard_hash(key))
    })
}

#[inline]
fn flow_of(packet: &Packet) -> Flow {
    match packet.version {
        IpVersion::V4 => Flow::of_packet::<V4>(packet),
        IpVersion::V6 => Flow::of_packet::<V6>(packet),
    }
}
