//! GRO: datagrams of one flow that came in one batch go on as a single packet, if their socket has
//! asked for it (`UDP_GRO`). The rules are those of Linux's `udp_gro_receive`.
//!
//! Such a packet is what a sender makes who leaves segmentation to a device: one header, all the
//! payload, and [`Gso`], which says how long each datagram was. Whoever can't use it cuts it again
//! (`segment.rs`), and has every datagram back as it was.
//!
//! The stage stands behind validation, which has parsed the packets and told transit apart: a router
//! joins nothing and pays nothing. Nor does anybody else while no socket has asked.

use zerocopy::FromBytes;

use crate::batch::{Lanes, Sorted};
use crate::core::Context;
use crate::counters::Counter;
use crate::demux::flow::Flow;
use crate::family::{Family, V4, V6};
use crate::packet::{ChecksumState, Destination, Gso, GsoKind, IpVersion, Packet, PacketQueue};
use crate::receive::MAX_BATCH;
use crate::segment;
use crate::socket::Slot;
use crate::udp;
use crate::wire::{Ipv4Header, UdpHeader, protocol};

/// Flows that are held at a time (Linux's `MAX_GRO_SKBS`).
const MAX_HEADS: usize = 8;

/// A batch has no more packets than Linux joins (`UDP_GRO_CNT_MAX`), so nobody has to count.
const _: () = assert!(MAX_BATCH <= 64);

/// Joins packets of a batch, if any socket could want it. Those that are joined to others are gone
/// from the batch and from `sorted`.
#[inline]
pub(crate) fn coalesce(cx: &mut Context<'_>, sorted: &mut Sorted, batch: &mut Vec<Packet>) {
    if cx.stack.demux.gro_key().is_enabled() && sorted.others.len() > 1 {
        coalesce_some(cx, sorted, batch);
    }
}

#[inline(never)]
fn coalesce_some(cx: &mut Context<'_>, sorted: &mut Sorted, batch: &mut Vec<Packet>) {
    let plan = Plan::new(cx, &sorted.others, batch);
    if plan.joined != 0 {
        plan.carry_out(cx, sorted, batch);
    }
}

/// Which packets go on in which others.
struct Plan {
    /// The flows whose next packet may be joined.
    heads: [Option<Head>; MAX_HEADS],
    /// Which head makes room for the next flow.
    oldest: usize,
    /// A bit for each lane whose packet is joined to another.
    joined: u64,
    /// Of those, the lane of the other.
    into: [u8; MAX_BATCH],
    /// What the packets are that others are joined to.
    gso: [Option<Gso>; MAX_BATCH],
}

/// A flow's packet that others may be joined to.
#[derive(Debug, Clone, Copy)]
struct Head {
    lane: u8,
    /// Payload bytes of each datagram but the last.
    size: u16,
    /// Bytes of the packet with all that was joined to it.
    len: usize,
    /// Datagrams so far.
    datagrams: u16,
    /// All have the same IPv4 identification.
    fixed_id: bool,
    /// Whether the flow's socket has asked; looked up when there is something to join.
    is_wanted: Option<bool>,
}

impl Plan {
    fn new(cx: &Context<'_>, lanes: &Lanes, batch: &mut [Packet]) -> Self {
        let mut plan = Self {
            heads: [None; MAX_HEADS],
            oldest: 0,
            joined: 0,
            into: [0; MAX_BATCH],
            gso: [None; MAX_BATCH],
        };
        for lane in lanes.iter() {
            plan.add(cx, batch, lane);
        }
        plan
    }

    /// The next packet: joined, or held for others, or neither.
    fn add(&mut self, cx: &Context<'_>, batch: &mut [Packet], lane: usize) {
        let Some(packet) = batch.get(lane) else {
            return;
        };
        if !packet.has_ports {
            // A fragment, say: it may be of any flow, and none of that must overtake it.
            self.heads = [None; MAX_HEADS];
            return;
        }
        if packet.protocol != protocol::UDP {
            return;
        }
        let of_flow = |head: &&mut Option<Head>| {
            let first = head.and_then(|head| batch.get(usize::from(head.lane)));
            first.is_some_and(|first| is_one_flow(first, packet))
        };
        let Some(place) = self.heads.iter_mut().find(of_flow) else {
            return self.hold(packet, lane);
        };
        let Some(head) = place else { return };
        if !*head.is_wanted.get_or_insert_with(|| is_wanted(cx, packet)) {
            return;
        }
        let into = usize::from(head.lane);
        let Ok([first, packet]) = batch.get_disjoint_mut([into, lane]) else {
            return;
        };
        let Some(size) = head.take(first, packet) else {
            // Whatever comes later must not overtake this one.
            *place = Head::of(packet, lane).map(|next| Head {
                is_wanted: head.is_wanted,
                ..next
            });
            return;
        };
        self.joined |= 1 << lane;
        self.into[lane] = head.lane;
        self.gso[into] = head.gso();
        if size < head.size {
            // A shorter one is the last.
            *place = None;
        }
    }

    /// Holds a flow's first packet for those behind it, in place of the flow that was held first if
    /// there are too many.
    fn hold(&mut self, packet: &Packet, lane: usize) {
        let Some(head) = Head::of(packet, lane) else {
            return;
        };
        let free = self.heads.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.oldest = (self.oldest + 1) % MAX_HEADS;
            self.oldest
        });
        self.heads[place] = Some(head);
    }

    fn carry_out(&self, cx: &mut Context<'_>, sorted: &mut Sorted, batch: &mut Vec<Packet>) {
        let mut packets = PacketQueue::new();
        for packet in batch.drain(..) {
            packets.push(packet);
        }
        // Where the packet of each lane is now.
        let mut places = [0; MAX_BATCH];
        for lane in 0..MAX_BATCH {
            let Some(packet) = packets.pop() else { break };
            if self.joined >> lane & 1 == 0 {
                places[lane] = batch.len() as u8;
                batch.push(packet);
            } else if let Some(head) = batch.get_mut(usize::from(places[self.head_of(lane)])) {
                append(head, packet);
            }
        }
        for (lane, gso) in self.gso.iter().enumerate() {
            let head = batch.get_mut(usize::from(places[lane]));
            if let (Some(gso), Some(head)) = (gso, head) {
                match head.version {
                    IpVersion::V4 => complete::<V4>(head, *gso),
                    IpVersion::V6 => complete::<V6>(head, *gso),
                }
            }
        }
        sorted.renumber(self.joined, &places);
        let joined = self.joined.count_ones();
        cx.core.add(Counter::ForebayGroJoined, joined.into());
    }

    fn head_of(&self, lane: usize) -> usize {
        usize::from(self.into[lane]) % MAX_BATCH
    }
}

impl Head {
    /// `None` for a packet that nothing is joined to.
    fn of(packet: &Packet, lane: usize) -> Option<Self> {
        Some(Self {
            lane: lane as u8,
            size: payload_of(packet)?,
            len: packet.total_len(),
            datagrams: 1,
            fixed_id: false,
            is_wanted: None,
        })
    }

    /// Takes the flow's next packet, if it fits; returns its payload bytes. `first` is the packet
    /// that the others are joined to.
    fn take(&mut self, first: &mut Packet, packet: &mut Packet) -> Option<u16> {
        let size = payload_of(packet).filter(|size| *size <= self.size)?;
        let len = self.len + usize::from(size);
        let fixed_id = self.continues(first, packet)?;
        let is_good = len <= usize::from(u16::MAX) && verify(first) && verify(packet);
        is_good.then(|| {
            self.len = len;
            self.datagrams += 1;
            self.fixed_id = fixed_id;
            size
        })
    }

    /// Whether the IP header says the same as the first one's and has the identification that a
    /// segment in this place would have: the next one, or with DF set, which makes it mean nothing
    /// (RFC 6864), always the same (Linux's `inet_gro_flush`). Returns whether it is the latter.
    fn continues(&self, first: &Packet, packet: &Packet) -> Option<bool> {
        if packet.version == IpVersion::V6 {
            // Version, traffic class and flow label.
            let is_same = first.data().get(..4) == packet.data().get(..4)
                && V6::hop_limit(first) == V6::hop_limit(packet);
            return is_same.then_some(false);
        }
        let (first, _) = Ipv4Header::ref_from_prefix(first.data()).ok()?;
        let (next, _) = Ipv4Header::ref_from_prefix(packet.data()).ok()?;
        let is_same = first.ttl == next.ttl
            && first.tos == next.tos
            && first.fragment.get() == next.fragment.get();
        let distance = next.id.get().wrapping_sub(first.id.get());
        let may_be_fixed = self.datagrams == 1 && next.dont_fragment() && distance == 0;
        let fixed_id = self.fixed_id || may_be_fixed;
        let expected = if fixed_id { 0 } else { self.datagrams };
        (is_same && distance == expected).then_some(fixed_id)
    }

    fn gso(&self) -> Option<Gso> {
        let gso = Gso::new(self.size.try_into().ok()?, GsoKind::Udp);
        Some(Gso {
            fixed_id: self.fixed_id,
            ..gso
        })
    }
}

fn is_one_flow(one: &Packet, other: &Packet) -> bool {
    (one.src_port, one.dst_port, one.version) == (other.src_port, other.dst_port, other.version)
        && match one.version {
            IpVersion::V4 => ends::<V4>(one) == ends::<V4>(other),
            IpVersion::V6 => ends::<V6>(one) == ends::<V6>(other),
        }
}

fn ends<F: Family>(packet: &Packet) -> (F::Addr, F::Addr) {
    (F::src(packet), F::dst(packet))
}

/// Payload bytes of a datagram that can be joined with others: to an address of ours, in one piece,
/// neither empty nor without a checksum. A packet that came as several stays as its sender made it.
fn payload_of(packet: &Packet) -> Option<u16> {
    let offset = usize::from(packet.l4_offset);
    let (udp, _) = UdpHeader::ref_from_prefix(packet.data().get(offset..)?).ok()?;
    let len = usize::from(udp.len.get());
    let is_plain = packet.destination == Destination::Own
        && !packet.has_options
        && packet.gso.is_none()
        && udp.checksum.get() != 0
        && len == packet.total_len() - offset;
    let payload = len.checked_sub(UdpHeader::LEN)?;
    u16::try_from(payload)
        .ok()
        .filter(|len| is_plain && *len > 0)
}

/// Of what is joined nobody could tell any more which part is bad.
fn verify(packet: &mut Packet) -> bool {
    let is_good = udp::has_good_checksum(packet);
    if is_good && packet.checksum == ChecksumState::None {
        packet.checksum = ChecksumState::Verified;
    }
    is_good
}

/// Whether the socket that the packet is for takes joined ones.
fn is_wanted(cx: &Context<'_>, packet: &Packet) -> bool {
    match packet.version {
        IpVersion::V4 => is_wanted_by_socket::<V4>(cx, packet),
        IpVersion::V6 => is_wanted_by_socket::<V6>(cx, packet),
    }
}

fn is_wanted_by_socket<F: Family>(cx: &Context<'_>, packet: &Packet) -> bool {
    let demux = &cx.stack.demux;
    let flow = Flow::of_packet::<F>(packet);
    let local = (F::dst(packet).into(), packet.dst_port);
    // A group's program may send each of them to another member.
    let mut by_program = false;
    let ask = |_: &Slot, _| {
        by_program = true;
        None
    };
    let found = demux.lookup(&flow, local, packet.iif, ask);
    let slot = found.and_then(|best| demux.sockets().get(best.id));
    !by_program && slot.is_some_and(udp::takes_joined)
}

/// Adds a packet's payload to the one that it follows.
fn append(head: &mut Packet, mut packet: Packet) {
    let headers = usize::from(packet.l4_offset) + UdpHeader::LEN;
    // Its headers lie in its first buffer, where they were read.
    if packet.pull(headers) {
        head.push_frag(packet);
    }
}

/// Writes the lengths of all that was joined, and the checksum as who leaves it to a device does.
fn complete<F: Family>(packet: &mut Packet, gso: Gso) {
    let start = packet.l4_offset;
    let total = packet.total_len();
    let len = total - usize::from(start);
    segment::set_ip_len::<F>(packet, total);
    let pseudo = !F::pseudo_header(F::src(packet), F::dst(packet), protocol::UDP, len).finish();
    let bytes = packet.data_mut().get_mut(usize::from(start)..);
    let Some(Ok((udp, _))) = bytes.map(UdpHeader::mut_from_prefix) else {
        return;
    };
    udp.len = u16::try_from(len).unwrap_or(u16::MAX).into();
    udp.checksum = pseudo.into();
    packet.checksum = ChecksumState::Partial {
        start,
        offset: UdpHeader::CHECKSUM_OFFSET,
    };
    packet.gso = Some(gso);
}

#[cfg(test)]
mod tests;
