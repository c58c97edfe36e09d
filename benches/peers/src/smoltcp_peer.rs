//! smoltcp: an interface that is polled, and its UDP sockets in a set.

use std::collections::VecDeque;

use anyhow::anyhow;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, RecvError, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::Peer;
use crate::datagrams::{BATCH, Family, Frame, Inbox, PAYLOAD};

/// Bytes that a datagram may have on its way out; none is sent.
const SEND_BUFFER: usize = 64;

pub(crate) struct Smoltcp {
    interface: Interface,
    device: Memory,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
}

impl Smoltcp {
    /// Sockets at a port each, with room for a batch.
    pub(crate) fn new(family: Family, sockets: u32) -> anyhow::Result<Self> {
        let mut device = Memory::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        let (own, prefix_len) = family.own();
        interface.update_ip_addrs(|addresses| {
            // A new interface has room for one.
            let _ = addresses.push(IpCidr::new(own.into(), prefix_len));
        });
        let mut set = SocketSet::new(Vec::new());
        let mut handles = Vec::new();
        for nth in 0..sockets as usize {
            let buffer = |packets: usize, bytes: usize| {
                PacketBuffer::new(vec![PacketMetadata::EMPTY; packets], vec![0; bytes])
            };
            let mut socket = Socket::new(buffer(BATCH, BATCH * PAYLOAD), buffer(1, SEND_BUFFER));
            socket
                .bind(family.own_of(nth))
                .map_err(|error| anyhow!("smoltcp does not bind: {error}"))?;
            handles.push(set.add(socket));
        }
        Ok(Self {
            interface,
            device,
            sockets: set,
            handles,
        })
    }
}

impl Peer for Smoltcp {
    fn offer(&mut self, frames: &[Frame]) {
        self.device.frames.extend(frames);
    }

    fn receive(&mut self, sockets: &[usize], inbox: &mut Inbox) -> anyhow::Result<usize> {
        self.interface
            .poll(Instant::ZERO, &mut self.device, &mut self.sockets);
        let mut received = 0;
        for (socket, (buffer, len)) in sockets.iter().zip(inbox.places()) {
            let socket: &mut Socket<'_> = self.sockets.get_mut(self.handles[*socket]);
            match socket.recv_slice(buffer) {
                Ok((bytes, _from)) => *len = bytes,
                Err(RecvError::Exhausted) => continue,
                Err(error) => return Err(anyhow!("smoltcp does not receive: {error}")),
            }
            received += 1;
        }
        Ok(received)
    }
}

/// A device that has frames in memory, and takes in what it is to send without a trace.
#[derive(Default)]
struct Memory {
    frames: VecDeque<Frame>,
}

impl Device for Memory {
    type RxToken<'a> = Received;
    type TxToken<'a> = Nowhere;

    fn receive(&mut self, _now: Instant) -> Option<(Received, Nowhere)> {
        let frame = self.frames.pop_front()?;
        Some((Received(frame), Nowhere))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Nowhere> {
        Some(Nowhere)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities
    }
}

struct Received(Frame);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0.bytes())
    }
}

struct Nowhere;

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        write(&mut vec![0; len])
    }
}
