//! Lines over a Unix socket, bounded in length and time: whoever is at the other end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream of lines in both directions.
pub(super) struct Lines {
    stream: UnixStream,
    /// What was read and belongs to no line returned yet.
    pending: Vec<u8>,
    /// The longest line to read, in bytes.
    limit: usize,
    /// How long a line may take, from asking for it to its end.
    timeout: Duration,
}

impl Lines {
    pub(super) fn new(stream: UnixStream, limit: usize, timeout: Duration) -> Self {
        Self {
            stream,
            pending: Vec::new(),
            limit,
            timeout,
        }
    }

    /// The next line without its end, or `None` when the other end has closed.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`], [`io::ErrorKind::InvalidData`] for a line over the limit,
    /// [`io::ErrorKind::UnexpectedEof`] for one that breaks off.
    pub(super) fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + self.timeout;
        let mut searched = 0;
        loop {
            let unsearched = self.pending.iter().skip(searched);
            if let Some(more) = unsearched.copied().position(|byte| byte == b'\n') {
                let rest = self.pending.split_off(searched + more + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                return Ok(Some(line));
            }
            searched = self.pending.len();
            if searched > self.limit {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.stream.set_read_timeout(Some(time_left(deadline)?))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) if self.pending.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.pending.extend(chunk.iter().take(n)),
                Err(error) => accept_interruption(error)?,
            }
        }
    }

    /// Writes a line.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if the other end doesn't read it.
    pub(super) fn write(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let deadline = Instant::now() + self.timeout;
        let mut unsent = line.as_slice();
        while !unsent.is_empty() {
            self.stream.set_write_timeout(Some(time_left(deadline)?))?;
            match self.stream.write(unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => unsent = unsent.get(n..).unwrap_or_default(),
                Err(error) => accept_interruption(error)?,
            }
        }
        Ok(())
    }
}

/// More than nothing, which would mean for ever.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// A signal, or the timeout that the deadline is about to confirm.
fn accept_interruption(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    fn lines_and_peer(timeout: Duration) -> (Lines, UnixStream) {
        let (stream, peer) = UnixStream::pair().unwrap();
        (Lines::new(stream, 100, timeout), peer)
    }

    #[test]
    fn lines_arrive_whole_however_they_were_cut() {
        let (mut lines, mut peer) = lines_and_peer(Duration::from_secs(5));
        let writer = thread::spawn(move || {
            for piece in ["on", "e\ntwo\n\nfo", "ur\nbroken"] {
                peer.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        for expected in ["one", "two", "", "four"] {
            assert_eq!(lines.read().unwrap().unwrap(), expected.as_bytes());
        }
        assert_eq!(
            lines.read().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        writer.join().unwrap();
    }

    #[test]
    fn a_closed_end_is_no_error() {
        let (mut lines, peer) = lines_and_peer(SHORT);
        drop(peer);
        assert_eq!(lines.read().unwrap(), None);
    }

    #[test]
    fn silence_trickle_and_endless_lines_end() {
        let (mut lines, _silent) = lines_and_peer(SHORT);
        assert_eq!(lines.read().unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (mut lines, mut peer) = lines_and_peer(SHORT);
        let trickle = thread::spawn(move || {
            while peer.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(lines.read().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(lines);
        trickle.join().unwrap();

        let (mut lines, mut peer) = lines_and_peer(Duration::from_secs(5));
        peer.write_all(&[b'x'; 1_000]).unwrap();
        assert_eq!(lines.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_peer_that_does_not_read_holds_nobody_up() {
        let (mut lines, _peer) = lines_and_peer(SHORT);
        let error = lines.write(vec![b'x'; 10_000_000]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
