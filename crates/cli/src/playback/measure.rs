//! How long a capture takes: one stack, its settings in turn.
//!
//! A machine is never quiet, and what disturbs it lasts longer than a difference of a per cent can
//! wait. So the settings alternate in short chunks, in random order, on the same stack and in the
//! same memory; each has two chunks a round, as if it were two settings. What those two differ in is
//! noise, whatever the clock's digits say.

use std::time::{Duration, Instant};

use forebay::core::receive::{MAX_BATCH, Observer, Stage};
use forebay::core::socket::SocketId;
use forebay::device::{Packet, PacketQueue};

use super::{Capture, Rig, Told};
use crate::clock::Clock;
use crate::random::Random;

/// Packets of a chunk, or one pass of a capture that has more.
const CHUNK: usize = 16_000;
/// How long it is measured unless `--loop` says how often.
const TIME: Duration = Duration::from_secs(3);
/// Fewer rounds have no median worth the name.
const MIN_ROUNDS: usize = 5;
const MAX_ROUNDS: usize = 1_000;
/// Packets that find a setting's caches warm.
const WARM_UP: usize = 2_048;
/// One round in so many is measured stage by stage as well, which takes time of its own.
const STAGE_ROUNDS: usize = 4;
/// A batch that takes so many times as long as others was interrupted: somebody else had the core.
const INTERRUPTED: u64 = 10;
/// Between two passes, in nanoseconds.
const PAUSE: u64 = 1_000_000;

/// A value of the knob; none if the stack is measured as it is.
pub(crate) struct Setting {
    pub(crate) knob: Option<(String, String)>,
}

/// What is to be measured.
pub(crate) struct Plan<'c> {
    pub(crate) capture: &'c Capture,
    /// What became of each frame, to know the sockets that are to be read.
    pub(crate) told: &'c [Told],
    pub(crate) settings: &'c [Setting],
    /// Passes of each setting; by time if `None`.
    pub(crate) passes: Option<usize>,
}

/// What was measured of a setting: nanoseconds a packet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// The chunks in the two places that the setting has in each round.
    pub(crate) chunks: [Vec<f64>; 2],
    /// By stage, in the order of [`STAGES`].
    pub(crate) stages: [Vec<f64>; STAGES.len()],
    /// Packets that were measured.
    pub(crate) packets: u64,
    /// The batches that they came in.
    pub(crate) batches: u64,
    /// Those of them that do not count, as somebody else had the core meanwhile.
    pub(crate) left_out: u64,
}

/// The stages by their names.
pub(crate) const STAGES: [(Stage, &str); 4] = [
    (Stage::Validate, "validate"),
    (Stage::EarlyDemux, "early demux"),
    (Stage::Route, "route"),
    (Stage::Act, "deliver, forward, drop"),
];

/// Plays the capture under each setting in turn. `rig` is the one that told the stories: its sockets
/// are those that they name.
pub(crate) fn measure(rig: Rig, plan: &Plan<'_>, clock: &Clock) -> anyhow::Result<Vec<Measured>> {
    let mut player = Player::new(rig, plan, *clock);
    let len = player.packets.len();
    let mut measured = vec![Measured::default(); plan.settings.len()];
    if len == 0 {
        return Ok(measured);
    }
    let (chunk, rounds) = chunk_and_rounds(len, plan.passes);
    let mut order: Vec<(usize, usize)> = (0..plan.settings.len())
        .flat_map(|setting| [(setting, 0), (setting, 1)])
        .collect();
    let mut random = Random::new(1);
    let start = Instant::now();
    for round in 0..rounds.unwrap_or(MAX_ROUNDS) {
        if rounds.is_none() && round >= MIN_ROUNDS && start.elapsed() > TIME {
            break;
        }
        shuffle(&mut order, &mut random);
        for (setting, place) in &order {
            let (Some(setting), Some(measured)) =
                (plan.settings.get(*setting), measured.get_mut(*setting))
            else {
                continue;
            };
            player.set(setting)?;
            player.play(WARM_UP.min(chunk), &mut ())?;
            let batches = player.play(chunk, &mut ())?;
            if let Some(chunks) = measured.chunks.get_mut(*place) {
                chunks.push(per_packet(clock, &batches, |batch| batch.took));
            }
            measured.packets += chunk as u64;
            measured.batches += batches.len() as u64;
            measured.left_out += (batches.len() - uninterrupted(&batches).count()) as u64;
            if *place == 0 && round % STAGE_ROUNDS == 0 {
                let batches = player.play(chunk, &mut StageTimer::new(*clock))?;
                for (index, values) in measured.stages.iter_mut().enumerate() {
                    let took = |batch: &Batch| batch.stages.get(index).copied();
                    values.push(per_packet(clock, &batches, |batch| {
                        took(batch).unwrap_or_default()
                    }));
                }
            }
        }
    }
    Ok(measured)
}

/// Packets of a chunk, always whole passes so that all chunks are alike, and the rounds if they are
/// not to go by time.
fn chunk_and_rounds(len: usize, passes: Option<usize>) -> (usize, Option<usize>) {
    let usual = CHUNK.div_ceil(len);
    let Some(passes) = passes else {
        return (usual * len, None);
    };
    // Rather many small chunks than few large ones: they are what the median is of.
    let per_chunk = (passes / 40).clamp(1, usual);
    (per_chunk * len, Some(passes.div_ceil(2 * per_chunk)))
}

/// What the batches took that nothing interrupted, in nanoseconds a packet.
fn per_packet(clock: &Clock, batches: &[Batch], took: impl Fn(&Batch) -> u64) -> f64 {
    let (time, packets) = uninterrupted(batches).fold((0, 0), |(time, packets), batch| {
        (time + took(batch), packets + batch.packets)
    });
    clock.nanos(time as f64) / packets.max(1) as f64
}

fn uninterrupted(batches: &[Batch]) -> impl Iterator<Item = &Batch> {
    let mut times: Vec<u64> = batches.iter().map(|batch| batch.took).collect();
    times.sort_unstable();
    let usual = times.get(times.len() / 2).copied().unwrap_or_default();
    let is_whole = move |batch: &&Batch| batch.took <= usual * INTERRUPTED;
    batches.iter().filter(is_whole)
}

/// A batch that was played.
struct Batch {
    packets: usize,
    /// Ticks of the clock.
    took: u64,
    stages: [u64; STAGES.len()],
}

/// Plays the packets round and round, in full batches.
struct Player<'c> {
    rig: Rig,
    clock: Clock,
    /// Each with when it comes and whose it will be.
    packets: Vec<(&'c [u8], u64, Vec<SocketId>)>,
    next: usize,
    /// When the pass began, and when the last packet came.
    base: u64,
    at: u64,
}

impl<'c> Player<'c> {
    fn new(rig: Rig, plan: &Plan<'c>, clock: Clock) -> Self {
        let told = plan.told.iter();
        let packets = plan
            .capture
            .frames
            .iter()
            .zip(told)
            .filter_map(|(frame, told)| {
                let bytes = frame.packet.as_deref().ok()?;
                Some((bytes, frame.at, told.takers().collect()))
            });
        Self {
            packets: packets.collect(),
            next: 0,
            base: rig.elapsed() + PAUSE,
            at: 0,
            rig,
            clock,
        }
    }

    fn set(&self, setting: &Setting) -> anyhow::Result<()> {
        match &setting.knob {
            Some((name, value)) => self.rig.set(name, value),
            None => Ok(()),
        }
    }

    /// Plays so many packets, and says how long the stack took; what is around it does not count.
    fn play(
        &mut self,
        packets: usize,
        observer: &mut impl StageClock,
    ) -> anyhow::Result<Vec<Batch>> {
        let mut batches = Vec::with_capacity(packets.div_ceil(MAX_BATCH));
        let mut left = packets;
        while left > 0 {
            let now = left.min(MAX_BATCH);
            batches.push(self.play_batch(now, observer)?);
            left -= now;
        }
        Ok(batches)
    }

    fn play_batch(
        &mut self,
        packets: usize,
        observer: &mut impl StageClock,
    ) -> anyhow::Result<Batch> {
        let mut batch = PacketQueue::new();
        let mut readers: Vec<SocketId> = Vec::new();
        for _ in 0..packets {
            let Some((bytes, at, takers)) = self.packets.get(self.next) else {
                break;
            };
            batch.push(self.rig.packet(bytes)?);
            readers.extend(takers);
            self.at = self.base + at;
            self.next += 1;
            if self.next == self.packets.len() {
                self.next = 0;
                self.base = self.at + PAUSE;
            }
        }
        self.rig.advance(self.at);
        let iif = self.rig.iif();
        let clock = self.clock;
        let (stack, core, now) = self.rig.parts();
        observer.begin();
        let start = clock.now();
        stack
            .inner()
            .receive_observed(core, now, iif, &mut batch, observer);
        let took = clock.now().wrapping_sub(start);

        self.rig.discard_sent();
        readers.sort_unstable_by_key(|id| id.as_u64());
        readers.dedup();
        for id in readers {
            self.rig.discard_received(id);
        }
        Ok(Batch {
            packets,
            took,
            stages: observer.stages(),
        })
    }
}

/// Looks at the clock between the stages, or not.
trait StageClock: Observer {
    /// A batch is about to go.
    fn begin(&mut self);

    /// What its stages took.
    fn stages(&self) -> [u64; STAGES.len()];
}

impl StageClock for () {
    fn begin(&mut self) {}

    fn stages(&self) -> [u64; STAGES.len()] {
        Default::default()
    }
}

struct StageTimer {
    clock: Clock,
    last: u64,
    took: [u64; STAGES.len()],
}

impl StageTimer {
    fn new(clock: Clock) -> Self {
        Self {
            clock,
            last: 0,
            took: Default::default(),
        }
    }
}

impl StageClock for StageTimer {
    fn begin(&mut self) {
        self.took = Default::default();
        self.last = self.clock.now();
    }

    fn stages(&self) -> [u64; STAGES.len()] {
        self.took
    }
}

impl Observer for StageTimer {
    fn after(&mut self, stage: Stage, _batch: &[Packet]) {
        let now = self.clock.now();
        let stages = STAGES.iter().zip(&mut self.took);
        for (_, took) in stages.filter(|((name, _), _)| *name == stage) {
            *took += now.wrapping_sub(self.last);
        }
        self.last = now;
    }
}

/// An order that no rhythm of the machine has (Fisher and Yates).
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for index in (1..items.len()).rev() {
        items.swap(index, random.below(index + 1));
    }
}

impl Measured {
    /// All chunks.
    pub(crate) fn all(&self) -> Vec<f64> {
        let [first, second] = &self.chunks;
        first.iter().chain(second).copied().collect()
    }

    /// How far the setting differs from itself, as a fraction: between its two places, or as far as
    /// its median is known.
    pub(crate) fn noise(&self) -> f64 {
        let [first, second] = &self.chunks;
        let itself = (median(first) / median(second) - 1.0).abs();
        let all = self.all();
        let [low, middle, high] = quartiles(&all);
        // The notch of a box plot: about the 95 % interval of a median.
        let interval = 1.57 * (high - low) / (all.len() as f64).sqrt() / middle;
        let noise = itself.max(interval);
        if noise.is_finite() { noise } else { 0.0 }
    }
}

/// The one in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let [_, middle, _] = quartiles(values);
    middle
}

/// First quartile, median, third quartile.
pub(crate) fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    [1, 2, 3].map(|quarter| sorted.get(last * quarter / 4).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_whole_passes() {
        for (len, passes, expected) in [
            (10, None, (16_000, None)),
            (1_200, None, (16_800, None)),
            (20_000, None, (20_000, None)),
            (10, Some(1), (10, Some(1))),
            (10, Some(1_000), (250, Some(20))),
            (10, Some(1_000_000), (16_000, Some(313))),
            (20_000, Some(9), (20_000, Some(5))),
        ] {
            assert_eq!(chunk_and_rounds(len, passes), expected, "{len}, {passes:?}");
        }
    }

    #[test]
    fn an_interrupted_batch_does_not_count() {
        let clock = Clock::new();
        let batch = |packets, took| Batch {
            packets,
            took,
            stages: [100; STAGES.len()],
        };
        let batches = [
            batch(64, 800),
            batch(64, 400_000),
            batch(64, 800),
            batch(16, 200),
        ];
        let close = |found: f64, ticks: f64| (found - clock.nanos(ticks)).abs() < 1e-9;
        assert!(close(
            per_packet(&clock, &batches, |batch| batch.took),
            12.5
        ));
        let stage = per_packet(&clock, &batches, |batch| batch.stages[0]);
        assert!(close(stage, 300.0 / 144.0));
        assert_eq!(per_packet(&clock, &[], |batch| batch.took), 0.0);
    }

    #[test]
    fn quartiles_of_anything() {
        assert_eq!(quartiles(&[]), [0.0; 3]);
        assert_eq!(quartiles(&[7.0]), [7.0; 3]);
        assert_eq!(quartiles(&[5.0, 1.0, 2.0, 4.0, 3.0]), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_setting_that_differs_from_itself_is_noisy() {
        let measured = |first: f64, second: f64| Measured {
            chunks: [vec![first; 9], vec![second; 9]],
            ..Measured::default()
        };
        assert_eq!(measured(10.0, 10.0).noise(), 0.0);
        assert!(measured(11.0, 10.0).noise() > 0.09);
        assert_eq!(Measured::default().noise(), 0.0);
    }

    #[test]
    fn shuffling_loses_nothing_and_comes_to_every_order() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [1, 2, 3];
            shuffle(&mut items, &mut random);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 6);
    }
}
