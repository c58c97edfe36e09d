use crate::{core::Context, packet::*};
pub(crate) fn hop_by_hop(_: &mut Context<'_>, _: &Packet) -> Verdict {
    Verdict::Undecided
}
pub(crate) fn walk(_: &mut Context<'_>, p: Packet) -> Option<Packet> {
    Some(p)
}
