//! The kernel pings: Forebay itself, and through it another kernel.

use std::time::Duration;

use forebay_tests::kernel::{
    Family, Lab, LabConfig, Ping, SILENCE, delete_route, in_private_network, ping,
};

#[test]
fn echoes_come_back_whole() {
    in_private_network("echoes_come_back_whole", || {
        for offload in [true, false] {
            let config = LabConfig {
                offload,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            for addresses in Family::both() {
                for to in [addresses.own, addresses.own1, addresses.right] {
                    for size in [0, 56, 1_472, 3_000, 20_000, 65_507] {
                        let came_back = ping(
                            &lab.left,
                            to,
                            Ping {
                                size,
                                ..Ping::default()
                            },
                        );
                        let drops: Vec<_> = lab
                            .stack
                            .inner()
                            .counters()
                            .drops()
                            .filter(|(_, count)| *count > 0)
                            .collect();
                        assert!(came_back, "{to}, {size} bytes; drops {drops:?}");
                    }
                }
            }
        }
    });
}

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
                let reaches = |to, patience: Duration| {
                    ping(
                        &lab.left,
                        to,
                        Ping {
                            patience,
                            ..Ping::default()
                        },
                    )
                };
                let answers = |to| reaches(to, Ping::default().patience);
                let is_silent = |to| !reaches(to, SILENCE);

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
