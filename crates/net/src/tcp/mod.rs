//! TCP sockets in the manner of [`std::net`].

mod halves;
mod handle;
mod listener;
mod options;
mod ready;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use self::halves::{ReuniteError, TcpReadHalf, TcpWriteHalf};
pub use self::listener::{Incoming, TcpListener};
pub use self::socket::TcpSocket;
pub use self::stream::TcpStream;
