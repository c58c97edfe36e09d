//! TCP (RFC 9293).
//!
//! A `connection` is a pure state machine; around it:
//!
//! | | |
//! |---|---|
//! | `receive` | a segment for this host, top to bottom: open this first |
//! | `listen` | segments that begin connections |
//! | `output` | segments become packets |
//! | `aftermath` | what follows when something has happened to a connection |
//! | `early` | connections that are found before any route is looked up |
//! | `deadlines` | what time does |
//! | `icmp` | what the network reports |
//! | `socket` | what applications call |
//! | `table`, `listeners`, `ports`, `request`, `time_wait` | who is where |
//! | `timers` | who is to be looked at when |

mod aftermath;
mod chunks;
pub(crate) mod congestion;
mod connection;
mod cookies;
mod deadlines;
pub(crate) mod early;
mod error;
mod events;
mod icmp;
mod info;
mod isn;
mod listen;
mod listeners;
mod options;
mod output;
mod pacing;
mod place;
mod ports;
mod receive;
mod receiver;
mod request;
mod rtt;
mod sender;
mod shared;
mod socket;
mod table;
mod terms;
mod time_wait;
mod timers;

pub(crate) use chunks::Chunks;
pub use congestion::Algorithm;
pub(crate) use deadlines::expire;
pub use error::{ListenError, TcpConnectError, TcpError};
pub(crate) use events::Events;
pub(crate) use icmp::receive_error;
pub use info::{
    Accepted, SendFlags, Side, TcpInfo, TcpReadiness, TcpSocketInfo, TcpState, TcpTimer,
};
pub use options::{TcpOption, TcpOptionValues};
pub(crate) use receive::receive;
pub(crate) use shared::Tcp;
