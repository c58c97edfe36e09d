//! A packet: its bytes, and what is known of them.
//!
//! Validation parses once and writes here; later stages read here and parse nothing again. The
//! metadata lies on the cache lines in front of the frame (see [`forebay_sync::packet`]), what
//! forwarding reads first.

use forebay_sync::packet::{Buf, Cache, Pool, Queue};

use crate::drop::DropReason;
use crate::fib::NextHopIndex;
pub use crate::ip::icmp::IcmpError;
use crate::socket::SocketId;
use crate::time::Instant;

/// A packet on its way through the stack. Its bytes start at the IP header.
pub type Packet = Buf<Meta>;
/// The buffers of one stack.
pub type PacketPool = Pool<Meta>;
/// One core's own free list of buffers.
pub type PacketCache = Cache<Meta>;
/// Packets in order, linked through themselves.
pub type PacketQueue = Queue<Meta>;

/// What is known of a packet.
///
/// All but the last three fields are on the packet's first line, so that forwarding touches no other.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Meta {
    /// Index of the interface that the packet came in by, or 0.
    pub iif: u32,
    /// The next hop that routing chose.
    pub route: Option<NextHopIndex>,
    /// The socket that early demux found.
    pub socket: Option<SocketId>,
    /// Source port, 0 where no ports are known.
    pub src_port: u16,
    /// Destination port, 0 where no ports are known.
    pub dst_port: u16,
    /// Where the payload of the IP header begins: behind options, before extension headers until
    /// local delivery has walked them.
    pub l4_offset: u16,
    /// What is to become of the packet.
    pub verdict: Verdict,
    /// Protocol of the bytes at `l4_offset`.
    pub protocol: u8,
    /// IP version.
    pub version: IpVersion,
    /// What kind of destination address it has.
    pub destination: Destination,
    /// Whether `src_port` and `dst_port` were read: TCP or UDP in one piece, directly behind the
    /// IP header.
    pub has_ports: bool,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Whether IPv4 options are present.
    pub has_options: bool,
    /// Whether this host sent the packet itself, so that on the loopback it has arrived.
    pub from_host: bool,
    /// Whether nothing but its hop limit and the next hop can keep it from being forwarded as it is.
    pub is_plain: bool,
    /// How far the transport checksum is known to be right.
    pub checksum: ChecksumState,
    /// Segmentation: set if the packet stands for several.
    pub gso: Option<Gso>,
    /// What the sender is told, if the verdict is [`Verdict::Reject`].
    pub icmp_error: Option<IcmpError>,
    /// When a datagram came in.
    pub timestamp: Instant,
    /// Hash of the packet's flow, from the device or from steering; 0 where nobody has asked.
    pub hash: u32,
    /// The core that the program ran on which sent the packet, where a device tells.
    pub sender_cpu: Option<u16>,
}

/// What the buffer's own words leave of the first line.
const _: () = assert!(core::mem::offset_of!(Meta, icmp_error) <= 40);

impl Meta {
    /// Notes what the sender is to be told, and returns the verdict that says so.
    pub(crate) fn refuse(&mut self, refusal: Refusal) -> Verdict {
        self.icmp_error = refusal.error;
        match refusal.error {
            Some(_) => Verdict::Reject(refusal.reason),
            None => Verdict::Drop(refusal.reason),
        }
    }

    /// Where the transport header lies. `l4_offset` points at IPv6 extension headers, if there are
    /// any; the start of a checksum that was left to the device lies behind them.
    pub(crate) fn transport_offset(&self) -> usize {
        usize::from(match self.checksum {
            ChecksumState::Partial { start, .. } => start,
            _ => self.l4_offset,
        })
    }
}

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IpVersion {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// What validation makes of a destination address, before any route is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Destination {
    /// No local route covers it: transit, if anything.
    #[default]
    Transit,
    /// A local or broadcast route of some table covers it.
    Own,
    /// A multicast group.
    Multicast,
    /// 255.255.255.255.
    LimitedBroadcast,
}

/// What is to become of a packet. A stage decides; [`crate::receive`] acts, in one place.
///
/// Two bytes, which the stages hand each other in registers: written to memory byte by byte and
/// read back as a word, it would wait for the store each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Not decided yet: the next stage looks.
    #[default]
    Undecided,
    /// To a socket or protocol of this host.
    Deliver,
    /// Out again, by the packet's route.
    Forward,
    /// Freed and counted.
    Drop(DropReason),
    /// Freed and counted, and the sender is told [`Meta::icmp_error`].
    Reject(DropReason),
}

/// Why a packet goes no further, and what its sender is told of it, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: DropReason,
    pub(crate) error: Option<IcmpError>,
}

impl Refusal {
    /// The sender hears nothing.
    pub(crate) const fn silent(reason: DropReason) -> Self {
        Self {
            reason,
            error: None,
        }
    }

    /// The sender is told.
    pub(crate) const fn told(reason: DropReason, error: IcmpError) -> Self {
        Self {
            reason,
            error: Some(error),
        }
    }
}

/// What is known of the transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumState {
    /// Nothing: whoever consumes the packet verifies it.
    #[default]
    None,
    /// Verified, by the device or by us.
    Verified,
    /// The sender on this machine left it to the device: the field holds the pseudo-header's sum,
    /// the rest from `start` (bytes from the front of the packet) is still to be added at
    /// `start + offset`.
    Partial {
        /// Where the checksummed bytes begin.
        start: u16,
        /// Where the field lies behind `start`; no header has it further behind.
        offset: u8,
    },
}

/// A packet that stands for several segments of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of each segment but the last.
    pub size: core::num::NonZeroU16,
    /// Which protocol is to be segmented.
    pub kind: GsoKind,
    /// Whether all segments have the packet's IPv4 identification; else they count up from it.
    pub fixed_id: bool,
}

impl Gso {
    /// Segments of `size` payload bytes, whose IPv4 identifications count up.
    pub const fn new(size: core::num::NonZeroU16, kind: GsoKind) -> Self {
        Self {
            size,
            kind,
            fixed_id: false,
        }
    }
}

/// Protocol of a [`Gso`] packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP segments; `ecn` says that CWR belongs to the first only (RFC 3168 section 6.1.2).
    Tcp {
        /// Whether the sender set CWR.
        ecn: bool,
    },
    /// UDP datagrams.
    Udp,
}
