//! `forebay run`: route and serve, and say each second what happens.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use forebay::steer::MAX_CPUS;
use serde::Serialize;

use super::signals;
use crate::config::{self, Config, Device, Kind};
use crate::daemon::{self, Daemon, Knob, Report};
use crate::numbers::{bytes, grouped};

/// What runs without a file.
const LIFE: &str = include_str!("../../../../examples/life.toml");

/// How often a status line is printed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lines between two headings, as vmstat(8) has them.
const PAGE: u64 = 20;

/// Route and serve on the devices of a configuration.
///
/// Without a configuration Forebay runs on wires inside this process, with traffic of its own:
/// packets to be forwarded, packets for connected and unconnected sockets, pings, and some
/// packets with faults, in IPv4 and IPv6. That needs no root and no device.
///
/// Each second there is a line with the packets that came in, their bytes, and what became of
/// them: forwarded, delivered to a socket or a protocol of this host, or dropped, with the reasons
/// that occur most. (As in Linux, a packet counts as forwarded before it is queued for a device; if
/// the queue is full, it counts as dropped, too.) Ctrl-C (or SIGTERM) ends it with a summary. The
/// exit status is 1 if a device was given up on the way.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Configuration file (docs/config.md describes it)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Name of the control socket, by which other commands find this stack [default: the
    /// configuration's, or run-PID]
    #[arg(long)]
    name: Option<String>,

    /// Set a knob, whatever the configuration says; may be repeated
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Knob>,

    /// Workers, each on a processor of its own [default: the configuration's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_CPUS.into()))]
    workers: Option<u16>,

    /// End after so many seconds, or a time with a unit (500ms, 2min)
    #[arg(long, value_name = "SECS", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Print JSON: an object a second, and one with the whole at the end
    ///
    /// Each has the keys `event` ("second" or "summary"), `seconds` (how long it was), `packets`,
    /// `bytes`, `forwarded`, `delivered`, `dropped`, `drops` (by reason), and for generated
    /// traffic `traffic` (what the hosts at the far ends sent, and what they and the sockets got).
    /// The summary has `failures`: why a device was given up, by its name.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  forebay run                                       see it work, without any set-up
  forebay run --set net.ipv4.ip_early_demux=0       the same without early demux
  forebay run --duration 10 --json | jq .packets    for programs
  forebay run -c router.toml --name edge            a router of your own
  forebay sysctl --stack edge -a                    its knobs, from another terminal";

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    config::duration(text).ok_or("expected seconds, or a number with ns, us, ms, s, min or h")
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let mut config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::parse("examples/life.toml", LIFE)?,
    };
    config.stack.workers = args.workers.or(config.stack.workers);
    refuse_exec_devices(&config)?;
    daemon::rehearse(&config, &args.set)?;

    let signals = signals::ends()?;
    let mut daemon = Daemon::start(&config, &args.set)?;
    let asked = args.name.as_ref().or(config.stack.name.as_ref());
    let name = super::serve(&mut daemon, asked, "run")?;
    let mut status = Status::new(args.json);
    let introduced = status.introduction(&config, &name);
    let followed = introduced.and_then(|()| follow(&daemon, &mut status, &signals, args.duration));
    match followed {
        // Nobody reads any more: as good an end as Ctrl-C.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        followed => followed?,
    }
    Ok(match daemon.failures().as_slice() {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// There is no command that would be at the other end.
pub(super) fn refuse_exec_devices(config: &Config) -> anyhow::Result<()> {
    let is_exec = |device: &&Device| matches!(device.kind, Kind::Exec(_));
    if let Some(device) = config.devices.iter().find(is_exec) {
        let what = "a device of kind \"exec\" belongs to the configuration of `forebay exec`";
        let problem = config::Problem::new(device.name.span(), what);
        bail!(config.source.explain(problem));
    }
    Ok(())
}

/// Prints a line each second, until a signal comes or the time is over, and then the summary.
fn follow(
    daemon: &Daemon,
    status: &mut Status,
    signals: &Receiver<i32>,
    duration: Option<Duration>,
) -> io::Result<()> {
    let start = Instant::now();
    let end = duration.and_then(|duration| start.checked_add(duration));
    let (mut last, mut last_totals) = (start, None);
    let mut failures = BTreeMap::new();
    loop {
        let next = last + INTERVAL;
        let until = end.map_or(next, |end| end.min(next));
        let wait = until.saturating_duration_since(Instant::now());
        match signals.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) if until == next => {}
            _ => break,
        }
        let (now, totals) = (Instant::now(), daemon.totals());
        status.line(&totals.since(last_totals.as_ref(), now - last))?;
        warn_of_new(daemon.failures(), &mut failures);
        (last, last_totals) = (next.max(now - INTERVAL / 2), Some(totals));
    }
    let took = start.elapsed();
    daemon.settle();
    warn_of_new(daemon.failures(), &mut failures);
    status.summary(&daemon.totals().since(None, took), &failures)
}

/// Says of each device once that it was given up.
fn warn_of_new(now: Vec<(String, String)>, known: &mut Failures) {
    for (name, error) in now {
        if let Entry::Vacant(unknown) = known.entry(name) {
            super::warn(format_args!("{} is down: {error}", unknown.key()));
            unknown.insert(error);
        }
    }
}

/// Devices that were given up, by name, and why.
type Failures = BTreeMap<String, String>;

/// Where the lines go, and what they look like.
struct Status {
    out: io::Stdout,
    json: bool,
    repeats_heading: bool,
    lines: u64,
}

/// One line of JSON.
#[derive(Serialize)]
struct Event<'r> {
    event: &'static str,
    #[serde(flatten)]
    report: &'r Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'r Failures>,
}

impl Status {
    fn new(json: bool) -> Self {
        let out = io::stdout();
        Self {
            repeats_heading: out.is_terminal(),
            out,
            json,
            lines: 0,
        }
    }

    /// Says what runs, and what can be done with it.
    fn introduction(&mut self, config: &Config, name: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let devices = config
            .devices
            .iter()
            .map(|device| device.name.get_ref().as_str());
        let devices: Vec<_> = devices.collect();
        let devices = match devices.as_slice() {
            [] => "no devices".to_owned(),
            some => some.join(", "),
        };
        writeln!(
            self.out,
            "Forebay {name:?} runs on {devices}; Ctrl-C ends it."
        )?;
        let rates = config
            .traffic
            .iter()
            .map(|traffic| (traffic, grouped(traffic.rate.into())));
        for (traffic, rate) in rates {
            let device = traffic.device.get_ref();
            writeln!(
                self.out,
                "Hosts behind {device} send {rate} packets a second."
            )?;
        }
        writeln!(self.out)
    }

    fn line(&mut self, report: &Report) -> io::Result<()> {
        if self.json {
            return self.event("second", report, None);
        }
        let is_page = self.repeats_heading && self.lines.is_multiple_of(PAGE);
        if self.lines == 0 || is_page {
            let headings = ["packets", "bytes", "forwarded", "delivered", "dropped"];
            let [packets, bytes, forwarded, delivered, dropped] = headings;
            writeln!(
                self.out,
                "{packets:>12} {bytes:>10} {forwarded:>12} {delivered:>12} {dropped:>10}  because of"
            )?;
        }
        self.lines += 1;
        writeln!(
            self.out,
            "{:>12} {:>10} {:>12} {:>12} {:>10}  {}",
            grouped(report.packets),
            bytes(report.bytes),
            grouped(report.forwarded),
            grouped(report.delivered),
            grouped(report.dropped),
            reasons(report, 3),
        )?;
        self.out.flush()
    }

    fn summary(&mut self, report: &Report, failures: &Failures) -> io::Result<()> {
        if self.json {
            return self.event("summary", report, Some(failures));
        }
        let out = &mut self.out;
        writeln!(out)?;
        writeln!(
            out,
            "In {:.1} seconds {} packets came in, {}:",
            report.seconds,
            grouped(report.packets),
            bytes(report.bytes),
        )?;
        writeln!(out, "{:>14} forwarded", grouped(report.forwarded))?;
        writeln!(out, "{:>14} delivered", grouped(report.delivered))?;
        writeln!(out, "{:>14} dropped", grouped(report.dropped))?;
        for (reason, count) in report.top_reasons() {
            writeln!(out, "{:>20} {reason}", grouped(count))?;
        }
        if let Some(traffic) = &report.traffic {
            let rows = [
                ("packets sent by the hosts at the far ends", traffic.sent()),
                ("came out forwarded", traffic.came_forwarded),
                ("echo replies came back", traffic.came_echo_replies),
                ("ICMP errors came back", traffic.came_icmp_errors),
                (
                    "datagrams read from connected sockets",
                    traffic.read_connected,
                ),
                (
                    "datagrams read from the unconnected sockets",
                    traffic.read_unconnected,
                ),
                ("packets that did not fit on the wire", traffic.refused),
            ];
            writeln!(out, "Seen from outside:")?;
            for (what, count) in rows.into_iter().filter(|(_, count)| *count > 0) {
                writeln!(out, "{:>14} {what}", grouped(count))?;
            }
        }
        for (name, error) in failures {
            writeln!(out, "The device {name} was given up: {error}")?;
        }
        out.flush()
    }

    fn event(
        &mut self,
        event: &'static str,
        report: &Report,
        failures: Option<&Failures>,
    ) -> io::Result<()> {
        let line = serde_json::to_string(&Event {
            event,
            report,
            failures,
        })?;
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}

/// The reasons that occur most.
fn reasons(report: &Report, most: usize) -> String {
    let reasons = report.top_reasons();
    let shown = reasons.iter().take(most);
    let mut words: Vec<_> = shown
        .map(|(name, count)| format!("{name} {}", grouped(*count)))
        .collect();
    if let Some(more) = reasons.len().checked_sub(most).filter(|more| *more > 0) {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_without_a_file_can_be_carried_out() {
        let config = Config::parse("life.toml", LIFE).unwrap();
        daemon::rehearse(&config, &[]).unwrap();
    }
}
