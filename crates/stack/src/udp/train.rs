//! Trains for this host whose socket is known: plain datagrams, which enter its queue together.

use core::num::NonZeroU64;

use super::burst;
use super::queue::Moved;
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, PacketQueue};
use crate::socket::Flag;

/// Takes what is for the socket of a slot, which takes it in the state `state`.
#[inline(always)]
pub(crate) fn receive_train(
    cx: &mut Context<'_>,
    slot: u32,
    state: NonZeroU64,
    mut packets: impl Iterator<Item = Packet>,
) {
    let Some(mut first) = packets.next() else {
        return;
    };
    let version = first.version;
    first.timestamp = cx.now;
    let mut train = PacketQueue::new();
    train.push(first);
    for mut packet in packets {
        packet.timestamp = cx.now;
        train.push(packet);
    }
    let in_delivers = match version {
        IpVersion::V4 => V4::MIB.in_delivers,
        IpVersion::V6 => V6::MIB.in_delivers,
    };
    cx.core.add(in_delivers, train.len() as u64);
    // What came before goes before.
    burst::flush(cx);
    let slot = cx.stack.demux.sockets().slot(slot);
    let pushed = match slot {
        Some(slot) if !slot.options().has(Flag::Filter) => {
            let (allowance, sysctls) = (&mut cx.core.allowance, cx.view.sysctls);
            slot.queue.push(&mut train, allowance, sysctls, state.get())
        }
        _ => Err(Moved),
    };
    if !train.is_empty() {
        burst::finish(cx, slot, train, pushed);
    }
}
