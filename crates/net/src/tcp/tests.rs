mod places;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use forebay_stack::tcp::Side;

use super::*;
use crate::stack::Stack;

const BOTH: [&str; 2] = ["127.0.0.1:7", "[::1]:7"];

#[test]
fn polls_find_what_is_there_and_wake_who_waits() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let (bell, waker) = bell();
        let cx = &mut Context::from_waker(&waker);
        assert!(listener.poll_accept(cx).is_pending());
        let client = connecting(&stack, &listener);
        assert!(client.poll_connected(cx).is_pending());
        drive(&stack);
        assert!(bell.rung() >= 2);
        assert!(matches!(client.poll_connected(cx), Poll::Ready(Ok(()))));
        let Poll::Ready(Ok((server, from))) = listener.poll_accept(cx) else {
            panic!("nobody came");
        };
        assert_eq!(from, client.local_addr().expect("connected"));
        assert!(client.poll_writable(cx).is_ready());

        let mut buf = [0; 8];
        assert!(server.poll_readable(cx).is_pending());
        assert!(server.poll_read(cx, &mut buf).is_pending());
        assert!(matches!(client.poll_write(cx, b"on"), Poll::Ready(Ok(2))));
        drive(&stack);
        assert_eq!(bell.rung(), 1);
        assert!(server.poll_readable(cx).is_ready());
        assert!(matches!(server.poll_peek(cx, &mut buf), Poll::Ready(Ok(2))));
        assert!(matches!(server.poll_read(cx, &mut buf), Poll::Ready(Ok(2))));
        assert!(server.poll_read(cx, &mut buf).is_pending());
        drop(client);
        drive(&stack);
        assert_eq!(bell.rung(), 1);
        assert!(matches!(server.poll_read(cx, &mut buf), Poll::Ready(Ok(0))));
    }
}

/// One task reads and another writes; each is woken for its own.
#[test]
fn each_side_has_a_waker() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let (client, server) = pair(&stack, &listener);
        let ((reads, reader), (writes, writer)) = (bell(), bell());
        let (reader, writer) = (
            &mut Context::from_waker(&reader),
            &mut Context::from_waker(&writer),
        );
        assert!(client.poll_readable(reader).is_pending());
        let text = vec![7; 1 << 16];
        let mut sent = 0;
        loop {
            match client.poll_write(writer, &text) {
                Poll::Ready(taken) => sent += taken.expect("connected"),
                Poll::Pending => {
                    drive(&stack);
                    if writes.rung() == 0 {
                        break;
                    }
                }
            }
        }
        assert_eq!(reads.rung(), 0);
        let mut read = 0;
        let mut buf = vec![0; 1 << 16];
        server.set_nonblocking(true).expect("open");
        while writes.rung() == 0 {
            read += (&server).read(&mut buf).expect("there");
            drive(&stack);
        }
        assert!(read <= sent);
        assert_eq!(reads.rung(), 0);
        (&server).write_all(b"x").expect("room");
        drive(&stack);
        assert_eq!((reads.rung(), writes.rung()), (1, 0));
    }
}

/// Little room is none to wait for, though nobody was refused yet.
#[test]
fn who_waits_for_room_is_woken_though_all_was_taken() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let (client, server) = pair(&stack, &listener);
        let (bell, waker) = bell();
        let cx = &mut Context::from_waker(&waker);
        let mut sent = 0;
        while client.poll_writable(cx).is_ready() {
            let taken = client.poll_write(cx, &[7; 500]);
            assert!(matches!(taken, Poll::Ready(Ok(500))));
            sent += 500;
            drive(&stack);
        }
        bell.rung();
        server.set_nonblocking(true).expect("open");
        let mut buf = vec![0; 1 << 16];
        while bell.rung() == 0 {
            sent -= (&server).read(&mut buf).expect("more of it");
            drive(&stack);
        }
        assert!(client.poll_writable(cx).is_ready(), "{sent}");
        // While there is room, an acknowledgement is no news.
        client.register_waker(Side::Write, &waker).expect("open");
        while let Ok(len @ 1..) = (&server).read(&mut buf) {
            sent -= len;
            drive(&stack);
        }
        assert_eq!((sent, bell.rung()), (0, 0));
        assert!(matches!(client.poll_write(cx, b"on"), Poll::Ready(Ok(2))));
        drive(&stack);
        assert_eq!(bell.rung(), 0);
    }
}

#[test]
fn nothing_is_left_behind() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let (client, server) = pair(&stack, &listener);
        let (bell, waker) = bell();
        let cx = &mut Context::from_waker(&waker);
        let idle = Arc::strong_count(&bell);
        // A handle remembers the last task, for as long as it is there.
        let clone = client.try_clone().expect("a clone");
        for _ in 0..3 {
            assert!(clone.poll_readable(cx).is_pending());
        }
        assert_eq!(Arc::strong_count(&bell), idle + 1);
        drop(clone);
        assert_eq!(Arc::strong_count(&bell), idle);
        let clone = listener.try_clone().expect("a clone");
        assert!(clone.poll_accept(cx).is_pending());
        drop(clone);
        assert_eq!(Arc::strong_count(&bell), idle);
        // Wakers that are forgotten, and those of sockets that are closed.
        for side in [Side::Read, Side::Write] {
            client.register_waker(side, &waker).expect("open");
        }
        client.forget_waker(&waker);
        assert_eq!(Arc::strong_count(&bell), idle);
        listener.register_waker(&waker).expect("open");
        listener.forget_waker(&waker);
        client.register_waker(Side::Read, &waker).expect("open");
        listener.register_waker(&waker).expect("open");
        drop((client, server, listener));
        drive(&stack);
        assert_eq!(Arc::strong_count(&bell), idle);
    }
}

/// Waits that end by time leave no waker either.
#[test]
fn a_wait_that_ends_is_forgotten() {
    let (stack, listener) = listening(BOTH[0]);
    let (client, server) = pair(&stack, &listener);
    let timeout = Some(Duration::from_millis(1));
    client.set_read_timeout(timeout).expect("not zero");
    for _ in 0..3 {
        let none = (&client).read(&mut [0; 8]).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }
    // Nobody is woken for those.
    (&server).write_all(b"x").expect("room");
    let ((), has_woken) = crate::later::after(&mut Vec::new(), || drive(&stack));
    assert!(!has_woken);
    client.set_nonblocking(true).expect("open");
    assert_eq!((&client).read(&mut [0; 8]).expect("there"), 1);
}

/// Reads against arrivals, one byte at a time; a wake-up that is lost stops the whole.
#[test]
fn arrivals_against_waits() {
    const BYTES: usize = 20_000;
    for addr in BOTH {
        let stack = Stack::builder().build().expect("a stack");
        let _worker = stack.spawn_workers().expect("a thread");
        let listener = TcpListener::bind(&stack, addr).expect("free");
        let mut client = TcpStream::connect(&stack, addr).expect("loopback");
        let (mut server, _) = listener.accept().expect("a connection");
        client.set_nodelay(true).expect("open");
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut buf = [0; 1];
                for _ in 0..BYTES {
                    server.read_exact(&mut buf).expect("connected");
                    server.write_all(&buf).expect("connected");
                }
            });
            client
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("not zero");
            for byte in 0..BYTES {
                client.write_all(&[byte as u8]).expect("connected");
                let mut back = [0; 1];
                client.read_exact(&mut back).expect("in time");
                assert_eq!(back, [byte as u8]);
            }
        });
    }
}

struct Bell(AtomicUsize);

impl Bell {
    fn rung(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    (Arc::clone(&bell), Waker::from(bell))
}

fn listening(addr: &str) -> (Stack, TcpListener) {
    let stack = Stack::builder().manual_clock().build().expect("a stack");
    let listener = TcpListener::bind(&stack, addr).expect("free");
    (stack, listener)
}

/// A connection that is begun.
fn connecting(stack: &Stack, listener: &TcpListener) -> TcpStream {
    let to = listener.local_addr().expect("bound");
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(stack),
        SocketAddr::V6(_) => TcpSocket::new_v6(stack),
    };
    let begun = socket.expect("a socket").start_connect(to);
    begun.expect("loopback")
}

fn pair(stack: &Stack, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = connecting(stack, listener);
    drive(stack);
    assert!(client.is_connected().expect("connected"));
    let (server, _) = listener.accept().expect("a connection");
    (client, server)
}

/// Until nothing is under way; no time passes.
fn drive(stack: &Stack) {
    for _ in 0..16 {
        stack.poll(stack.now());
    }
}
