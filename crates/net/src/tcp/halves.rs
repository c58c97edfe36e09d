//! A connection's two directions, apart.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::stream::TcpStream;

/// Reads from a [`TcpStream`]; of [`TcpStream::into_split`].
#[derive(Debug)]
pub struct TcpReadHalf {
    stream: Arc<TcpStream>,
}

/// Writes to a [`TcpStream`]; of [`TcpStream::into_split`]. When it is dropped, the peer reads the end
/// of the stream.
#[derive(Debug)]
pub struct TcpWriteHalf {
    stream: Arc<TcpStream>,
    /// Unless it was put together again, or left to the stream's end.
    ends_with_us: bool,
}

impl TcpReadHalf {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream }
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    ///
    /// [`ReuniteError`], with both of them, if they are not of one connection.
    pub fn reunite(self, other: TcpWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        let stream = Arc::into_inner(self.stream);
        Ok(stream.expect("there were but two halves, and one is gone"))
    }
}

impl AsRef<TcpStream> for TcpReadHalf {
    /// The whole, for its options and addresses.
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for TcpReadHalf {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self.stream).read_vectored(bufs)
    }
}

impl TcpWriteHalf {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self {
            stream,
            ends_with_us: true,
        }
    }

    /// Drops it, and leaves the direction open for as long as the other half is there.
    pub fn forget(mut self) {
        self.ends_with_us = false;
    }
}

impl AsRef<TcpStream> for TcpWriteHalf {
    /// The whole, for its options and addresses.
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Write for TcpWriteHalf {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.stream).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.stream).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpWriteHalf {
    fn drop(&mut self) {
        if self.ends_with_us {
            // It may be over already.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

/// Halves of two connections.
#[derive(Debug)]
pub struct ReuniteError(pub TcpReadHalf, pub TcpWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of one connection")
    }
}

impl std::error::Error for ReuniteError {}
