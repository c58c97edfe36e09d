//! Who may bind beside whom, and who gets what.

use core::num::NonZeroU32;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const V4_ANY: &str = "0.0.0.0";
const V6_ANY: &str = "::";

fn id(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: NonZeroU32::MIN,
    }
}

fn binding(addr: &str, port: u16, how: &str) -> Binding {
    let options = Options::default();
    let addr: IpAddr = addr.parse().expect("an address");
    options.set(Flag::Inet6, addr.is_ipv6());
    options.set(Flag::V6Only, how.contains("v6only"));
    let device = how
        .split("dev")
        .nth(1)
        .map_or(0, |rest| rest[..1].parse().expect("an index"));
    let class = Class {
        device,
        share: how.contains("share"),
        group: how.contains("group"),
    };
    Binding::new(addr, port, class, &options)
}

#[test]
fn of_a_group_the_chosen_member_is_found_or_the_next_that_is_right() {
    let bound = Bound::new(Key([1, 2]), &Domain::new());
    let grouped = binding("10.0.0.1", 53, "group");
    for slot in 1..=4 {
        bound.bind(&grouped, id(slot)).expect("a member");
    }
    // Bound to every address, they are in another row.
    bound
        .bind(&binding(V4_ANY, 53, "group"), id(9))
        .expect("a member of another group");
    let find = |wrong: &[u32], chosen: usize| {
        let score = |listener: &Listener| (!wrong.contains(&listener.id.slot)).then_some(0);
        let choose = |count| {
            assert!(chosen < count);
            chosen
        };
        let addr = "10.0.0.1".parse().expect("an address");
        bound
            .find(addr, 53, score, |_, count| choose(count))
            .map(|best| best.id.slot)
    };
    for chosen in 0..4 {
        assert_eq!(find(&[], chosen), Some(chosen as u32 + 1));
    }
    assert_eq!(find(&[2, 3], 1), Some(4));
    assert_eq!(find(&[4, 1], 3), Some(2));
    bound.remove(&grouped, id(2), false);
    assert_eq!(
        (0..3).map(|at| find(&[], at)).collect::<Vec<_>>(),
        [Some(1), Some(3), Some(4)]
    );
    for slot in [1, 3, 4] {
        bound.remove(&grouped, id(slot), false);
    }
    let alone = bound.find(
        "10.0.0.1".parse().expect("an address"),
        53,
        |_| Some(0),
        |_, _| 9,
    );
    assert_eq!(
        alone.map(|best| (best.id, best.is_member)),
        Some((id(9), false))
    );
}

#[test]
fn conflicts_are_those_of_linux() {
    let cases = [
        ((V4_ANY, ""), (V4_ANY, ""), false),
        ((V4_ANY, ""), ("10.0.0.1", ""), false),
        (("10.0.0.1", ""), (V4_ANY, ""), false),
        (("10.0.0.1", ""), ("10.0.0.2", ""), true),
        (("10.0.0.1", "share"), ("10.0.0.1", "share"), true),
        (("10.0.0.1", "share"), ("10.0.0.1", ""), false),
        (("10.0.0.1", ""), (V4_ANY, "share"), false),
        (("10.0.0.1", "group"), ("10.0.0.1", "group"), true),
        (("10.0.0.1", "group"), (V4_ANY, "group"), true),
        (("10.0.0.1", "group"), ("10.0.0.1", "share"), false),
        (("10.0.0.1", "group share"), ("10.0.0.1", "share"), true),
        (("10.0.0.1", "group"), ("10.0.0.1", ""), false),
        ((V4_ANY, "dev2"), (V4_ANY, "dev3"), true),
        ((V4_ANY, "dev2"), (V4_ANY, "dev2"), false),
        ((V4_ANY, "dev2"), (V4_ANY, ""), false),
        ((V6_ANY, ""), (V4_ANY, ""), false),
        ((V6_ANY, ""), ("10.0.0.1", ""), false),
        (("10.0.0.1", ""), (V6_ANY, ""), false),
        ((V6_ANY, "v6only"), (V4_ANY, ""), true),
        (("::ffff:10.0.0.1", ""), ("10.0.0.1", ""), false),
        (("fd00::1", ""), (V4_ANY, ""), true),
        (("fd00::1", ""), (V6_ANY, "v6only"), false),
        (("fd00::1", ""), ("fd00::2", ""), true),
    ];
    for ((first, first_how), (second, second_how), allowed) in cases {
        let bound = Bound::new(Key([1, 2]), &Domain::new());
        bound
            .bind(&binding(first, 53, first_how), id(1))
            .expect("the first one");
        let result = bound.bind(&binding(second, 53, second_how), id(2));
        assert_eq!(
            result.is_ok(),
            allowed,
            "{first} {first_how} and {second} {second_how}"
        );
        bound
            .bind(&binding(second, 54, second_how), id(3))
            .expect("another port");
        bound.remove(&binding(first, 53, first_how), id(1), false);
        if !allowed {
            bound
                .bind(&binding(second, 53, second_how), id(2))
                .expect("the first one has gone");
        }
    }
}

#[test]
fn the_more_specific_row_wins_then_the_score_then_the_last_bound() {
    let bound = Bound::new(Key([1, 2]), &Domain::new());
    bound
        .bind(&binding(V4_ANY, 53, "share"), id(1))
        .expect("wildcard");
    bound
        .bind(&binding("10.0.0.1", 53, "share"), id(2))
        .expect("specific");
    bound
        .bind(&binding("10.0.0.1", 53, "share"), id(3))
        .expect("the same again");
    bound.add(&binding(V4_ANY, 0, ""), id(4), false);
    let find = |addr: &str, port, score: fn(&Listener) -> Option<u32>| {
        bound
            .find(addr.parse().expect("an address"), port, score, |_, _| 0)
            .map(|best| best.id.slot)
    };
    assert_eq!(find("10.0.0.1", 53, |_| Some(0)), Some(3));
    assert_eq!(
        find("10.0.0.1", 53, |listener| Some(9 - listener.id.slot)),
        Some(2)
    );
    assert_eq!(
        find("10.0.0.1", 53, |listener| (listener.id.slot < 2)
            .then_some(0)),
        Some(1)
    );
    assert_eq!(find("10.0.0.2", 53, |_| Some(0)), Some(1));
    assert_eq!(find("10.0.0.2", 54, |_| Some(0)), Some(4));
    assert_eq!(find("10.0.0.2", 54, |_| None), None);
}

#[test]
fn a_dual_stack_socket_stands_under_both_wildcards() {
    let bound = Bound::new(Key([1, 2]), &Domain::new());
    bound.bind(&binding(V6_ANY, 53, ""), id(1)).expect("free");
    bound
        .bind(&binding(V6_ANY, 54, "v6only"), id(2))
        .expect("free");
    let find = |addr: &str, port| {
        let addr = addr.parse().expect("an address");
        let best = bound.find(addr, port, |_| Some(0), |_, _| 0);
        best.map(|best| best.id)
    };
    assert_eq!(find("10.0.0.1", 53), Some(id(1)));
    assert_eq!(find("fd00::1", 53), Some(id(1)));
    assert_eq!(find("10.0.0.1", 54), None);
    assert_eq!(find("fd00::1", 54), Some(id(2)));
}

#[test]
fn a_connected_socket_is_out_of_sight_but_keeps_its_port() {
    let bound = Bound::new(Key([1, 2]), &Domain::new());
    let own = binding("10.0.0.1", 53, "");
    bound.bind(&own, id(1)).expect("free");
    bound.add(&own, id(1), true);
    bound.remove(&own, id(1), false);
    assert_eq!(bound.find(own.addr, 53, |_| Some(0), |_, _| 0), None);
    assert_eq!(bound.bind(&binding(V4_ANY, 53, ""), id(2)), Err(InUse));
    assert_eq!(bound.bind(&own, id(2)), Err(InUse));
    bound.remove(&own, id(1), true);
    bound.bind(&own, id(2)).expect("free again");
}

#[test]
fn ephemeral_ports_are_used_up_one_after_the_other_from_the_start_on() {
    let bound = Bound::new(Key([1, 2]), &Domain::new());
    let anywhere = binding(V4_ANY, 0, "share");
    let mut ports = Vec::new();
    for slot in 0..4 {
        let take = |found: &Binding| ports.push(found.port);
        bound
            .bind_ephemeral(&anywhere, id(slot), (65_532, 65_535), 6, take)
            .expect("a free port");
    }
    assert_eq!(ports, [65_534, 65_535, 65_532, 65_533]);
    let none = bound.bind_ephemeral(&anywhere, id(5), (65_532, 65_535), 6, |_| {});
    assert_eq!(none, Err(InUse), "a port that would be shared is not free");
    bound.remove(
        &Binding {
            port: 65_535,
            ..anywhere
        },
        id(1),
        false,
    );
    bound
        .bind_ephemeral(&anywhere, id(5), (65_532, 65_535), 0, |_| {})
        .expect("one is free");
}

/// An idle socket costs its slot, and here a row and a port, of which hash tables and vectors that
/// have just grown hold two and a quarter times as many as they need: 512 bytes in all.
#[test]
fn a_bound_socket_costs_little() {
    let row = size_of::<(Place, Row)>() + 1;
    let port = size_of::<(PortUse, u32)>();
    let slot = size_of::<crate::socket::Slot>();
    assert!(slot + (row + port) * 9 / 4 <= 512, "{slot} {row} {port}");
}

fn some_binding() -> impl Strategy<Value = Binding> {
    let addrs = prop::sample::select(vec![V4_ANY, V6_ANY, "10.0.0.1", "10.0.0.2", "fd00::1"]);
    let how = prop::sample::select(vec![
        "",
        "share",
        "dev2",
        "dev2 share",
        "v6only",
        "dev3 share",
    ]);
    (addrs, 1_u16..4, how).prop_map(|(addr, port, how)| binding(addr, port, how))
}

/// Whether the two overlap, said pair by pair.
fn naive_conflict(a: &Binding, b: &Binding) -> bool {
    let covers = |a: &Binding, addr: IpAddr| {
        a.addr == addr
            || a.addr.is_unspecified() && (a.addr.is_ipv4() == addr.is_ipv4() || a.dual_stack)
    };
    a.port == b.port
        && (covers(a, b.addr) || covers(b, a.addr) || a.dual_stack && b.addr.is_ipv4())
        && a.class.conflicts(b.class)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn binds_and_finds_as_a_list_does(steps in prop::collection::vec((some_binding(), 0_u32..4), 1..60)) {
        let domain = Domain::new();
        let bound = Bound::new(Key([3, 4]), &domain);
        // By socket: where it is, and whether it is connected.
        let mut model: BTreeMap<u32, (Binding, bool)> = BTreeMap::new();
        for (step, (binding, action)) in (0..).zip(steps) {
            match (action, model.iter().next().map(|(slot, state)| (*slot, *state))) {
                (0, Some((slot, (old, connected)))) => {
                    bound.remove(&old, id(slot), connected);
                    model.remove(&slot);
                }
                (1, Some((slot, (old, connected)))) => {
                    bound.add(&old, id(slot), !connected);
                    bound.remove(&old, id(slot), connected);
                    model.insert(slot, (old, !connected));
                }
                _ => {
                    let taken = model.values().any(|(other, _)| naive_conflict(&binding, other));
                    prop_assert_eq!(bound.bind(&binding, id(step)).is_err(), taken);
                    if !taken {
                        model.insert(step, (binding, false));
                    }
                }
            }
            let reader = domain.reader();
            let guard = reader.guard();
            for addr in ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", V4_ANY, V6_ANY] {
                let addr: IpAddr = addr.parse().expect("an address");
                for port in 1..4 {
                    let place = Place { addr, port };
                    let there: Vec<_> = model
                        .iter()
                        .filter(|(_, (binding, connected))| !connected && binding.places().any(|own| own == place))
                        .collect();
                    let plain = match there[..] {
                        [] => Who::Nobody,
                        [(slot, (binding, _))] if binding.class.device == 0 => Who::Alone(*slot),
                        _ => Who::Others,
                    };
                    prop_assert_eq!(bound.places(&guard).find(place.hash(Key([3, 4]))), plain);
                }
            }
            drop(guard);
            for addr in ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"] {
                let addr: IpAddr = addr.parse().expect("an address");
                for port in 1..4 {
                    let takes = |specific: bool| {
                        model.iter().any(|(_, (binding, connected))| {
                            let place = if specific { addr } else { wildcard(addr) };
                            !connected && binding.places().any(|own| own == Place { addr: place, port })
                        })
                    };
                    let found = bound.find(addr, port, |_| Some(0), |_, _| 0).map(|best| model[&best.id.slot].0);
                    prop_assert_eq!(found.is_some(), takes(true) || takes(false));
                    if let Some(found) = found {
                        prop_assert_eq!(found.addr == addr, takes(true));
                    }
                }
            }
        }
    }
}
