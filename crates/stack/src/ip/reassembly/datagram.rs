//! One datagram on its way to being whole.

use zerocopy::FromBytes;

use super::{Fragment, MAX_FRAGMENTS};
use crate::packet::{ChecksumState, IpVersion, Meta, Packet};
use crate::wire::{FragmentHeader, Ipv4Header, Ipv6Header, ipv4};

/// The codepoints of RFC 3168 section 5 that count here.
mod ecn {
    pub(super) const NOT_ECT: u8 = 0;
    pub(super) const CE: u8 = 3;
}

/// Largest transport header, that of TCP with all its options.
const MAX_TRANSPORT_HEADER: usize = 60;

/// The fragments of one datagram that have come.
#[derive(Debug, Default)]
pub(super) struct Datagram {
    /// By offset, without overlap.
    pieces: Vec<Piece>,
    /// Bytes of data in all pieces.
    received: usize,
    /// Bytes of data in the whole datagram, once the last fragment has come.
    end: Option<usize>,
    /// What the first fragment says: its headers are those of the datagram.
    first: Option<Fragment>,
    /// Which ECN codepoints have been seen, `1 << codepoint` each.
    ecn_seen: u8,
}

/// A fragment's data, `start..end` of the datagram. The first one keeps its headers.
#[derive(Debug)]
struct Piece {
    start: usize,
    end: usize,
    packet: Packet,
}

/// Why a fragment was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The very same place, seen before.
    Duplicate,
    /// It overlaps with others, or the two disagree about the end.
    Contradiction,
    /// More fragments than a datagram may have.
    TooMany,
}

impl Datagram {
    /// Takes in a fragment with data and all its headers in its first buffer, or gives it back.
    pub(super) fn insert(
        &mut self,
        mut packet: Packet,
        fragment: &Fragment,
        ecn: u8,
    ) -> Result<(), (Packet, Refusal)> {
        let start = fragment.offset;
        let end = start + packet.total_len() - fragment.header_len;
        if !self.agrees_on_end(end, fragment.more) {
            return Err((packet, Refusal::Contradiction));
        }
        let at = match self.place(start, end) {
            Ok(at) => at,
            Err(refusal) => return Err((packet, refusal)),
        };
        if self.pieces.len() == MAX_FRAGMENTS {
            return Err((packet, Refusal::TooMany));
        }
        if start == 0 {
            self.first = Some(*fragment);
        } else if !packet.pull(fragment.header_len) {
            return Err((packet, Refusal::Contradiction));
        }
        if !fragment.more {
            self.end = Some(end);
        }
        self.ecn_seen |= 1 << ecn;
        self.received += end - start;
        self.pieces.insert(at, Piece { start, end, packet });
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.received)
    }

    /// The first fragment, with its headers.
    pub(super) fn first(&self) -> Option<&Packet> {
        self.pieces
            .first()
            .filter(|piece| piece.start == 0)
            .map(|piece| &piece.packet)
    }

    /// Bytes of memory that the fragments hold.
    pub(super) fn truesize(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| piece.packet.truesize())
            .sum()
    }

    pub(super) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.pieces.into_iter().map(|piece| piece.packet)
    }

    /// Joins the pieces of a complete datagram under the first fragment's headers; `last` says the
    /// rest. Gives the datagram back if it is longer than a packet may be, or if its ECN codepoints
    /// contradict each other.
    pub(super) fn join(self, last: Meta) -> Result<Packet, Self> {
        let Some(first) = self.first else {
            return Err(self);
        };
        let Some(ecn) = self.ecn() else {
            return Err(self);
        };
        let Some(len) = first.len_of_whole(self.received, last.version) else {
            return Err(self);
        };

        let mut packets = self.into_packets();
        let Some(mut whole) = packets.next() else {
            return Err(Self::default());
        };
        for packet in packets {
            whole.push_frag(packet);
        }
        let headers = match last.version {
            IpVersion::V4 => {
                mend_v4(&mut whole, len, ecn);
                first.header_len
            }
            IpVersion::V6 => {
                remove_fragment_header(&mut whole, &first);
                mend_v6(&mut whole, len, ecn);
                first.header_len - FragmentHeader::LEN
            }
        };
        // Where this is impossible, who reads the transport header finds out.
        let _ = whole.linearize(whole.total_len().min(headers + MAX_TRANSPORT_HEADER));
        *whole = Meta {
            socket: None,
            src_port: 0,
            dst_port: 0,
            l4_offset: u16::try_from(headers).unwrap_or(u16::MAX),
            protocol: first.protocol,
            has_ports: false,
            is_fragment: false,
            has_options: last.version == IpVersion::V4 && headers > Ipv4Header::LEN,
            checksum: ChecksumState::None,
            gso: None,
            ..last
        };
        Ok(whole)
    }

    /// The ECN bits to add to the first fragment's (RFC 3168 section 5.3): a congestion mark on any
    /// fragment marks the datagram. `None` if a mark is there beside a fragment whose sender did not
    /// know ECN: no router sets it there.
    fn ecn(&self) -> Option<u8> {
        if self.ecn_seen & 1 << ecn::CE == 0 {
            return Some(ecn::NOT_ECT);
        }
        (self.ecn_seen & 1 << ecn::NOT_ECT == 0).then_some(ecn::CE)
    }

    /// Whether a fragment up to `end` can belong here: the last one alone says where the datagram
    /// ends, and it says the same each time.
    fn agrees_on_end(&self, end: usize, more: bool) -> bool {
        let farthest = self.pieces.last().map_or(0, |piece| piece.end);
        match (self.end, more) {
            (Some(known), true) => end < known,
            (Some(known), false) => end == known,
            (None, true) => true,
            (None, false) => farthest < end,
        }
    }

    /// Where `start..end` belongs among the pieces.
    fn place(&self, start: usize, end: usize) -> Result<usize, Refusal> {
        let at = self.pieces.partition_point(|piece| piece.start < start);
        let before = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        match (before, self.pieces.get(at)) {
            (_, Some(piece)) if (piece.start, piece.end) == (start, end) => Err(Refusal::Duplicate),
            (_, Some(after)) if after.start < end => Err(Refusal::Contradiction),
            (Some(before), _) if before.end > start => Err(Refusal::Contradiction),
            _ => Ok(at),
        }
    }
}

impl Fragment {
    /// The length field of the whole packet: with the header in IPv4, behind it in IPv6.
    fn len_of_whole(&self, data: usize, version: IpVersion) -> Option<u16> {
        let counted = match version {
            IpVersion::V4 => self.header_len,
            IpVersion::V6 => self
                .header_len
                .checked_sub(Ipv6Header::LEN + FragmentHeader::LEN)?,
        };
        u16::try_from(counted + data).ok()
    }
}

fn mend_v4(packet: &mut Packet, total_len: u16, ecn: u8) {
    let Ok((ip, _)) = Ipv4Header::mut_from_prefix(packet.data_mut()) else {
        return;
    };
    ip.total_len = total_len.into();
    ip.fragment = 0.into();
    ip.tos |= ecn;
    ipv4::fill_checksum(packet.data_mut());
}

fn mend_v6(packet: &mut Packet, payload_len: u16, ecn: u8) {
    let Ok((ip, _)) = Ipv6Header::mut_from_prefix(packet.data_mut()) else {
        return;
    };
    ip.payload_len = payload_len.into();
    ip.set_traffic_class(ip.traffic_class() | ecn);
}

/// Closes the gap by moving up what is in front, which is shorter than what follows.
fn remove_fragment_header(packet: &mut Packet, first: &Fragment) {
    let bytes = packet.data_mut();
    let in_front = first.header_len - FragmentHeader::LEN;
    if let Some(next_header) = bytes.get_mut(first.next_header_at) {
        *next_header = first.protocol;
    }
    bytes.copy_within(..in_front, FragmentHeader::LEN);
    let is_long_enough = packet.pull(FragmentHeader::LEN);
    debug_assert!(is_long_enough, "it was read there");
}
