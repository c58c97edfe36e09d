//! The ICMP counters of both families (RFC 4293's, under Linux's names).

use crate::core::Context;
use crate::counters::Counter;
use crate::family::Family;
use crate::packet::IpVersion;
use crate::wire::icmp::{v4, v6};

/// A message came in, whatever comes of it.
pub(super) fn received<F: Family>(cx: &Context<'_>) {
    cx.core.count(match F::VERSION {
        IpVersion::V4 => Counter::IcmpInMsgs,
        IpVersion::V6 => Counter::Icmp6InMsgs,
    });
}

/// Its checksum is right, so its type means something.
pub(super) fn received_type<F: Family>(cx: &Context<'_>, kind: u8) {
    let counter = match F::VERSION {
        IpVersion::V4 => in_v4(kind),
        IpVersion::V6 => in_v6(kind),
    };
    if let Some(counter) = counter {
        cx.core.count(counter);
    }
}

/// A message left.
pub(super) fn sent<F: Family>(cx: &Context<'_>, kind: u8) {
    let (messages, counter) = match F::VERSION {
        IpVersion::V4 => (Counter::IcmpOutMsgs, out_v4(kind)),
        IpVersion::V6 => (Counter::Icmp6OutMsgs, out_v6(kind)),
    };
    cx.core.count(messages);
    if let Some(counter) = counter {
        cx.core.count(counter);
    }
}

/// A message could not leave for a reason of ICMP's own: no buffer, for one.
pub(super) fn out_error<F: Family>(cx: &Context<'_>) {
    cx.core.count(match F::VERSION {
        IpVersion::V4 => Counter::IcmpOutErrors,
        IpVersion::V6 => Counter::Icmp6OutErrors,
    });
}

fn in_v4(kind: u8) -> Option<Counter> {
    Some(match kind {
        v4::ECHO_REPLY => Counter::IcmpInEchoReps,
        v4::DEST_UNREACH => Counter::IcmpInDestUnreachs,
        v4::SOURCE_QUENCH => Counter::IcmpInSrcQuenchs,
        v4::REDIRECT => Counter::IcmpInRedirects,
        v4::ECHO => Counter::IcmpInEchos,
        v4::TIME_EXCEEDED => Counter::IcmpInTimeExcds,
        v4::PARAMETER_PROBLEM => Counter::IcmpInParmProbs,
        v4::TIMESTAMP => Counter::IcmpInTimestamps,
        v4::TIMESTAMP_REPLY => Counter::IcmpInTimestampReps,
        v4::ADDRESS_MASK => Counter::IcmpInAddrMasks,
        v4::ADDRESS_MASK_REPLY => Counter::IcmpInAddrMaskReps,
        _ => return None,
    })
}

fn in_v6(kind: u8) -> Option<Counter> {
    Some(match kind {
        v6::DEST_UNREACH => Counter::Icmp6InDestUnreachs,
        v6::PACKET_TOO_BIG => Counter::Icmp6InPktTooBigs,
        v6::TIME_EXCEEDED => Counter::Icmp6InTimeExcds,
        v6::PARAMETER_PROBLEM => Counter::Icmp6InParmProblems,
        v6::ECHO => Counter::Icmp6InEchos,
        v6::ECHO_REPLY => Counter::Icmp6InEchoReplies,
        v6::MLD_QUERY => Counter::Icmp6InGroupMembQueries,
        v6::MLD_REPORT => Counter::Icmp6InGroupMembResponses,
        v6::MLD_DONE => Counter::Icmp6InGroupMembReductions,
        v6::ROUTER_SOLICITATION => Counter::Icmp6InRouterSolicits,
        v6::ROUTER_ADVERTISEMENT => Counter::Icmp6InRouterAdvertisements,
        v6::NEIGHBOUR_SOLICITATION => Counter::Icmp6InNeighborSolicits,
        v6::NEIGHBOUR_ADVERTISEMENT => Counter::Icmp6InNeighborAdvertisements,
        v6::REDIRECT => Counter::Icmp6InRedirects,
        v6::MLD2_REPORT => Counter::Icmp6InMLDv2Reports,
        _ => return None,
    })
}

fn out_v4(kind: u8) -> Option<Counter> {
    Some(match kind {
        v4::ECHO_REPLY => Counter::IcmpOutEchoReps,
        v4::DEST_UNREACH => Counter::IcmpOutDestUnreachs,
        v4::REDIRECT => Counter::IcmpOutRedirects,
        v4::TIME_EXCEEDED => Counter::IcmpOutTimeExcds,
        v4::PARAMETER_PROBLEM => Counter::IcmpOutParmProbs,
        v4::TIMESTAMP_REPLY => Counter::IcmpOutTimestampReps,
        _ => return None,
    })
}

fn out_v6(kind: u8) -> Option<Counter> {
    Some(match kind {
        v6::DEST_UNREACH => Counter::Icmp6OutDestUnreachs,
        v6::PACKET_TOO_BIG => Counter::Icmp6OutPktTooBigs,
        v6::TIME_EXCEEDED => Counter::Icmp6OutTimeExcds,
        v6::PARAMETER_PROBLEM => Counter::Icmp6OutParmProblems,
        v6::ECHO_REPLY => Counter::Icmp6OutEchoReplies,
        v6::REDIRECT => Counter::Icmp6OutRedirects,
        _ => return None,
    })
}
