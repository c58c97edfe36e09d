//! The subcommands, a file each.

pub(crate) mod sysctl;

mod asking;

/// Says what went wrong, with everything that led to it.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("forebay: {error:#}");
}
