//! Datagrams to groups: who gets them, from which sources, by which interface; and how they are
//! sent.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::udp::{MembershipError, MulticastOption, SourceChange};
use forebay_tests::{Net, Rig, everywhere, packets};

const PORT: u16 = 5_000;
const FROM: u16 = 6_000;

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn group(net: &Net) -> IpAddr {
    net.pick(addr("239.1.2.3"), addr("ff0e::123"))
}

fn version(net: &Net) -> IpVersion {
    net.pick(IpVersion::V4, IpVersion::V6)
}

fn join(rig: &Rig, id: SocketId, group: IpAddr, interface: &str) {
    let ifindex = Some(rig.ifindex(interface));
    rig.stack.udp_join_group(id, group, ifindex).expect("join");
}

fn source(
    rig: &Rig,
    id: SocketId,
    net: &Net,
    source: IpAddr,
    what: SourceChange,
) -> Result<(), MembershipError> {
    let tun0 = Some(rig.ifindex("tun0"));
    rig.stack
        .udp_change_source(id, group(net), source, tun0, what)
}

fn set(rig: &Rig, id: SocketId, net: &Net, option: MulticastOption) {
    rig.stack
        .udp_set_multicast(id, version(net), option)
        .expect("an option");
}

/// A datagram to the group comes in by an interface.
fn arrive(rig: &mut Rig, net: &Net, interface: &str, from: IpAddr) {
    let (from, to) = (
        SocketAddr::new(from, FROM),
        SocketAddr::new(group(net), PORT),
    );
    rig.deliver_by(interface, from, to, b"to all");
}

fn received<const N: usize>(rig: &Rig, sockets: [SocketId; N]) -> [usize; N] {
    sockets.map(|id| rig.drain(id).len())
}

#[test]
fn every_member_gets_a_copy() {
    everywhere(|mut rig, net| {
        let on_group = rig.bind(SocketAddr::new(group(&net), PORT));
        let everywhere = rig.bind(net.any(PORT));
        let [elsewhere, any, strict] = [(); 3].map(|()| rig.bind(net.any(PORT)));
        let other_port = rig.bind(net.any(PORT + 1));
        arrive(&mut rig, &net, "tun0", net.peer);
        assert_eq!(rig.dropped(DropReason::MulticastNotJoined), 1);

        set(&rig, strict, &net, MulticastOption::All(false));
        set(&rig, elsewhere, &net, MulticastOption::All(false));
        for id in [on_group, everywhere, other_port] {
            join(&rig, id, group(&net), "tun0");
        }
        join(&rig, elsewhere, group(&net), "tun1");
        let all = [on_group, everywhere, elsewhere, any, strict, other_port];
        // Who has not joined, and did not say otherwise, gets what others have joined.
        arrive(&mut rig, &net, "tun0", net.peer);
        assert_eq!(received(&rig, all), [1, 1, 0, 1, 0, 0]);
        arrive(&mut rig, &net, "tun1", net.peer1);
        assert_eq!(received(&rig, all), [1, 1, 1, 1, 0, 0]);
        set(&rig, everywhere, &net, MulticastOption::All(false));
        arrive(&mut rig, &net, "tun1", net.peer1);
        assert_eq!(received(&rig, all), [1, 0, 1, 1, 0, 0]);

        for id in all {
            rig.close(id);
        }
        arrive(&mut rig, &net, "tun0", net.peer);
        arrive(&mut rig, &net, "tun1", net.peer1);
        assert_eq!(rig.dropped(DropReason::MulticastNotJoined), 3);
        rig.poll();
        rig.is_silent();
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// A socket that listens to few sources, one that listens to all but one, and one to all.
#[test]
fn sources_are_chosen() {
    everywhere(|mut rig, net| {
        let sockets = [(); 3].map(|()| rig.bind(net.any(PORT)));
        let [few, most, all] = sockets;
        source(&rig, few, &net, net.other, SourceChange::Join).expect("join");
        arrive(&mut rig, &net, "tun0", net.peer);
        // The interface takes only what somebody wants.
        assert_eq!(received(&rig, sockets), [0, 0, 0]);
        assert_eq!(rig.dropped(DropReason::MulticastNotJoined), 1);
        arrive(&mut rig, &net, "tun0", net.other);
        assert_eq!(received(&rig, sockets), [1, 1, 1]);

        join(&rig, most, group(&net), "tun0");
        join(&rig, all, group(&net), "tun0");
        source(&rig, most, &net, net.other, SourceChange::Block).expect("block");
        arrive(&mut rig, &net, "tun0", net.peer);
        assert_eq!(received(&rig, sockets), [0, 1, 1]);
        arrive(&mut rig, &net, "tun0", net.other);
        assert_eq!(received(&rig, sockets), [1, 0, 1]);

        source(&rig, few, &net, net.peer, SourceChange::Join).expect("a second source");
        source(&rig, most, &net, net.other, SourceChange::Unblock).expect("unblock");
        for from in [net.peer, net.other] {
            arrive(&mut rig, &net, "tun0", from);
            assert_eq!(received(&rig, sockets), [1, 1, 1]);
        }
        source(&rig, few, &net, net.other, SourceChange::Leave).expect("leave");
        set(&rig, few, &net, MulticastOption::All(false));
        arrive(&mut rig, &net, "tun0", net.other);
        assert_eq!(received(&rig, sockets), [0, 1, 1]);
    });
}

/// As `setsockopt` says it in Linux.
#[test]
fn what_does_not_fit_is_refused() {
    everywhere(|rig, net| {
        let id = rig.bind(net.any(PORT));
        let stack = &rig.stack;
        let tun0 = Some(rig.ifindex("tun0"));
        let group = group(&net);
        let join = |group, ifindex| stack.udp_join_group(id, group, ifindex);
        assert_eq!(
            join(net.peer, tun0),
            Err(MembershipError::NotAGroup(net.peer))
        );
        assert_eq!(join(group, Some(99)), Err(MembershipError::NoDevice));
        let not_member = Err(MembershipError::NotMember);
        assert_eq!(stack.udp_leave_group(id, group, tun0), not_member);
        let change = |from, what| source(&rig, id, &net, from, what);
        assert_eq!(change(net.peer, SourceChange::Block), not_member);
        let not_listed = Err(MembershipError::SourceNotListed);
        assert_eq!(change(net.peer, SourceChange::Leave), not_listed);

        assert_eq!(join(group, tun0), Ok(()));
        assert_eq!(join(group, tun0), Err(MembershipError::AlreadyMember));
        assert_eq!(join(group, Some(rig.ifindex("tun1"))), Ok(()));
        assert_eq!(change(net.peer, SourceChange::Unblock), not_listed);
        assert_eq!(change(net.peer, SourceChange::Block), Ok(()));
        let listed = Err(MembershipError::SourceListed);
        assert_eq!(change(net.peer, SourceChange::Block), listed);
        let other_mode = Err(MembershipError::OtherMode);
        assert_eq!(change(net.peer, SourceChange::Join), other_mode);
        let foreign = if net.is_v4() {
            addr("::7")
        } else {
            addr("10.0.0.7")
        };
        let family = Err(MembershipError::FamilyNotSupported);
        assert_eq!(change(foreign, SourceChange::Block), family);
        // The first of the two, then the other.
        assert_eq!(stack.udp_leave_group(id, group, None), Ok(()));
        assert_eq!(stack.udp_leave_group(id, group, None), Ok(()));
        assert_eq!(stack.udp_leave_group(id, group, None), not_member);
    });
}

#[test]
fn knobs_limit_groups_and_sources() {
    let rig = Rig::new();
    let tun0 = Some(rig.ifindex("tun0"));
    let id = rig.bind(Net::V6.any(PORT));
    // An IPv6 socket joins IPv4 groups as well.
    rig.set("net.ipv4.igmp_max_memberships", 2);
    for (last, expected) in [(1, Ok(())), (2, Ok(())), (3, Err(MembershipError::TooMany))] {
        let group = addr(&format!("239.0.0.{last}"));
        assert_eq!(rig.stack.udp_join_group(id, group, tun0), expected);
        let group = addr(&format!("ff0e::{last}"));
        assert_eq!(rig.stack.udp_join_group(id, group, tun0), Ok(()));
    }
    rig.set("net.ipv4.igmp_max_msf", 1);
    rig.set("net.ipv6.mld_max_msf", 2);
    let block = |group, source| {
        let (group, source) = (addr(group), addr(source));
        rig.stack
            .udp_change_source(id, group, source, tun0, SourceChange::Block)
    };
    assert_eq!(block("239.0.0.1", "10.0.0.7"), Ok(()));
    assert_eq!(
        block("239.0.0.1", "10.0.0.8"),
        Err(MembershipError::TooMany)
    );
    assert_eq!(block("239.0.0.2", "10.0.0.8"), Ok(()));
    assert_eq!(block("ff0e::1", "fd00::7"), Ok(()));
    assert_eq!(block("ff0e::1", "fd00::8"), Ok(()));
    assert_eq!(block("ff0e::1", "fd00::9"), Err(MembershipError::TooMany));
    let v4 = rig.open(Net::V4.own);
    let refused = rig.stack.udp_join_group(v4, addr("ff0e::1"), tun0);
    assert_eq!(refused, Err(MembershipError::FamilyNotSupported));
}

/// Whatever went before: no source is let in because another was.
#[test]
fn every_packets_source_is_validated() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.any(PORT));
        join(&rig, id, group(&net), "tun0");
        let mut hears = |from: IpAddr| {
            arrive(&mut rig, &net, "tun0", from);
            rig.has_received(id)
        };
        let bad: &[&str] = net.pick(
            &[
                "127.0.0.1",
                "10.0.0.1",
                "239.9.9.9",
                "0.0.0.0",
                "255.255.255.255",
            ],
            &["::1", "ff0e::9", "::ffff:10.0.0.2"],
        );
        for _ in 0..2 {
            assert!(hears(net.peer));
            for from in bad {
                assert!(!hears(addr(from)), "{from}");
            }
        }
        assert!(hears(net.peer1) && hears(net.nowhere));
        if net.is_v4() {
            rig.set("net.ipv4.conf.all.rp_filter", 1);
            let hears = [net.peer, net.peer1, net.nowhere].map(|from| {
                arrive(&mut rig, &net, "tun0", from);
                rig.has_received(id)
            });
            assert_eq!(hears, [true, false, false]);
        }
    });
}

#[test]
fn what_is_sent_goes_where_options_say() {
    everywhere(|mut rig, net| {
        let to = SocketAddr::new(group(&net), PORT);
        let sender = rig.bind(net.any(FROM));
        let [member, away] = [(); 2].map(|()| rig.bind(net.any(PORT)));
        for id in [member, away] {
            set(&rig, id, &net, MulticastOption::All(false));
        }
        join(&rig, member, group(&net), "tun1");
        join(&rig, away, group(&net), "tun0");
        rig.poll();
        rig.is_silent();
        let tun1 = rig.ifindex("tun1");
        set(&rig, sender, &net, MulticastOption::Interface(tun1));

        let ttl_at = net.pick(8, 7);
        for (ttl, loops) in [(1, true), (9, false), (0, true), (0, false)] {
            set(&rig, sender, &net, MulticastOption::Ttl(ttl));
            set(&rig, sender, &net, MulticastOption::Loop(loops));
            let octets = net.pick(Counter::IpExtOutMcastOctets, Counter::Ip6OutMcastOctets);
            let before = rig.count(octets);
            assert!(
                rig.send(sender, Some(to), b"to all").is_empty(),
                "not by tun0"
            );
            assert_eq!(rig.count(octets) - before, net.pick(20, 40) + 8 + 6);
            let sent = rig.output("tun1");
            let sent: Vec<_> = sent.iter().map(|packet| packet[ttl_at]).collect();
            let expected = if ttl == 0 { vec![] } else { vec![ttl] };
            assert_eq!(sent, expected);
            // As if it had come in by the interface that it left by.
            let heard = rig.recv(member).expect("no error");
            assert_eq!(heard.is_some(), loops);
            if let Some(heard) = heard {
                assert_eq!(heard.iif, tun1);
                assert_eq!(heard.from, SocketAddr::new(net.own1, FROM));
                assert_eq!(heard.payload, b"to all");
            }
            assert!(!rig.has_received(away));
        }
        // Not to whom it would have come in parts.
        set(&rig, sender, &net, MulticastOption::Ttl(1));
        set(&rig, sender, &net, MulticastOption::Loop(true));
        let long = vec![7; 5_000];
        rig.send(sender, Some(to), &long);
        assert_eq!(rig.output("tun1").len(), 4);
        assert_eq!(rig.drain(member), [long]);
        assert_eq!(
            rig.stack
                .udp_set_multicast(sender, version(&net), MulticastOption::Interface(99)),
            Err(MembershipError::NoDevice)
        );
    });
}

#[test]
fn a_group_can_be_joined_on_the_loopback() {
    everywhere(|mut rig, net| {
        let to = SocketAddr::new(group(&net), PORT);
        let sender = rig.bind(net.any(FROM));
        let member = rig.bind(net.any(PORT));
        set(&rig, sender, &net, MulticastOption::Interface(1));
        rig.send(sender, Some(to), b"nobody");
        assert!(!rig.has_received(member));
        join(&rig, member, group(&net), "lo");
        rig.send(sender, Some(to), b"somebody");
        assert_eq!(rig.drain(member), [b"somebody"]);
        rig.poll();
        assert!(rig.is_silent(), "neither left, and nobody was told");
    });
}

/// Groups without an interface are joined where routes lead, and options have Linux's defaults.
#[test]
fn what_is_not_said_is_chosen() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.any(PORT));
        rig.stack
            .udp_join_group(id, group(&net), None)
            .expect("join");
        arrive(&mut rig, &net, "tun0", net.peer);
        assert!(rig.has_received(id));
        let options = rig
            .stack
            .udp_multicast(id, version(&net))
            .expect("an open socket");
        assert_eq!((options.ttl, options.loops), (1, true));
        assert_eq!((options.all, options.interface), (true, 0));

        // The slot's next socket begins anew.
        set(&rig, id, &net, MulticastOption::Ttl(7));
        rig.close(id);
        let next = rig.bind(net.any(PORT));
        let options = rig
            .stack
            .udp_multicast(next, version(&net))
            .expect("an open socket");
        assert_eq!(options.ttl, 1);
        arrive(&mut rig, &net, "tun0", net.peer);
        assert!(!rig.has_received(next));
    });
}

/// A socket that moves from place to place in the tables gets each datagram, and gets it once.
#[test]
fn a_socket_that_moves_gets_every_datagram_once() {
    const DATAGRAMS: usize = 5_000;
    for net in [Net::V4, Net::V6] {
        let mut rig = Rig::new();
        let id = rig.bind(net.any(PORT));
        join(&rig, id, group(&net), "tun0");
        let (stack, stop) = (rig.stack.clone(), AtomicBool::new(false));
        let tun0 = rig.ifindex("tun0");
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for device in [Some(tun0), None] {
                        stack.udp_set_device(id, device).expect("a device");
                    }
                }
            });
            let packet = packets::udp(net.peer, group(&net), FROM, PORT, b"to all");
            let received: usize = (0..DATAGRAMS)
                .map(|_| {
                    rig.inject("tun0", &packet);
                    rig.drain(id).len()
                })
                .sum();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(received, DATAGRAMS);
        });
    }
}
