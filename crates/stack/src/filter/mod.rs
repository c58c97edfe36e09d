//! Classic BPF: small programs that look at a packet and say how much of it to keep.
//!
//! A program comes as [`Instruction`]s, the kernel's `struct sock_filter`, or as text, the way
//! `tcpdump -ddd` prints it ([`parse`]). It is verified once, when it is attached: what a
//! `Program` holds ends, and can't fault, whatever packet it is run on.
//!
//! Jumps only go forward, so a program takes at most as many steps as it has instructions. What is
//! refused, and what a program does, is what Linux refuses and does; its documentation of socket
//! filters describes the machine.

pub mod code;
mod instruction;
mod program;
mod run;
mod subject;
mod text;

pub use instruction::Instruction;
pub(crate) use program::Program;
pub use program::{MAX_INSTRUCTIONS, ProgramError};
pub(crate) use subject::Subject;
pub use text::{TextError, parse};

#[cfg(test)]
mod tests;
