use forebay_sync::rcu::Domain;
use forebay_sync::static_key::StaticKey;
pub struct Demux(StaticKey);
impl Demux {
    pub(crate) fn new(_: &Domain, _: [u64; 2], _: usize) -> Self {
        Self(StaticKey::new())
    }
    pub(crate) fn early_key(&self) -> &StaticKey {
        &self.0
    }
}
pub(crate) mod early {
    use crate::{core::Context, family::Family, packet::Packet};
    pub(crate) fn prefetch<F: Family>(_: &mut Context<'_>, _: &mut Packet) {}
    pub(crate) fn look<F: Family>(_: &mut Context<'_>, _: &mut Packet) {}
}
