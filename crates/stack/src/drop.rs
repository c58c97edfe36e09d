//! Why a packet ended here: a variant, a line of documentation, a counter.
//!
//! The names follow Linux's `skb_drop_reason` where it has one. A packet is dropped in one place
//! (`Local::drop`), with one reason, which counts itself and the SNMP counters that
//! Linux counts for it.

use crate::counters::{Counter, Counter as C};
use crate::packet::IpVersion;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident, [$($v4:ident),*], [$($v6:ident),*];)+) => {
        /// Why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl DropReason {
            /// Every reason, in the order of its counter.
            pub const ALL: &'static [Self] = &[$(Self::$reason,)+];

            /// The reason's name, as it is shown and as it stands in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason),)+ }
            }

            /// One line for people.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$reason => concat!($($doc),+),)+ }
            }

            /// The SNMP counters that go up with it.
            pub(crate) const fn snmp(self, version: IpVersion) -> &'static [Counter] {
                match (self, version) {
                    $((Self::$reason, IpVersion::V4) => &[$(C::$v4),*],
                      (Self::$reason, IpVersion::V6) => &[$(C::$v6),*],)+
                }
            }
        }
    };
}

reasons! {
    /// It came in by an interface that is down or gone.
    DevDown, [], [];
    /// The frame's version nibble is neither 4 nor 6.
    NotIp, [], [];
    /// Shorter than the length that its header claims.
    PktTooSmall, [IpExtInTruncatedPkts], [Ip6InTruncatedPkts];
    /// The IP header is cut off, or contradicts itself: header length, total length.
    IpInHdr, [IpInHdrErrors], [Ip6InHdrErrors];
    /// The IPv4 header checksum is wrong.
    IpCsum, [IpInHdrErrors, IpExtInCsumErrors], [];
    /// An IPv4 option is malformed.
    IpOptions, [IpInHdrErrors], [];
    /// Source routing, which nobody here does (RFC 6274 section 3.13.2.3, RFC 5095).
    SourceRoute, [IpInHdrErrors], [Ip6InHdrErrors];
    /// An IPv6 extension header is malformed or in the wrong place.
    Ipv6ExtHdr, [], [Ip6InHdrErrors];
    /// An IPv6 option says: discard if unknown.
    Ipv6Option, [], [Ip6InHdrErrors];
    /// The source address is none a packet may come from (RFC 1812 section 5.3.7, RFC 4291).
    IpInvalidSource, [], [Ip6InHdrErrors];
    /// The source address is one of our own.
    IpLocalSource, [], [];
    /// A loopback address came in by another interface.
    IpLocalnet, [], [Ip6InHdrErrors];
    /// The destination address is none a packet may go to.
    IpInvalidDest, [IpInAddrErrors], [Ip6InHdrErrors];
    /// The route back to the source leads elsewhere (`rp_filter`, RFC 3704).
    IpRpfilter, [TcpExtIPReversePathFilter], [TcpExtIPReversePathFilter];
    /// No route to the destination.
    IpInNoRoutes, [IpExtInNoRoutes], [Ip6InNoRoutes];
    /// Not for us, and the interface does not forward.
    IpNotForwarding, [IpInAddrErrors], [Ip6InAddrErrors];
    /// A `blackhole` route or rule.
    Blackhole, [], [];
    /// An `unreachable` route or rule.
    Unreachable, [], [Ip6InNoRoutes];
    /// A `prohibit` route or rule.
    Prohibit, [], [Ip6InNoRoutes];
    /// A broadcast or multicast packet that may not be forwarded (RFC 2644, RFC 1812 section 5.2.1).
    NotForwardable, [IpInAddrErrors], [Ip6InAddrErrors];
    /// A multicast group that nobody here has joined.
    MulticastNotJoined, [], [];
    /// TTL or hop limit used up.
    TtlExceeded, [IpInHdrErrors], [Ip6InHdrErrors];
    /// Larger than the next hop's MTU, and not to be fragmented.
    PktTooBig, [IpFragFails], [Ip6InTooBigErrors, Ip6FragFails];
    /// The interface carries no IPv6: its MTU is below 1,280, or `disable_ipv6` says so.
    Ipv6Disabled, [], [Ip6InDiscards];

    // However many fragments of a datagram are dropped, it is one failure, and reassembly counts it.
    /// Fragments of one datagram overlap or contradict each other (RFC 5722).
    FragOverlap, [], [];
    /// A fragment that came before.
    FragDuplicate, [], [];
    /// A fragment that is malformed: length, offset, or a datagram beyond 65,535 bytes.
    FragInvalid, [IpReasmFails], [Ip6InHdrErrors];
    /// The rest of the datagram did not come in time (`ipfrag_time`).
    FragTimeout, [], [];
    /// The memory or count limit of reassembly (`ipfrag_high_thresh`) is reached.
    FragLimit, [], [];

    /// ICMP checksum wrong.
    IcmpCsum, [IcmpInErrors, IcmpInCsumErrors], [Icmp6InErrors, Icmp6InCsumErrors];
    /// An ICMP message too short for its type.
    IcmpInvalid, [IcmpInErrors], [Icmp6InErrors];
    /// An ICMP error whose quote names no socket of ours.
    IcmpNoSocket, [IcmpInErrors], [Icmp6InErrors];
    /// An echo request that a knob says not to answer.
    IcmpEchoIgnored, [], [];
    /// An ICMP message to a broadcast or multicast address, where only requests may go, and those
    /// only if `icmp_echo_ignore_broadcasts` is off.
    IcmpBroadcast, [IcmpInErrors], [];
    /// An ICMP type that nobody has defined.
    IcmpUnknownType, [IcmpInErrors], [];
    /// An ICMP type, or an error about a protocol, that needs no action here.
    IcmpIgnored, [], [];
    /// An ICMP request whose answer may not go back, or has no way back.
    IcmpNoReply, [], [];

    /// No protocol handler.
    IpNoProto, [IpInUnknownProtos], [Ip6InUnknownProtos];
    /// Consumed by a protocol that hosts must hear but that asks nothing of us (reports to
    /// routers).
    ProtocolIgnored, [], [];

    /// IGMP checksum wrong.
    IgmpCsum, [], [];
    /// An IGMP or MLD message that is malformed, or that none on the link can have sent.
    IgmpInvalid, [], [];

    /// UDP length field contradicts the packet.
    UdpLength, [UdpInErrors], [Udp6InErrors];
    /// UDP checksum wrong, or zero over IPv6 (RFC 8200 section 8.1).
    UdpCsum, [UdpInErrors, UdpInCsumErrors], [Udp6InErrors, Udp6InCsumErrors];
    /// No socket takes the datagram.
    UdpNoSocket, [UdpNoPorts], [Udp6NoPorts];
    /// No socket takes the broadcast or multicast datagram.
    UdpIgnoredMulti, [UdpIgnoredMulti], [Udp6IgnoredMulti];
    /// The socket's filter keeps nothing of it.
    SocketFilter, [UdpInErrors], [Udp6InErrors];
    /// The socket's receive buffer is full.
    SocketRcvbuff, [UdpInErrors, UdpRcvbufErrors], [Udp6InErrors, Udp6RcvbufErrors];
    /// All sockets together have used their share of the packet pool.
    ProtoMem, [UdpInErrors, UdpMemErrors], [Udp6InErrors, Udp6MemErrors];
    /// The socket was closed with the datagram in its queue.
    SocketClosed, [], [];

    /// TCP header malformed.
    TcpHdr, [TcpInErrs], [TcpInErrs];
    /// TCP checksum wrong.
    TcpCsum, [TcpInErrs, TcpInCsumErrors], [TcpInErrs, TcpInCsumErrors];
    /// No connection and no listener takes the segment.
    TcpNoSocket, [], [];
    /// A segment to a listener whose flags begin no connection.
    TcpListenFlags, [], [];
    /// The listener has no room for another connection.
    TcpListenOverflow, [], [];

    /// The interface is down or gone.
    DevReady, [IpOutDiscards], [Ip6OutDiscards];
    /// The interface's transmit queue is full.
    TxQueueFull, [IpOutDiscards], [Ip6OutDiscards];
    /// The backlog of the core that the packet was steered to is full (`netdev_max_backlog`).
    CpuBacklog, [], [];
    /// The packet pool is empty.
    NoBuffer, [IpInDiscards], [Ip6InDiscards];
    /// A frame that the device could not have meant: segmentation or checksum offsets outside it.
    DevHdr, [], [];
}
