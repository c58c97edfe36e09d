//! `forebay bench grow`: what growth costs those who do not grow.

use std::process::ExitCode;
use std::thread;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::Common;
use super::bed::{BATCH, Bed, Crowd, Own, Side};
use super::net::Family;
use super::report::{self, rounded};
use super::statistics::quantile;
use crate::clock::Clock;

/// Sockets that packets are for all the time.
const STAYING: usize = 1_000;

/// Delivery to some sockets in memory while others come and go.
///
/// One thread takes datagrams for 1,000 connected sockets through the stages and looks for each in
/// its socket. Another one opens connected sockets, as many as are asked for, and closes them again,
/// so that the table of connections grows and shrinks under the first one's lookups. Compare the
/// longest batches meanwhile with those at rest, before and after. Both threads need a core each.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench grow                                   a million sockets
  forebay bench grow --family 4 --sockets 10000000     ten
  chrt -f 50 forebay bench grow                        with other programs out of the way")]
pub(crate) struct GrowArgs {
    /// Sockets that come and go.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sockets: u32,

    #[command(flatten)]
    common: Common,
}

/// What the other thread does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing yet.
    Before,
    Growing,
    /// Nothing: all sockets are open.
    Full,
    Shrinking,
    /// Nothing any more.
    After,
}

/// What it did to packets.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    sockets: u32,
    row: &'static str,
    ip_early_demux: u8,
    /// Batches that were timed.
    batches: usize,
    /// Nanoseconds a packet, of the batch in the middle.
    ns: f64,
    /// Of the batch that 1 % and 0.1 % are longer than.
    ns_p99: f64,
    ns_p999: f64,
    /// Of the longest.
    ns_max: f64,
    /// `ns_p999` to that before.
    to_rest: f64,
}

pub(crate) fn run(args: &GrowArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::new();
    if !args.common.json {
        report::line(LEGEND)?;
        report::line(
            "family  sockets       phase  batches      ns     p99   p99.9      max to rest",
        )?;
    }
    for family in args.common.families() {
        measure(args, family, &clock)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &GrowArgs, family: Family, clock: &Clock) -> anyhow::Result<()> {
    let mut bed = Bed::new(family, Own::Addresses(1), Side::Near, 1)?;
    bed.grow_connected(STAYING)?;
    bed.greet_sockets(clock)?;
    let mut crowd = bed.crowd();
    let mut rest = None;
    for phase in Phase::ALL {
        let mut batches = during(&mut bed, &mut crowd, phase, args, clock)?;
        batches.sort_by(f64::total_cmp);
        let at = |share| rounded(quantile(&batches, share), 2);
        let p999 = at(0.999);
        let row = Row {
            bench: "grow",
            family: family.number(),
            sockets: args.sockets,
            row: phase.name(),
            ip_early_demux: 1,
            batches: batches.len(),
            ns: at(0.5),
            ns_p99: at(0.99),
            ns_p999: p999,
            ns_max: at(1.0),
            to_rest: rounded(p999 / *rest.get_or_insert(p999), 3),
        };
        if args.common.json {
            report::json(&row)?;
        } else {
            report::line(&row.columns())?;
        }
    }
    Ok(())
}

/// What a packet took in each batch of a phase, in nanoseconds.
fn during(
    bed: &mut Bed,
    crowd: &mut Crowd,
    phase: Phase,
    args: &GrowArgs,
    clock: &Clock,
) -> anyhow::Result<Vec<f64>> {
    let mut ticks = Vec::new();
    let sockets = args.sockets as usize;
    let change = match phase {
        Phase::Growing => |crowd: &mut Crowd, sockets| crowd.grow(sockets),
        Phase::Shrinking => |crowd: &mut Crowd, _| crowd.shrink(),
        Phase::Before | Phase::Full | Phase::After => {
            for _ in 0..args.common.rounds(100) {
                ticks.extend(bed.run_batches(clock)?);
            }
            return Ok(per_packet(&ticks, clock));
        }
    };
    thread::scope(|scope| {
        let changing = scope.spawn(|| change(crowd, sockets));
        while !changing.is_finished() {
            ticks.extend(bed.run_batches(clock)?);
        }
        let changed = changing.join();
        changed.map_err(|_| anyhow!("the thread with the sockets panicked"))?
    })?;
    Ok(per_packet(&ticks, clock))
}

fn per_packet(batches: &[u64], clock: &Clock) -> Vec<f64> {
    let nanos = |ticks: &u64| clock.nanos(*ticks as f64) / BATCH as f64;
    batches.iter().map(nanos).collect()
}

impl Phase {
    const ALL: [Self; 5] = [
        Self::Before,
        Self::Growing,
        Self::Full,
        Self::Shrinking,
        Self::After,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Growing => "growing",
            Self::Full => "full",
            Self::Shrinking => "shrinking",
            Self::After => "after",
        }
    }
}

impl Row {
    fn columns(&self) -> String {
        format!(
            "{:>6}{:>9}{:>12}{:>9}{:>8.1}{:>8.1}{:>8.1}{:>9.1}{:>8.2}",
            self.family,
            self.sockets,
            self.row,
            self.batches,
            self.ns,
            self.ns_p99,
            self.ns_p999,
            self.ns_max,
            self.to_rest
        )
    }
}

const LEGEND: &str = "\
phase          what the other thread does: nothing before, full and after
batches        of 64 packets each; they are timed one by one
ns, p99, p99.9, max
               a packet's time in the batch that 50, 1, 0.1 and 0 % of the batches are longer than
to rest        p99.9 to that before
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_finds_its_socket_in_every_phase() {
        for family in [Family::V4, Family::V6] {
            let args = GrowArgs {
                sockets: 5_000,
                common: Common {
                    family: Vec::new(),
                    rounds: Some(3),
                    full: false,
                    json: false,
                },
            };
            measure(&args, family, &Clock::new()).expect("none is missed");
        }
    }
}
