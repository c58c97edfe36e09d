//! What a program sees of a packet.

use super::code::{LL_OFF, NET_OFF};
use super::program::Ancillary;
use crate::core::Context;
use crate::family::{V4, V6};
use crate::fib::RouteKind;
use crate::interface::LOOPBACK;
use crate::ip::destination;
use crate::packet::{IpVersion, Packet};
use crate::wire::UdpHeader;

const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;

const ARPHRD_LOOPBACK: u32 = 772;
const ARPHRD_NONE: u32 = 65_534;

const PACKET_HOST: u32 = 0;
const PACKET_BROADCAST: u32 = 1;
const PACKET_MULTICAST: u32 = 2;

/// A packet, and where a program's offset 0 lies in it.
pub(crate) struct Subject<'a, 'c> {
    cx: &'a mut Context<'c>,
    packet: &'a Packet,
    start: usize,
}

impl<'a, 'c> Subject<'a, 'c> {
    /// A packet as a program of a UDP socket sees it: from the UDP header on.
    pub(crate) fn datagram(cx: &'a mut Context<'c>, packet: &'a Packet) -> Self {
        Self {
            start: usize::from(packet.l4_offset),
            cx,
            packet,
        }
    }

    /// A packet as a program of a group sees it: what is in the datagram.
    pub(crate) fn payload(cx: &'a mut Context<'c>, packet: &'a Packet) -> Self {
        Self {
            start: usize::from(packet.l4_offset) + UdpHeader::LEN,
            cx,
            packet,
        }
    }

    pub(super) fn len(&self) -> u32 {
        let len = self.packet.total_len().saturating_sub(self.start);
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(super) fn word(&self, offset: u32) -> Option<u32> {
        self.bytes(offset).map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn half(&self, offset: u32) -> Option<u32> {
        self.bytes(offset).map(u16::from_be_bytes).map(u32::from)
    }

    #[inline]
    pub(super) fn byte(&self, offset: u32) -> Option<u32> {
        self.bytes(offset).map(u8::from_be_bytes).map(u32::from)
    }

    pub(super) fn ancillary(&mut self, what: Ancillary) -> u32 {
        let Self { cx, packet, start } = self;
        match what {
            Ancillary::Protocol => match packet.version {
                IpVersion::V4 => ETH_P_IP,
                IpVersion::V6 => ETH_P_IPV6,
            },
            Ancillary::PacketType => match kind(cx, packet) {
                RouteKind::Multicast => PACKET_MULTICAST,
                RouteKind::Broadcast => PACKET_BROADCAST,
                _ => PACKET_HOST,
            },
            Ancillary::Ifindex => packet.iif,
            Ancillary::HardwareType if packet.iif == LOOPBACK => ARPHRD_LOOPBACK,
            Ancillary::HardwareType => ARPHRD_NONE,
            Ancillary::RxHash => cx.stack.demux.flow_hash(packet),
            Ancillary::Cpu => cx.core.number().into(),
            Ancillary::PayloadOffset => {
                let payload = usize::from(packet.l4_offset) + UdpHeader::LEN;
                u32::try_from(payload.saturating_sub(*start)).unwrap_or(u32::MAX)
            }
            Ancillary::Random => cx.core.random.next_u32(),
            // Interfaces have one queue, and packets neither marks nor tags.
            Ancillary::Queue
            | Ancillary::Mark
            | Ancillary::VlanTag
            | Ancillary::VlanTagPresent
            | Ancillary::VlanTpid => 0,
        }
    }

    /// Bytes at a program's offset; `None` unless all of them are there.
    #[inline]
    fn bytes<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        let at = match offset {
            ..=0x7fff_ffff => self.start.checked_add(usize::try_from(offset).ok()?)?,
            // What lies above the offsets of what is known of a packet counts from the header, too,
            // and is beyond any packet's end.
            NET_OFF.. => usize::try_from(offset - NET_OFF).ok()?,
            LL_OFF.. => usize::try_from(offset - LL_OFF).ok()?,
            _ => return None,
        };
        if let Some(bytes) = self.packet.data().get(at..at.checked_add(N)?) {
            return bytes.try_into().ok();
        }
        let mut bytes = [0; N];
        (self.packet.copy_to(at, &mut bytes) == N).then_some(bytes)
    }
}

fn kind(cx: &Context<'_>, packet: &Packet) -> RouteKind {
    match packet.version {
        IpVersion::V4 => destination::kind::<V4>(cx, packet),
        IpVersion::V6 => destination::kind::<V6>(cx, packet),
    }
}
