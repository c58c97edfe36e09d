//! Reports on their way out: addresses, headers, checksums.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;

use super::message::{Message, Version, write_addr, write_records};
use super::{igmp, mld};
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{Family, V6};
use crate::fib::Adjacency;
use crate::interface::Interface;
use crate::ip::validate::carries;
use crate::packet::{ChecksumState, IpVersion, Packet};
use crate::transmit;
use crate::wire::icmp::v6;
use crate::wire::{Ipv4Header, Ipv6Header, checksum, protocol};

/// Where version 3 reports go, and where who leaves says so.
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The IPv4 option that has routers look at a message (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
/// Internetwork control, in the type of service.
const TOS: u8 = 0xc0;

/// Room that a message leaves for its IP header and option.
const HEADERS: usize = 48;
/// Longest message, headers included: it fits one buffer.
const MAX_PACKET: usize = 1_500;

/// Sends a message by an interface, in one packet or several.
pub(super) fn send<F: Family>(cx: &mut Context<'_>, ifindex: u32, message: &Message) {
    let Some(interface) = cx.view.interfaces.get(ifindex) else {
        return;
    };
    if !interface.up || !carries::<F>(cx.view, interface) {
        return;
    }
    let room = MAX_PACKET.min(interface.mtu as usize) - HEADERS;
    let is_v4 = F::VERSION == IpVersion::V4;
    let pick = |v4: IpAddr, v6: IpAddr| if is_v4 { v4 } else { v6 };
    let (dst, payloads) = match message {
        Message::Records(records) => {
            let kind = if is_v4 {
                igmp::V3_REPORT
            } else {
                v6::MLD2_REPORT
            };
            let dst = pick(V3_ROUTERS.into(), MLDV2_ROUTERS.into());
            (dst, write_records(kind, records, room))
        }
        Message::Report { version, group } => {
            let kind = match (is_v4, version) {
                (true, Version::V1) => igmp::V1_REPORT,
                (true, _) => igmp::V2_REPORT,
                (false, _) => v6::MLD_REPORT,
            };
            (*group, vec![about(kind, *group)])
        }
        Message::Leave(group) => {
            let kind = if is_v4 { igmp::LEAVE } else { v6::MLD_DONE };
            let dst = pick(ALL_ROUTERS.into(), ALL_ROUTERS_V6.into());
            (dst, vec![about(kind, *group)])
        }
    };
    for payload in payloads {
        let sent = match dst {
            IpAddr::V4(dst) => write_v4(cx, interface, dst, payload),
            IpAddr::V6(dst) => write_v6(cx, interface, dst, payload),
        };
        // What found no buffer will be said again.
        if let Some(packet) = sent {
            cx.core.count(F::MIB.out_requests);
            cx.core.count(F::MIB.out_mcast_pkts);
            let len = packet.total_len() as u64;
            cx.core.add(F::MIB.out_mcast_octets, len);
            cx.core.add(F::MIB.out_octets, len);
            transmit::to_interface(cx, interface, &Adjacency::default(), packet);
        }
    }
}

/// A message of version 1 or 2.
fn about(kind: u8, group: IpAddr) -> Vec<u8> {
    let reserved = if group.is_ipv4() { 3 } else { 7 };
    let mut message = vec![kind];
    message.resize(1 + reserved, 0);
    write_addr(&mut message, group);
    message
}

fn write_v4(
    cx: &mut Context<'_>,
    interface: &Interface,
    dst: Ipv4Addr,
    mut message: Vec<u8>,
) -> Option<Packet> {
    let sum = checksum::checksum(&message);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    // A host that has no address yet reports from none (RFC 3376 section 4.2.13).
    let src = interface.addresses.iter().find_map(|own| match own.addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    });
    let src = src.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let header_len = Ipv4Header::LEN + ROUTER_ALERT.len();
    let len = u16::try_from(header_len + message.len()).ok()?;
    let mut ip = Ipv4Header::new(src, dst, protocol::IGMP, 1, len);
    ip.set_header_len(header_len);
    ip.tos = TOS;
    let mut header = [ip.as_bytes(), &ROUTER_ALERT].concat();
    crate::wire::ipv4::fill_checksum(&mut header);
    let mut packet = packet(cx, &[&header, &message])?;
    packet.protocol = protocol::IGMP;
    packet.l4_offset = u16::try_from(header_len).ok()?;
    Some(packet)
}

fn write_v6(
    cx: &mut Context<'_>,
    interface: &Interface,
    dst: Ipv6Addr,
    mut message: Vec<u8>,
) -> Option<Packet> {
    let link_local =
        |addr: &IpAddr| matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
    let mut own = interface.addresses.iter().map(|own| own.addr);
    // Without an address of the link, from none (RFC 3590).
    let src = own.find(link_local).and_then(V6::from_ip);
    let src = src.unwrap_or(Ipv6Addr::UNSPECIFIED);
    let mut sum = V6::pseudo_header(src, dst, protocol::ICMPV6, message.len());
    sum.add_bytes(&message);
    message
        .get_mut(2..4)?
        .copy_from_slice(&sum.finish().to_be_bytes());
    let [alert0, alert1, alert2, alert3] = mld::ROUTER_ALERT;
    // The option, and two bytes of padding.
    let hop_by_hop = [protocol::ICMPV6, 0, alert0, alert1, alert2, alert3, 1, 0];
    let len = u16::try_from(hop_by_hop.len() + message.len()).ok()?;
    let ip = Ipv6Header::new(src, dst, protocol::HOP_BY_HOP, 1, len);
    let mut packet = packet(cx, &[ip.as_bytes(), &hop_by_hop, &message])?;
    packet.version = IpVersion::V6;
    packet.protocol = protocol::HOP_BY_HOP;
    packet.l4_offset = u16::try_from(Ipv6Header::LEN).ok()?;
    cx.core.count(Counter::Icmp6OutMsgs);
    cx.core.count(match message.first() {
        Some(&v6::MLD_REPORT) => Counter::Icmp6OutGroupMembResponses,
        Some(&v6::MLD_DONE) => Counter::Icmp6OutGroupMembReductions,
        _ => Counter::Icmp6OutMLDv2Reports,
    });
    Some(packet)
}

fn packet(cx: &mut Context<'_>, parts: &[&[u8]]) -> Option<Packet> {
    let mut packet = cx.core.alloc()?;
    for part in parts {
        packet.put(part.len())?.copy_from_slice(part);
    }
    packet.checksum = ChecksumState::Verified;
    Some(packet)
}
