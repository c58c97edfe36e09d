//! The subcommands, a file each.

pub(crate) mod exec;
pub(crate) mod run;
mod signals;

/// Says what went wrong, with everything that led to it.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("forebay: {error:#}");
}
