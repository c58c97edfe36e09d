use crate::{core::Context, family::Family, packet::Packet};
pub(crate) fn receive<F: Family>(_: &mut Context<'_>, _: Packet) {}
pub(crate) fn receive_error<F: Family>(
    _: &mut Context<'_>,
    _: &crate::ip::icmp::Quoted<F>,
    _: crate::socket::SocketError,
) {
}
