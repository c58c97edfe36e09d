//! `forebay bench cores`: what a second worker brings, and steering packets between the two.

mod bare;
mod bed;
mod reader;
mod traffic;

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::bare::Bare;
use self::bed::{Bed, Round};
pub(super) use self::reader::{pin, processors};
use super::net::Family;
use super::plot::{self, Plot, PlotArgs, Words};
use super::report::{self, rounded};
use super::runner::{self, Chunk, Series};
use super::statistics::{Summary, ratio};
use crate::clock::Clock;
use crate::random::Random;

/// Forwarding and delivery by workers on one core and on two, with and without steering.
///
/// Devices in memory make packets as fast as the workers ask for them, for a while, and look at each
/// that comes out; applications read what is for sockets. What they cost is part of the figures. The
/// settings take turns. Workers and readers share the first two cores that this process may use;
/// where other programs are about, give it a realtime class.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench cores                                  everything
  forebay bench cores --traffic forward --family 4     one worker beside two
  forebay bench cores --traffic flood --workers 2      steering onto the reader's core
  chrt -f 50 forebay bench cores                       with other programs out of the way")]
pub(crate) struct CoresArgs {
    /// Only this family.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(["4", "6"]))]
    family: Vec<String>,

    /// Only this traffic.
    #[arg(long, value_name = "TRAFFIC", value_delimiter = ',')]
    traffic: Vec<Traffic>,

    /// Only with so many workers.
    #[arg(long, value_name = "1|2", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    workers: Vec<u8>,

    /// Only with RPS off, or on.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=1))]
    rps: Vec<u8>,

    /// Only with RFS off, or on.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=1))]
    rfs: Vec<u8>,

    /// Rounds that each setting is measured in.
    #[arg(long, value_name = "N", default_value_t = 11, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,

    /// How long packets come in in a round, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(5..=60_000))]
    window: u32,

    #[command(flatten)]
    plot: PlotArgs,

    /// Print JSON, an object a row.
    #[arg(short, long)]
    json: bool,
}

/// What the packets are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Traffic {
    /// Transit of 128 flows, by as many queues as there are workers.
    Forward,
    /// Two flows, by as many queues as there are workers, each to a reader on the core where the
    /// other one's come in.
    Udp,
    /// One flow by one queue, to a reader on the other core.
    Flood,
    /// The same to a reader that moves to the other core every 10 ms.
    Moving,
}

/// What is measured beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Setting {
    traffic: Traffic,
    workers: u8,
    #[serde(serialize_with = "as_number")]
    rps: bool,
    #[serde(serialize_with = "as_number")]
    rfs: bool,
    #[serde(rename = "row", skip_serializing_if = "Role::is_plain")]
    role: Role,
}

/// What a setting is measured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    Plain,
    /// The setting before it under another name: what the machine can't tell apart.
    Control,
    /// The devices without a stack between them: what the machine gives to a second core.
    Bare,
}

/// What a round is made with.
enum Subject {
    Bed(Box<Bed>),
    Bare(Bare),
}

const PLOT: Words = Words {
    title: "Packets by workers on one core and on two",
    caption: &[
        "Forwarding, and datagrams to their readers, in memory. Less is better.",
        "Bars are medians, whiskers the middle half. Nanoseconds are one machine's; ratios carry over:",
        "the throughput to that of one worker, and to that of as many without steering.",
    ],
    unit: "ns a packet, of all workers together",
    kinds: &["throughput"],
    notes: &["to one", "to plain"],
};

const LEGEND: &str = "\
traffic        forward: 128 flows; udp: two flows and two readers; flood: one flow to a reader on the
               other core; moving: to one that changes cores every 10 ms
bare           the devices of forward without a stack between them, on threads that share nothing:
               no more than what two of them do, to what one does, can two workers reach here
ns, spread, Mpps
               median over rounds of what a packet that arrived took, all workers together; its
               interquartile range in ns; million packets a second
to one         the throughput to that of one worker: median of the ratios of rounds
best           the same of the quickest round of either
to plain       the same to that of as many workers without RPS and RFS; ~ is that setting measured
               under another name: what the machine can't tell apart
fair           Jain's index over the flows: 1 if all got the same
crossed        packets in a hundred that one worker handed to the other
at home        packets in a hundred that were handled on the core where their reader was
lost           packets in a hundred that found a queue full: all of them are counted drops
";

const HEAD: &str = "family  traffic workers rps rfs      ns  spread    Mpps  to one   best to plain   fair crossed at home   lost";

/// What was measured of a setting.
#[derive(Debug, Clone, Default)]
struct Measured {
    series: Series,
    /// Of all rounds together.
    total: Round,
}

/// A row of JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    #[serde(flatten)]
    setting: Setting,
    ns: f64,
    mpps: f64,
    /// Interquartile range in nanoseconds.
    spread: f64,
    /// Throughput to that of one worker, and of as many without steering.
    to_one: Option<f64>,
    /// The same of the quickest rounds: what disturbs a round can only slow it down.
    best_to_one: Option<f64>,
    to_plain: Option<f64>,
    fairness: f64,
    /// Shares of the packets.
    crossed: f64,
    at_home: Option<f64>,
    lost: f64,
}

pub(crate) fn run(args: &CoresArgs) -> anyhow::Result<ExitCode> {
    let processors = processors()?;
    ensure!(
        processors.len() > 1,
        "this process may use one core only, and two are to be measured"
    );
    let clock = Clock::new();
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !args.json {
        report::line(LEGEND)?;
        report::line(HEAD)?;
    }
    for family in args.families() {
        for traffic in Traffic::ALL {
            let settings = args.settings(traffic);
            let measured = measure(args, family, &settings, &processors, &clock)?;
            for row in rows(family, &settings, &measured) {
                if args.json {
                    report::json(&row)?;
                } else {
                    report::line(&row.columns())?;
                }
                plot.add(
                    format!("IPv{family}, {traffic}"),
                    row.plot_row(&measured, &settings),
                );
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl CoresArgs {
    fn families(&self) -> Vec<Family> {
        let is_wanted =
            |family: &Family| self.family.is_empty() || self.family.contains(&family.to_string());
        [Family::V4, Family::V6]
            .into_iter()
            .filter(is_wanted)
            .collect()
    }

    /// What is measured with this traffic, in turn.
    fn settings(&self, traffic: Traffic) -> Vec<Setting> {
        let is_wanted = |asked: &[u8], value: u8| asked.is_empty() || asked.contains(&value);
        let setting = |(workers, rps, rfs, role)| Setting {
            traffic,
            workers,
            rps,
            rfs,
            role,
        };
        let all = [
            (1, false, false, Role::Bare),
            (2, false, false, Role::Bare),
            (1, false, false, Role::Plain),
            (2, false, false, Role::Plain),
            (2, false, false, Role::Control),
            (2, true, false, Role::Plain),
            (2, false, true, Role::Plain),
        ]
        .map(setting);
        let is_wanted = |setting: &Setting| {
            (self.traffic.is_empty() || self.traffic.contains(&traffic))
                && is_wanted(&self.workers, setting.workers)
                && is_wanted(&self.rps, setting.rps.into())
                && is_wanted(&self.rfs, setting.rfs.into())
                // Nobody reads what is forwarded.
                && !(setting.rfs && traffic == Traffic::Forward)
                && !(setting.role == Role::Bare && traffic != Traffic::Forward)
        };
        all.into_iter().filter(is_wanted).collect()
    }
}

fn measure(
    args: &CoresArgs,
    family: Family,
    settings: &[Setting],
    processors: &[usize],
    clock: &Clock,
) -> anyhow::Result<Vec<Measured>> {
    let subjects = settings
        .iter()
        .map(|setting| Subject::new(family, *setting, processors));
    let mut subjects = subjects.collect::<anyhow::Result<Vec<_>>>()?;
    let mut measured = vec![Measured::default(); settings.len()];
    let turns: Vec<usize> = (0..settings.len()).collect();
    let window = Duration::from_millis(args.window.into());
    let series = runner::run(&turns, args.rounds, clock, &mut Random::new(2), |nth| {
        let round = subjects[nth].run(window, processors)?;
        let nanos = window.as_nanos() as f64 / round.arrived() as f64;
        measured[nth].total.add(&round);
        Ok(Chunk {
            stages: clock.ticks(nanos),
            ..Chunk::default()
        })
    })?;
    for (measured, series) in measured.iter_mut().zip(series) {
        measured.series = series;
    }
    Ok(measured)
}

fn rows(family: Family, settings: &[Setting], measured: &[Measured]) -> Vec<Row> {
    let like = |wanted: Setting| {
        let nth = settings.iter().position(|setting| *setting == wanted)?;
        measured.get(nth)
    };
    let row = |(setting, measured): (&Setting, &Measured)| {
        let plain = Setting {
            rps: false,
            rfs: false,
            role: match setting.role {
                Role::Control => Role::Plain,
                role => role,
            },
            ..*setting
        };
        let one = like(Setting {
            workers: 1,
            ..plain
        });
        let throughput_to =
            |other: &Measured| rounded(ratio(&other.series.stages, &measured.series.stages), 4);
        let Summary { median, spread, .. } = measured.series.summary();
        let best_to = |other: &Measured| rounded(other.quickest() / measured.quickest(), 4);
        let one = one.filter(|_| setting.workers > 1);
        let total = &measured.total;
        let share = |of: u64, all: u64| rounded(of as f64 / all.max(1) as f64, 4);
        Row {
            bench: "cores",
            family: family.number(),
            setting: *setting,
            ns: rounded(median, 2),
            mpps: rounded(1_000.0 / median, 2),
            spread: rounded(spread, 2),
            to_one: one.map(throughput_to),
            best_to_one: one.map(best_to),
            to_plain: like(plain).filter(|_| *setting != plain).map(throughput_to),
            fairness: rounded(fairness(&total.by_flow), 4),
            crossed: share(total.crossed, total.handled),
            at_home: total.at_home.map(|(home, all)| share(home, all)),
            lost: share(total.sent - total.arrived(), total.sent),
        }
    };
    settings.iter().zip(measured).map(row).collect()
}

/// Jain's index: 1 if all have the same, 1/n if one of n has everything.
fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares).max(f64::MIN_POSITIVE)
}

impl Round {
    fn add(&mut self, other: &Self) {
        self.by_flow.resize(other.by_flow.len(), 0);
        for (sum, packets) in self.by_flow.iter_mut().zip(&other.by_flow) {
            *sum += packets;
        }
        self.sent += other.sent;
        self.handled += other.handled;
        self.crossed += other.crossed;
        if let Some((home, all)) = other.at_home {
            let (home_before, before) = self.at_home.unwrap_or_default();
            self.at_home = Some((home_before + home, before + all));
        }
    }
}

impl Measured {
    /// What a packet took in the round that was disturbed least.
    fn quickest(&self) -> f64 {
        self.series.stages.iter().copied().fold(f64::MAX, f64::min)
    }
}

impl Subject {
    fn new(family: Family, setting: Setting, processors: &[usize]) -> anyhow::Result<Self> {
        Ok(match setting.role {
            Role::Bare => Self::Bare(Bare::new(family, setting.workers)),
            _ => Self::Bed(Box::new(Bed::new(family, setting, processors)?)),
        })
    }

    fn run(&mut self, window: Duration, processors: &[usize]) -> anyhow::Result<Round> {
        match self {
            Self::Bed(bed) => bed.run_some(window, processors),
            Self::Bare(bare) => bare.run(window, processors),
        }
    }
}

impl Role {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

impl Traffic {
    const ALL: [Self; 4] = [Self::Forward, Self::Udp, Self::Flood, Self::Moving];
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Udp => "udp",
            Self::Flood => "flood",
            Self::Moving => "moving",
        })
    }
}

impl Row {
    fn columns(&self) -> String {
        let Setting {
            traffic,
            workers,
            rps,
            rfs,
            role,
        } = self.setting;
        let name = match role {
            Role::Plain => traffic.to_string(),
            Role::Control => format!("~{traffic}"),
            Role::Bare => "bare".to_owned(),
        };
        let or_dash =
            |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        format!(
            "{:>6} {name:>8} {workers:>7} {:>3} {:>3} {:>7.1} {:>7.1} {:>7.2} {:>7} {:>6} {:>8} {:>6.3} {:>7} {:>7} {:>6}",
            self.family,
            u8::from(rps),
            u8::from(rfs),
            self.ns,
            self.spread,
            self.mpps,
            or_dash(self.to_one),
            or_dash(self.best_to_one),
            or_dash(self.to_plain),
            self.fairness,
            percent(self.crossed),
            self.at_home.map_or_else(|| "-".to_owned(), percent),
            percent(self.lost),
        )
    }

    fn plot_row(&self, measured: &[Measured], settings: &[Setting]) -> plot::Row {
        let nth = settings.iter().position(|setting| *setting == self.setting);
        let bar = nth.and_then(|nth| measured.get(nth));
        let note = |ratio: Option<f64>| ratio.map_or_else(String::new, |r| format!("{r:.3}"));
        plot::Row {
            label: self.setting.label(),
            bars: vec![bar.map(|measured| measured.series.summary())],
            notes: vec![note(self.to_one), note(self.to_plain)],
        }
    }
}

impl Setting {
    /// Beside its bar.
    fn label(&self) -> String {
        let workers = crate::numbers::counted(self.workers.into(), "worker");
        let steering = match (self.rps, self.rfs, self.role) {
            (true, ..) => ", RPS",
            (_, true, _) => ", RFS",
            (_, _, Role::Control) => " once more",
            (_, _, Role::Bare) => ", no stack",
            _ => "",
        };
        workers + steering
    }
}

fn as_number<S: serde::Serializer>(flag: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8((*flag).into())
}

#[cfg(test)]
mod tests;
