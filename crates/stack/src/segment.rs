//! Segmentation in software, for devices that don't do it: one large packet becomes the segments
//! that its sender meant (Linux's GSO), and a checksum left to the device is filled in.

use zerocopy::FromBytes;

use crate::core::Context;
use crate::drop::DropReason;
use crate::family::{Family, V4, V6};
use crate::packet::{ChecksumState, Gso, GsoKind, IpVersion, Meta, Packet, PacketQueue};
use crate::wire::{Checksum, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, ipv4, protocol, tcp};

/// Cuts a packet with [`Meta::gso`] set into its segments, in order, with lengths, sequence numbers,
/// flags, identifications and checksums of their own. A packet without is given back as it is.
///
/// The queue is empty if the packet had to be dropped: the pool has no buffers, or the headers are
/// not where the metadata says.
pub(crate) fn segment(cx: &mut Context<'_>, packet: Packet) -> PacketQueue {
    match packet.version {
        IpVersion::V4 => segment_as::<V4>(cx, packet),
        IpVersion::V6 => segment_as::<V6>(cx, packet),
    }
}

/// Fills a checksum that was left to the device ([`ChecksumState::Partial`]); otherwise does
/// nothing.
///
/// The state counts from the packet's first byte: whoever puts bytes in front of a packet, or takes
/// some away, completes the checksum first or moves `start`.
#[inline(never)]
pub(crate) fn complete_checksum(packet: &mut Packet) {
    let ChecksumState::Partial { start, offset } = packet.checksum else {
        return;
    };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    packet.checksum = ChecksumState::None;
    if !packet.linearize(field + 2) {
        return;
    }
    let sum = match sum_from(packet, start).finish() {
        // A computed zero would say "no checksum" in UDP (RFC 768); elsewhere the two are equal.
        0 => 0xffff,
        sum => sum,
    };
    if let Some(field) = packet.data_mut().get_mut(field..field + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
        packet.checksum = ChecksumState::Verified;
    }
}

fn segment_as<F: Family>(cx: &mut Context<'_>, mut packet: Packet) -> PacketQueue {
    let mut segments = PacketQueue::new();
    let Some(gso) = packet.gso else {
        segments.push(packet);
        return segments;
    };
    let Some(plan) = Plan::new(&mut packet, gso) else {
        cx.drop(packet, DropReason::DevHdr);
        return segments;
    };
    let payload = packet.total_len() - plan.headers;
    let size = usize::from(gso.size.get());
    for (index, at) in (0..payload).step_by(size).enumerate() {
        let len = size.min(payload - at);
        let headers = packet.data().get(..plan.headers).unwrap_or_default();
        let Some(mut segment) = copy_part(cx, &packet, headers, plan.headers + at, len) else {
            while let Some(segment) = segments.pop() {
                cx.core.consume(segment);
            }
            cx.drop(packet, DropReason::NoBuffer);
            return segments;
        };
        let part = Part {
            index,
            at,
            len,
            is_last: at + len == payload,
        };
        plan.finish::<F>(&mut segment, &part);
        segments.push(segment);
    }
    cx.core.consume(packet);
    segments
}

/// A packet of `headers` and of the `len` bytes that lie at `at` in `packet`, in fresh buffers; all
/// that is known of `packet` holds for it, except that it stands for itself alone. `None` if the
/// pool is empty.
pub(crate) fn copy_part(
    cx: &mut Context<'_>,
    packet: &Packet,
    headers: &[u8],
    at: usize,
    len: usize,
) -> Option<Packet> {
    let mut part = cx.core.alloc()?;
    *part = Meta {
        gso: None,
        ..**packet
    };
    part.put(headers.len())?.copy_from_slice(headers);
    let mut copied = copy_into(&mut part, packet, at, len);
    while copied < len {
        let mut more = cx.core.alloc()?;
        copied += copy_into(&mut more, packet, at + copied, len - copied);
        part.push_frag(more);
    }
    Some(part)
}

/// Writes the length of the whole packet into its IP header, and the header's checksum.
pub(crate) fn set_ip_len<F: Family>(packet: &mut Packet, len: usize) {
    match F::VERSION {
        IpVersion::V4 => {
            let Ok((ip, _)) = Ipv4Header::mut_from_prefix(packet.data_mut()) else {
                return;
            };
            ip.total_len = low_u16(len).into();
            ipv4::fill_checksum(packet.data_mut());
        }
        IpVersion::V6 => {
            let Ok((ip, _)) = Ipv6Header::mut_from_prefix(packet.data_mut()) else {
                return;
            };
            ip.payload_len = low_u16(len - Ipv6Header::LEN).into();
        }
    }
}

/// Fills the room behind the data of one buffer. Returns the number of bytes it took.
fn copy_into(buffer: &mut Packet, packet: &Packet, at: usize, len: usize) -> usize {
    let len = len.min(buffer.tailroom());
    if let Some(room) = buffer.put(len) {
        packet.copy_to(at, room);
    }
    len
}

/// Sums the packet from byte `start` on, across its buffers.
fn sum_from(packet: &Packet, start: usize) -> Checksum {
    let mut sum = Checksum::new();
    let mut skip = start;
    for chunk in packet.chunks() {
        let from = skip.min(chunk.len());
        skip -= from;
        sum.add_bytes(chunk.get(from..).unwrap_or_default());
    }
    sum
}

/// The low 16 bits: what a 16-bit field holds of a larger count.
fn low_u16(n: usize) -> u16 {
    (n & 0xffff) as u16
}

/// The low 32 bits: sequence numbers wrap.
fn low_u32(n: usize) -> u32 {
    (n & 0xffff_ffff) as u32
}

/// What all segments of one packet have in common.
struct Plan {
    kind: GsoKind,
    /// Where the transport header lies.
    transport: usize,
    /// Bytes of all headers, which every segment repeats.
    headers: usize,
    /// Whether the sender asked for checksums at all: UDP over IPv4 need not have any.
    has_checksum: bool,
    fixed_id: bool,
}

/// Which piece of the payload a segment carries.
struct Part {
    index: usize,
    at: usize,
    len: usize,
    is_last: bool,
}

impl Plan {
    /// `None` if the packet does not begin with the headers that its metadata promises, or holds
    /// nothing behind them.
    fn new(packet: &mut Packet, gso: Gso) -> Option<Self> {
        let transport = packet.transport_offset();
        let fixed = match gso.kind {
            GsoKind::Tcp { .. } => TcpHeader::LEN,
            GsoKind::Udp => UdpHeader::LEN,
        };
        if !packet.linearize(transport + fixed) {
            return None;
        }
        let bytes = packet.data().get(transport..)?;
        let (len, has_checksum) = match gso.kind {
            GsoKind::Tcp { .. } => {
                let (tcp, _) = TcpHeader::ref_from_prefix(bytes).ok()?;
                (tcp.header_len(), true)
            }
            GsoKind::Udp => {
                let (udp, _) = UdpHeader::ref_from_prefix(bytes).ok()?;
                let is_partial = matches!(packet.checksum, ChecksumState::Partial { .. });
                (UdpHeader::LEN, is_partial || udp.checksum.get() != 0)
            }
        };
        let headers = transport + len;
        let is_whole = len >= fixed && headers < packet.total_len() && packet.linearize(headers);
        is_whole.then_some(Self {
            kind: gso.kind,
            transport,
            headers,
            has_checksum,
            fixed_id: gso.fixed_id,
        })
    }

    /// Makes a copy of headers and payload a packet of its own.
    fn finish<F: Family>(&self, segment: &mut Packet, part: &Part) {
        self.finish_ip::<F>(segment, part);
        self.finish_transport(segment, part);
        if self.has_checksum {
            self.fill_checksum::<F>(segment);
        }
    }

    fn finish_ip<F: Family>(&self, segment: &mut Packet, part: &Part) {
        if F::VERSION == IpVersion::V4
            && !self.fixed_id
            && let Ok((ip, _)) = Ipv4Header::mut_from_prefix(segment.data_mut())
        {
            // Linux numbers the segments on from the packet's identification.
            ip.id = ip.id.get().wrapping_add(low_u16(part.index)).into();
        }
        set_ip_len::<F>(segment, self.headers + part.len);
    }

    fn finish_transport(&self, segment: &mut Packet, part: &Part) {
        let Some(bytes) = segment.data_mut().get_mut(self.transport..) else {
            return;
        };
        match self.kind {
            GsoKind::Tcp { ecn } => {
                let Ok((tcp, _)) = TcpHeader::mut_from_prefix(bytes) else {
                    return;
                };
                tcp.seq = tcp.seq.get().wrapping_add(low_u32(part.at)).into();
                if !part.is_last {
                    tcp.flags &= !(tcp::FLAG_FIN | tcp::FLAG_PSH);
                }
                // CWR answers one congestion signal, so it is sent once (RFC 3168 section 6.1.2).
                if ecn && part.index > 0 {
                    tcp.flags &= !tcp::FLAG_CWR;
                }
            }
            GsoKind::Udp => {
                let Ok((udp, _)) = UdpHeader::mut_from_prefix(bytes) else {
                    return;
                };
                udp.len = low_u16(UdpHeader::LEN + part.len).into();
            }
        }
    }

    fn fill_checksum<F: Family>(&self, segment: &mut Packet) {
        let (protocol, offset) = match self.kind {
            GsoKind::Tcp { .. } => (protocol::TCP, TcpHeader::CHECKSUM_OFFSET),
            GsoKind::Udp => (protocol::UDP, UdpHeader::CHECKSUM_OFFSET),
        };
        let len = segment.total_len() - self.transport;
        let sum = F::pseudo_header(F::src(segment), F::dst(segment), protocol, len);
        let pseudo = !sum.finish();
        let field = self.transport + usize::from(offset);
        if let Some(field) = segment.data_mut().get_mut(field..field + 2) {
            field.copy_from_slice(&pseudo.to_be_bytes());
        }
        segment.checksum = ChecksumState::Partial {
            start: low_u16(self.transport),
            offset,
        };
        complete_checksum(segment);
    }
}

#[cfg(test)]
mod tests;
