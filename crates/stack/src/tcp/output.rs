//! From segments in words to packets, and out.

use zerocopy::IntoBytes;

use super::connection::segment::Outgoing;
use super::receive::Arrived;
use crate::core::Context;
use crate::counters::Counter;
use crate::family::Family;
use crate::interface::LOOPBACK;
use crate::packet::{ChecksumState, Gso, GsoKind, Packet};
use crate::transmit::{self, IpParams, OutputRoute, SendError};
use crate::wire::tcp::{FLAG_CWR, FLAG_RST};
use crate::wire::{TcpHeader, protocol};

/// Most bytes of a TCP header with its options.
const MAX_HEADER: usize = 60;
/// The bits of the traffic class that are ECN's, and the one that says that packets may be marked.
const ECN_MASK: u8 = 0x03;
const ECT_0: u8 = 0x02;

/// Where a connection's segments go, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path<'g, F: Family> {
    pub(super) route: OutputRoute<'g, F>,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) ttl: Option<u8>,
    pub(super) tos: u8,
}

impl<'g, F: Family> Path<'g, F> {
    /// The way back to where a segment came from, if there is one.
    pub(super) fn back(cx: &Context<'g>, arrived: &Arrived<F>) -> Option<Self> {
        let (local, peer) = (arrived.local, arrived.peer);
        let route = transmit::route_back::<F>(cx, peer.0, Some(local.0), arrived.iif).ok()?;
        Some(Self {
            route,
            src_port: local.1,
            dst_port: peer.1,
            ttl: None,
            tos: arrived.tos,
        })
    }

    /// Sends a segment; `payload` is its bytes, in pieces.
    pub(super) fn send<'s, I: IntoIterator<Item = &'s [u8]>>(
        &self,
        cx: &mut Context<'_>,
        segment: &Outgoing,
        payload: I,
    ) -> Result<(), SendError>
    where
        I::IntoIter: Clone,
    {
        let payload = payload.into_iter();
        let Some(packet) = self.build(cx, segment, payload) else {
            return Err(SendError::NoBuffers);
        };
        let ect = if segment.is_ect { ECT_0 } else { 0 };
        let ip = IpParams {
            protocol: protocol::TCP,
            ttl: self.ttl,
            tos: self.tos & !ECN_MASK | ect,
            dont_fragment: !self.route.mtu_locked,
        };
        let mss = u32::from(segment.mss.max(1));
        transmit::send::<F>(cx, packet, &self.route, &ip)?;
        let segments = segment.len.div_ceil(mss).max(1);
        cx.core.add(Counter::TcpOutSegs, segments.into());
        if segment.flags & FLAG_RST != 0 {
            cx.core.count(Counter::TcpOutRsts);
        }
        Ok(())
    }

    fn build<'s>(
        &self,
        cx: &mut Context<'_>,
        segment: &Outgoing,
        payload: impl Iterator<Item = &'s [u8]> + Clone,
    ) -> Option<Packet> {
        let mut bytes = [0; MAX_HEADER];
        let options = segment.options.write(&mut bytes[TcpHeader::LEN..]);
        let header_len = TcpHeader::LEN + options;
        let mut header = TcpHeader::new(
            self.src_port,
            self.dst_port,
            segment.seq.0,
            segment.ack.0,
            segment.flags,
        );
        header.set_header_len(header_len);
        header.window = segment.window.into();
        header.urgent = segment.urgent.into();

        let len = header_len + segment.len as usize;
        let gso = self.segmentation(segment);
        let by_device = gso.is_some() || self.is_left_to_device(cx);
        let mut sum = F::pseudo_header(self.route.src, self.route.dst, protocol::TCP, len);
        if by_device {
            // Whoever fills in the checksum adds the rest to what the field holds.
            header.checksum = (!sum.finish()).into();
        } else {
            sum.add_bytes(header.as_bytes());
            sum.add_bytes(&bytes[TcpHeader::LEN..header_len]);
            for slice in payload.clone() {
                sum.add_bytes(slice);
            }
            header.checksum = sum.finish().into();
        }
        bytes[..TcpHeader::LEN].copy_from_slice(header.as_bytes());

        let mut packet = cx.core.alloc()?;
        packet
            .put(header_len)?
            .copy_from_slice(&bytes[..header_len]);
        cx.core.append(&mut packet, payload)?;
        packet.checksum = match by_device {
            true => ChecksumState::Partial {
                start: 0,
                offset: TcpHeader::CHECKSUM_OFFSET,
            },
            false => ChecksumState::Verified,
        };
        packet.gso = gso;
        Some(packet)
    }

    fn segmentation(&self, segment: &Outgoing) -> Option<Gso> {
        if segment.len <= u32::from(segment.mss) {
            return None;
        }
        let ecn = segment.flags & FLAG_CWR != 0;
        let size = core::num::NonZeroU16::new(segment.mss)?;
        Some(Gso::new(size, GsoKind::Tcp { ecn }))
    }

    /// The device may fill in the checksum; what stays here is in no danger.
    fn is_left_to_device(&self, cx: &Context<'_>) -> bool {
        let interface = cx.view.interfaces.get(self.route.oif);
        self.route.oif == LOOPBACK || interface.is_some_and(|device| device.offload.checksum)
    }
}
