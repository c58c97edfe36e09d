//! IPv6 extension headers (RFC 8200 section 4).
//!
//! Hop-by-hop options are looked at in every packet, right behind the fixed header, by
//! [`hop_by_hop`]. All others are for the destination alone: [`walk`] goes from one to the next when
//! a packet is delivered here, until it meets a protocol that takes the packet.
//!
//! What the headers say is bounded by what the packet holds, and each must lie in the packet's first
//! buffer or be moved there.

use zerocopy::FromBytes;

use super::icmp::{self, IcmpError};
use super::reassembly::Fragment;
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::{Family, V6};
use crate::packet::{Packet, Refusal};
use crate::sysctl::Knob;
use crate::wire::icmp::v6::{
    PARAM_FIRST_FRAGMENT, PARAM_HEADER_FIELD, PARAM_NEXT_HEADER, PARAM_OPTION,
};
use crate::wire::ipv6::ExtensionHeader;
use crate::wire::{FragmentHeader, IcmpHeader, Ipv6Header, TcpHeader, UdpHeader, protocol};

/// Option types (RFC 8200 section 4.2, RFC 2711, RFC 2675).
mod option {
    pub(super) const PAD1: u8 = 0;
    pub(super) const PADN: u8 = 1;
    pub(super) const ROUTER_ALERT: u8 = 5;
    pub(super) const JUMBO_PAYLOAD: u8 = 194;
}

/// Most bytes of padding in a row: more than alignment ever needs. Linux refuses it too.
const MAX_PADDING: usize = 7;

/// Checks the hop-by-hop options of a packet whose fixed header names them as what comes next, on
/// its way to whomever.
pub(crate) fn hop_by_hop(cx: &Context<'_>, packet: &mut Packet) -> Result<(), Refusal> {
    let at = Position::first(packet);
    let max = cx.view.sysctls.get(Knob::MaxHbhOptsNumber);
    match options(packet, at, max, Place::HopByHop) {
        // Only a jumbogram has no length here (RFC 2675 section 3), and none comes this far.
        Ok(_) if PacketFacts::of(packet).payload_len == 0 => Err(problem(
            DropReason::Ipv6ExtHdr,
            PARAM_HEADER_FIELD,
            Ipv6Header::PAYLOAD_LEN_OFFSET as usize,
        )),
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Goes through the extension headers of a packet for this host, through reassembly too if it is a
/// fragment. The packet that comes back says in `protocol` and `l4_offset` what lies behind them. `None` if it waits for other fragments or was dropped, its sender told
/// where RFC 8200 and RFC 4443 ask for it.
pub(crate) fn walk(cx: &mut Context<'_>, mut packet: Packet) -> Option<Packet> {
    let mut at = Position::first(&packet);
    let mut was_fragment = false;
    loop {
        let next = match at.kind {
            // Validation has looked into it.
            protocol::HOP_BY_HOP if at.offset == Ipv6Header::LEN => skip(&mut packet, at),
            protocol::HOP_BY_HOP => Err(problem(
                DropReason::Ipv6ExtHdr,
                PARAM_NEXT_HEADER,
                at.announced_at,
            )),
            protocol::DESTINATION_OPTIONS => {
                let max = cx.view.sysctls.get(Knob::MaxDstOptsNumber);
                options(&mut packet, at, max, Place::Destination)
            }
            protocol::ROUTING => routing(&mut packet, at),
            // A fragment of a fragment: no source makes one (RFC 8200 section 4.5), and Linux takes
            // none.
            protocol::FRAGMENT if was_fragment => Err(problem(
                DropReason::Ipv6ExtHdr,
                PARAM_HEADER_FIELD,
                at.offset,
            )),
            protocol::FRAGMENT => match fragment(&mut packet, at) {
                Ok(Fragmented::Atomic(next)) => {
                    cx.core.count(V6::MIB.reasm_reqds);
                    cx.core.count(V6::MIB.reasm_oks);
                    packet.is_fragment = false;
                    Ok(next)
                }
                Ok(Fragmented::Part(fragment)) => {
                    let stack = cx.stack;
                    packet = stack.reassembly6.push(cx, packet, &fragment)?;
                    // From the front again: the headers are the first fragment's now.
                    Ok(Position::first(&packet))
                }
                Err(refusal) => Err(refusal),
            },
            // It has arrived, and asks nothing of anybody (RFC 8200 section 4.7).
            protocol::NO_NEXT_HEADER => {
                cx.core.count(V6::MIB.in_delivers);
                Err(Refusal::silent(DropReason::ProtocolIgnored))
            }
            _ => return Some(arrive(packet, at)),
        };
        was_fragment |= at.kind == protocol::FRAGMENT;
        match next {
            Ok(next) => at = next,
            Err(refusal) => {
                icmp::refuse::<V6>(cx, packet, refusal);
                return None;
            }
        }
    }
}

/// A place in the chain of headers.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// What lies here.
    kind: u8,
    /// Where it begins.
    offset: usize,
    /// Which byte said so.
    announced_at: usize,
}

impl Position {
    fn first(packet: &Packet) -> Self {
        let ip = Ipv6Header::ref_from_prefix(packet.data());
        Self {
            kind: ip.map_or(protocol::NO_NEXT_HEADER, |(ip, _)| ip.next_header),
            offset: Ipv6Header::LEN,
            announced_at: Ipv6Header::NEXT_HEADER_OFFSET as usize,
        }
    }

    /// The header behind the one of `len` bytes that lies here.
    fn next(self, kind: u8, len: usize) -> Self {
        Self {
            kind,
            offset: self.offset + len,
            announced_at: self.offset,
        }
    }
}

fn arrive(mut packet: Packet, at: Position) -> Packet {
    packet.protocol = at.kind;
    packet.l4_offset = u16::try_from(at.offset).unwrap_or(u16::MAX);
    packet
}

/// A parameter problem (RFC 4443 section 3.4).
fn problem(reason: DropReason, code: u8, pointer: usize) -> Refusal {
    let pointer = u32::try_from(pointer).unwrap_or(u32::MAX);
    Refusal::told(reason, IcmpError::ParameterProblem { code, pointer })
}

/// The extension header at a place: what comes next, and all its bytes. Linux does not answer one
/// that ends behind the packet.
fn header(packet: &mut Packet, at: Position) -> Result<(u8, &[u8]), Refusal> {
    const TOO_SHORT: Refusal = Refusal::silent(DropReason::Ipv6ExtHdr);
    let (next, len) = {
        if !packet.linearize(at.offset + 8) {
            return Err(TOO_SHORT);
        }
        let bytes = packet.data().get(at.offset..).ok_or(TOO_SHORT)?;
        let (header, _) = ExtensionHeader::ref_from_prefix(bytes).map_err(|_| TOO_SHORT)?;
        (header.next_header, header.header_len())
    };
    if !packet.linearize(at.offset + len) {
        return Err(TOO_SHORT);
    }
    let bytes = packet
        .data()
        .get(at.offset..at.offset + len)
        .ok_or(TOO_SHORT)?;
    Ok((next, bytes))
}

fn skip(packet: &mut Packet, at: Position) -> Result<Position, Refusal> {
    let (next, bytes) = header(packet, at)?;
    Ok(at.next(next, bytes.len()))
}

/// A routing header with segments left would send the packet on (RFC 5095 for type 0), and no type
/// is known here; one without is done with its work (RFC 8200 section 4.4).
fn routing(packet: &mut Packet, at: Position) -> Result<Position, Refusal> {
    const TYPE: usize = 2;
    const SEGMENTS_LEFT: usize = 3;
    let (next, bytes) = header(packet, at)?;
    match bytes.get(SEGMENTS_LEFT) {
        Some(0) => Ok(at.next(next, bytes.len())),
        _ => Err(problem(
            DropReason::SourceRoute,
            PARAM_HEADER_FIELD,
            at.offset + TYPE,
        )),
    }
}

enum Fragmented {
    /// A whole packet after all (RFC 6946): it meets no other fragments.
    Atomic(Position),
    Part(Fragment),
}

fn fragment(packet: &mut Packet, at: Position) -> Result<Fragmented, Refusal> {
    let too_short = problem(DropReason::Ipv6ExtHdr, PARAM_HEADER_FIELD, at.offset);
    if !packet.linearize(at.offset + FragmentHeader::LEN) {
        return Err(too_short);
    }
    let bytes = packet.data().get(at.offset..).ok_or(too_short)?;
    let (header, _) = FragmentHeader::ref_from_prefix(bytes).map_err(|_| too_short)?;
    let next = at.next(header.next_header, FragmentHeader::LEN);
    if header.is_atomic() {
        return Ok(Fragmented::Atomic(next));
    }
    if header.fragment_offset() == 0 && !holds_whole_chain(packet, next) {
        return Err(problem(DropReason::FragInvalid, PARAM_FIRST_FRAGMENT, 0));
    }
    Ok(Fragmented::Part(Fragment::v6(
        header,
        at.offset,
        at.announced_at,
    )))
}

/// Whether all headers up to the transport's are in the packet: a first fragment without them would
/// slip past every filter (RFC 7112 section 5).
fn holds_whole_chain(packet: &Packet, mut at: Position) -> bool {
    let transport = loop {
        match at.kind {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                let mut start = [0; 2];
                if packet.copy_to(at.offset, &mut start) < start.len() {
                    return false;
                }
                let [next, units] = start;
                at = at.next(next, (usize::from(units) + 1) * 8);
            }
            protocol::TCP => break TcpHeader::LEN,
            protocol::UDP => break UdpHeader::LEN,
            protocol::ICMPV6 => break IcmpHeader::LEN,
            protocol::FRAGMENT => break FragmentHeader::LEN,
            protocol::NO_NEXT_HEADER => break 0,
            _ => break 1,
        }
    };
    at.offset + transport <= packet.total_len()
}

/// Where options are: some are known in one place only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    HopByHop,
    Destination,
}

/// The options of a header (RFC 8200 section 4.2), at most `max` without padding. What Linux drops
/// silently is dropped silently: options that do not fit, and padding that carries something or
/// aligns nothing.
fn options(packet: &mut Packet, at: Position, max: i64, place: Place) -> Result<Position, Refusal> {
    const MALFORMED: Refusal = Refusal::silent(DropReason::Ipv6ExtHdr);
    let packet_facts = PacketFacts::of(packet);
    let (next, header) = header(packet, at)?;
    let (mut offset, mut count, mut padding) = (2, 0, 0);
    while let Some(kind) = header.get(offset).copied() {
        let len = match (kind, header.get(offset + 1)) {
            (option::PAD1, _) => 1,
            (_, Some(len)) => usize::from(*len) + 2,
            (_, None) => return Err(MALFORMED),
        };
        let bytes = header.get(offset..offset + len).ok_or(MALFORMED)?;
        if let option::PAD1 | option::PADN = kind {
            padding += len;
            if padding > MAX_PADDING || bytes.iter().skip(2).any(|byte| *byte != 0) {
                return Err(MALFORMED);
            }
        } else {
            padding = 0;
            count += 1;
            if count > max {
                return Err(MALFORMED);
            }
            let pointer = at.offset + offset;
            match (place, kind) {
                (Place::HopByHop, option::ROUTER_ALERT) if len == 4 => {}
                (Place::HopByHop, option::ROUTER_ALERT) => return Err(MALFORMED),
                (Place::HopByHop, option::JUMBO_PAYLOAD) => {
                    return Err(jumbo(bytes, pointer, packet_facts));
                }
                _ => unknown_option(kind, pointer, packet_facts)?,
            }
        }
        offset += len;
    }
    Ok(at.next(next, header.len()))
}

/// What judging an option needs to know of the packet.
#[derive(Debug, Clone, Copy)]
struct PacketFacts {
    to_group: bool,
    payload_len: u16,
}

impl PacketFacts {
    fn of(packet: &Packet) -> Self {
        let ip = Ipv6Header::ref_from_prefix(packet.data());
        Self {
            to_group: V6::dst(packet).is_multicast(),
            payload_len: ip.map_or(0, |(ip, _)| ip.payload_len.get()),
        }
    }
}

/// The two highest bits of an option's type say what to do if it is unknown.
fn unknown_option(kind: u8, pointer: usize, packet: PacketFacts) -> Result<(), Refusal> {
    match kind >> 6 {
        0b00 => Ok(()),
        0b10 => Err(problem(DropReason::Ipv6Option, PARAM_OPTION, pointer)),
        0b11 if !packet.to_group => Err(problem(DropReason::Ipv6Option, PARAM_OPTION, pointer)),
        _ => Err(Refusal::silent(DropReason::Ipv6Option)),
    }
}

/// No packet here is a jumbogram: none is longer than 65,575 bytes. What contradicts RFC 2675
/// section 3 is answered as it asks, what does not is longer than what has come.
fn jumbo(bytes: &[u8], pointer: usize, packet: PacketFacts) -> Refusal {
    let [_, _, len @ ..] = bytes else {
        return Refusal::silent(DropReason::Ipv6ExtHdr);
    };
    let len: Option<[u8; 4]> = len.try_into().ok();
    let Some(len) = len.filter(|_| pointer % 4 == 2).map(u32::from_be_bytes) else {
        return Refusal::silent(DropReason::Ipv6ExtHdr);
    };
    if len <= u32::from(u16::MAX) {
        return problem(DropReason::Ipv6ExtHdr, PARAM_HEADER_FIELD, pointer + 2);
    }
    if packet.payload_len != 0 {
        return problem(DropReason::Ipv6ExtHdr, PARAM_HEADER_FIELD, pointer);
    }
    Refusal::silent(DropReason::PktTooSmall)
}

#[cfg(test)]
mod tests;
