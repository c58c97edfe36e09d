//! Forebay's IP stack: packets in, verdicts out.
//!
//! No I/O, no clock, no threads: whoever drives a [`Stack`] brings packets, time and cores. Open
//! [`receive`] first; it tells a packet's way from top to bottom.

#![forbid(unsafe_code)]

pub mod core;
pub mod counters;
pub mod demux;
pub mod drop;
pub mod family;
pub mod fib;
pub mod interface;
pub mod ip;
pub mod packet;
pub mod random;
pub mod receive;
pub mod segment;
pub mod socket;
pub mod stack;
pub mod sysctl;
pub mod tcp;
pub mod time;
pub mod transmit;
pub mod udp;
pub mod wire;

pub use stack::{Stack, StackConfig};
