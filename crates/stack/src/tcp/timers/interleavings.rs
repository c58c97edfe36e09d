//! Whoever sets a deadline while another goes to sleep: under every order that loom can think of.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p forebay-stack --release --lib interleavings
//! ```

use loom::sync::Arc;
use loom::thread;

use super::*;

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[derive(Default)]
struct Model {
    alarm: Alarm,
    earliest: AtomicU64,
}

impl Model {
    fn next(&self) -> Option<Instant> {
        let earliest = self.earliest.load(Ordering::Acquire);
        Some(Instant::from_nanos(1_000 - earliest))
    }
}

fn nanos(deadline: Option<Instant>) -> u64 {
    deadline.map_or(u64::MAX, Instant::as_nanos)
}

#[test]
fn nobody_sleeps_longer_than_the_first_deadline() {
    model(|| {
        let model = Arc::new(Model::default());
        let setters = [400, 300].map(|deadline| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.earliest.fetch_max(1_000 - deadline, Ordering::AcqRel);
                let is_late = model.alarm.is_late(Instant::from_nanos(deadline));
                (deadline, is_late)
            })
        });
        let sleeps_until = nanos(model.alarm.sleep_until(|| model.next()));
        for setter in setters {
            let (deadline, rings) = setter.join().unwrap();
            assert!(sleeps_until <= deadline || rings);
        }
    });
}

#[test]
fn who_is_up_looks_before_it_sleeps_again() {
    model(|| {
        let model = Arc::new(Model::default());
        let setter = thread::spawn({
            let model = Arc::clone(&model);
            move || {
                model.earliest.fetch_max(700, Ordering::AcqRel);
                model.alarm.is_late(Instant::from_nanos(300))
            }
        });
        let _ = model.alarm.sleep_until(|| model.next());
        model.alarm.is_up();
        let sleeps_until = nanos(model.alarm.sleep_until(|| model.next()));
        assert!(setter.join().unwrap() || sleeps_until <= 300);
    });
}
