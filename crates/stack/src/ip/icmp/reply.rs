//! Requests that are answered: echo (RFC 792, RFC 1122 section 3.2.2.6, RFC 4443 section 4.2) and
//! timestamp (RFC 1122 section 3.2.2.8).
//!
//! The reply is the request turned round, in the same buffers; one that came in fragments leaves in
//! fragments.

use zerocopy::FromBytes;

use super::{error, fill_checksum, initial_sum, limit};
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::Family;
use crate::interface::LOOPBACK;
use crate::ip::destination;
use crate::packet::{IpVersion, Meta, Packet};
use crate::time::Instant;
use crate::transmit::{self, OutputRoute};
use crate::wire::checksum::update_u16;
use crate::wire::icmp::{v4, v6};
use crate::wire::{Checksum, IcmpHeader};

/// Bytes of a timestamp message: the header, then when it left, arrived and was answered.
const TIMESTAMP_LEN: usize = IcmpHeader::LEN + 12;

/// Answers an echo request.
pub(super) fn echo<F: Family>(cx: &mut Context<'_>, packet: Packet) {
    let kind = match F::VERSION {
        IpVersion::V4 => v4::ECHO_REPLY,
        IpVersion::V6 => v6::ECHO_REPLY,
    };
    reply::<F>(cx, packet, kind, |message, asked, answered| {
        turn_round(message, kind, sum_of::<F>(asked), sum_of::<F>(answered));
    });
}

/// Answers a timestamp request.
pub(super) fn timestamp<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    let end = usize::from(packet.l4_offset) + TIMESTAMP_LEN;
    if !packet.linearize(end) {
        return cx.drop(packet, DropReason::IcmpInvalid);
    }
    packet.truncate(end);
    let now = cx.now;
    reply::<F>(cx, packet, v4::TIMESTAMP_REPLY, |message, _, answered| {
        if let Ok(header) = IcmpHeader::mut_from_prefix(message.data_mut()).map(|(h, _)| h) {
            header.kind = v4::TIMESTAMP_REPLY;
            header.code = 0;
            header.checksum = 0.into();
        }
        let received_and_sent = message
            .data_mut()
            .get_mut(IcmpHeader::LEN + 4..)
            .unwrap_or_default();
        for time in received_and_sent.chunks_mut(4) {
            time.copy_from_slice(&non_standard_time(now));
        }
        fill_checksum::<F>(message, answered.src, answered.dst);
    });
}

/// Between whom a message goes.
#[derive(Clone, Copy)]
struct Ends<F: Family> {
    src: F::Addr,
    dst: F::Addr,
    len: usize,
}

/// Turns a request into its reply (`rewrite` gets the message without its IP header) and sends it.
fn reply<F: Family>(
    cx: &mut Context<'_>,
    mut packet: Packet,
    kind: u8,
    rewrite: impl FnOnce(&mut Packet, Ends<F>, Ends<F>),
) {
    let Some(route) = reply_route::<F>(cx, &packet, kind) else {
        return cx.drop(packet, DropReason::IcmpNoReply);
    };
    let (src, dst, tos) = (F::src(&packet), F::dst(&packet), F::traffic_class(&packet));
    if !packet.pull(usize::from(packet.l4_offset)) {
        return cx.drop(packet, DropReason::IcmpInvalid);
    }
    *packet = Meta {
        version: F::VERSION,
        ..Meta::default()
    };
    let len = packet.total_len();
    let asked = Ends { src, dst, len };
    let answered = Ends {
        src: route.src,
        dst: route.dst,
        len,
    };
    rewrite(&mut packet, asked, answered);
    error::send::<F>(cx, packet, kind, &route, tos, None);
}

/// Back to who asked, from the address asked; from one of the interface's if that was a group or a
/// broadcast. `None` if there is no way, or the limits say to keep silent.
fn reply_route<'g, F: Family>(
    cx: &Context<'g>,
    packet: &Packet,
    kind: u8,
) -> Option<OutputRoute<'g, F>> {
    let (peer, asked) = (F::src(packet), F::dst(packet));
    if !F::is_unicast(peer) {
        return None;
    }
    let message = IcmpHeader::new(kind, 0, 0);
    if packet.iif != LOOPBACK && !limit::may_send::<F>(cx, peer, &message) {
        return None;
    }
    let src = (!destination::is_to_many::<F>(cx, packet)).then_some(asked);
    transmit::route_back::<F>(cx, peer, src, packet.iif).ok()
}

fn sum_of<F: Family>(ends: Ends<F>) -> Checksum {
    initial_sum::<F>(ends.src, ends.dst, ends.len)
}

/// Changes the type, and the checksum by the difference (RFC 1624), so that a payload which this
/// host damaged does not get a checksum that says it is right.
fn turn_round(message: &mut Packet, kind: u8, asked: Checksum, answered: Checksum) {
    let Ok((header, _)) = IcmpHeader::mut_from_prefix(message.data_mut()) else {
        return;
    };
    let before = u16::from_be_bytes([header.kind, header.code]);
    header.kind = kind;
    let after = u16::from_be_bytes([header.kind, header.code]);
    let sum = update_u16(header.checksum.get(), before, after);
    // Where the sum is zero by difference it may be the zero of a message of nothing but zeros, whose
    // checksum is 0xffff; for any other, both are right.
    header.checksum = match update_u16(sum, !asked.finish(), !answered.finish()) {
        0 => 0xffff,
        sum => sum,
    }
    .into();
}

/// The stack has no clock that knows the time of day; the first bit says that these milliseconds
/// count from somewhere else (RFC 792).
fn non_standard_time(now: Instant) -> [u8; 4] {
    const NON_STANDARD: u64 = 1 << 31;
    let [.., a, b, c, d] = (NON_STANDARD | (now.as_millis() % NON_STANDARD)).to_be_bytes();
    [a, b, c, d]
}
