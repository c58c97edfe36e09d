use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::tcp::time_wait::Ended;
use crate::wire::protocol;
use crate::wire::seq::Seq;

const KEY: Key = Key([1, 2]);

fn flow(nth: u16) -> Flow {
    let local = ([192, 0, 2, 1].into(), 80);
    Flow::new(protocol::TCP, local, ([198, 51, 100, 1].into(), nth))
}

fn entry(nth: u16) -> TimeWait {
    TimeWait::new(Ended::TimeWait, Seq(nth.into()), Seq(0), 0)
}

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[derive(Debug, Clone)]
enum Step {
    Add { nth: u16, stays_ms: u64 },
    Stay { nth: u16, stays_ms: u64 },
    End { nth: u16 },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let stays = || prop_oneof![0..2_000_u64, 50_000..70_000_u64, 100_000..400_000_u64];
    prop_oneof![
        4 => (0..30_u16, stays()).prop_map(|(nth, stays_ms)| Step::Add { nth, stays_ms }),
        2 => (0..30_u16, stays()).prop_map(|(nth, stays_ms)| Step::Stay { nth, stays_ms }),
        1 => (0..30_u16).prop_map(|nth| Step::End { nth }),
        3 => prop_oneof![0..300_u64, 1_000..90_000_u64, 100_000..1_000_000_u64]
            .prop_map(|ms| Step::Pass { ms }),
    ]
}

proptest! {
    /// Nobody goes before its time, everybody by half a second after it, and the next deadline is
    /// never later than the first of them.
    #[test]
    fn entries_end_when_they_should(steps in prop::collection::vec(step(), 1..80)) {
        let time_waits = TimeWaits::new();
        let mut model: HashMap<u16, (u32, u64)> = HashMap::new();
        let mut now = 5;
        for step in steps {
            match step {
                Step::Add { nth, stays_ms } => {
                    if model.contains_key(&nth) {
                        continue;
                    }
                    let flow = flow(nth);
                    let number = time_waits.add(&flow, flow.hash(KEY), &entry(nth), 25);
                    prop_assert_eq!(number.is_some(), model.len() < 25);
                    if let Some(number) = number {
                        time_waits.start(number, &flow, ms(now + stays_ms));
                        prop_assert_eq!(time_waits.hash_of(number, KEY), flow.hash(KEY));
                        model.insert(nth, (number, now + stays_ms));
                    }
                }
                Step::Stay { nth, stays_ms } => {
                    if let Some((number, until)) = model.get_mut(&nth) {
                        let mut entry = time_waits.get(*number, &flow(nth)).expect("there");
                        *until = now + stays_ms;
                        let tick = entry.stay(ms(*until));
                        drop(entry);
                        time_waits.moved(tick);
                    }
                }
                Step::End { nth } => {
                    if let Some((number, _)) = model.remove(&nth) {
                        time_waits.get(number, &flow(nth)).expect("there").end();
                        prop_assert!(time_waits.get(number, &flow(nth)).is_none());
                        time_waits.free(number);
                    }
                }
                Step::Pass { ms: passed } => {
                    now += passed;
                    let mut ended = Vec::new();
                    time_waits.expire(ms(now), |number, flow, entry| {
                        ended.push((number, *flow, entry.rcv_nxt.0 as u16));
                    });
                    for (number, of, nth) in ended {
                        prop_assert_eq!(of, flow(nth));
                        let (expected, until) = model.remove(&nth).expect("not yet ended");
                        prop_assert_eq!(number, expected);
                        prop_assert!(until <= now, "{} at {}", until, now);
                        time_waits.free(number);
                    }
                    for (_, until) in model.values() {
                        prop_assert!(until + 500 > now, "{} at {}", until, now);
                    }
                }
            }
            prop_assert_eq!(time_waits.len(), model.len());
            if let Some(first) = model.values().map(|(_, until)| *until).min() {
                let deadline = time_waits.next_deadline().expect("somebody is there");
                prop_assert!(deadline <= ms(first.max(now) + 500));
            }
            for (nth, (number, _)) in &model {
                let found = time_waits.get(*number, &flow(*nth));
                prop_assert_eq!(found.expect("there").entry().copied(), Some(entry(*nth)));
            }
        }
        let mut seen = 0;
        time_waits.for_each(ms(now), |flow, entry, left| {
            let (_, until) = model[&(entry.rcv_nxt.0 as u16)];
            assert_eq!(flow.remote().1, entry.rcv_nxt.0 as u16);
            assert!(ms(now) + left >= ms(until) && left.as_millis() <= u128::from(until.max(now) - now) + 500);
            seen += 1;
        });
        prop_assert_eq!(seen, model.len());
    }
}

#[test]
fn places_are_used_again() {
    let time_waits = TimeWaits::new();
    for round in 0..5_u64 {
        for nth in 0..3_000 {
            let flow = flow(nth);
            let number = time_waits.add(&flow, flow.hash(KEY), &entry(nth), usize::MAX);
            time_waits.start(number.expect("room"), &flow, ms(round * 1_000));
        }
        let mut ended = Vec::new();
        time_waits.expire(ms(round * 1_000 + 500), |number, _, _| ended.push(number));
        assert_eq!(ended.len(), 3_000);
        ended.into_iter().for_each(|number| time_waits.free(number));
        assert_eq!((time_waits.len(), time_waits.next_deadline()), (0, None));
    }
    let pages: usize = time_waits
        .shards
        .iter()
        .map(|shard| shard.lock().pages.len())
        .sum();
    assert!(pages <= 3_000 / PAGE + 2 * SHARDS, "{pages}");
}
