//! What the scenarios share: a rig of two interfaces around a stack, and packets built by hand.
//!
//! ```
//! use forebay_tests::{Rig, V4, packets};
//!
//! let mut rig = Rig::new();
//! rig.inject("tun0", packets::udp(V4::PEER, V4::OWN, 1000, 9, b"nobody listens"));
//! assert_eq!(rig.output("tun0").len(), 1, "port unreachable");
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a scenario that cannot go on panics")]

pub mod groups;
pub mod kernel;
pub mod lab;
pub mod packets;
mod rig;
mod routes;
mod scenario;
mod sockets;

pub use rig::{Rig, V4, V6};
pub use scenario::{Net, both, everywhere};
pub use sockets::Datagram;
