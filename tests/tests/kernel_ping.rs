//! The kernel pings: Forebay itself, and through it another kernel.

use forebay_tests::kernel::{Family, Lab, LabConfig, Ping, in_private_network, ping};

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
                        let came_back = ping(&lab.left, to, Ping::of(size));
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
