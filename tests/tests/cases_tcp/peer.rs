//! The other end of a connection, played by hand: it sends just the segments that a test wants, and
//! reads the answers.

use std::net::SocketAddr;

use forebay_stack::socket::SocketId;
use forebay_stack::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_PSH, FLAG_RST, FLAG_SYN};
use forebay_stack::wire::{TcpHeader, protocol};
use forebay_tests::{Rig, packets};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const ACK: u8 = FLAG_ACK;
pub(crate) const SYN: u8 = FLAG_SYN;
pub(crate) const FIN: u8 = FLAG_FIN;
pub(crate) const RST: u8 = FLAG_RST;
pub(crate) const PSH: u8 = FLAG_PSH;

/// Kinds of options (RFC 9293 section 3.1, RFC 7323, RFC 2018).
const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// A segment, to be sent or received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    pub(crate) fn new(seq: u32, ack: u32, flags: u8) -> Self {
        Self {
            seq,
            ack,
            flags,
            window: 0xffff,
            ..Self::default()
        }
    }

    pub(crate) fn with(self, payload: &[u8]) -> Self {
        let payload = payload.to_vec();
        Self { payload, ..self }
    }

    pub(crate) fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    pub(crate) fn option(mut self, kind: u8, value: &[u8]) -> Self {
        self.options.push(kind);
        self.options.push(value.len() as u8 + 2);
        self.options.extend_from_slice(value);
        self
    }

    pub(crate) fn mss(self, mss: u16) -> Self {
        self.option(MSS, &mss.to_be_bytes())
    }

    pub(crate) fn window_scale(self, shift: u8) -> Self {
        self.option(WINDOW_SCALE, &[shift])
    }

    pub(crate) fn sack_permitted(self) -> Self {
        self.option(SACK_PERMITTED, &[])
    }

    pub(crate) fn timestamps(self, value: u32, echo: u32) -> Self {
        let both = [value.to_be_bytes(), echo.to_be_bytes()].concat();
        self.option(TIMESTAMPS, &both)
    }

    /// The value of an option.
    fn value(&self, wanted: u8) -> Option<&[u8]> {
        let mut rest = &self.options[..];
        loop {
            match *rest {
                [] | [END, ..] => return None,
                [NOP, ..] => rest = &rest[1..],
                [kind, len, ..] if kind == wanted => return Some(&rest[2..len.into()]),
                [_, len, ..] => rest = &rest[len.into()..],
                [_] => unreachable!("an option without a length: {self:?}"),
            }
        }
    }

    pub(crate) fn mss_option(&self) -> Option<u16> {
        Some(u16::from_be_bytes(self.value(MSS)?.try_into().ok()?))
    }

    pub(crate) fn window_scale_option(&self) -> Option<u8> {
        Some(self.value(WINDOW_SCALE)?[0])
    }

    pub(crate) fn permits_sack(&self) -> bool {
        self.value(SACK_PERMITTED).is_some()
    }

    /// Value and echo.
    pub(crate) fn timestamps_option(&self) -> Option<(u32, u32)> {
        let words = self.words(TIMESTAMPS)?;
        Some((words[0], words[1]))
    }

    /// Begin and end of what a SACK option lists.
    pub(crate) fn sacked(&self) -> Vec<(u32, u32)> {
        let words = self.words(SACK).unwrap_or_default();
        words.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }

    fn words(&self, kind: u8) -> Option<Vec<u32>> {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        Some(self.value(kind)?.chunks(4).map(word).collect())
    }

    /// Sequence, acknowledgement, flags and payload, which is what most answers are judged by.
    pub(crate) fn brief(&self) -> (u32, u32, u8, &[u8]) {
        (self.seq, self.ack, self.flags, &self.payload)
    }

    /// What follows an IP header.
    pub(crate) fn bytes(&self, src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
        let mut header = TcpHeader::new(src.port(), dst.port(), self.seq, self.ack, self.flags);
        header.window = self.window.into();
        header.urgent = self.urgent.into();
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), NOP);
        header.set_header_len(TcpHeader::LEN + options.len());
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&options);
        bytes.extend_from_slice(&self.payload);
        let sum = packets::transport_checksum(src.ip(), dst.ip(), protocol::TCP, &bytes);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// As a packet.
    pub(crate) fn packet(&self, src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
        packets::ip(src.ip(), dst.ip(), protocol::TCP, &self.bytes(src, dst))
    }

    /// Takes a packet apart: where it is from, where it goes, and the segment in it.
    pub(crate) fn parse(packet: &[u8]) -> (SocketAddr, SocketAddr, Self) {
        let ip = packets::parse(packet);
        assert_eq!(ip.protocol, protocol::TCP, "{ip:?}");
        let (header, _) = TcpHeader::ref_from_prefix(&ip.payload).expect("a TCP header");
        let segment = Self {
            seq: header.seq.get(),
            ack: header.ack.get(),
            flags: header.flags,
            window: header.window.get(),
            urgent: header.urgent.get(),
            options: ip.payload[TcpHeader::LEN..header.header_len()].to_vec(),
            payload: ip.payload[header.header_len()..].to_vec(),
        };
        let src = SocketAddr::new(ip.src, header.src_port.get());
        let dst = SocketAddr::new(ip.dst, header.dst_port.get());
        (src, dst, segment)
    }
}

/// What a peer's SYN offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) mss: u16,
    pub(crate) window: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// What the peer's clock says.
    pub(crate) timestamps: Option<u32>,
}

impl Offer {
    /// An MSS, and nothing that would change how segments look.
    pub(crate) const PLAIN: Self = Self {
        mss: 1_000,
        window: 0xffff,
        window_scale: None,
        sack: false,
        timestamps: None,
    };

    fn options(&self, mut segment: Segment, echo: u32) -> Segment {
        segment = segment.mss(self.mss).window(self.window);
        if let Some(shift) = self.window_scale {
            segment = segment.window_scale(shift);
        }
        if self.sack {
            segment = segment.sack_permitted();
        }
        if let Some(value) = self.timestamps {
            segment = segment.timestamps(value, echo);
        }
        segment
    }
}

/// One end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    /// The stack's end.
    pub(crate) host: SocketAddr,
    pub(crate) interface: &'static str,
    /// What comes next of ours.
    pub(crate) seq: u32,
    /// What comes next of the stack's.
    pub(crate) ack: u32,
    pub(crate) offer: Offer,
    /// The last timestamp of the stack's.
    pub(crate) echo: u32,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, host: SocketAddr, isn: u32) -> Self {
        Self {
            addr,
            host,
            interface: "tun0",
            seq: isn,
            ack: 0,
            offer: Offer::PLAIN,
            echo: 0,
        }
    }

    pub(crate) fn offering(self, offer: Offer) -> Self {
        Self { offer, ..self }
    }

    /// A segment so far from our place, acknowledging all that we have seen.
    pub(crate) fn segment(&self, offset: i64, flags: u8) -> Segment {
        let seq = self.seq.wrapping_add(offset as u32);
        let segment = Segment::new(seq, self.ack, flags);
        match self.offer.timestamps {
            Some(value) => segment.timestamps(value, self.echo),
            None => segment,
        }
    }

    /// Sends a segment as it is.
    pub(crate) fn send(&self, rig: &mut Rig, segment: &Segment) {
        rig.inject(self.interface, segment.packet(self.addr, self.host));
    }

    /// Sends a segment and reads what comes back.
    pub(crate) fn exchange(&mut self, rig: &mut Rig, segment: &Segment) -> Vec<Segment> {
        self.send(rig, segment);
        self.answers(rig)
    }

    /// The segments that have come since we looked last. They are of this connection.
    pub(crate) fn answers(&mut self, rig: &mut Rig) -> Vec<Segment> {
        let output = rig.output(self.interface);
        let ends = (self.host, self.addr);
        let mut segments = Vec::new();
        for packet in &output {
            let (src, dst, segment) = Segment::parse(packet);
            assert_eq!((src, dst), ends, "{segment:?}");
            if let Some((value, _)) = segment.timestamps_option() {
                self.echo = value;
            }
            segments.push(segment);
        }
        segments
    }

    /// The only segment that has come.
    #[track_caller]
    pub(crate) fn answer(&mut self, rig: &mut Rig) -> Segment {
        let mut answers = self.answers(rig);
        assert_eq!(answers.len(), 1, "{answers:x?}");
        answers.remove(0)
    }

    /// Our SYN.
    pub(crate) fn syn(&self) -> Segment {
        self.offer.options(Segment::new(self.seq, 0, SYN), 0)
    }

    /// Our SYN-ACK.
    pub(crate) fn syn_ack(&self) -> Segment {
        let segment = Segment::new(self.seq, self.ack, SYN | ACK);
        self.offer.options(segment, self.echo)
    }

    /// Begins a handshake; returns the SYN-ACK.
    #[track_caller]
    pub(crate) fn begin(&mut self, rig: &mut Rig) -> Segment {
        self.send(rig, &self.syn());
        let answer = self.answer(rig);
        let next = self.seq.wrapping_add(1);
        assert_eq!((answer.flags, answer.ack), (SYN | ACK, next), "{answer:x?}");
        self.seq = next;
        self.ack = answer.seq.wrapping_add(1);
        answer
    }

    /// Connects to a listener of the stack's, and is accepted.
    #[track_caller]
    pub(crate) fn connect(&mut self, rig: &mut Rig, listener: SocketId) -> SocketId {
        self.begin(rig);
        let answers = self.exchange(rig, &self.segment(0, ACK));
        assert!(answers.is_empty(), "{answers:x?}");
        let accepted = rig.stack.tcp_accept(listener).expect("a listener");
        let accepted = accepted.expect("a connection");
        assert_eq!(accepted.peer, self.addr);
        assert_eq!(accepted.local, self.host);
        accepted.id
    }

    /// Answers the SYN of a socket of the stack's that connects here.
    #[track_caller]
    pub(crate) fn accept(&mut self, rig: &mut Rig) {
        let syn = self.answer(rig);
        assert_eq!((syn.flags, syn.ack), (SYN, 0), "{syn:x?}");
        self.ack = syn.seq.wrapping_add(1);
        self.send(rig, &self.syn_ack());
        self.seq = self.seq.wrapping_add(1);
        let answer = self.answer(rig);
        assert_eq!(answer.brief(), (self.ack, self.seq, ACK, &b""[..]));
    }

    /// Sends bytes that come next; they count as sent.
    pub(crate) fn say(&mut self, rig: &mut Rig, bytes: &[u8]) -> Vec<Segment> {
        let segment = self.segment(0, ACK | PSH).with(bytes);
        self.seq = self.seq.wrapping_add(bytes.len() as u32);
        self.exchange(rig, &segment)
    }

    /// Says that we send no more; returns the acknowledgement.
    #[track_caller]
    pub(crate) fn finish(&mut self, rig: &mut Rig) -> Segment {
        self.send(rig, &self.segment(0, FIN | ACK));
        self.seq = self.seq.wrapping_add(1);
        self.answer(rig)
    }

    /// The segment that has come is a FIN without data, in order; we count it, but don't answer.
    #[track_caller]
    pub(crate) fn take_fin(&mut self, rig: &mut Rig) -> Segment {
        let fin = self.answer(rig);
        assert_eq!(fin.brief(), (self.ack, self.seq, FIN | ACK, &b""[..]));
        self.ack = self.ack.wrapping_add(1);
        fin
    }

    /// What an acknowledgement by the stack of all that we have sent looks like.
    pub(crate) fn plain_ack(&self) -> (u32, u32, u8, &'static [u8]) {
        (self.ack, self.seq, ACK, b"")
    }
}
