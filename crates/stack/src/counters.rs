//! SNMP counters under Linux's names (`/proc/net/snmp`, `snmp6`, `netstat`), and drop counters.
//!
//! A core counts in a shard of its own, with plain stores; whoever reads adds the shards up.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_sync::cache_line::CacheLine;

use crate::drop::DropReason;

macro_rules! counters {
    ($($counter:ident)+) => {
        /// A counter; the variant's name is the name that nstat(8) prints.
        #[expect(missing_docs, reason = "RFC 4293, RFC 4113, RFC 4022 and nstat(8) define them")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Counter {
            $($counter,)+
        }

        impl Counter {
            /// Every counter, in the order of its value.
            pub const ALL: &'static [Self] = &[$(Self::$counter,)+];

            /// The name, as nstat(8) prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$counter => stringify!($counter),)+ }
            }
        }
    };
}

// What this stack never sends, such as echo requests, has its counter for who reads it by name.
counters! {
    IpInReceives IpInHdrErrors IpInAddrErrors IpForwDatagrams IpInUnknownProtos IpInDiscards
    IpInDelivers IpOutRequests IpOutDiscards IpOutNoRoutes IpReasmTimeout IpReasmReqds IpReasmOKs
    IpReasmFails IpFragOKs IpFragFails IpFragCreates
    IpExtInNoRoutes IpExtInTruncatedPkts IpExtInMcastPkts IpExtOutMcastPkts IpExtInBcastPkts
    IpExtOutBcastPkts IpExtInOctets IpExtOutOctets IpExtInMcastOctets IpExtOutMcastOctets
    IpExtInBcastOctets IpExtOutBcastOctets IpExtInCsumErrors IpExtReasmOverlaps
    Ip6InReceives Ip6InHdrErrors Ip6InTooBigErrors Ip6InNoRoutes Ip6InAddrErrors
    Ip6InUnknownProtos Ip6InTruncatedPkts Ip6InDiscards Ip6InDelivers Ip6OutForwDatagrams
    Ip6OutRequests Ip6OutDiscards Ip6OutNoRoutes Ip6ReasmTimeout Ip6ReasmReqds Ip6ReasmOKs
    Ip6ReasmFails Ip6FragOKs Ip6FragFails Ip6FragCreates Ip6InMcastPkts Ip6OutMcastPkts
    Ip6InOctets Ip6OutOctets Ip6InMcastOctets Ip6OutMcastOctets Ip6InBcastOctets
    Ip6OutBcastOctets
    IcmpInMsgs IcmpInErrors IcmpInCsumErrors IcmpInDestUnreachs IcmpInTimeExcds IcmpInParmProbs
    IcmpInSrcQuenchs IcmpInRedirects IcmpInEchos IcmpInEchoReps IcmpInTimestamps
    IcmpInTimestampReps IcmpInAddrMasks IcmpInAddrMaskReps IcmpOutMsgs IcmpOutErrors
    IcmpOutRateLimitGlobal IcmpOutRateLimitHost IcmpOutDestUnreachs IcmpOutTimeExcds
    IcmpOutParmProbs IcmpOutSrcQuenchs IcmpOutRedirects IcmpOutEchos IcmpOutEchoReps
    IcmpOutTimestamps IcmpOutTimestampReps IcmpOutAddrMasks IcmpOutAddrMaskReps
    Icmp6InMsgs Icmp6InErrors Icmp6InCsumErrors Icmp6OutMsgs Icmp6OutErrors
    Icmp6OutRateLimitHost Icmp6InDestUnreachs Icmp6InPktTooBigs Icmp6InTimeExcds
    Icmp6InParmProblems Icmp6InEchos Icmp6InEchoReplies Icmp6InGroupMembQueries
    Icmp6InGroupMembResponses Icmp6InGroupMembReductions Icmp6InRouterSolicits
    Icmp6InRouterAdvertisements Icmp6InNeighborSolicits Icmp6InNeighborAdvertisements
    Icmp6InRedirects Icmp6InMLDv2Reports Icmp6OutDestUnreachs Icmp6OutPktTooBigs
    Icmp6OutTimeExcds Icmp6OutParmProblems Icmp6OutEchos Icmp6OutEchoReplies
    Icmp6OutGroupMembQueries Icmp6OutGroupMembResponses Icmp6OutGroupMembReductions
    Icmp6OutRouterSolicits Icmp6OutRouterAdvertisements Icmp6OutNeighborSolicits
    Icmp6OutNeighborAdvertisements Icmp6OutRedirects Icmp6OutMLDv2Reports
    UdpInDatagrams UdpNoPorts UdpInErrors UdpOutDatagrams UdpRcvbufErrors UdpSndbufErrors
    UdpInCsumErrors UdpMemErrors UdpIgnoredMulti
    Udp6InDatagrams Udp6NoPorts Udp6InErrors Udp6OutDatagrams Udp6RcvbufErrors Udp6SndbufErrors
    Udp6InCsumErrors Udp6MemErrors Udp6IgnoredMulti
    TcpActiveOpens TcpPassiveOpens TcpAttemptFails TcpEstabResets
    TcpInSegs TcpOutSegs TcpRetransSegs TcpInErrs TcpOutRsts TcpInCsumErrors
    TcpExtSyncookiesSent TcpExtSyncookiesRecv TcpExtSyncookiesFailed TcpExtEmbryonicRsts
    TcpExtPruneCalled TcpExtRcvPruned TcpExtOfoPruned TcpExtOutOfWindowIcmps
    TcpExtIPReversePathFilter
    TcpExtTW TcpExtTWRecycled TcpExtTWKilled TcpExtPAWSActive TcpExtPAWSEstab
    TcpExtDelayedACKs TcpExtDelayedACKLost TcpExtListenOverflows TcpExtListenDrops
    TcpExtTCPHPHits TcpExtTCPPureAcks TcpExtTCPRenoRecovery TcpExtTCPSackRecovery
    TcpExtTCPSACKReneging TcpExtTCPSACKReorder TcpExtTCPRenoReorder TcpExtTCPTSReorder
    TcpExtTCPFullUndo TcpExtTCPPartialUndo TcpExtTCPDSACKUndo TcpExtTCPLossUndo
    TcpExtTCPLostRetransmit TcpExtTCPRenoFailures TcpExtTCPSackFailures TcpExtTCPLossFailures
    TcpExtTCPFastRetrans TcpExtTCPSlowStartRetrans TcpExtTCPTimeouts TcpExtTCPLossProbes
    TcpExtTCPLossProbeRecovery TcpExtTCPRenoRecoveryFail TcpExtTCPSackRecoveryFail
    TcpExtTCPRcvCollapsed TcpExtTCPBacklogCoalesce TcpExtTCPDSACKOldSent TcpExtTCPDSACKOfoSent
    TcpExtTCPDSACKRecv TcpExtTCPDSACKOfoRecv TcpExtTCPAbortOnData TcpExtTCPAbortOnClose
    TcpExtTCPAbortOnMemory TcpExtTCPAbortOnTimeout TcpExtTCPAbortOnLinger TcpExtTCPAbortFailed
    TcpExtTCPMemoryPressures TcpExtTCPSACKDiscard TcpExtTCPDSACKIgnoredOld
    TcpExtTCPDSACKIgnoredNoUndo TcpExtTCPDSACKIgnoredDubious TcpExtTCPSpuriousRTOs
    TcpExtTCPTimeWaitOverflow
    TcpExtTCPReqQFullDoCookies TcpExtTCPReqQFullDrop TcpExtTCPRetransFail TcpExtTCPRcvCoalesce
    TcpExtTCPOFOQueue TcpExtTCPOFODrop TcpExtTCPOFOMerge TcpExtTCPChallengeACK
    TcpExtTCPSYNChallenge TcpExtTCPFromZeroWindowAdv TcpExtTCPToZeroWindowAdv
    TcpExtTCPWantZeroWindowAdv TcpExtTCPSynRetrans TcpExtTCPOrigDataSent
    TcpExtTCPHystartTrainDetect TcpExtTCPHystartTrainCwnd TcpExtTCPHystartDelayDetect
    TcpExtTCPHystartDelayCwnd TcpExtTCPACKSkippedSynRecv TcpExtTCPACKSkippedPAWS
    TcpExtTCPACKSkippedSeq TcpExtTCPACKSkippedFinWait2 TcpExtTCPACKSkippedTimeWait
    TcpExtTCPACKSkippedChallenge TcpExtTCPWinProbe TcpExtTCPKeepAlive TcpExtTCPMTUPFail
    TcpExtTCPMTUPSuccess TcpExtTCPDelivered TcpExtTCPDeliveredCE TcpExtTCPAckCompressed
    TcpExtTCPZeroWindowDrop TcpExtTCPRcvQDrop TcpExtTCPDSACKRecvSegs
    ForebayEarlyDemuxHits ForebayEarlyDemuxStale
    ForebayGroJoined
}

const COUNTERS: usize = Counter::ALL.len();
const REASONS: usize = DropReason::ALL.len();

/// What one core has counted. Only the owning core writes.
#[derive(Debug)]
pub struct Shard(CacheLine<Cells>);

#[derive(Debug)]
struct Cells {
    counters: [AtomicU64; COUNTERS],
    drops: [AtomicU64; REASONS],
}

impl Shard {
    fn new() -> Self {
        Self(CacheLine(Cells {
            counters: [const { AtomicU64::new(0) }; COUNTERS],
            drops: [const { AtomicU64::new(0) }; REASONS],
        }))
    }

    /// Adds to a counter. To be called by the shard's owner alone: load and store, no locked add.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        bump(&self.0.counters[counter as usize], n);
    }

    /// Counts a drop.
    pub(crate) fn add_drop(&self, reason: DropReason) {
        bump(&self.0.drops[reason as usize], 1);
    }

    /// Drops counted so far.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.0.drops[reason as usize].load(Relaxed)
    }
}

#[inline]
fn bump(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

/// The shards of all cores.
#[derive(Debug, Default)]
pub struct Counters {
    shards: Mutex<Vec<Owned>>,
}

#[derive(Debug)]
struct Owned {
    /// Number of the core, if packets are steered to it.
    cpu: Option<u16>,
    shard: Arc<Shard>,
}

impl Counters {
    /// A new shard for a core, kept for as long as the stack lives.
    pub(crate) fn shard(&self, cpu: Option<u16>) -> Arc<Shard> {
        let shard = Arc::new(Shard::new());
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.push(Owned {
            cpu,
            shard: Arc::clone(&shard),
        });
        shard
    }

    /// Adds the shards up. Counters are read one after the other while cores go on counting.
    pub fn snapshot(&self) -> Snapshot {
        self.sum(|_| true)
    }

    /// The same, of what the core with this number has counted.
    pub fn snapshot_of(&self, cpu: u16) -> Snapshot {
        self.sum(|owned| owned.cpu == Some(cpu))
    }

    fn sum(&self, counts: impl Fn(&Owned) -> bool) -> Snapshot {
        let mut snapshot = Snapshot {
            counters: [0; COUNTERS],
            drops: [0; REASONS],
        };
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        for Owned { shard, .. } in shards.iter().filter(|owned| counts(owned)) {
            for (sum, cell) in snapshot.counters.iter_mut().zip(&shard.0.counters) {
                *sum = sum.wrapping_add(cell.load(Relaxed));
            }
            for (sum, cell) in snapshot.drops.iter_mut().zip(&shard.0.drops) {
                *sum = sum.wrapping_add(cell.load(Relaxed));
            }
        }
        snapshot
    }
}

/// The sums of all cores at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    counters: [u64; COUNTERS],
    drops: [u64; REASONS],
}

impl Snapshot {
    /// A counter's value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets dropped in all.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Every counter with its name.
    pub fn counters(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL
            .iter()
            .map(|counter| (*counter, self.get(*counter)))
    }

    /// Every drop reason with its count.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.dropped(*reason)))
    }
}

/// The IP counters that both families have, so that shared code can name them.
#[expect(missing_docs, reason = "the names are those of RFC 4293")]
#[derive(Debug)]
pub struct IpMib {
    pub in_receives: Counter,
    pub in_octets: Counter,
    pub in_delivers: Counter,
    pub in_mcast_pkts: Counter,
    pub in_mcast_octets: Counter,
    pub forwarded: Counter,
    pub out_requests: Counter,
    pub out_octets: Counter,
    pub out_mcast_pkts: Counter,
    pub out_mcast_octets: Counter,
    pub reasm_timeout: Counter,
    pub reasm_reqds: Counter,
    pub reasm_oks: Counter,
    pub reasm_fails: Counter,
    pub frag_oks: Counter,
    pub frag_fails: Counter,
    pub frag_creates: Counter,
    pub udp_in_datagrams: Counter,
    pub udp_out_datagrams: Counter,
    pub udp_sndbuf_errors: Counter,
}

/// IPv4's.
pub static MIB_V4: IpMib = IpMib {
    in_receives: Counter::IpInReceives,
    in_octets: Counter::IpExtInOctets,
    in_delivers: Counter::IpInDelivers,
    in_mcast_pkts: Counter::IpExtInMcastPkts,
    in_mcast_octets: Counter::IpExtInMcastOctets,
    forwarded: Counter::IpForwDatagrams,
    out_requests: Counter::IpOutRequests,
    out_octets: Counter::IpExtOutOctets,
    out_mcast_pkts: Counter::IpExtOutMcastPkts,
    out_mcast_octets: Counter::IpExtOutMcastOctets,
    reasm_timeout: Counter::IpReasmTimeout,
    reasm_reqds: Counter::IpReasmReqds,
    reasm_oks: Counter::IpReasmOKs,
    reasm_fails: Counter::IpReasmFails,
    frag_oks: Counter::IpFragOKs,
    frag_fails: Counter::IpFragFails,
    frag_creates: Counter::IpFragCreates,
    udp_in_datagrams: Counter::UdpInDatagrams,
    udp_out_datagrams: Counter::UdpOutDatagrams,
    udp_sndbuf_errors: Counter::UdpSndbufErrors,
};

/// IPv6's.
pub static MIB_V6: IpMib = IpMib {
    in_receives: Counter::Ip6InReceives,
    in_octets: Counter::Ip6InOctets,
    in_delivers: Counter::Ip6InDelivers,
    in_mcast_pkts: Counter::Ip6InMcastPkts,
    in_mcast_octets: Counter::Ip6InMcastOctets,
    forwarded: Counter::Ip6OutForwDatagrams,
    out_requests: Counter::Ip6OutRequests,
    out_octets: Counter::Ip6OutOctets,
    out_mcast_pkts: Counter::Ip6OutMcastPkts,
    out_mcast_octets: Counter::Ip6OutMcastOctets,
    reasm_timeout: Counter::Ip6ReasmTimeout,
    reasm_reqds: Counter::Ip6ReasmReqds,
    reasm_oks: Counter::Ip6ReasmOKs,
    reasm_fails: Counter::Ip6ReasmFails,
    frag_oks: Counter::Ip6FragOKs,
    frag_fails: Counter::Ip6FragFails,
    frag_creates: Counter::Ip6FragCreates,
    udp_in_datagrams: Counter::Udp6InDatagrams,
    udp_out_datagrams: Counter::Udp6OutDatagrams,
    udp_sndbuf_errors: Counter::Udp6SndbufErrors,
};
