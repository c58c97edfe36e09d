use crate::{core::Context, family::Family, packet::Packet, time::Instant};
pub(crate) struct Reassembler<F>(core::marker::PhantomData<F>);
impl<F> Reassembler<F> {
    pub(crate) fn new(_: [u64; 2]) -> Self {
        Self(core::marker::PhantomData)
    }
    pub(crate) fn expire(&self, _: &mut Context<'_>) -> Option<Instant> {
        None
    }
}
pub(crate) fn local_in_v4(_: &mut Context<'_>, p: Packet) -> Option<Packet> {
    Some(p)
}
