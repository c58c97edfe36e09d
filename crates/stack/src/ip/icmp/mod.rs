use crate::{core::Context, family::Family, packet::Packet};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    NetUnreachable,
    HostUnreachable,
    Prohibited,
    ProtocolUnreachable,
    PortUnreachable,
    PacketTooBig { mtu: u32 },
    TimeExceeded,
    ReassemblyTimeExceeded,
    ParameterProblem { code: u8, pointer: u32 },
}
pub(crate) struct RateLimiter;
impl RateLimiter {
    pub(crate) fn new(_: [u64; 2]) -> Self {
        Self
    }
}
pub(crate) fn receive<F: Family>(_: &mut Context<'_>, _: Packet) {}
pub(crate) fn send_error<F: Family>(_: &mut Context<'_>, _: &Packet, _: IcmpError) {}
pub(crate) fn send_redirect<F: Family>(_: &mut Context<'_>, _: &Packet, _: F::Addr) {}
