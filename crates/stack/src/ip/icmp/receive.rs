//! What comes in.

use zerocopy::FromBytes;

use super::{count, initial_sum, notify, reply};
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::Family;
use crate::ip::destination;
use crate::multicast;
use crate::packet::{ChecksumState, IpVersion, Packet};
use crate::segment;
use crate::sysctl::Knob;
use crate::wire::IcmpHeader;
use crate::wire::icmp::{v4, v6};

/// Takes in an ICMP message for this host: whole, and its IP headers walked.
pub(crate) fn receive<F: Family>(cx: &mut Context<'_>, mut packet: Packet) {
    count::received::<F>(cx);
    let header = match verified_header::<F>(&mut packet) {
        Ok(header) => header,
        Err(reason) => return cx.drop(packet, reason),
    };
    count::received_type::<F>(cx, header.kind);
    match classify::<F>(cx, &packet, &header) {
        Action::Echo => reply::echo::<F>(cx, packet),
        Action::Timestamp => reply::timestamp::<F>(cx, packet),
        Action::Notify => notify::notify::<F>(cx, packet, &header),
        Action::Mld => multicast::receive_mld(cx, packet),
        Action::Drop(reason) => cx.drop(packet, reason),
    }
}

/// The header, if it is there and the whole message's checksum is right.
fn verified_header<F: Family>(packet: &mut Packet) -> Result<IcmpHeader, DropReason> {
    let offset = usize::from(packet.l4_offset);
    if !packet.linearize(offset + IcmpHeader::LEN) {
        return Err(DropReason::IcmpInvalid);
    }
    match packet.checksum {
        ChecksumState::None if !is_checksum_valid::<F>(packet, offset) => {
            return Err(DropReason::IcmpCsum);
        }
        // Left to the device by a sender on this machine; a reply is made from the whole one.
        ChecksumState::Partial { .. } => segment::complete_checksum(packet),
        ChecksumState::None | ChecksumState::Verified => {}
    }
    let message = packet.data().get(offset..).unwrap_or_default();
    let header = IcmpHeader::read_from_prefix(message);
    header.map_or(Err(DropReason::IcmpInvalid), |(header, _)| Ok(header))
}

fn is_checksum_valid<F: Family>(packet: &Packet, offset: usize) -> bool {
    let len = packet.total_len().saturating_sub(offset);
    let mut sum = initial_sum::<F>(F::src(packet), F::dst(packet), len);
    let mut skip = offset;
    for chunk in packet.chunks() {
        sum.add_bytes(chunk.get(skip..).unwrap_or_default());
        skip = skip.saturating_sub(chunk.len());
    }
    sum.is_valid()
}

/// What is to be done with a message.
enum Action {
    Mld,
    Echo,
    Timestamp,
    Notify,
    Drop(DropReason),
}

fn classify<F: Family>(cx: &Context<'_>, packet: &Packet, header: &IcmpHeader) -> Action {
    let is_to_many = destination::is_to_many::<F>(cx, packet);
    let is_on = |knob| cx.view.sysctls.is_on(knob);
    match F::VERSION {
        IpVersion::V4 => {
            let is_request = matches!(header.kind, v4::ECHO | v4::TIMESTAMP);
            if is_to_many && (!is_request || is_on(Knob::IcmpEchoIgnoreBroadcasts)) {
                return Action::Drop(DropReason::IcmpBroadcast);
            }
            classify_v4(header.kind, is_on(Knob::IcmpEchoIgnoreAll))
        }
        IpVersion::V6 => {
            let ignores_echo = is_on(Knob::Icmp6EchoIgnoreAll)
                || (is_to_many && is_on(Knob::Icmp6EchoIgnoreMulticast));
            classify_v6(header.kind, ignores_echo)
        }
    }
}

fn classify_v4(kind: u8, ignores_echo: bool) -> Action {
    match kind {
        v4::ECHO if ignores_echo => Action::Drop(DropReason::IcmpEchoIgnored),
        v4::ECHO => Action::Echo,
        v4::TIMESTAMP => Action::Timestamp,
        v4::DEST_UNREACH | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM => Action::Notify,
        // Source quench is dead (RFC 6633). A redirect would let a neighbour change the routes of
        // what may be a router (RFC 1812 section 5.2.7.2 forbids that); hosts may ignore it too.
        0..=v4::ADDRESS_MASK_REPLY => Action::Drop(DropReason::IcmpIgnored),
        _ => Action::Drop(DropReason::IcmpUnknownType),
    }
}

fn classify_v6(kind: u8, ignores_echo: bool) -> Action {
    match kind {
        v6::ECHO if ignores_echo => Action::Drop(DropReason::IcmpEchoIgnored),
        v6::ECHO => Action::Echo,
        v6::DEST_UNREACH | v6::PACKET_TOO_BIG | v6::TIME_EXCEEDED | v6::PARAMETER_PROBLEM => {
            Action::Notify
        }
        v6::MLD_QUERY | v6::MLD_REPORT | v6::MLD_DONE | v6::MLD2_REPORT => Action::Mld,
        // Unknown informational messages are dropped in silence, unknown errors are told to the
        // upper layer (RFC 4443 section 2.4 (a, b)): ours could make nothing of them.
        _ => Action::Drop(DropReason::IcmpIgnored),
    }
}
