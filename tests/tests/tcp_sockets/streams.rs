//! Bytes there and back.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Instant;

use forebay::SendFlags;

use crate::{connected, everywhere, pattern};

#[test]
fn there_and_back() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        for len in [1, 1_459, 1_461, 60_000, 1_000_000] {
            let text = pattern(len);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut all = vec![0; len];
                    server.read_exact(&mut all).expect("all of it");
                    server.write_all(&all).expect("connected");
                });
                // Who may wait does so until all is taken.
                assert_eq!(client.write(&text).expect("connected"), len);
                let mut back = vec![0; len];
                client.read_exact(&mut back).expect("all of it");
                assert!(back == text, "{len}");
            });
        }
        assert_eq!(client.write(&[]).expect("connected"), 0);
    });
}

#[test]
fn several_buffers() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let text = pattern(300_000);
        let (head, tail) = text.split_at(100_001);
        let writing = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let bufs = [head, &[], tail].map(IoSlice::new);
                client.write_vectored(&bufs).expect("connected")
            });
            let mut all: Vec<u8> = Vec::new();
            while all.len() < text.len() {
                let (mut one, mut other) = ([0; 10], [0; 5_000]);
                let bufs = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
                let read = server.read_vectored(bufs).expect("connected");
                assert_ne!(read, 0);
                all.extend(one.iter().chain(&other).take(read));
            }
            assert!(all == text);
            writing.join().expect("no panic")
        });
        assert_eq!(writing, text.len());
    });
}

#[test]
fn peeking_leaves_bytes_where_they_are() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        client.write_all(b"look").expect("connected");
        let mut buf = [0; 8];
        for _ in 0..2 {
            assert_eq!(server.peek(&mut buf[..2]).expect("connected"), 2);
            assert_eq!(&buf[..2], b"lo");
        }
        assert_eq!(server.read(&mut buf).expect("connected"), 4);
        assert_eq!(&buf[..4], b"look");
        client.shutdown(Shutdown::Write).expect("connected");
        assert_eq!(server.peek(&mut buf).expect("its end"), 0);
        assert_eq!(server.read(&mut buf).expect("its end"), 0);
    });
}

#[test]
fn more_is_to_come() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let more = SendFlags {
            more: true,
            ..SendFlags::default()
        };
        let sent = client.send(&[IoSlice::new(b"one, ")], more);
        assert_eq!(sent.expect("connected"), 5);
        client.write_all(b"two").expect("connected");
        let mut buf = [0; 16];
        // In one segment, so in one read.
        assert_eq!(server.read(&mut buf).expect("connected"), 8);
        assert_eq!(&buf[..8], b"one, two");
    });
}

#[test]
fn bytes_are_read_where_they_are() {
    everywhere(|left, right| {
        let (mut client, server) = connected(left, right);
        let text = pattern(50_000);
        client.write_all(&text).expect("room");
        client.shutdown(Shutdown::Write).expect("connected");
        let mut read: Vec<u8> = Vec::new();
        let mut take = |bytes: &[u8]| {
            // Some of it; the rest comes again.
            let taken = bytes.len().min(777);
            read.extend(&bytes[..taken]);
            taken
        };
        while server.recv_with(&mut take).expect("connected") > 0 {}
        assert!(read == text);
    });
}

#[test]
fn an_urgent_byte_goes_its_own_way() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let none = server.recv_urgent(false).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
        client.write_all(b"ab").expect("room");
        let urgent = SendFlags {
            urgent: true,
            ..SendFlags::default()
        };
        let sent = client.send(&[IoSlice::new(b"!")], urgent);
        assert_eq!(sent.expect("room"), 1);
        client.write_all(b"cd").expect("room");
        client.shutdown(Shutdown::Write).expect("connected");
        let began = Instant::now();
        while server.recv_urgent(true).ok() != Some(b'!') {
            assert!(began.elapsed() < crate::PATIENCE);
            thread::yield_now();
        }
        assert_eq!(server.recv_urgent(false).expect("there"), b'!');
        assert!(server.recv_urgent(false).is_err(), "taken");
        // A read stops there, and leaves it out.
        let mut buf = [0; 8];
        assert_eq!(server.read(&mut buf).expect("connected"), 2);
        assert!(server.is_at_mark().expect("connected"));
        let mut rest = String::new();
        server.read_to_string(&mut rest).expect("all of it");
        assert_eq!((&buf[..2], rest.as_str()), (&b"ab"[..], "cd"));
    });
}

#[test]
fn each_direction_ends_by_itself() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let text = pattern(30_000);
        client.write_all(&text).expect("room");
        client.shutdown(Shutdown::Write).expect("connected");
        let refused = client.write(b"more").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);

        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("all of it");
        assert!(all == text);
        // The other direction is as before.
        server.write_all(&text).expect("room");
        let mut back = vec![0; text.len()];
        client.read_exact(&mut back).expect("all of it");
        assert!(back == text);
        drop(server);
        assert_eq!(client.read(&mut back).expect("its end"), 0);
        assert_eq!(client.read(&mut back).expect("its end"), 0);
    });
}

#[test]
fn who_reads_no_more_reads_the_end() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        thread::scope(|scope| {
            let reader = client.try_clone().expect("a clone");
            let reading = scope.spawn(move || (&reader).read(&mut [0; 8]));
            thread::sleep(crate::GRACE);
            client.shutdown(Shutdown::Read).expect("connected");
            // Also who was waiting for something.
            let read = reading.join().expect("no panic");
            assert_eq!(read.expect("its end"), 0);
        });
        client.write_all(b"on").expect("connected");
        assert_eq!(server.read(&mut [0; 8]).expect("connected"), 2);
    });
}

#[test]
fn two_halves_in_two_threads() {
    everywhere(|left, right| {
        let (client, server) = connected(left, right);
        let text = pattern(3_000_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut reads, mut writes) = server.into_split();
                std::io::copy(&mut reads, &mut writes).expect("connected");
            });
            let (mut reads, mut writes) = client.into_split();
            let text = &text;
            // Its end is the stream's.
            scope.spawn(move || writes.write_all(text).expect("connected"));
            let mut back = Vec::new();
            reads.read_to_end(&mut back).expect("all of it");
            assert!(back == *text);
        });
    });
}

#[test]
fn halves_come_together_again() {
    everywhere(|left, right| {
        let (client, mut server) = connected(left, right);
        let (other, _server) = connected(left, right);
        let ((reads, writes), (other_reads, other_writes)) =
            (client.into_split(), other.into_split());
        let error = reads.reunite(other_writes).unwrap_err();
        assert_eq!(error.to_string(), "the halves are not of one connection");
        let mut client = error.0.reunite(writes).expect("the same");
        client.write_all(b"whole").expect("connected");
        assert_eq!(server.read(&mut [0; 8]).expect("connected"), 5);
        let other = other_reads.reunite(error.1).expect("the same");
        assert!(other.peer_addr().is_ok());
        // A half that is forgotten ends nothing.
        let (reads, writes) = other.into_split();
        writes.forget();
        assert!(reads.as_ref().write_timeout().expect("open").is_some());
        (&mut reads.as_ref()).write_all(b"on").expect("connected");
    });
}
