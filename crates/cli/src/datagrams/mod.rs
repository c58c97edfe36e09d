//! What `forebay sink` and `forebay flood` are made of: datagrams received or sent, on the
//! kernel's sockets or on Forebay's, and a row for each run.
//!
//! The tables have the form of those that `udp_sink` and `udp_flood` print, so that rows can be laid
//! side by side.

mod amount;
mod background;
mod batch;
mod receive;
mod rig;
mod send;
mod socket;
mod table;

pub(crate) mod pktgen;

pub(crate) use amount::Amount;
pub(crate) use background::Background;
pub(crate) use receive::{End, Limits, Received, Receiver};
pub(crate) use rig::Rig;
pub(crate) use send::{Flood, Sent};
pub(crate) use socket::{Host, ReceiveCall, SendCall, Sharing, Socket};
pub(crate) use table::{FloodRow, Place, SinkRow, Table, Test};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port that sinks listen on, unless another is named.
pub(crate) const PORT: u16 = 6_666;

/// Bytes of a datagram, unless said: with headers and checksum, a frame of 64 bytes on Ethernet.
pub(crate) const PAYLOAD: u16 = 18;

/// Datagrams of a call that takes several, unless said.
pub(crate) const BATCH: u16 = 32;

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Any address.
    pub(crate) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// 4 or 6.
    pub(crate) fn version(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}
