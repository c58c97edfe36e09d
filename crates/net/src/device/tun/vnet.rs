//! Virtio-net headers and what the stack knows of a packet: one into the other, strictly.

use std::num::NonZeroU16;

use forebay_os::vnet::VnetHeader;
use forebay_stack::packet::{ChecksumState, Gso, GsoKind, IpVersion, Packet};
use forebay_stack::wire::protocol;

use crate::device::{BadFrame, frame};

/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM: u8 = 16;
/// Where the checksum lies in a UDP header.
const UDP_CHECKSUM: u8 = 6;

/// Takes over what `header` says about `packet`, if it is true and `packet` may enter the stack.
///
/// Later stages rely on it: they write a checksum where it says, and cut segments as it says.
pub(super) fn accept(header: &VnetHeader, packet: &mut Packet, mtu: u32) -> Result<(), BadFrame> {
    // An MTU without bounds: it is for segments, and whether there are any is not known yet.
    let version = frame::check(packet, u32::MAX)?;
    packet.checksum = checksum(header, packet, version)?;
    packet.gso = segmentation(header, packet, version)?;
    frame::check(packet, mtu)?;
    Ok(())
}

fn checksum(
    header: &VnetHeader,
    packet: &Packet,
    version: IpVersion,
) -> Result<ChecksumState, BadFrame> {
    if header.flags & VnetHeader::NEEDS_CSUM == 0 {
        return Ok(match header.flags & VnetHeader::DATA_VALID {
            0 => ChecksumState::None,
            _ => ChecksumState::Verified,
        });
    }
    let (start, offset) = (header.csum_start, header.csum_offset);
    let end_of_field = usize::from(start) + usize::from(offset) + 2;
    let headers = ip_header_len(packet.data(), version).ok_or(BadFrame::Checksum)?;
    if usize::from(start) < headers || end_of_field > packet.total_len() {
        return Err(BadFrame::Checksum);
    }
    let offset = u8::try_from(offset).map_err(|_| BadFrame::Checksum)?;
    Ok(ChecksumState::Partial { start, offset })
}

/// The virtio specification (1.2, section 5.1.6.4) has each packet that is to be segmented also
/// leave its checksum to be filled in, so that says where the transport header is.
fn segmentation(
    header: &VnetHeader,
    packet: &Packet,
    version: IpVersion,
) -> Result<Option<Gso>, BadFrame> {
    if header.gso_type == VnetHeader::GSO_NONE {
        return Ok(None);
    }
    let ChecksumState::Partial { start, offset } = packet.checksum else {
        return Err(BadFrame::Segmentation);
    };
    let kind = kind(header.gso_type, version).ok_or(BadFrame::Segmentation)?;
    let size = NonZeroU16::new(header.gso_size).ok_or(BadFrame::Segmentation)?;
    let start = usize::from(start);
    let is_its_protocol = transport_protocol(packet.data(), version, start)
        == Some(kind.protocol())
        && offset == kind.checksum_offset();
    let headers = headers_len(packet.data(), start, kind).ok_or(BadFrame::Segmentation)?;
    let total = packet.total_len();
    if !is_its_protocol || headers >= total || usize::from(header.hdr_len) > total {
        return Err(BadFrame::Segmentation);
    }
    Ok(Some(Gso::new(size, kind)))
}

/// UDP that is to be cut into IP fragments was never agreed to, and is refused.
fn kind(gso_type: u8, version: IpVersion) -> Option<GsoKind> {
    let ecn = gso_type & VnetHeader::GSO_ECN != 0;
    match (gso_type & !VnetHeader::GSO_ECN, version) {
        (VnetHeader::GSO_TCPV4, IpVersion::V4) | (VnetHeader::GSO_TCPV6, IpVersion::V6) => {
            Some(GsoKind::Tcp { ecn })
        }
        (VnetHeader::GSO_UDP_L4, _) if !ecn => Some(GsoKind::Udp),
        _ => None,
    }
}

/// What the kernel is to know of `packet`. `None` for a packet that says it is to be segmented, but
/// not where its transport header is.
pub(super) fn describe(packet: &Packet) -> Option<VnetHeader> {
    let mut header = VnetHeader::default();
    let transport = match packet.checksum {
        ChecksumState::Partial { start, offset } => {
            header.flags = VnetHeader::NEEDS_CSUM;
            header.csum_start = start;
            header.csum_offset = offset.into();
            Some(usize::from(start))
        }
        _ => None,
    };
    if let Some(Gso { size, kind, .. }) = packet.gso {
        header.gso_size = size.get();
        header.hdr_len = u16::try_from(headers_len(packet.data(), transport?, kind)?).ok()?;
        header.gso_type = match (kind, packet.data().first()? >> 4) {
            (GsoKind::Tcp { ecn }, 4) => VnetHeader::GSO_TCPV4 | ecn_flag(ecn),
            (GsoKind::Tcp { ecn }, _) => VnetHeader::GSO_TCPV6 | ecn_flag(ecn),
            (GsoKind::Udp, _) => VnetHeader::GSO_UDP_L4,
        };
    }
    Some(header)
}

fn ecn_flag(ecn: bool) -> u8 {
    if ecn { VnetHeader::GSO_ECN } else { 0 }
}

/// What virtio needs to know of the protocols that are segmented.
trait Segmented {
    fn protocol(self) -> u8;
    fn checksum_offset(self) -> u8;
}

impl Segmented for GsoKind {
    fn protocol(self) -> u8 {
        match self {
            Self::Tcp { .. } => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }

    fn checksum_offset(self) -> u8 {
        match self {
            Self::Tcp { .. } => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        }
    }
}

/// Length of the IP header without extension headers.
fn ip_header_len(data: &[u8], version: IpVersion) -> Option<usize> {
    match version {
        IpVersion::V4 => Some(usize::from(data.first()? & 0xf) * 4).filter(|&len| len >= 20),
        IpVersion::V6 => Some(40),
    }
}

/// The protocol of the header at `start`, if the headers in front of it end there.
fn transport_protocol(data: &[u8], version: IpVersion, start: usize) -> Option<u8> {
    let mut at = ip_header_len(data, version)?;
    if version == IpVersion::V4 {
        // Fragment offset, and the flag that says more follow: a fragment is no whole packet.
        let is_fragment = data.get(6)? & 0x3f != 0 || *data.get(7)? != 0;
        return data.get(9).copied().filter(|_| at == start && !is_fragment);
    }
    let mut next = *data.get(6)?;
    while at < start {
        let is_extension = matches!(
            next,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS
        );
        if !is_extension {
            return None;
        }
        next = *data.get(at)?;
        at += (usize::from(*data.get(at + 1)?) + 1) * 8;
    }
    Some(next).filter(|_| at == start)
}

/// Length of all headers of a packet whose transport header is at `start`, if they lie in its head.
fn headers_len(data: &[u8], start: usize, kind: GsoKind) -> Option<usize> {
    let transport = match kind {
        GsoKind::Tcp { .. } => usize::from(data.get(start + 12)? >> 4) * 4,
        GsoKind::Udp => 8,
    };
    let is_whole = transport >= if kind == GsoKind::Udp { 8 } else { 20 };
    Some(start + transport).filter(|&headers| is_whole && headers <= data.len())
}
