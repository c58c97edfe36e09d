//! The library's TCP sockets between two stacks on a wire, each driven by a worker of its own: what a
//! program written for std's sockets relies on.

mod connecting;
mod ends;
mod options;
mod pollers;
mod streams;
mod threads;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use forebay::device::wire::{WireConfig, WireEnd, wire};
use forebay::{Stack, TcpListener, TcpStream, Workers};

/// Long enough for bytes to cross the wire on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to see that nothing comes.
const GRACE: Duration = Duration::from_millis(30);

/// One end of the wire.
struct Host {
    stack: Stack,
    ifindex: u32,
    addr: IpAddr,
    _worker: Workers,
}

impl Host {
    fn new(device: WireEnd, addr: IpAddr, early_demux: bool) -> Self {
        let stack = Stack::builder().build().expect("a stack");
        let ifindex = stack.add_device("wire0", device).expect("a device");
        let inner = stack.inner();
        let len = if addr.is_ipv4() { 24 } else { 64 };
        inner.add_address(ifindex, addr, len).expect("an address");
        let on = if early_demux { "1" } else { "0" };
        let set = inner.set_sysctl("net.ipv4.tcp_early_demux", on);
        set.expect("a knob");
        let worker = stack.spawn_workers().expect("a worker");
        Self {
            stack,
            ifindex,
            addr,
            _worker: worker,
        }
    }

    fn listen(&self, port: u16) -> TcpListener {
        TcpListener::bind(&self.stack, (self.addr, port)).expect("a free address")
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.addr, port)
    }

    /// A connection that gives up after a while.
    fn connect(&self, to: SocketAddr) -> TcpStream {
        patient(TcpStream::connect(&self.stack, to).expect("somebody who listens"))
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(PATIENCE)).expect("not zero");
    }
    stream
}

/// Runs a scenario in both families, with early demux on and off.
fn everywhere(mut scenario: impl FnMut(&Host, &Host)) {
    let families = [
        [1, 2].map(|number| IpAddr::from([10, 0, 0, number])),
        [1, 2].map(|number| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number])),
    ];
    for addrs in families {
        for early_demux in [true, false] {
            // Shown if the scenario fails.
            println!("{addrs:?}, early demux: {early_demux}");
            let (left, right) = wire(WireConfig::default());
            let [own, peer] = addrs;
            scenario(
                &Host::new(left, own, early_demux),
                &Host::new(right, peer, early_demux),
            );
        }
    }
}

/// A connection: the end that connected, and the one that accepted.
fn connected(left: &Host, right: &Host) -> (TcpStream, TcpStream) {
    let listener = right.listen(0);
    let to = listener.local_addr().expect("bound");
    let client = left.connect(to);
    let (server, from) = listener.accept().expect("a connection");
    assert_eq!(from, client.local_addr().expect("connected"));
    assert_eq!(client.peer_addr().expect("connected"), to);
    assert_eq!(server.local_addr().expect("connected"), to);
    assert_eq!(server.peer_addr().expect("connected"), from);
    (client, patient(server))
}

/// Bytes that tell where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
