//! Telling a sender that its packet went no further.

use core::net::IpAddr;

use zerocopy::IntoBytes;

use super::quote::Headers;
use super::{count, fill_checksum, limit};
use crate::core::Context;
use crate::family::Family;
use crate::fib::RouteKind;
use crate::interface::LOOPBACK;
use crate::ip::destination;
use crate::packet::{IpVersion, Packet, Refusal};
use crate::sysctl::Knob;
use crate::transmit::{self, IpParams, OutputRoute, SendError};
use crate::wire::icmp::{v4, v6};
use crate::wire::{IcmpHeader, Ipv6Header, protocol};

/// Precedence "internetwork control" in the type-of-service byte.
const INTERNETWORK_CONTROL: u8 = 0xc0;
/// The bits of the type-of-service byte that RFC 1349 calls TOS, without those that are now ECN's.
const TOS_MASK: u8 = 0x1c;

/// What went wrong with a packet; each family has its own type and code for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// No route to the destination.
    NetUnreachable,
    /// IPv6: the source address means nothing behind this router (RFC 4443 section 3.1). IPv4 has no
    /// scopes, and would say "no route".
    BeyondScope,
    /// An `unreachable` route. ICMPv6 has no code for it and says "no route", as Linux does.
    HostUnreachable,
    /// A `prohibit` route or rule.
    Prohibited,
    /// Nobody here speaks the protocol. ICMPv6 calls it a parameter problem: an unrecognised next
    /// header.
    ProtocolUnreachable,
    /// Nobody here listens on the port.
    PortUnreachable,
    /// Larger than the next hop's MTU, and not to be fragmented.
    PacketTooBig {
        /// The largest that would pass, in bytes.
        mtu: u32,
    },
    /// TTL or hop limit used up.
    TimeExceeded,
    /// The rest of the fragments did not come.
    ReassemblyTimeExceeded,
    /// A header field makes no sense.
    ParameterProblem {
        /// The code, whose meaning differs between the families.
        code: u8,
        /// Where the field lies, in bytes from the start of the IP header.
        pointer: u32,
    },
}

impl IcmpError {
    fn message_v4(self) -> IcmpHeader {
        let unreachable = |code| IcmpHeader::new(v4::DEST_UNREACH, code, 0);
        match self {
            Self::NetUnreachable | Self::BeyondScope => unreachable(v4::UNREACH_NET),
            Self::HostUnreachable => unreachable(v4::UNREACH_HOST),
            Self::Prohibited => unreachable(v4::UNREACH_PROHIBITED),
            Self::ProtocolUnreachable => unreachable(v4::UNREACH_PROTOCOL),
            Self::PortUnreachable => unreachable(v4::UNREACH_PORT),
            Self::PacketTooBig { mtu } => {
                let mtu = mtu.min(u32::from(u16::MAX));
                IcmpHeader::new(v4::DEST_UNREACH, v4::UNREACH_FRAG_NEEDED, mtu)
            }
            Self::TimeExceeded => IcmpHeader::new(v4::TIME_EXCEEDED, v4::TIME_EXCEEDED_TTL, 0),
            Self::ReassemblyTimeExceeded => {
                IcmpHeader::new(v4::TIME_EXCEEDED, v4::TIME_EXCEEDED_REASSEMBLY, 0)
            }
            // The pointer is the first of the four bytes.
            Self::ParameterProblem { code, pointer } => {
                IcmpHeader::new(v4::PARAMETER_PROBLEM, code, pointer << 24)
            }
        }
    }

    /// `protocol_at` is where the packet names the protocol that nobody speaks.
    fn message_v6(self, protocol_at: u32) -> IcmpHeader {
        let unreachable = |code| IcmpHeader::new(v6::DEST_UNREACH, code, 0);
        match self {
            Self::NetUnreachable | Self::HostUnreachable => unreachable(v6::UNREACH_NO_ROUTE),
            Self::Prohibited => unreachable(v6::UNREACH_PROHIBITED),
            Self::BeyondScope => unreachable(v6::UNREACH_BEYOND_SCOPE),
            Self::ProtocolUnreachable => {
                IcmpHeader::new(v6::PARAMETER_PROBLEM, v6::PARAM_NEXT_HEADER, protocol_at)
            }
            Self::PortUnreachable => unreachable(v6::UNREACH_PORT),
            // No link may carry less than 1,280 bytes (RFC 8200 section 5), whatever a route says.
            Self::PacketTooBig { mtu } => IcmpHeader::new(v6::PACKET_TOO_BIG, 0, mtu.max(1_280)),
            Self::TimeExceeded => IcmpHeader::new(v6::TIME_EXCEEDED, v6::TIME_EXCEEDED_HOPS, 0),
            Self::ReassemblyTimeExceeded => {
                IcmpHeader::new(v6::TIME_EXCEEDED, v6::TIME_EXCEEDED_REASSEMBLY, 0)
            }
            Self::ParameterProblem { code, pointer } => {
                IcmpHeader::new(v6::PARAMETER_PROBLEM, code, pointer)
            }
        }
    }

    /// The two that may be told to the sender of a packet to a group: path MTU discovery works for
    /// groups too, and options may ask for the answer (RFC 4443 section 2.4 (e.3)).
    fn may_answer_group(self) -> bool {
        match self {
            Self::PacketTooBig { .. } => true,
            Self::ParameterProblem { code, .. } => code == v6::PARAM_OPTION,
            _ => false,
        }
    }
}

/// Tells a packet's sender what there is to tell, then drops it.
#[inline(never)]
pub(crate) fn refuse<F: Family>(cx: &mut Context<'_>, packet: Packet, refusal: Refusal) {
    if let Some(error) = refusal.error {
        send_error::<F>(cx, &packet, error);
    }
    cx.drop(packet, refusal.reason);
}

/// Tells the sender of `about` what went wrong with it, unless the rules or the rate limits say to
/// keep silent. The bytes of `about` start at its IP header, as it was received.
pub(crate) fn send_error<F: Family>(cx: &mut Context<'_>, about: &Packet, error: IcmpError) {
    let headers = Headers::parse(F::VERSION, about.data());
    let may_answer_group = F::VERSION == IpVersion::V6 && error.may_answer_group();
    if !may_be_answered::<F>(cx, about, headers.as_ref(), may_answer_group) {
        return;
    }
    let header = match F::VERSION {
        IpVersion::V4 => error.message_v4(),
        IpVersion::V6 => {
            let protocol_at = headers.map_or(Ipv6Header::NEXT_HEADER_OFFSET, |h| h.protocol_at());
            error.message_v6(protocol_at)
        }
    };
    if about.iif != LOOPBACK && !limit::may_send::<F>(cx, F::src(about), &header) {
        return;
    }
    // Routing counts what it does not find; ICMP's own errors are others (RFC 4293).
    if let Ok(route) = route_back::<F>(cx, about) {
        send_quoting::<F>(cx, &header, about, &route);
    }
}

/// When to keep silent: RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 (e).
/// Otherwise errors would be about errors without end, or one packet would be answered by a crowd.
pub(super) fn may_be_answered<F: Family>(
    cx: &Context<'_>,
    about: &Packet,
    headers: Option<&Headers>,
    may_answer_group: bool,
) -> bool {
    is_one_host::<F>(about)
        && (may_answer_group || !destination::is_to_many::<F>(cx, about))
        && headers.is_none_or(|headers| !is_unanswerable(headers, about.data()))
}

/// Whether the source is one host that an answer can reach.
fn is_one_host<F: Family>(about: &Packet) -> bool {
    let src = F::src(about);
    let addr: IpAddr = src.into();
    F::is_unicast(src) && (!addr.is_loopback() || about.iif == LOOPBACK)
}

/// ICMP errors and redirects, and IPv4 fragments behind the first. (ICMPv6 does answer those: a
/// router that can't pass one on says so.)
fn is_unanswerable(headers: &Headers, packet: &[u8]) -> bool {
    let kind = packet.get(headers.offset).copied();
    match headers.protocol {
        _ if headers.version == IpVersion::V4 && !headers.is_first => true,
        protocol::ICMP if headers.version == IpVersion::V4 => {
            // What has no type, or a type that nobody has defined, may be an error.
            !kind.is_some_and(|kind| {
                matches!(kind, v4::ECHO | v4::ECHO_REPLY)
                    || (v4::TIMESTAMP..=v4::ADDRESS_MASK_REPLY).contains(&kind)
            })
        }
        protocol::ICMPV6 if headers.version == IpVersion::V6 && headers.is_first => match kind {
            Some(kind) => kind < v6::FIRST_INFORMATIONAL || kind == v6::REDIRECT,
            // The type may lie in another fragment; the answer is then about the missing header
            // chain (RFC 7112).
            None => !headers.is_fragment,
        },
        _ => false,
    }
}

/// The way back to the sender. The answer comes from the address that the packet was sent to, if it
/// is ours; that of a router comes from the address that it would use for packets of its own (RFC
/// 1812 section 4.3.2.4), or, if asked so, from the interface that the packet came in by.
pub(super) fn route_back<'g, F: Family>(
    cx: &Context<'g>,
    about: &Packet,
) -> Result<OutputRoute<'g, F>, SendError> {
    let src = match destination::kind::<F>(cx, about) {
        RouteKind::Local => Some(F::dst(about)),
        _ => inbound_address::<F>(cx, about),
    };
    transmit::route_back::<F>(cx, F::src(about), src, about.iif)
}

/// For `icmp_errors_use_inbound_ifaddr`: the interface's first address.
fn inbound_address<F: Family>(cx: &Context<'_>, about: &Packet) -> Option<F::Addr> {
    if F::VERSION == IpVersion::V6 || !cx.view.sysctls.is_on(Knob::IcmpErrorsUseInboundIfaddr) {
        return None;
    }
    let interface = cx.view.interfaces.get(about.iif)?;
    interface
        .addresses
        .iter()
        .find_map(|own| F::from_ip(own.addr))
}

/// Builds the message with as much of `about` behind it as may be, and sends it.
pub(super) fn send_quoting<F: Family>(
    cx: &mut Context<'_>,
    header: &IcmpHeader,
    about: &Packet,
    route: &OutputRoute<'_, F>,
) {
    let room = room_for_message::<F>(route.mtu).saturating_sub(IcmpHeader::LEN);
    let Some(mut message) = build(cx, header.as_bytes(), about, room) else {
        return count::out_error::<F>(cx);
    };
    fill_checksum::<F>(&mut message, route.src, route.dst);
    let tos = match F::VERSION {
        // RFC 1812 section 4.3.2.5.
        IpVersion::V4 => INTERNETWORK_CONTROL | F::traffic_class(about) & TOS_MASK,
        IpVersion::V6 => 0,
    };
    send::<F>(cx, message, header.kind, route, tos, None);
}

/// How large an ICMP message may be: with its IP header 576 bytes in IPv4 (RFC 1812 section
/// 4.3.2.3), 1,280 in IPv6 (RFC 4443 section 2.4 (c)).
pub(super) fn room_for_message<F: Family>(mtu: u32) -> usize {
    let most = match F::VERSION {
        IpVersion::V4 => 576,
        IpVersion::V6 => 1_280,
    };
    most.min(mtu as usize).saturating_sub(F::HEADER_LEN)
}

/// A fresh packet with `head` and up to `room` bytes of `about` behind it.
pub(super) fn build(
    cx: &mut Context<'_>,
    head: &[u8],
    about: &Packet,
    room: usize,
) -> Option<Packet> {
    let mut message = cx.core.alloc()?;
    let quoted = about.total_len().min(room);
    let built = message.put(head.len() + quoted).and_then(|bytes| {
        let (front, back) = bytes.split_at_mut_checked(head.len())?;
        front.copy_from_slice(head);
        about.copy_to(0, back);
        Some(())
    });
    if built.is_none() {
        cx.core.consume(message);
        return None;
    }
    Some(message)
}

/// Sends a finished message and counts it.
pub(super) fn send<F: Family>(
    cx: &mut Context<'_>,
    message: Packet,
    kind: u8,
    route: &OutputRoute<'_, F>,
    tos: u8,
    ttl: Option<u8>,
) {
    let ip = IpParams {
        protocol: F::ICMP,
        ttl,
        tos,
        dont_fragment: false,
    };
    match transmit::send::<F>(cx, message, route, &ip) {
        Ok(()) => count::sent::<F>(cx, kind),
        Err(_) => count::out_error::<F>(cx),
    }
}
