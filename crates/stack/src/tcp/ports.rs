//! TEMP
use core::net::IpAddr;
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortClaim {
    pub(crate) addr: IpAddr,
    pub(crate) port: u16,
    pub(crate) device: u32,
    pub(crate) dual_stack: bool,
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
}
#[derive(Debug)]
pub(crate) struct InUse;

pub(crate) struct Ports(core::sync::atomic::AtomicU16);
impl Ports {
    pub(crate) fn new(_key: crate::siphash::Key) -> Self {
        Self(Default::default())
    }
    pub(crate) fn ephemeral(&self) -> u16 {
        32768 + self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed) % 28000
    }
}
