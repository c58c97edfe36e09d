//! The subcommands, a file each.

mod asking;
pub(crate) mod exec;
pub(crate) mod run;
mod signals;
pub(crate) mod sysctl;

/// Says what went wrong, with everything that led to it.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("forebay: {error:#}");
}
