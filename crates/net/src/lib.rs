//! A router and a host in one process: sockets without kernel sockets.
//!
//! A [`Stack`] takes packets from [devices](device), routes them, and delivers those that are for
//! it to sockets of its own: [`TcpListener`], [`TcpStream`] and [`UdpSocket`]. Names, knobs,
//! counters and behaviour are Linux's.

#![forbid(unsafe_code)]

mod addrs;
mod busy;
mod cpu;
pub mod device;
mod driver;
mod error;
mod later;
mod park;
mod patience;
mod poller;
mod seat;
mod stack;
mod tcp;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;
mod waiter;
pub mod watch;
mod worker;

pub use driver::DeviceStatus;
pub use forebay_os::{bpf, netif, netns, tcp_repair, udp as kernel_udp};
/// The stack underneath, for who drives it by hand: no devices, no clock, no threads.
pub use forebay_stack as core;
/// What [`TcpStream`]s are told and tell.
pub use forebay_stack::tcp::{Algorithm, SendFlags, Side, TcpInfo, TcpState};
/// What messages of [`UdpSocket`]s are made of.
pub use forebay_stack::udp::{
    Datagram, ErrorOrigin, ErrorReport, Message, MtuDiscover, Received, RecvSlot,
};
pub use forebay_stack::{
    control, counters, drop, fib, filter, interface, multicast, steer, sysctl,
};
pub use forebay_sync::{rcu, tsc};
pub use poller::{Event, Events, Interest, Pollable, Poller};
pub use stack::{Stack, StackBuilder};
pub use tcp::{
    Incoming, ReuniteError, TcpListener, TcpReadHalf, TcpSocket, TcpStream, TcpWriteHalf,
};
pub use udp::{UdpOptions, UdpSocket};
pub use worker::Workers;
