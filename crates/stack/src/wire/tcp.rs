//! The TCP header (RFC 9293 section 3.1).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FIN: no more data from the sender.
pub const FLAG_FIN: u8 = 0x01;
/// SYN: synchronise sequence numbers.
pub const FLAG_SYN: u8 = 0x02;
/// RST: reset the connection.
pub const FLAG_RST: u8 = 0x04;
/// PSH: hand the data to the reader at once.
pub const FLAG_PSH: u8 = 0x08;
/// ACK: the acknowledgement field counts.
pub const FLAG_ACK: u8 = 0x10;
/// URG: the urgent pointer counts.
pub const FLAG_URG: u8 = 0x20;
/// ECE: congestion was met on the way here (RFC 3168 section 6.1).
pub const FLAG_ECE: u8 = 0x40;
/// CWR: the congestion window was reduced (RFC 3168 section 6.1.2).
pub const FLAG_CWR: u8 = 0x80;

/// The fixed 20 bytes; options follow up to [`Self::header_len`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Sequence number of the first byte.
    pub seq: U32,
    /// Next sequence number the sender expects.
    pub ack: U32,
    data_offset: u8,
    /// Control bits, the low eight.
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Checksum over pseudo-header and segment.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl TcpHeader {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;
    /// Where the checksum lies.
    pub const CHECKSUM_OFFSET: u8 = 16;

    /// A header without options, window and checksum zero.
    pub fn new(src_port: u16, dst_port: u16, seq: u32, ack: u32, flags: u8) -> Self {
        Self {
            src_port: src_port.into(),
            dst_port: dst_port.into(),
            seq: seq.into(),
            ack: ack.into(),
            data_offset: 5 << 4,
            flags,
            window: 0.into(),
            checksum: 0.into(),
            urgent: 0.into(),
        }
    }

    /// Says where the payload begins: behind `len` bytes, a multiple of 4 up to 60.
    pub fn set_header_len(&mut self, len: usize) {
        self.data_offset = ((len / 4) << 4) as u8;
    }

    /// The header length in bytes as the data-offset field claims it: 0 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }
}
