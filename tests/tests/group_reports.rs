//! What routers hear about groups, and when: IGMP and MLD on the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::socket::SocketId;
use forebay_stack::udp::SourceChange;
use forebay_tests::groups::GroupMessage::{Leave, Records, Report, V1Report};
use forebay_tests::groups::{
    GroupMessage, group_message, igmp_message, igmp_query, mld_message, mld_query,
};
use forebay_tests::{Net, Rig, packets};

const V4_GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const V6_GROUP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x123);

const IS_IN: u8 = 1;
const IS_EX: u8 = 2;
const TO_IN: u8 = 3;
const TO_EX: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

/// Both families: its addresses, a group, and a query for all groups or this one that wants an
/// answer within 10 seconds, in the newest version.
struct World {
    net: Net,
    group: IpAddr,
    all: Vec<u8>,
    this: Vec<u8>,
}

fn worlds() -> [World; 2] {
    let tail = [2, 125, 0, 0];
    [
        World {
            net: Net::V4,
            group: V4_GROUP.into(),
            all: igmp_query(Ipv4Addr::UNSPECIFIED, 100, &tail),
            this: igmp_query(V4_GROUP, 100, &tail),
        },
        World {
            net: Net::V6,
            group: V6_GROUP.into(),
            all: mld_query(Ipv6Addr::UNSPECIFIED, 10_000, &tail),
            this: mld_query(V6_GROUP, 10_000, &tail),
        },
    ]
}

/// What is said by tun0 within a time; nothing else may be sent.
fn said(rig: &mut Rig, seconds: u64) -> Vec<GroupMessage> {
    let mut said = Vec::new();
    for _ in 0..=seconds * 10 {
        let packets = rig.output("tun0");
        said.extend(
            packets
                .iter()
                .map(|packet| group_message(packet).expect("a report")),
        );
        rig.advance(Duration::from_millis(100));
    }
    said
}

fn now(rig: &mut Rig) -> Vec<GroupMessage> {
    rig.poll();
    let packets = rig.output("tun0");
    packets
        .iter()
        .map(|packet| group_message(packet).expect("a report"))
        .collect()
}

fn join(rig: &Rig, id: SocketId, group: IpAddr) {
    let tun0 = Some(rig.ifindex("tun0"));
    rig.stack.udp_join_group(id, group, tun0).expect("join");
}

fn record(kind: u8, group: IpAddr, sources: &[IpAddr]) -> GroupMessage {
    Records(vec![(kind, group, sources.to_vec())])
}

#[test]
fn changes_are_reported_twice() {
    for World { net, group, .. } in worlds() {
        let mut rig = Rig::new();
        let tun0 = Some(rig.ifindex("tun0"));
        let [id, other] = [(); 2].map(|()| rig.open(net.own));
        let source = |rig: &Rig, what| {
            rig.stack
                .udp_change_source(id, group, net.peer, tun0, what)
                .expect("a change");
        };
        join(&rig, id, group);
        assert_eq!(now(&mut rig), [record(TO_EX, group, &[])]);
        assert_eq!(said(&mut rig, 5), [record(TO_EX, group, &[])]);
        // A second member changes nothing.
        join(&rig, other, group);
        assert_eq!(said(&mut rig, 5), []);
        rig.close(other);
        assert_eq!(said(&mut rig, 5), []);
        source(&rig, SourceChange::Block);
        assert_eq!(
            said(&mut rig, 5),
            vec![record(BLOCK, group, &[net.peer]); 2]
        );
        source(&rig, SourceChange::Unblock);
        assert_eq!(
            said(&mut rig, 5),
            vec![record(ALLOW, group, &[net.peer]); 2]
        );
        rig.stack.udp_leave_group(id, group, tun0).expect("leave");
        assert_eq!(said(&mut rig, 5), vec![record(TO_IN, group, &[]); 2]);
        source(&rig, SourceChange::Join);
        assert_eq!(
            said(&mut rig, 5),
            vec![record(ALLOW, group, &[net.peer]); 2]
        );
        rig.close(id);
        assert_eq!(
            said(&mut rig, 5),
            vec![record(BLOCK, group, &[net.peer]); 2]
        );
        assert_eq!(rig.poll(), None, "nothing is to be done");
        let reports = net.pick(0, 12);
        assert_eq!(rig.count(Counter::Icmp6OutMLDv2Reports), reports);
        let sent = net.pick(Counter::IpExtOutMcastPkts, Counter::Ip6OutMcastPkts);
        assert_eq!(rig.count(sent), 12);
    }
}

#[test]
fn routers_are_answered() {
    for World {
        net,
        group,
        all,
        this,
    } in worlds()
    {
        let mut rig = Rig::new();
        let id = rig.open(net.own);
        rig.inject("tun0", &all);
        assert_eq!(said(&mut rig, 11), [], "there is nothing to say");
        join(&rig, id, group);
        said(&mut rig, 5);
        for query in [&all, &this] {
            rig.inject("tun0", query);
            assert_eq!(said(&mut rig, 10), [record(IS_EX, group, &[])]);
        }
        rig.inject("tun1", &all);
        assert_eq!(said(&mut rig, 10), [], "that was another link's router");
        assert_eq!(rig.buffers_in_use(), 0);
    }
}

#[test]
fn who_asks_about_sources_hears_of_those() {
    let [v4, v6] = worlds();
    let v4_tail = [&[2, 125, 0, 2][..], &[10, 0, 0, 2], &[10, 0, 0, 9]].concat();
    let (own, peer) = (Net::V6.own, Net::V6.peer);
    let octets = |addr| match addr {
        IpAddr::V6(addr) => addr.octets(),
        IpAddr::V4(_) => panic!("{addr} is of IPv4"),
    };
    let v6_tail = [&[2, 125, 0, 2][..], &octets(peer), &octets(own)].concat();
    let queries = [
        (v4, igmp_query(V4_GROUP, 10, &v4_tail)),
        (v6, mld_query(V6_GROUP, 1_000, &v6_tail)),
    ];
    for (World { net, group, .. }, query) in queries {
        let mut rig = Rig::new();
        let tun0 = Some(rig.ifindex("tun0"));
        let id = rig.open(net.own);
        let source = SourceChange::Join;
        rig.stack
            .udp_change_source(id, group, net.peer, tun0, source)
            .expect("join");
        said(&mut rig, 5);
        rig.inject("tun0", &query);
        assert_eq!(said(&mut rig, 2), [record(IS_IN, group, &[net.peer])]);
    }
}

#[test]
fn older_routers_are_spoken_to_in_their_way() {
    let queries = [
        igmp_query(Ipv4Addr::UNSPECIFIED, 100, &[]),
        mld_query(Ipv6Addr::UNSPECIFIED, 10_000, &[]),
    ];
    let others = [
        igmp_message(0x16, 0, V4_GROUP, V4_GROUP, &[]),
        mld_message(131, 0, V6_GROUP, V6_GROUP, &[]),
    ];
    for ((World { net, group, .. }, query), other) in worlds().into_iter().zip(queries).zip(others)
    {
        let mut rig = Rig::new();
        rig.inject("tun0", &query);
        let tun0 = Some(rig.ifindex("tun0"));
        let id = rig.open(net.own);
        join(&rig, id, group);
        assert_eq!(said(&mut rig, 11), vec![Report(group); 2]);
        rig.inject("tun0", &query);
        assert_eq!(said(&mut rig, 11), [Report(group)]);
        // Somebody else answers first.
        rig.inject("tun0", &query);
        rig.inject("tun0", &other);
        assert_eq!(said(&mut rig, 11), []);
        rig.inject("tun0", &query);
        assert_eq!(said(&mut rig, 11), [Report(group)]);
        rig.stack.udp_leave_group(id, group, tun0).expect("leave");
        assert_eq!(said(&mut rig, 11), [Leave(group)]);
        if !net.is_v4() {
            assert_eq!(rig.count(Counter::Icmp6OutGroupMembResponses), 4);
            assert_eq!(rig.count(Counter::Icmp6OutGroupMembReductions), 1);
        }
    }
}

#[test]
fn a_version_1_router_is_told_the_oldest_way() {
    let mut rig = Rig::new();
    rig.inject("tun0", igmp_query(Ipv4Addr::UNSPECIFIED, 0, &[]));
    let id = rig.open(Net::V4.own);
    join(&rig, id, V4_GROUP.into());
    assert_eq!(said(&mut rig, 11), vec![V1Report(V4_GROUP.into()); 2]);
    rig.close(id);
    assert_eq!(said(&mut rig, 11), []);
}

#[test]
fn knobs_choose_the_version() {
    for World {
        net, group, all, ..
    } in worlds()
    {
        let mut rig = Rig::new();
        let knob = net.pick(
            ("net.ipv4.conf.tun0.force_igmp_version", 2),
            ("net.ipv6.conf.tun0.force_mld_version", 1),
        );
        rig.set(knob.0, knob.1);
        let id = rig.open(net.own);
        join(&rig, id, group);
        assert_eq!(now(&mut rig), [Report(group)]);
        rig.inject("tun0", &all);
        said(&mut rig, 11);
        rig.set(knob.0, 0);
        rig.inject("tun0", &all);
        assert_eq!(said(&mut rig, 11), [record(IS_EX, group, &[])]);
    }
}

/// What no router on the link can have sent, and what is broken.
#[test]
fn not_everybody_is_answered() {
    let mut rig = Rig::new();
    for net in [Net::V4, Net::V6] {
        let id = rig.open(net.own);
        join(&rig, id, net.pick(V4_GROUP.into(), V6_GROUP.into()));
    }
    said(&mut rig, 5);
    let [v4, v6] = worlds();
    let broken = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        *packet.last_mut().expect("bytes") ^= 1;
        packet
    };
    rig.inject("tun0", broken(&v4.all));
    assert_eq!(rig.dropped(DropReason::IgmpCsum), 1);
    rig.inject("tun0", broken(&v6.all));
    assert_eq!(rig.dropped(DropReason::IcmpCsum), 1);
    // From afar, from a global address, without the option.
    rig.inject("tun0", packets::with_ttl(v6.all.clone(), 64));
    let without_option = packets::icmp(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        130,
        0,
        10_000 << 16,
        &[0; 16],
    );
    rig.inject("tun0", packets::with_ttl(without_option, 1));
    rig.inject("tun0", igmp_query(V4_GROUP, 10, &[0]));
    rig.inject("tun0", igmp_query(V4_GROUP, 10, &[0, 0, 0, 1]));
    assert_eq!(rig.dropped(DropReason::IgmpInvalid), 4);
    assert_eq!(said(&mut rig, 11), []);
}

#[test]
fn an_interface_that_comes_up_reports_its_groups_anew() {
    for World { net, group, .. } in worlds() {
        let mut rig = Rig::new();
        let tun0 = rig.ifindex("tun0");
        let id = rig.open(net.own);
        rig.stack
            .set_interface_up(tun0, false)
            .expect("an interface");
        join(&rig, id, group);
        assert_eq!(said(&mut rig, 5), []);
        rig.stack
            .set_interface_up(tun0, true)
            .expect("an interface");
        assert_eq!(said(&mut rig, 5), vec![record(TO_EX, group, &[]); 2]);
        rig.stack
            .set_interface_up(tun0, false)
            .expect("an interface");
        rig.stack.remove_interface(tun0).expect("an interface");
        rig.stack
            .udp_leave_group(id, group, Some(tun0))
            .expect("a membership");
        rig.close(id);
        assert_eq!(rig.poll(), None);
    }
}

#[test]
fn groups_are_listed() {
    let rig = Rig::new();
    let id = rig.open(Net::V6.own);
    join(&rig, id, V4_GROUP.into());
    join(&rig, id, V6_GROUP.into());
    let tun0 = rig.ifindex("tun0");
    let groups = rig.stack.multicast_groups();
    let here = groups.iter().filter(|info| info.ifindex == tun0);
    let listed: Vec<_> = here
        .map(|info| (info.group.to_string(), info.users))
        .collect();
    for expected in [
        ("224.0.0.1", 1),
        ("ff02::1", 1),
        ("ff02::1:ff00:1", 1),
        ("239.1.2.3", 1),
        ("ff0e::123", 1),
    ] {
        assert!(
            listed.contains(&(expected.0.to_owned(), expected.1)),
            "{listed:?}"
        );
    }
}
