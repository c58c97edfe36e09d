//! Datagrams that go out.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;
use std::io::IoSlice;

use zerocopy::IntoBytes;

use super::error::{ErrorOrigin, ErrorReport};
use super::gso;
use super::info::present;
use super::multicast;
use super::options::MtuDiscover;
use super::socket::{BindError, NotOpen, may_be_local};
use crate::core::Context;
use crate::family::{Family, V4, V6};
use crate::fib::RouteKind;
use crate::interface::LOOPBACK;
use crate::packet::{ChecksumState, Gso, IpVersion, Packet};
use crate::socket::{Flag, Mode, MulticastOptions, Slot, SocketError, SocketId};
use crate::stack::Stack;
use crate::time::Instant;
use crate::transmit::{self, IpParams, OutputRoute, SendError};
use crate::wire::{UdpHeader, protocol};

/// Why a datagram was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UdpSendError {
    /// EBADF.
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    /// EDESTADDRREQ: no address given, and not connected.
    #[error("destination address required")]
    DestinationRequired,
    /// EAFNOSUPPORT: an IPv6 destination on an IPv4 socket.
    #[error("address family not supported by protocol")]
    FamilyNotSupported,
    /// EAGAIN: the socket had no port, and none is free.
    #[error("no local port is free")]
    NoPort,
    /// What the network said about an earlier datagram.
    #[error(transparent)]
    Pending(#[from] SocketError),
    /// No way there, or no room.
    #[error(transparent)]
    Network(#[from] SendError),
}

/// A datagram to be sent, with what Linux takes in control messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    /// The payload, from several places if need be.
    pub payload: &'a [IoSlice<'a>],
    /// Where it goes; to the peer of a connected socket if `None`.
    pub to: Option<SocketAddr>,
    /// Where it comes from, if not from the socket's own address and port (`IP_PKTINFO`): one that
    /// is not ours needs a transparent socket, another port one that takes every port.
    pub from: Option<SocketAddr>,
    /// Index of the interface to send by (`IP_PKTINFO`), where the socket is bound to none.
    pub device: Option<u32>,
    /// TTL or hop limit (`IP_TTL`), if not the socket's.
    pub ttl: Option<u8>,
    /// Type of service or traffic class (`IP_TOS`), if not the socket's.
    pub tos: Option<u8>,
    /// Payload bytes of each datagram that the message is cut into (`UDP_SEGMENT`), if not the
    /// socket's; 0 sends it as it is.
    pub segment_size: Option<u16>,
}

impl Stack {
    /// Sends a datagram to `to`, or to the peer of a connected socket. A socket without a port gets
    /// one.
    ///
    /// # Errors
    ///
    /// [`UdpSendError`]; nothing was sent.
    pub fn udp_send(
        &self,
        now: Instant,
        id: SocketId,
        payload: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), UdpSendError> {
        self.udp_send_from(now, id, payload, to, None)
    }

    /// As [`udp_send`](Self::udp_send), from another address and port than the socket's own: what
    /// a socket that takes every address answers from.
    ///
    /// # Errors
    ///
    /// [`UdpSendError`]; an address that is not ours needs a transparent socket.
    pub fn udp_send_from(
        &self,
        now: Instant,
        id: SocketId,
        payload: &[u8],
        to: Option<SocketAddr>,
        from: Option<SocketAddr>,
    ) -> Result<(), UdpSendError> {
        let payload = &[IoSlice::new(payload)];
        let message = Message {
            payload,
            to,
            from,
            ..Message::default()
        };
        self.udp_send_message(now, id, &message)
    }

    /// As [`udp_send`](Self::udp_send), with everything that a datagram may be told.
    ///
    /// # Errors
    ///
    /// [`UdpSendError`]; nothing was sent.
    pub fn udp_send_message(
        &self,
        now: Instant,
        id: SocketId,
        message: &Message<'_>,
    ) -> Result<(), UdpSendError> {
        self.udp_send_batch(now, id, core::slice::from_ref(message))
            .map(drop)
    }

    /// Sends datagrams in order: what sendmmsg(2) does. Returns how many were sent: all, or those
    /// before the first that could not be.
    ///
    /// # Errors
    ///
    /// [`UdpSendError`] of the first datagram; nothing was sent.
    pub fn udp_send_batch(
        &self,
        now: Instant,
        id: SocketId,
        messages: &[Message<'_>],
    ) -> Result<usize, UdpSendError> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        if let Some(error) = slot.queue.take_error() {
            return Err(error.into());
        }
        if slot.status().mode == Mode::Open {
            self.autobind(id).map_err(|error| match error {
                BindError::InUse => UdpSendError::NoPort,
                _ => UdpSendError::NotOpen(NotOpen),
            })?;
        }
        self.with_context(now, |cx| {
            for (sent, message) in messages.iter().enumerate() {
                match send(cx, id, slot, message) {
                    Ok(()) => {}
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => return Ok(sent),
                }
            }
            Ok(messages.len())
        })
    }
}

fn send(
    cx: &mut Context<'_>,
    id: SocketId,
    slot: &Slot,
    message: &Message<'_>,
) -> Result<(), UdpSendError> {
    let status = slot.status_of(id).ok_or(NotOpen)?;
    // Under the guard, the words of a key set stay.
    let keys = slot.key_set(status.keys);
    let peer = (status.mode == Mode::Connected).then(|| keys.remote());
    let to = match (message.to, peer) {
        (Some(to), _) => to,
        (None, Some((addr, port))) => SocketAddr::new(addr, port),
        (None, None) => return Err(UdpSendError::DestinationRequired),
    };
    let scope = scope_id(&to);
    let to = (to.ip().to_canonical(), to.port());
    check_family(slot, to.0)?;
    if to.1 == 0 {
        return Err(SendError::InvalidArgument.into());
    }
    let (own_addr, own_port) = keys.local();
    let from = match message.from {
        Some(from) => (from.ip().to_canonical(), from.port()),
        None => (own_addr, own_port),
    };
    // A socket that takes every port must say which one it answers from; others have theirs.
    if from.1 == 0 || (own_port != 0 && from.1 != own_port) {
        return Err(SendError::InvalidArgument.into());
    }
    if !from.0.is_unspecified() && from.0.is_ipv4() != to.0.is_ipv4() {
        return Err(SendError::NetworkUnreachable.into());
    }
    if from.0 != own_addr && !may_be_local(cx, slot, from.0) {
        return Err(SendError::AddressNotAvailable.into());
    }
    let multicast =
        to.0.is_multicast()
            .then(|| multicast::options(cx, slot, to.0));
    let own_choice = multicast
        .map(|options| options.interface)
        .filter(|ifindex| *ifindex != 0);
    let device = match (keys.device(), message.device) {
        (0, asked) => asked.or(scope).or(own_choice),
        (device, Some(asked)) if device != asked => return Err(SendError::InvalidArgument.into()),
        (device, _) => Some(device),
    };
    if message.ttl == Some(0) {
        return Err(SendError::InvalidArgument.into());
    }
    let outgoing = Outgoing {
        slot,
        message,
        to,
        from,
        device,
        multicast,
    };
    match to.0 {
        IpAddr::V4(_) => outgoing.send::<V4>(cx),
        IpAddr::V6(_) => outgoing.send::<V6>(cx),
    }
}

/// Whether the socket speaks the family at all.
pub(super) fn check_family(slot: &Slot, to: IpAddr) -> Result<(), UdpSendError> {
    let options = &slot.options();
    match (options.has(Flag::Inet6), to.is_ipv6()) {
        (false, true) => Err(UdpSendError::FamilyNotSupported),
        (true, false) if options.has(Flag::V6Only) => Err(SendError::NetworkUnreachable.into()),
        _ => Ok(()),
    }
}

/// The interface that an address of local scope names.
pub(crate) fn scope_id(addr: &SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V6(addr) => Some(addr.scope_id()).filter(|scope| *scope != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Where packets to an address go: those to nobody in particular come back, as Linux does it.
pub(crate) fn or_loopback(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(addr) if addr.is_unspecified() => core::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(addr) if addr.is_unspecified() => core::net::Ipv6Addr::LOCALHOST.into(),
        addr => addr,
    }
}

struct Outgoing<'a> {
    slot: &'a Slot,
    message: &'a Message<'a>,
    to: (IpAddr, u16),
    from: (IpAddr, u16),
    device: Option<u32>,
    /// How to send to a group, if it goes to one.
    multicast: Option<MulticastOptions>,
}

impl Outgoing<'_> {
    fn send<F: Family>(&self, cx: &mut Context<'_>) -> Result<(), UdpSendError> {
        if self.payload_len() > max_payload::<F>() {
            return Err(SendError::MessageTooLong.into());
        }
        let dst = F::from_ip(or_loopback(self.to.0)).ok_or(UdpSendError::FamilyNotSupported)?;
        let src = F::from_ip(self.from.0).filter(|src| *src != F::UNSPECIFIED);
        let mut route = transmit::route_output::<F>(cx, dst, src, self.device)?;
        route.loops = self.multicast.is_some_and(|options| options.loops);
        let options = self.slot.options();
        if route.kind == RouteKind::Broadcast && !options.has(Flag::Broadcast) {
            return Err(SendError::AccessDenied.into());
        }
        let discover = MtuDiscover::of(options);
        if !discover.uses_path() {
            route.mtu = route.link_mtu;
        }
        let size = self.message.segment_size;
        let size = NonZeroU16::new(
            size.unwrap_or_else(|| cx.stack.demux.sockets().segment_size(self.slot)),
        );
        let gso = match size {
            Some(size) => gso::plan::<F>(self.payload_len(), size, route.mtu)?,
            None => None,
        };
        let len = F::HEADER_LEN + UdpHeader::LEN + self.payload_len();
        if gso.is_none() && discover.refuses() && len > route.mtu as usize {
            self.report_too_long(&route);
            return Err(SendError::MessageTooLong.into());
        }
        let Some(packet) = self.build::<F>(cx, &route, gso) else {
            cx.core.count(F::MIB.udp_sndbuf_errors);
            return Err(SendError::NoBuffers.into());
        };
        let ip = IpParams {
            protocol: protocol::UDP,
            ttl: self.message.ttl.or_else(|| match self.multicast {
                Some(multicast) => Some(multicast.ttl),
                None => options.ttl(),
            }),
            tos: self.message.tos.unwrap_or_else(|| options.tos()),
            dont_fragment: discover.forbids_fragments(route.mtu_locked),
        };
        transmit::send(cx, packet, &route, &ip)?;
        cx.core.count(F::MIB.udp_out_datagrams);
        Ok(())
    }

    /// Tells who asked for it how much would have fitted (Linux's `ip_local_error`).
    fn report_too_long<F: Family>(&self, route: &OutputRoute<'_, F>) {
        if !self.slot.options().has(Flag::RecvErr) {
            return;
        }
        let inet6 = self.slot.options().has(Flag::Inet6);
        let device = self.device.unwrap_or(0);
        self.slot.report(ErrorReport {
            error: SocketError::MessageTooLong,
            origin: ErrorOrigin::Local,
            kind: 0,
            code: 0,
            mtu: Some(route.mtu),
            offender: None,
            to: present(self.to.0, self.to.1, inet6, device),
            payload: Vec::new(),
        });
    }

    fn payload_len(&self) -> usize {
        self.message.payload.iter().map(|slice| slice.len()).sum()
    }

    fn build<F: Family>(
        &self,
        cx: &mut Context<'_>,
        route: &OutputRoute<'_, F>,
        gso: Option<Gso>,
    ) -> Option<Packet> {
        let len = UdpHeader::LEN + self.payload_len();
        let mut header = UdpHeader {
            src_port: self.from.1.into(),
            dst_port: self.to.1.into(),
            len: u16::try_from(len).ok()?.into(),
            checksum: 0.into(),
        };
        let mut sum = F::pseudo_header(route.src, route.dst, protocol::UDP, len);
        // Whoever cuts the packet fills in the checksums.
        let by_device = gso.is_some() || is_left_to_device(cx, route, len);
        if by_device {
            // The device adds the rest to what the field holds.
            header.checksum = (!sum.finish()).into();
        } else {
            sum.add_bytes(header.as_bytes());
            for slice in self.message.payload {
                sum.add_bytes(slice);
            }
            header.checksum = match sum.finish() {
                // 0 would say that there is no checksum; in one's complement 0xffff is the same.
                0 => u16::MAX,
                sum => sum,
            }
            .into();
        }

        let mut packet = cx.core.alloc()?;
        packet
            .put(UdpHeader::LEN)?
            .copy_from_slice(header.as_bytes());
        let slices = self.message.payload.iter().map(|slice| &**slice);
        cx.core.append(&mut packet, slices)?;
        packet.checksum = match by_device {
            true => ChecksumState::Partial {
                start: 0,
                offset: UdpHeader::CHECKSUM_OFFSET,
            },
            false => ChecksumState::Verified,
        };
        packet.gso = gso;
        Some(packet)
    }
}

/// A packet that leaves in one piece may have its checksum filled by the device; one that stays
/// here has been in no danger.
fn is_left_to_device<F: Family>(cx: &Context<'_>, route: &OutputRoute<'_, F>, len: usize) -> bool {
    let offloads = cx
        .view
        .interfaces
        .get(route.oif)
        .is_some_and(|device| device.offload.checksum);
    let fits = F::HEADER_LEN + len <= route.mtu as usize;
    (offloads || route.oif == LOOPBACK) && fits
}

/// What the length fields leave for the payload: IPv4's counts the IP header, IPv6's does not.
fn max_payload<F: Family>() -> usize {
    let header = match F::VERSION {
        IpVersion::V4 => F::HEADER_LEN,
        IpVersion::V6 => 0,
    };
    usize::from(u16::MAX) - header - UdpHeader::LEN
}
