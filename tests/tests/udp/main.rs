//! UDP sockets, as peers and applications see them.
//!
//! Where nothing else is said, early demux on and off must come out the same, and so must both
//! families.

mod checksums;
mod early;
mod gro;
mod groups;
mod gso;
mod lookup;
mod memory;
mod messages;
mod moving;
mod path_mtu;
mod racing;
mod receive;
mod send;

use std::net::{IpAddr, SocketAddr};

use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::udp::{Received, RecvSlot};
use forebay_tests::{Rig, V4, V6, packets};

/// Both families' own address and peer on tun0.
fn pairs() -> [(IpAddr, IpAddr); 2] {
    [
        (V4::OWN.into(), V4::PEER.into()),
        (V6::OWN.into(), V6::PEER.into()),
    ]
}

/// Runs a scenario with early demux on and off.
fn both(scenario: impl Fn(Rig)) {
    for on in [true, false] {
        scenario(Rig::with_early_demux(on));
    }
}

fn version_of(addr: IpAddr) -> IpVersion {
    if addr.is_ipv4() {
        IpVersion::V4
    } else {
        IpVersion::V6
    }
}

fn open(rig: &Rig, addr: IpAddr) -> SocketId {
    rig.stack.udp_open(version_of(addr)).expect("a socket")
}

/// A socket bound to an address and port.
fn bound(rig: &Rig, addr: IpAddr, port: u16) -> SocketId {
    let id = open(rig, addr);
    rig.stack.udp_set_reuse_addr(id, true).expect("it is open");
    rig.stack
        .udp_bind(id, SocketAddr::new(addr, port))
        .expect("a free address");
    id
}

/// A socket bound to an address and port, and connected.
fn connected(rig: &Rig, addr: IpAddr, port: u16, peer: IpAddr, peer_port: u16) -> SocketId {
    let id = bound(rig, addr, port);
    connect(rig, id, peer, peer_port);
    id
}

fn connect(rig: &Rig, id: SocketId, peer: IpAddr, port: u16) {
    rig.stack
        .udp_connect(rig.now(), id, SocketAddr::new(peer, port))
        .expect("a route to the peer");
}

/// What the next datagram says of itself, and its payload.
fn recv(rig: &Rig, id: SocketId) -> Option<(Received, Vec<u8>)> {
    let mut buf = vec![0; 65_536];
    let received = rig
        .stack
        .udp_recv(id, &mut buf, false)
        .expect("an open socket without an error")?;
    buf.truncate(received.len);
    Some((received, buf))
}

/// The payloads of all that waits.
fn drain(rig: &Rig, id: SocketId) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| recv(rig, id))
        .map(|(_, payload)| payload)
        .collect()
}

/// A datagram comes in by tun0.
fn datagram(rig: &mut Rig, src: IpAddr, dst: IpAddr, ports: (u16, u16), payload: &[u8]) {
    rig.inject("tun0", packets::udp(src, dst, ports.0, ports.1, payload));
}
