//! A UDP socket of the kernel's, fed by this thread and read by another one.

use std::hint;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, ensure};
use forebay::kernel_udp::RecvBatch;
use rustix::net::sockopt;

use super::frames::Frame;
use super::injector::Injector;
use super::network::{NEAR_ADDRESS, Network};
use super::refusal::{Refusal, Step};
use crate::bench::bed::{BATCH, CHUNK, Call, PAYLOAD};
use crate::bench::net::Family;
use crate::bench::packet::Flow;
use crate::bench::runner::Chunk;
use crate::clock::Clock;

/// Bytes that the socket may hold: every datagram of a chunk, in the pages that they come in.
const RECEIVE_BUFFER: usize = 1 << 29;

/// Where a connected socket is, and its peer.
const PORT: u16 = 1_024;

/// Where a socket is that is open to everybody.
const OPEN_PORT: u16 = 1_025;

/// A chunk to a socket of the kernel's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reception {
    pub(super) chunk: Chunk,
    /// Datagrams that were let in and not read.
    pub(super) lost: u64,
    /// Nanoseconds a datagram of the core that lets them in, until each is in the socket's queue. If
    /// that is much less than the figure, the figure is the reader's.
    pub(super) feed: u64,
}

/// The socket, and what feeds it.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    injector: Injector,
}

impl Socket {
    /// A socket at our address, connected to the peer or open to everybody. To that, each datagram
    /// comes from another port.
    pub(super) fn new(family: Family, is_connected: bool) -> Result<Self, Refusal> {
        let (src_port, dst_port) = match is_connected {
            true => (PORT, PORT),
            // What the program draws is zero.
            false => (0, OPEN_PORT),
        };
        let flow = Flow {
            src: family.peer(),
            src_port,
            dst: family.own(),
            dst_port,
        };
        let peer = is_connected.then(|| SocketAddr::new(family.address(flow.src), flow.src_port));
        let own = SocketAddr::new(family.address(flow.dst), flow.dst_port);
        let frame = Frame::datagram(family, &flow, PAYLOAD, !is_connected, NEAR_ADDRESS);
        Ok(Self {
            socket: open(own, peer).map_err(Step::Socket(family).refused())?,
            injector: Injector::new(frame)?,
        })
    }

    /// To be done before datagrams are let in.
    pub(super) fn attach(&self, network: &mut Network) -> Result<(), Refusal> {
        self.injector.attach(network)
    }

    /// A chunk of datagrams: this thread lets them in, another one asks the socket again and again.
    /// Measured is the time from the first one to the last that is read, for each that is read.
    pub(super) fn run(
        &self,
        network: &Network,
        clock: &Clock,
        call: Call,
    ) -> anyhow::Result<Reception> {
        let generate = self.injector.drop(network, CHUNK as u32)?;
        let (is_ready, is_fed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (start, end, received, feed) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                is_ready.store(true, Ordering::Release);
                let received = self.read_all(call, &is_fed);
                received.map(|received| (clock.now(), received))
            });
            while !is_ready.load(Ordering::Acquire) {
                hint::spin_loop();
            }
            let start = clock.now();
            let fed = self.injector.pass(network, CHUNK as u32);
            is_fed.store(true, Ordering::Release);
            let read = reader.join().map_err(|_| anyhow!("the reader panicked"))?;
            let feed = fed?;
            let (end, received) = read.map_err(Step::Receive.refused())?;
            Ok::<_, anyhow::Error>((start, end, received, feed))
        })?;
        ensure!(received > 0, "the kernel's socket received nothing at all");
        let chunk = Chunk {
            generate: clock.ticks(generate as f64),
            stages: end.wrapping_sub(start) as f64 / received as f64,
            verify: 0.0,
        };
        Ok(Reception {
            chunk,
            lost: (CHUNK - received) as u64,
            feed,
        })
    }

    /// Reads until a whole chunk is there, or nothing can come any more. Returns how many came.
    fn read_all(&self, call: Call, is_fed: &AtomicBool) -> io::Result<usize> {
        let mut buffers = [[0; 64]; BATCH];
        let mut batch = RecvBatch::new(buffers.iter_mut().map(|buffer| &mut buffer[..]));
        let mut single = [0; 64];
        let mut is_last_look = false;
        let mut received = 0;
        while received < CHUNK {
            let datagrams = match call {
                Call::Single => self.socket.recv(&mut single).map(|_len| 1),
                Call::Batch => batch.recv(&self.socket, BATCH),
            };
            match datagrams {
                Ok(datagrams) => received += datagrams,
                Err(error) if error.kind() == ErrorKind::WouldBlock && is_last_look => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    is_last_look = is_fed.load(Ordering::Acquire);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }
}

fn open(own: SocketAddr, peer: Option<SocketAddr>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(own)?;
    if let Some(peer) = peer {
        socket.connect(peer)?;
    }
    sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
