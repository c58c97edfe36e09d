//! Talking to a running stack: `forebay run` and `exec` serve a Unix socket, the other commands
//! call it.
//!
//! [`protocol`] says what travels, [`server`] and [`client`] who sends it, [`handler`] what a stack
//! does about it.

pub(crate) mod client;
mod handler;
mod lines;
pub(crate) mod protocol;
mod runtime_dir;
pub(crate) mod server;

pub(crate) use runtime_dir::{OVERRIDE, RuntimeDir, is_stack_name};
