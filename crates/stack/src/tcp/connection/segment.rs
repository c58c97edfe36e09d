//! Segments as a connection sees them, parsed and in words: what came, and what is to be sent.

use crate::wire::TcpHeader;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN};
use crate::wire::tcp_options::TcpOptions;

/// A segment that came in. What joined segments ([GRO](crate::gro)) have in common is that nothing
/// but their length tells them from one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
    /// As it stands in the header, not scaled.
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: TcpOptions,
    /// Bytes of payload.
    pub(crate) len: u32,
    /// Bytes of each segment's payload, where several were joined; else as `len`.
    pub(crate) segment_size: u32,
    /// Congestion was met on the way (RFC 3168).
    pub(crate) is_ce: bool,
}

impl Segment {
    /// The segment of a header with its options, and so many bytes behind them.
    pub(crate) fn new(header: &TcpHeader, options: &[u8], len: u32, is_ce: bool) -> Self {
        Self {
            seq: Seq(header.seq.get()),
            ack: Seq(header.ack.get()),
            flags: header.flags,
            window: header.window.get(),
            urgent: header.urgent.get(),
            options: TcpOptions::parse(options),
            len,
            segment_size: len,
            is_ce,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What it takes of the sequence space: SYN and FIN count as one each.
    pub(crate) fn range(&self) -> SeqRange {
        let control = u32::from(self.has(FLAG_SYN)) + u32::from(self.has(FLAG_FIN));
        SeqRange {
            start: self.seq,
            end: self.seq + self.len.wrapping_add(control),
        }
    }
}

/// A segment to be sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outgoing {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
    /// As it stands in the header.
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: TcpOptions,
    /// Bytes of payload, from `seq` on. Without SYN; more than `mss` if it stands for several.
    pub(crate) len: u32,
    /// Payload of each segment that it stands for.
    pub(crate) mss: u16,
    /// The packet may be marked instead of dropped (ECT, RFC 3168 section 6.1.2).
    pub(crate) is_ect: bool,
}

impl Outgoing {
    /// One without payload, options and window.
    pub(crate) fn bare(seq: Seq, ack: Seq, flags: u8) -> Self {
        Self {
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
            options: TcpOptions::default(),
            len: 0,
            mss: 0,
            is_ect: false,
        }
    }

    /// The reset that the sender of `segment` will believe (RFC 9293 section 3.10.7.1): at the place
    /// that it acknowledges, or, if it acknowledges nothing, acknowledging it.
    pub(crate) fn reset_for(segment: &Segment) -> Self {
        if segment.has(FLAG_ACK) {
            Self::bare(segment.ack, Seq(0), FLAG_RST)
        } else {
            Self::bare(Seq(0), segment.range().end, FLAG_RST | FLAG_ACK)
        }
    }
}
