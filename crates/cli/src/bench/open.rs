//! `forebay bench open`: what sockets cost that have nothing to do.

use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use forebay::interface::InterfaceConfig;
use forebay::{Stack, UdpOptions, UdpSocket};
use serde::Serialize;

use super::net::Family;
use super::report::{self, rounded};
use super::statistics::quantile;

/// Ports that sockets have: all that clients and servers of no privilege may have.
const FIRST_PORT: u32 = 1_024;
const PORTS: u32 = 65_536 - FIRST_PORT;

/// Idle UDP sockets: how long it takes to open them, what they take of memory, and how long it takes
/// to close them.
///
/// They are opened one after the other through the library, bound to one address and, as the table
/// says, connected to a peer each. Those that are not connected have a port each; where ports run
/// out they are at a further address. Memory is what the process has more of than before the first,
/// less what the program itself keeps of a socket. Times are medians of the rounds.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  forebay bench open                                       a million sockets
  forebay bench open --family 4 --sockets 10000000         ten
  chrt -f 50 forebay bench open                            with other programs out of the way")]
pub(crate) struct OpenArgs {
    /// Sockets that are open at a time; they take about 0.5 kB of memory each.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sockets: u32,

    /// Whether the sockets have a peer, each its own.
    #[arg(long, value_name = "0|1", value_delimiter = ',', allow_negative_numbers = true,
          value_parser = PossibleValuesParser::new(["0", "1"]))]
    connected: Vec<String>,

    /// Only this family.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(["4", "6"]))]
    family: Vec<String>,

    /// Times that all of them are opened and closed.
    #[arg(long, value_name = "N", default_value_t = 3, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Print JSON, an object a row.
    #[arg(short, long)]
    json: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    bench: &'static str,
    family: u8,
    sockets: u32,
    connected: u8,
    /// Of memory, a socket.
    bytes: f64,
    /// For all of them.
    open_seconds: f64,
    close_seconds: f64,
}

pub(crate) fn run(args: &OpenArgs) -> anyhow::Result<ExitCode> {
    if !args.json {
        report::line(LEGEND)?;
        report::line("family connected  sockets   bytes  open s close s  open ns")?;
    }
    for family in [Family::V4, Family::V6] {
        for connected in [false, true] {
            if !args.wants(family, connected) {
                continue;
            }
            let row = measure(args, family, connected)?;
            match args.json {
                true => report::json(&row)?,
                false => report::line(&row.columns())?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl OpenArgs {
    fn wants(&self, family: Family, connected: bool) -> bool {
        let is_among = |asked: &[String], word: String| asked.is_empty() || asked.contains(&word);
        is_among(&self.family, family.to_string())
            && is_among(&self.connected, u8::from(connected).to_string())
    }
}

fn measure(args: &OpenArgs, family: Family, connected: bool) -> anyhow::Result<Row> {
    let stack = stack(family, args.sockets)?;
    let mut sockets = Vec::with_capacity(args.sockets as usize);
    let before = resident_bytes()?;
    let mut bytes = None;
    let (mut open, mut close) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let start = Instant::now();
        for nth in 0..args.sockets {
            sockets.push(socket(&stack, family, nth, connected)?);
        }
        open.push(start.elapsed().as_secs_f64());
        if bytes.is_none() {
            let kept = size_of_val(&*sockets) as u64;
            bytes = Some(resident_bytes()?.saturating_sub(before + kept));
        }
        let start = Instant::now();
        sockets.clear();
        close.push(start.elapsed().as_secs_f64());
    }
    Ok(Row {
        bench: "open",
        family: family.number(),
        sockets: args.sockets,
        connected: connected.into(),
        bytes: rounded(
            bytes.unwrap_or_default() as f64 / f64::from(args.sockets),
            1,
        ),
        open_seconds: rounded(median(open), 4),
        close_seconds: rounded(median(close), 4),
    })
}

/// A stack with as many addresses as so many ports take.
fn stack(family: Family, sockets: u32) -> anyhow::Result<Stack> {
    let stack = Stack::builder().build()?;
    let inner = stack.inner();
    let ifindex = inner.add_interface(InterfaceConfig::new("net0"))?;
    for nth in 0..=sockets / PORTS {
        let own = family.address(family.own() + u128::from(nth));
        inner.add_address(ifindex, own, family.bits() - 24)?;
    }
    Ok(stack)
}

fn socket(stack: &Stack, family: Family, nth: u32, connected: bool) -> anyhow::Result<UdpSocket> {
    let port = (FIRST_PORT + nth % PORTS) as u16;
    let turn = u128::from(nth / PORTS);
    let at = |number: u128, port| SocketAddr::new(family.address(number), port);
    if !connected {
        return Ok(UdpSocket::bind(stack, at(family.own() + turn, port))?);
    }
    let options = UdpOptions::new().reuse_address(true);
    let socket = options.bind(stack, at(family.own(), port))?;
    socket.connect(at(family.gateway(0) + turn, port))?;
    Ok(socket)
}

/// What the process has of the machine's memory, as proc(5) says.
fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot tell memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("/proc/self/status says nothing of memory")? * 1_024)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    quantile(&seconds, 0.5)
}

impl Row {
    fn columns(&self) -> String {
        format!(
            "{:>6} {:>9} {:>8} {:>7.1} {:>7.3} {:>7.3} {:>8.1}",
            self.family,
            self.connected,
            self.sockets,
            self.bytes,
            self.open_seconds,
            self.close_seconds,
            self.open_seconds * 1e9 / f64::from(self.sockets),
        )
    }
}

const LEGEND: &str = "\
bytes          of memory that a socket takes
open s, close s
               seconds that all of them take to open and to close
open ns        nanoseconds that one takes to open
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_apart() {
        let row = Row {
            bench: "open",
            family: 4,
            sockets: 10_000_000,
            connected: 1,
            bytes: 1_234.5,
            open_seconds: 100.0,
            close_seconds: 100.0,
        };
        assert_eq!(row.columns().split_whitespace().count(), 7);
    }
}
