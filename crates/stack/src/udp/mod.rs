//! UDP (RFC 768): sockets, what comes in, what goes out.

mod error;
pub(crate) mod queue;
mod receive;
mod send;
mod socket;

pub(crate) use error::receive_error;
pub(crate) use receive::receive;
pub use send::UdpSendError;
pub use socket::{
    BindError, ConnectError, NotOpen, OptionError, Received, RecvError, SocketInfo, SocketState,
    TooManySockets,
};
