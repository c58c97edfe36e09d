//! The subcommands, a file each.

pub(crate) mod addr;
mod asking;
pub(crate) mod exec;
pub(crate) mod link;
pub(crate) mod nstat;
pub(crate) mod route;
pub(crate) mod rule;
pub(crate) mod run;
mod signals;
pub(crate) mod ss;
pub(crate) mod sysctl;
mod words;

/// Says what went wrong, with everything that led to it.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("forebay: {error:#}");
}
