//! The receive path, top to bottom.
//!
//! A batch goes through the stages together: each stage looks at every packet before the next
//! stage begins, so that the memory which one packet needs is fetched while another is looked at.
//! A stage decides and writes its [`Verdict`] on the packet; nothing happens to anything else until
//! `act`, which goes through the batch in the order of arrival. That is why the size of a batch
//! never shows in what comes out.
//!
//! ```text
//! validate ─▶ coalesce ─▶ demux early ─▶ route ─▶ act ─┬▶ deliver ─▶ UDP, TCP, ICMP
//!  (parse)     (GRO, if     (own, known    (the rest)    ├▶ forward ─▶ transmit
//!              asked for)   flows only)                  └▶ drop, reject
//! ```

use forebay_sync::prefetch::prefetch_slice;

use crate::batch::{Sorted, Tally, Train};
use crate::core::{Context, Core};
use crate::counters::Counter;
use crate::demux::early;
use crate::demux::train::find_bound;
use crate::devices::InDevice;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::interface::LOOPBACK;
use crate::ip::forward::{Leaving, forward};
use crate::ip::icmp::{self, IcmpError};
use crate::ip::plain;
use crate::ip::route::route;
use crate::ip::train;
use crate::ip::validate::validate;
use crate::packet::{IpVersion, Packet, PacketQueue, Refusal, Verdict};
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::wire::protocol;
use crate::{gro, multicast, tcp, udp};

/// Most packets that go through the stages together; `net.core.dev_weight` may ask for fewer.
pub const MAX_BATCH: usize = 64;

/// A stage that a batch goes through as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Parsed, and told apart.
    Validate,
    /// The sockets of connected flows are looked for.
    EarlyDemux,
    /// Every packet has its verdict.
    Route,
    /// The verdicts are carried out: no packet is left.
    Act,
}

/// Who looks on while packets go through the stages: to measure, or to tell. It is a type, so that
/// where nobody looks on, nothing asks whether somebody does.
pub trait Observer {
    /// A batch is about to go through the stages.
    #[inline]
    fn before(&mut self) {}

    /// The packets of the batch have been through a stage.
    fn after(&mut self, stage: Stage, batch: &[Packet]);
}

/// Nobody.
impl Observer for () {
    #[inline]
    fn after(&mut self, _stage: Stage, _batch: &[Packet]) {}
}

impl Stack {
    /// Takes in packets that came by an interface, in the order of their arrival. Their bytes start
    /// at the IP header. What they cause to be sent waits in the interfaces' queues afterwards.
    pub fn receive(&self, core: &mut Core, now: Instant, ifindex: u32, packets: &mut PacketQueue) {
        self.receive_observed(core, now, ifindex, packets, &mut ());
    }

    /// The same, with somebody looking on.
    pub fn receive_observed(
        &self,
        core: &mut Core,
        now: Instant,
        ifindex: u32,
        packets: &mut PacketQueue,
        observer: &mut impl Observer,
    ) {
        while !packets.is_empty() {
            self.with_core(core, now, |cx| {
                receive_batch(cx, ifindex, packets, observer);
            });
        }
    }

    /// Does what is due at `now`: packets on the loopback interface, timers. Returns when it wants
    /// to be called again at the latest.
    pub fn poll(&self, core: &mut Core, now: Instant) -> Option<Instant> {
        let mut looped = PacketQueue::new();
        self.with_core(core, now, |cx| {
            if let Some(loopback) = cx.view.interfaces.get(LOOPBACK) {
                loopback.take_waiting(&mut looped);
            }
        });
        self.receive(core, now, LOOPBACK, &mut looped);
        let deadline = self.with_core(core, now, |cx| {
            let deadlines = [
                self.reassembly4.expire(cx),
                self.reassembly6.expire(cx),
                multicast::expire(cx),
                tcp::expire(cx),
            ];
            deadlines.into_iter().flatten().min()
        });
        // Only now: who is told of what expired may be this host itself.
        let is_more_looped = self.with_core(core, now, |cx| {
            let loopback = cx.view.interfaces.get(LOOPBACK);
            loopback.is_some_and(|loopback| !loopback.is_idle())
        });
        if is_more_looped { Some(now) } else { deadline }
    }
}

/// One batch: up to `dev_weight` packets from the front of `packets`.
fn receive_batch(
    cx: &mut Context<'_>,
    ifindex: u32,
    packets: &mut PacketQueue,
    observer: &mut impl Observer,
) {
    observer.before();
    let interface = cx.view.interfaces.get(ifindex);
    let Some(interface) = interface.filter(|interface| interface.up) else {
        // A device hands over what it had, however late.
        while let Some(packet) = packets.pop() {
            cx.drop(packet, DropReason::DevDown);
        }
        return;
    };
    let device = InDevice::new(cx.view, interface);
    let (mut batch, mut trains) = cx.core.take_batch();
    let weight = usize::try_from(cx.view.sysctls.get(Knob::DevWeight)).unwrap_or(MAX_BATCH);
    packets.pop_many(weight, &mut batch);
    for packet in &batch {
        // Validation reads the header when the whole batch is on its way.
        prefetch_slice(packet.data());
    }

    let mut sorted = Sorted::new();
    validate_batch(cx, &device, &mut sorted, &mut trains, &mut batch);
    observer.after(Stage::Validate, &batch);
    gro::coalesce(cx, &mut sorted, &mut batch);
    let moves = cx.stack.demux.moves();
    early::demux(cx, &sorted.others, &mut trains, &mut batch);
    tcp::early::demux(cx, &sorted.others, &mut batch);
    observer.after(Stage::EarlyDemux, &batch);
    route(cx, &device, &sorted, &mut trains, &mut batch);
    observer.after(Stage::Route, &batch);
    if trains.iter().any(|train| train.is_local) {
        find_bound(cx, &mut trains, &batch, moves);
    }
    act_on_batch(cx, ifindex, &mut trains, &mut batch);
    udp::flush(cx);
    observer.after(Stage::Act, &batch);

    cx.core.give_back_batch(batch, trains);
}

/// Parses every packet and tells transit apart: most of it by a glance.
#[inline(never)]
fn validate_batch(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    trains: &mut Vec<Train>,
    batch: &mut [Packet],
) {
    // What begins with a train mostly is nothing else.
    let taken = train::admit(cx, device, sorted, trains, 0, batch);
    if taken > 0 {
        validate_behind(cx, device, sorted, trains, taken, batch);
    } else {
        for (lane, packet) in batch.iter_mut().enumerate() {
            if !plain::admit(device, sorted, lane, packet) {
                packet.verdict = validate(cx, device, sorted, lane, packet);
            }
        }
    }
    count_arrivals::<V4>(cx, &sorted.arrived4);
    count_arrivals::<V6>(cx, &sorted.arrived6);
}

/// What is behind a batch's first train, from this lane on: more of them, transit, or what has to be
/// looked at closely.
#[inline(never)]
fn validate_behind(
    cx: &Context<'_>,
    device: &InDevice<'_>,
    sorted: &mut Sorted,
    trains: &mut Vec<Train>,
    mut lane: usize,
    batch: &mut [Packet],
) {
    while let Some(packet) = batch.get_mut(lane) {
        if plain::admit(device, sorted, lane, packet) {
            lane += 1;
            continue;
        }
        let packets = batch.get_mut(lane..).unwrap_or_default();
        let taken = train::admit(cx, device, sorted, trains, lane, packets);
        if taken == 0
            && let Some(packet) = packets.first_mut()
        {
            packet.verdict = validate(cx, device, sorted, lane, packet);
        }
        lane += taken.max(1);
    }
}

fn count_arrivals<F: Family>(cx: &Context<'_>, arrived: &Tally) {
    cx.core.add(F::MIB.in_receives, arrived.packets.into());
    cx.core.add(F::MIB.in_octets, arrived.octets);
}

/// Carries the verdicts out, in the order of arrival: plain transit leaves in runs, and before all that
/// a packet behind it causes to be sent.
#[inline(never)]
fn act_on_batch(cx: &mut Context<'_>, iif: u32, trains: &mut Vec<Train>, batch: &mut Vec<Packet>) {
    if !trains.is_empty() {
        return act_on_trains(cx, iif, trains, batch);
    }
    let mut leaving = Leaving::new(cx, iif);
    for packet in batch.drain(..) {
        act_in_turn(cx, &mut leaving, packet);
    }
    leaving.flush(cx);
}

/// The same where trains are between the others.
#[inline(never)]
fn act_on_trains(cx: &mut Context<'_>, iif: u32, trains: &mut Vec<Train>, batch: &mut Vec<Packet>) {
    let mut leaving = Leaving::new(cx, iif);
    let mut packets = batch.drain(..);
    let mut lane = 0;
    let mut trains = trains.drain(..).peekable();
    while let Some(train) = trains.next() {
        // Others are acted upon one by one, and so are those whose socket nobody knows yet.
        let Some(state) = train.state else { continue };
        for packet in packets.by_ref().take(usize::from(train.first) - lane) {
            act_in_turn(cx, &mut leaving, packet);
        }
        leaving.flush(cx);
        lane = train.lanes().end;
        // Other senders' trains may be for the same socket.
        let is_next = |next: &Train, lane| {
            (next.slot, next.state) == (train.slot, train.state) && usize::from(next.first) == lane
        };
        while let Some(next) = trains.next_if(|next| is_next(next, lane)) {
            lane = next.lanes().end;
        }
        let len = lane - usize::from(train.first);
        udp::receive_train(cx, train.slot, state, packets.by_ref().take(len));
    }
    for packet in packets {
        act_in_turn(cx, &mut leaving, packet);
    }
    leaving.flush(cx);
}

#[inline(always)]
fn act_in_turn<'g>(cx: &mut Context<'g>, leaving: &mut Leaving<'g>, mut packet: Packet) {
    if leaving.admits(cx, &mut packet) {
        leaving.push(packet);
    } else {
        leaving.flush(cx);
        act(cx, packet);
    }
}

/// Carries out what the stages decided: the one place where the way of whatever is not plain ends or
/// forks.
#[inline(never)]
pub(crate) fn act(cx: &mut Context<'_>, packet: Packet) {
    match packet.version {
        IpVersion::V4 => act_on::<V4>(cx, packet),
        IpVersion::V6 => act_on::<V6>(cx, packet),
    }
}

#[inline(always)]
fn act_on<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    match packet.verdict {
        Verdict::Forward => forward::<F>(cx, packet),
        Verdict::Deliver => deliver::<F>(cx, packet),
        Verdict::Drop(reason) => cx.drop(packet, reason),
        Verdict::Reject(reason) => {
            let error = packet.icmp_error;
            icmp::refuse::<F>(cx, packet, Refusal { reason, error });
        }
        // Routing leaves nothing undecided; a packet without a verdict has no route.
        Verdict::Undecided => cx.drop(packet, DropReason::IpInNoRoutes),
    }
}

/// Hands a packet to this host: whole again if it was in fragments, its extension headers done.
#[inline(never)]
fn deliver<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    let Some(packet) = F::local_in(cx, packet) else {
        return;
    };
    match packet.protocol {
        protocol::UDP => {
            cx.core.count(F::MIB.in_delivers);
            udp::receive::<F>(cx, packet);
        }
        protocol::TCP => {
            cx.core.count(F::MIB.in_delivers);
            tcp::receive::<F>(cx, packet);
        }
        icmp if icmp == F::ICMP => {
            cx.core.count(F::MIB.in_delivers);
            icmp::receive::<F>(cx, packet);
        }
        protocol::IGMP if F::VERSION == IpVersion::V4 => {
            cx.core.count(Counter::IpInDelivers);
            multicast::receive_igmp(cx, packet);
        }
        _ => {
            let error = IcmpError::ProtocolUnreachable;
            icmp::refuse::<F>(cx, packet, Refusal::told(DropReason::IpNoProto, error));
        }
    }
}
