//! What all commands have in common that ask a running stack.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::control::client::{Client, ClientError};

/// Which stack, and how to show what it says.
#[derive(Debug, Clone, Args)]
pub(crate) struct Asking {
    /// The stack to ask; needed only if several are running.
    #[arg(long, value_name = "NAME", help_heading = "Stack")]
    stack: Option<String>,

    /// Print JSON.
    #[arg(short, long, help_heading = "Stack")]
    pub(crate) json: bool,
}

impl Asking {
    /// A connection to the stack.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        Client::connect(self.stack.as_deref())
    }
}

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The stack.
    #[error(transparent)]
    Stack(#[from] ClientError),
    /// A file or stdout.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// ip(8)'s statuses: 2 if the stack refused, 1 if it was not even asked.
pub(crate) fn finish(result: Result<(), CommandError>) -> anyhow::Result<ExitCode> {
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ CommandError::Stack(ClientError::Refused(_))) => {
            complain(&error);
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error.into()),
    }
}

/// Says on stderr what is wrong, as the stack's answer or in the command's own words.
pub(crate) fn complain(what: &dyn std::fmt::Display) {
    // Nobody is left to be told if that fails.
    let _ = writeln!(io::stderr(), "{what}");
}

/// Prints. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints as JSON, in a line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut text = serde_json::to_string(value).map_err(io::Error::from)?;
    text.push('\n');
    print(&text)
}
