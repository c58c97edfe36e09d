use core::num::NonZeroU32;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::wire::protocol;

const RETRIES: u8 = 5;

fn listener(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: NonZeroU32::MIN,
    }
}

fn flow(nth: u16) -> Flow {
    let local = ([192, 0, 2, 1].into(), 80);
    Flow::new(protocol::TCP, local, ([198, 51, 100, 1].into(), nth))
}

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn request(of: SocketId, nth: u16, now: Instant) -> Request {
    Request {
        listener: of,
        irs: Seq(nth.into()),
        iss: Seq(u32::MAX),
        mss: 1460,
        window: 1,
        window_scale: Some(7),
        sack: true,
        ecn: false,
        timestamps: Some(5),
        offset: 6,
        retransmits: 0,
        own_window: 0,
        sent_at: Some(now),
        deadline: now + INITIAL_RTO,
        answered_invalid: None,
    }
}

#[test]
fn an_answer_is_sent_again_ever_less_often() {
    let requests = Requests::new(Key([1, 2]));
    let wanted = request(listener(3), 1, ms(0));
    assert!(requests.insert(&flow(1), &wanted, 10));
    assert!(!requests.insert(&flow(1), &wanted, 10));
    assert_eq!(requests.get(&flow(1)), Some(wanted));
    let mut log = Vec::new();
    while let Some(deadline) = requests.next_deadline() {
        requests.expire(deadline, RETRIES, |flow, request, expired| {
            assert_eq!((*flow, request.irs), (self::flow(1), Seq(1)));
            log.push((deadline.as_millis() / 1_000, expired));
        });
    }
    let again = |at| (at, Expired::Resend);
    let expected = [
        again(1),
        again(3),
        again(7),
        again(15),
        again(31),
        (63, Expired::GiveUp),
    ];
    assert_eq!(log, expected);
    assert_eq!(
        (requests.get(&flow(1)), requests.len(listener(3))),
        (None, 0)
    );
}

#[test]
fn stray_segments_are_answered_now_and_then() {
    let requests = Requests::new(Key([1, 2]));
    let wait = Duration::from_millis(500);
    assert!(!requests.may_answer(&flow(1), ms(0), wait));
    assert!(requests.insert(&flow(1), &request(listener(3), 1, ms(0)), 10));
    for (at, expected) in [
        (0, true),
        (0, false),
        (499, false),
        (500, true),
        (999, false),
        (1_000, true),
    ] {
        assert_eq!(requests.may_answer(&flow(1), ms(at), wait), expected);
    }
    assert!(requests.may_answer(&flow(1), ms(1_000), Duration::ZERO));
}

#[test]
fn a_backlog_bounds_them() {
    let requests = Requests::new(Key([1, 2]));
    let (a, b) = (listener(1), listener(700));
    for nth in 0..100 {
        let fits = requests.insert(&flow(nth), &request(a, nth, ms(0)), 64);
        assert_eq!(fits, nth < 64);
    }
    assert!(requests.insert(&flow(900), &request(b, 900, ms(0)), 64));
    assert_eq!((requests.len(a), requests.len(b)), (64, 1));
    assert!(requests.remove(&flow(5)).is_some() && requests.remove(&flow(5)).is_none());
    assert!(requests.insert(&flow(99), &request(a, 99, ms(0)), 64));
    requests.remove_all(a);
    assert_eq!((requests.len(a), requests.len(b)), (0, 1));
    assert_eq!(
        (requests.get(&flow(1)), requests.get(&flow(900)).is_some()),
        (None, true)
    );
}

/// Of a queue that is more than half full, old requests go early to make room for young ones.
#[test]
fn a_full_queue_is_patient_for_less_long() {
    let requests = Requests::new(Key([1, 2]));
    for nth in 0..16 {
        assert!(requests.insert(&flow(nth), &request(listener(1), nth, ms(0)), 16));
    }
    let count = |now| {
        let mut given_up = 0;
        requests.expire(ms(now), RETRIES, |_, _, expired| {
            given_up += usize::from(expired == Expired::GiveUp);
        });
        given_up
    };
    assert_eq!([1_000, 3_000].map(count), [0, 0]);
    // All are old: two tries are enough while it is more than half full.
    assert_eq!(count(7_000), 8);
    assert_eq!(requests.len(listener(1)), 8);
}

#[test]
fn memory_goes_after_a_flood() {
    let requests = Requests::new(Key([1, 2]));
    for nth in 0..u16::MAX {
        requests.insert(&flow(nth), &request(listener(1), nth, ms(0)), u32::MAX);
    }
    requests.remove_all(listener(1));
    let left: usize = requests
        .shards
        .iter()
        .map(|shard| shard.lock().entries.capacity())
        .sum();
    assert_eq!(left, 0);
}

#[test]
fn of_two_that_complete_one_gets_it() {
    let requests = Requests::new(Key([1, 2]));
    let got = AtomicU32::new(0);
    for nth in 0..500 {
        requests.insert(&flow(nth), &request(listener(1), nth, ms(0)), 1_000);
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for nth in 0..500 {
                    let removed = requests.remove(&flow(nth)).is_some();
                    got.fetch_add(removed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((got.into_inner(), requests.len(listener(1))), (500, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Insert { nth: u16, of: u32 },
    Remove { nth: u16 },
    Close { of: u32 },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..80_u16, 0..3_u32).prop_map(|(nth, of)| Step::Insert { nth, of }),
        2 => (0..80_u16).prop_map(|nth| Step::Remove { nth }),
        1 => (0..3_u32).prop_map(|of| Step::Close { of }),
        4 => prop_oneof![0..500_u64, 500..20_000_u64].prop_map(|ms| Step::Pass { ms }),
    ]
}

proptest! {
    #[test]
    fn equals_a_plain_map(steps in prop::collection::vec(step(), 1..120)) {
        // So large that nobody is given up early.
        let max = 1_000;
        let requests = Requests::new(Key([5, 6]));
        let mut model: HashMap<u16, Request> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Insert { nth, of } => {
                    let request = request(listener(of), nth, ms(now));
                    let is_new = requests.insert(&flow(nth), &request, max);
                    prop_assert_eq!(is_new, !model.contains_key(&nth));
                    model.entry(nth).or_insert(request);
                }
                Step::Remove { nth } => {
                    prop_assert_eq!(requests.remove(&flow(nth)), model.remove(&nth));
                }
                Step::Close { of } => {
                    requests.remove_all(listener(of));
                    model.retain(|_, request| request.listener != listener(of));
                }
                Step::Pass { ms: passed } => {
                    now += passed;
                    let mut seen = Vec::new();
                    requests.expire(ms(now), RETRIES, |flow, request, expired| {
                        seen.push((*flow, *request, expired));
                    });
                    for (of, request, expired) in seen {
                        let nth = request.irs.0 as u16;
                        prop_assert_eq!(of, flow(nth));
                        let mine = model.get_mut(&nth).expect("there");
                        prop_assert!(mine.deadline <= ms(now));
                        if mine.retransmits == RETRIES {
                            prop_assert_eq!(expired, Expired::GiveUp);
                            model.remove(&nth);
                        } else {
                            prop_assert_eq!(expired, Expired::Resend);
                            mine.retransmits += 1;
                            mine.deadline = ms(now) + timeout(mine.retransmits);
                            prop_assert_eq!(*mine, request);
                        }
                    }
                    prop_assert!(model.values().all(|request| request.deadline > ms(now)));
                }
            }
            let first = model.values().map(|request| request.deadline).min();
            if let Some(first) = first {
                let next = requests.next_deadline();
                prop_assert!(next.is_some_and(|next| next <= first));
            }
            let mut all = 0;
            requests.for_each(|flow, request| {
                assert_eq!(model.get(&flow.remote().1), Some(request));
                all += 1;
            });
            prop_assert_eq!(all, model.len());
            for of in 0..3 {
                let mine = model.values().filter(|request| request.listener == listener(of));
                let (mine, young) = mine.fold((0, 0), |(mine, young), request| {
                    (mine + 1, young + u32::from(request.retransmits == 0))
                });
                prop_assert_eq!(requests.len(listener(of)), mine);
                let queue = requests.queues.get(of);
                let counted = queue.map_or(0, |queue| queue.young.load(Ordering::Relaxed));
                prop_assert_eq!(counted, young);
            }
        }
    }
}
