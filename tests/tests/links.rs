//! Interfaces that go down, come up again, and go for good.

use forebay_stack::drop::DropReason;
use forebay_stack::fib::{Prefix, Route, RouteKind, TableId};
use forebay_stack::interface::InterfaceConfig;
use forebay_tests::{Rig, V4, V6, packets};

#[test]
fn down_it_neither_receives_nor_sends() {
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    let outward = [
        packets::udp(V4::PEER, V4::PEER1, 1_000, 9, b"on"),
        packets::udp(V6::PEER, V6::PEER1, 1_000, 9, b"on"),
    ];
    let inward = [
        packets::udp(V4::PEER1, V4::PEER, 1_000, 9, b"on"),
        packets::udp(V6::PEER1, V6::PEER, 1_000, 9, b"on"),
    ];
    // These wait for the device when its link goes down.
    rig.inject_all("tun0", &outward);
    rig.stack.set_interface_up(tun1, false).expect("tun1");
    assert_eq!(rig.dropped(DropReason::DevReady), 2);
    assert!(rig.output("tun1").is_empty());

    // Its prefixes are on no link any more; the senders are told.
    rig.inject_all("tun0", &outward);
    assert_eq!(rig.dropped(DropReason::IpInNoRoutes), 2);
    assert_eq!(rig.output("tun0").len(), 2);
    rig.inject_all("tun1", &inward);
    assert_eq!(rig.dropped(DropReason::DevDown), 2);
    assert!(rig.output("tun0").is_empty() && rig.output("tun1").is_empty());

    rig.stack.set_interface_up(tun1, true).expect("tun1");
    rig.inject_all("tun0", &outward);
    rig.inject_all("tun1", &inward);
    assert_eq!(rig.output("tun1").len(), 2);
    assert_eq!(rig.output("tun0").len(), 2);
}

#[test]
fn routes_by_a_link_that_is_down_make_way_for_others() {
    let mut rig = Rig::new();
    let (tun0, tun1) = (rig.ifindex("tun0"), rig.ifindex("tun1"));
    let fib = rig.stack.fib4();
    let narrow = Route::new(
        RouteKind::Unicast,
        "192.0.2.0/24".parse().expect("a prefix"),
    );
    let by_tun1 = narrow.via(V4::PEER1).dev(tun1);
    fib.add(TableId::MAIN, by_tun1).expect("a new route");
    let wide = Route::new(RouteKind::Unicast, Prefix::DEFAULT)
        .via(V4::PEER)
        .dev(tun0);
    fib.add(TableId::MAIN, wide).expect("a new route");
    let to = std::net::Ipv4Addr::new(192, 0, 2, 1);
    let packet = packets::udp(V4::PEER, to, 1_000, 9, b"on");
    let leaves_by = |rig: &mut Rig| {
        rig.inject("tun0", &packet);
        let is_it = |out: &Vec<u8>| packets::parse(out).dst == to;
        ["tun0", "tun1"].map(|name| rig.output(name).iter().filter(|out| is_it(out)).count())
    };
    assert_eq!(leaves_by(&mut rig), [0, 1]);
    rig.stack.set_interface_up(tun1, false).expect("tun1");
    assert_eq!(leaves_by(&mut rig), [1, 0]);
    // Its addresses are this host's all the same.
    rig.inject(
        "tun0",
        packets::icmp(V4::PEER, V4::OWN1, 8, 0, 1, b"there?"),
    );
    assert_eq!(packets::parse(&rig.output("tun0")[0]).src, V4::OWN1);
    // Only what belongs to the addresses comes back by itself.
    rig.stack.set_interface_up(tun1, true).expect("tun1");
    assert_eq!(leaves_by(&mut rig), [1, 0]);
    rig.stack
        .fib4()
        .add(TableId::MAIN, by_tun1)
        .expect("its gateway is on the link again");
    assert_eq!(leaves_by(&mut rig), [0, 1]);
}

#[test]
fn an_address_given_while_down_counts_when_up() {
    let mut rig = Rig::new();
    let tun1 = rig.ifindex("tun1");
    rig.stack.set_interface_up(tun1, false).expect("tun1");
    let addr = "10.7.0.1".parse().expect("an address");
    rig.stack
        .add_address(tun1, addr, 24)
        .expect("a new address");
    let neighbour = std::net::Ipv4Addr::new(10, 7, 0, 2);
    let packet = packets::udp(V4::PEER, neighbour, 1_000, 9, b"on");
    rig.inject("tun0", &packet);
    assert!(rig.output("tun1").is_empty());
    rig.stack.set_interface_up(tun1, true).expect("tun1");
    rig.inject("tun0", &packet);
    assert_eq!(rig.output("tun1").len(), 1);
}

#[test]
fn what_waits_for_an_interface_goes_with_it() {
    let mut rig = Rig::new();
    let config = InterfaceConfig::new("tun2");
    let tun2 = rig.stack.add_interface(config).expect("a new name");
    let route = Route::new(RouteKind::Unicast, Prefix::host(V4::PEER1)).dev(tun2);
    rig.stack
        .fib4()
        .add(TableId::MAIN, route)
        .expect("a new route");
    let packet = packets::udp(V4::PEER, V4::PEER1, 1_000, 9, b"on");
    rig.inject("tun0", &packet);
    assert_eq!(rig.buffers_in_use(), 1);
    rig.stack.remove_interface(tun2).expect("tun2");
    assert_eq!(rig.buffers_in_use(), 0);
    assert_eq!(rig.dropped(DropReason::DevReady), 1);
}
