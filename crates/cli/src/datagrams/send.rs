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
    /// A datagram, or as many as a call sends that sends several.
    datagrams: Vec<Vec<u8>>,
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
    /// Datagrams have `payload` bytes; with `header`, those are pktgen's headers. A call that sends
    /// several sends `batch`.
    pub(crate) fn new(
        socket: Socket,
        peer: SocketAddr,
        payload: usize,
        header: bool,
        batch: usize,
    ) -> io::Result<Self> {
        socket.connect(peer)?;
        Ok(Self {
            socket,
            peer,
            datagrams: vec![vec![0; payload]; batch.max(1)],
            sequence: header.then_some(0),
        })
    }

    /// Sends so many datagrams.
    pub(crate) fn run(&mut self, call: SendCall, count: u64) -> io::Result<Sent> {
        let mut sent = Sent::default();
        let mut full_since = None;
        let start = Instant::now();
        while sent.amount.packets < count {
            match self.call(call, count - sent.amount.packets) {
                Ok(datagrams) => {
                    sent.amount.packets += u64::from(datagrams);
                    full_since = None;
                    self.sequence = self
                        .sequence
                        .map(|sequence| sequence.wrapping_add(datagrams));
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
        let payload = self.datagrams.first().map_or(0, Vec::len);
        sent.amount.bytes = sent.amount.packets * payload as u64;
        Ok(sent)
    }

    /// Sends at most so many datagrams, and says how many.
    fn call(&mut self, call: SendCall, wanted: u64) -> io::Result<u32> {
        let batch = match call {
            SendCall::SendMmsg => usize::try_from(wanted).unwrap_or(usize::MAX),
            _ => 1,
        };
        let batch = batch.min(self.datagrams.len());
        let datagrams = self.datagrams.get_mut(..batch).unwrap_or_default();
        if let Some(first) = self.sequence {
            for (datagram, nth) in datagrams.iter_mut().zip(0..) {
                pktgen::fill(datagram, first.wrapping_add(nth), SystemTime::now());
            }
        }
        match (call, &*datagrams) {
            (SendCall::SendMmsg, several) => {
                let sent = self.socket.send_many(several)?;
                Ok(u32::try_from(sent).unwrap_or(u32::MAX))
            }
            (_, [one, ..]) => self.socket.send(call, one, self.peer).map(|()| 1),
            (_, []) => Ok(0),
        }
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
