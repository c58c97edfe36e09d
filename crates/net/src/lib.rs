//! A router and a host in one process.
#![forbid(unsafe_code)]

pub mod device;
