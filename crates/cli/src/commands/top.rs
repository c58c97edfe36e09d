//! `forebay top`: what a running stack does, live.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::asking::{Asking, CommandError, finish};
use crate::config;
use crate::control::protocol::Activity;

mod feed;
mod interval;
mod live;
mod table;
mod tables;
mod terminal;
mod view;

use feed::Feed;
use interval::Interval;

/// Show live what a running stack does, by core.
///
/// Packets by device and queue, what each worker took in and what became of it, drops by reason, and
/// what the stages of the receive path take, in cycles a packet. The stack measures the latter while
/// somebody looks, on some batches only.
///
/// In a terminal the screen is renewed each interval, until q is pressed. Otherwise the same is
/// printed as text.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys:
  q             end
  p, space      pause, and go on
  Tab           the next table
  left, right   the column that it is sorted by
  r             sort the other way round
  up, down      lines that do not fit on the screen

Examples:
  forebay top                          the stack that is running
  forebay top --once                   one interval, as text
  forebay top --json --interval 10     an object every ten seconds, for programs
  forebay exec -- forebay top          the stack that is the network's gateway

No colour is used if NO_COLOR is set in the environment.")]
pub(crate) struct TopArgs {
    /// Look for one interval, print and end
    #[arg(long)]
    once: bool,

    /// Seconds from one look to the next, from 0.1 to 3600, or a time with a unit (500ms, 2min)
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    #[command(flatten)]
    asking: Asking,
}

fn parse_interval(text: &str) -> Result<Duration, &'static str> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3_600);
    config::duration(text)
        .filter(|interval| range.contains(interval))
        .ok_or("expected a time from 0.1 seconds to 3600")
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &TopArgs) -> Result<(), CommandError> {
    let feed = Feed::new(args.asking.client()?, args.interval);
    if !args.once && !args.asking.json && is_screen() {
        return live::run(feed);
    }
    print_each(args, feed)
}

/// Whether there is somebody to look at a screen, and a terminal that can show one.
fn is_screen() -> bool {
    let can_move = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && can_move
}

/// Prints interval after interval, as long as somebody reads.
fn print_each(args: &TopArgs, mut feed: Feed) -> Result<(), CommandError> {
    let mut before: Option<Activity> = None;
    loop {
        let now = feed.next()?;
        let interval = before
            .as_ref()
            .and_then(|before| Interval::between(feed.stack(), before, &now));
        before = Some(now);
        let Some(interval) = interval else {
            continue;
        };
        let text = if args.asking.json {
            serde_json::to_string(&interval).map_err(io::Error::from)? + "\n"
        } else {
            text(&interval)
        };
        let mut stdout = io::stdout();
        let written = stdout.write_all(text.as_bytes());
        match written.and_then(|()| stdout.flush()) {
            // A reader that has seen enough (`| head`) is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        if args.once {
            return Ok(());
        }
    }
}

/// The tables, one below the other.
fn text(interval: &Interval) -> String {
    let mut text = String::new();
    for table in tables::tables(interval) {
        for line in table.lines() {
            text += line.trim_end();
            text.push('\n');
        }
        text.push('\n');
    }
    text
}
