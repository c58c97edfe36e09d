//! Sockets for programs on [`tokio`].
//!
//! Needs the feature `tokio`. They work on any runtime of it, with or without its I/O driver: what
//! wakes a task is the stack, when a worker or a thread drives it.

mod halves;
mod tcp;
mod udp;
mod waiting;

pub use self::halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use self::tcp::{TcpListener, TcpStream};
pub use self::udp::UdpSocket;
