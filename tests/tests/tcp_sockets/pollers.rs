//! One poller over sockets of all kinds.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{Event, Events, Interest, Poller, TcpStream, UdpSocket};

use crate::{GRACE, Host, PATIENCE, connected, everywhere, pattern};

const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;

/// The next events; the wait ends with the first of them.
fn wait(poller: &Poller) -> Vec<Event> {
    let mut events = Events::with_capacity(16);
    let count = poller.wait(&mut events, Some(PATIENCE));
    assert_ne!(count.expect("never fails"), 0, "nothing came");
    events.iter().copied().collect()
}

fn is_silent(poller: &Poller) -> bool {
    let mut events = Events::with_capacity(16);
    poller.wait(&mut events, Some(GRACE)).expect("never fails") == 0
}

#[test]
fn sockets_of_each_kind() {
    everywhere(|left, right| {
        let poller = Poller::new(&right.stack);
        let listener = right.listen(9);
        listener.set_nonblocking(true).expect("open");
        let datagrams = UdpSocket::bind(&right.stack, right.at(9)).expect("free");
        let (mut client, mut server) = connected(left, right);
        for interest in [READ, READ.edge_triggered()] {
            poller.add(&listener, 0, interest).expect("new");
            poller.add(&datagrams, 1, interest).expect("new");
            poller.add(&server, 2, interest).expect("new");
            assert!(is_silent(&poller));
            let expected = |key| Event {
                key,
                readable: true,
                ..Event::default()
            };

            let _another = left.connect(right.at(9));
            assert_eq!(wait(&poller), [expected(0)]);
            listener.accept().expect("a connection");

            let sender = UdpSocket::bind(&left.stack, (left.addr, 0)).expect("a port");
            sender.send_to(b"x", right.at(9)).expect("a way");
            assert_eq!(wait(&poller), [expected(1)]);
            datagrams.recv(&mut [0; 8]).expect("there");

            client.write_all(b"x").expect("connected");
            assert_eq!(wait(&poller), [expected(2)]);
            assert_eq!(server.read(&mut [0; 8]).expect("connected"), 1);
            assert!(is_silent(&poller));

            poller.delete(&listener).expect("there");
            poller.delete(&datagrams).expect("there");
            poller.delete(&server).expect("there");
        }
        let error = poller.modify(&client, 0, READ).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = poller.add(&client, 0, READ).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "another stack's");
    });
}

#[test]
fn level_and_edge() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let poller = Poller::new(&right.stack);
        let readable = Event {
            key: 7,
            readable: true,
            ..Event::default()
        };
        // Level: as often as it is there.
        poller.add(&server, 7, READ).expect("new");
        client.write_all(b"ab").expect("connected");
        assert_eq!(wait(&poller), [readable]);
        assert_eq!(server.read(&mut [0; 1]).expect("there"), 1);
        assert_eq!(wait(&poller), [readable]);
        assert_eq!(server.read(&mut [0; 1]).expect("there"), 1);
        assert!(is_silent(&poller));
        // Edge: once for what is there, and again for what comes.
        poller
            .modify(&server, 7, READ.edge_triggered())
            .expect("there");
        assert!(is_silent(&poller));
        client.write_all(b"ab").expect("connected");
        assert_eq!(wait(&poller), [readable]);
        assert!(is_silent(&poller));
        client.write_all(b"cd").expect("connected");
        assert_eq!(wait(&poller), [readable]);
        assert_eq!(server.read(&mut [0; 8]).expect("there"), 4);
        assert!(is_silent(&poller));
        // The end, in either way.
        client.shutdown(Shutdown::Write).expect("connected");
        let ended = Event {
            read_closed: true,
            ..readable
        };
        assert_eq!(wait(&poller), [ended]);
        assert!(is_silent(&poller));
        poller.modify(&server, 7, READ).expect("there");
        assert_eq!(wait(&poller), [ended]);
        assert_eq!(wait(&poller), [ended]);
        // Both directions: told to everybody.
        poller
            .modify(&server, 7, WRITE.edge_triggered())
            .expect("there");
        let closed = wait(&poller);
        assert!(closed.iter().all(|event| event.writable && !event.closed));
        server.shutdown(Shutdown::Write).expect("connected");
        while !wait(&poller).iter().any(|event| event.closed) {}
    });
}

#[test]
fn room_to_write_comes_and_goes() {
    everywhere(|left, right| {
        for interest in [WRITE, WRITE.edge_triggered()] {
            let (mut client, mut server) = connected(left, right);
            client.set_nonblocking(true).expect("open");
            let poller = Poller::new(&left.stack);
            poller.add(&client, 7, interest).expect("new");
            let writable = Event {
                key: 7,
                writable: true,
                ..Event::default()
            };
            assert_eq!(wait(&poller), [writable]);
            let text = pattern(8 << 20);
            let mut sent = 0;
            let fill = |client: &mut TcpStream, sent: &mut usize| {
                let mut refused = false;
                while *sent < text.len() && !refused {
                    match client.write(&text[*sent..]) {
                        Ok(taken) => *sent += taken,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::WouldBlock);
                            refused = true;
                        }
                    }
                }
            };
            // Until nothing moves any more: buffers grow while there is room.
            fill(&mut client, &mut sent);
            while !is_silent(&poller) {
                fill(&mut client, &mut sent);
            }
            assert!(sent < text.len(), "the peer reads nothing");
            thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    let mut all = vec![0; text.len()];
                    server.read_exact(&mut all).expect("all of it");
                    all
                });
                while sent < text.len() {
                    assert_eq!(wait(&poller), [writable]);
                    fill(&mut client, &mut sent);
                }
                assert!(reading.join().expect("no panic") == text);
            });
        }
    });
}

#[test]
fn a_socket_that_is_closed_is_forgotten() {
    everywhere(|left, right| {
        let poller = Poller::new(&right.stack);
        let (client, server) = connected(left, right);
        let listener = right.listen(9);
        poller.add(&server, 0, READ).expect("new");
        poller.add(&listener, 1, READ).expect("new");
        assert!(is_silent(&poller));
        drop((server, listener, client));
        assert!(is_silent(&poller));
        assert!(
            format!("{poller:?}").contains("registered: 0"),
            "{poller:?}"
        );
    });
}

/// A server of one thread over many connections; a wake-up that is lost stops the whole.
#[test]
fn many_connections_and_one_poller() {
    const CONNECTIONS: usize = 40;
    const ROUNDS: usize = 50;
    everywhere(|left, right| {
        for edge in [false, true] {
            let done = AtomicUsize::new(0);
            let poller = Poller::new(&right.stack);
            thread::scope(|scope| {
                scope.spawn(|| serve(&poller, right, edge, &done));
                for part in 0..4 {
                    let done = &done;
                    let poller = &poller;
                    scope.spawn(move || {
                        let mut streams: Vec<_> = (part..CONNECTIONS)
                            .step_by(4)
                            .map(|_| connect_to_server(left, right))
                            .collect();
                        for round in 0..ROUNDS {
                            for (number, stream) in streams.iter_mut().enumerate() {
                                let text = [part as u8, round as u8, number as u8];
                                stream.write_all(&text).expect("connected");
                            }
                            for (number, stream) in streams.iter_mut().enumerate() {
                                let mut back = [0; 3];
                                stream.read_exact(&mut back).expect("an answer");
                                assert_eq!(back, [part as u8, round as u8, number as u8]);
                            }
                        }
                        drop(streams);
                        done.fetch_add(1, Ordering::Relaxed);
                        poller.notify();
                    });
                }
            });
        }
    });
}

const SERVER: u16 = 8_007;

/// The server may not be there yet.
fn connect_to_server(left: &Host, right: &Host) -> TcpStream {
    let began = std::time::Instant::now();
    loop {
        match TcpStream::connect(&left.stack, right.at(SERVER)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
                return stream;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                assert!(began.elapsed() < PATIENCE);
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Echoes until all clients are done.
fn serve(poller: &Poller, host: &Host, edge: bool, done: &AtomicUsize) {
    let interest = if edge { READ.edge_triggered() } else { READ };
    let listener = host.listen(SERVER);
    listener.set_nonblocking(true).expect("open");
    poller.add(&listener, 0, interest).expect("new");
    let mut streams: HashMap<usize, TcpStream> = HashMap::new();
    let mut next = 1;
    let mut events = Events::with_capacity(8);
    while done.load(Ordering::Relaxed) < 4 {
        let count = poller.wait(&mut events, Some(PATIENCE));
        let over = done.load(Ordering::Relaxed) == 4;
        assert!(count.expect("never fails") > 0 || over || !streams.is_empty());
        for event in &events {
            if event.key == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("open");
                    poller.add(&stream, next, interest).expect("new");
                    streams.insert(next, stream);
                    next += 1;
                }
                continue;
            }
            let Some(stream) = streams.get_mut(&event.key) else {
                continue;
            };
            let mut buf = [0; 64];
            let ended = loop {
                match stream.read(&mut buf) {
                    Ok(0) => break true,
                    Ok(len) => stream.write_all(&buf[..len]).expect("room"),
                    Err(error) => break error.kind() != ErrorKind::WouldBlock,
                }
            };
            if ended {
                streams.remove(&event.key);
            }
        }
    }
}
