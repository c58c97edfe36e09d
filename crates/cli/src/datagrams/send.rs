//! Sends datagrams as fast as they go, and takes the time.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;

use super::{Amount, SendCall, Socket, pktgen};

/// How long a sender tries again that finds no room.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connected socket that sends.
pub(crate) struct Flood {
    socket: Socket,
    peer: SocketAddr,
    payload: Vec<u8>,
    /// Of the next datagram, if they are numbered.
    sequence: Option<u32>,
}

/// What was sent in one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) amount: Amount,
    /// How often there was no room, so that it had to be tried again.
    pub(crate) full: u64,
    /// How often the peer said that nobody listens there.
    pub(crate) refused: u64,
}

impl Flood {
    /// Datagrams have `payload` bytes; with `header`, those are pktgen's headers.
    pub(crate) fn new(
        socket: Socket,
        peer: SocketAddr,
        payload: usize,
        header: bool,
    ) -> io::Result<Self> {
        socket.connect(peer)?;
        Ok(Self {
            socket,
            peer,
            payload: vec![0; payload],
            sequence: header.then_some(0),
        })
    }

    /// Sends so many datagrams.
    pub(crate) fn run(&mut self, call: SendCall, count: u64) -> io::Result<Sent> {
        let mut sent = Sent::default();
        let mut full_since = None;
        let start = Instant::now();
        while sent.amount.packets < count {
            if let Some(sequence) = self.sequence {
                pktgen::fill(&mut self.payload, sequence, SystemTime::now());
            }
            match self.socket.send(call, &self.payload, self.peer) {
                Ok(()) => {
                    sent.amount.packets += 1;
                    full_since = None;
                    self.sequence = self.sequence.map(|sequence| sequence.wrapping_add(1));
                }
                // Told instead of sending; the next one goes out.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => sent.refused += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => {
                    sent.full += 1;
                    if let ControlFlow::Break(()) = wait(&mut full_since) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        sent.amount.elapsed = start.elapsed();
        sent.amount.bytes = sent.amount.packets * self.payload.len() as u64;
        Ok(sent)
    }
}

/// Lets others run who may make room, unless it has taken too long already.
fn wait(full_since: &mut Option<Instant>) -> ControlFlow<()> {
    let since = *full_since.get_or_insert_with(Instant::now);
    if since.elapsed() >= PATIENCE {
        return ControlFlow::Break(());
    }
    thread::yield_now();
    ControlFlow::Continue(())
}

fn is_full(error: &io::Error) -> bool {
    let is_full = matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::WouldBlock);
    is_full || error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
impl Flood {
    /// Passes over a number, as if a datagram were lost.
    pub(super) fn skip(&mut self) {
        self.sequence = self.sequence.map(|sequence| sequence.wrapping_add(1));
    }
}
