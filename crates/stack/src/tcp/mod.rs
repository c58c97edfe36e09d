//! TCP (RFC 9293): so far the answer of a host on which no port is open.

use zerocopy::FromBytes;

use crate::core::Context;
use crate::counters::Counter;
use crate::drop::DropReason;
use crate::family::Family;
use crate::ip::destination;
use crate::packet::{ChecksumState, Packet};
use crate::wire::TcpHeader;

mod api;
#[allow(dead_code)]
mod chunks;
pub(crate) mod congestion;
#[allow(dead_code)]
pub(crate) mod cookies;
mod error;
#[allow(dead_code)]
pub(crate) mod events;
mod info;
#[allow(dead_code)]
pub(crate) mod isn;
#[allow(dead_code)]
pub(crate) mod listeners;
mod options;
#[allow(dead_code)]
pub(crate) mod ports;
#[allow(dead_code)]
pub(crate) mod request;
mod reset;
#[allow(dead_code)]
pub(crate) mod table;
#[allow(dead_code)]
pub(crate) mod time_wait;
#[allow(dead_code)]
pub(crate) mod timers;

pub use congestion::Algorithm;
pub use error::{ListenError, TcpConnectError, TcpError};
pub use info::{
    Accepted, SendFlags, Side, TcpInfo, TcpReadiness, TcpSocketInfo, TcpState, TcpTimer,
};
pub use options::{TcpOption, TcpOptionValues};

/// Takes in a segment for this host.
pub(crate) fn receive<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    // A connection has two ends (RFC 9293 section 3.9.2.3, MUST-57): who sends segments to a crowd
    // gets no answer.
    if destination::is_to_many::<F>(cx, &packet) {
        return cx.drop(packet, DropReason::TcpNoSocket);
    }
    cx.core.count(Counter::TcpInSegs);
    let Some(header) = read_header(&mut packet) else {
        return cx.drop(packet, DropReason::TcpHdr);
    };
    if packet.checksum == ChecksumState::None && !is_checksum_valid::<F>(&packet) {
        return cx.drop(packet, DropReason::TcpCsum);
    }
    reset::answer_closed_port::<F>(cx, &packet, &header);
    cx.drop(packet, DropReason::TcpNoSocket);
}

/// The header, with it and its options in the packet's head.
fn read_header(packet: &mut Packet) -> Option<TcpHeader> {
    let offset = usize::from(packet.l4_offset);
    if !packet.linearize(offset + TcpHeader::LEN) {
        return None;
    }
    let (header, _) = TcpHeader::read_from_prefix(packet.data().get(offset..)?).ok()?;
    let is_whole =
        header.header_len() >= TcpHeader::LEN && packet.linearize(offset + header.header_len());
    is_whole.then_some(header)
}

fn is_checksum_valid<F: Family>(packet: &Packet) -> bool {
    let mut skip = usize::from(packet.l4_offset);
    let len = packet.total_len().saturating_sub(skip);
    let mut sum = F::pseudo_header(F::src(packet), F::dst(packet), packet.protocol, len);
    for chunk in packet.chunks() {
        sum.add_bytes(chunk.get(skip..).unwrap_or_default());
        skip = skip.saturating_sub(chunk.len());
    }
    sum.is_valid()
}
