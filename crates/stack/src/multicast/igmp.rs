//! IGMP, as it is written (RFC 3376 section 4, RFC 2236 section 2, RFC 1112 appendix I).

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use super::message::{Query, Version, floating};
use super::{asked, heard};
use crate::core::Context;
use crate::drop::DropReason;
use crate::family::V4;
use crate::packet::Packet;
use crate::wire::checksum::checksum;

pub(super) const QUERY: u8 = 0x11;
pub(super) const V1_REPORT: u8 = 0x12;
pub(super) const V2_REPORT: u8 = 0x16;
pub(super) const LEAVE: u8 = 0x17;
pub(super) const V3_REPORT: u8 = 0x22;

/// Bytes of the messages of versions 1 and 2.
const OLD_LEN: usize = 8;
/// Bytes of a version 3 query in front of its sources.
const QUERY_LEN: usize = 12;

/// Takes in an IGMP message.
pub(crate) fn receive(cx: &mut Context<'_>, packet: Packet) {
    let mut bytes = vec![0; packet.total_len()];
    packet.copy_to(0, &mut bytes);
    let message = bytes
        .get(usize::from(packet.l4_offset)..)
        .unwrap_or_default();
    if message.len() < OLD_LEN {
        return cx.drop(packet, DropReason::IgmpInvalid);
    }
    if checksum(message) != 0 {
        return cx.drop(packet, DropReason::IgmpCsum);
    }
    match message[0] {
        QUERY => match query(message) {
            Some(query) => asked::<V4>(cx, packet.iif, &query),
            None => return cx.drop(packet, DropReason::IgmpInvalid),
        },
        V1_REPORT | V2_REPORT => heard::<V4>(cx, packet.iif, group(message).into()),
        // For routers.
        _ => return cx.drop(packet, DropReason::ProtocolIgnored),
    }
    cx.core.consume(packet);
}

/// Reads a query; its length and its second byte tell the version (RFC 3376 section 7.1).
fn query(message: &[u8]) -> Option<Query> {
    let code = *message.get(1)?;
    let asked_group = group(message);
    let about = (!asked_group.is_unspecified()).then_some(IpAddr::V4(asked_group));
    if about.is_some_and(|group| !group.is_multicast()) {
        return None;
    }
    let old = |version, tenths: u32| Query {
        version,
        group: about,
        sources: Vec::new(),
        max_response: Duration::from_millis(u64::from(tenths) * 100),
        robustness: 0,
    };
    if message.len() == OLD_LEN {
        return Some(match code {
            // Version 1 had no such field, and meant ten seconds.
            0 => old(Version::V1, 100),
            tenths => old(Version::V2, tenths.into()),
        });
    }
    let [flags, _interval, high, low] = *message.get(OLD_LEN..QUERY_LEN)?.first_chunk()?;
    let count = usize::from(u16::from_be_bytes([high, low]));
    let sources = message.get(QUERY_LEN..QUERY_LEN + 4 * count)?;
    let sources = sources.as_chunks().0.iter();
    Some(Query {
        sources: sources.map(|octets: &[u8; 4]| (*octets).into()).collect(),
        robustness: flags & 7,
        ..old(Version::V3, floating(code.into(), 4))
    })
}

fn group(message: &[u8]) -> Ipv4Addr {
    let octets = message.get(4..8).and_then(|octets| octets.first_chunk());
    octets.map_or(Ipv4Addr::UNSPECIFIED, |octets: &[u8; 4]| (*octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn read(parts: &[&[u8]]) -> Option<Query> {
        query(&parts.concat())
    }

    #[test]
    fn the_version_shows_in_length_and_code() {
        let v1 = read(&[&[0x11, 0, 0, 0], &[0; 4]]).expect("version 1");
        assert_eq!((v1.version, v1.group), (Version::V1, None));
        assert_eq!(v1.max_response, Duration::from_secs(10));

        let v2 = read(&[&[0x11, 25, 0, 0], &GROUP]).expect("version 2");
        assert_eq!((v2.version, v2.group), (Version::V2, Some(GROUP.into())));
        assert_eq!(v2.max_response, Duration::from_millis(2_500));

        let sources = [[192, 0, 2, 1], [192, 0, 2, 2]].concat();
        let v3 = read(&[&[0x11, 0x80, 0, 0], &GROUP, &[0x0a, 125, 0, 2], &sources]);
        let v3 = v3.expect("version 3");
        assert_eq!((v3.version, v3.robustness), (Version::V3, 2));
        assert_eq!(v3.max_response, Duration::from_millis(12_800));
        assert_eq!(
            v3.sources,
            [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from)
        );
    }

    #[test]
    fn what_contradicts_itself_is_no_query() {
        assert_eq!(read(&[&[0x11, 0, 0, 0], &[10, 0, 0, 1]]), None);
        assert_eq!(read(&[&[0x11, 0, 0, 0], &GROUP, &[0, 0, 0]]), None);
        let short = read(&[&[0x11, 0, 0, 0], &GROUP, &[0, 0, 0, 2], &[1; 7]]);
        assert_eq!(short, None);
    }
}
