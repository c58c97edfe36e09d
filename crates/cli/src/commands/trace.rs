//! `forebay trace`: what becomes of each packet of a capture, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::numbers::grouped;
use crate::playback::{CaptureArgs, Fate, Rig, RigArgs, Told, tell};

/// Tell the story of each packet of a capture, stage by stage.
///
/// The packets go through a stack of their own, one by one, at the times of the capture: what was
/// parsed, whether early demux found a socket (and if it was not tried, why), the rule, table and
/// route that decided, the verdict with its reason, and what sockets and senders got.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay trace ping.pcap                            in a router
  forebay trace ping.pcap --host --verdict drop      what a host would drop
  forebay trace dns.pcap --local 192.0.2.53 -n 4-7   with an address of this host
  forebay trace --mix 90:10 -n 1-20                  without a capture
  forebay trace dns.pcap -c router.toml --json       with a configuration, for programs")]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    capture: CaptureArgs,

    /// Only these packets; all are played
    #[arg(short, long, value_name = "N[-M]", value_parser = parse_numbers)]
    number: Option<(usize, usize)>,

    /// Only packets with this verdict; may be repeated
    #[arg(long, value_enum)]
    verdict: Vec<Wanted>,

    #[command(flatten)]
    rig: RigArgs,

    /// Print JSON: an object a packet
    #[arg(short, long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// To a socket or a protocol of this host
    Deliver,
    /// Sent on
    Forward,
    /// Dropped in silence
    Drop,
    /// Dropped, and the sender was told
    Reject,
    /// A fragment that waits for the others
    Hold,
    /// A frame without an IP packet
    NotIp,
}

fn parse_numbers(text: &str) -> Result<(usize, usize), &'static str> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let range = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|number| (number, number)),
    };
    range
        .filter(|(first, last)| first <= last)
        .ok_or("expected a packet's number, from 1, or a range as 3-7")
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let capture = args.capture.capture()?;
    let mut rig = Rig::new(&args.rig, &capture)?;
    let mut totals = Totals::default();
    let mut out = BufWriter::new(io::stdout().lock());
    let told = tell(&mut rig, &capture, |told| {
        totals.add(&told);
        match args.wants(&told) {
            true if args.json => writeln!(out, "{}", told.json()),
            true => write!(out, "{told}"),
            false => Ok(()),
        }
    });
    let told = told.and_then(|end| {
        if !args.json {
            if let Some(end) = end {
                writeln!(out, "afterwards: {end}")?;
            }
            writeln!(out, "\n{totals}")?;
        }
        Ok(out.flush()?)
    });
    match told {
        // A reader that has seen enough.
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
        told => told?,
    }
    if let Some(fault) = capture.fault {
        super::warn(format_args!(
            "{}: {fault}; what precedes was played",
            capture.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

impl TraceArgs {
    fn wants(&self, told: &Told) -> bool {
        let in_range = |(first, last)| (first..=last).contains(&told.number);
        let wanted = self.verdict.iter();
        self.number.is_none_or(in_range)
            && (self.verdict.is_empty() || wanted.clone().any(|wanted| wanted.is(told.fate)))
    }
}

impl Wanted {
    fn is(self, fate: Fate) -> bool {
        matches!(
            (self, fate),
            (Self::Deliver, Fate::Delivered)
                | (Self::Forward, Fate::Forwarded)
                | (Self::Drop, Fate::Dropped(_))
                | (Self::Reject, Fate::Rejected(_))
                | (Self::Hold, Fate::Held)
                | (Self::NotIp, Fate::NotIp)
        )
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What came of all frames.
#[derive(Debug, Default)]
struct Totals {
    frames: u64,
    fates: BTreeMap<&'static str, u64>,
    reasons: BTreeMap<(&'static str, &'static str), u64>,
}

impl Totals {
    fn add(&mut self, told: &Told) {
        let word = told.fate.word();
        self.frames += 1;
        *self.fates.entry(word).or_default() += 1;
        if let Some(reason) = told.fate.reason() {
            *self.reasons.entry((word, reason.name())).or_default() += 1;
        }
    }
}

/// `7 frames: 3 forwarded, 2 dropped (TtlExceeded 2), 2 without an IP packet`.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("forward", "forwarded"),
            ("deliver", "delivered"),
            ("hold", "held"),
            ("drop", "dropped"),
            ("reject", "rejected"),
            ("not-ip", "without an IP packet"),
        ];
        let parts = parts.iter().filter_map(|(word, done)| {
            let count = self.fates.get(word)?;
            let reasons = self.reasons.iter().filter(|((fate, _), _)| fate == word);
            let why: Vec<_> = reasons
                .map(|((_, reason), count)| format!("{reason} {}", grouped(*count)))
                .collect();
            let why = match why.is_empty() {
                true => String::new(),
                false => format!(" ({})", why.join(", ")),
            };
            Some(format!("{} {done}{why}", grouped(*count)))
        });
        let parts: Vec<_> = parts.collect();
        let frames = if self.frames == 1 { "frame" } else { "frames" };
        write!(f, "{} {frames}: {}", grouped(self.frames), parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_one_or_a_range() {
        for (text, expected) in [
            ("1", Some((1, 1))),
            ("3-7", Some((3, 7))),
            ("0", None),
            ("7-3", None),
            ("-3", None),
            ("3-", None),
            ("x", None),
        ] {
            assert_eq!(parse_numbers(text).ok(), expected, "{text}");
        }
    }
}
