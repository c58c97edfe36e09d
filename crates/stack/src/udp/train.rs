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
    packets: impl Iterator<Item = Packet>,
) {
    let mut train = PacketQueue::new();
    // A socket may be open to both families.
    let mut of_v6 = 0;
    for mut packet in packets {
        packet.timestamp = cx.now;
        of_v6 += u64::from(packet.version == IpVersion::V6);
        train.push(packet);
    }
    cx.core.add(V4::MIB.in_delivers, train.len() as u64 - of_v6);
    cx.core.add(V6::MIB.in_delivers, of_v6);
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
