//! Forebay's IP stack: packets in, verdicts out.
#![forbid(unsafe_code)]

pub mod fib;
