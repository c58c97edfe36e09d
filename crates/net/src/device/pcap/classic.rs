//! The pcap format (draft-ietf-opsawg-pcap).

use std::io::Read;

use super::fields::{Endian, Fields};
use super::input::Input;
use super::reader::MAX_RECORD;
use super::{CaptureError, LinkType, Record};

/// What a file with microseconds starts with, in the writer's byte order.
pub(super) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// What a file with nanoseconds starts with.
pub(super) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;

const FILE_HEADER: u32 = 24;
const RECORD_HEADER: u32 = 16;

/// What the file header says.
pub(super) struct Classic {
    endian: Endian,
    nanos_per_tick: u64,
    link_type: LinkType,
}

impl Classic {
    pub(super) fn read_header<R: Read>(input: &mut Input<R>) -> Result<Self, CaptureError> {
        let (endian, nanos_per_tick) = [
            (Endian::Little, MAGIC_MICROS.to_le_bytes(), 1_000),
            (Endian::Little, MAGIC_NANOS.to_le_bytes(), 1),
            (Endian::Big, MAGIC_MICROS.to_be_bytes(), 1_000),
            (Endian::Big, MAGIC_NANOS.to_be_bytes(), 1),
        ]
        .into_iter()
        .find(|(_, magic, _)| input.starts_with(magic))
        .map(|(endian, _, nanos)| (endian, nanos))
        .ok_or(CaptureError::NotACapture)?;
        let link_type = link_type(endian, input.take(FILE_HEADER)?);
        let link_type = link_type.ok_or(CaptureError::NotACapture)?;
        Ok(Self {
            endian,
            nanos_per_tick,
            link_type,
        })
    }

    pub(super) fn next_record<'a, R: Read>(
        &mut self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        let Some(header) = input.take_unless_over(RECORD_HEADER)? else {
            return Ok(None);
        };
        let header = self.record_header(header);
        let (timestamp, len, original_len) = header.ok_or(CaptureError::NotACapture)?;
        if len > MAX_RECORD {
            return Err(input.corrupt("a record longer than any frame"));
        }
        let data = input.take(len)?;
        Ok(Some(Record {
            timestamp,
            original_len,
            link_type: self.link_type,
            data,
        }))
    }

    fn record_header(&self, bytes: &[u8]) -> Option<(u64, u32, u32)> {
        let mut fields = Fields::new(self.endian, bytes);
        let (seconds, ticks) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
        let timestamp = seconds * 1_000_000_000 + ticks * self.nanos_per_tick;
        Some((timestamp, fields.u32()?, fields.u32()?))
    }
}

/// The link type is the low half of its field; the high half tells of frame check sequences.
fn link_type(endian: Endian, header: &[u8]) -> Option<LinkType> {
    let mut fields = Fields::new(endian, header);
    fields.bytes(20)?;
    Some(LinkType((fields.u32()? & 0xffff) as u16))
}
