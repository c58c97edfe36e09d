//! `forebay bench --kernel`: what the bench asks Forebay put to the kernel of this machine, and beside
//! it Forebay's own answer: of [forwarding](route), and of [UDP](udp) up to the application.
//!
//! A [`network`] is the kernel's, between two interfaces in a namespace of its own, and has
//! [`connections`] or [`sockets`]; an [`injector`] lets [`frames`] in.

mod connections;
mod frames;
mod injector;
mod network;
mod refusal;
mod route;
mod sockets;
mod udp;

pub(super) use route::{Question, run as run_route};
pub(super) use udp::{Question as UdpQuestion, run as run_udp};
