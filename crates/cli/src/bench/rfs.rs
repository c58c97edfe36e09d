//! `forebay bench rfs`: what it costs to say where a flow is read.

use std::hint::black_box;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;
use forebay::core::core::Core;
use forebay::core::{Stack, StackConfig};
use serde::Serialize;

use super::plot::{self, Plot, PlotArgs, Words};
use super::report::{self, rounded};
use super::runner::{self, Chunk, Series};
use super::statistics::{Summary, middle_mean, ratio};
use crate::clock::Clock;
use crate::random::Random;

/// Records between two looks at the clock.
const PASS: u32 = 65_536;

/// Entries of the table, while there is one.
const ENTRIES: u32 = 65_536;

/// The core that all flows are read on.
const CPU: u16 = 1;

/// Recording where flows are read, with and without a look at the static key.
///
/// Each setting makes 10,000,000 records in turn with the others: by the function that takes its
/// caller's word that flows are recorded (`rps_record_sock_flow`), and by the one that looks at the
/// static key first (`sock_rps_record_flow_hash`); while there is a table
/// (`net.core.rps_sock_flow_entries`), and while there is none. Beside them goes a loop that only
/// takes a hash.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench rfs                    everything
  forebay bench rfs --key 0 --flows 1  what a reader pays where nobody steers
  forebay bench rfs --svg rfs.svg      to be looked at")]
pub(crate) struct RfsArgs {
    /// Flows that records are made of, in random order; 1 and 65536 unless said.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(PASS)))]
    flows: Vec<u32>,

    /// Only with the static key off, or on.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = PossibleValuesParser::new(["0", "1"]))]
    key: Vec<String>,

    /// Records of a round of a setting, in passes of 65536.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    calls: u32,

    /// Rounds that each setting is measured in.
    #[arg(long, value_name = "N", default_value_t = 11, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,

    #[command(flatten)]
    plot: PlotArgs,

    /// Print JSON, an object a row.
    #[arg(short, long)]
    json: bool,
}

/// What is done with each hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Nothing.
    Empty,
    Unchecked,
    /// The same under another name: what the machine can't tell apart.
    Control,
    Checked,
}

const PLOT: Words = Words {
    title: "Recording where a flow is read",
    caption: &[
        "With a look at the static key and without one, in memory, on one core. Less is better.",
        "Bars are medians, whiskers the middle half. Nanoseconds are one machine's; ratios carry over:",
        "what the look costs, and how exactly that is known.",
    ],
    unit: "ns a call",
    kinds: &["checked", "unchecked", "empty loop"],
    notes: &["chk/unchk", "un/un"],
};

const LEGEND: &str = "\
key            whether flows are recorded: net.core.rps_sock_flow_entries 0 or 65536
empty, unchecked, checked
               median over rounds of ns and cycles a call, of a loop that only takes a hash, of
               rps_record_sock_flow in it, and of sock_rps_record_flow_hash
spread         interquartile range of checked, in ns
chk/unchk      what the look at the key costs: median of the ratios of rounds
un/un          the same for one setting measured under two names: what the machine can't tell apart
over empty     cycles by which the checked call is above the empty loop
";

const HEAD: &str = "key  flows    empty ns  cycles unchecked ns  cycles  checked ns  cycles  spread chk/unchk   un/un over empty";

/// What was measured of one key and number of flows.
#[derive(Default)]
struct Measured {
    empty: Series,
    unchecked: Series,
    control: Series,
    checked: Series,
}

/// A row of JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    key: u8,
    flows: u32,
    /// `empty`, `unchecked`, `control` (unchecked once more) or `checked`.
    call: &'static str,
    ns: f64,
    cycles: Option<f64>,
    /// Interquartile range in nanoseconds.
    spread: f64,
    /// Cycles above the empty loop.
    over_empty: Option<f64>,
    /// The time to that of the unchecked call; none of the empty loop.
    to_unchecked: Option<f64>,
}

pub(crate) fn run(args: &RfsArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::new();
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !args.json {
        report::line(LEGEND)?;
        report::line(HEAD)?;
    }
    for flows in args.flows() {
        for (key, measured) in measure(args, flows, &clock)? {
            plot.add(heading(key), measured.plot_row(flows));
            if !args.json {
                report::line(&format!(
                    "{:>3}{flows:>7}{}",
                    u8::from(key),
                    measured.columns(&clock)
                ))?;
                continue;
            }
            for row in measured.rows(key, flows, &clock) {
                report::json(&row)?;
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl RfsArgs {
    /// Each once.
    fn flows(&self) -> Vec<u32> {
        let mut flows = match self.flows.as_slice() {
            [] => vec![1, PASS],
            asked => asked.to_vec(),
        };
        flows.sort_unstable();
        flows.dedup();
        flows
    }

    fn keys(&self) -> Vec<bool> {
        let is_wanted = |key: &bool| {
            let name = u8::from(*key).to_string();
            self.key.is_empty() || self.key.contains(&name)
        };
        [false, true].into_iter().filter(is_wanted).collect()
    }
}

/// All calls with all keys, in turn.
fn measure(args: &RfsArgs, flows: u32, clock: &Clock) -> anyhow::Result<Vec<(bool, Measured)>> {
    let bed = Bed::new(flows);
    let keys = args.keys();
    let with_calls = |key: &bool| Call::ALL.map(|call| (*key, call));
    let settings: Vec<(bool, Call)> = keys.iter().flat_map(with_calls).collect();
    let mut order = Random::new(2);
    let series = runner::run(&settings, args.rounds, clock, &mut order, |(key, call)| {
        bed.run(clock, key, call, args.calls)
    })?;
    let mut measured: Vec<_> = keys.iter().map(|key| (*key, Measured::default())).collect();
    for ((key, call), series) in settings.into_iter().zip(series) {
        let place = measured.iter_mut().find(|(known, _)| *known == key);
        if let Some((_, measured)) = place {
            *measured.of(call) = series;
        }
    }
    Ok(measured)
}

/// A stack, and the hashes that are recorded in it.
struct Bed {
    stack: Stack,
    core: Core,
    hashes: Vec<u32>,
}

impl Bed {
    fn new(flows: u32) -> Self {
        let stack = Stack::new(&StackConfig {
            buffers: 64,
            reserve: 16,
            seed: [1, 2],
            ..StackConfig::default()
        });
        let mut random = Random::new(3);
        // 0 would be no flow.
        let of_flows: Vec<u32> = (0..flows).map(|_| (random.next() as u32).max(1)).collect();
        Self {
            core: stack.core(),
            stack,
            hashes: of_flows.into_iter().cycle().take(PASS as usize).collect(),
        }
    }

    /// A chunk of records.
    fn run(&self, clock: &Clock, key: bool, call: Call, calls: u32) -> anyhow::Result<Chunk> {
        let knob = "net.core.rps_sock_flow_entries";
        let entries = if key { ENTRIES } else { 0 };
        self.stack.set_sysctl(knob, &entries.to_string())?;
        let passes = calls.div_ceil(PASS);
        let Self { stack, core, .. } = self;
        let ticks = match call {
            Call::Empty => self.time(clock, passes, |_| {}),
            Call::Unchecked | Call::Control => self.time(clock, passes, move |hash| {
                stack.rps_record_sock_flow(core, hash, CPU);
            }),
            Call::Checked => self.time(clock, passes, move |hash| {
                stack.sock_rps_record_flow_hash(core, hash, CPU);
            }),
        };
        let (used, _) = stack.sock_flows();
        ensure!(
            (used > 0) == (key && call != Call::Empty),
            "{used} flows were recorded"
        );
        Ok(Chunk {
            stages: middle_mean(ticks) / f64::from(PASS),
            ..Chunk::default()
        })
    }

    /// The ticks that each pass took. Each record is made for itself: nothing that one has looked at
    /// is known to the next.
    #[inline(always)]
    fn time(&self, clock: &Clock, passes: u32, record: impl Fn(u32)) -> Vec<u64> {
        let mut ticks = Vec::with_capacity(passes as usize);
        // Plain loops: a closure's captures would be read anew for each record, behind the barrier.
        for _ in 0..passes {
            let start = clock.now();
            for hash in &self.hashes {
                record(black_box(*hash));
            }
            ticks.push(clock.now().wrapping_sub(start));
        }
        ticks
    }
}

impl Call {
    const ALL: [Self; 4] = [Self::Empty, Self::Unchecked, Self::Control, Self::Checked];
}

impl Measured {
    fn of(&mut self, call: Call) -> &mut Series {
        match call {
            Call::Empty => &mut self.empty,
            Call::Unchecked => &mut self.unchecked,
            Call::Control => &mut self.control,
            Call::Checked => &mut self.checked,
        }
    }

    fn to_unchecked(&self, series: &Series) -> f64 {
        ratio(&series.stages, &self.unchecked.stages)
    }

    /// Cycles above the empty loop.
    fn over_empty(&self, series: &Series, clock: &Clock) -> Option<f64> {
        let pairs = series.stages.iter().zip(&self.empty.stages);
        clock.cycles(Summary::of(pairs.map(|(of, to)| of - to)).median)
    }

    fn rows(&self, key: bool, flows: u32, clock: &Clock) -> [Row; 4] {
        [
            ("empty", &self.empty),
            ("unchecked", &self.unchecked),
            ("control", &self.control),
            ("checked", &self.checked),
        ]
        .map(|(call, series)| {
            let Summary { median, spread, .. } = series.summary();
            let is_call = call != "empty";
            let over_empty = self.over_empty(series, clock).filter(|_| is_call);
            let to_unchecked = is_call.then(|| self.to_unchecked(series));
            Row {
                bench: "rfs",
                key: key.into(),
                flows,
                call,
                ns: rounded(median, 3),
                cycles: clock.cycles(median).map(|cycles| rounded(cycles, 2)),
                spread: rounded(spread, 3),
                over_empty: over_empty.map(|cycles| rounded(cycles, 2)),
                to_unchecked: to_unchecked.map(|ratio| rounded(ratio, 4)),
            }
        })
    }

    fn columns(&self, clock: &Clock) -> String {
        let cycles = |cycles: Option<f64>| match cycles {
            Some(cycles) => format!("{cycles:.2}"),
            None => "-".to_owned(),
        };
        let [empty, unchecked, checked] = [&self.empty, &self.unchecked, &self.checked]
            .map(|series| series.summary().median)
            .map(|ns| (ns, cycles(clock.cycles(ns))));
        format!(
            " {:>11.2} {:>7} {:>12.2} {:>7} {:>11.2} {:>7} {:>7.2} {:>9.3} {:>7.3} {:>10}",
            empty.0,
            empty.1,
            unchecked.0,
            unchecked.1,
            checked.0,
            checked.1,
            self.checked.summary().spread,
            self.to_unchecked(&self.checked),
            self.to_unchecked(&self.control),
            cycles(self.over_empty(&self.checked, clock)),
        )
    }

    fn plot_row(&self, flows: u32) -> plot::Row {
        let summaries = [&self.checked, &self.unchecked, &self.empty].map(Series::summary);
        plot::Row {
            label: crate::numbers::counted(flows.into(), "flow"),
            bars: summaries.map(Some).to_vec(),
            notes: vec![
                format!("{:.3}", self.to_unchecked(&self.checked)),
                format!("{:.3}", self.to_unchecked(&self.control)),
            ],
        }
    }
}

/// Above the bars.
fn heading(key: bool) -> String {
    match key {
        true => "Static key on".to_owned(),
        false => "Static key off".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_apart() {
        let series = Series {
            stages: vec![123_456_789.0],
            ..Series::default()
        };
        let measured = Measured {
            empty: series.clone(),
            unchecked: series.clone(),
            control: series.clone(),
            checked: series,
        };
        let columns = measured.columns(&Clock::new());
        assert_eq!(columns.split_whitespace().count(), 10, "{columns}");
        assert!(columns.starts_with(' '), "{columns}");
    }

    #[test]
    fn what_is_counted_is_done() {
        let clock = Clock::new();
        for flows in [1, 300] {
            let bed = Bed::new(flows);
            for key in [true, false] {
                for call in Call::ALL {
                    bed.run(&clock, key, call, 1).expect("as the key says");
                    let (used, entries) = bed.stack.sock_flows();
                    assert_eq!(entries, if key { ENTRIES as usize } else { 0 });
                    assert!(used <= flows as usize);
                }
            }
        }
    }
}
