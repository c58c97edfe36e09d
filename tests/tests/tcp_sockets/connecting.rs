//! How connections come about, and how not.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use forebay::interface::LOOPBACK;
use forebay::{Events, Interest, Poller, TcpListener, TcpSocket, TcpStream, fib};

use crate::{GRACE, Host, PATIENCE, everywhere};

#[test]
fn nobody_listens() {
    everywhere(|left, right| {
        let error = TcpStream::connect(&left.stack, right.at(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        let error = TcpStream::connect_timeout(&left.stack, &right.at(9), PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        let nowhere = match left.addr {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        };
        let error = TcpStream::connect(&left.stack, (nowhere, 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
        // Each address in turn.
        let _listener = right.listen(9);
        let addrs = [(nowhere, 9).into(), right.at(10), right.at(9)];
        let stream = TcpStream::connect(&left.stack, &addrs[..]).expect("the last one");
        assert_eq!(stream.peer_addr().expect("connected"), right.at(9));
    });
}

#[test]
fn nobody_answers() {
    everywhere(|left, right| {
        let silent = match right.addr {
            IpAddr::V4(_) => IpAddr::from([10, 0, 0, 77]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 77]),
        };
        let began = Instant::now();
        let to = SocketAddr::new(silent, 9);
        let error = TcpStream::connect_timeout(&left.stack, &to, GRACE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(began.elapsed() >= GRACE);
        let error = TcpStream::connect_timeout(&left.stack, &to, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    });
}

#[test]
fn without_waiting() {
    everywhere(|left, right| {
        let start = |to: SocketAddr| {
            let socket = match to {
                SocketAddr::V4(_) => TcpSocket::new_v4(&left.stack),
                SocketAddr::V6(_) => TcpSocket::new_v6(&left.stack),
            };
            let stream = socket.expect("a socket").start_connect(to).expect("a way");
            stream.set_nonblocking(true).expect("open");
            stream
        };
        let listener = right.listen(9);
        let poller = Poller::new(&left.stack);
        for interest in [Interest::WRITABLE, Interest::WRITABLE.edge_triggered()] {
            let mut good = start(right.at(9));
            let bad = start(right.at(10));
            poller.add(&good, 0, interest).expect("new");
            poller.add(&bad, 1, interest).expect("new");
            let mut told = [false; 2];
            let mut events = Events::with_capacity(4);
            while told != [true; 2] {
                let count = poller.wait(&mut events, Some(PATIENCE)).expect("events");
                assert_ne!(count, 0, "{told:?}");
                for event in &events {
                    assert!(event.writable, "{event:?}");
                    assert_eq!(event.error, event.key == 1, "{event:?}");
                    told[event.key] = true;
                }
            }
            assert!(good.is_connected().expect("connected"));
            assert_eq!(good.peer_addr().expect("connected"), right.at(9));
            let error = bad.is_connected().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(bad.take_error().expect("open").is_none(), "told already");
            let error = bad.peer_addr().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
            good.write_all(b"here").expect("connected");
            let (mut server, _) = listener.accept().expect("a connection");
            assert_eq!(server.read(&mut [0; 8]).expect("connected"), 4);
        }
    });
}

#[test]
fn accepting_waits_or_not() {
    everywhere(|left, right| {
        let listener = right.listen(9);
        listener.set_nonblocking(true).expect("open");
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_nonblocking(false).expect("open");
        thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.incoming().next());
            thread::sleep(GRACE);
            let _client = left.connect(right.at(9));
            let accepted = accepting.join().expect("no panic");
            accepted.expect("never ends").expect("a connection");
        });
        // The connection is there before anybody accepts it, and so are its bytes.
        left.connect(right.at(9)).write_all(b"early").expect("room");
        let (mut server, _) = listener.accept().expect("a connection");
        let mut text = String::new();
        server.read_to_string(&mut text).expect("all of it");
        assert_eq!(text, "early");
    });
}

#[test]
fn an_address_is_one_listeners() {
    everywhere(|_, right| {
        let listener = right.listen(9);
        let error = TcpListener::bind(&right.stack, right.at(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        let clone = listener.try_clone().expect("a clone");
        drop(listener);
        assert!(TcpListener::bind(&right.stack, right.at(9)).is_err());
        drop(clone);
        right.listen(9);
        let foreign = match right.addr {
            IpAddr::V4(_) => IpAddr::from([10, 0, 0, 99]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 99]),
        };
        let error = TcpListener::bind(&right.stack, (foreign, 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
    });
}

/// A port is free again at once, whatever is left of its connections.
#[test]
fn a_server_may_start_again() {
    everywhere(|left, right| {
        for _ in 0..3 {
            let listener = right.listen(9);
            let mut client = left.connect(right.at(9));
            let (server, _) = listener.accept().expect("a connection");
            drop((listener, server));
            assert_eq!(client.read(&mut [0; 8]).expect("its end"), 0);
        }
    });
}

#[test]
fn a_listener_on_any_address_and_port() {
    everywhere(|left, right| {
        let listener = TcpListener::bind_any(&right.stack).expect("the only one");
        let error = TcpListener::bind_any(&right.stack).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        let foreign = match right.addr {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        };
        route_everything(left, fib::RouteKind::Unicast, left.ifindex);
        route_everything(right, fib::RouteKind::Local, LOOPBACK);
        for to in [
            SocketAddr::new(foreign, 443),
            SocketAddr::new(foreign, 8_080),
            right.at(25),
        ] {
            let mut client = left.connect(to);
            let (mut server, from) = listener.accept().expect("a connection");
            // As on every socket for both families.
            let plain = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
            assert_eq!(plain(server.local_addr().expect("connected")), to);
            assert_eq!(plain(from), client.local_addr().expect("connected"));
            server.write_all(b"proxy").expect("connected");
            assert_eq!(client.read(&mut [0; 8]).expect("connected"), 5);
            assert_eq!(client.peer_addr().expect("connected"), to);
        }
        // Whoever listens at the very address comes first.
        let own = right.listen(25);
        let _client = left.connect(right.at(25));
        own.accept().expect("a connection");
        listener.set_nonblocking(true).expect("open");
        assert!(listener.accept().is_err());
    });
}

fn route_everything(host: &Host, kind: fib::RouteKind, dev: u32) {
    let inner = host.stack.inner();
    let added = match host.addr {
        IpAddr::V4(_) => {
            let route = fib::Route::new(kind, "0.0.0.0/0".parse().expect("a prefix"));
            inner.fib4().add(fib::TableId::MAIN, route.dev(dev))
        }
        IpAddr::V6(_) => {
            let route = fib::Route::new(kind, "::/0".parse().expect("a prefix"));
            inner.fib6().add(fib::TableId::MAIN, route.dev(dev))
        }
    };
    added.expect("a new route");
}
