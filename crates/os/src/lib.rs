//! What Forebay asks of the operating system, as safe Rust over owned descriptors:
//!
//! - [`tun`]: TUN devices, whose queues carry packets between the kernel and Forebay;
//! - [`vnet`]: the virtio-net header in front of each of those packets;
//! - [`netif`]: addresses, routes and link state of the kernel's interfaces;
//! - [`netns`]: private networks, in which a command sees nothing but what Forebay gives it;
//! - [`bpf`] and [`tcp_repair`]: packets and connections for measuring the kernel's own stack;
//! - [`cpu`]: which processor a thread runs on;
//! - [`wake`] and [`poll`]: how a worker sleeps, and how others wake it.
//!
//! Linux only.

pub mod bpf;
pub mod cpu;
pub mod name;
pub mod netif;
pub mod netns;
pub mod poll;
pub mod tcp_repair;
pub mod tun;
pub mod udp;
pub mod vnet;
pub mod wake;
