use crate::{core::Context, interface::Interface, packet::*};
pub(crate) fn check(_: &mut Context<'_>, _: &Packet) -> Verdict {
    Verdict::Undecided
}
pub(crate) fn forward(_: &mut Context<'_>, _: &mut Packet, _: &Interface) {}
