//! `forebay bench demux`: local delivery.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::Common;
use super::bed::{Bed, Own, Side};
use super::net::Family;
use super::plot::{Plot, PlotArgs, Words};
use super::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use super::runner;
use crate::clock::Clock;
use crate::numbers::counted;
use crate::random::Random;

/// Delivery to connected sockets in memory, with early demux on and off.
///
/// 64-byte datagrams for random ones of the sockets go through the stages on one core, from batches
/// of an interface to the sockets' queues; a datagram counts when its socket has received it. Their
/// sources are spread over all routes, which matters where `rp_filter` looks for the way back.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench demux                              what tells most, within a minute
  forebay bench demux --rp-filter 1 --rounds 300   what a socket's route saves
  forebay bench demux --svg demux.svg              to be looked at
  forebay bench demux --full --json > demux.json   everything, for a program")]
pub(crate) struct DemuxArgs {
    /// Open connected sockets; they take about 0.5 kB of memory each.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sockets: Vec<u32>,

    /// Routes, the default one included; in IPv6 at most 200000 of them unless said. They take about
    /// 0.5 kB of memory each.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    routes: Vec<u32>,

    /// Reverse-path filtering, which only IPv4 has.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=1))]
    rp_filter: Vec<u8>,

    #[command(flatten)]
    plot: PlotArgs,

    #[command(flatten)]
    common: Common,
}

const PLOT: Words = Words {
    title: "Delivery to connected sockets: what early demux saves",
    caption: &[
        "64-byte UDP datagrams for random sockets, in memory, on one core. Less is better.",
        "Bars are medians, whiskers the middle half. Nanoseconds are one machine's; ratios carry over:",
        "on/off is what early demux leaves of the time, off/off how exactly that is known.",
    ],
    unit: "ns a packet",
    kinds: &[KINDS[0], KINDS[1]],
    notes: &[NOTES[0], NOTES[1]],
};

/// Where a row belongs.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    sockets: u32,
    routes: u32,
    /// None in IPv6.
    rp_filter: Option<u8>,
    #[serde(flatten)]
    figures: Figures,
}

pub(crate) fn run(args: &DemuxArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::new();
    let common = &args.common;
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !common.json {
        report::line(LEGEND)?;
        report::line(&format!("family  sockets  routes rp_filter{COLUMNS}"))?;
    }
    for family in common.families() {
        let routes: &[u32] = match family {
            Family::V4 => &[1, 1_000_000],
            Family::V6 => &[1, 200_000],
        };
        let rp_filters: Vec<Option<u8>> = match family {
            Family::V4 => {
                let rp_filters = common.values(&args.rp_filter, &[0, 1], &[0, 1]);
                rp_filters.into_iter().map(Some).collect()
            }
            Family::V6 => vec![None],
        };
        for routes in common.values(&args.routes, routes, routes) {
            // Peers are chosen among the routes, which therefore come first.
            let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1)?;
            bed.grow_routes(routes as usize)?;
            let mut sockets =
                common.values(&args.sockets, &[1, 10_000, 1_000_000], &[1, 1_000_000]);
            sockets.sort_unstable();
            for sockets in sockets {
                bed.grow_connected(sockets as usize)?;
                for rp_filter in &rp_filters {
                    let place = Place {
                        sockets,
                        routes,
                        rp_filter: *rp_filter,
                    };
                    measure(common, &mut bed, &place, &clock, &mut plot)?;
                }
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Place {
    sockets: u32,
    routes: u32,
    /// None in IPv6.
    rp_filter: Option<u8>,
}

impl Place {
    /// Above its bars.
    fn heading(&self, family: Family) -> String {
        format!("IPv{family}, {}", counted(self.routes.into(), "route"))
    }

    /// Beside its bars.
    fn label(&self) -> String {
        let sockets = counted(self.sockets.into(), "socket");
        match self.rp_filter {
            Some(rp_filter) => format!("{sockets}, rp_filter {rp_filter}"),
            None => sockets,
        }
    }
}

fn measure(
    common: &Common,
    bed: &mut Bed,
    place: &Place,
    clock: &Clock,
    plot: &mut Plot,
) -> anyhow::Result<()> {
    if let Some(rp_filter) = place.rp_filter {
        bed.set("net.ipv4.conf.all.rp_filter", rp_filter.into())?;
    }
    bed.greet_sockets(clock)?;
    // Off twice: the second time is the control.
    let demux = [true, false, false];
    let mut random = Random::new(2);
    let series = runner::run(&demux, common.rounds(30), clock, &mut random, |on| {
        bed.set("net.ipv4.ip_early_demux", on.into())?;
        bed.run_mix(clock, 100)
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
    let Place {
        sockets,
        routes,
        rp_filter,
    } = *place;
    if !common.json {
        let rp_filter = rp_filter.map_or_else(|| "-".to_owned(), |value| value.to_string());
        report::line(&format!(
            "{family:>6}{sockets:>9}{routes:>8}{rp_filter:>10}{}",
            cell.columns(clock)
        ))?;
        return Ok(());
    }
    for figures in cell.figures(clock) {
        report::json(&Row {
            bench: "demux",
            family: family.number(),
            sockets,
            routes,
            rp_filter,
            figures,
        })?;
    }
    Ok(())
}
