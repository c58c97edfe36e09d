//! Trains for this host: plain datagrams of one flow, whose socket early demux has found. They enter
//! its queue together.

use core::num::NonZeroU64;

use super::burst;
use super::queue::Refused;
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::packet::{IpVersion, Packet, PacketQueue};
use crate::socket::Flag;

/// Takes a train for the socket that its first packet names, which takes it in the state `state`.
#[inline(always)]
pub(crate) fn receive_train(
    cx: &mut Context<'_>,
    state: NonZeroU64,
    mut packets: impl Iterator<Item = Packet>,
) {
    let Some(mut first) = packets.next() else {
        return;
    };
    let (found, version) = (first.socket, first.version);
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
    let slot = found.and_then(|id| cx.stack.demux.sockets().slot(id.slot));
    let refused = match slot {
        Some(slot) if !slot.options().has(Flag::Filter) => {
            let (allowance, sysctls) = (&mut cx.core.allowance, cx.view.sysctls);
            slot.queue.push(train, allowance, sysctls, state.get())
        }
        _ => Err(Refused::Moved(train)),
    };
    if let Err(refused) = refused {
        burst::finish(cx, slot, refused);
    }
}
