//! UDP (RFC 768): sockets, what comes in, what goes out.

mod error;
mod filter;
mod info;
mod multicast;
mod options;
pub(crate) mod queue;
mod receive;
mod recv;
mod send;
mod socket;

pub(crate) use error::receive_error;
pub use filter::FilterError;
pub use info::{SocketInfo, SocketState};
pub use multicast::{MembershipError, MulticastOption, SourceChange};
pub use options::OptionError;
pub(crate) use receive::receive;
pub use recv::{Received, RecvError};
pub use send::UdpSendError;
pub use socket::{BindError, ConnectError, NotOpen, TooManySockets};
