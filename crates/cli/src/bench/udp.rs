//! `forebay bench udp`: from a device to the application.

use std::fmt;
use std::iter;
use std::process::ExitCode;
use std::thread;

use anyhow::{bail, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Common;
use super::bed::{Bed, Call, Own, Side, Way};
use super::kernel;
use super::net::Family;
use super::plot::{Plot, PlotArgs, Words};
use super::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use super::runner::{self, Chunk, Series};
use super::statistics::ratio;
use crate::clock::Clock;
use crate::numbers::counted;
use crate::random::Random;

/// UDP datagrams from a device to the application that reads them, in memory.
///
/// Datagrams of 18 bytes for random ones of the sockets are timed from the device's batch until their
/// payloads are in the application's buffers; the application looks at each. With one core, batch and
/// reads take turns. With two, an application on the other one asks its sockets again and again, and
/// timed is a chunk from its first batch to its last datagram. Early demux is on and off, and so is
/// the prefetch of a socket's receive memory.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench udp                              what tells most, within a minute
  forebay bench udp --cores 1 --sockets 1        one socket, one core
  forebay bench udp --cores 2 --queues 1,2       a second core reads, and polls a queue as well
  forebay bench udp --prefetch 1                 with the prefetch only, in half the time
  forebay bench udp --read single,batch --json   reads of one and of many, for a program
  forebay bench udp --svg udp.svg                to be looked at
  forebay bench udp --kernel                     beside this kernel's sockets, as root")]
pub(crate) struct UdpArgs {
    /// Open sockets: 1, 10000 and 1000000 unless said; with two cores 1, and 1000000 connected ones.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sockets: Vec<u32>,

    /// Cores: one does both, or the second one reads.
    #[arg(long, value_name = "1|2", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    cores: Vec<u8>,

    /// Receive queues of the device: one core polls both, or each of two cores one. 1 unless said;
    /// both with two cores.
    #[arg(long, value_name = "1|2", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    queues: Vec<u8>,

    /// Whether the sockets are connected, as early demux needs it.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = PossibleValuesParser::new(["0", "1"]))]
    connected: Vec<String>,

    /// Datagrams that a read takes: one, or as many as are there; unless said one, and with one core
    /// and one connected socket both.
    #[arg(long, value_name = "READ", value_delimiter = ',')]
    read: Vec<Read>,

    /// net.forebay.prefetch_rmem: whether a socket's receive memory is fetched before it is needed;
    /// both unless said.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = PossibleValuesParser::new(["0", "1"]))]
    prefetch: Vec<String>,

    #[command(flatten)]
    plot: PlotArgs,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Read {
    Single,
    Batch,
}

const PLOT: Words = Words {
    title: "UDP from a device to the application",
    caption: &[
        "Datagrams of 18 bytes for random sockets, in memory. Less is better.",
        "Bars are medians, whiskers the middle half. Nanoseconds are one machine's; ratios carry over:",
        "on/off is what early demux leaves of the time, off/off how exactly that is known.",
    ],
    unit: "ns a datagram",
    kinds: &[KINDS[0], KINDS[1]],
    notes: &[NOTES[0], NOTES[1]],
};

/// What the last column is.
const UDP_LEGEND: &str = "\
prefetch 1/0   what the prefetch leaves of the time, early demux on: median of the ratios of chunks
               measured side by side; off/off tells how exactly that is known, too
";

/// Early demux on, off, and off once more for the control.
const DEMUX: [bool; 3] = [true, false, false];

/// Under which conditions a row was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Place {
    cores: u8,
    queues: u8,
    connected: u8,
    sockets: u32,
    read: Read,
}

/// A row of JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    #[serde(flatten)]
    place: Place,
    prefetch: u8,
    payload: u8,
    #[serde(flatten)]
    figures: Figures,
    /// Time with the prefetch to time without it, early demux as the row says.
    prefetch_1_0: Option<f64>,
}

/// What takes turns in one place.
#[derive(Debug, Clone, Copy)]
struct Setting {
    prefetch: u8,
    early_demux: bool,
}

/// The same question to the kernel, as far as both can be asked.
pub(crate) fn run_kernel(args: &UdpArgs) -> anyhow::Result<ExitCode> {
    let is_plain = args.sockets.is_empty()
        && args.cores.is_empty()
        && args.queues.is_empty()
        && args.prefetch.is_empty();
    ensure!(
        is_plain,
        "with --kernel there are two cores, one queue and one socket: --sockets, --cores, --queues \
         and --prefetch make no sense"
    );
    ensure!(
        thread::available_parallelism()?.get() >= 2,
        "--kernel needs two cores, and this process may use one only"
    );
    let all = [Read::Single, Read::Batch];
    kernel::run_udp(&kernel::UdpQuestion {
        common: &args.common,
        plot: &args.plot,
        connected: args.connected(),
        reads: args.common.values(&args.read, &all, &all),
    })
}

pub(crate) fn run(args: &UdpArgs) -> anyhow::Result<ExitCode> {
    let cores = args.cores()?;
    let clock = Clock::new();
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !args.common.json {
        report::line(&format!("{LEGEND}{UDP_LEGEND}"))?;
        report::line(&format!(
            "family cores queues connected  sockets   read prefetch{COLUMNS} prefetch 1/0"
        ))?;
    }
    for family in args.common.families() {
        for connected in args.connected() {
            let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1)?;
            for sockets in args.sockets() {
                let places = args.places(&cores, connected, sockets);
                if places.is_empty() {
                    continue;
                }
                match connected {
                    0 => bed.grow_unconnected(sockets as usize)?,
                    _ => bed.grow_connected(sockets as usize)?,
                }
                bed.greet_sockets(&clock)?;
                for place in places {
                    measure(args, &mut bed, place, &clock, &mut plot)?;
                }
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl UdpArgs {
    /// On one core, those two would wait for each other.
    fn cores(&self) -> anyhow::Result<Vec<u8>> {
        let mut cores = self.common.values(&self.cores, &[1, 2], &[1, 2]);
        if thread::available_parallelism()?.get() < 2 {
            if self.cores.contains(&2) {
                bail!("--cores 2: this process may use one core only");
            }
            cores.retain(|cores| *cores == 1);
        }
        Ok(cores)
    }

    fn connected(&self) -> Vec<u8> {
        chosen(&self.connected)
    }

    /// From few to many, as they are opened.
    fn sockets(&self) -> Vec<u32> {
        let all = [1, 10_000, 1_000_000];
        let mut sockets = self.common.values(&self.sockets, &all, &all);
        sockets.sort_unstable();
        sockets
    }

    /// What is measured while there are so many sockets.
    fn places(&self, cores: &[u8], connected: u8, sockets: u32) -> Vec<Place> {
        let mut places = Vec::new();
        for cores in cores {
            for queues in self.common.values(&self.queues, &[1, 2], &[1, 2]) {
                for read in [Read::Single, Read::Batch] {
                    places.push(Place {
                        cores: *cores,
                        queues,
                        connected,
                        sockets,
                        read,
                    });
                }
            }
        }
        places.retain(|place| self.is_wanted(place));
        places
    }

    /// Asked for, or telling: where many sockets share the datagrams, a batch read finds one; and
    /// what it costs to go from core to core shows with one socket, or with so many that no cache
    /// holds them.
    fn is_wanted(&self, place: &Place) -> bool {
        if !self.read.is_empty() && !self.read.contains(&place.read) {
            return false;
        }
        let is_connected = place.connected == 1;
        let is_one = place.sockets == 1;
        let is_apart = is_one || is_connected && place.sockets == 1_000_000;
        let says = |is_asked: bool, is_telling: bool| self.common.full || is_asked || is_telling;
        says(!self.cores.is_empty(), place.cores == 1 || is_apart)
            && says(
                !self.queues.is_empty(),
                place.queues == 1 || place.cores == 2 && is_apart,
            )
            && says(
                !self.read.is_empty(),
                place.read == Read::Single
                    || place.cores == 1 && place.queues == 1 && is_one && is_connected,
            )
    }
}

/// Of 1 and 0, in this order, those that were asked for, or both.
fn chosen(asked: &[String]) -> Vec<u8> {
    let is_wanted = |value: &u8| asked.is_empty() || asked.contains(&value.to_string());
    [1, 0].into_iter().filter(is_wanted).collect()
}

fn measure(
    args: &UdpArgs,
    bed: &mut Bed,
    place: Place,
    clock: &Clock,
    plot: &mut Plot,
) -> anyhow::Result<()> {
    let common = &args.common;
    let prefetches = chosen(&args.prefetch);
    let settings = prefetches.iter().flat_map(|prefetch| {
        DEMUX.map(|early_demux| Setting {
            prefetch: *prefetch,
            early_demux,
        })
    });
    let settings: Vec<Setting> = settings.collect();
    let mut random = Random::new(2);
    let rounds = common.rounds(30);
    let series = runner::run(&settings, rounds, clock, &mut random, |setting| {
        chunk(bed, place, setting, clock)
    })?;
    let family = bed.family();
    let (by_prefetch, _) = series.as_chunks::<3>();
    let without = by_prefetch.get(1);
    for (prefetch, with) in prefetches.iter().zip(by_prefetch) {
        let [on, off, again] = with;
        let cell = Cell {
            on,
            off,
            again,
            floor: None,
        };
        let without = without.filter(|_| *prefetch == 1);
        plot.add(place.heading(family), cell.plot_row(place.label(*prefetch)));
        if !common.json {
            let columns = cell.columns(clock);
            let ratio = match without {
                Some([without, ..]) => format!(" {:>12.3}", ratio(&on.stages, &without.stages)),
                None => String::new(),
            };
            report::line(&format!("{family:>6}{place}{prefetch:>9}{columns}{ratio}"))?;
            continue;
        }
        let ratios =
            ratios(with, without).map(|ratio| ratio.map(|ratio| report::rounded(ratio, 4)));
        // The first three are those of the settings.
        let ratios = ratios.into_iter().chain(iter::repeat(None));
        for (figures, prefetch_1_0) in cell.figures(clock).into_iter().zip(ratios) {
            report::json(&Row {
                bench: "udp",
                family: family.number(),
                place,
                prefetch: *prefetch,
                payload: 18,
                figures,
                prefetch_1_0,
            })?;
        }
    }
    Ok(())
}

fn chunk(bed: &mut Bed, place: Place, setting: Setting, clock: &Clock) -> anyhow::Result<Chunk> {
    bed.set("net.ipv4.ip_early_demux", setting.early_demux.into())?;
    bed.set("net.forebay.prefetch_rmem", setting.prefetch.into())?;
    let way = Way {
        call: place.read.call(),
        is_connected: place.connected == 1,
        queues: place.queues.into(),
    };
    match place.cores {
        1 => bed.run_receive(clock, way),
        _ => bed.run_receive_apart(clock, way),
    }
}

/// What the prefetch leaves of the time of each setting.
fn ratios(with: &[Series; 3], without: Option<&[Series; 3]>) -> [Option<f64>; 3] {
    let Some(without) = without else {
        return [None; 3];
    };
    let mut without = without.iter();
    with.each_ref().map(|with| {
        let without = without.next()?;
        Some(ratio(&with.stages, &without.stages))
    })
}

impl Read {
    pub(super) fn call(self) -> Call {
        match self {
            Self::Single => Call::Single,
            Self::Batch => Call::Batch,
        }
    }
}

impl Place {
    /// Above its bars.
    fn heading(&self, family: Family) -> String {
        let connected = match self.connected {
            0 => "not connected",
            _ => "connected",
        };
        let cores = counted(self.cores.into(), "core");
        match self.queues {
            1 => format!("IPv{family}, {connected}, {cores}"),
            queues => format!("IPv{family}, {connected}, {cores}, {queues} queues"),
        }
    }

    /// Beside its bars.
    fn label(&self, prefetch: u8) -> String {
        let sockets = counted(self.sockets.into(), "socket");
        match prefetch {
            0 => format!("{sockets}, {} reads, no prefetch", self.read),
            _ => format!("{sockets}, {} reads", self.read),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            queues,
            connected,
            sockets,
            read,
        } = self;
        write!(
            f,
            "{cores:>6}{queues:>7}{connected:>10}{sockets:>9}{read:>7}"
        )
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Single => "single",
            Self::Batch => "batch",
        })
    }
}
