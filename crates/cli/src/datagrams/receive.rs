//! Receives datagrams and takes the time.

use std::hint;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::batch::Buffers;
use super::pktgen::{Check, Findings, Level};
use super::{Amount, ReceiveCall, Socket};

/// How often somebody who waits for the first datagram looks whether any can still come.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// When a run ends, and how it waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Datagrams of a run.
    pub(crate) count: u64,
    /// A run ends early when nothing has come for so long; `None`: never.
    pub(crate) silence: Option<Duration>,
    /// Ask again and again rather than wait.
    pub(crate) dontwait: bool,
    /// Datagrams of a call that receives several.
    pub(crate) batch: usize,
}

/// A socket that receives.
pub(crate) struct Receiver {
    socket: Socket,
    limits: Limits,
    check: Option<Level>,
    buffers: Buffers,
}

/// What came in one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) amount: Amount,
    /// How often the queue was empty when it was not to be waited for.
    pub(crate) empty: u64,
    pub(crate) pktgen: Option<Findings>,
    /// Why the run was over.
    pub(crate) end: End,
}

/// Why a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All have come that were to come.
    Complete,
    /// Nothing came any more.
    Silence,
    /// A check found a fault, and was to stop there.
    Fault,
}

impl Receiver {
    pub(crate) fn new(socket: Socket, limits: Limits, check: Option<Level>) -> Self {
        Self {
            socket,
            limits,
            check,
            buffers: Buffers::new(limits.batch),
        }
    }

    /// Waits for a datagram of anybody, and says whose it was: `None` if none came until nobody is
    /// there to send.
    pub(crate) fn first(
        &mut self,
        mut is_over: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<Option<SocketAddr>> {
        self.socket.disconnect()?;
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(LOOK_AROUND))?;
        loop {
            match self.socket.sender(self.buffers.one()) {
                Ok(sender) => return Ok(Some(sender)),
                Err(error) if is_silence(&error) && is_over()? => return Ok(None),
                Err(error) if is_silence(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes datagrams of this sender only from now on.
    pub(crate) fn connect(&self, sender: SocketAddr) -> io::Result<()> {
        self.socket.connect(sender)
    }

    /// Receives until a limit is reached.
    pub(crate) fn run(&mut self, call: ReceiveCall) -> io::Result<Received> {
        let Limits {
            count,
            silence,
            dontwait,
            batch,
        } = self.limits;
        self.socket.set_read_timeout(silence)?;
        self.socket.set_nonblocking(dontwait)?;
        let mut check = self.check.map(Check::new);
        let mut places = self.buffers.places(&self.socket, call);
        let (mut amount, mut empty) = (Amount::default(), 0);
        let mut empty_since = None;
        let start = Instant::now();
        let (end, at) = 'run: loop {
            if amount.packets == count {
                break (End::Complete, Instant::now());
            }
            let left = usize::try_from(count - amount.packets).unwrap_or(usize::MAX);
            match places.receive(&self.socket, left.min(batch)) {
                Ok(received) => {
                    empty_since = None;
                    for datagram in (0..received).map(|nth| places.datagram(nth)) {
                        amount.packets += 1;
                        amount.bytes += datagram.len() as u64;
                        if check.as_mut().is_some_and(|check| !check.look(datagram)) {
                            break 'run (End::Fault, Instant::now());
                        }
                    }
                }
                Err(error) if is_silence(&error) && dontwait => {
                    empty += 1;
                    let since = *empty_since.get_or_insert_with(Instant::now);
                    if silence.is_some_and(|silence| since.elapsed() >= silence) {
                        break (End::Silence, since);
                    }
                    hint::spin_loop();
                }
                // The call began when the last datagram had been taken.
                Err(error) if is_silence(&error) => {
                    let now = Instant::now();
                    let began = silence.and_then(|silence| now.checked_sub(silence));
                    break (End::Silence, began.unwrap_or(now));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        };
        amount.elapsed = at.saturating_duration_since(start);
        Ok(Received {
            amount,
            empty,
            pktgen: check.map(|check| check.findings()),
            end,
        })
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A signal came, or news about a datagram that this socket never sent: no reason to end.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use forebay::{Stack, Workers};

    use super::super::{Flood, Host, SendCall};
    use super::*;

    const LIMITS: Limits = Limits {
        count: 10,
        silence: Some(Duration::from_millis(300)),
        dontwait: false,
        batch: 4,
    };

    /// Hosts whose loopbacks work.
    fn hosts() -> (Vec<Host>, Workers) {
        let stack = Stack::builder().build().unwrap();
        let worker = stack.spawn_workers().unwrap();
        (vec![Host::Kernel, Host::Forebay(stack)], worker)
    }

    /// A sink and its flood.
    fn pair(host: &Host, limits: Limits, check: Option<Level>) -> (Receiver, Flood) {
        let any = "127.0.0.1:0".parse().unwrap();
        // Linux takes a port that nobody has named away when a socket is disconnected.
        let addr = local_addr(&host.bind(any).unwrap());
        let socket = host.bind(addr).unwrap();
        let flood = Flood::new(host.bind(any).unwrap(), addr, 18, true, 4);
        (Receiver::new(socket, limits, check), flood.unwrap())
    }

    fn local_addr(socket: &Socket) -> SocketAddr {
        match socket {
            Socket::Kernel(socket) => socket.local_addr().unwrap(),
            Socket::Forebay(socket) => socket.local_addr().unwrap(),
        }
    }

    #[test]
    fn a_run_counts_what_came_and_ends_when_nothing_comes() {
        let (hosts, _worker) = hosts();
        for host in &hosts {
            for dontwait in [false, true] {
                for (coming, end) in [(0, End::Silence), (4, End::Silence), (10, End::Complete)] {
                    let limits = Limits { dontwait, ..LIMITS };
                    let (mut receiver, mut flood) = pair(host, limits, None);
                    flood.run(SendCall::Send, coming).unwrap();
                    let received = receiver.run(ReceiveCall::Recvfrom).unwrap();
                    assert_eq!(received.end, end);
                    assert_eq!(received.amount.packets, coming);
                    assert_eq!(received.amount.bytes, 18 * coming);
                    // What comes in full may still have been on its way at the first look.
                    if end == End::Silence || !dontwait {
                        assert_eq!(received.empty > 0, dontwait);
                    }
                }
            }
        }
    }

    #[test]
    fn every_call_receives() {
        let (hosts, _worker) = hosts();
        for host in &hosts {
            let (mut receiver, mut flood) = pair(host, LIMITS, Some(Level::Repeat));
            for send in SendCall::ALL {
                flood.run(send, 1).unwrap();
                let sender = receiver.first(|| Ok(false)).unwrap().expect("a sender");
                receiver.connect(sender).unwrap();
                for receive in ReceiveCall::ALL {
                    flood.run(send, LIMITS.count).unwrap();
                    let received = receiver.run(receive).unwrap();
                    assert_eq!(received.end, End::Complete);
                    assert_eq!(received.pktgen, Some(Findings::default()));
                }
            }
        }
    }

    #[test]
    fn the_strictest_check_ends_a_run() {
        let (hosts, _worker) = hosts();
        for host in &hosts {
            let (mut receiver, mut flood) = pair(host, LIMITS, Some(Level::Strict));
            flood.run(SendCall::Send, 2).unwrap();
            flood.skip();
            flood.run(SendCall::Send, 10).unwrap();
            let received = receiver.run(ReceiveCall::Recv).unwrap();
            assert_eq!((received.end, received.amount.packets), (End::Fault, 3));
        }
    }

    #[test]
    fn nobody_waits_for_those_who_are_gone() {
        let (hosts, _worker) = hosts();
        for host in &hosts {
            let (mut receiver, _) = pair(host, LIMITS, None);
            assert_eq!(receiver.first(|| Ok(true)).unwrap(), None);
        }
    }
}
