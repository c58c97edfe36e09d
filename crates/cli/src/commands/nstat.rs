//! `forebay nstat`, in the manner of nstat(8).

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};

use super::asking::{self, Asking, CommandError, finish};
use crate::control::protocol::Counters;

mod glob;
mod history;

use history::History;

/// Show a running stack's SNMP counters and dropped packets.
///
/// Counters have Linux's names. A drop is counted once more under ForebayDropREASON. As with
/// nstat(8), shown is what was counted since the last time that you asked; the first time, all since
/// the stack started.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay nstat                   what was counted since the last time
  forebay nstat -a                all since the stack started
  forebay nstat -az 'Udp*'        every UDP counter, those at 0 too
  forebay nstat -as --drops       the packets dropped, and why
  forebay nstat -asj              all, for a program, without touching what others see")]
pub(crate) struct NstatArgs {
    /// Only counters whose name matches one of these; `*` stands for any text, `?` for a letter.
    /// Capitals do not matter.
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,

    /// All that was counted since the stack started.
    #[arg(short = 'a', long = "ignore")]
    absolute: bool,

    /// Counters at 0, too.
    #[arg(short, long)]
    zeros: bool,

    /// Do not remember this as the last time.
    #[arg(short = 's', long)]
    noupdate: bool,

    /// Forget the last time first.
    #[arg(short, long)]
    reset: bool,

    /// Print nothing, only remember.
    #[arg(short, long)]
    nooutput: bool,

    /// Only packets dropped, each reason with what it means.
    #[arg(long)]
    drops: bool,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &NstatArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &NstatArgs) -> Result<(), CommandError> {
    let mut client = args.asking.client()?;
    let path = client.history();
    // Opened first, so that two commands at a time don't both tell the same increments.
    let needs_history = !args.absolute || !args.noupdate;
    let mut history = match needs_history {
        true => Some(History::open(&path).map_err(|error| {
            CommandError::Usage(format!(
                "can't keep the last values in {}: {error}",
                path.display()
            ))
        })?),
        false => None,
    };
    let counters = client.counters()?;
    let values = values(&counters);
    if let Some(history) = history.as_mut().filter(|_| args.reset) {
        history.forget();
    }
    if !args.nooutput {
        let before = history.as_ref().filter(|_| !args.absolute);
        let before = before
            .map(|history| history.values(&counters.run))
            .unwrap_or_default();
        let shown = values.iter().filter_map(|counter| {
            let last = before.get(&counter.name).copied().unwrap_or(0);
            let value = counter.value.wrapping_sub(last);
            let is_wanted = (value > 0 || args.zeros)
                && (counter.doc.is_some() || !args.drops)
                && matches_any(&args.patterns, &counter.name);
            is_wanted.then(|| Shown {
                value,
                ..counter.clone()
            })
        });
        let shown: Vec<Shown> = shown.collect();
        if args.asking.json {
            asking::print_json(&json(&shown))?;
        } else {
            asking::print(&text(&shown, args.drops))?;
        }
    }
    if let Some(history) = history.as_mut().filter(|_| !args.noupdate) {
        let values = values
            .into_iter()
            .map(|counter| (counter.name, counter.value));
        history.remember(&counters.run, values.collect())?;
    }
    Ok(())
}

/// A line of output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    name: String,
    value: u64,
    /// What it means, if it counts drops.
    doc: Option<String>,
}

/// All counters by the names that they are shown under.
fn values(counters: &Counters) -> Vec<Shown> {
    let snmp = counters.snmp.iter().map(|(name, value)| Shown {
        name: name.clone(),
        value: *value,
        doc: None,
    });
    let drops = counters.drops.iter().map(|drops| Shown {
        name: format!("ForebayDrop{}", drops.reason),
        value: drops.packets,
        doc: Some(drops.doc.clone()),
    });
    snmp.chain(drops).collect()
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| glob::matches(pattern, name))
}

/// nstat(8)'s columns: name, value, and a rate that only its daemon would know.
fn text(shown: &[Shown], with_docs: bool) -> String {
    let mut text = "#forebay\n".to_owned();
    for Shown { name, value, doc } in shown {
        let _ = write!(text, "{name:<32}{value:<16}{:>6.1}", 0.0);
        if let Some(doc) = doc.as_ref().filter(|_| with_docs) {
            let _ = write!(text, "  {doc}");
        }
        text.push('\n');
    }
    text
}

/// As `nstat -j` has it, so that what reads that reads this.
fn json(shown: &[Shown]) -> Value {
    let counters = shown
        .iter()
        .map(|shown| (shown.name.clone(), shown.value.into()));
    let counters: Map<String, Value> = counters.collect();
    serde_json::json!({ "kernel": counters })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Drops;

    fn counters() -> Vec<Shown> {
        values(&Counters {
            run: "1".to_owned(),
            snmp: vec![
                ("IpInReceives".to_owned(), 15),
                ("UdpNoPorts".to_owned(), 0),
            ],
            drops: vec![Drops {
                reason: "UdpNoSocket".to_owned(),
                packets: 2,
                doc: "No socket takes the datagram.".to_owned(),
            }],
        })
    }

    #[test]
    fn prints_what_nstat_prints() {
        let expected = "\
#forebay
IpInReceives                    15                 0.0
UdpNoPorts                      0                  0.0
ForebayDropUdpNoSocket          2                  0.0
";
        assert_eq!(text(&counters(), false), expected);
        let last = text(&counters(), true).lines().last().map(str::to_owned);
        let expected = "ForebayDropUdpNoSocket          2                  0.0  \
                        No socket takes the datagram.";
        assert_eq!(last.as_deref(), Some(expected));
        let expected =
            r#"{"kernel":{"ForebayDropUdpNoSocket":2,"IpInReceives":15,"UdpNoPorts":0}}"#;
        assert_eq!(json(&counters()).to_string(), expected);
    }

    #[test]
    fn patterns_select_by_name() {
        let patterns = ["udp*".to_owned(), "*Drop?dp*".to_owned()];
        assert!(matches_any(&patterns, "UdpNoPorts"));
        assert!(matches_any(&patterns, "ForebayDropUdpNoSocket"));
        assert!(!matches_any(&patterns, "IpInReceives"));
        assert!(matches_any(&[], "IpInReceives"));
    }
}
