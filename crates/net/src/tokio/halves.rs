//! A connection's two directions, apart.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tcp::TcpStream;

/// Reads from a [`TcpStream`] that is borrowed; of [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// Writes to a [`TcpStream`] that is borrowed; of [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

/// Reads from a [`TcpStream`]; of [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<TcpStream>,
}

/// Writes to a [`TcpStream`]; of [`TcpStream::into_split`]. When it is dropped, the peer reads the end
/// of the stream.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    /// Unless it was put together again, or left to the stream's end.
    ends_with_us: bool,
}

pub(super) fn split(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn split_owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    let writes = OwnedWriteHalf {
        stream: Arc::clone(&stream),
        ends_with_us: true,
    };
    (OwnedReadHalf { stream }, writes)
}

impl OwnedReadHalf {
    /// Puts the halves together again.
    ///
    /// # Errors
    ///
    /// [`ReuniteError`], with both of them, if they are not of one connection.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        let stream = Arc::into_inner(self.stream);
        Ok(stream.expect("there were but two halves, and one is gone"))
    }
}

impl OwnedWriteHalf {
    /// Drops it, and leaves the direction open for as long as the other half is there.
    pub fn forget(mut self) {
        self.ends_with_us = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends_with_us {
            // It may be over already.
            let _ = self.stream.shutdown_write();
        }
    }
}

impl AsRef<TcpStream> for ReadHalf<'_> {
    /// The whole, for its options, addresses and calls that don't wait.
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for WriteHalf<'_> {
    /// The whole, for its options, addresses and calls that don't wait.
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    /// The whole, for its options, addresses and calls that don't wait.
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    /// The whole, for its options, addresses and calls that don't wait.
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

macro_rules! reads {
    ($($half:ty)*) => {$(
        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                (*self).as_ref().poll_read_shared(cx, buf)
            }
        }
    )*};
}

macro_rules! writes {
    ($($half:ty)*) => {$(
        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_shared(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_shared(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready((*self).as_ref().shutdown_write())
            }
        }
    )*};
}

reads! { ReadHalf<'_> OwnedReadHalf }
writes! { WriteHalf<'_> OwnedWriteHalf }

/// Halves of two connections.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of one connection")
    }
}

impl std::error::Error for ReuniteError {}
