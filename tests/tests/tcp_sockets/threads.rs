//! Sockets that many threads use at a time.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::{connected, everywhere, patient, pattern};

#[test]
fn many_clients_and_many_who_accept() {
    const CLIENTS: usize = 8;
    const EACH: usize = 25;
    everywhere(|left, right| {
        let listener = right.listen(9);
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                let (listener, accepted) = (listener.try_clone().expect("a clone"), &accepted);
                scope.spawn(move || {
                    while accepted.fetch_add(1, Ordering::Relaxed) < CLIENTS * EACH {
                        let (stream, _) = listener.accept().expect("a connection");
                        scope.spawn(move || {
                            let stream = patient(stream);
                            std::io::copy(&mut &stream, &mut &stream).expect("connected");
                        });
                    }
                });
            }
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    for round in 0..EACH {
                        let text = pattern(client * 1_000 + round * 97 + 1);
                        let mut stream = left.connect(right.at(9));
                        stream.write_all(&text).expect("connected");
                        stream.shutdown(Shutdown::Write).expect("connected");
                        let mut back = Vec::new();
                        stream.read_to_end(&mut back).expect("all of it");
                        assert!(back == text, "{client} {round}");
                    }
                });
            }
        });
    });
}

/// Each byte is read once, by whoever it may be.
#[test]
fn many_readers_of_one_stream() {
    everywhere(|left, right| {
        let (mut client, server) = connected(left, right);
        let text = pattern(500_000);
        let mut counts = thread::scope(|scope| {
            let readers = [(); 4].map(|()| {
                let mut stream = server.try_clone().expect("a clone");
                scope.spawn(move || {
                    let mut counts = [0_usize; 256];
                    let mut buf = [0; 1_000];
                    while let len @ 1.. = stream.read(&mut buf).expect("connected") {
                        for byte in &buf[..len] {
                            counts[usize::from(*byte)] += 1;
                        }
                    }
                    counts
                })
            });
            client.write_all(&text).expect("connected");
            client.shutdown(Shutdown::Write).expect("connected");
            readers.map(|reader| reader.join().expect("no panic"))
        });
        let [total, others @ ..] = &mut counts;
        for counts in others {
            for (total, count) in total.iter_mut().zip(counts) {
                *total += *count;
            }
        }
        for byte in &text {
            total[usize::from(*byte)] -= 1;
        }
        assert_eq!(*total, [0; 256]);
    });
}

/// What each writes at a time stays together where it is taken at once.
#[test]
fn many_writers_of_one_stream() {
    const WRITERS: u8 = 4;
    const EACH: usize = 2_000;
    everywhere(|left, right| {
        let (client, mut server) = connected(left, right);
        let mut all = Vec::new();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let mut stream = client.try_clone().expect("a clone");
                    scope.spawn(move || {
                        for _ in 0..EACH {
                            stream.write_all(&[writer]).expect("connected");
                        }
                    })
                })
                .collect();
            scope.spawn(|| server.read_to_end(&mut all).expect("all of it"));
            for writer in writers {
                writer.join().expect("no panic");
            }
            client.shutdown(Shutdown::Write).expect("connected");
        });
        for writer in 0..WRITERS {
            let count = all.iter().filter(|byte| **byte == writer).count();
            assert_eq!(count, EACH, "{writer}");
        }
    });
}
