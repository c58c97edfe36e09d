//! `forebay bench fib`: the routing table by itself.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use forebay::core::fib::{
    Address, BATCH, Fib, LOOPBACK_IFINDEX, Prefix, Query, Route, RouteError, RouteKind, RouteMatch,
    TableId,
};
use forebay::rcu::Domain;
use serde::Serialize;

use super::Common;
use super::net::{Family, Prefixes};
use super::report::{self, rounded};
use super::runner::{self, Chunk, Series};
use super::statistics::quantile;
use crate::clock::Clock;
use crate::random::Random;

/// Lookups of a chunk.
const CHUNK: usize = 16_384;

/// Next hops that the routes lead to.
const NEXT_HOPS: usize = 16;

/// The routing table by itself: loading, changing, looking up, and the memory that it takes.
///
/// Prefixes are random, with about the lengths that the Internet's have. Half of the changes lead a
/// route elsewhere, the other half take one out and put it back in; nobody reads meanwhile.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench fib                                 both families, few and many routes
  forebay bench fib --family 4 --routes 4000000     more than the Internet has
  forebay bench fib --json > fib.json               for a program")]
pub(crate) struct FibArgs {
    /// Routes, the default one included; in IPv6 at most 200000 of them unless said. They take about
    /// 0.5 kB of memory each.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    routes: Vec<u32>,

    /// Changes that are timed.
    #[arg(long, value_name = "N", default_value_t = 100_000,
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    updates: u32,

    #[command(flatten)]
    common: Common,
}

/// What was measured on a table of one size.
struct Measured {
    /// Nanoseconds that each took, sorted.
    loads: Vec<f64>,
    updates: Vec<f64>,
    defaults: Vec<f64>,
    /// Nanoseconds a lookup, chunk by chunk.
    singly: Series,
    in_bulk: Series,
    /// Seconds that loading took.
    load_seconds: f64,
    /// Bytes that lookups go through.
    memory: usize,
}

/// A row of JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    routes: u32,
    updates: u32,
    /// `load`, `update`, `update_default`, `lookup` or `lookup_bulk`.
    row: &'static str,
    /// The median, of changes one by one, of lookups over chunks.
    ns: f64,
    cycles: Option<f64>,
    /// Interquartile range in nanoseconds.
    spread: f64,
    /// What 1 % are longer than, and the longest.
    ns_p99: f64,
    ns_max: f64,
    load_seconds: f64,
    memory: usize,
}

pub(crate) fn run(args: &FibArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::new();
    let common = &args.common;
    if !common.json {
        report::line(LEGEND)?;
        report::line(
            "family  routes  load s  memory  update µs    p99      max  default µs  lookup ns bulk ns",
        )?;
    }
    for family in common.families() {
        let all: &[u32] = match family {
            Family::V4 => &[1, 10_000, 1_000_000],
            Family::V6 => &[1, 10_000, 200_000],
        };
        for routes in common.values(&args.routes, all, all) {
            let measured = match family {
                Family::V4 => measure::<Ipv4Addr>(args, family, routes, &clock)?,
                Family::V6 => measure::<Ipv6Addr>(args, family, routes, &clock)?,
            };
            if common.json {
                for row in measured.rows(args, family, routes, &clock) {
                    report::json(&row)?;
                }
            } else {
                report::line(&format!("{family:>6}{routes:>8}{}", measured.columns()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure<A: Address>(
    args: &FibArgs,
    family: Family,
    routes: u32,
    clock: &Clock,
) -> anyhow::Result<Measured> {
    let mut random = Random::new(3);
    let mut prefixes = Prefixes::new(family);
    let mut list = vec![Prefix::<A>::DEFAULT];
    while list.len() < routes as usize {
        let (addr, len) = prefixes.grow(&mut random);
        list.push(Prefix::new(A::from_u128(addr), len)?);
    }
    let domain = Domain::new();
    let fib = Fib::<A>::new(&domain);

    let start = clock.now();
    let mut loads = Vec::with_capacity(list.len());
    for prefix in &list {
        let route = route(*prefix, &mut random);
        loads.push(timed(clock, || fib.add(TableId::MAIN, route))?);
    }
    let load_seconds = clock.nanos(clock.now().wrapping_sub(start) as f64) / 1e9;
    let memory = fib.memory();

    let updates = update(&fib, &list, args.updates, &mut random, clock)?;
    let mut defaults = Vec::new();
    for _ in 0..args.updates.div_ceil(10) {
        let route = route(Prefix::DEFAULT, &mut random);
        defaults.push(timed(clock, || fib.replace(TableId::MAIN, route))?);
    }

    let reader = domain.reader();
    let mut order = Random::new(4);
    let settings = [false, true];
    let rounds = args.common.rounds(100);
    let series = runner::run(&settings, rounds, clock, &mut order, |in_bulk| {
        let addr = |_| A::from_u128(prefixes.address(&mut random));
        let dsts: Vec<A> = (0..CHUNK).map(addr).collect();
        let (batches, _) = dsts.as_chunks::<BATCH>();
        let guard = reader.guard();
        let view = fib.view(&guard);
        let transit = view.transit().context("the rules are the default ones")?;
        let mut found = 0;
        let start = clock.now();
        for dsts in batches {
            if in_bulk {
                for route in transit.lookup_many(dsts, BATCH).iter() {
                    found += usize::from(transit.resolve(route).is_ok());
                }
            } else {
                for dst in dsts {
                    found += usize::from(view.lookup(&to(*dst)).is_ok());
                }
            }
        }
        let ticks = clock.now().wrapping_sub(start) as f64;
        ensure!(found == CHUNK, "a route was not found");
        Ok(Chunk {
            stages: ticks / CHUNK as f64,
            ..Chunk::default()
        })
    })?;
    let [singly, in_bulk] = <[Series; 2]>::try_from(series).unwrap_or_default();
    Ok(Measured {
        loads: sorted(loads),
        updates: sorted(updates),
        defaults: sorted(defaults),
        singly,
        in_bulk,
        load_seconds,
        memory,
    })
}

/// Changes random ones of the routes.
fn update<A: Address>(
    fib: &Fib<A>,
    list: &[Prefix<A>],
    updates: u32,
    random: &mut Random,
    clock: &Clock,
) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(updates as usize + 1);
    while times.len() < updates as usize {
        let Some(prefix) = random.pick(list).copied() else {
            break;
        };
        let route = route(prefix, random);
        if random.below(2) == 0 {
            times.push(timed(clock, || fib.replace(TableId::MAIN, route))?);
        } else {
            let what = RouteMatch::prefix(prefix);
            let delete = || fib.delete(TableId::MAIN, &what).map(drop);
            times.push(timed(clock, delete)?);
            times.push(timed(clock, || fib.add(TableId::MAIN, route))?);
        }
    }
    Ok(times)
}

/// Nanoseconds that a change takes.
fn timed(
    clock: &Clock,
    change: impl FnOnce() -> Result<(), RouteError>,
) -> Result<f64, RouteError> {
    let start = clock.now();
    change()?;
    Ok(clock.nanos(clock.now().wrapping_sub(start) as f64))
}

fn route<A: Address>(prefix: Prefix<A>, random: &mut Random) -> Route<A> {
    let dev = 2 + random.below(NEXT_HOPS) as u32;
    Route::new(RouteKind::Unicast, prefix).dev(dev)
}

fn to<A: Address>(dst: A) -> Query<A> {
    Query {
        dst,
        src: A::UNSPECIFIED,
        iif: LOOPBACK_IFINDEX,
        own: Some(false),
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

impl Measured {
    fn columns(&self) -> String {
        let micros = |values: &[f64], share| quantile(values, share) / 1e3;
        format!(
            " {:>7.3} {:>7} {:>10.2} {:>6.2} {:>8.1} {:>11.2} {:>10.1} {:>7.1}",
            self.load_seconds,
            in_words(self.memory),
            micros(&self.updates, 0.5),
            micros(&self.updates, 0.99),
            micros(&self.updates, 1.0),
            micros(&self.defaults, 0.5),
            self.singly.summary().median,
            self.in_bulk.summary().median,
        )
    }

    fn rows(&self, args: &FibArgs, family: Family, routes: u32, clock: &Clock) -> Vec<Row> {
        let (singly, in_bulk) = (&self.singly.stages, &self.in_bulk.stages);
        let row = |(row, values): (&'static str, &[f64])| {
            let at = |share| rounded(quantile(values, share), 2);
            Row {
                bench: "fib",
                family: family.number(),
                routes,
                updates: args.updates,
                row,
                ns: at(0.5),
                cycles: clock.cycles(at(0.5)).map(|cycles| rounded(cycles, 1)),
                spread: rounded(at(0.75) - at(0.25), 2),
                ns_p99: at(0.99),
                ns_max: at(1.0),
                load_seconds: rounded(self.load_seconds, 4),
                memory: self.memory,
            }
        };
        let lookups = [singly, in_bulk].map(|values| sorted(values.clone()));
        [
            ("load", &self.loads[..]),
            ("update", &self.updates[..]),
            ("update_default", &self.defaults[..]),
            ("lookup", &lookups[0][..]),
            ("lookup_bulk", &lookups[1][..]),
        ]
        .map(row)
        .into()
    }
}

/// Bytes, in few characters.
fn in_words(bytes: usize) -> String {
    match bytes {
        0..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

const LEGEND: &str = "\
load s         adding all routes, one by one, to an empty table
memory         what lookups go through, in bytes
update µs, p99, max
               one change: the median, what 1 % take longer than, and the longest
default µs     a change of the default route
lookup ns      one address after the other
bulk ns        64 at a time, as the packets of a batch are; a lookup's share
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_measured_in_all_respects() {
        let args = FibArgs {
            routes: Vec::new(),
            updates: 1_000,
            common: Common {
                family: Vec::new(),
                rounds: Some(3),
                full: false,
                json: false,
            },
        };
        let clock = Clock::new();
        for (family, measured) in [
            (
                Family::V4,
                measure::<Ipv4Addr>(&args, Family::V4, 500, &clock),
            ),
            (
                Family::V6,
                measure::<Ipv6Addr>(&args, Family::V6, 500, &clock),
            ),
        ] {
            let measured = measured.expect("routes that can be added, changed and found");
            let rows = measured.rows(&args, family, 500, &clock);
            let names: Vec<_> = rows.iter().map(|row| row.row).collect();
            assert_eq!(
                names,
                ["load", "update", "update_default", "lookup", "lookup_bulk"]
            );
            assert!(rows.iter().all(|row| row.ns > 0.0 && row.memory > 5_000));
        }
    }
}
