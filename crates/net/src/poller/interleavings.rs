//! Sources, the list of those that are ready, and the threads that wait, under every interleaving and
//! memory order that loom can think of, up to a bound on preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p forebay --release --lib interleavings
//! ```
//!
//! An event that is not told is a deadlock, which loom reports. The sockets are made of what their
//! users rely on: `forebay-stack` has models of its own for that.

use std::sync::Arc;
use std::task::Waker;

use forebay_stack::socket::SocketId;
use forebay_stack::udp::NotOpen;
use forebay_sync::loom::{Mutex, lock};
use loom::thread::{self, JoinHandle};

use super::events::{Event, Events, Interest};
use super::ready::ReadyList;
use super::source::{AnySocket, Readiness, Sockets, Source};

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// A poller with two sockets, both registered.
struct Bench {
    sockets: [Mutex<Socket>; 2],
    ready: Arc<ReadyList>,
    sources: [Arc<Source>; 2],
}

#[derive(Default)]
struct Socket {
    datagrams: usize,
    wakers: Vec<Waker>,
    closed: bool,
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

impl Bench {
    fn new(interest: Interest) -> Arc<Self> {
        let ready = Arc::<ReadyList>::default();
        let sources = [0, 1].map(|slot| {
            let key = slot as usize;
            let socket = AnySocket::Udp(SocketId::of_model(slot));
            let source = Source::new(socket, key, interest, &ready);
            ready.push(Arc::clone(&source));
            source
        });
        Arc::new(Self {
            sockets: [Mutex::default(), Mutex::default()],
            ready,
            sources,
        })
    }

    /// Delivers a datagram in a thread of its own.
    fn delivery(self: &Arc<Self>, key: usize) -> JoinHandle<()> {
        let bench = Arc::clone(self);
        thread::spawn(move || {
            bench.change(key, |socket| socket.datagrams += 1);
        })
    }

    /// Something happens to a socket of which who waits should hear.
    fn change(&self, key: usize, change: impl FnOnce(&mut Socket)) {
        let mut socket = lock(&self.sockets[key]);
        change(&mut socket);
        let wakers = core::mem::take(&mut socket.wakers);
        drop(socket);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes a datagram, if one is there.
    fn read(&self, key: usize) -> usize {
        let mut socket = lock(&self.sockets[key]);
        let read = socket.datagrams.min(1);
        socket.datagrams -= read;
        read
    }

    fn wait(&self) -> Vec<Event> {
        let mut events = Events::with_capacity(4);
        self.ready.wait(self, &mut events, None, |_| ());
        events.iter().copied().collect()
    }

    fn socket(&self, socket: AnySocket) -> &Mutex<Socket> {
        let is_first = socket == AnySocket::Udp(SocketId::of_model(0));
        &self.sockets[usize::from(!is_first)]
    }
}

impl Sockets for Bench {
    fn readiness(&self, socket: AnySocket) -> Result<Readiness, NotOpen> {
        let socket = lock(self.socket(socket));
        let readiness = Readiness {
            readable: socket.datagrams > 0,
            writable: true,
            ..Readiness::default()
        };
        (!socket.closed).then_some(readiness).ok_or(NotOpen)
    }

    fn arm(&self, socket: AnySocket, _: Interest, waker: &Waker) -> Result<(), NotOpen> {
        let mut socket = lock(self.socket(socket));
        if socket.closed {
            return Err(NotOpen);
        }
        if !socket.wakers.iter().any(|other| other.will_wake(waker)) {
            socket.wakers.push(waker.clone());
        }
        Ok(())
    }

    fn forget(&self, socket: AnySocket, waker: &Waker) {
        let mut socket = lock(self.socket(socket));
        socket.wakers.retain(|other| !other.will_wake(waker));
    }
}

/// One datagram at a time is read of what is told, so the second must be told of again.
#[test]
fn level_triggered_each_datagram_is_told() {
    model(3, || {
        let bench = Bench::new(Interest::READABLE);
        let deliveries = [bench.delivery(0), bench.delivery(0)];
        let mut read = 0;
        while read < 2 {
            for event in bench.wait() {
                assert_eq!((event.key, event.readable), (0, true));
                read += bench.read(0);
            }
        }
        join(deliveries);
    });
}

#[test]
fn edge_triggered_who_reads_to_the_end_misses_nothing() {
    model(3, || {
        let bench = Bench::new(Interest::READABLE.edge_triggered());
        let deliveries = [bench.delivery(0), bench.delivery(0)];
        let mut read = 0;
        while read < 2 {
            for event in bench.wait() {
                while bench.read(event.key) > 0 {
                    read += 1;
                }
            }
        }
        join(deliveries);
    });
}

#[test]
fn each_of_two_sockets_is_told() {
    model(2, || {
        let bench = Bench::new(Interest::READABLE);
        let deliveries = [bench.delivery(0), bench.delivery(1)];
        let mut read = [0; 2];
        while read != [1, 1] {
            for event in bench.wait() {
                read[event.key] += bench.read(event.key);
            }
        }
        join(deliveries);
    });
}

/// Each waits for one; the event that one of them has been told is the other's no longer.
#[test]
fn two_who_wait_are_told_each() {
    model(1, || {
        let bench = Bench::new(Interest::READABLE);
        let deliveries = [bench.delivery(0), bench.delivery(1)];
        let read_one = |bench: &Bench| {
            while !bench.wait().iter().any(|event| bench.read(event.key) > 0) {}
        };
        let other = thread::spawn({
            let bench = Arc::clone(&bench);
            move || read_one(&bench)
        });
        read_one(&bench);
        other.join().unwrap();
        join(deliveries);
    });
}

#[test]
fn who_is_notified_returns() {
    model(3, || {
        let bench = Bench::new(Interest::READABLE);
        let notifier = thread::spawn({
            let bench = Arc::clone(&bench);
            move || bench.ready.notify()
        });
        assert_eq!(bench.wait(), []);
        notifier.join().unwrap();
    });
}

/// A registration that ends while another thread looks leaves no waker behind, whoever is first.
#[test]
fn who_is_taken_out_leaves_no_waker() {
    for interest in [Interest::READABLE, Interest::READABLE.edge_triggered()] {
        model(3, move || {
            let bench = Bench::new(interest);
            let looking = thread::spawn({
                let bench = Arc::clone(&bench);
                move || drop(bench.sources[0].visit(&*bench))
            });
            let delivery = bench.delivery(0);
            bench.sources[0].retire(&*bench);
            looking.join().unwrap();
            delivery.join().unwrap();
            assert!(lock(&bench.sockets[0]).wakers.is_empty());
            assert!(bench.sources[0].visit(&*bench).is_err());
        });
    }
}
