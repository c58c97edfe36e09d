//! Chunks of all settings in random order.

use super::statistics::Summary;
use crate::clock::Clock;
use crate::random::Random;

/// Rounds that are not counted: caches and pools fill.
const WARM_UP: u32 = 2;

/// What a packet of a chunk took, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chunk {
    /// Writing it; not part of what is measured.
    pub(super) generate: f64,
    /// What is measured.
    pub(super) stages: f64,
    /// Looking at what became of it; not part of what is measured.
    pub(super) verify: f64,
}

/// Nanoseconds a packet of one setting, chunk by chunk; those of one round were measured close to
/// each other in time.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    pub(super) generate: Vec<f64>,
    pub(super) stages: Vec<f64>,
    pub(super) verify: Vec<f64>,
}

impl Series {
    pub(super) fn summary(&self) -> Summary {
        Summary::of(self.stages.iter().copied())
    }

    fn add(&mut self, chunk: &Chunk, clock: &Clock) {
        self.generate.push(clock.nanos(chunk.generate));
        self.stages.push(clock.nanos(chunk.stages));
        self.verify.push(clock.nanos(chunk.verify));
    }
}

/// Runs a chunk of every setting in every round, in an order that changes from round to round.
/// The series are in the order of the settings.
///
/// # Errors
///
/// The first of a chunk.
pub(super) fn run<S: Copy>(
    settings: &[S],
    rounds: u32,
    clock: &Clock,
    random: &mut Random,
    mut chunk: impl FnMut(S) -> anyhow::Result<Chunk>,
) -> anyhow::Result<Vec<Series>> {
    let mut series = vec![Series::default(); settings.len()];
    let mut turns: Vec<(&S, &mut Series)> = settings.iter().zip(&mut series).collect();
    for round in 0..WARM_UP + rounds {
        shuffle(&mut turns, random);
        for (setting, series) in &mut turns {
            let chunk = chunk(**setting)?;
            if round >= WARM_UP {
                series.add(&chunk, clock);
            }
        }
    }
    Ok(series)
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for end in (1..items.len()).rev() {
        items.swap(end, random.below(end + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_its_chunk_in_every_round() {
        let clock = Clock::new();
        let mut order = Vec::new();
        let series = run(
            &[10.0, 20.0, 30.0],
            5,
            &clock,
            &mut Random::new(1),
            |setting| {
                order.push(setting);
                Ok(Chunk {
                    stages: setting,
                    ..Chunk::default()
                })
            },
        );
        let series = series.expect("no chunk fails");
        for (series, setting) in series.iter().zip([10.0, 20.0, 30.0]) {
            assert_eq!(series.stages, vec![clock.nanos(setting); 5]);
        }
        let (rounds, rest) = order.as_chunks::<3>();
        assert_eq!((rounds.len(), rest.len()), (7, 0));
        assert!(rounds.iter().any(|round| round != &rounds[0]), "{rounds:?}");
    }
}
