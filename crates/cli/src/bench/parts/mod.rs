//! `forebay bench parts`: what the parts cost that only several cores need.

mod crossing;
mod flows;

use std::fmt;
use std::hint::black_box;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use forebay::rcu::{Domain, Rcu};
use serde::Serialize;

use self::crossing::{handover, line, wake_up};
use self::flows::Flows;
use super::cores::processors;
use super::report::{self, rounded};
use super::runner::{self, Chunk, Series};
use super::statistics::{Summary, ratio};
use crate::clock::Clock;
use crate::random::Random;

/// Guards that a chunk takes.
const GUARDS: u32 = 65_536;

/// The parts of which steering between cores is made, each by itself.
///
/// A guard; a cache line that goes to another core; packets that are handed to another core, in
/// bursts; waking a thread that sleeps on another core; and a port that remembers by which of its
/// queues flows come, with few flows and with a million. The settings take turns. The first two cores
/// are used that this process may use.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench parts                everything
  forebay bench parts --rounds 101   for longer")]
pub(crate) struct PartsArgs {
    /// Rounds that each part is measured in.
    #[arg(long, value_name = "N", default_value_t = 21, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,

    /// Print JSON, an object a row.
    #[arg(short, long)]
    json: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Guard,
    Line,
    /// By the core itself, in bursts of so many packets.
    Own(usize),
    Give(usize),
    TakeUp(usize),
    WakerCost,
    WakeUp,
    /// So many flows through a port, remembered or not.
    Port {
        flows: u32,
        remembers: bool,
    },
}

const LEGEND: &str = "\
ns, cycles     median over rounds, of one guard, packet or wake-up
spread         interquartile range in ns
to             the time to that of the part named behind it: median of the ratios of rounds
";

const HEAD: &str = "part                          ns    cycles   spread      to";

/// A row of JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    part: String,
    ns: f64,
    cycles: Option<f64>,
    /// Interquartile range in nanoseconds.
    spread: f64,
    /// The time to that of `than`.
    to: Option<f64>,
    than: Option<String>,
}

pub(crate) fn run(args: &PartsArgs) -> anyhow::Result<ExitCode> {
    let processors = processors()?;
    ensure!(
        processors.len() > 1,
        "this process may use one core only, and two are to be measured"
    );
    let clock = Clock::new();
    let mut ports = [false, true].map(Flows::new);
    for port in &mut ports {
        port.prepare()?;
    }
    let mut order = Random::new(2);
    let series = runner::run(&Part::ALL, args.rounds, &clock, &mut order, |part| {
        let ticks = match part {
            Part::Guard => guards(&clock),
            Part::Line => line(&clock, &processors)?,
            Part::Own(burst) => handover(&clock, &processors, burst)?.own,
            Part::Give(burst) => handover(&clock, &processors, burst)?.give,
            Part::TakeUp(burst) => handover(&clock, &processors, burst)?.take_up,
            Part::WakerCost => wake_up(&clock, &processors)?.cost,
            Part::WakeUp => wake_up(&clock, &processors)?.delay,
            Part::Port { flows, remembers } => ports[usize::from(remembers)].run(&clock, flows)?,
        };
        Ok(Chunk {
            stages: ticks,
            ..Chunk::default()
        })
    })?;
    if !args.json {
        report::line(LEGEND)?;
        report::line(HEAD)?;
    }
    for (part, measured) in Part::ALL.into_iter().zip(&series) {
        let row = row(part, measured, &series, &clock);
        if args.json {
            report::json(&row)?;
        } else {
            report::line(&row.columns())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ticks of one guard, and of what is read under it.
fn guards(clock: &Clock) -> f64 {
    let domain = Domain::new();
    let (value, reader) = (Rcu::new(&domain, 7), domain.reader());
    let start = clock.now();
    for _ in 0..GUARDS {
        let guard = reader.guard();
        black_box(value.read(&guard));
    }
    clock.now().wrapping_sub(start) as f64 / f64::from(GUARDS)
}

fn row(part: Part, measured: &Series, all: &[Series], clock: &Clock) -> Row {
    let Summary { median, spread, .. } = measured.summary();
    let than = part.than();
    let other = than.and_then(|than| {
        let nth = Part::ALL.iter().position(|part| *part == than)?;
        all.get(nth)
    });
    Row {
        bench: "parts",
        part: part.to_string(),
        ns: rounded(median, 2),
        cycles: clock.cycles(median).map(|cycles| rounded(cycles, 1)),
        spread: rounded(spread, 2),
        to: other.map(|other| rounded(ratio(&measured.stages, &other.stages), 4)),
        than: than.map(|than| than.to_string()),
    }
}

impl Part {
    const ALL: [Self; 16] = [
        Self::Guard,
        Self::Line,
        Self::Own(1),
        Self::Give(1),
        Self::TakeUp(1),
        Self::Own(64),
        Self::Give(64),
        Self::TakeUp(64),
        Self::WakerCost,
        Self::WakeUp,
        Self::port(1, false),
        Self::port(4_096, false),
        Self::port(1_000_000, false),
        Self::port(1, true),
        Self::port(4_096, true),
        Self::port(1_000_000, true),
    ];

    const fn port(flows: u32, remembers: bool) -> Self {
        Self::Port { flows, remembers }
    }

    /// What it is to be compared with.
    fn than(self) -> Option<Self> {
        match self {
            Self::Give(burst) | Self::TakeUp(burst) => Some(Self::Own(burst)),
            Self::Port {
                flows,
                remembers: true,
            } => Some(Self::port(flows, false)),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Guard => write!(f, "guard"),
            Self::Line => write!(f, "line"),
            Self::Own(burst) => write!(f, "own {burst}"),
            Self::Give(burst) => write!(f, "give {burst}"),
            Self::TakeUp(burst) => write!(f, "take up {burst}"),
            Self::WakerCost => write!(f, "waker"),
            Self::WakeUp => write!(f, "wake-up"),
            Self::Port { flows, remembers } => {
                let kind = if remembers { "follow" } else { "port" };
                write!(f, "{kind} {flows}")
            }
        }
    }
}

impl Row {
    fn columns(&self) -> String {
        let cycles = self
            .cycles
            .map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.1}"));
        let to = match (self.to, &self.than) {
            (Some(to), Some(than)) => format!("{to:.3} {than}"),
            _ => "-".to_owned(),
        };
        format!(
            "{:<20} {:>11.2} {cycles:>9} {:>8.2} {to:>7}",
            self.part, self.ns, self.spread
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names_of_their_own() {
        let mut names: Vec<_> = Part::ALL.iter().map(Part::to_string).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Part::ALL.len());
        let compares = |part: Part| part.than().is_none_or(|than| Part::ALL.contains(&than));
        assert!(Part::ALL.into_iter().all(compares));
    }
}
