//! Changing a stack while packets come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay_tests::kernel::{
    Family, Lab, LabConfig, Ping, SILENCE, add_route, delete_route, flood, in_private_network,
    ping, resident_bytes, soak_time, stream, touch,
};

/// A change is in force for the next packet: nothing is waited for between it and the ping.
#[test]
fn what_is_configured_holds_for_the_next_packet() {
    in_private_network("what_is_configured_holds_for_the_next_packet", || {
        for early_demux in [true, false] {
            let config = LabConfig {
                early_demux,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            for addresses in Family::both() {
                let Family {
                    own, own1, right, ..
                } = addresses;
                let answers = |to| ping(&lab.left, to, Ping::default());
                let is_silent = |to| !ping(&lab.left, to, Ping::in_vain());

                assert!(answers(right));
                lab.set(addresses.forwarding, 0);
                assert!(is_silent(right), "forwarding is off");
                assert!(answers(own), "but not listening");
                lab.set(addresses.forwarding, 1);
                assert!(answers(right));

                let put_back = delete_route(&lab.stack, addresses.right_prefix);
                assert!(is_silent(right), "there is no route");
                put_back();
                assert!(answers(right));

                let prefix_len = if own.is_ipv4() { 24 } else { 64 };
                let stack = lab.stack.inner();
                let tun1 = stack.interface_named("tun1").expect("tun1").index;
                stack
                    .remove_address(tun1, own1, prefix_len)
                    .expect("an address");
                assert!(is_silent(own1), "that address is gone");
                assert!(is_silent(right), "and with it the route");
                stack
                    .add_address(tun1, own1, prefix_len)
                    .expect("a new address");
                assert!(answers(own1) && answers(right));

                stack.set_interface_up(tun1, false).expect("tun1");
                assert!(is_silent(right), "the link is down");
                stack.set_interface_up(tun1, true).expect("tun1");
                assert!(answers(right));
            }
        }
    });
}

/// Everything that can be changed is changed all the time, while packets come from both sides.
#[test]
fn changes_under_full_load_lose_no_buffer() {
    in_private_network("changes_under_full_load_lose_no_buffer", || {
        let Some(lab) = Lab::start(LabConfig::default()) else {
            return;
        };
        let pool = lab.stack.inner().pool().clone();
        touch(&pool);
        let [v4, v6] = Family::both();
        let streams = [
            stream(&lab.left, &lab.right, v4.right),
            stream(&lab.left, &lab.right, v6.right),
            stream(&lab.right, &lab.left, v4.left),
            stream(&lab.right, &lab.left, v6.left),
        ];
        let stop = AtomicBool::new(false);
        let before = resident_bytes();
        let rounds = thread::scope(|scope| {
            for (source, _) in &streams {
                scope.spawn(|| flood(source, 1_400, &stop));
            }
            let changers = [
                scope.spawn(|| until(&stop, || change_knobs(&lab))),
                scope.spawn(|| until(&stop, || change_routes(&lab))),
                scope.spawn(|| until(&stop, || change_addresses(&lab))),
                scope.spawn(|| until(&stop, || change_sockets(&lab))),
            ];
            thread::sleep(soak_time() / 3);
            stop.store(true, Ordering::Relaxed);
            changers.map(|changer| changer.join().expect("a changer"))
        });
        let growth = resident_bytes().saturating_sub(before);
        eprintln!("{rounds:?} rounds of changes, {growth} bytes more");
        assert!(growth < 8 << 20, "grew by {growth} bytes");
        // What still waits in the kernels' queues must not crowd out what is asked now.
        thread::sleep(SILENCE);
        for Family { right, .. } in [v4, v6] {
            assert!(ping(&lab.left, right, Ping::default()));
        }
        drop(streams);
        let (_, _, stack) = lab.stop();
        drop(stack);
        assert_eq!(pool.in_use(), 0);
    });
}

fn until(stop: &AtomicBool, mut round: impl FnMut()) -> usize {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        round();
        rounds += 1;
    }
    rounds
}

/// Ends where it began, as the others do.
fn change_knobs(lab: &Lab) {
    for value in [0, 1] {
        for knob in [
            "net.ipv4.ip_forward",
            "net.ipv6.conf.all.forwarding",
            "net.ipv4.ip_early_demux",
            "net.ipv4.udp_early_demux",
        ] {
            lab.set(knob, value);
        }
    }
    for value in [1, 0] {
        lab.set("net.ipv4.conf.all.rp_filter", value);
    }
}

/// Sends what is for the right host back to the left.
fn change_routes(lab: &Lab) {
    for Family { left, right, .. } in Family::both() {
        let prefix = format!("{right}/{}", if right.is_ipv4() { 32 } else { 128 });
        add_route(&lab.stack, &prefix, left);
        drop(delete_route(&lab.stack, &prefix));
    }
}

fn change_addresses(lab: &Lab) {
    let stack = lab.stack.inner();
    let tun1 = stack.interface_named("tun1").expect("tun1").index;
    for Family { own1, .. } in Family::both() {
        let prefix_len = if own1.is_ipv4() { 24 } else { 64 };
        stack
            .remove_address(tun1, own1, prefix_len)
            .expect("an address");
        stack
            .add_address(tun1, own1, prefix_len)
            .expect("a new address");
    }
    stack.set_interface_up(tun1, false).expect("tun1");
    stack.set_interface_up(tun1, true).expect("tun1");
}

fn change_sockets(lab: &Lab) {
    for Family { left, own, .. } in Family::both() {
        let socket = forebay::UdpSocket::bind(&lab.stack, (own, 7_000)).expect("bind");
        for port in 7_000..7_010 {
            socket.connect((left, port)).expect("connect");
            // Nobody was at the port before, which may be known by now.
            let _ = socket.send(b"there");
        }
        socket.disconnect().expect("disconnect");
    }
}
