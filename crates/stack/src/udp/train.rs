//! Trains for this host: plain datagrams of one flow, whose socket early demux has found. They enter
//! its queue together.

use core::num::NonZeroU64;

use super::burst;
use super::queue::Moved;
use crate::core::{Context, Local};
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, PacketQueue};
use crate::socket::Flag;

/// Takes a train for the socket that its packets name, which takes them in the state `state`.
#[inline(never)]
pub(crate) fn receive_train(
    cx: &mut Context<'_>,
    state: NonZeroU64,
    packets: impl Iterator<Item = Packet>,
) {
    // What came before goes before.
    burst::flush(cx);
    let mut train = PacketQueue::new();
    for mut packet in packets {
        packet.timestamp = cx.now;
        train.push(packet);
    }
    let Some(first) = train.peek() else { return };
    let in_delivers = match first.version {
        IpVersion::V4 => V4::MIB.in_delivers,
        IpVersion::V6 => V6::MIB.in_delivers,
    };
    cx.core.add(in_delivers, train.len() as u64);
    let slot = first
        .socket
        .and_then(|id| cx.stack.demux.sockets().slot(id.slot));
    let Local { allowance, .. } = &mut *cx.core;
    let pushed = match slot {
        Some(slot) if !slot.options().has(Flag::Filter) => {
            let sysctls = cx.view.sysctls;
            slot.queue.push(&mut train, allowance, sysctls, state.get())
        }
        _ => Err(Moved),
    };
    if !train.is_empty() {
        burst::finish(cx, slot, train, pushed);
    }
}
