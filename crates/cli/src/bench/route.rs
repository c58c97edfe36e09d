//! `forebay bench route`: forwarding.

use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::Common;
use super::bed::{Bed, Own, Side};
use super::floor::Floor;
use super::kernel::{self, Question};
use super::net::Family;
use super::packet::Protocol;
use super::plot::{Plot, PlotArgs, Words};
use super::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use super::runner::{self, Chunk};
use crate::clock::Clock;
use crate::numbers::{counted, grouped};
use crate::random::Random;

/// Forwarding in memory, with early demux on and off.
///
/// 64-byte packets to random destinations go through the stages on one core, from batches of the
/// near interface to the queue of the far one; a packet counts when it is there with its hop count
/// and checksum right. Each stack has a number of routes, of open connected sockets and of addresses
/// of its own, and a share of the packets is for its sockets.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench route                                 what tells most, within a minute
  forebay bench route --family 4 --sockets 1000000    a million sockets and few or many routes
  forebay bench route --local 0,10,100 --rounds 300   a router that is a server, too
  forebay bench route --own 0.0.0.0/0                 beside a transparent proxy
  forebay bench route --svg route.svg                 to be looked at
  forebay bench route --kernel                        what the knob costs on this kernel, as root
  forebay bench route --full --json > route.json      everything, for a program")]
pub(crate) struct RouteArgs {
    /// Routes, the default one included; in IPv6 at most 200000 of them unless said. They take about
    /// 0.5 kB of memory each.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    routes: Vec<u32>,

    /// Open connected sockets; they take about 0.5 kB of memory each.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    sockets: Vec<u32>,

    /// Addresses of the stack, at most 10000; 0.0.0.0/0 for a local route to everything in a table
    /// that other packets use.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    own: Vec<Own>,

    /// Packets in a hundred that are for the stack's sockets.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    local: Vec<u8>,

    /// With --kernel, only this protocol: udp or tcp.
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',')]
    protocol: Vec<Protocol>,

    #[command(flatten)]
    plot: PlotArgs,

    #[command(flatten)]
    common: Common,
}

const PLOT: Words = Words {
    title: "Forwarding: what early demux costs",
    caption: &[
        "64-byte UDP packets to random destinations, in memory, on one core. Less is better.",
        "Bars are medians, whiskers the middle half. Nanoseconds are one machine's; ratios carry over:",
        "on/off is the price of early demux, off/off how exactly that is known, on/bare how far it is to a",
        "loop over the same packets that only reads headers, loads a table entry and rewrites.",
    ],
    unit: "ns a packet",
    kinds: &KINDS,
    notes: &NOTES,
};

/// What is measured on one stack at a time.
#[derive(Debug, Clone, Copy)]
enum Setting {
    Stages { local: u8, early_demux: bool },
    Floor,
}

/// Where a row belongs.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    routes: u32,
    sockets: u32,
    own: String,
    local: u8,
    #[serde(flatten)]
    figures: Figures,
}

/// The same question to the kernel, as far as both can be asked.
pub(crate) fn run_kernel(args: &RouteArgs) -> anyhow::Result<ExitCode> {
    let is_plain = args.routes.is_empty() && args.own.is_empty() && args.local.is_empty();
    ensure!(
        is_plain,
        "with --kernel there is one route and one address, and all packets are in transit: \
         --routes, --own and --local make no sense"
    );
    let protocols = [Protocol::Udp, Protocol::Tcp];
    let common = &args.common;
    let mut sockets = common.values(&args.sockets, &[0, 1_000, 100_000], &[0, 100_000]);
    sockets.sort_unstable();
    kernel::run_route(&Question {
        common,
        plot: &args.plot,
        protocols: common.values(&args.protocol, &protocols, &protocols),
        sockets,
    })
}

pub(crate) fn run(args: &RouteArgs) -> anyhow::Result<ExitCode> {
    ensure!(args.protocol.is_empty(), "--protocol needs --kernel");
    let clock = Clock::new();
    let common = &args.common;
    let svg = args.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);
    if !common.json {
        report::line(LEGEND)?;
        report::line(&format!("family  routes  sockets       own local{COLUMNS}"))?;
    }
    for family in common.families() {
        let (all, default): (&[u32], &[u32]) = match family {
            Family::V4 => (&[1, 10_000, 1_000_000], &[1, 1_000_000]),
            Family::V6 => (&[1, 10_000, 200_000], &[1, 200_000]),
        };
        let mut routes = common.values(&args.routes, all, default);
        routes.sort_unstable();
        let owns = [Own::Addresses(1), Own::Addresses(1_000), Own::Everything];
        for own in common.values(&args.own, &owns, &[Own::Addresses(1)]) {
            let sockets = &[0, 100_000, 1_000_000];
            for sockets in common.values(&args.sockets, sockets, &[0, 1_000_000]) {
                // Sockets take longest to open, so one stack has them for all numbers of routes.
                let mut bed = Bed::new(family, own, Side::Far, 1)?;
                open_sockets(&mut bed, sockets, &clock)?;
                for routes in &routes {
                    bed.grow_routes(*routes as usize)?;
                    let place = Place {
                        routes: *routes,
                        sockets,
                        own,
                    };
                    measure(args, &mut bed, &place, &clock, &mut plot)?;
                }
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Packets for this host need a socket in any case; an unconnected one is none for early demux.
fn open_sockets(bed: &mut Bed, sockets: u32, clock: &Clock) -> anyhow::Result<()> {
    match sockets {
        0 => bed.open_unconnected()?,
        sockets => bed.grow_connected(sockets as usize)?,
    }
    bed.greet_sockets(clock)
}

struct Place {
    routes: u32,
    sockets: u32,
    own: Own,
}

impl Place {
    /// Above its bars.
    fn heading(&self, family: Family) -> String {
        let routes = counted(self.routes.into(), "route");
        match self.own {
            Own::Addresses(1) => format!("IPv{family}, {routes}"),
            Own::Addresses(own) => {
                format!(
                    "IPv{family}, {routes}, {} own addresses",
                    grouped(own.into())
                )
            }
            Own::Everything => {
                let everything = self.own.name(family);
                format!("IPv{family}, {routes}, a local route to {everything}")
            }
        }
    }

    /// Beside its bars.
    fn label(&self, local: u8) -> String {
        let sockets = counted(self.sockets.into(), "socket");
        match local {
            0 => sockets,
            local => format!("{sockets}, {local} % local"),
        }
    }
}

/// All shares of local packets on one stack.
fn measure(
    args: &RouteArgs,
    bed: &mut Bed,
    place: &Place,
    clock: &Clock,
    plot: &mut Plot,
) -> anyhow::Result<()> {
    let common = &args.common;
    let family = bed.family();
    let floor = Floor::new(family, place.routes as usize);
    let locals = common.values(&args.local, &[0, 10, 100], &[0]);
    // Off twice: the second time is the control.
    let demux = [true, false, false];
    let stages = locals.iter().flat_map(|local| {
        demux.map(|early_demux| Setting::Stages {
            local: *local,
            early_demux,
        })
    });
    let settings: Vec<Setting> = stages.chain([Setting::Floor]).collect();
    let mut random = Random::new(2);
    let series = runner::run(
        &settings,
        common.rounds(100),
        clock,
        &mut random,
        |setting| chunk(bed, setting, &floor, clock),
    )?;

    let (cells, rest) = series.as_chunks::<3>();
    for (local, [on, off, again]) in locals.iter().zip(cells) {
        let cell = Cell {
            on,
            off,
            again,
            floor: rest.first(),
        };
        plot.add(place.heading(family), cell.plot_row(place.label(*local)));
        let own = place.own.name(family);
        if !common.json {
            let (routes, sockets) = (place.routes, place.sockets);
            report::line(&format!(
                "{family:>6}{routes:>8}{sockets:>9}{own:>10}{local:>6}{}",
                cell.columns(clock)
            ))?;
            continue;
        }
        for figures in cell.figures(clock) {
            report::json(&Row {
                bench: "route",
                family: family.number(),
                routes: place.routes,
                sockets: place.sockets,
                own: own.clone(),
                local: *local,
                figures,
            })?;
        }
    }
    Ok(())
}

fn chunk(bed: &mut Bed, setting: Setting, floor: &Floor, clock: &Clock) -> anyhow::Result<Chunk> {
    match setting {
        Setting::Stages { local, early_demux } => {
            bed.set("net.ipv4.ip_early_demux", early_demux.into())?;
            bed.run_mix(clock, local)
        }
        Setting::Floor => bed.run_floor(clock, floor),
    }
}
