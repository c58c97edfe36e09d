//! How long a capture takes: one stack, its settings in turn.
//!
//! A machine is never quiet, and what disturbs it lasts longer than a difference of a per cent can
//! wait. So the settings alternate in short chunks, in random order, on the same stack and in the
//! same memory; each has two chunks a round, as if it were two settings. What those two differ in is
//! noise, whatever the clock's digits say.

use std::time::{Duration, Instant};

use anyhow::Context;
use forebay::core::receive::{MAX_BATCH, Observer, Stage};
use forebay::core::socket::SocketId;
use forebay::device::{Packet, PacketQueue};

use super::timeline::Timeline;
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
/// Why so many passes can't be played.
const CLOCK_ENDS: &str = "the stack's clock ends after 584 years, and so many passes of this capture take longer: \
     give --loop a smaller number";
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
    /// Whether a pass leaves fragments behind that wait for others.
    pub(crate) leaves_fragments: bool,
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
    let schedule = Schedule::new(len, plan.passes);
    let mut order: Vec<(usize, usize)> = (0..plan.settings.len())
        .flat_map(|setting| [(setting, 0), (setting, 1)])
        .collect();
    let mut random = Random::new(1);
    let start = Instant::now();
    for round in 0.. {
        let is_over = match plan.passes {
            Some(_) => schedule.passes_of(round, 0) == 0,
            None => round == MAX_ROUNDS || (round >= MIN_ROUNDS && start.elapsed() > TIME),
        };
        if is_over {
            break;
        }
        shuffle(&mut order, &mut random);
        for (setting, place) in &order {
            let chunk = schedule.passes_of(round, *place) * len;
            let (Some(setting), Some(measured)) =
                (plan.settings.get(*setting), measured.get_mut(*setting))
            else {
                continue;
            };
            if chunk == 0 {
                continue;
            }
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

/// How many passes a chunk has: always whole ones, so that all chunks are alike.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    per_chunk: usize,
    /// So many and no more; `None` if rounds go by time.
    passes: Option<usize>,
}

impl Schedule {
    fn new(len: usize, passes: Option<usize>) -> Self {
        let usual = CHUNK.div_ceil(len);
        // Rather many small chunks than few large ones: they are what the median is of.
        let per_chunk = passes.map_or(usual, |passes| (passes / 40).clamp(1, usual));
        Self { per_chunk, passes }
    }

    /// Passes of the chunk that a setting has in this round and place; the last one may have less
    /// than others, or none.
    fn passes_of(self, round: usize, place: usize) -> usize {
        let before = (2 * round + place) * self.per_chunk;
        match self.passes {
            Some(passes) => passes.saturating_sub(before).min(self.per_chunk),
            None => self.per_chunk,
        }
    }
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
    /// Nanoseconds from one pass to the next.
    pause: u64,
    /// Whether a batch ends with the pass, as time has to go by before the next one.
    ends_with_pass: bool,
}

impl<'c> Player<'c> {
    fn new(rig: Rig, plan: &Plan<'c>, clock: Clock) -> Self {
        // What waits for longer than a fragment does makes no difference to what is measured.
        let time_out = rig.time_out();
        let mut timeline = Timeline::new(time_out);
        let told = plan.told.iter();
        let packets = plan
            .capture
            .frames
            .iter()
            .zip(told)
            .filter_map(|(frame, told)| {
                let bytes = frame.packet.as_deref().ok()?;
                let at = timeline.played_at(frame.at);
                Some((bytes, at, told.takers().collect()))
            });
        // What waits for the rest of its datagram has to be forgotten: in the next pass, the same
        // fragments would be duplicates.
        let pause = if plan.leaves_fragments {
            time_out
        } else {
            PAUSE
        };
        Self {
            packets: packets.collect(),
            next: 0,
            base: rig.elapsed().saturating_add(pause),
            at: 0,
            pause,
            ends_with_pass: plan.leaves_fragments,
            rig,
            clock,
        }
    }

    fn set(&self, setting: &Setting) -> anyhow::Result<()> {
        match &setting.knob {
            Some((name, value)) => self.rig.set(name, value).map(drop),
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
            let batch = self.play_batch(now, observer)?;
            left -= batch.packets;
            batches.push(batch);
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
            self.at = self.base.checked_add(*at).context(CLOCK_ENDS)?;
            self.next += 1;
            if self.next == self.packets.len() {
                self.next = 0;
                self.base = self.at.checked_add(self.pause).context(CLOCK_ENDS)?;
                if self.ends_with_pass {
                    break;
                }
            }
        }
        let packets = batch.len();
        self.rig.advance(self.at);
        self.rig.discard_sent();
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
mod tests;
