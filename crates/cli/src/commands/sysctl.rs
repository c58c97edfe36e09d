//! `forebay sysctl`, in the manner of sysctl(8).

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};

use super::asking::{self, Asking, CommandError};
use crate::control::client::{Client, ClientError};
use crate::control::protocol::{Errno, Failure, Request};
use crate::text_file;

/// Read and change a running stack's knobs.
///
/// Names, defaults and ranges are Linux's. A change is in force for the next packet.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay sysctl -a                             every knob with its value
  forebay sysctl net.ipv4.ip_forward            read one
  forebay sysctl -w net.ipv4.ip_forward=1       change one
  forebay sysctl -n net/ipv4/conf/tun0/rp_filter
  forebay sysctl -p router.conf                 change many: a line NAME = VALUE for each

Exit status: 0 if all went well, 1 if a name or value was wrong; the others are read and changed
nevertheless.")]
pub(crate) struct SysctlArgs {
    /// NAME reads, NAME=VALUE changes. Slashes do as well as dots.
    #[arg(value_name = "NAME[=VALUE]", required_unless_present_any = ["all", "load"])]
    variables: Vec<String>,

    /// Every knob, sorted by name.
    #[arg(short, long, conflicts_with = "variables")]
    all: bool,

    /// Print values without names.
    #[arg(short = 'n', long, conflicts_with = "names")]
    values: bool,

    /// Print names without values.
    #[arg(short = 'N', long)]
    names: bool,

    /// Insist on NAME=VALUE.
    #[arg(short, long)]
    write: bool,

    /// Do not print what was changed.
    #[arg(short, long)]
    quiet: bool,

    /// Pass over names that do not exist.
    #[arg(short = 'e', long)]
    ignore: bool,

    /// Change what FILE says; `-` is the standard input. A line beginning with `#` or `;` is a
    /// comment, one beginning with `-` may fail.
    #[arg(short = 'p', long, value_name = "FILE")]
    load: Option<String>,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &SysctlArgs) -> anyhow::Result<ExitCode> {
    // Read before the stack is asked, which waits for no typist.
    let file = args.load.as_deref().map(read_file).transpose()?;
    let mut client = args.asking.client()?;
    let mut session = Session {
        args,
        client: &mut client,
        read: Vec::new(),
        failed: false,
    };
    session.run(file.as_deref().unwrap_or_default())?;
    let (read, failed) = (session.read, session.failed);
    if args.asking.json {
        let object: Map<String, Value> = read.into_iter().map(|(k, v)| (k, v.into())).collect();
        asking::print_json(&object)?;
    } else {
        asking::print(&text(args, &read))?;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What is to be done about one knob.
#[derive(Debug, PartialEq, Eq)]
enum Setting<'a> {
    Read(&'a str),
    Write {
        name: &'a str,
        value: &'a str,
        may_fail: bool,
    },
}

struct Session<'a> {
    args: &'a SysctlArgs,
    client: &'a mut Client,
    /// What to print.
    read: Vec<(String, String)>,
    failed: bool,
}

impl Session<'_> {
    /// `settings` are those of a file.
    fn run(&mut self, settings: &str) -> Result<(), CommandError> {
        if self.args.all {
            self.read = self.client.sysctls()?;
        }
        let file = self.args.load.as_deref().unwrap_or_default();
        for (number, line) in (1..).zip(settings.lines()) {
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some(setting)) => self.apply(&setting)?,
                Err(why) => self.fail(&format!("{file}:{number}: {why}")),
            }
        }
        for variable in &self.args.variables {
            match parse_variable(variable, self.args.write) {
                Ok(setting) => self.apply(&setting)?,
                Err(why) => self.fail(&why),
            }
        }
        Ok(())
    }

    fn apply(&mut self, setting: &Setting<'_>) -> Result<(), CommandError> {
        let (name, may_fail, result) = match *setting {
            Setting::Read(name) => (name, false, self.client.sysctl(name)),
            Setting::Write {
                name,
                value,
                may_fail,
            } => (name, may_fail, self.set(name, value)),
        };
        match result {
            Ok(_) if self.args.quiet && matches!(setting, Setting::Write { .. }) => {}
            Ok(value) => self.read.push((shown(name), value)),
            Err(ClientError::Refused(failure)) => self.refused(name, may_fail, &failure),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<String, ClientError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.client.change(Request::SetSysctl {
            name,
            value: value.clone(),
        })?;
        Ok(value)
    }

    fn refused(&mut self, name: &str, may_fail: bool, failure: &Failure) {
        if self.args.ignore && failure.errno == Errno::NoEnt {
            return;
        }
        asking::complain(&format!("sysctl: {name}: {failure}"));
        self.failed |= !may_fail;
    }

    fn fail(&mut self, why: &str) {
        asking::complain(&format!("sysctl: {why}"));
        self.failed = true;
    }
}

/// NAME or NAME=VALUE, as a word of the command line.
fn parse_variable(word: &str, must_write: bool) -> Result<Setting<'_>, String> {
    match word.split_once('=') {
        None if must_write => Err(format!(
            "{word:?} says no value: expected NAME=VALUE, or no -w to read"
        )),
        None => Ok(Setting::Read(word.trim())),
        Some((name, value)) => setting(name, value, word),
    }
}

/// A line of a file.
fn parse_line(line: &str) -> Result<Option<Setting<'_>>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(None);
    }
    match line.split_once('=') {
        None => Err(format!("{line:?} is no setting: expected NAME = VALUE")),
        Some((name, value)) => setting(name, value, line).map(Some),
    }
}

fn setting<'a>(name: &'a str, value: &'a str, whole: &str) -> Result<Setting<'a>, String> {
    let name = name.trim();
    let (name, may_fail) = match name.strip_prefix('-') {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() {
        return Err(format!("{whole:?} names no knob: expected NAME=VALUE"));
    }
    Ok(Setting::Write {
        name,
        value: value.trim(),
        may_fail,
    })
}

fn text(args: &SysctlArgs, read: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in read {
        let _ = match (args.names, args.values) {
            (true, _) => writeln!(text, "{name}"),
            (_, true) => writeln!(text, "{value}"),
            _ => writeln!(text, "{name} = {value}"),
        };
    }
    text
}

/// A name as sysctl(8) prints it: with dots. The knobs of queues are paths, as Linux has them.
fn shown(name: &str) -> String {
    let path = name.strip_prefix("/sys/").unwrap_or(name);
    match path.starts_with("class/") {
        true => path.to_owned(),
        false => name.replace('/', "."),
    }
}

fn read_file(name: &str) -> Result<String, CommandError> {
    let text = match name {
        "-" => text_file::read_from(io::stdin()),
        path => text_file::read(path),
    };
    text.map_err(|error| CommandError::Usage(format!("can't read {name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reads_or_writes() {
        let write = |name, value, may_fail| {
            Ok(Setting::Write {
                name,
                value,
                may_fail,
            })
        };
        let table = [
            (
                "net.ipv4.ip_forward",
                Ok(Setting::Read("net.ipv4.ip_forward")),
            ),
            ("a=1", write("a", "1", false)),
            ("a = 1 2 ", write("a", "1 2", false)),
            ("a=", write("a", "", false)),
            ("a=b=c", write("a", "b=c", false)),
        ];
        for (word, expected) in table {
            assert_eq!(parse_variable(word, false), expected, "{word:?}");
        }
        assert!(parse_variable("=1", false).is_err());
        assert!(
            parse_variable("a", true)
                .unwrap_err()
                .contains("expected NAME=VALUE")
        );
    }

    #[test]
    fn a_file_has_comments_and_settings_that_may_fail() {
        for nothing in ["", "   ", "# a=1", "  ; a=1"] {
            assert_eq!(parse_line(nothing), Ok(None), "{nothing:?}");
        }
        let may_fail = Setting::Write {
            name: "a",
            value: "1",
            may_fail: true,
        };
        assert_eq!(parse_line(" -a = 1"), Ok(Some(may_fail)));
        assert!(
            parse_line("nonsense")
                .unwrap_err()
                .contains("expected NAME = VALUE")
        );
    }
}
