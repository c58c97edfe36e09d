//! `forebay replay`: what a capture costs, and what a knob does for it.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::asking;
use crate::clock::Clock;
use crate::playback::{CaptureArgs, Fate, Plan, Rig, RigArgs, Setting, Told, measure, tell};

mod report;

use report::{Column, Report};

/// Play a capture through the receive path, and measure.
///
/// With --compare, both settings of a knob are measured in turn, on the same stack, in short
/// chunks in random order, and beside what a setting differs from itself; the packets that the knob
/// makes a difference to are named. Measured is the stack alone: packets are put into buffers, sent
/// ones taken and sockets read outside of the time. The packets come in full batches, one pass of
/// the capture after the other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay replay --mix 90:10 --compare net.ipv4.ip_early_demux=0,1
                                                                   without a capture
  forebay replay transit.pcap                                      what a router takes for it
  forebay replay dns.pcap --host --compare net.ipv4.ip_early_demux=0,1
  forebay replay mix.pcap --local 10.0.0.1 --compare net.ipv4.ip_early_demux=0,1
  forebay replay mix.pcap -c router.toml --loop 10000 --json       for programs")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    capture: CaptureArgs,

    /// Passes of the capture that are measured under each setting [default: as many as take three
    /// seconds]
    #[arg(
        long = "loop", value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        allow_negative_numbers = true
    )]
    passes: Option<u32>,

    /// A knob, and the two values to compare
    #[arg(long, value_name = "KNOB=A,B", value_parser = parse_compare)]
    compare: Option<Compare>,

    #[command(flatten)]
    rig: RigArgs,

    /// Print JSON: an object a setting
    #[arg(short, long)]
    json: bool,
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compare {
    knob: String,
    values: [String; 2],
}

fn parse_compare(text: &str) -> Result<Compare, &'static str> {
    let expected = "expected KNOB=A,B, as in net.ipv4.ip_early_demux=0,1";
    let (knob, values) = text.split_once('=').ok_or(expected)?;
    let (a, b) = values.split_once(',').ok_or(expected)?;
    let [knob, a, b] = [knob, a, b].map(|word| word.trim().to_owned());
    if [&knob, &a, &b].iter().any(|word| word.is_empty()) || b.contains(',') {
        return Err(expected);
    }
    if a == b {
        return Err("the two values are the same: there is nothing to compare");
    }
    Ok(Compare {
        knob,
        values: [a, b],
    })
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let capture = args.capture.capture()?;
    if capture.packets().next().is_none() {
        let why = capture
            .frames
            .iter()
            .find_map(|frame| frame.packet.as_ref().err());
        bail!(
            "{}: no frame has an IP packet ({})",
            capture.name,
            why.map(ToString::to_string).unwrap_or_default()
        );
    }
    let settings = settings(args.compare.as_ref());
    let mut rig = Rig::new(&args.rig, &capture)?;
    if let Some(compare) = &args.compare {
        compare.check(&args.rig, &rig)?;
    }
    let mut told: Vec<Vec<Told>> = Vec::new();
    for setting in &settings {
        if let Some((name, value)) = &setting.knob {
            // A stack that has seen nothing yet.
            rig = Rig::new(&args.rig, &capture)?;
            rig.set(name, value)?;
        }
        let mut stories = Vec::with_capacity(capture.frames.len());
        tell(&mut rig, &capture, |story| {
            stories.push(story);
            Ok(())
        })?;
        told.push(stories);
    }
    let mut all = told.iter().flatten();
    let leaves_fragments = all.any(|told| told.fate == Fate::Held);
    let (sockets, refused) = rig.sockets();
    let plan = Plan {
        capture: &capture,
        told: told.last().map(Vec::as_slice).unwrap_or_default(),
        settings: &settings,
        leaves_fragments,
        passes: args.passes.and_then(|passes| usize::try_from(passes).ok()),
    };
    let clock = Clock::new();
    let measured = measure(rig, &plan, &clock)?;

    let columns = settings.into_iter().zip(told).zip(measured);
    let columns = columns.map(|((setting, told), measured)| Column {
        knob: setting.knob,
        told,
        measured,
    });
    let report = Report {
        capture: &capture,
        sockets,
        refused,
        clock,
        columns: columns.collect(),
    };
    asking::print(&if args.json {
        report.json()
    } else {
        report.text()
    })?;
    if let Some(fault) = &capture.fault {
        super::warn(format_args!(
            "{}: {fault}; what precedes was played",
            capture.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

impl Compare {
    /// Refuses what would compare a value with itself, or not take place.
    fn check(&self, args: &RigArgs, rig: &Rig) -> anyhow::Result<()> {
        let Self { knob, values } = self;
        if args.sets(knob) {
            bail!("--set {knob} and --compare {knob}: the knob has the values that are compared");
        }
        let [a, b] = values;
        if rig.set(knob, a)? == rig.set(knob, b)? {
            bail!(
                "--compare {knob}={a},{b}: the two values are the same: there is nothing to compare"
            );
        }
        Ok(())
    }
}

fn settings(compare: Option<&Compare>) -> Vec<Setting> {
    match compare {
        None => vec![Setting { knob: None }],
        Some(Compare { knob, values }) => values
            .iter()
            .map(|value| Setting {
                knob: Some((knob.clone(), value.clone())),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_a_knob_and_two_values() {
        let compare = parse_compare("net.ipv4.ip_early_demux=0,1").unwrap();
        assert_eq!(compare.knob, "net.ipv4.ip_early_demux");
        assert_eq!(compare.values, ["0", "1"]);
        for wrong in ["", "a", "a=1", "a=1,", "=1,2", "a=1,2,3", "a=1,1"] {
            assert!(parse_compare(wrong).is_err(), "{wrong}");
        }
    }
}
