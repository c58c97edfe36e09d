//! `forebay bench --kernel route`: the question of `forebay bench route` put to the kernel of this
//! machine, and beside it Forebay's own answer.
//!
//! The kernel's router has connections, as a host has them; ours has connected sockets.

use std::iter;
use std::process::ExitCode;

use serde::Serialize;

use super::connections::Connections;
use super::frames::Frame;
use super::injector::Injector;
use super::network::{NEAR_ADDRESS, Network};
use crate::bench::Common;
use crate::bench::bed::{Bed, CHUNK, Own, Side};
use crate::bench::net::Family;
use crate::bench::packet::Protocol;
use crate::bench::plot::{Plot, PlotArgs, Words};
use crate::bench::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use crate::bench::runner::{self, Chunk, Series};
use crate::clock::Clock;
use crate::numbers::counted;
use crate::random::Random;

/// Rounds if they are not said: both are measured within a minute.
const ROUNDS: u32 = 30;

/// Early demux on, off, and off once more for the control.
const SETTINGS: [bool; 3] = [true, false, false];

/// What the figures of the kernel are.
const KERNEL_LEGEND: &str = "\
kernel         Linux's own router in a private namespace; sockets are established TCP connections;
               generate is making packets and handing them over, measured by dropping them there
forebay        this stack; sockets are connected UDP sockets
kernel/ours    how many times as long the kernel takes, early demux on
";

/// What `--svg` draws.
const PLOT: Words = Words {
    title: "The same transit by the kernel and by Forebay, early demux on and off",
    caption: &[
        "One core, 65,536 destinations. Sockets are established TCP connections of the kernel's,",
        "connected UDP sockets of Forebay's.",
    ],
    unit: "ns a packet",
    kinds: &[KINDS[0], KINDS[1]],
    notes: &[NOTES[0], NOTES[1]],
};

/// What is asked of both.
pub(in crate::bench) struct Question<'a> {
    pub(in crate::bench) common: &'a Common,
    pub(in crate::bench) plot: &'a PlotArgs,
    pub(in crate::bench) protocols: Vec<Protocol>,
    /// In ascending order.
    pub(in crate::bench) sockets: Vec<u32>,
}

/// Where a row belongs.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    kernel: bool,
    family: u8,
    protocol: String,
    routes: u32,
    sockets: u32,
    own: &'static str,
    local: u8,
    #[serde(flatten)]
    figures: Figures,
    /// The kernel's time to ours, for the same setting of the knob.
    kernel_ours: Option<f64>,
}

/// Moves the calling thread to another network namespace, for good.
pub(in crate::bench) fn run(question: &Question<'_>) -> anyhow::Result<ExitCode> {
    let clock = Clock::new();
    let common = question.common;
    let families = common.families();
    let svg = question.plot.svg_file()?;
    let mut plot = Plot::new(PLOT);

    // What may be refused comes first.
    let mut network = Network::enter()?;
    for family in &families {
        network.add_family(*family)?;
    }
    let injectors = injectors(&families, &question.protocols)?;

    if !common.json {
        report::line(&format!("{LEGEND}{KERNEL_LEGEND}"))?;
        report::line(&format!(
            "family protocol  sockets by     {COLUMNS} kernel/ours"
        ))?;
    }
    for family in families {
        let mut connections = Connections::none(family);
        for &sockets in &question.sockets {
            connections.grow(sockets as usize)?;
            let mut bed = Bed::new(family, Own::Addresses(1), Side::Far, 1)?;
            bed.grow_connected(sockets as usize)?;
            bed.greet_sockets(&clock)?;
            let of_family = injectors.iter().filter(|(of, ..)| *of == family);
            for (_, protocol, injector) in of_family {
                let place = Place {
                    family,
                    protocol: *protocol,
                    sockets,
                };
                let kernel = measure_kernel(common, &clock, &mut network, injector)?;
                let ours = measure_ours(common, &clock, &mut bed, *protocol)?;
                place.print(common, &clock, &kernel, &ours, &mut plot)?;
            }
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn injectors(
    families: &[Family],
    protocols: &[Protocol],
) -> anyhow::Result<Vec<(Family, Protocol, Injector)>> {
    let mut injectors = Vec::new();
    for family in families {
        for protocol in protocols {
            let frame = Frame::transit(*family, *protocol, NEAR_ADDRESS);
            injectors.push((*family, *protocol, Injector::new(frame)?));
        }
    }
    Ok(injectors)
}

fn measure_kernel(
    common: &Common,
    clock: &Clock,
    network: &mut Network,
    injector: &Injector,
) -> anyhow::Result<Vec<Series>> {
    injector.attach(network)?;
    measure(common, clock, |on| {
        network.set_early_demux(on)?;
        injector.run(network, clock, CHUNK as u32)
    })
}

fn measure_ours(
    common: &Common,
    clock: &Clock,
    bed: &mut Bed,
    protocol: Protocol,
) -> anyhow::Result<Vec<Series>> {
    bed.set_transit(protocol);
    measure(common, clock, |on| {
        bed.set("net.ipv4.ip_early_demux", on.into())?;
        bed.run_mix(clock, 0)
    })
}

fn measure(
    common: &Common,
    clock: &Clock,
    chunk: impl FnMut(bool) -> anyhow::Result<Chunk>,
) -> anyhow::Result<Vec<Series>> {
    let mut random = Random::new(2);
    runner::run(&SETTINGS, common.rounds(ROUNDS), clock, &mut random, chunk)
}

/// Of one pair of rows.
struct Place {
    family: Family,
    protocol: Protocol,
    sockets: u32,
}

impl Place {
    fn print(
        &self,
        common: &Common,
        clock: &Clock,
        kernel: &[Series],
        ours: &[Series],
        plot: &mut Plot,
    ) -> anyhow::Result<()> {
        let (Some(kernel), Some(ours)) = (cell(kernel), cell(ours)) else {
            return Ok(());
        };
        let ratio =
            |kernel: &Series, ours: &Series| kernel.summary().median / ours.summary().median;
        let ratios = [ratio(kernel.on, ours.on), ratio(kernel.off, ours.off)];
        for (is_kernel, cell) in [(true, kernel), (false, ours)] {
            let by = if is_kernel { "kernel" } else { "forebay" };
            let heading = format!("IPv{}, {}", self.family, self.protocol);
            let sockets = counted(self.sockets.into(), "socket");
            plot.add(heading, cell.plot_row(format!("{sockets}, {by}")));
            if common.json {
                self.print_objects(is_kernel, &cell, &ratios, clock)?;
                continue;
            }
            let Self {
                family,
                protocol,
                sockets,
            } = self;
            let [on, _off] = ratios;
            let ratio = if is_kernel {
                format!("{on:>12.2}")
            } else {
                String::new()
            };
            report::line(&format!(
                "{family:>6}{protocol:>9}{sockets:>9} {by:<7}{}{ratio}",
                cell.columns(clock)
            ))?;
        }
        Ok(())
    }

    fn print_objects(
        &self,
        is_kernel: bool,
        cell: &Cell<'_>,
        ratios: &[f64; 2],
        clock: &Clock,
    ) -> anyhow::Result<()> {
        // The first two are those with the knob on and off.
        let ratios = ratios.iter().copied().map(Some).chain(iter::repeat(None));
        for (figures, ratio) in cell.figures(clock).into_iter().zip(ratios) {
            report::json(&Row {
                bench: "route",
                kernel: is_kernel,
                family: self.family.number(),
                protocol: self.protocol.to_string(),
                routes: 1,
                sockets: self.sockets,
                own: "1",
                local: 0,
                figures,
                kernel_ours: ratio
                    .filter(|_| is_kernel)
                    .map(|ratio| report::rounded(ratio, 2)),
            })?;
        }
        Ok(())
    }
}

fn cell(series: &[Series]) -> Option<Cell<'_>> {
    let [on, off, again] = series else {
        return None;
    };
    Some(Cell {
        on,
        off,
        again,
        floor: None,
    })
}
