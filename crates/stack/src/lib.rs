//! Forebay's IP stack: packets in, verdicts out.
//!
//! No I/O, no clock, no threads: whoever drives a [`Stack`] brings packets, time and cores. Open
//! [`receive`] first; it tells a packet's way from top to bottom.

#![forbid(unsafe_code)]

mod address_routes;
pub(crate) mod batch;
pub mod control;
pub mod core;
pub mod counters;
pub mod demux;
pub(crate) mod devices;
pub mod drop;
pub(crate) mod family;
pub mod fib;
pub mod filter;
pub(crate) mod gro;
mod idle;
pub mod interface;
pub(crate) mod ip;
pub mod multicast;
pub mod packet;
pub mod random;
pub mod receive;
pub mod route_lookup;
pub(crate) mod segment;
pub(crate) mod siphash;
pub mod socket;
pub mod stack;
pub mod steer;
pub mod sysctl;
pub mod tcp;
pub mod time;
pub mod trace;
pub mod transmit;
pub mod udp;
pub mod wire;

pub use stack::{Stack, StackConfig};
