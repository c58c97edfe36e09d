//! The tables.

use super::port_range;

/// What a knob is.
#[derive(Debug)]
pub struct Definition {
    /// Linux's name; per-interface knobs have `*` in the interface's place.
    pub name: &'static str,
    /// Value of a new stack.
    pub default: i64,
    /// Smallest value accepted.
    pub min: i64,
    /// Largest value accepted.
    pub max: i64,
    /// What it does, in one line, with units.
    pub doc: &'static str,
}

macro_rules! knobs {
    ($(#[doc = $what:literal])+ $enum:ident, $table:ident;
     $($knob:ident = $name:literal, $default:expr, $min:expr => $max:expr, $doc:literal;)+) => {
        $(#[doc = $what])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enum {
            $(#[doc = concat!("`", $name, "`: ", $doc)] $knob,)+
        }

        pub(super) static $table: &[(&$enum, Definition)] = &[
            $((&$enum::$knob, Definition {
                name: $name, default: $default, min: $min, max: $max, doc: $doc,
            }),)+
        ];
    };
}

const U8: i64 = u8::MAX as i64;
const INT: i64 = i32::MAX as i64;
/// What Linux can count in an `int` of its ticks, 250 a second.
const SECONDS: i64 = INT / 250;

knobs! {
    /// Knobs of the whole stack.
    Knob, KNOBS;
    IpEarlyDemux = "net.ipv4.ip_early_demux", 1, 0 => U8,
        "look for an established socket before routing, for both families; 0 wins over the two below";
    TcpEarlyDemux = "net.ipv4.tcp_early_demux", 1, 0 => U8, "early demux for TCP, both families";
    UdpEarlyDemux = "net.ipv4.udp_early_demux", 1, 0 => U8, "early demux for UDP, both families";
    IpDefaultTtl = "net.ipv4.ip_default_ttl", 64, 1 => U8, "TTL of packets sent";
    IpNoPmtuDisc = "net.ipv4.ip_no_pmtu_disc", 0, 0 => 3,
        "0: sockets discover path MTUs unless they say otherwise; 1: they don't, and a router that wants less gets route.min_pmtu; 2, 3: nor is it heard what routers want";
    MinPmtu = "net.ipv4.route.min_pmtu", 552, 68 => INT,
        "bytes: if a router wants less on a path, packets go in this size and may be fragmented on the way";
    MtuExpires = "net.ipv4.route.mtu_expires", 600, 0 => INT,
        "seconds that an IPv4 path's MTU is remembered";
    Ip6MtuExpires = "net.ipv6.route.mtu_expires", 600, 0 => INT,
        "seconds that an IPv6 path's MTU is remembered";
    IpNonlocalBind = "net.ipv4.ip_nonlocal_bind", 0, 0 => 1,
        "let sockets bind to addresses that are not ours";
    IcmpEchoIgnoreAll = "net.ipv4.icmp_echo_ignore_all", 0, 0 => 1, "answer no ICMP echo";
    IcmpEchoIgnoreBroadcasts = "net.ipv4.icmp_echo_ignore_broadcasts", 1, 0 => 1,
        "answer no ICMP echo sent to a broadcast or multicast address";
    IcmpErrorsUseInboundIfaddr = "net.ipv4.icmp_errors_use_inbound_ifaddr", 0, 0 => 1,
        "send ICMP errors from the address of the interface that the packet came in by";
    IcmpRatelimit = "net.ipv4.icmp_ratelimit", 1_000, 0 => INT,
        "milliseconds between ICMP messages of the types in icmp_ratemask to one destination; 0: no limit";
    IcmpRatemask = "net.ipv4.icmp_ratemask", 6_168, 0 => INT,
        "bit n limits ICMP type n; the default limits unreachable, source quench, time exceeded, parameter problem";
    IcmpMsgsPerSec = "net.ipv4.icmp_msgs_per_sec", 10_000, 0 => INT,
        "limited ICMP messages a second to all destinations together, both families; 0: none";
    IcmpMsgsBurst = "net.ipv4.icmp_msgs_burst", 10_000, 0 => INT,
        "how many of them may leave at once";
    IgmpLinkLocalMcastReports = "net.ipv4.igmp_link_local_mcast_reports", 1, 0 => 1,
        "report groups of 224.0.0.0/24, too";
    IgmpMaxMemberships = "net.ipv4.igmp_max_memberships", 20, 0 => INT,
        "IPv4 groups that a socket may join";
    IgmpMaxMsf = "net.ipv4.igmp_max_msf", 10, 0 => INT,
        "sources that a socket may name for an IPv4 group";
    IgmpQrv = "net.ipv4.igmp_qrv", 2, 1 => U8,
        "how often a change of groups is reported, unless a querier says otherwise";
    IpfragTime = "net.ipv4.ipfrag_time", 30, 0 => INT, "seconds to wait for the rest of a datagram";
    IpfragHighThresh = "net.ipv4.ipfrag_high_thresh", 4_194_304, 0 => i64::MAX,
        "bytes of memory for IPv4 fragments; never more than a sixteenth of the packet pool";
    IpLocalPortRange = "net.ipv4.ip_local_port_range", port_range(32_768, 60_999),
        port_range(1, 1) => port_range(65_535, 65_535), "first and last ephemeral port, both families";
    Ip6fragTime = "net.ipv6.ip6frag_time", 60, 0 => INT, "seconds to wait for the rest of a packet";
    Ip6fragHighThresh = "net.ipv6.ip6frag_high_thresh", 4_194_304, 0 => i64::MAX,
        "bytes of memory for IPv6 fragments; never more than a sixteenth of the packet pool";
    Icmp6Ratelimit = "net.ipv6.icmp.ratelimit", 1_000, 0 => INT,
        "milliseconds between ICMPv6 errors to one destination; 0: no limit";
    Icmp6EchoIgnoreAll = "net.ipv6.icmp.echo_ignore_all", 0, 0 => 1, "answer no ICMPv6 echo";
    Icmp6EchoIgnoreMulticast = "net.ipv6.icmp.echo_ignore_multicast", 0, 0 => 1,
        "answer no ICMPv6 echo sent to a group";
    Bindv6only = "net.ipv6.bindv6only", 0, 0 => 1,
        "IPv6 sockets take no IPv4 traffic unless they ask for it";
    MldMaxMsf = "net.ipv6.mld_max_msf", 64, 0 => INT,
        "sources that a socket may name for an IPv6 group";
    MldQrv = "net.ipv6.mld_qrv", 2, 1 => U8,
        "how often a change of IPv6 groups is reported, unless a querier says otherwise";
    MaxHbhOptsNumber = "net.ipv6.max_hbh_opts_number", 8, 0 => INT,
        "most options in a hop-by-hop header, padding aside (RFC 8504 section 5.3)";
    MaxDstOptsNumber = "net.ipv6.max_dst_opts_number", 8, 0 => INT,
        "most options in a destination-options header, padding aside";
    DevWeight = "net.core.dev_weight", 64, 1 => 64, "packets that go through the stages together";
    NetdevBudget = "net.core.netdev_budget", 300, 1 => INT,
        "packets that a worker takes from all its queues before it looks at anything else";
    NetdevMaxBacklog = "net.core.netdev_max_backlog", 1_000, 0 => INT,
        "packets that other cores may leave to a worker before it has come to them";
    RpsSockFlowEntries = "net.core.rps_sock_flow_entries", 0, 0 => 1 << 29,
        "flows of which it is known where they are read, rounded up to a power of two; 0: of none";
    BusyRead = "net.core.busy_read", 0, 0 => INT,
        "microseconds that a read looks for datagrams itself before it sleeps, unless its socket says otherwise (SO_BUSY_POLL)";
    BusyPoll = "net.core.busy_poll", 0, 0 => INT,
        "microseconds that a poller looks for datagrams itself before it sleeps";
    RmemDefault = "net.core.rmem_default", 212_992, 2_304 => INT,
        "bytes a socket's receive queue may charge";
    RmemMax = "net.core.rmem_max", 212_992, 2_304 => INT, "largest SO_RCVBUF a socket may ask for";
    UdpRmemMin = "net.ipv4.udp_rmem_min", 4_096, 1 => INT,
        "bytes that a socket's queue may hold while all together hold more than udp_mem's first";
    Somaxconn = "net.core.somaxconn", 4_096, 0 => INT,
        "most connections that wait at a listener to be accepted";
    WmemMax = "net.core.wmem_max", 212_992, 4_608 => INT, "largest SO_SNDBUF a socket may ask for";
    TcpSynRetries = "net.ipv4.tcp_syn_retries", 6, 1 => 127,
        "SYNs sent again before a connection attempt is given up";
    TcpSynackRetries = "net.ipv4.tcp_synack_retries", 5, 0 => U8,
        "answers to a SYN sent again before a half-open connection is given up";
    TcpRetries1 = "net.ipv4.tcp_retries1", 3, 0 => U8,
        "retransmissions after which the path is suspected, and smaller segments are tried (tcp_mtu_probing 1)";
    TcpRetries2 = "net.ipv4.tcp_retries2", 15, 0 => U8,
        "retransmissions before a connection is given up, with the doubling pauses that they make";
    TcpOrphanRetries = "net.ipv4.tcp_orphan_retries", 0, 0 => U8,
        "the same for one whose socket is closed; 0: 8";
    TcpMaxOrphans = "net.ipv4.tcp_max_orphans", 65_536, 0 => INT,
        "connections whose sockets are closed; more are reset";
    TcpFinTimeout = "net.ipv4.tcp_fin_timeout", 60, 0 => SECONDS,
        "seconds that a closed socket's connection waits for the peer's FIN";
    TcpMaxTwBuckets = "net.ipv4.tcp_max_tw_buckets", 262_144, 0 => INT,
        "connections in TIME-WAIT; more are forgotten at once";
    TcpTwReuse = "net.ipv4.tcp_tw_reuse", 2, 0 => 2,
        "connect from ports of connections in TIME-WAIT, where timestamps make that safe; 2: on the loopback only";
    TcpRfc1337 = "net.ipv4.tcp_rfc1337", 0, 0 => U8, "resets don't end TIME-WAIT";
    TcpKeepaliveTime = "net.ipv4.tcp_keepalive_time", 7_200, 1 => SECONDS,
        "seconds that a connection is idle before keepalives are sent";
    TcpKeepaliveIntvl = "net.ipv4.tcp_keepalive_intvl", 75, 1 => SECONDS,
        "seconds between keepalives";
    TcpKeepaliveProbes = "net.ipv4.tcp_keepalive_probes", 9, 0 => U8,
        "keepalives without an answer before a connection is given up";
    TcpWindowScaling = "net.ipv4.tcp_window_scaling", 1, 0 => U8, "windows beyond 64 KiB (RFC 7323)";
    TcpTimestamps = "net.ipv4.tcp_timestamps", 1, 0 => U8,
        "timestamps (RFC 7323); 1: each connection's from a start of its own; 2: all from one";
    TcpSack = "net.ipv4.tcp_sack", 1, 0 => U8, "selective acknowledgements (RFC 2018)";
    TcpDsack = "net.ipv4.tcp_dsack", 1, 0 => U8, "tell of bytes that came twice (RFC 2883)";
    TcpEcn = "net.ipv4.tcp_ecn", 2, 0 => 2,
        "congestion notification (RFC 3168); 1: ask for it and agree to it; 2: agree only";
    TcpSyncookies = "net.ipv4.tcp_syncookies", 1, 0 => U8,
        "answer SYNs that there is no room for with cookies (RFC 4987); 2: all SYNs";
    TcpMaxSynBacklog = "net.ipv4.tcp_max_syn_backlog", 4_096, 0 => INT,
        "half-open connections of a listener, where there are no cookies";
    TcpAbortOnOverflow = "net.ipv4.tcp_abort_on_overflow", 0, 0 => U8,
        "reset connections that a listener has no room for, instead of waiting for room";
    TcpChallengeAckLimit = "net.ipv4.tcp_challenge_ack_limit", INT, 0 => INT,
        "challenges a second (RFC 5961 section 7), all connections together";
    TcpInvalidRatelimit = "net.ipv4.tcp_invalid_ratelimit", 500, 0 => INT,
        "milliseconds between answers of a connection to segments that don't belong";
    TcpSlowStartAfterIdle = "net.ipv4.tcp_slow_start_after_idle", 1, 0 => U8,
        "start slowly again after a pause (RFC 5681 section 4.1)";
    TcpModerateRcvbuf = "net.ipv4.tcp_moderate_rcvbuf", 1, 0 => U8,
        "receive buffers grow with use, up to tcp_rmem's third";
    TcpReordering = "net.ipv4.tcp_reordering", 3, 1 => 300,
        "packets by which others may overtake one before it is thought lost, at first";
    TcpMaxReordering = "net.ipv4.tcp_max_reordering", 300, 1 => INT,
        "the same at most, as learnt from what came late";
    TcpRecovery = "net.ipv4.tcp_recovery", 1, 0 => U8,
        "find losses by time (RFC 8985); 0: by counting alone";
    TcpEarlyRetrans = "net.ipv4.tcp_early_retrans", 3, 0 => 4,
        "probe for a loss at the end of a flight (RFC 8985 section 7); 0: never";
    TcpFrto = "net.ipv4.tcp_frto", 2, 0 => U8, "find timeouts that were none (RFC 5682)";
    TcpRtoMinUs = "net.ipv4.tcp_rto_min_us", 200_000, 1 => INT,
        "microseconds that a retransmission waits at least";
    TcpRtoMaxMs = "net.ipv4.tcp_rto_max_ms", 120_000, 1_000 => 120_000,
        "milliseconds that a retransmission waits at most";
    TcpMinRttWlen = "net.ipv4.tcp_min_rtt_wlen", 300, 0 => 86_400,
        "seconds that the shortest round trip is remembered";
    TcpThinLinearTimeouts = "net.ipv4.tcp_thin_linear_timeouts", 0, 0 => U8,
        "timeouts of connections with little under way don't double at first";
    TcpMtuProbeFloor = "net.ipv4.tcp_mtu_probe_floor", 48, 48 => 65_535,
        "payload of segments below which a search for the path's MTU does not go";
    TcpMtuProbing = "net.ipv4.tcp_mtu_probing", 0, 0 => U8,
        "find the path's MTU by trying (RFC 4821); 1: when a path swallows large segments; 2: always";
    TcpBaseMss = "net.ipv4.tcp_base_mss", 1_024, 1 => INT, "bytes of segments that such a search begins with";
    TcpMinSndMss = "net.ipv4.tcp_min_snd_mss", 48, 48 => 65_535,
        "payload of the smallest segment that a peer or a router can make us send";
    TcpProbeInterval = "net.ipv4.tcp_probe_interval", 600, 0 => 17_179_869,
        "seconds until larger segments are tried again";
    TcpProbeThreshold = "net.ipv4.tcp_probe_threshold", 8, 0 => INT,
        "bytes: a search for the path's MTU ends when no more than this is left to find out";
    TcpPacingSsRatio = "net.ipv4.tcp_pacing_ss_ratio", 200, 0 => 1_000,
        "percent of a window a round trip at which paced connections send in slow start";
    TcpPacingCaRatio = "net.ipv4.tcp_pacing_ca_ratio", 120, 0 => 1_000, "the same afterwards";
    TcpStdurg = "net.ipv4.tcp_stdurg", 0, 0 => U8,
        "the urgent pointer names the last urgent byte (RFC 1122), not the one behind it";
    TcpCongestionControl = "net.ipv4.tcp_congestion_control", 1, 0 => 2,
        "congestion control of new connections: reno, cubic or bbr";
    PrefetchRmem = "net.forebay.prefetch_rmem", 1, 0 => 1,
        "fetch the line with a UDP socket's receive memory as soon as early demux has found it, both families";
}

knobs! {
    /// Knobs that each interface has, and `all` and `default` beside.
    ConfKnob, CONF_KNOBS;
    V4Forwarding = "net.ipv4.conf.*.forwarding", 0, 0 => INT,
        "forward IPv4 packets that come in here; net.ipv4.ip_forward sets all at once";
    RpFilter = "net.ipv4.conf.*.rp_filter", 0, 0 => 2,
        "check that the route back to an IPv4 source leads to the interface it came by: 1 strict, 2 loose; the larger of `all` and the interface's counts";
    AcceptLocal = "net.ipv4.conf.*.accept_local", 0, 0 => 1,
        "accept packets from our own addresses; `all` or the interface's";
    SendRedirects = "net.ipv4.conf.*.send_redirects", 1, 0 => 1,
        "tell a neighbour of a better first hop; `all` or the interface's";
    BcForwarding = "net.ipv4.conf.*.bc_forwarding", 0, 0 => 1,
        "forward directed broadcasts (RFC 2644); `all` and the interface's";
    RouteLocalnet = "net.ipv4.conf.*.route_localnet", 0, 0 => 1,
        "do not treat 127/8 as martian; `all` or the interface's";
    ForceIgmpVersion = "net.ipv4.conf.*.force_igmp_version", 0, 0 => 3,
        "IGMP version to speak, whatever queriers speak; 0: theirs, or 3. `all` goes before the interface's";
    Igmpv2UnsolicitedReportInterval = "net.ipv4.conf.*.igmpv2_unsolicited_report_interval", 10_000, 0 => INT,
        "milliseconds within which a joined group is reported again, in IGMPv1 and v2";
    Igmpv3UnsolicitedReportInterval = "net.ipv4.conf.*.igmpv3_unsolicited_report_interval", 1_000, 0 => INT,
        "milliseconds within which a change of groups is reported again, in IGMPv3";
    ForceMldVersion = "net.ipv6.conf.*.force_mld_version", 0, 0 => 2,
        "MLD version to speak, whatever queriers speak; 0: theirs, or 2. `all` goes before the interface's";
    Mldv1UnsolicitedReportInterval = "net.ipv6.conf.*.mldv1_unsolicited_report_interval", 10_000, 0 => INT,
        "milliseconds within which a joined group is reported again, in MLDv1";
    Mldv2UnsolicitedReportInterval = "net.ipv6.conf.*.mldv2_unsolicited_report_interval", 1_000, 0 => INT,
        "milliseconds within which a change of groups is reported again, in MLDv2";
    V6Forwarding = "net.ipv6.conf.*.forwarding", 0, 0 => INT,
        "forward IPv6 packets; as in Linux it is `all` that decides";
    DisableIpv6 = "net.ipv6.conf.*.disable_ipv6", 0, 0 => 1, "drop IPv6 packets";
    HopLimit = "net.ipv6.conf.*.hop_limit", 64, 1 => U8, "hop limit of IPv6 packets sent";
}
