//! Errors about packets of ours, on their way to the sockets that sent them.

use super::quote::Headers;
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::Family;
use crate::packet::{IpVersion, Packet};
use crate::socket::SocketError;
use crate::tcp;
use crate::udp::{self, IcmpReport};
use crate::wire::icmp::{v4, v6};
use crate::wire::{IcmpHeader, protocol};

/// Most bytes of a quote that are looked at: a whole IPv6 error's.
const MAX_QUOTE: usize = 1_232;
/// Bytes of the transport header that every quote has (RFC 792, RFC 1122 section 3.2.2).
const TRANSPORT_QUOTE: usize = 8;

/// The packet that an error is about, as its sender sees it: `local` sent it to `remote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quoted<F: Family> {
    /// Index of the interface that the error came in by.
    pub(crate) iif: u32,
    pub(crate) local: F::Addr,
    pub(crate) local_port: u16,
    pub(crate) remote: F::Addr,
    pub(crate) remote_port: u16,
    /// What the path takes in one piece, if that is what the error says.
    pub(crate) mtu: Option<u32>,
}

/// Hands an error to the socket that sent the quoted packet.
///
/// The error may come from any router on the way, so its own source says nothing: the quote must
/// name a socket of ours with both addresses and both ports.
pub(super) fn notify<F: Family>(cx: &mut Context<'_>, mut packet: Packet, header: &IcmpHeader) {
    let quote_at = usize::from(packet.l4_offset) + IcmpHeader::LEN;
    let wanted = packet.total_len().min(quote_at + MAX_QUOTE);
    if !packet.linearize(wanted) {
        return cx.drop(packet, DropReason::IcmpInvalid);
    }
    let quote = packet.data().get(quote_at..).unwrap_or_default();
    let Some((protocol, mut quoted, datagram)) = parse_quote::<F>(quote, packet.iif) else {
        return cx.drop(packet, DropReason::IcmpInvalid);
    };
    let Some(error) = socket_error::<F>(header) else {
        return cx.drop(packet, DropReason::IcmpIgnored);
    };
    if error == SocketError::MessageTooLong {
        quoted.mtu = Some(announced_mtu::<F>(header));
    }
    let report = IcmpReport {
        quoted,
        error,
        kind: header.kind,
        code: header.code,
        offender: F::src(&packet),
        datagram,
    };
    match protocol {
        protocol::UDP if udp::receive_error::<F>(cx, &report) => cx.core.consume(packet),
        protocol::TCP if tcp::receive_error::<F>(cx, &report) => cx.core.consume(packet),
        protocol::UDP | protocol::TCP => cx.drop(packet, DropReason::IcmpNoSocket),
        _ => cx.drop(packet, DropReason::IcmpIgnored),
    }
}

/// The protocol, the flow and the transport part of the quoted packet, if enough of it is there: its headers in one
/// piece, and 8 bytes of the transport's.
fn parse_quote<F: Family>(quote: &[u8], iif: u32) -> Option<(u8, Quoted<F>, &[u8])> {
    let headers = Headers::parse(F::VERSION, quote)?;
    if !headers.is_first {
        return None;
    }
    let transport = quote.get(headers.offset..)?;
    let [s0, s1, d0, d1, ..] = transport.get(..TRANSPORT_QUOTE)? else {
        return None;
    };
    let quoted = Quoted {
        iif,
        local: F::from_ip(headers.src)?,
        local_port: u16::from_be_bytes([*s0, *s1]),
        remote: F::from_ip(headers.dst)?,
        remote_port: u16::from_be_bytes([*d0, *d1]),
        mtu: None,
    };
    Some((headers.protocol, quoted, transport))
}

/// RFC 1191 section 4; RFC 4443 section 3.2.
fn announced_mtu<F: Family>(header: &IcmpHeader) -> u32 {
    match F::VERSION {
        IpVersion::V4 => header.rest.get() & 0xffff,
        IpVersion::V6 => header.rest.get(),
    }
}

/// What a type and code mean to a socket; `None` for codes that nobody has defined.
fn socket_error<F: Family>(header: &IcmpHeader) -> Option<SocketError> {
    match F::VERSION {
        IpVersion::V4 => socket_error_v4(header.kind, header.code),
        IpVersion::V6 => socket_error_v6(header.kind, header.code),
    }
}

/// As Linux's `icmp_err_convert`, whose "host is down" and "not on the network" are told as "no
/// route to host".
fn socket_error_v4(kind: u8, code: u8) -> Option<SocketError> {
    Some(match (kind, code) {
        (v4::DEST_UNREACH, v4::UNREACH_NET | 11) => SocketError::NetworkUnreachable,
        (v4::DEST_UNREACH, v4::UNREACH_HOST | 5 | 12) => SocketError::HostUnreachable,
        (v4::DEST_UNREACH, v4::UNREACH_PROTOCOL) => SocketError::ProtocolUnavailable,
        (v4::DEST_UNREACH, v4::UNREACH_PORT) => SocketError::ConnectionRefused,
        (v4::DEST_UNREACH, v4::UNREACH_FRAG_NEEDED) => SocketError::MessageTooLong,
        (v4::DEST_UNREACH, 6 | 9) => SocketError::NetworkProhibited,
        (v4::DEST_UNREACH, 7 | 8 | 10 | v4::UNREACH_PROHIBITED..=15) => SocketError::HostProhibited,
        (v4::TIME_EXCEEDED, _) => SocketError::HostUnreachable,
        (v4::PARAMETER_PROBLEM, _) => SocketError::ProtocolError,
        _ => return None,
    })
}

/// As Linux's `icmpv6_err_convert`.
fn socket_error_v6(kind: u8, code: u8) -> Option<SocketError> {
    Some(match (kind, code) {
        (v6::DEST_UNREACH, v6::UNREACH_NO_ROUTE) => SocketError::NetworkUnreachable,
        (v6::DEST_UNREACH, v6::UNREACH_PROHIBITED | 5 | 6) => SocketError::PermissionDenied,
        (v6::DEST_UNREACH, v6::UNREACH_BEYOND_SCOPE | v6::UNREACH_ADDRESS) => {
            SocketError::HostUnreachable
        }
        (v6::DEST_UNREACH, v6::UNREACH_PORT) => SocketError::ConnectionRefused,
        (v6::PACKET_TOO_BIG, _) => SocketError::MessageTooLong,
        (v6::TIME_EXCEEDED, _) => SocketError::HostUnreachable,
        (v6::PARAMETER_PROBLEM, _) => SocketError::ProtocolError,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{V4, V6};

    fn error_of<F: Family>(kind: u8, code: u8) -> Option<SocketError> {
        socket_error::<F>(&IcmpHeader::new(kind, code, 0))
    }

    #[test]
    fn soft_and_hard_as_linux_has_them() {
        let hard_v4 = [2, 3, 4, 6, 7, 8, 9, 10, 13, 14, 15];
        for code in 0..=15 {
            let error = error_of::<V4>(v4::DEST_UNREACH, code).expect("a code with a meaning");
            assert_eq!(error.is_hard(), hard_v4.contains(&code), "code {code}");
        }
        assert_eq!(error_of::<V4>(v4::DEST_UNREACH, 16), None);
        let hard_v6 = [1, 4, 5, 6];
        for code in 0..=6 {
            let error = error_of::<V6>(v6::DEST_UNREACH, code).expect("a code with a meaning");
            assert_eq!(error.is_hard(), hard_v6.contains(&code), "code {code}");
        }
        assert_eq!(error_of::<V6>(v6::DEST_UNREACH, 7), None);
        for error in [
            error_of::<V4>(v4::TIME_EXCEEDED, 0),
            error_of::<V6>(v6::TIME_EXCEEDED, 0),
        ] {
            assert_eq!(error, Some(SocketError::HostUnreachable));
        }
        for error in [
            error_of::<V4>(v4::PARAMETER_PROBLEM, 0),
            error_of::<V6>(v6::PARAMETER_PROBLEM, 1),
        ] {
            assert_eq!(error, Some(SocketError::ProtocolError));
        }
    }

    #[test]
    fn a_quote_names_the_flow_from_our_side() {
        let quote = [
            0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 1, 0, 2, // IPv4
            0x9c, 0x40, 0, 53, 0, 16, 0, 0, // UDP
        ];
        let (protocol, quoted, _) = parse_quote::<V4>(&quote, 3).expect("a whole quote");
        assert_eq!(protocol, protocol::UDP);
        assert_eq!(
            (quoted.local, quoted.local_port),
            ([10, 0, 0, 1].into(), 40_000)
        );
        assert_eq!(
            (quoted.remote, quoted.remote_port),
            ([10, 1, 0, 2].into(), 53)
        );
        assert_eq!((quoted.iif, quoted.mtu), (3, None));
    }

    #[test]
    fn a_quote_without_its_ports_names_nobody() {
        let whole = [
            0x46, 0, 0, 40, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 1, 0, 2, // IPv4
            1, 1, 1, 0, // options
            0x9c, 0x40, 0, 53, 0, 16, 0, 0, // UDP
        ];
        assert!(parse_quote::<V4>(&whole, 0).is_some());
        for len in 0..whole.len() {
            assert!(parse_quote::<V4>(&whole[..len], 0).is_none(), "{len} bytes");
        }
        for (at, byte) in [(0, 0x56), (0, 0x44), (7, 1)] {
            let mut wrong = whole;
            wrong[at] = byte;
            assert!(parse_quote::<V4>(&wrong, 0).is_none(), "{byte:02x} at {at}");
        }
        assert!(parse_quote::<V6>(&whole, 0).is_none());
    }
}
