//! TEMP
use super::ports::PortClaim;
use crate::socket::{SocketId, lock};
use core::net::IpAddr;
use std::sync::Mutex;
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<(PortClaim, SocketId)>>);
impl Listeners {
    pub(crate) fn new(_key: crate::siphash::Key) -> Self {
        Self::default()
    }
    pub(crate) fn add(&self, claim: &PortClaim, id: SocketId) {
        lock(&self.0).push((*claim, id));
    }
    pub(crate) fn remove(&self, _claim: &PortClaim, id: SocketId) {
        lock(&self.0).retain(|(_, other)| *other != id);
    }
    pub(crate) fn find(&self, addr: IpAddr, port: u16) -> Option<SocketId> {
        let list = lock(&self.0);
        let fits = |claim: &PortClaim| {
            (claim.port == port || claim.port == 0)
                && (claim.addr == addr
                    || (claim.addr.is_unspecified()
                        && (claim.addr.is_ipv4() == addr.is_ipv4() || claim.dual_stack)))
        };
        list.iter()
            .filter(|(claim, _)| fits(claim))
            .max_by_key(|(claim, _)| (claim.port != 0, !claim.addr.is_unspecified()))
            .map(|(_, id)| *id)
    }
}
