use core::net::IpAddr;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::tcp::time_wait::{Ended, OldClock, TIME_WAIT_LEN};
use crate::wire::protocol;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp::{FLAG_ACK, FLAG_RST, FLAG_SYN};

const RULES: Rules = Rules {
    rfc1337: false,
    invalid_ratelimit: Duration::from_millis(500),
};

fn id(slot: u32) -> SocketId {
    let generation = NonZeroU32::new(slot + 1).expect("not zero");
    SocketId { slot, generation }
}

fn flow(is_ipv6: bool, nth: u16) -> Flow {
    let (local, remote): (IpAddr, IpAddr) = match is_ipv6 {
        true => (
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
        ),
        false => ([192, 0, 2, 1].into(), [198, 51, 100, 1].into()),
    };
    Flow::new(protocol::TCP, (local, 80), (remote, nth))
}

fn secs(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn ended() -> TimeWait {
    let mut entry = TimeWait::new(Ended::TimeWait, Seq(1_000), Seq(u32::MAX), 65_535);
    entry.clock = Some(OldClock {
        recent: 7,
        recent_at: 100,
        offset: 0,
    });
    entry
}

fn seen(flags: u8, seq: u32, len: u32) -> Seen {
    let start = Seq(seq);
    let range = SeqRange {
        start,
        end: start + len,
    };
    Seen {
        range,
        flags,
        timestamp: None,
    }
}

fn time_wait(connections: &Connections, flow: &Flow) -> TimeWaitRef {
    let found = match connections.lookup(flow, 1) {
        Some(Found::TimeWait(found)) => Some(found),
        _ => None,
    };
    found.expect("in time-wait")
}

#[test]
fn a_flow_is_one_socket_s() {
    for is_ipv6 in [false, true] {
        let connections = Connections::new(Key([1, 2]));
        let flow = flow(is_ipv6, 1);
        assert_eq!(connections.insert(&flow, 0, id(3)), Ok(()));
        assert_eq!(connections.insert(&flow, 0, id(4)), Err(InUse));
        assert_eq!(connections.lookup(&flow, 1), Some(Found::Socket(id(3))));
        assert!(!connections.remove(id(4)));
        assert!(connections.remove(id(3)));
        assert!(!connections.remove(id(3)));
        assert_eq!(connections.lookup(&flow, 1), None);
        assert_eq!(connections.insert(&flow, 0, id(4)), Ok(()));
        assert!(connections.early_key().is_enabled());
        assert!(connections.remove(id(4)));
        assert!(!connections.early_key().is_enabled());
    }
}

#[test]
fn interfaces_keep_flows_apart() {
    let connections = Connections::new(Key([1, 2]));
    let flow = flow(false, 1);
    let hash = connections.hash(&flow);
    assert_eq!(connections.insert(&flow, 5, id(1)), Ok(()));
    assert_eq!(connections.insert(&flow, 5, id(2)), Err(InUse));
    assert_eq!(connections.insert(&flow, 0, id(2)), Ok(()));
    for (iif, expected) in [(5, id(1)), (6, id(2))] {
        let found = connections.find(&flow, hash, iif).map(|hit| hit.id);
        assert_eq!(found, Some(expected), "{iif}");
        assert_eq!(
            connections.lookup(&flow, iif),
            Some(Found::Socket(expected))
        );
    }
    // What is bound to no interface is everywhere.
    assert_eq!(connections.insert(&flow, 6, id(3)), Err(InUse));
}

#[test]
fn a_connection_leaves_its_place_to_its_time_wait() {
    let connections = Connections::new(Key([1, 2]));
    let flow = flow(true, 1);
    let hash = connections.hash(&flow);
    assert!(!connections.to_time_wait(id(3), &ended(), secs(160), 10));
    connections.insert(&flow, 0, id(3)).expect("free");
    // No room: nothing changes.
    assert!(!connections.to_time_wait(id(3), &ended(), secs(160), 0));
    assert_eq!(connections.lookup(&flow, 1), Some(Found::Socket(id(3))));
    assert!(connections.to_time_wait(id(3), &ended(), secs(160), 10));
    assert!(!connections.early_key().is_enabled());
    assert_eq!(connections.time_waits(), 1);

    // The early look passes it over; the flow is taken.
    assert!(connections.find(&flow, hash, 1).is_none());
    let line = connections.prefetch(hash, connections.buckets());
    let line = line.expect("a bucket");
    assert!(connections.candidate(line, hash).is_none());
    assert_eq!(connections.insert(&flow, 0, id(4)), Err(InUse));
    let found = time_wait(&connections, &flow);
    let ack = seen(FLAG_ACK, 999, 0);
    let judged = connections.judge(found, &flow, &ack, RULES, secs(150));
    let judged = judged.expect("there");
    assert_eq!(judged.outcome.verdict, Verdict::Ack);
    assert_eq!(judged.entry.snd_nxt, Seq(u32::MAX));

    // It began anew.
    let mut gone = Vec::new();
    connections.expire(secs(170), |flow, _| gone.push(*flow));
    assert!(gone.is_empty());
    connections.expire(secs(211), |flow, _| gone.push(*flow));
    assert_eq!(gone, [flow]);
    assert_eq!(connections.lookup(&flow, 1), None);
    assert!(
        connections
            .judge(found, &flow, &ack, RULES, secs(211))
            .is_none()
    );
    assert_eq!(connections.insert(&flow, 0, id(4)), Ok(()));
}

#[test]
fn who_begins_anew_ends_a_time_wait() {
    for (segment, expected) in [
        (seen(FLAG_RST, 1_000, 0), Verdict::End),
        (
            seen(FLAG_SYN, 2_000, 1),
            Verdict::NewConnection {
                min_iss: Seq(65_536),
            },
        ),
    ] {
        let connections = Connections::new(Key([1, 2]));
        let flow = flow(false, 1);
        connections.insert(&flow, 0, id(3)).expect("free");
        assert!(connections.to_time_wait(id(3), &ended(), secs(160), 10));
        let found = time_wait(&connections, &flow);
        let judged = connections.judge(found, &flow, &segment, RULES, secs(110));
        assert_eq!(judged.expect("there").outcome.verdict, expected);
        assert_eq!(
            (connections.lookup(&flow, 1), connections.time_waits()),
            (None, 0)
        );
        assert!(
            connections
                .judge(found, &flow, &segment, RULES, secs(110))
                .is_none()
        );
    }
}

#[test]
fn connect_may_use_what_is_in_time_wait() {
    let connections = Connections::new(Key([1, 2]));
    let flow = flow(false, 1);
    connections.insert(&flow, 0, id(3)).expect("free");
    assert!(connections.to_time_wait(id(3), &ended(), secs(160), 10));
    let reuse = |now, may| {
        let freed = connections.insert_reusing(&flow, 0, id(4), secs(now), may);
        freed.map(|freed| freed.map(|freed| freed.inheritance))
    };
    assert_eq!(reuse(110, false), Err(InUse));
    // In the second of the last timestamp nobody can tell the new from the old.
    assert_eq!(reuse(100, true), Err(InUse));
    let inherited = Inheritance {
        min_iss: Seq(65_536),
        recent: Some((7, 100)),
    };
    assert_eq!(reuse(101, true), Ok(Some(inherited)));
    assert_eq!(connections.time_waits(), 0);
    assert_eq!(connections.lookup(&flow, 1), Some(Found::Socket(id(4))));
}

#[test]
fn a_socket_moves_and_leaves_nothing_behind() {
    let connections = Connections::new(Key([1, 2]));
    for nth in 0..100 {
        connections
            .insert(&flow(false, nth), 7, id(0))
            .expect("free");
        assert_eq!(
            connections.lookup(&flow(false, nth), 7),
            Some(Found::Socket(id(0)))
        );
        assert!(connections.remove(id(0)));
        assert_eq!(connections.lookup(&flow(false, nth), 7), None);
    }
    assert!(!connections.device_key.is_enabled());
}

/// What stays is found all the time, whoever else comes, goes and ends; and of many that want one
/// flow one gets it.
#[test]
fn threads_come_and_go() {
    let connections = Connections::new(Key([1, 2]));
    for nth in 0..50 {
        connections
            .insert(&flow(false, nth), 0, id(u32::from(nth)))
            .expect("free");
    }
    let won = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 1..4_u16 {
            let (connections, won) = (&connections, &won);
            scope.spawn(move || {
                for nth in 0..400 {
                    let socket = id(u32::from(thread * 1_000 + nth));
                    let own = flow(true, thread * 1_000 + nth);
                    connections.insert(&own, 0, socket).expect("free");
                    let contested = flow(false, 5_000 + nth);
                    let rival = id(u32::from(thread * 1_000 + 500 + nth));
                    if connections.insert(&contested, 0, rival).is_ok() {
                        won.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
                    }
                    assert_eq!(connections.lookup(&own, 1), Some(Found::Socket(socket)));
                    if nth % 2 == 0 {
                        assert!(connections.to_time_wait(socket, &ended(), secs(160), 10_000));
                        time_wait(connections, &own);
                    } else {
                        assert!(connections.remove(socket));
                        assert_eq!(connections.lookup(&own, 1), None);
                    }
                    let stays = nth % 50;
                    let found = connections.lookup(&flow(false, stays), 1);
                    assert_eq!(found, Some(Found::Socket(id(u32::from(stays)))));
                    if nth % 100 == 0 {
                        connections.expire(secs(161), |_, _| {});
                    }
                }
            });
        }
    });
    // What was added late, too.
    connections.expire(secs(162), |_, _| {});
    assert_eq!((connections.time_waits(), won.into_inner()), (0, 400));
}

#[derive(Debug, Clone)]
enum Step {
    Insert { socket: u32, nth: u16 },
    Remove { socket: u32 },
    End { socket: u32 },
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..40_u32, 0..60_u16).prop_map(|(socket, nth)| Step::Insert { socket, nth }),
        2 => (0..40_u32).prop_map(|socket| Step::Remove { socket }),
        2 => (0..40_u32).prop_map(|socket| Step::End { socket }),
        1 => Just(Step::Expire),
    ]
}

proptest! {
    #[test]
    fn equals_a_plain_map(steps in prop::collection::vec(step(), 1..200)) {
        let connections = Connections::new(Key([3, 4]));
        let mut sockets: HashMap<u32, u16> = HashMap::new();
        let mut ends: HashMap<u16, u64> = HashMap::new();
        let mut now = 0;
        for step in steps {
            now += 7;
            match step {
                Step::Insert { socket, nth } => {
                    if sockets.contains_key(&socket) {
                        continue;
                    }
                    let is_free = !ends.contains_key(&nth) && sockets.values().all(|it| *it != nth);
                    let flow = flow(nth % 2 == 0, nth);
                    prop_assert_eq!(connections.insert(&flow, 0, id(socket)).is_ok(), is_free);
                    if is_free {
                        sockets.insert(socket, nth);
                    }
                }
                Step::Remove { socket } => {
                    prop_assert_eq!(connections.remove(id(socket)), sockets.remove(&socket).is_some());
                }
                Step::End { socket } => {
                    let until = secs(now) + TIME_WAIT_LEN;
                    let has_room = ends.len() < 20;
                    let ended = connections.to_time_wait(id(socket), &ended(), until, 20);
                    prop_assert_eq!(ended, has_room && sockets.contains_key(&socket));
                    if ended {
                        ends.insert(sockets.remove(&socket).expect("there"), now + 60);
                    }
                }
                Step::Expire => {
                    connections.expire(secs(now) + Duration::from_millis(250), |_, _| {});
                    ends.retain(|_, until| *until > now);
                }
            }
            for nth in 0..60 {
                let socket = sockets.iter().find(|(_, it)| **it == nth);
                let found = connections.lookup(&flow(nth % 2 == 0, nth), 1);
                match (socket, ends.contains_key(&nth)) {
                    (Some((socket, _)), false) => {
                        prop_assert_eq!(found, Some(Found::Socket(id(*socket))));
                    }
                    (None, true) => prop_assert!(matches!(found, Some(Found::TimeWait(_)))),
                    (None, false) => prop_assert_eq!(found, None),
                    (Some(_), true) => unreachable!("one has the flow"),
                }
            }
        }
    }
}
