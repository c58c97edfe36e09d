//! UDP sockets of a rig, with as few words as a scenario needs.

use std::net::{IpAddr, SocketAddr};

use forebay_stack::packet::IpVersion;
use forebay_stack::socket::{SocketError, SocketId};
use forebay_stack::udp::RecvError;

use crate::packets;
use crate::rig::Rig;

/// What a socket received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub local: SocketAddr,
    /// The interface that it came in by.
    pub iif: u32,
    /// What was in it.
    pub payload: Vec<u8>,
}

impl Rig {
    /// A socket of the family that shares its port with others (`SO_REUSEADDR`), not bound yet.
    pub fn open(&self, addr: IpAddr) -> SocketId {
        let version = if addr.is_ipv4() {
            IpVersion::V4
        } else {
            IpVersion::V6
        };
        let id = self.stack.udp_open(version).expect("a socket");
        self.stack
            .udp_set_reuse_addr(id, true)
            .expect("an open socket");
        id
    }

    /// The same, bound.
    pub fn bind(&self, addr: impl Into<SocketAddr>) -> SocketId {
        let addr = addr.into();
        let id = self.open(addr.ip());
        self.stack.udp_bind(id, addr).expect("an address of ours");
        id
    }

    /// Connects a socket.
    pub fn connect(&self, id: SocketId, peer: impl Into<SocketAddr>) {
        self.stack
            .udp_connect(self.now(), id, peer.into())
            .expect("a peer that can be reached");
    }

    /// A socket bound to one address and connected to another.
    pub fn bind_and_connect(
        &self,
        local: impl Into<SocketAddr>,
        peer: impl Into<SocketAddr>,
    ) -> SocketId {
        let id = self.bind(local);
        self.connect(id, peer);
        id
    }

    /// Closes a socket.
    pub fn close(&self, id: SocketId) {
        self.stack.udp_close(id).expect("an open socket");
    }

    /// The datagram at the front of a socket's queue.
    ///
    /// # Errors
    ///
    /// What the network has said about an earlier datagram.
    pub fn recv(&self, id: SocketId) -> Result<Option<Datagram>, SocketError> {
        let mut buf = vec![0; 1 << 16];
        match self.stack.udp_recv(id, &mut buf, false) {
            Ok(None) => Ok(None),
            Ok(Some(received)) => {
                assert_eq!(received.len, received.full_len, "the buffer holds any");
                Ok(Some(Datagram {
                    from: received.from,
                    local: received.local,
                    iif: received.iif,
                    payload: buf[..received.len].to_vec(),
                }))
            }
            Err(RecvError::Pending(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    /// The payloads of everything in a socket's queue.
    pub fn drain(&self, id: SocketId) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.recv(id).expect("no error"))
            .map(|datagram| datagram.payload)
            .collect()
    }

    /// Whether a socket has something to receive; takes it.
    pub fn has_received(&self, id: SocketId) -> bool {
        !self.drain(id).is_empty()
    }

    /// A datagram comes in by tun0.
    pub fn deliver(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        self.deliver_by("tun0", from, to, payload);
    }

    /// A datagram comes in by an interface.
    pub fn deliver_by(
        &mut self,
        interface: &str,
        from: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
    ) {
        let packet = packets::udp(from.ip(), to.ip(), from.port(), to.port(), payload);
        self.inject(interface, packet);
    }

    /// Sends a datagram and returns what left by tun0.
    pub fn send(&mut self, id: SocketId, to: Option<SocketAddr>, payload: &[u8]) -> Vec<Vec<u8>> {
        self.stack
            .udp_send(self.now(), id, payload, to)
            .expect("a datagram that can be sent");
        self.poll();
        self.output("tun0")
    }

    /// Whether nothing left by any interface; forgets what did.
    pub fn is_silent(&mut self) -> bool {
        let outputs = [self.output("tun0"), self.output("tun1")];
        outputs.iter().all(Vec::is_empty)
    }
}
