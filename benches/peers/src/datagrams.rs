//! What is sent, and what has to come of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::random::Random;

/// Datagrams that a device hands over at once.
pub(crate) const BATCH: usize = 64;

/// Bytes of a datagram: with headers and checksum, a frame of 64 bytes on Ethernet.
pub(crate) const PAYLOAD: usize = 18;

const FIRST_PORT: u16 = 1_024;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// The stack's address, and how much of it is its network's.
    pub(crate) fn own(self) -> (IpAddr, u8) {
        match self {
            Self::V4 => (Ipv4Addr::new(10, 0, 0, 1).into(), 24),
            Self::V6 => (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(), 64),
        }
    }

    fn peer(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 0, 0, 2).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// Where the socket is.
    pub(crate) fn own_of(self, socket: usize) -> SocketAddr {
        SocketAddr::new(self.own().0, FIRST_PORT + socket as u16)
    }

    /// Who sends to the socket.
    pub(crate) fn peer_of(self, socket: usize) -> SocketAddr {
        SocketAddr::new(self.peer(), FIRST_PORT + socket as u16)
    }

    fn ip_header(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// Which socket is at a port.
pub(crate) fn socket_at(port: u16) -> usize {
    usize::from(port - FIRST_PORT)
}

/// A packet from its IP header on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    bytes: [u8; 40 + UDP_HEADER + PAYLOAD],
    len: usize,
}

impl Frame {
    /// A datagram with this number for a socket, all checksums right.
    pub(crate) fn new(family: Family, socket: usize, number: u32) -> Self {
        let header = family.ip_header();
        let mut frame = Self {
            bytes: [0; 40 + UDP_HEADER + PAYLOAD],
            len: header + UDP_HEADER + PAYLOAD,
        };
        let (own, peer) = (family.own_of(socket), family.peer_of(socket));
        let (ip, rest) = frame.bytes[..frame.len].split_at_mut(header);
        let mut sum = 0;
        match (peer.ip(), own.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&((header + rest.len()) as u16).to_be_bytes());
                ip[8..10].copy_from_slice(&[64, UDP]);
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                sum += words(&ip[12..]);
                let checksum = !folded(words(ip));
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                ip[0] = 0x60;
                ip[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
                ip[6..8].copy_from_slice(&[UDP, 64]);
                ip[8..24].copy_from_slice(&src.octets());
                ip[24..40].copy_from_slice(&dst.octets());
                sum += words(&ip[8..]);
            }
            _ => {}
        }
        let udp_len = rest.len() as u16;
        rest[..2].copy_from_slice(&peer.port().to_be_bytes());
        rest[2..4].copy_from_slice(&own.port().to_be_bytes());
        rest[4..6].copy_from_slice(&udp_len.to_be_bytes());
        rest[UDP_HEADER..][..4].copy_from_slice(&number.to_be_bytes());
        sum += u64::from(UDP) + u64::from(udp_len) + words(rest);
        let checksum = match !folded(sum) {
            // RFC 768: 0 says that there is none.
            0 => u16::MAX,
            checksum => checksum,
        };
        rest[6..8].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Of an even number of bytes.
fn words(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<2>();
    words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)))
        .sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// One batch after the other, for random sockets.
pub(crate) struct Datagrams {
    family: Family,
    sockets: u32,
    next: u32,
    frames: Vec<Frame>,
}

impl Datagrams {
    pub(crate) fn new(family: Family, sockets: u32) -> Self {
        Self {
            family,
            sockets,
            next: 0,
            frames: Vec::with_capacity(BATCH),
        }
    }

    /// Makes the next batch; says for which sockets.
    pub(crate) fn batch(&mut self, random: &mut Random) -> Vec<usize> {
        self.frames.clear();
        let mut sockets = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let socket = random.below(self.sockets as usize);
            self.frames.push(Frame::new(self.family, socket, self.next));
            self.next = self.next.wrapping_add(1);
            sockets.push(socket);
        }
        sockets
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Whether the application has received the batch.
    pub(crate) fn are(&self, inbox: &Inbox) -> bool {
        let sent = self.frames.iter().map(|frame| {
            let payload = frame.len - PAYLOAD;
            &frame.bytes[payload..frame.len]
        });
        sent.eq(inbox.payloads())
    }
}

/// The application's buffers, one after the other.
pub(crate) struct Inbox {
    buffers: [[u8; 64]; BATCH],
    lengths: [usize; BATCH],
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            buffers: [[0; 64]; BATCH],
            lengths: [0; BATCH],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.lengths = [0; BATCH];
    }

    /// Where the application reads to, and where it notes how much that was.
    pub(crate) fn places(&mut self) -> impl Iterator<Item = (&mut [u8; 64], &mut usize)> {
        self.buffers.iter_mut().zip(&mut self.lengths)
    }

    fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let places = self.buffers.iter().zip(&self.lengths);
        places.map(|(buffer, len)| &buffer[..*len])
    }
}
