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

    rig.inject_all("tun0", &outward);
    assert_eq!(rig.dropped(DropReason::DevReady), 4);
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
