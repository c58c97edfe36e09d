use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};
use ::tokio::time::timeout;

use super::*;
use crate::tokio::ReuniteError;

const BOTH: [&str; 2] = ["127.0.0.1:7", "[::1]:7"];

#[test]
fn there_and_back() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let to = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(&stack, addr).await.expect("loopback");
        let (mut server, from) = listener.accept().await.expect("a connection");
        assert_eq!(client.local_addr().expect("connected"), from);
        assert_eq!(client.peer_addr().expect("connected"), to);
        assert_eq!(server.peer_addr().expect("connected"), from);
        client.set_nodelay(true).expect("open");
        assert!(client.nodelay().expect("open"));

        client.write_all(b"there").await.expect("connected");
        let mut buf = [0; 16];
        server.readable().await.expect("open");
        assert_eq!(server.peek(&mut buf).await.expect("there"), 5);
        assert_eq!(server.read(&mut buf).await.expect("there"), 5);
        assert_eq!(&buf[..5], b"there");
        let none = server.try_read(&mut buf).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        server.writable().await.expect("open");
        assert_eq!(server.try_write(b"back").expect("room"), 4);
        client.shutdown().await.expect("connected");
        let refused = client.write(b"more").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(server.read(&mut buf).await.expect("its end"), 0);
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("all of it");
        assert_eq!(text, "back");
        assert!(client.take_error().expect("open").is_none());
    });
}

#[test]
fn nobody_listens() {
    on_workers(|stack, addr| async move {
        let error = TcpStream::connect(&stack, addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn what_is_ready() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let mut client = TcpStream::connect(&stack, addr).await.expect("loopback");
        let (server, _) = listener.accept().await.expect("a connection");
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = server.ready(both).await.expect("open");
        assert_eq!(ready, Ready::WRITABLE);
        client.write_all(b"x").await.expect("connected");
        let ready = server.ready(Interest::READABLE).await.expect("open");
        assert_eq!(ready, Ready::READABLE);
        client.shutdown().await.expect("connected");
        let is_over = async {
            let all = Ready::READABLE | Ready::READ_CLOSED;
            while server.ready(Interest::READABLE).await.expect("open") != all {
                ::tokio::task::yield_now().await;
            }
        };
        is_over.await;
    });
}

#[test]
fn halves() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let text: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
        let echo = ::tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.expect("a connection");
            let (mut reads, mut writes) = server.split();
            ::tokio::io::copy(&mut reads, &mut writes)
                .await
                .expect("connected");
            assert!(reads.as_ref().peer_addr().is_ok());
        });
        let client = TcpStream::connect(&stack, addr).await.expect("loopback");
        let (mut reads, mut writes): (OwnedReadHalf, OwnedWriteHalf) = client.into_split();
        let sent = text.clone();
        // Its end is the stream's.
        let writing = ::tokio::spawn(async move {
            writes.write_all(&sent).await.expect("connected");
        });
        let mut back = Vec::new();
        reads.read_to_end(&mut back).await.expect("all of it");
        assert!(back == text);
        writing.await.expect("no panic");
        echo.await.expect("no panic");
    });
}

#[test]
fn halves_come_together_again() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let connect = || TcpStream::connect(&stack, addr);
        let (one, other) = (connect().await.expect("one"), connect().await.expect("two"));
        let ((reads, writes), (other_reads, other_writes)) = (one.into_split(), other.into_split());
        let ReuniteError(reads, other_writes) = reads.reunite(other_writes).unwrap_err();
        other_writes.forget();
        let mut one = reads.reunite(writes).expect("the same");
        one.write_all(b"whole").await.expect("connected");
        assert!(other_reads.as_ref().try_write(b"open still").is_ok());
        listener.accept().await.expect("a connection");
    });
}

/// A future that is dropped takes its wakers along, and no byte.
#[test]
fn a_future_that_ends_leaves_nothing_behind() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let bell = Arc::new(Bell(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&bell));
        let cx = &mut Context::from_waker(&waker);
        let idle = Arc::strong_count(&bell);
        for _ in 0..3 {
            assert!(pin!(listener.accept()).poll(cx).is_pending());
        }
        assert_eq!(Arc::strong_count(&bell), idle);
        let mut client = TcpStream::connect(&stack, addr).await.expect("loopback");
        let (server, _) = listener.accept().await.expect("a connection");
        for _ in 0..3 {
            let mut buf = [0; 8];
            assert!(pin!(server.peek(&mut buf)).poll(cx).is_pending());
            assert!(pin!(server.readable()).poll(cx).is_pending());
        }
        assert_eq!(Arc::strong_count(&bell), idle);
        client.write_all(b"x").await.expect("connected");
        server.readable().await.expect("open");
        assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    });
}

struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that always has something to read lets others have their turn.
#[test]
fn busy_streams_yield() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        let mut client = TcpStream::connect(&stack, addr).await.expect("loopback");
        let (mut server, _) = listener.accept().await.expect("a connection");
        client.write_all(&[7; 20_000]).await.expect("room");
        while server.peek(&mut [0; 20_000]).await.expect("there") < 20_000 {
            ::tokio::task::yield_now().await;
        }
        let turns = Cell::new(0);
        let others = async {
            ::tokio::task::yield_now().await;
            turns.get()
        };
        let busy = async {
            while turns.get() < 10_000 {
                turns.set(turns.get() + 1);
                server.read_u8().await.expect("there");
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

/// Many tasks, of which each waits for its own; a wake-up that is lost stops the whole.
#[test]
fn many_tasks() {
    on_workers(|stack, addr| async move {
        let listener = TcpListener::bind(&stack, addr).await.expect("free");
        ::tokio::spawn(async move {
            while let Ok((mut server, _)) = listener.accept().await {
                ::tokio::spawn(async move {
                    let (mut reads, mut writes) = server.split();
                    let _ = ::tokio::io::copy(&mut reads, &mut writes).await;
                });
            }
        });
        let clients: Vec<_> = (0..50)
            .map(|number: u8| {
                let stack = stack.clone();
                ::tokio::spawn(async move {
                    let mut client = TcpStream::connect(&stack, addr).await.expect("loopback");
                    for round in 0..50 {
                        let text = [number, round];
                        client.write_all(&text).await.expect("connected");
                        let mut back = [0; 2];
                        client.read_exact(&mut back).await.expect("an answer");
                        assert_eq!(back, text);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("no panic");
        }
    });
}

/// In both families, by a worker, and in time.
fn on_workers<F: Future<Output = ()>>(scenario: impl Fn(Stack, &'static str) -> F) {
    for addr in BOTH {
        let stack = Stack::builder().build().expect("a stack");
        let _worker = stack.spawn_workers().expect("a thread");
        runtime().block_on(async {
            let done = timeout(Duration::from_secs(30), scenario(stack.clone(), addr)).await;
            done.expect("in time");
        });
    }
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}
