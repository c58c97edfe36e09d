//! Connections between the kernel's sockets and Forebay's.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;

use forebay_tests::kernel::{Family, Lab, LabConfig, PATIENCE, in_private_network};

/// Enough to fill windows and buffers on both sides.
const BULK: usize = 8 << 20;
const PERIOD: usize = 251;

/// Every lab that matters here: what either side leaves to the other, and early demux.
fn labs() -> impl Iterator<Item = Lab> {
    let settings = [(true, true), (true, false), (false, true), (false, false)];
    settings.into_iter().map_while(|(offload, early_demux)| {
        Lab::start(LabConfig {
            offload,
            early_demux,
            ..LabConfig::default()
        })
    })
}

/// What the two kinds of stream have in common.
trait Stream: Read + Write + Send + Sized {
    fn shut(&self, how: Shutdown) -> io::Result<()>;
    fn twin(&self) -> Self;
    fn patient(self) -> Self;
    fn ends(&self) -> (SocketAddr, SocketAddr);
}

macro_rules! impl_stream {
    ($($stream:ty),*) => {$(
        impl Stream for $stream {
            fn shut(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }

            fn twin(&self) -> Self {
                self.try_clone().expect("clone")
            }

            fn patient(self) -> Self {
                self.set_read_timeout(Some(PATIENCE)).expect("timeout");
                self.set_write_timeout(Some(PATIENCE)).expect("timeout");
                self
            }

            fn ends(&self) -> (SocketAddr, SocketAddr) {
                let local = self.local_addr().expect("local");
                (local, self.peer_addr().expect("peer"))
            }
        }
    )*};
}

impl_stream!(std::net::TcpStream, forebay::TcpStream);

/// Connects the kernel to us and us to the kernel, and gives both ends to `test`.
fn both_ways(lab: &Lab, test: impl Fn(&str, std::net::TcpStream, forebay::TcpStream)) {
    for Family { left, own, .. } in Family::both() {
        let listener =
            forebay::TcpListener::bind(&lab.stack, SocketAddr::new(own, 0)).expect("listen");
        let at = listener.local_addr().expect("address");
        let kernel = lab.left.connect(at).expect("connect to Forebay").patient();
        let (ours, peer) = listener.accept().expect("accept");
        assert_eq!(peer, kernel.local_addr().expect("address"));
        test("the kernel connects", kernel, ours.patient());

        let listener = lab.left.listen(left);
        let at = listener.local_addr().expect("address");
        let ours = forebay::TcpStream::connect(&lab.stack, at).expect("connect to the kernel");
        let (kernel, peer) = listener.accept().expect("accept");
        assert_eq!(peer, ours.local_addr().expect("address"));
        test("Forebay connects", kernel.patient(), ours.patient());
    }
}

fn pattern(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|at| (at % PERIOD) as u8).collect()
}

fn send(mut stream: impl Stream, bytes: usize, step: usize) {
    let mut sent = 0;
    while sent < bytes {
        let len = step.min(bytes - sent);
        stream.write_all(&pattern(sent, len)).expect("write");
        sent += len;
    }
    stream.shut(Shutdown::Write).expect("shutdown");
}

fn receive(mut stream: impl Stream, bytes: usize, step: usize) {
    let (mut buf, mut received) = (vec![0; step], 0);
    loop {
        let len = stream.read(&mut buf).expect("read");
        if len == 0 {
            assert_eq!(received, bytes, "bytes received");
            return;
        }
        assert!(
            buf[..len] == pattern(received, len),
            "wrong bytes at {received}"
        );
        received += len;
    }
}

fn exchange(one: impl Stream, other: impl Stream, bytes: usize, step: usize) {
    assert_eq!(one.ends(), (other.ends().1, other.ends().0));
    thread::scope(|scope| {
        let (out, back) = (one.twin(), other.twin());
        scope.spawn(move || send(out, bytes, step));
        scope.spawn(move || send(back, bytes, step));
        scope.spawn(move || receive(one, bytes, step));
        receive(other, bytes, step);
    });
}

#[test]
fn bytes_both_ways_at_once() {
    in_private_network("bytes_both_ways_at_once", || {
        for lab in labs() {
            both_ways(&lab, |what, kernel, ours| {
                eprintln!("{what}");
                exchange(kernel, ours, BULK, 64 * 1024);
            });
            both_ways(&lab, |_, kernel, ours| exchange(kernel, ours, 20_000, 7));
        }
    });
}
