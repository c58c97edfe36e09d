use crate::{core::Context, family::Family, packet::*};
pub(crate) fn fragment<F: Family>(_: &mut Context<'_>, _: Packet, _: u32) -> Option<PacketQueue> {
    None
}
