use crate::{core::Context, family::Family, packet::Packet};
pub(crate) fn receive<F: Family>(_: &mut Context<'_>, _: Packet) {}
