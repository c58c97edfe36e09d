//! The subcommands, a file each.

pub(crate) mod addr;
mod asking;
pub(crate) mod bench;
pub(crate) mod exec;
pub(crate) mod flood;
pub(crate) mod link;
pub(crate) mod maddr;
pub(crate) mod nstat;
pub(crate) mod replay;
pub(crate) mod route;
pub(crate) mod rule;
pub(crate) mod run;
mod signals;
pub(crate) mod sink;
pub(crate) mod ss;
pub(crate) mod sysctl;
pub(crate) mod top;
pub(crate) mod trace;
mod words;

use std::fmt::Display;
use std::io::{self, Write};

use crate::daemon::Daemon;

/// Lets other commands find a stack under the name that was asked for, or else under what it is
/// doing and the process's number. Returns the name.
///
/// Without a name that was asked for, nobody relies on it: then a stack runs without, too, where
/// there is no place for its socket.
fn serve(daemon: &mut Daemon, asked: Option<&String>, doing: &str) -> anyhow::Result<String> {
    let own = || format!("{doing}-{}", std::process::id());
    let name = asked.cloned().unwrap_or_else(own);
    match daemon.serve(&name) {
        Err(error) if asked.is_none() => {
            complain(&error.context("other commands won't find this stack"));
        }
        served => served?,
    }
    Ok(name)
}

/// Says what went wrong, with everything that led to it.
pub(crate) fn complain(error: &anyhow::Error) {
    warn(format_args!("{error:#}"));
}

/// Says something on stderr that is no answer.
fn warn(what: impl Display) {
    // Nobody is left to be told if that fails.
    let _ = writeln!(io::stderr(), "forebay: {what}");
}
