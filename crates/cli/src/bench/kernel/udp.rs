//! `forebay bench --kernel udp`: datagrams to a reader on another core, by the kernel's sockets and by
//! Forebay's in turn.

use std::iter;
use std::process::ExitCode;

use serde::Serialize;

use super::network::Network;
use super::sockets::Socket;
use crate::bench::Common;
use crate::bench::bed::{Bed, Own, PAYLOAD, Side, Way};
use crate::bench::net::Family;
use crate::bench::plot::{Plot, PlotArgs, Words};
use crate::bench::report::{self, COLUMNS, Cell, Figures, KINDS, LEGEND, NOTES};
use crate::bench::runner;
use crate::bench::statistics::{Summary, ratio};
use crate::bench::udp::Read;
use crate::clock::Clock;
use crate::random::Random;

/// Rounds if they are not said: all is measured within a minute.
const ROUNDS: u32 = 30;

/// What takes turns: the kernel's, then ours, each with early demux on, off, and off once more for
/// the control.
const SETTINGS: [(bool, bool); 6] = [
    (true, true),
    (true, false),
    (true, false),
    (false, true),
    (false, false),
    (false, false),
];

/// What the figures of the kernel are.
const KERNEL_LEGEND: &str = "\
kernel         a UDP socket of Linux's in a private namespace, read by another core; a datagram a
               call is recv(2), many are recvmmsg(2). Generate is making frames and handing them over,
               measured by dropping them there; it goes on while others are read, and is in the figure
forebay        this stack's socket, the same way; generate is not in the figure
feed           median time of the core that lets datagrams in, until each is in the socket's queue
lost           datagrams that were let in and not read; figures are for those that were read
kernel/ours    how many times as long the kernel takes for a datagram, early demux on
";

/// What `--svg` draws.
const PLOT: Words = Words {
    title: "The same datagrams by the kernel and by Forebay, up to the application",
    caption: &[
        "Datagrams of 18 bytes to one socket, in memory: one core receives, the other one reads.",
        "Less is better.",
    ],
    unit: "ns a datagram",
    kinds: &[KINDS[0], KINDS[1]],
    notes: &[NOTES[0], NOTES[1]],
};

/// What is asked of both.
pub(in crate::bench) struct Question<'a> {
    pub(in crate::bench) common: &'a Common,
    pub(in crate::bench) plot: &'a PlotArgs,
    pub(in crate::bench) connected: Vec<u8>,
    pub(in crate::bench) reads: Vec<Read>,
}

/// Where a row belongs.
#[derive(Debug, Clone, Copy, Serialize)]
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
    kernel: bool,
    family: u8,
    #[serde(flatten)]
    place: Place,
    payload: usize,
    #[serde(flatten)]
    figures: Figures,
    /// Nanoseconds a datagram of the core that lets them in, and what was lost, in all settings here.
    feed: Option<f64>,
    lost: Option<u64>,
    /// The kernel's time to ours, for the same setting of the knob.
    kernel_ours: Option<f64>,
}

/// What the kernel's side of a cell was like.
#[derive(Debug, Default)]
struct Fed {
    /// Nanoseconds a datagram, chunk by chunk.
    times: Vec<f64>,
    lost: u64,
}

impl Fed {
    fn ns(&self) -> f64 {
        Summary::of(self.times.iter().copied()).median
    }
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
    let mut sockets = Vec::new();
    for family in families {
        network.add_family(family)?;
        for connected in &question.connected {
            sockets.push((family, *connected, Socket::new(family, *connected == 1)?));
        }
    }

    if !common.json {
        report::line(&format!("{LEGEND}{KERNEL_LEGEND}"))?;
        report::line(&format!(
            "family connected   read by     {COLUMNS}    feed    lost kernel/ours"
        ))?;
    }
    for (family, connected, socket) in sockets {
        let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1)?;
        match connected {
            0 => bed.grow_unconnected(1)?,
            _ => bed.grow_connected(1)?,
        }
        bed.greet_sockets(&clock)?;
        socket.attach(&mut network)?;
        for read in &question.reads {
            let place = Place {
                cores: 2,
                queues: 1,
                connected,
                sockets: 1,
                read: *read,
            };
            measure(
                common,
                &clock,
                &mut network,
                &socket,
                &mut bed,
                place,
                &mut plot,
            )?;
        }
    }
    if let Some(svg) = svg {
        svg.write(&plot)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(
    common: &Common,
    clock: &Clock,
    network: &mut Network,
    socket: &Socket,
    bed: &mut Bed,
    place: Place,
    plot: &mut Plot,
) -> anyhow::Result<()> {
    let call = place.read.call();
    let way = Way {
        call,
        is_connected: place.connected == 1,
        queues: place.queues.into(),
    };
    let mut random = Random::new(2);
    let rounds = common.rounds(ROUNDS);
    let mut fed = Fed::default();
    let series = runner::run(&SETTINGS, rounds, clock, &mut random, |(is_kernel, on)| {
        if is_kernel {
            network.set_early_demux(on)?;
            let reception = socket.run(network, clock, call)?;
            fed.lost += reception.lost;
            fed.times.push(reception.feed as f64);
            Ok(reception.chunk)
        } else {
            bed.set("net.ipv4.ip_early_demux", on.into())?;
            bed.run_receive_apart(clock, way)
        }
    })?;
    let [kernel_on, kernel_off, kernel_again, on, off, again] = series.as_slice() else {
        return Ok(());
    };
    let ratios = [
        ratio(&kernel_on.stages, &on.stages),
        ratio(&kernel_off.stages, &off.stages),
    ];
    let family = bed.family();
    for (is_kernel, on, off, again) in [
        (true, kernel_on, kernel_off, kernel_again),
        (false, on, off, again),
    ] {
        let cell = Cell {
            on,
            off,
            again,
            floor: None,
        };
        let fed = is_kernel.then_some(&fed);
        place.add_to(plot, family, is_kernel, &cell);
        if common.json {
            place.print_objects(family, &cell, fed, &ratios, clock)?;
        } else {
            place.print_line(family, &cell, fed, &ratios, clock)?;
        }
    }
    Ok(())
}

impl Place {
    fn add_to(&self, plot: &mut Plot, family: Family, is_kernel: bool, cell: &Cell<'_>) {
        let connected = match self.connected {
            0 => "not connected",
            _ => "connected",
        };
        let heading = format!("IPv{family}, {connected}");
        let label = format!("{} reads, {}", self.read, by(is_kernel));
        plot.add(heading, cell.plot_row(label));
    }

    /// `fed` is said of the kernel alone: that none of ours is lost, the bench demands.
    fn print_line(
        &self,
        family: Family,
        cell: &Cell<'_>,
        fed: Option<&Fed>,
        ratios: &[f64; 2],
        clock: &Clock,
    ) -> anyhow::Result<()> {
        let Self {
            connected, read, ..
        } = self;
        let [on, _off] = ratios;
        let of_kernel = match fed {
            Some(fed) => format!("{:>8.0}{:>8}{on:>12.2}", fed.ns(), fed.lost),
            None => String::new(),
        };
        let by = by(fed.is_some());
        let columns = cell.columns(clock);
        report::line(&format!(
            "{family:>6}{connected:>10}{read:>7} {by:<7}{columns}{of_kernel}"
        ))?;
        Ok(())
    }

    fn print_objects(
        &self,
        family: Family,
        cell: &Cell<'_>,
        fed: Option<&Fed>,
        ratios: &[f64; 2],
        clock: &Clock,
    ) -> anyhow::Result<()> {
        // The first two are those with the knob on and off.
        let ratios = ratios.iter().copied().map(Some).chain(iter::repeat(None));
        for (figures, ratio) in cell.figures(clock).into_iter().zip(ratios) {
            report::json(&Row {
                bench: "udp",
                kernel: fed.is_some(),
                family: family.number(),
                place: *self,
                payload: PAYLOAD,
                figures,
                feed: fed.map(|fed| report::rounded(fed.ns(), 2)),
                lost: fed.map(|fed| fed.lost),
                kernel_ours: ratio
                    .filter(|_| fed.is_some())
                    .map(|ratio| report::rounded(ratio, 2)),
            })?;
        }
        Ok(())
    }
}

fn by(is_kernel: bool) -> &'static str {
    if is_kernel { "kernel" } else { "forebay" }
}
