//! TCP between kernel hosts.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::{Host, PATIENCE};

/// Period of what is sent: prime, so that it fits no size that anything on the way could have.
const PERIOD: usize = 251;
const CHUNK: usize = 64 * 1024;

/// Sends `bytes` each way at once over one connection between two hosts, and checks what arrives.
pub fn exchange(from: &Host, to: &Host, at: impl Into<IpAddr>, bytes: usize) {
    let listener = to.listen(at);
    let address = listener.local_addr().expect("address");
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (stream, _) = listener.accept()?;
            both_ways(stream, bytes)
        });
        let client = from.connect(address).expect("connect");
        both_ways(client, bytes).expect("the client's end");
        server.join().expect("server").expect("the server's end");
    });
}

fn both_ways(stream: TcpStream, bytes: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut out = stream.try_clone()?;
    thread::scope(|scope| {
        let writer = scope.spawn(move || send(&mut out, bytes));
        receive(stream, bytes)?;
        writer.join().expect("writer")
    })
}

fn send(stream: &mut TcpStream, bytes: usize) -> io::Result<()> {
    let pattern = pattern();
    let mut sent = 0;
    while sent < bytes {
        let len = CHUNK.min(bytes - sent);
        stream.write_all(&pattern[sent % PERIOD..][..len])?;
        sent += len;
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: TcpStream, bytes: usize) -> io::Result<()> {
    let pattern = pattern();
    let (mut buf, mut received) = (vec![0; CHUNK], 0);
    loop {
        let len = stream.read(&mut buf)?;
        if len == 0 {
            assert_eq!(received, bytes, "bytes received");
            return Ok(());
        }
        assert!(
            buf[..len] == pattern[received % PERIOD..][..len],
            "wrong bytes at {received}"
        );
        received += len;
    }
}

fn pattern() -> Vec<u8> {
    (0..CHUNK + PERIOD).map(|at| (at % PERIOD) as u8).collect()
}

/// Sends over one connection for a while; bytes received in a second.
pub fn bulk(from: &Host, to: &Host, at: impl Into<IpAddr>, duration: Duration) -> f64 {
    let listener = to.listen(at);
    let address = listener.local_addr().expect("address");
    thread::scope(|scope| {
        let server = scope.spawn(move || -> io::Result<f64> {
            let (mut stream, _) = listener.accept()?;
            let (start, mut buf, mut received) = (Instant::now(), vec![0; CHUNK], 0_u64);
            loop {
                let len = stream.read(&mut buf)?;
                if len == 0 {
                    return Ok(received as f64 / start.elapsed().as_secs_f64());
                }
                received += len as u64;
            }
        });
        let mut client = from.connect(address).expect("connect");
        let (start, chunk) = (Instant::now(), vec![0; CHUNK]);
        while start.elapsed() < duration {
            client.write_all(&chunk).expect("write");
        }
        drop(client);
        server.join().expect("server").expect("the server's end")
    })
}
