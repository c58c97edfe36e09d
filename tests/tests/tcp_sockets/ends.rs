//! How waits and connections end.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::{GRACE, connected, everywhere, pattern};

#[test]
fn reads_wait_no_longer_than_they_may() {
    everywhere(|left, right| {
        let (client, mut server) = connected(left, right);
        let kind = |read: std::io::Result<usize>| read.unwrap_err().kind();
        client.set_read_timeout(Some(GRACE)).expect("not zero");
        assert_eq!(client.read_timeout().expect("open"), Some(GRACE));
        for peeks in [false, true] {
            let began = Instant::now();
            let read = match peeks {
                false => (&client).read(&mut [0; 8]),
                true => client.peek(&mut [0; 8]),
            };
            assert_eq!(kind(read), ErrorKind::WouldBlock);
            assert!(began.elapsed() >= GRACE);
        }
        client.set_nonblocking(true).expect("open");
        assert_eq!(kind((&client).read(&mut [0; 8])), ErrorKind::WouldBlock);
        let zero = client.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        // What both wait for comes, and clones have the same settings.
        client.set_nonblocking(false).expect("open");
        client.set_read_timeout(None).expect("open");
        let mut clone = client.try_clone().expect("a clone");
        thread::scope(|scope| {
            let reading = scope.spawn(move || clone.read(&mut [0; 8]));
            thread::sleep(GRACE);
            server.write_all(b"come").expect("connected");
            assert_eq!(reading.join().expect("no panic").expect("connected"), 4);
        });
    });
}

#[test]
fn writes_wait_no_longer_than_they_may() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        client.set_write_timeout(Some(GRACE)).expect("not zero");
        assert_eq!(client.write_timeout().expect("open"), Some(GRACE));
        let text = pattern(1 << 20);
        let mut sent = 0;
        // Part of it may have been taken when the time is over.
        let refused = loop {
            match client.write(&text[sent % text.len()..]) {
                Ok(taken) => sent += taken,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        client.set_nonblocking(true).expect("open");
        let refused = client.write(&text).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        client.shutdown(Shutdown::Write).expect("connected");
        let mut read = 0;
        let mut buf = vec![0; 1 << 16];
        while let len @ 1.. = server.read(&mut buf).expect("connected") {
            for byte in &buf[..len] {
                assert_eq!(*byte, text[read % text.len()], "{read}");
                read += 1;
            }
        }
        assert_eq!(read, sent);
    });
}

#[test]
fn what_was_written_arrives_after_the_end() {
    everywhere(|left, right| {
        let (mut client, mut server) = connected(left, right);
        let text = pattern(30_000);
        client.write_all(&text).expect("room");
        drop(client);
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("all of it");
        assert!(all == text);
    });
}

#[test]
fn who_closes_without_reading_resets() {
    everywhere(|left, right| {
        for linger in [None, Some(Duration::ZERO)] {
            let (mut client, server) = connected(left, right);
            // Unread bytes reset a connection that is closed; so does a linger of zero.
            match linger {
                Some(_) => server.set_linger(linger).expect("open"),
                None => {
                    client.write_all(b"unread").expect("connected");
                    assert_eq!(server.peek(&mut [0; 8]).expect("connected"), 6);
                }
            }
            drop(server);
            let reset = client.read(&mut [0; 8]).unwrap_err();
            assert_eq!(reset.kind(), ErrorKind::ConnectionReset, "{reset}");
            // Told once.
            assert_eq!(client.read(&mut [0; 8]).expect("its end"), 0);
            let broken = client.write(b"on").unwrap_err();
            assert_eq!(broken.kind(), ErrorKind::BrokenPipe, "{broken}");
            assert!(client.take_error().expect("open").is_none());
            let gone = client.shutdown(Shutdown::Both).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotConnected, "{gone}");
        }
    });
}

#[test]
fn who_writes_to_somebody_who_is_gone_hears_of_it() {
    everywhere(|left, right| {
        let (mut client, server) = connected(left, right);
        drop(server);
        assert_eq!(client.read(&mut [0; 8]).expect("its end"), 0);
        // The first is answered by a reset.
        client.write_all(b"anybody?").expect("not known yet");
        let began = Instant::now();
        let error = loop {
            match client.write(b"anybody?") {
                Ok(_) => thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
            assert!(began.elapsed() < crate::PATIENCE);
        };
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
}

#[test]
fn a_reset_ends_waits_of_both_kinds() {
    everywhere(|left, right| {
        let (client, server) = connected(left, right);
        for set in [
            forebay::TcpStream::set_read_timeout,
            forebay::TcpStream::set_write_timeout,
        ] {
            set(&client, None).expect("open");
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| (&client).read(&mut [0; 8]).is_err());
            let writing = scope.spawn(|| {
                let text = pattern(1 << 16);
                while (&client).write(&text).is_ok() {}
            });
            thread::sleep(GRACE);
            server.set_linger(Some(Duration::ZERO)).expect("open");
            drop(server);
            writing.join().expect("no panic");
            // One of them is told the error, the other the end.
            let _ = reading.join().expect("no panic");
        });
    });
}
