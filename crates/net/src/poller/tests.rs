use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use forebay_stack::udp::MtuDiscover;

use super::*;
use crate::UdpSocket;

const BOTH: [&str; 2] = ["127.0.0.1:7", "[::1]:7"];
const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A datagram arrives.
    Send,
    /// One is read, and is there.
    Read,
    /// Nothing is there to read.
    Empty,
    Modify(Interest),
    /// What a call that doesn't wait tells.
    Told,
    ToldWritable,
    ToldBoth,
    Silent,
}

#[test]
fn level_and_edge() {
    use Step::*;
    let edge = READ.edge_triggered();
    let cases: [(Interest, &[Step]); 11] = [
        (
            READ,
            &[Silent, Send, Told, Told, Read, Silent, Empty, Send, Told],
        ),
        (READ, &[Send, Send, Told, Read, Told, Read, Silent]),
        (READ, &[Send, Read, Silent, Send, Told]),
        (READ, &[Silent, Send, Read, Send, Told, Read, Silent]),
        (edge, &[Silent, Send, Told, Silent, Read, Empty, Silent]),
        // Not read to the end: the next arrival tells of both.
        (edge, &[Send, Told, Silent, Send, Told, Silent, Read, Read]),
        (edge, &[Send, Told, Read, Empty, Send, Told, Read, Silent]),
        (edge, &[Send, Read, Empty, Silent, Send, Told]),
        (
            edge,
            &[
                Send,
                Told,
                Silent,
                Modify(edge),
                Told,
                Silent,
                Modify(READ),
                Told,
                Told,
            ],
        ),
        (
            READ | WRITE,
            &[
                ToldWritable,
                ToldWritable,
                Send,
                ToldBoth,
                Read,
                ToldWritable,
                Modify(READ),
                Silent,
                Modify(WRITE),
                Send,
                ToldWritable,
            ],
        ),
        (
            edge | WRITE,
            &[ToldWritable, Silent, Send, ToldBoth, Silent, Read, Silent],
        ),
    ];
    for addr in BOTH {
        for nonblocking in [false, true] {
            for (case, (interest, steps)) in cases.iter().enumerate() {
                let (stack, socket) = bound(addr);
                socket.set_nonblocking(nonblocking).expect("open");
                let poller = Poller::new(&stack);
                poller.add(&socket, 9, *interest).expect("new");
                for (at, step) in steps.iter().enumerate() {
                    let place = format!("{addr} {case} {at} {step:?}");
                    take(&stack, &poller, &socket, *step, &place);
                }
            }
        }
    }
}

fn take(stack: &Stack, poller: &Poller, socket: &UdpSocket, step: Step, place: &str) {
    let told = |readable, writable| {
        let told = events(poller);
        let expected = (readable || writable).then_some(Event {
            key: 9,
            readable,
            writable,
            ..Event::default()
        });
        assert_eq!(told, Vec::from_iter(expected), "{place}");
    };
    match step {
        Step::Send => send(stack, socket),
        Step::Read => drop(socket.recv(&mut [0; 8]).expect(place)),
        Step::Empty => {
            let none = socket.try_recv_vectored(&mut []);
            assert_eq!(none.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        Step::Modify(interest) => poller.modify(socket, 9, interest).expect(place),
        Step::Told => told(true, false),
        Step::ToldWritable => told(false, true),
        Step::ToldBoth => told(true, true),
        Step::Silent => told(false, false),
    }
}

#[test]
fn errors_are_told_unasked() {
    for addr in BOTH {
        let (stack, socket) = bound(addr);
        let nobody = SocketAddr::new(socket.local_addr().expect("bound").ip(), 9);
        let poller = Poller::new(&stack);
        for interest in [WRITE.edge_triggered(), READ, READ.edge_triggered()] {
            poller.add(&socket, 0, interest).expect("new");
            events(&poller);
            socket.connect(nobody).expect("loopback");
            socket.send(b"anybody?").expect("a route");
            drive(&stack);
            let expected = Event {
                key: 0,
                readable: interest.readable,
                writable: interest.writable,
                error: true,
                ..Event::default()
            };
            assert_eq!(events(&poller), [expected]);
            let told = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(events(&poller), []);
            poller.delete(&socket).expect("there");
        }
    }
}

#[test]
fn a_report_counts_until_it_is_read() {
    for addr in BOTH {
        let (stack, socket) = bound(addr);
        let poller = Poller::new(&stack);
        poller.add(&socket, 0, READ).expect("new");
        assert_eq!(events(&poller), []);
        // Nobody but this host finds out that it is too long.
        socket.set_recv_err(true).expect("open");
        socket.set_mtu_discover(MtuDiscover::Do).expect("open");
        let interface = stack.inner().interface_named("lo").expect("always there");
        let mtu = 1_400;
        let set = stack.inner().set_mtu(interface.index, mtu);
        set.expect("a good one");
        let refused = socket.send_to(&[0; 1_500], addr).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        let expected = Event {
            error: true,
            ..Event::default()
        };
        assert_eq!(events(&poller), [expected]);
        assert_eq!(events(&poller), [expected]);
        let report = socket.recv_error().expect("open").expect("one");
        assert_eq!(report.mtu, Some(mtu));
        assert_eq!(events(&poller), []);
    }
}

#[test]
fn what_is_registered_twice_or_not_at_all_is_refused() {
    let (stack, socket) = bound(BOTH[0]);
    let poller = Poller::new(&stack);
    let kind = |done: io::Result<()>| done.unwrap_err().kind();
    assert_eq!(kind(poller.delete(&socket)), io::ErrorKind::NotFound);
    assert_eq!(
        kind(poller.modify(&socket, 0, READ)),
        io::ErrorKind::NotFound
    );
    poller.add(&socket, 0, READ).expect("new");
    let clone = socket.try_clone().expect("a clone");
    assert_eq!(
        kind(poller.add(&clone, 0, READ)),
        io::ErrorKind::AlreadyExists
    );
    let (_, foreign) = bound(BOTH[0]);
    assert_eq!(
        kind(poller.add(&foreign, 0, READ)),
        io::ErrorKind::InvalidInput
    );
    // Two pollers may look at one socket.
    let second = Poller::new(&stack);
    second.add(&socket, 1, READ).expect("new");
    assert_eq!((events(&poller), events(&second)), (vec![], vec![]));
    send(&stack, &socket);
    assert_eq!((events(&poller).len(), events(&second).len()), (1, 1));
    poller.delete(&clone).expect("there");
    assert_eq!((events(&poller).len(), events(&second).len()), (0, 1));
}

#[test]
fn nothing_is_left_behind() {
    for interest in [READ, READ.edge_triggered()] {
        for ready in [false, true] {
            let (stack, socket) = bound(BOTH[0]);
            let poller = Poller::new(&stack);
            let source_of = |poller: &Poller| {
                let source = poller.sources().get(&socket.socket()).map(Arc::downgrade);
                source.expect("registered")
            };
            poller.add(&socket, 0, interest).expect("new");
            events(&poller);
            if ready {
                send(&stack, &socket);
            }
            let deleted = source_of(&poller);
            poller.delete(&socket).expect("there");
            assert_eq!(events(&poller), []);
            assert_eq!(deleted.strong_count(), 0);

            poller.add(&socket, 0, interest).expect("new");
            assert_eq!(events(&poller).len(), usize::from(ready));
            let (source, list) = (source_of(&poller), Arc::downgrade(&poller.ready));
            drop(poller);
            assert_eq!((source.strong_count(), list.strong_count()), (0, 0));
            send(&stack, &socket);
        }
    }
}

#[test]
fn a_closed_socket_is_forgotten() {
    for interest in [READ, READ.edge_triggered(), WRITE] {
        let (stack, socket) = bound(BOTH[0]);
        let poller = Poller::new(&stack);
        poller.add(&socket, 0, interest).expect("new");
        events(&poller);
        send(&stack, &socket);
        drop(socket);
        assert_eq!(events(&poller), []);
        assert!(poller.sources().is_empty());
        // Whoever gets the slot next is another socket.
        let next = UdpSocket::bind(&stack, BOTH[0]).expect("free again");
        poller.add(&next, 1, interest).expect("new");
        send(&stack, &next);
        assert_eq!(events(&poller).len(), 1);
    }
}

#[test]
fn no_more_events_than_there_is_room_and_everybody_in_turn() {
    let stack = Stack::builder().manual_clock().build().expect("a stack");
    let poller = Poller::new(&stack);
    let sockets: Vec<_> = (0..5)
        .map(|key| {
            let socket = UdpSocket::bind(&stack, "127.0.0.1:0").expect("a port");
            poller.add(&socket, key, READ).expect("new");
            send(&stack, &socket);
            socket
        })
        .collect();
    let mut few = Events::with_capacity(2);
    let mut told = [0; 5];
    for _ in 0..10 {
        assert_eq!(poller.wait(&mut few, None).expect("never fails"), 2);
        few.iter().for_each(|event| told[event.key] += 1);
    }
    assert_eq!(told, [4; 5]);
    drop(sockets);
    assert_eq!(events(&poller), []);
}

#[test]
fn waiting_ends_in_time_and_when_somebody_says_so() {
    let (stack, socket) = bound(BOTH[0]);
    let poller = Poller::new(&stack);
    poller.add(&socket, 0, READ).expect("new");
    let mut events = Events::with_capacity(4);
    let began = Instant::now();
    let timeout = Duration::from_millis(20);
    assert_eq!(poller.wait(&mut events, Some(timeout)).expect("in time"), 0);
    assert!(began.elapsed() >= timeout);
    poller.notify();
    poller.notify();
    assert_eq!(poller.wait(&mut events, None).expect("notified"), 0);
    thread::scope(|scope| {
        let waits = || poller.wait(&mut Events::with_capacity(1), None);
        let threads = [scope.spawn(waits), scope.spawn(waits)];
        thread::sleep(Duration::from_millis(5));
        poller.notify();
        while !threads.iter().any(ScopedJoinHandle::is_finished) {
            thread::yield_now();
        }
        poller.notify();
    });
}

/// Each datagram is sent when all before it are read, or some are on their way; a wake-up that is
/// lost stops the whole.
#[test]
fn arrivals_against_waits() {
    const SOCKETS: usize = 5;
    const DATAGRAMS: usize = 20_000;
    for interest in [READ, READ.edge_triggered()] {
        for (readers, window) in [(1, 1), (1, 32), (3, 1), (3, 32)] {
            let stack = Stack::builder().build().expect("a stack");
            let _worker = stack.spawn_workers().expect("a thread");
            let sockets: Vec<_> = (0..SOCKETS)
                .map(|_| {
                    let socket = UdpSocket::bind(&stack, "127.0.0.1:0").expect("a port");
                    socket.set_nonblocking(true).expect("open");
                    socket
                })
                .collect();
            let poller = Poller::new(&stack);
            let read = AtomicUsize::new(0);
            let lost = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..readers {
                    scope.spawn(|| {
                        let mut events = Events::with_capacity(3);
                        while read.load(Ordering::Relaxed) < DATAGRAMS {
                            let timeout = Some(Duration::from_secs(10));
                            poller.wait(&mut events, timeout).expect("never fails");
                            for event in &events {
                                while sockets[event.key].recv(&mut [0; 8]).is_ok() {
                                    read.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            if events.is_empty() && read.load(Ordering::Relaxed) < DATAGRAMS {
                                lost.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                        }
                        poller.notify();
                    });
                }
                let client = UdpSocket::bind(&stack, "127.0.0.1:0").expect("a port");
                for sent in 0..DATAGRAMS {
                    let socket = sent % SOCKETS;
                    // They come in while traffic is under way, and now and then go and come back.
                    if sent < SOCKETS {
                        poller.add(&sockets[socket], socket, interest).expect("new");
                    } else if sent % 97 == 0 {
                        poller.delete(&sockets[socket]).expect("there");
                        poller.add(&sockets[socket], socket, interest).expect("new");
                    }
                    let to = sockets[socket].local_addr().expect("bound");
                    client.send_to(b"x", to).expect("a route");
                    while sent >= read.load(Ordering::Relaxed) + window
                        && lost.load(Ordering::Relaxed) == 0
                    {
                        thread::yield_now();
                    }
                }
            });
            assert_eq!(
                read.into_inner(),
                DATAGRAMS,
                "{interest:?} {readers} {window}"
            );
        }
    }
}

/// Whatever they do at the moment, pollers leave no waker behind, and miss nothing at the start.
#[test]
fn pollers_come_and_go_under_traffic() {
    let stack = Stack::builder().build().expect("a stack");
    let _worker = stack.spawn_workers().expect("a thread");
    let socket = UdpSocket::bind(&stack, BOTH[0]).expect("free");
    socket.set_nonblocking(true).expect("open");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let client = UdpSocket::bind(&stack, "127.0.0.1:0").expect("a port");
            while !over.load(Ordering::Relaxed) {
                client.send_to(b"x", BOTH[0]).expect("loopback");
                thread::yield_now();
            }
        });
        let mut events = Events::with_capacity(4);
        for round in 0..1_000 {
            let poller = Poller::new(&stack);
            let interest = match round % 2 {
                0 => READ,
                _ => READ.edge_triggered(),
            };
            poller.add(&socket, round, interest).expect("new");
            let timeout = Some(Duration::from_secs(10));
            assert_eq!(poller.wait(&mut events, timeout).expect("never fails"), 1);
            assert!(events.iter().all(|event| event.key == round));
            while socket.recv(&mut [0; 8]).is_ok() {}
            let source = Arc::downgrade(&poller.sources()[&socket.socket()]);
            drop(poller);
            // Only a wake-up that is under way may still have it.
            let began = Instant::now();
            while source.strong_count() > 0 {
                assert!(began.elapsed() < Duration::from_secs(10));
                thread::yield_now();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn bound(addr: &str) -> (Stack, UdpSocket) {
    let stack = Stack::builder().manual_clock().build().expect("a stack");
    let socket = UdpSocket::bind(&stack, addr).expect("free");
    (stack, socket)
}

fn send(stack: &Stack, to: &UdpSocket) {
    let to = to.local_addr().expect("bound");
    let client = UdpSocket::bind(stack, (to.ip(), 0)).expect("a port");
    client.send_to(b"x", to).expect("a route");
    drive(stack);
}

fn drive(stack: &Stack) {
    for _ in 0..4 {
        stack.poll(stack.now());
    }
}

fn events(poller: &Poller) -> Vec<Event> {
    let mut events = Events::with_capacity(16);
    let told = poller.wait(&mut events, Some(Duration::ZERO));
    assert_eq!(told.expect("never fails"), events.len());
    events.iter().copied().collect()
}
