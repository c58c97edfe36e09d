//! MLD, as it is written (RFC 3810 section 5, RFC 2710 section 3).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use zerocopy::FromBytes;

use super::message::{Query, Version, floating};
use super::{asked, heard};
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::{Family, V6};
use crate::packet::Packet;
use crate::wire::icmp::v6;
use crate::wire::{Ipv6Header, protocol};

/// Bytes of the messages of version 1.
const OLD_LEN: usize = 24;
/// Bytes of a version 2 query in front of its sources.
const QUERY_LEN: usize = 28;

/// The hop-by-hop option that has routers look at a message (RFC 2711), for MLD.
pub(super) const ROUTER_ALERT: [u8; 4] = [5, 2, 0, 0];

/// Takes in an MLD message whose checksum is right.
pub(crate) fn receive(cx: &mut Context<'_>, packet: Packet) {
    let mut bytes = vec![0; packet.total_len()];
    packet.copy_to(0, &mut bytes);
    let message = bytes
        .get(usize::from(packet.l4_offset)..)
        .unwrap_or_default();
    let is_valid = may_be_from_here(&bytes) && message.len() >= OLD_LEN;
    match message.first() {
        Some(&v6::MLD_QUERY) if is_valid && has_router_alert(&bytes) => match query(message) {
            Some(query) => asked::<V6>(cx, packet.iif, &query),
            None => return cx.drop(packet, DropReason::IgmpInvalid),
        },
        Some(&v6::MLD_REPORT) if is_valid => heard::<V6>(cx, packet.iif, group(message).into()),
        Some(&(v6::MLD_QUERY | v6::MLD_REPORT)) => {
            return cx.drop(packet, DropReason::IgmpInvalid);
        }
        // For routers.
        _ => return cx.drop(packet, DropReason::ProtocolIgnored),
    }
    cx.core.consume(packet);
}

/// A message of a neighbour comes from its link-local address and has made no hop (RFC 3810
/// section 5.1.14).
fn may_be_from_here(packet: &[u8]) -> bool {
    Ipv6Header::ref_from_prefix(packet)
        .is_ok_and(|(ip, _)| ip.src().is_unicast_link_local() && ip.hop_limit == 1)
}

/// Whether the packet has a hop-by-hop header with the option. Validation has seen to it that the
/// options are well-formed.
fn has_router_alert(packet: &[u8]) -> bool {
    let Ok((ip, rest)) = Ipv6Header::ref_from_prefix(packet) else {
        return false;
    };
    let [_, units, ..] = rest else {
        return false;
    };
    let len = (usize::from(*units) + 1) * 8;
    let mut options = rest.get(2..len).unwrap_or_default();
    while ip.next_header == protocol::HOP_BY_HOP
        && let [kind, tail @ ..] = options
    {
        if options.starts_with(&ROUTER_ALERT) {
            return true;
        }
        let len = match (kind, tail) {
            (0, _) => 1,
            (_, [len, ..]) => usize::from(*len) + 2,
            (_, []) => return false,
        };
        options = options.get(len..).unwrap_or_default();
    }
    false
}

/// Reads a query; its length tells the version (RFC 3810 section 8.1).
fn query(message: &[u8]) -> Option<Query> {
    let [high, low] = *message.get(4..6)?.first_chunk()?;
    let code = u16::from_be_bytes([high, low]);
    let asked_group = group(message);
    let about = (!asked_group.is_unspecified()).then_some(IpAddr::V6(asked_group));
    if about.is_some_and(|group| !group.is_multicast()) {
        return None;
    }
    let old = |version, millis: u32| Query {
        version,
        group: about,
        sources: Vec::new(),
        max_response: Duration::from_millis(millis.into()),
        robustness: 0,
    };
    if message.len() == OLD_LEN {
        return Some(old(Version::V2, code.into()));
    }
    let [flags, _interval, high, low] = *message.get(OLD_LEN..QUERY_LEN)?.first_chunk()?;
    let count = usize::from(u16::from_be_bytes([high, low]));
    let sources = message.get(QUERY_LEN..QUERY_LEN + 16 * count)?;
    let sources = sources.as_chunks().0.iter();
    Some(Query {
        sources: sources.map(|octets: &[u8; 16]| (*octets).into()).collect(),
        robustness: flags & 7,
        ..old(Version::V3, floating(code, 12))
    })
}

fn group(message: &[u8]) -> Ipv6Addr {
    let octets = message.get(8..24).and_then(|octets| octets.first_chunk());
    octets.map_or(V6::UNSPECIFIED, |octets: &[u8; 16]| (*octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 7);

    #[test]
    fn the_version_shows_in_the_length() {
        let old = [&[130, 0, 0, 0, 0x13, 0x88, 0, 0][..], &[0; 16]].concat();
        let v1 = query(&old).expect("version 1");
        assert_eq!((v1.version, v1.group), (Version::V2, None));
        assert_eq!(v1.max_response, Duration::from_secs(5));

        let source = Ipv6Addr::LOCALHOST;
        let head = [130, 0, 0, 0, 0x80, 0, 0, 0];
        let new = [&head[..], &GROUP.octets(), &[3, 9, 0, 1], &source.octets()].concat();
        let v2 = query(&new).expect("version 2");
        assert_eq!((v2.version, v2.robustness), (Version::V3, 3));
        assert_eq!(v2.max_response, Duration::from_millis(32_768));
        assert_eq!(
            (v2.group, v2.sources),
            (Some(GROUP.into()), vec![source.into()])
        );
        assert_eq!(query(&new[..new.len() - 1]), None);
    }

    #[test]
    fn the_router_alert_is_found_among_other_options() {
        let packet = |options: &[u8]| {
            let ip = Ipv6Header::new(GROUP, GROUP, protocol::HOP_BY_HOP, 1, 8);
            [zerocopy::IntoBytes::as_bytes(&ip), &[58, 0], options].concat()
        };
        assert!(has_router_alert(&packet(&[5, 2, 0, 0, 1, 0])));
        assert!(has_router_alert(&packet(&[0, 0, 5, 2, 0, 0])));
        assert!(has_router_alert(&packet(&[1, 0, 5, 2, 0, 0])));
        assert!(!has_router_alert(&packet(&[5, 2, 0, 1, 1, 0])));
        assert!(!has_router_alert(&packet(&[1, 4, 5, 2, 0, 0])));
        assert!(!has_router_alert(&packet(&[])));
    }
}
