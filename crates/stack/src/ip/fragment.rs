//! Fragmentation (RFC 791 section 3.2, RFC 8200 section 4.5): a packet larger than the MTU becomes
//! fragments that fit.

use zerocopy::{FromBytes, IntoBytes};

use crate::core::Context;
use crate::drop::DropReason;
use crate::family::Family;
use crate::packet::{ChecksumState, IpVersion, Meta, Packet, PacketQueue};
use crate::segment::{complete_checksum, copy_part};
use crate::wire::ipv4::{self, FLAG_MF};
use crate::wire::{FragmentHeader, Ipv4Header, Ipv6Header, protocol};

use super::options;

/// Cuts a packet into fragments of at most `mtu` bytes, in order, ready to be sent. Whether it may
/// be cut at all (DF, or IPv6 on its way through a router) is for the caller to know.
///
/// A fragment may be cut again: offsets count on from its own. In IPv4 the identification is the
/// packet's; in IPv6 one is drawn here, and the fragmentable part begins right behind the fixed
/// header, for this host sends no extension headers of its own. Segments ([`Meta::gso`]) are cut
/// apart by [`crate::segment`] before.
///
/// `None` if the packet was dropped: the MTU leaves no room for data, or the pool is empty.
pub(crate) fn fragment<F: Family>(
    cx: &mut Context<'_>,
    mut packet: Packet,
    mtu: u32,
) -> Option<PacketQueue> {
    // Once in pieces, nobody could fill it in any more.
    complete_checksum(&mut packet);
    let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
    let cut = match F::VERSION {
        IpVersion::V4 => Cut::v4(&packet, mtu),
        IpVersion::V6 => Cut::v6(&packet, mtu, cx.core.random.next_u32()),
    };
    let Some(cut) = cut else {
        cx.drop(packet, DropReason::PktTooBig);
        return None;
    };
    let Some(fragments) = cut.apart(cx, &packet) else {
        cx.core.count(F::MIB.frag_fails);
        cx.drop(packet, DropReason::NoBuffer);
        return None;
    };
    cx.core.consume(packet);
    cx.core.count(F::MIB.frag_oks);
    cx.core.add(F::MIB.frag_creates, fragments.len() as u64);
    Some(fragments)
}

/// How a packet is cut.
struct Cut {
    version: IpVersion,
    /// Bytes of the packet in front of the data that is cut.
    headers: usize,
    /// What the first fragment begins with.
    first: Vec<u8>,
    /// What each further fragment begins with.
    further: Vec<u8>,
    /// Where the packet's data lies in the datagram: a fragment has one behind it.
    offset: usize,
    /// Whether more of the datagram follows behind the packet.
    more: bool,
    mtu: usize,
}

impl Cut {
    fn v4(packet: &Packet, mtu: usize) -> Option<Self> {
        let (ip, _) = Ipv4Header::ref_from_prefix(packet.data()).ok()?;
        let headers = ip.header_len();
        let first = packet.data().get(..headers)?.to_vec();
        let further = options::for_further_fragments(&first)?;
        let cut = Self {
            version: IpVersion::V4,
            headers,
            first,
            further,
            offset: ip.fragment_offset(),
            more: ip.more_fragments(),
            mtu,
        };
        cut.has_room().then_some(cut)
    }

    fn v6(packet: &Packet, mtu: usize, id: u32) -> Option<Self> {
        let (ip, _) = Ipv6Header::ref_from_prefix(packet.data()).ok()?;
        let mut fixed = *ip;
        fixed.next_header = protocol::FRAGMENT;
        let mut header = fixed.as_bytes().to_vec();
        header.extend(FragmentHeader::new(ip.next_header, 0, false, id).as_bytes());
        let cut = Self {
            version: IpVersion::V6,
            headers: Ipv6Header::LEN,
            first: header.clone(),
            further: header,
            offset: 0,
            more: false,
            mtu,
        };
        cut.has_room().then_some(cut)
    }

    /// Whether every fragment can carry data.
    fn has_room(&self) -> bool {
        self.mtu >= self.first.len() + 8 && self.mtu >= self.further.len() + 8
    }

    fn apart(&self, cx: &mut Context<'_>, packet: &Packet) -> Option<PacketQueue> {
        let data = packet.total_len().checked_sub(self.headers)?;
        let mut fragments = PacketQueue::new();
        let mut at = 0;
        while at < data {
            let header = if at == 0 { &self.first } else { &self.further };
            let room = self.mtu - header.len();
            let is_last = data - at <= room;
            let len = if is_last { data - at } else { room & !7 };
            let mut fragment = copy_part(cx, packet, header, self.headers + at, len)?;
            self.finish(
                &mut fragment,
                header.len(),
                self.offset + at,
                self.more || !is_last,
            );
            fragments.push(fragment);
            at += len;
        }
        Some(fragments)
    }

    /// Writes what differs from one fragment to the next.
    fn finish(&self, fragment: &mut Packet, header_len: usize, offset: usize, more: bool) {
        let len = fragment.total_len();
        **fragment = Meta {
            l4_offset: u16::try_from(header_len).unwrap_or(u16::MAX),
            is_fragment: true,
            has_options: self.version == IpVersion::V4 && header_len > Ipv4Header::LEN,
            has_ports: false,
            checksum: ChecksumState::None,
            ..**fragment
        };
        match self.version {
            IpVersion::V4 => write_v4(fragment, len, offset, more),
            IpVersion::V6 => {
                fragment.l4_offset = Ipv6Header::LEN as u16;
                fragment.protocol = protocol::FRAGMENT;
                write_v6(fragment, len, offset, more);
            }
        }
    }
}

fn write_v4(fragment: &mut Packet, len: usize, offset: usize, more: bool) {
    let Ok((ip, _)) = Ipv4Header::mut_from_prefix(fragment.data_mut()) else {
        return;
    };
    let flags = if more { FLAG_MF } else { 0 };
    ip.total_len = u16::try_from(len).unwrap_or(u16::MAX).into();
    ip.fragment = u16::try_from(offset / 8)
        .map_or(0, |units| units & ipv4::OFFSET_MASK | flags)
        .into();
    ipv4::fill_checksum(fragment.data_mut());
}

fn write_v6(fragment: &mut Packet, len: usize, offset: usize, more: bool) {
    let Ok((ip, rest)) = Ipv6Header::mut_from_prefix(fragment.data_mut()) else {
        return;
    };
    let Ok((header, _)) = FragmentHeader::mut_from_prefix(rest) else {
        return;
    };
    ip.payload_len = u16::try_from(len.saturating_sub(Ipv6Header::LEN))
        .unwrap_or(u16::MAX)
        .into();
    *header = FragmentHeader::new(
        header.next_header,
        u16::try_from(offset).unwrap_or(u16::MAX),
        more,
        header.id.get(),
    );
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;
    use crate::counters::Counter;
    use crate::family::{V4, V6};
    use crate::ip::bench::{Bench, bytes_of, pattern, v4, v6};
    use crate::wire::checksum::checksum;
    use crate::wire::ipv4::FLAG_DF;

    const UDP: u8 = protocol::UDP;

    /// Offset, "more", header length and payload length of an IPv4 fragment with a right checksum.
    fn describe_v4(bytes: &[u8]) -> (usize, bool, usize, usize) {
        let (ip, _) = Ipv4Header::ref_from_prefix(bytes).unwrap();
        assert_eq!(checksum(&bytes[..ip.header_len()]), 0);
        assert_eq!(usize::from(ip.total_len.get()), bytes.len());
        let payload = bytes.len() - ip.header_len();
        (
            ip.fragment_offset(),
            ip.more_fragments(),
            ip.header_len(),
            payload,
        )
    }

    fn cut_v4(bench: &mut Bench, bytes: &[u8], mtu: u32) -> Vec<Vec<u8>> {
        let packet = bench.packet_in_chunks(bytes, 700);
        let fragments = bench.run(|cx| fragment::<V4>(cx, packet, mtu));
        fragments
            .iter()
            .flat_map(PacketQueue::iter)
            .map(bytes_of)
            .collect()
    }

    #[test]
    fn fragments_are_as_large_as_multiples_of_8_allow() {
        let mut bench = Bench::new();
        let fragments = cut_v4(&mut bench, &v4(UDP, 9, 0, &[], &pattern(1_208)), 1_000);
        let described: Vec<_> = fragments.iter().map(|bytes| describe_v4(bytes)).collect();
        assert_eq!(described, [(0, true, 20, 976), (976, false, 20, 232)]);
        assert_eq!(bench.count(Counter::IpFragOKs), 1);
        assert_eq!(bench.count(Counter::IpFragCreates), 2);
        assert_eq!(bench.in_use(), 0);
    }

    #[test]
    fn a_fragment_is_cut_again_within_its_datagram() {
        let mut bench = Bench::new();
        for (more, flag) in [(true, FLAG_MF), (false, 0)] {
            let bytes = v4(UDP, 9, 100 | flag, &[], &pattern(160));
            let fragments = cut_v4(&mut bench, &bytes, 100);
            let described: Vec<_> = fragments.iter().map(|bytes| describe_v4(bytes)).collect();
            assert_eq!(described, [(800, true, 20, 80), (880, more, 20, 80)]);
        }
    }

    #[test]
    fn options_go_where_their_copied_flag_says() {
        let mut bench = Bench::new();
        // No-operation, record route (not copied), router alert and an unknown option (copied).
        let options = [1, 7, 7, 8, 9, 9, 9, 9, 148, 4, 0, 0, 159, 3, 5, 0];
        let fragments = cut_v4(&mut bench, &v4(UDP, 9, 0, &options, &pattern(100)), 96);
        let described: Vec<_> = fragments.iter().map(|bytes| describe_v4(bytes)).collect();
        assert_eq!(described, [(0, true, 36, 56), (56, false, 28, 44)]);
        assert_eq!(fragments[0][20..36], options);
        assert_eq!(fragments[1][20..28], [148, 4, 0, 0, 159, 3, 5, 0]);
    }

    #[test]
    fn ipv6_fragments_share_an_identification_and_name_the_payload() {
        let mut bench = Bench::new();
        let payload = pattern(3_000);
        let packet = bench.packet_in_chunks(&v6(UDP, &payload), 700);
        let fragments = bench.run(|cx| fragment::<V6>(cx, packet, 1_280)).unwrap();
        let mut joined: Vec<u8> = vec![];
        let mut ids = vec![];
        for bytes in fragments.iter().map(bytes_of) {
            let (ip, rest) = Ipv6Header::ref_from_prefix(&bytes).unwrap();
            let (header, data) = FragmentHeader::ref_from_prefix(rest).unwrap();
            assert_eq!(
                (ip.next_header, header.next_header),
                (protocol::FRAGMENT, UDP)
            );
            assert_eq!(usize::from(ip.payload_len.get()), rest.len());
            assert_eq!(header.fragment_offset(), joined.len());
            joined.extend(data);
            assert_eq!(header.more_fragments(), joined.len() < payload.len());
            assert!(bytes.len() <= 1_280);
            ids.push(header.id.get());
        }
        assert_eq!(joined, payload);
        assert_eq!(ids, [ids[0]; 3]);
    }

    #[test]
    fn fragments_larger_than_a_buffer_are_chains() {
        let mut bench = Bench::new();
        let bytes = v4(UDP, 9, 0, &[], &pattern(20_000));
        let fragments = cut_v4(&mut bench, &bytes, 9_000);
        let described: Vec<_> = fragments.iter().map(|bytes| describe_v4(bytes)).collect();
        assert_eq!(
            described,
            [
                (0, true, 20, 8_976),
                (8_976, true, 20, 8_976),
                (17_952, false, 20, 2_048)
            ]
        );
        let joined: Vec<u8> = fragments
            .iter()
            .flat_map(|bytes| bytes[20..].to_vec())
            .collect();
        assert_eq!(joined, pattern(20_000));
    }

    #[test]
    fn what_can_not_be_cut_is_counted() {
        let mut bench = Bench::with_buffers(32);
        let bytes = v4(UDP, 9, FLAG_DF, &[], &pattern(1_000));
        assert!(cut_v4(&mut bench, &bytes, 27).is_empty());
        assert_eq!(bench.dropped(DropReason::PktTooBig), 1);
        assert!(cut_v4(&mut bench, &bytes, 36).is_empty());
        assert_eq!(bench.dropped(DropReason::NoBuffer), 1);
        assert_eq!(bench.count(Counter::IpFragFails), 2);
        assert_eq!(bench.in_use(), 0);
    }
}
