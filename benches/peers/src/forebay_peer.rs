//! Forebay, as programs use it: a device, a stack that is driven by hand, sockets that don't block.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use forebay::device::{Device, Instant, Meta, PacketCache, PacketQueue};
use forebay::{Stack, UdpSocket};

use crate::Peer;
use crate::datagrams::{Family, Frame, Inbox};

/// Packets of the pool.
const BUFFERS: usize = 8_192;

pub(crate) struct Forebay {
    stack: Stack,
    now: Instant,
    frames: Arc<Mutex<Vec<Frame>>>,
    sockets: Vec<UdpSocket>,
}

impl Forebay {
    /// Sockets at a port each, connected to a peer each or open to everybody.
    pub(crate) fn new(family: Family, sockets: u32, is_connected: bool) -> anyhow::Result<Self> {
        let stack = Stack::builder()
            .buffers(BUFFERS)
            .seed([1, 2])
            .manual_clock()
            .build()?;
        let frames = Arc::default();
        let device = Memory {
            frames: Arc::clone(&frames),
        };
        let interface = stack.add_device("memory", device)?;
        let (own, prefix_len) = family.own();
        stack.inner().add_address(interface, own, prefix_len)?;
        let open = |socket: usize| {
            let opened = UdpSocket::bind(&stack, family.own_of(socket))?;
            if is_connected {
                opened.connect(family.peer_of(socket))?;
            }
            opened.set_nonblocking(true)?;
            Ok(opened)
        };
        let sockets: io::Result<Vec<UdpSocket>> = (0..sockets as usize).map(open).collect();
        Ok(Self {
            sockets: sockets?,
            now: Instant::from_nanos(1_000_000_000),
            stack,
            frames,
        })
    }
}

impl Peer for Forebay {
    fn offer(&mut self, frames: &[Frame]) {
        let mut waiting = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(frames);
    }

    fn receive(&mut self, sockets: &[usize], inbox: &mut Inbox) -> anyhow::Result<usize> {
        self.stack.poll(self.now);
        let mut received = 0;
        for (socket, (buffer, len)) in sockets.iter().zip(inbox.places()) {
            match self.sockets[*socket].recv(buffer) {
                Ok(bytes) => *len = bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            received += 1;
        }
        Ok(received)
    }
}

/// A device that has frames in memory, and takes in what it is to send without a trace.
struct Memory {
    frames: Arc<Mutex<Vec<Frame>>>,
}

impl Device for Memory {
    fn mtu(&self) -> u32 {
        1_500
    }

    fn receive(
        &mut self,
        _now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = frames.len().min(budget);
        for frame in frames.drain(..taken) {
            let Some(mut packet) = cache.alloc() else {
                continue;
            };
            *packet = Meta::default();
            let bytes = frame.bytes();
            if let Some(room) = packet.put(bytes.len()) {
                room.copy_from_slice(bytes);
                out.push(packet);
            }
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        while let Some(packet) = packets.pop() {
            cache.free(packet);
        }
        Ok(())
    }
}
