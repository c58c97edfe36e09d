//! Receive queues and those who wait at them, under every interleaving and memory order that loom can
//! think of, up to a bound on preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p forebay-stack --release --lib interleavings
//! ```
//!
//! Whoever waits and is not woken is a deadlock, which loom reports.

use core::num::NonZeroU32;
use core::task::Waker;
use std::sync::LazyLock;
use std::task::Wake;

use loom::sync::{Arc, Notify};
use loom::thread::{self, JoinHandle};

use super::memory::{Allowance, PAGE, SocketMemory};
use super::queue::Moved;
use super::ready::still_open;
use crate::packet::{Packet, PacketPool, PacketQueue};
use crate::socket::{Mode, Slot, SocketError, SocketId, Status};
use crate::sysctl::Sysctls;

/// Loom runs all threads of a model on one, and so sees nothing of what the pool does.
static POOL: LazyLock<PacketPool> = LazyLock::new(|| PacketPool::new(64));

const ID: SocketId = SocketId {
    slot: 0,
    generation: NonZeroU32::MIN,
};

/// A socket that takes datagrams from anybody.
const OPEN: Status = Status {
    generation: 1,
    mode: Mode::Bound,
    keys: 0,
};

const CLOSED: Status = Status {
    generation: 2,
    mode: Mode::Closed,
    keys: 0,
};

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    // Who has to wait for a lock spins: where three threads may, few preemptions are many.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

fn socket() -> Arc<Slot> {
    let slot = Slot::default();
    slot.set_status(OPEN);
    slot.queue.set_limit(1 << 16);
    Arc::new(slot)
}

/// A core that has one datagram for the socket.
struct Producer {
    allowance: Allowance,
    sysctls: Sysctls,
    datagrams: PacketQueue,
}

impl Producer {
    fn new() -> Self {
        let memory = SocketMemory::new(1_024 * PAGE);
        let mut sysctls = Sysctls::default();
        sysctls.set_udp_mem(memory.pages());
        let mut datagrams = PacketQueue::new();
        datagrams.push(POOL.cache().alloc().expect("a buffer"));
        Self {
            allowance: memory.allowance(),
            sysctls,
            datagrams,
        }
    }

    fn push(&mut self, slot: &Slot) -> Result<(), Moved> {
        let Self {
            allowance,
            sysctls,
            datagrams,
        } = self;
        slot.queue.push(datagrams, allowance, sysctls, OPEN.pack())
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Delivers a datagram in a thread of its own.
fn delivery(slot: &Arc<Slot>) -> JoinHandle<()> {
    let slot = Arc::clone(slot);
    thread::spawn(move || {
        let mut producer = Producer::new();
        assert_eq!(producer.push(&slot), Ok(()));
        assert!(producer.datagrams.is_empty());
    })
}

/// Wakes who waits for it. Loom's threads can't be parked here: they forget that they were woken if
/// they were about to give way at a lock.
struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

fn alarm() -> (std::sync::Arc<Alarm>, Waker) {
    let alarm = std::sync::Arc::new(Alarm(Notify::new()));
    (std::sync::Arc::clone(&alarm), Waker::from(alarm))
}

/// The next datagram, or `None` if the socket is closed first.
fn wait(slot: &Slot) -> Option<Packet> {
    let (alarm, waker) = alarm();
    loop {
        if let Some(packet) = slot.queue.pop(|| slot.status_of(ID).is_some()) {
            return Some(packet);
        }
        slot.queue.register(&waker);
        still_open(slot, ID, &waker).ok()?;
        alarm.0.wait();
    }
}

/// Nothing waits any more, and nothing is charged.
fn assert_at_rest(slot: &Slot) {
    assert_eq!(slot.queue.memory().used, 0);
    let mut reading = slot.queue.read(|| true).expect("the right one");
    assert!(reading.front().is_none());
}

#[test]
fn who_waits_gets_what_two_cores_deliver() {
    model(1, || {
        let slot = socket();
        let deliveries = [delivery(&slot), delivery(&slot)];
        assert!(wait(&slot).is_some());
        assert!(wait(&slot).is_some());
        join(deliveries);
        assert_at_rest(&slot);
    });
}

#[test]
fn datagrams_come_in_their_order() {
    model(3, || {
        let slot = socket();
        let delivery = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                for port in 1..=3 {
                    let mut producer = Producer::new();
                    if let Some(datagram) = producer.datagrams.peek_mut() {
                        datagram.src_port = port;
                    }
                    assert_eq!(producer.push(&slot), Ok(()));
                }
            }
        });
        let ports = [(); 3].map(|()| wait(&slot).map(|datagram| datagram.src_port));
        assert_eq!(ports, [1, 2, 3].map(Some));
        delivery.join().unwrap();
        assert_at_rest(&slot);
    });
}

#[test]
fn two_who_wait_get_one_datagram_each() {
    model(1, || {
        let slot = socket();
        let other = thread::spawn({
            let slot = Arc::clone(&slot);
            move || assert!(wait(&slot).is_some())
        });
        let deliveries = [delivery(&slot), delivery(&slot)];
        assert!(wait(&slot).is_some());
        other.join().unwrap();
        join(deliveries);
        assert_at_rest(&slot);
    });
}

/// What one reader has taken over and left, another one finds, whatever comes meanwhile.
#[test]
fn a_reader_hides_nothing_from_another() {
    model(3, || {
        let slot = socket();
        let push = || assert_eq!(Producer::new().push(&slot), Ok(()));
        push();
        push();
        let other = thread::spawn({
            let slot = Arc::clone(&slot);
            move || assert!(wait(&slot).is_some())
        });
        assert!(wait(&slot).is_some());
        push();
        assert!(wait(&slot).is_some());
        other.join().unwrap();
        assert_at_rest(&slot);
    });
}

/// As pollers and edge-triggered sources do: first the waker, then the look.
#[test]
fn who_arms_before_the_look_misses_nothing() {
    model(1, || {
        let slot = socket();
        let deliveries = [delivery(&slot), delivery(&slot)];
        let ((alarm, waker), mut read) = (alarm(), 0);
        while read < 2 {
            slot.queue.arm(&waker);
            match slot.queue.pop(|| true) {
                Some(_) => read += 1,
                None => alarm.0.wait(),
            }
        }
        join(deliveries);
        assert_at_rest(&slot);
    });
}

#[test]
fn who_waits_no_longer_takes_nobody_along() {
    model(1, || {
        let slot = socket();
        let leaving = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                let (_, waker) = alarm();
                slot.queue.register(&waker);
                slot.queue.disarm(&waker);
            }
        });
        let delivery = delivery(&slot);
        assert!(wait(&slot).is_some());
        leaving.join().unwrap();
        delivery.join().unwrap();
    });
}

#[test]
fn an_error_wakes_who_waits() {
    model(3, || {
        let slot = socket();
        let network = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.queue.set_error(SocketError::ConnectionRefused)
        });
        let (alarm, waker) = alarm();
        while slot.queue.take_error().is_none() {
            slot.queue.register(&waker);
            alarm.0.wait();
        }
        network.join().unwrap();
        assert_eq!(slot.queue.take_error(), None);
    });
}

/// As `connect` relies on: what came by the old state is in the queue when the new one counts, and
/// nothing comes later.
#[test]
fn who_has_moved_gets_nothing_more_by_the_old_state() {
    model(3, || {
        let slot = socket();
        let delivery = thread::spawn({
            let slot = Arc::clone(&slot);
            move || Producer::new().push(&slot)
        });
        slot.set_status(Status { keys: 1, ..OPEN });
        let read = slot.queue.pop(|| true);
        let pushed = delivery.join().unwrap();
        assert_eq!(pushed.is_ok(), read.is_some());
    });
}

/// As `udp_close` does it.
fn close(slot: &Slot) -> usize {
    slot.set_status(CLOSED);
    let dropped = slot.queue.purge().len();
    slot.queue.wake();
    dropped
}

#[test]
fn who_waits_hears_that_the_socket_is_closed() {
    model(3, || {
        let slot = socket();
        let closing = thread::spawn({
            let slot = Arc::clone(&slot);
            move || close(&slot)
        });
        assert!(wait(&slot).is_none());
        closing.join().unwrap();
    });
}

/// A datagram on its way to a socket that is closed is dropped with it, or left to who brings it;
/// the socket that has the slot next finds neither it nor its charge.
#[test]
fn a_closed_socket_leaves_nothing_to_the_next() {
    model(3, || {
        let slot = socket();
        let closing = thread::spawn({
            let slot = Arc::clone(&slot);
            move || close(&slot)
        });
        let mut producer = Producer::new();
        let pushed = producer.push(&slot);
        let dropped = closing.join().unwrap();
        match pushed {
            Ok(()) => assert_eq!((dropped, producer.datagrams.len()), (1, 0)),
            Err(Moved) => assert_eq!((dropped, producer.datagrams.len()), (0, 1)),
        }
        assert_at_rest(&slot);
    });
}

/// The same while somebody reads: the reader, or who closes, has the datagram and its charge.
#[test]
fn a_reader_and_who_closes_give_a_charge_back_once() {
    model(1, || {
        let slot = socket();
        assert_eq!(Producer::new().push(&slot), Ok(()));
        let reader = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                let read = slot.queue.pop(|| slot.status_of(ID).is_some());
                usize::from(read.is_some())
            }
        });
        let delivery = thread::spawn({
            let slot = Arc::clone(&slot);
            move || usize::from(Producer::new().push(&slot).is_err())
        });
        let dropped = close(&slot);
        let read = reader.join().unwrap();
        let late = delivery.join().unwrap();
        assert_eq!(read + dropped + late, 2);
        assert_at_rest(&slot);
    });
}
