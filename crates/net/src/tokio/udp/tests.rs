use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::thread;
use std::time::Duration;

use ::tokio::runtime::{Builder, Runtime};

use super::*;

const BOTH: [&str; 2] = ["127.0.0.1:7", "[::1]:7"];

#[test]
fn there_and_back() {
    for addr in BOTH {
        runtime().block_on(async {
            let stack = Stack::builder().build().expect("a stack");
            let _worker = stack.spawn_workers().expect("a thread");
            let server = UdpSocket::bind(&stack, addr).await.expect("free");
            let any = SocketAddr::new(server.local_addr().expect("bound").ip(), 0);
            let client = UdpSocket::bind(&stack, any).await.expect("a port");
            client.connect(addr).await.expect("loopback");
            assert_eq!(client.peer_addr().expect("connected").to_string(), addr);
            let own = client.local_addr().expect("bound");

            let mut buf = [0; 16];
            client.writable().await.expect("always");
            assert_eq!(client.send(b"there").await.expect("a route"), 5);
            server.readable().await.expect("open");
            assert_eq!(server.peek(&mut buf).await.expect("there"), 5);
            assert_eq!(server.peek_from(&mut buf).await.expect("there"), (5, own));
            assert_eq!(server.recv_from(&mut buf).await.expect("there"), (5, own));
            assert_eq!(&buf[..5], b"there");
            assert_eq!(server.send_to(b"back", own).await.expect("a route"), 4);
            assert_eq!(client.recv(&mut buf).await.expect("there"), 4);
            assert_eq!(&buf[..4], b"back");
        });
    }
}

#[test]
fn what_is_told_without_waiting() {
    for addr in BOTH {
        let (stack, socket) = bound(addr);
        let own = socket.local_addr().expect("bound");
        let cx = &mut Context::from_waker(Waker::noop());
        let mut bytes = [0; 8];
        let would_block = |kind| assert_eq!(kind, io::ErrorKind::WouldBlock);
        would_block(socket.try_recv(&mut bytes).unwrap_err().kind());
        would_block(socket.try_recv_from(&mut bytes).unwrap_err().kind());
        would_block(socket.try_peek_from(&mut bytes).unwrap_err().kind());
        assert!(socket.poll_recv_ready(cx).is_pending());
        assert_eq!(now_ready(&socket, Interest::READABLE), None);
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(now_ready(&socket, both), Some(Ready::WRITABLE));

        for text in [b"one", b"two"] {
            assert_eq!(socket.try_send_to(text, own).expect("loopback"), 3);
        }
        drive(&stack);
        assert_eq!(
            now_ready(&socket, both),
            Some(Ready::READABLE | Ready::WRITABLE)
        );
        assert_eq!(
            now_ready(&socket, Interest::READABLE),
            Some(Ready::READABLE)
        );
        assert!(socket.poll_recv_ready(cx).is_ready());
        assert_eq!(socket.try_peek_from(&mut bytes).expect("there"), (3, own));
        assert_eq!(socket.try_recv(&mut bytes).expect("there"), 3);
        // Behind what the buffer holds already.
        let mut buf = ReadBuf::new(&mut bytes);
        buf.put_slice(b"and ");
        let polled = socket.poll_recv_from(cx, &mut buf);
        assert!(matches!(polled, Poll::Ready(Ok(from)) if from == own));
        assert_eq!(buf.filled(), b"and two");
        assert!(socket.poll_recv(cx, &mut buf).is_pending());
        assert!(socket.poll_send_ready(cx).is_ready());
    }
}

fn now_ready(socket: &UdpSocket, interest: Interest) -> Option<Ready> {
    let cx = &mut Context::from_waker(Waker::noop());
    match pin!(socket.ready(interest)).poll(cx) {
        Poll::Ready(ready) => Some(ready.expect("open")),
        Poll::Pending => None,
    }
}

#[test]
fn errors_end_a_wait() {
    for addr in BOTH {
        let (stack, socket) = bound(addr);
        let nobody = SocketAddr::new(socket.local_addr().expect("bound").ip(), 9);
        socket.get_ref().connect(nobody).expect("loopback");
        let (bell, waker) = bell();
        let cx = &mut Context::from_waker(&waker);
        let mut buf = [0; 8];
        let mut receiving = pin!(socket.recv(&mut buf));
        assert!(receiving.as_mut().poll(cx).is_pending());
        assert_eq!(socket.try_send(b"anybody?").expect("loopback"), 8);
        drive(&stack);
        assert_eq!(bell.rung(), 1);
        let Poll::Ready(Err(error)) = receiving.poll(cx) else {
            panic!("no error");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(socket.take_error().expect("open").is_none());
    }
}

#[test]
fn a_future_that_ends_leaves_nothing_behind() {
    let (stack, socket) = bound(BOTH[0]);
    let (bell, waker) = bell();
    let cx = &mut Context::from_waker(&waker);
    let idle = Arc::strong_count(&bell);
    for _ in 0..10 {
        let mut buf = [0; 8];
        assert!(pin!(socket.recv(&mut buf)).poll(cx).is_pending());
        assert!(pin!(socket.readable()).poll(cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&bell), idle);
    send_to_itself(&stack, &socket);
    assert_eq!(bell.rung(), 0);
    // A handle that was polled holds the last task's, until it goes.
    let clone = UdpSocket::from(socket.get_ref().try_clone().expect("a clone"));
    assert_eq!(socket.try_recv(&mut [0; 8]).expect("there"), 1);
    for _ in 0..3 {
        assert!(clone.poll_recv_ready(cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&bell), idle + 1);
    drop(clone);
    assert_eq!(Arc::strong_count(&bell), idle);
}

/// The first to end must not take the other's waker along, though it wakes the same task.
#[test]
fn two_waits_of_one_task() {
    for first in [0, 1] {
        let (stack, socket) = bound(BOTH[0]);
        let (bell, waker) = bell();
        let cx = &mut Context::from_waker(&waker);
        let (mut one, mut other) = ([0; 8], [0; 8]);
        let mut waits: [Option<Pin<Box<dyn Future<Output = _>>>>; 2] = [
            Some(Box::pin(socket.recv(&mut one))),
            Some(Box::pin(socket.recv(&mut other))),
        ];
        for wait in waits.iter_mut().flatten() {
            assert!(wait.as_mut().poll(cx).is_pending());
        }
        waits[first] = None;
        send_to_itself(&stack, &socket);
        assert_eq!(bell.rung(), 1);
        for wait in waits.iter_mut().flatten() {
            assert!(wait.as_mut().poll(cx).is_ready());
        }
    }
}

/// A socket that always has something to read lets others have their turn.
#[test]
fn busy_sockets_yield() {
    let (stack, socket) = bound(BOTH[0]);
    runtime().block_on(async {
        let turns = Cell::new(0);
        let others = async {
            ::tokio::task::yield_now().await;
            turns.get()
        };
        let busy = async {
            while turns.get() < 10_000 {
                turns.set(turns.get() + 1);
                send_to_itself(&stack, &socket);
                let received = socket.recv(&mut [0; 8]).await;
                assert_eq!(received.expect("there"), 1);
            }
        };
        let (mut busy, mut others) = (pin!(busy), pin!(others));
        let seen = poll_fn(|cx| {
            let _ = busy.as_mut().poll(cx);
            others.as_mut().poll(cx)
        });
        let seen = seen.await;
        assert!(seen < 1_000, "{seen}");
    });
}

/// Tasks of several threads at one socket; a wake-up that is lost stops the whole.
#[test]
fn arrivals_against_waits() {
    const DATAGRAMS: usize = 20_000;
    for (readers, window) in [(1, 1), (1, 32), (3, 1), (3, 32)] {
        let stack = Stack::builder().build().expect("a stack");
        let _worker = stack.spawn_workers().expect("a thread");
        let socket = runtime()
            .block_on(UdpSocket::bind(&stack, BOTH[0]))
            .expect("free");
        let read = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    runtime().block_on(async {
                        let mut buf = [0; 8];
                        // An empty one is the end.
                        while socket.recv(&mut buf).await.expect("open") > 0 {
                            read.fetch_add(1, Ordering::Relaxed);
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
            let wait_until = |so_far: &AtomicUsize, many: usize| {
                let began = std::time::Instant::now();
                while so_far.load(Ordering::Relaxed) < many {
                    assert!(began.elapsed() < Duration::from_secs(10), "{readers}");
                    thread::yield_now();
                }
            };
            for sent in 0..DATAGRAMS {
                socket.inner.send_to(b"x", BOTH[0]).expect("loopback");
                wait_until(&read, (sent + 1).saturating_sub(window));
            }
            for ended in 0..readers {
                socket.inner.send_to(b"", BOTH[0]).expect("loopback");
                wait_until(&done, ended + 1);
            }
        });
        assert_eq!(read.into_inner(), DATAGRAMS);
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

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn bound(addr: &str) -> (Stack, UdpSocket) {
    let stack = Stack::builder().manual_clock().build().expect("a stack");
    let socket = udp::UdpSocket::bind(&stack, addr).expect("free");
    (stack, socket.into())
}

fn send_to_itself(stack: &Stack, socket: &UdpSocket) {
    let own = socket.local_addr().expect("bound");
    socket.try_send_to(b"x", own).expect("loopback");
    drive(stack);
}

fn drive(stack: &Stack) {
    for _ in 0..4 {
        stack.poll(stack.now());
    }
}
