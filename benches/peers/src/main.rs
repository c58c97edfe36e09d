//! The same UDP receive on Forebay and on other user-space stacks, in one run.
//!
//! Datagrams of 18 bytes come from a device in memory, in batches of 64, for random ones of the open
//! sockets. Timed is what happens from the batch until the payloads are in the application's buffers.
//! Every stack is used as its documentation says; one core does all. See README.md.

#![forbid(unsafe_code)]

mod datagrams;
mod forebay_peer;
mod ipstack_peer;
mod random;
mod series;
mod smoltcp_peer;

use std::time::Instant;

use anyhow::ensure;
use clap::Parser;
use serde::Serialize;

use datagrams::{BATCH, Datagrams, Family, Frame, Inbox, PAYLOAD};
use random::Random;
use series::{Series, median_of_ratios};

/// Datagrams of a chunk.
const CHUNK: usize = 4_096;

/// Rounds that are not counted: caches and pools fill.
const WARM_UP: u32 = 2;

/// UDP receive on Forebay, smoltcp and ipstack, in memory, on one core.
#[derive(Debug, Parser)]
struct Args {
    /// Open sockets.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 1_000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    sockets: Vec<u32>,

    /// Only this family.
    #[arg(long, value_name = "4|6", value_delimiter = ',', default_values_t = [4, 6],
          value_parser = clap::value_parser!(u8).range(4..=6))]
    family: Vec<u8>,

    /// Chunks of 4096 datagrams that each stack is measured with.
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,

    /// Print JSON, an object a row.
    #[arg(long)]
    json: bool,
}

/// A stack with open sockets, a device and an application.
trait Peer {
    /// Puts a batch of frames where its device finds them; not timed.
    fn offer(&mut self, frames: &[Frame]);

    /// Lets the stack take the frames in and the application read a datagram of each of these sockets,
    /// in this order. Returns how many were there.
    fn receive(&mut self, sockets: &[usize], inbox: &mut Inbox) -> anyhow::Result<usize>;
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    stack: &'static str,
    version: &'static str,
    connected: u8,
    family: u8,
    sockets: u32,
    payload: usize,
    /// Median over chunks, in nanoseconds a datagram that was read.
    ns: f64,
    /// Interquartile range.
    spread: f64,
    /// How many times as long as Forebay takes for bound sockets: median of the ratios of chunks of
    /// one round.
    to_forebay: f64,
    sent: u64,
    read: u64,
}

/// A stack that takes part, and what it has taken so far.
struct Entry {
    stack: &'static str,
    connected: u8,
    peer: Box<dyn Peer>,
    series: Series,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if !args.json {
        println!(
            "family sockets stack      version connected      ns  spread to forebay      sent      read"
        );
    }
    for family in &args.family {
        let family = match family {
            4 => Family::V4,
            6 => Family::V6,
            other => anyhow::bail!("there is no IPv{other}"),
        };
        for sockets in &args.sockets {
            measure(&args, family, *sockets)?;
        }
    }
    Ok(())
}

fn measure(args: &Args, family: Family, sockets: u32) -> anyhow::Result<()> {
    let mut random = Random::new(7);
    let mut datagrams = Datagrams::new(family, sockets);
    let mut entries = entries(family, sockets)?;
    for round in 0..WARM_UP + args.rounds {
        let mut turns: Vec<usize> = (0..entries.len()).collect();
        random.shuffle(&mut turns);
        for turn in turns {
            let Entry { peer, series, .. } = &mut entries[turn];
            let (ns, sent, read) = chunk(peer.as_mut(), &mut datagrams, &mut random)?;
            if round >= WARM_UP {
                series.add(ns, sent, read);
            }
        }
    }
    let ours = entries[0].series.clone();
    for entry in &entries {
        let (ns, spread) = entry.series.summary();
        let row = Row {
            bench: "peers",
            stack: entry.stack,
            version: version_of(entry.stack),
            connected: entry.connected,
            family: family.number(),
            sockets,
            payload: PAYLOAD,
            ns: rounded(ns),
            spread: rounded(spread),
            to_forebay: rounded(median_of_ratios(&entry.series, &ours)),
            sent: entry.series.sent,
            read: entry.series.read,
        };
        if args.json {
            println!("{}", serde_json::to_string(&row)?);
        } else {
            println!(
                "{:>6} {:>7} {:<10} {:<7} {:>9} {:>7.1} {:>7.1} {:>10.2} {:>9} {:>9}",
                row.family,
                row.sockets,
                row.stack,
                row.version,
                row.connected,
                row.ns,
                row.spread,
                row.to_forebay,
                row.sent,
                row.read
            );
        }
    }
    Ok(())
}

/// Every stack with its sockets open; Forebay's bound ones first.
fn entries(family: Family, sockets: u32) -> anyhow::Result<Vec<Entry>> {
    let entry = |stack, connected, peer| Entry {
        stack,
        connected,
        peer,
        series: Series::default(),
    };
    let forebay = |is_connected| forebay_peer::Forebay::new(family, sockets, is_connected);
    Ok(vec![
        entry("forebay", 0, Box::new(forebay(false)?)),
        entry("forebay", 1, Box::new(forebay(true)?)),
        entry(
            "smoltcp",
            0,
            Box::new(smoltcp_peer::Smoltcp::new(family, sockets)?),
        ),
        entry(
            "ipstack",
            1,
            Box::new(ipstack_peer::Ipstack::new(family, sockets)?),
        ),
    ])
}

/// Returns the nanoseconds that a datagram took which was read, and how many were sent and read.
fn chunk(
    peer: &mut dyn Peer,
    datagrams: &mut Datagrams,
    random: &mut Random,
) -> anyhow::Result<(f64, u64, u64)> {
    let mut inbox = Inbox::new();
    let mut times = Vec::with_capacity(CHUNK / BATCH);
    let mut read = 0;
    for _ in 0..CHUNK / BATCH {
        let sockets = datagrams.batch(random);
        inbox.clear();
        peer.offer(datagrams.frames());
        let start = Instant::now();
        let received = peer.receive(&sockets, &mut inbox)?;
        times.push(start.elapsed().as_nanos() as u64);
        ensure!(
            received < BATCH || datagrams.are(&inbox),
            "something else was received than was sent"
        );
        read += received;
    }
    ensure!(read > 0, "nothing was received at all");
    let share = CHUNK as f64 / read as f64;
    let ns = series::middle_mean(times) / BATCH as f64 * share;
    Ok((ns, CHUNK as u64, read as u64))
}

/// What the lock file says.
fn version_of(package: &str) -> &'static str {
    let mut lines = include_str!("../Cargo.lock").lines();
    let name = format!("name = \"{package}\"");
    let version = lines.find(|line| *line == name).and_then(|_| lines.next());
    let version = version.and_then(|line| line.strip_prefix("version = \""));
    version.map_or("", |version| version.trim_end_matches('"'))
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
