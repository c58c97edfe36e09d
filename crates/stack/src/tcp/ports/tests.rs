use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn claim(addr: &str, port: u16) -> PortClaim {
    let addr: IpAddr = addr.parse().expect("an address");
    PortClaim {
        addr,
        port,
        device: 0,
        dual_stack: addr.is_ipv6() && addr.is_unspecified(),
        reuse_addr: false,
        reuse_port: false,
    }
}

fn shared(addr: &str) -> PortClaim {
    PortClaim {
        reuse_addr: true,
        ..claim(addr, 80)
    }
}

fn ports() -> Ports {
    Ports::new(Key([1, 2]))
}

#[test]
fn a_port_is_taken_where_addresses_overlap() {
    let only_ipv6 = PortClaim {
        dual_stack: false,
        ..claim("::", 80)
    };
    let on_device = |device| PortClaim {
        device,
        ..claim("0.0.0.0", 80)
    };
    let cases = [
        (claim("192.0.2.1", 80), claim("192.0.2.1", 80), false),
        (claim("192.0.2.1", 80), claim("192.0.2.1", 81), true),
        (claim("192.0.2.1", 80), claim("192.0.2.2", 80), true),
        (claim("192.0.2.1", 80), claim("0.0.0.0", 80), false),
        (claim("192.0.2.1", 80), claim("::", 80), false),
        (claim("192.0.2.1", 80), only_ipv6, true),
        (claim("192.0.2.1", 80), claim("2001:db8::1", 80), true),
        (claim("2001:db8::1", 80), claim("::", 80), false),
        (claim("2001:db8::1", 80), only_ipv6, false),
        (claim("0.0.0.0", 80), only_ipv6, true),
        (claim("0.0.0.0", 80), claim("::", 80), false),
        (on_device(1), on_device(2), true),
        (on_device(1), on_device(1), false),
        (on_device(1), on_device(0), false),
    ];
    for (a, b, fits) in cases {
        for (first, second) in [(a, b), (b, a)] {
            let ports = ports();
            assert_eq!(ports.bind(&first), Ok(()));
            assert_eq!(ports.bind(&second).is_ok(), fits, "{first:?} {second:?}");
            ports.release(&first, PortUse::Bound);
            if !fits {
                assert_eq!(ports.bind(&second), Ok(()));
            }
        }
    }
}

#[test]
fn who_reuses_an_address_shares_it_until_somebody_listens() {
    let ports = ports();
    let server = shared("0.0.0.0");
    assert_eq!(ports.bind(&server), Ok(()));
    assert_eq!(ports.bind(&server), Ok(()));
    assert_eq!(ports.listen(&server), Ok(()));
    assert_eq!(ports.listen(&server), Err(InUse));
    assert_eq!(ports.bind(&server), Err(InUse));

    // The server starts anew while connections of its last run are there, or in time-wait.
    ports.inherit(&shared("192.0.2.1"));
    ports.release(&server, PortUse::Listening);
    assert_eq!(ports.bind(&claim("0.0.0.0", 80)), Err(InUse));
    assert_eq!(ports.listen(&server), Ok(()));
    ports.release(&shared("192.0.2.1"), PortUse::Bound);
}

#[test]
fn a_group_shares_all_of_it() {
    let ports = ports();
    let member = PortClaim {
        reuse_port: true,
        ..claim("::", 80)
    };
    for _ in 0..3 {
        assert_eq!(ports.bind(&member), Ok(()));
        assert_eq!(ports.listen(&member), Ok(()));
    }
    assert_eq!(ports.bind(&claim("192.0.2.1", 80)), Err(InUse));
    assert_eq!(ports.bind(&shared("192.0.2.1")), Err(InUse));
}

#[test]
fn options_may_change_and_addresses_become_known() {
    let ports = ports();
    let (before, after) = (claim("0.0.0.0", 80), shared("192.0.2.1"));
    assert_eq!(ports.bind(&before), Ok(()));
    ports.move_to(&before, &after, PortUse::Bound);
    assert_eq!(ports.bind(&claim("192.0.2.2", 80)), Ok(()));
    assert_eq!(ports.bind(&shared("192.0.2.1")), Ok(()));
}

#[test]
fn searches_see_every_port_once() {
    for (range, count) in [
        ((7, 7), 1),
        ((7, 8), 2),
        ((7, 9), 3),
        ((1, 10), 10),
        ((0, u16::MAX), 65_536),
    ] {
        for start in [0, 1, 5, 1 << 31, u32::MAX] {
            for parity in [0, 1] {
                let found: Vec<u16> = search(range, start, parity).map(|(port, _)| port).collect();
                let all: HashSet<u16> = found.iter().copied().collect();
                assert_eq!((found.len(), all.len()), (count, count), "{range:?}");
                assert!(all.iter().all(|port| (range.0..=range.1).contains(port)));
                if count > 1 {
                    let wanted = u32::from(found[0] - range.0) % 2;
                    assert_eq!(wanted, parity);
                }
            }
        }
    }
}

#[test]
fn sockets_without_a_port_get_one_of_their_own() {
    let ports = ports();
    let range = (32_768, 32_787);
    let mut found = HashSet::new();
    for nth in 0..20 {
        let port = ports
            .bind_ephemeral(&shared("0.0.0.0"), range)
            .expect("free");
        assert!(found.insert(port));
        // `connect` has the others for as long as there are any.
        assert_eq!(port % 2 == 1, nth < 10);
    }
    assert_eq!(
        ports.bind_ephemeral(&claim("0.0.0.0", 0), range),
        Err(InUse)
    );
}

#[test]
fn connections_share_ports_if_their_peers_differ() {
    let ports = ports();
    let range = (32_768, 32_777);
    let own = claim("192.0.2.1", 0);
    let peers = [1, 2].map(|last| (IpAddr::from([198, 51, 100, last]), 80));
    let mut entered = HashSet::new();
    ports.bind(&claim("192.0.2.9", 32_769)).expect("free");
    for peer in peers {
        for _ in 0..9 {
            let chosen = ports.connect(&own, peer, range, |port| entered.insert((peer, port)));
            assert_ne!(chosen.expect("free"), 32_769);
        }
        assert_eq!(
            ports.connect(&own, peer, range, |port| entered.insert((peer, port))),
            Err(InUse)
        );
    }
    // A port is bound to no sooner than its last connection is gone.
    let port = claim("192.0.2.1", 32_770);
    assert_eq!(ports.bind(&port), Err(InUse));
    ports.release(&port, PortUse::Chosen);
    assert_eq!(ports.bind(&port), Err(InUse));
    ports.release(&port, PortUse::Chosen);
    assert_eq!(ports.bind(&port), Ok(()));
}

#[test]
fn ports_come_back_late_and_differ_between_peers() {
    let ports = ports();
    let own = claim("192.0.2.1", 0);
    let range = (32_768, 60_999);
    let mut firsts = HashSet::new();
    for last in 0..50 {
        let peer = (IpAddr::from([198, 51, 100, last]), 80);
        let mut found = HashSet::new();
        for nth in 0..100 {
            let port = ports.connect(&own, peer, range, |_| true).expect("free");
            assert!(port.is_multiple_of(2) && found.insert(port));
            if nth == 0 {
                firsts.insert(port);
            }
            ports.release(&PortClaim { port, ..own }, PortUse::Chosen);
        }
    }
    assert!(firsts.len() > 45);
    let left = ports
        .shards
        .iter()
        .map(|shard| shard.lock().rows.len())
        .sum::<usize>();
    assert_eq!(left, 0);
}

#[derive(Debug, Clone)]
enum Step {
    Bind(PortClaim),
    Listen(usize),
    Release(usize),
}

fn a_claim() -> impl Strategy<Value = PortClaim> {
    let addr = prop::sample::select(vec![
        "0.0.0.0",
        "::",
        "192.0.2.1",
        "192.0.2.2",
        "2001:db8::1",
    ]);
    (addr, 0..3_u32, any::<[bool; 3]>()).prop_map(
        |(addr, device, [reuse_addr, reuse_port, only])| {
            let claim = claim(addr, 80);
            PortClaim {
                device,
                dual_stack: claim.dual_stack && !only,
                reuse_addr,
                reuse_port,
                ..claim
            }
        },
    )
}

/// Linux's rule, socket by socket.
fn conflict(a: &PortClaim, b: &(PortClaim, PortUse)) -> bool {
    let (b, b_is) = b;
    let same_family = a.addr.is_ipv4() == b.addr.is_ipv4();
    let overlap = match same_family {
        true => a.addr == b.addr || a.addr.is_unspecified() || b.addr.is_unspecified(),
        false => {
            a.dual_stack && (b.addr.is_ipv4() || b.dual_stack) || b.dual_stack && a.addr.is_ipv4()
        }
    };
    let devices = a.device == 0 || b.device == 0 || a.device == b.device;
    let share =
        a.reuse_addr && b.reuse_addr && *b_is != PortUse::Listening || a.reuse_port && b.reuse_port;
    overlap && devices && !share
}

proptest! {
    #[test]
    fn equals_a_plain_list(steps in prop::collection::vec(prop_oneof![
        4 => a_claim().prop_map(Step::Bind),
        1 => any::<prop::sample::Index>().prop_map(|nth| Step::Listen(nth.index(1_000))),
        2 => any::<prop::sample::Index>().prop_map(|nth| Step::Release(nth.index(1_000))),
    ], 1..60)) {
        let ports = ports();
        let mut model: Vec<(PortClaim, PortUse)> = Vec::new();
        for step in steps {
            match step {
                Step::Bind(claim) => {
                    let fits = !model.iter().any(|other| conflict(&claim, other));
                    prop_assert_eq!(ports.bind(&claim).is_ok(), fits, "{:?}", claim);
                    if fits {
                        model.push((claim, PortUse::Bound));
                    }
                }
                Step::Listen(nth) if !model.is_empty() => {
                    let nth = nth % model.len();
                    let (claim, is) = model[nth];
                    if is == PortUse::Listening {
                        continue;
                    }
                    let mut others = model.iter().enumerate().filter(|(at, _)| *at != nth);
                    let fits = !others.any(|(_, other)| conflict(&claim, other));
                    prop_assert_eq!(ports.listen(&claim).is_ok(), fits);
                    if fits {
                        model[nth].1 = PortUse::Listening;
                    }
                }
                Step::Release(nth) if !model.is_empty() => {
                    let (claim, is) = model.swap_remove(nth % model.len());
                    ports.release(&claim, is);
                }
                _ => {}
            }
        }
        for (claim, is) in model {
            ports.release(&claim, is);
        }
        prop_assert!(ports.shards.iter().all(|shard| shard.lock().rows.is_empty() && shard.lock().totals.is_empty()));
    }
}
