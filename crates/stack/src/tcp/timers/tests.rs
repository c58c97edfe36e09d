use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const TICK: u64 = 1 << TICK_BITS;

fn id(slot: u32, generation: u32) -> SocketId {
    let generation = NonZeroU32::new(generation).expect("not zero");
    SocketId { slot, generation }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn expired(timers: &Timers, now: u64) -> Vec<SocketId> {
    let mut expired = Vec::new();
    timers.expire(at(now), |id| expired.push(id));
    expired
}

#[derive(Debug, Clone)]
enum Step {
    Schedule {
        slot: u32,
        generation: u32,
        ahead: u64,
    },
    Pass {
        nanos: u64,
    },
    /// To the next deadline, and a bit further.
    Next {
        more: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    // As far as each level reaches, and farther than all of them.
    let span = || (0..52_u32, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1));
    prop_oneof![
        5 => (0..200_u32, 1..3_u32, span()).prop_map(|(slot, generation, ahead)| Step::Schedule {
            slot,
            generation,
            ahead,
        }),
        2 => span().prop_map(|nanos| Step::Pass { nanos }),
        2 => (0..3 * TICK).prop_map(|more| Step::Next { more }),
    ]
}

proptest! {
    /// Every socket is asked within two ticks of its first deadline, once, and never before, except
    /// that what is further away than the wheel reaches is asked early.
    #[test]
    fn everybody_is_asked_in_time(
        start in prop_oneof![Just(0), Just(HORIZON * TICK - 5), any::<u64>().prop_map(|n| n >> 4)],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let timers = Timers::new();
        let mut model: HashMap<u32, (u32, u64)> = HashMap::new();
        let mut now = start;
        for step in steps {
            match step {
                Step::Schedule { slot, generation, ahead } => {
                    let deadline = now + ahead;
                    timers.schedule(id(slot, generation), at(deadline), at(now));
                    let place = model.entry(slot).or_insert((generation, deadline));
                    if place.0 != generation || deadline < place.1 {
                        *place = (generation, deadline);
                    }
                }
                Step::Pass { nanos } => now += nanos,
                Step::Next { more } => match timers.next_deadline() {
                    Some(next) => now = now.max(next.as_nanos()) + more,
                    None => prop_assert!(model.is_empty()),
                },
            }
            let asked = expired(&timers, now);
            for id in &asked {
                let (generation, deadline) = model.remove(&id.slot).expect("asked once");
                prop_assert_eq!(generation, id.generation.get());
                let is_early = deadline > now;
                if is_early {
                    // Asked again, as a connection would.
                    prop_assert!(ahead_of_reach(deadline, now));
                    timers.schedule(*id, at(deadline), at(now));
                    model.insert(id.slot, (generation, deadline));
                }
            }
            for (generation, deadline) in model.values() {
                prop_assert!(deadline + 2 * TICK > now, "{} {} {}", generation, deadline, now);
            }
            if let Some(first) = model.values().map(|(_, deadline)| *deadline).min() {
                let next = timers.next_deadline().expect("somebody is there");
                prop_assert!(next <= at(first.max(now) + 2 * TICK));
            } else {
                prop_assert_eq!(timers.next_deadline(), None);
            }
        }
    }
}

/// Whether a socket may have been scheduled beyond what the wheel reaches: it is asked when that is
/// over, half a turn of the highest level ago at most.
fn ahead_of_reach(deadline: u64, now: u64) -> bool {
    deadline.saturating_add(now) >= HORIZON * TICK / 2
}

#[test]
fn a_deadline_that_moves_away_costs_a_question() {
    let timers = Timers::new();
    let socket = id(17, 1);
    let ms = |ms: u64| ms * 1_000_000;
    timers.schedule(socket, at(ms(200)), at(0));
    for passed in 1..100 {
        timers.schedule(socket, at(ms(200 + passed)), at(ms(passed)));
        assert_eq!(expired(&timers, ms(passed)), []);
    }
    assert_eq!(expired(&timers, ms(199)), []);
    assert_eq!(expired(&timers, ms(201)), [socket]);
    assert_eq!(expired(&timers, ms(500)), []);
    // An earlier one counts.
    timers.schedule(socket, at(ms(700)), at(ms(500)));
    timers.schedule(socket, at(ms(540)), at(ms(500)));
    assert_eq!(expired(&timers, ms(541)), [socket]);
    assert_eq!(
        (expired(&timers, ms(800)), timers.next_deadline()),
        (vec![], None)
    );
}

#[test]
fn the_next_socket_of_a_slot_has_its_own_deadline() {
    let timers = Timers::new();
    timers.schedule(id(3, 1), at(TICK * 10), at(0));
    timers.schedule(id(3, 3), at(TICK * 5_000), at(0));
    assert_eq!(expired(&timers, TICK * 4_999), []);
    assert_eq!(expired(&timers, TICK * 5_001), [id(3, 3)]);
}

#[test]
fn who_is_asked_may_schedule() {
    let timers = Timers::new();
    for slot in 0..1_000 {
        timers.schedule(id(slot, 1), at(TICK), at(0));
    }
    let mut asked = 0;
    timers.expire(at(TICK * 2), |id| {
        asked += 1;
        timers.schedule(id, at(TICK * 100), at(TICK * 2));
    });
    assert_eq!(asked, 1_000);
    assert_eq!(expired(&timers, TICK * 101).len(), 1_000);
}

#[test]
fn threads_schedule_while_one_expires() {
    let timers = Timers::new();
    let alarm = Alarm::default();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (timers, alarm) = (&timers, &alarm);
            scope.spawn(move || {
                for slot in 0..1_000 {
                    let deadline = at(u64::from(slot % 50) * TICK);
                    timers.schedule(id(thread * 1_000 + slot, 1), deadline, at(0));
                    // Nobody sleeps.
                    assert!(!alarm.is_late(deadline));
                }
            });
        }
        scope.spawn(|| {
            let mut now = 0;
            while asked.load(Ordering::Relaxed) < 3_000 {
                now += TICK / 2;
                let expired = expired(&timers, now).len();
                asked.fetch_add(expired, Ordering::Relaxed);
            }
        });
    });
    assert_eq!((asked.into_inner(), timers.next_deadline()), (3_000, None));
}

#[test]
fn an_alarm_rings_for_who_sleeps_longer() {
    let alarm = Alarm::default();
    assert!(!alarm.is_late(at(1)));
    assert_eq!(alarm.sleep_until(|| Some(at(100))), Some(at(100)));
    assert!(alarm.is_late(at(99)) && !alarm.is_late(at(100)));
    assert_eq!(alarm.sleep_until(|| None), None);
    assert!(alarm.is_late(at(u64::MAX - 1)));
    alarm.is_up();
    assert!(!alarm.is_late(at(1)));
}
