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
    /// Sockets that come and go; they take about 0.5 kB of memory each.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
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
    /// Nanoseconds a packet, of the batch in the middle; like the others none if the phase was over
    /// before a batch was.
    ns: Option<f64>,
    /// Of the batch that 1 % and 0.1 % are longer than.
    ns_p99: Option<f64>,
    ns_p999: Option<f64>,
    /// Of the longest.
    ns_max: Option<f64>,
    /// `ns_p999` to that before.
    to_rest: Option<f64>,
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
        let at = |share| (!batches.is_empty()).then(|| rounded(quantile(&batches, share), 2));
        let p999 = at(0.999);
        rest = rest.or(p999);
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
            to_rest: p999.zip(rest).map(|(p999, rest)| rounded(p999 / rest, 3)),
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
        let or_dash = |value: Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_owned(),
        };
        format!(
            "{:>6} {:>8} {:>11} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7}",
            self.family,
            self.sockets,
            self.row,
            self.batches,
            or_dash(self.ns, 1),
            or_dash(self.ns_p99, 1),
            or_dash(self.ns_p999, 1),
            or_dash(self.ns_max, 1),
            or_dash(self.to_rest, 2),
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
    fn columns_stand_apart() {
        let row = |ns: Option<f64>| Row {
            bench: "grow",
            family: 4,
            sockets: 10_000_000,
            row: "shrinking",
            ip_early_demux: 1,
            batches: 1_234_567_890,
            ns,
            ns_p99: ns,
            ns_p999: ns,
            ns_max: ns,
            to_rest: ns,
        };
        let words = |row: Row| row.columns().split_whitespace().count();
        assert_eq!(words(row(Some(123_456_789.0))), 9);
        assert_eq!(words(row(None)), 9);
        assert_eq!(row(None).columns().matches(" -").count(), 5);
    }

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
