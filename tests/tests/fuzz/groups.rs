//! Multicast groups: who joins them, and what is said of them on the link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::Stack;
use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::udp::{MulticastOption, SourceChange};
use forebay_tests::groups::{igmp_message, mld_message};

use crate::dice::Dice;
use crate::shapes;

const GROUPS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(239, 1, 2, 3),
    Ipv4Addr::new(239, 1, 2, 3),
    Ipv4Addr::new(224, 0, 0, 251),
    Ipv4Addr::new(224, 0, 0, 1),
];

const V6_GROUPS: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 7),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 7),
];

fn group(dice: &Dice) -> IpAddr {
    match dice.coin() {
        true => dice.pick(&GROUPS).into(),
        false => dice.pick(&V6_GROUPS).into(),
    }
}

/// A socket joins, leaves, or thinks otherwise of a source. It may be refused.
pub(crate) fn change(stack: &Stack, id: SocketId, dice: &Dice) {
    let group = match dice.once_in(10) {
        true => shapes::address(dice, dice.coin()),
        false => group(dice),
    };
    let ifindex = dice.pick(&[None, Some(1), Some(2), Some(2), Some(3), Some(4)]);
    let source = shapes::address(dice, group.is_ipv6() != dice.once_in(20));
    let what = dice.pick(&[
        SourceChange::Join,
        SourceChange::Leave,
        SourceChange::Block,
        SourceChange::Unblock,
    ]);
    let version = dice.pick(&[IpVersion::V4, IpVersion::V6]);
    let option = dice.pick(&[
        MulticastOption::Ttl(dice.u8()),
        MulticastOption::Loop(dice.coin()),
        MulticastOption::Interface(dice.below(5) as u32),
        MulticastOption::All(dice.coin()),
    ]);
    // Any of these may be refused, and none may do harm.
    let _ = match dice.below(6) {
        0 | 1 => stack.udp_join_group(id, group, ifindex),
        2 => stack.udp_leave_group(id, group, ifindex),
        3 => stack.udp_set_multicast(id, version, option),
        _ => stack.udp_change_source(id, group, source, ifindex, what),
    };
}

/// An IGMP or MLD message in a packet: most often a query.
pub(crate) fn message(dice: &Dice) -> Vec<u8> {
    let count = dice.below(4) as u8;
    let tail = |address: usize| match dice.below(3) {
        0 => Vec::new(),
        1 => dice.bytes(dice.len(60)),
        _ => {
            let sources = dice.bytes(usize::from(count) * address);
            [&[dice.u8(), 125, 0, count], &sources[..]].concat()
        }
    };
    match dice.coin() {
        true => {
            let group = dice.pick(&[Ipv4Addr::UNSPECIFIED, GROUPS[0], GROUPS[2]]);
            let dst = dice.pick(&[Ipv4Addr::new(224, 0, 0, 1), GROUPS[0]]);
            let kind = dice.pick(&[0x11, 0x11, 0x11, 0x12, 0x16, 0x17, 0x22]);
            igmp_message(kind, dice.u8(), dst, group, &tail(4))
        }
        false => {
            let group = dice.pick(&[Ipv6Addr::UNSPECIFIED, V6_GROUPS[0]]);
            let dst = dice.pick(&[V6_GROUPS[0], V6_GROUPS[1]]);
            let kind = dice.pick(&[130, 130, 130, 131, 132, 143]);
            mld_message(kind, dice.u16(), dst, group, &tail(16))
        }
    }
}
