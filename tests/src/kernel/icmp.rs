//! ping(8) and traceroute(8), as far as tests need them: the kernel's raw sockets, read and written
//! like datagram sockets.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use forebay_stack::wire::{checksum, icmp};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::{Host, PATIENCE, SILENCE};

/// One echo request.
#[derive(Debug, Clone, Copy)]
pub struct Ping {
    /// Bytes of payload.
    pub size: usize,
    /// TTL or hop limit.
    pub ttl: u8,
    /// How long to wait for the answer.
    pub patience: Duration,
}

impl Default for Ping {
    fn default() -> Self {
        Self {
            size: 56,
            ttl: 64,
            patience: PATIENCE,
        }
    }
}

impl Ping {
    /// With this many bytes of payload.
    pub fn of(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// One that is not to be answered, and waits no longer than it must.
    pub fn in_vain() -> Self {
        Self {
            patience: SILENCE,
            ..Self::default()
        }
    }
}

/// Sends an echo request from a kernel host and waits for its answer; whether that came, whole.
pub fn ping(host: &Host, to: impl Into<IpAddr>, ping: Ping) -> bool {
    const REST: u32 = 0x6f72_0001; // identifier and sequence number
    let to = to.into();
    let socket = host.run(|| raw_socket(to)).expect("a raw socket");
    set_ttl(&socket, to, ping.ttl);
    socket.connect((to, 0)).expect("connect");
    let payload: Vec<u8> = (0..ping.size).map(|at| at as u8).collect();
    let request = if to.is_ipv4() {
        icmp::v4::ECHO
    } else {
        icmp::v6::ECHO
    };
    socket
        .send(&message(to, request, REST, &payload))
        .expect("send");
    let reply = if to.is_ipv4() {
        icmp::v4::ECHO_REPLY
    } else {
        icmp::v6::ECHO_REPLY
    };
    let deadline = Instant::now() + ping.patience;
    while let Some((_, answer)) = receive(&socket, to, deadline) {
        let (head, echoed) = answer.split_at(8);
        if head[0] == reply && head[4..8] == REST.to_be_bytes() {
            return echoed == payload;
        }
    }
    false
}

/// Sends datagrams to a closed port with 1, 2, ... hops to live, until the destination itself
/// answers. Returns who answered.
pub fn trace(host: &Host, to: impl Into<IpAddr>) -> Vec<IpAddr> {
    const PORT: u16 = 33_434;
    let to = to.into();
    let errors = host.run(|| raw_socket(to)).expect("a raw socket");
    let mut hops = Vec::new();
    for ttl in 1..=8 {
        // A socket each, as the one before has the last error pending; and not connected, as only
        // the raw socket is to hear of it.
        let any = if to.is_ipv4() {
            IpAddr::from([0_u8; 4])
        } else {
            IpAddr::from([0_u8; 16])
        };
        let probe = host.udp(any, 0);
        set_ttl(&probe, to, ttl);
        let port = PORT + u16::from(ttl);
        probe.send_to(b"how far?", (to, port)).expect("send");
        let deadline = Instant::now() + PATIENCE;
        let hop = loop {
            let Some((from, answer)) = receive(&errors, to, deadline) else {
                panic!("no answer to {ttl} hops; so far {hops:?}")
            };
            if quoted_port(&answer) == Some(port) {
                break from;
            }
        };
        hops.push(hop);
        if hop == to {
            break;
        }
    }
    hops
}

/// A raw socket in the clothes of a datagram socket: the system calls are the same.
fn raw_socket(to: IpAddr) -> io::Result<UdpSocket> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol))?;
    Ok(socket.into())
}

fn set_ttl(socket: &UdpSocket, to: IpAddr, ttl: u8) {
    match to {
        IpAddr::V4(_) => socket.set_ttl(ttl.into()).expect("ttl"),
        IpAddr::V6(_) => sockopt::set_ipv6_unicast_hops(socket, Some(ttl)).expect("hop limit"),
    }
}

/// An ICMP message. The kernel fills in the checksum of ICMPv6.
fn message(to: IpAddr, kind: u8, rest: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0], &rest.to_be_bytes()[..], payload].concat();
    if to.is_ipv4() {
        let checksum = checksum::checksum(&message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    message
}

/// The next ICMP message and its sender; `None` when it is too late.
fn receive(socket: &UdpSocket, to: IpAddr, deadline: Instant) -> Option<(IpAddr, Vec<u8>)> {
    let mut buf = vec![0; 70_000];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        socket.set_read_timeout(Some(left)).expect("timeout");
        let (len, from) = match socket.recv_from(&mut buf) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // An error that came back for what was sent; the message itself may follow.
            Err(_) => continue,
        };
        // Raw IPv4 sockets show the IP header.
        let start = if to.is_ipv4() {
            usize::from(buf[0] & 0xf) * 4
        } else {
            0
        };
        if len >= start + 8 {
            return Some((SocketAddr::ip(&from), buf[start..len].to_vec()));
        }
    }
}

/// The destination port of the datagram that an ICMP error quotes.
fn quoted_port(message: &[u8]) -> Option<u16> {
    let quote = message.get(8..)?;
    let header = match quote.first()? >> 4 {
        4 => usize::from(quote[0] & 0xf) * 4,
        6 => 40,
        _ => return None,
    };
    let port = quote.get(header + 2..)?.first_chunk()?;
    Some(u16::from_be_bytes(*port))
}
