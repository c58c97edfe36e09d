//! `forebay bench udp`: from a device to the application.

use std::fmt;
use std::process::ExitCode;
use std::thread;

use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Common;
use super::bed::{Bed, Call, Own, Side};
use super::net::Family;
use super::plot::{Plot, PlotArgs, Words};
use super::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use super::runner;
use crate::clock::Clock;
use crate::numbers::counted;
use crate::random::Random;

/// UDP datagrams from a device to the application that reads them, in memory.
///
/// Datagrams of 18 bytes for random ones of the sockets are timed from the device's batch until their
/// payloads are in the application's buffers; the application looks at each. With one core, batch and
/// reads take turns. With two, an application on the other one asks its sockets again and again, and
/// timed is a chunk from its first batch to its last datagram. Early demux is on and off.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench udp                              what tells most, within a minute
  forebay bench udp --cores 1 --sockets 1        one socket, one core
  forebay bench udp --read single,batch --json   reads of one and of many, for a program
  forebay bench udp --svg udp.svg                to be looked at")]
pub(crate) struct UdpArgs {
    /// Open sockets; 1, 10000 and 1000000 unless said, and 1 with two cores or batches.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sockets: Vec<u32>,

    /// Cores: one does both, or the second one reads.
    #[arg(long, value_name = "1|2", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    cores: Vec<u8>,

    /// Whether the sockets are connected, as early demux needs it.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = PossibleValuesParser::new(["0", "1"]))]
    connected: Vec<String>,

    /// Datagrams that a read takes: one, or as many as are there.
    #[arg(long, value_name = "READ", value_delimiter = ',')]
    read: Vec<Read>,

    #[command(flatten)]
    plot: PlotArgs,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Read {
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

/// Under which conditions a row was measured.
#[derive(Debug, Clone, Copy, Serialize)]
struct Place {
    cores: u8,
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
    payload: u8,
    #[serde(flatten)]
    figures: Figures,
}

pub(crate) fn run(args: &UdpArgs) -> anyhow::Result<ExitCode> {
    let cores = args.cores()?;
    let clock = Clock::new();
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !args.common.json {
        report::line(LEGEND)?;
        report::line(&format!("family cores connected  sockets   read{COLUMNS}"))?;
    }
    for family in args.common.families() {
        for connected in args.connected() {
            let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1)?;
            for sockets in args.sockets() {
                match connected {
                    0 => bed.grow_unconnected(sockets as usize)?,
                    _ => bed.grow_connected(sockets as usize)?,
                }
                bed.greet_sockets(&clock)?;
                for place in args.places(&cores, connected, sockets) {
                    measure(&args.common, &mut bed, place, &clock, &mut plot)?;
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
        let is_wanted = |connected: &u8| {
            self.connected.is_empty() || self.connected.contains(&connected.to_string())
        };
        [1, 0].into_iter().filter(is_wanted).collect()
    }

    /// From few to many, as they are opened.
    fn sockets(&self) -> Vec<u32> {
        let all = [1, 10_000, 1_000_000];
        let mut sockets = self.common.values(&self.sockets, &all, &all);
        sockets.sort_unstable();
        sockets
    }

    /// Where a million sockets share the datagrams, a batch read finds one; and what it costs to go
    /// from core to core shows with one socket.
    fn places(&self, cores: &[u8], connected: u8, sockets: u32) -> Vec<Place> {
        let all = [Read::Single, Read::Batch];
        let is_few = sockets == 1 || self.common.full;
        let mut places = Vec::new();
        for cores in cores {
            for read in self.common.values(&self.read, &all, &all) {
                let is_told = (*cores == 1 || !self.cores.is_empty())
                    && (read == Read::Single || !self.read.is_empty());
                if is_few || is_told {
                    places.push(Place {
                        cores: *cores,
                        connected,
                        sockets,
                        read,
                    });
                }
            }
        }
        places
    }
}

fn measure(
    common: &Common,
    bed: &mut Bed,
    place: Place,
    clock: &Clock,
    plot: &mut Plot,
) -> anyhow::Result<()> {
    let is_connected = place.connected == 1;
    let call = match place.read {
        Read::Single => Call::Single,
        Read::Batch => Call::Batch,
    };
    // Off twice: the second time is the control.
    let demux = [true, false, false];
    let mut random = Random::new(2);
    let series = runner::run(&demux, common.rounds(30), clock, &mut random, |on| {
        bed.set("net.ipv4.ip_early_demux", on.into())?;
        match place.cores {
            1 => bed.run_receive(clock, call, is_connected),
            _ => bed.run_receive_apart(clock, call, is_connected),
        }
    })?;
    let [on, off, again] = series.as_slice() else {
        return Ok(());
    };
    let cell = Cell {
        on,
        off,
        again,
        floor: None,
    };
    let family = bed.family();
    plot.add(place.heading(family), cell.plot_row(place.label()));
    if !common.json {
        let columns = cell.columns(clock);
        report::line(&format!("{family:>6}{place}{columns}"))?;
        return Ok(());
    }
    for figures in cell.figures(clock) {
        report::json(&Row {
            bench: "udp",
            family: family.number(),
            place,
            payload: 18,
            figures,
        })?;
    }
    Ok(())
}

impl Place {
    /// Above its bars.
    fn heading(&self, family: Family) -> String {
        let connected = match self.connected {
            0 => "not connected",
            _ => "connected",
        };
        let cores = counted(self.cores.into(), "core");
        format!("IPv{family}, {connected}, {cores}")
    }

    /// Beside its bars.
    fn label(&self) -> String {
        let sockets = counted(self.sockets.into(), "socket");
        format!("{sockets}, {} reads", self.read)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            connected,
            sockets,
            read,
        } = self;
        write!(f, "{cores:>6}{connected:>10}{sockets:>9}{read:>7}")
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
