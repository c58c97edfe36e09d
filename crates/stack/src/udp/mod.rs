//! UDP (RFC 768): sockets, what comes in, what goes out.

mod burst;
mod checksum;
mod datagram;
mod error;
mod filter;
mod gso;
mod info;
#[cfg(all(test, loom))]
mod interleavings;
pub(crate) mod memory;
mod multicast;
mod options;
pub(crate) mod queue;
mod ready;
mod receive;
mod recv;
mod send;
mod socket;
mod train;

pub use crate::ip::path_mtu::PathMtu;
pub(crate) use burst::{Burst, Taker, flush};
pub(crate) use checksum::{MAX_ON_ARRIVAL, is_good as has_good_checksum};
pub use datagram::Datagram;
pub use error::{ErrorOrigin, ErrorReport};
pub(crate) use error::{ErrorQueue, IcmpReport, receive_error};
pub use filter::FilterError;
pub use gso::MAX_SEGMENTS;
pub(crate) use gso::takes_joined;
pub(crate) use info::present;
pub use info::{SocketInfo, SocketState};
pub use multicast::{MembershipError, MulticastOption, SourceChange};
pub use options::{MtuDiscover, OptionError, SocketOptions};
pub use ready::Readiness;
pub(crate) use receive::receive;
pub use recv::{Received, RecvError, RecvSlot};
pub use send::{Message, UdpSendError};
pub(crate) use send::{or_loopback, scope_id};
pub(crate) use socket::local_route;
pub use socket::{BindError, ConnectError, NotOpen, TooManySockets};
pub(crate) use train::receive_train;
