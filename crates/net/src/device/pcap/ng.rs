//! The pcapng format (draft-ietf-opsawg-pcapng).

use std::io::Read;

use super::fields::{Endian, Fields};
use super::input::Input;
use super::reader::MAX_RECORD;
use super::{CaptureError, LinkType, Record};

/// Type of the block that a section starts with; the same in either byte order.
pub(super) const MAGIC: [u8; 4] = SECTION_HEADER.to_be_bytes();

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
/// The packet block of old: obsolete, and still found.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Tells a section's byte order.
pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;

pub(super) const OPTION_END: u16 = 0;
pub(super) const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// Type, length, and the length again at the end.
pub(super) const BLOCK_FRAME: u32 = 12;

/// Bytes of a block that are believed, if it is one that is looked into.
const MAX_BLOCK: u32 = MAX_RECORD + (64 << 10);

/// Interfaces that a section may have: more than any machine, and a bound on what is kept of them.
const MAX_INTERFACES: usize = 4_096;

/// What is known of the section that is being read.
#[derive(Default)]
pub(super) struct Section {
    endian: Endian,
    interfaces: Vec<Interface>,
    /// For records that have no time.
    last_timestamp: u64,
}

struct Interface {
    link_type: LinkType,
    /// Most bytes that are kept of a frame, or 0.
    snap_len: u32,
    ticks_per_second: u128,
    offset_seconds: i64,
}

/// Where in a block's body a frame lies, and what is known of it.
struct Frame<'a> {
    interface: usize,
    ticks: Option<u64>,
    original_len: u32,
    data: &'a [u8],
}

impl Section {
    pub(super) fn next_record<'a, R: Read>(
        &mut self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        let (kind, len) = loop {
            let Some(block) = self.next_block(input)? else {
                return Ok(None);
            };
            match block {
                (INTERFACE, len) => self.add_interface(input, len)?,
                (PACKET | SIMPLE_PACKET | ENHANCED_PACKET, _) => break block,
                // The rest of a section header, and all that is not about frames.
                (_, len) => input.skip(len)?,
            }
        };
        let corrupt = input.corrupt("a packet block that contradicts itself");
        let body = take_block(input, len, self.endian)?;
        let Some(frame) = self.frame(kind, body) else {
            return Err(corrupt);
        };
        let Some(interface) = self.interfaces.get(frame.interface) else {
            return Err(corrupt);
        };
        if let Some(ticks) = frame.ticks {
            self.last_timestamp = interface.nanos(ticks);
        }
        Ok(Some(Record {
            timestamp: self.last_timestamp,
            original_len: frame.original_len,
            link_type: interface.link_type,
            data: frame.data,
        }))
    }

    /// The next block's type, and how many of its bytes are still to be read. A section header
    /// is taken note of already.
    fn next_block<R: Read>(
        &mut self,
        input: &mut Input<R>,
    ) -> Result<Option<(u32, u32)>, CaptureError> {
        let Some(head) = input.take_unless_over(8)? else {
            return Ok(None);
        };
        let head: [u8; 8] = head.try_into().unwrap_or_default();
        let mut read = 8;
        if head.starts_with(&MAGIC) {
            self.endian = byte_order(input.take(4)?)
                .ok_or_else(|| input.corrupt("a section in no byte order"))?;
            self.interfaces.clear();
            read = 12;
        }
        let mut fields = Fields::new(self.endian, &head);
        let block = fields
            .u32()
            .zip(fields.u32())
            .filter(|(_, total)| total % 4 == 0);
        let block = block.and_then(|(kind, total)| Some((kind, total.checked_sub(read + 4)? + 4)));
        block
            .ok_or_else(|| input.corrupt("a block of impossible length"))
            .map(Some)
    }

    fn add_interface<R: Read>(
        &mut self,
        input: &mut Input<R>,
        len: u32,
    ) -> Result<(), CaptureError> {
        let corrupt = input.corrupt("an interface that contradicts itself");
        let body = take_block(input, len, self.endian)?;
        let interface = Interface::parse(Fields::new(self.endian, body)).ok_or(corrupt)?;
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(input.corrupt("more interfaces than any machine has"));
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn frame<'a>(&self, kind: u32, body: &'a [u8]) -> Option<Frame<'a>> {
        let mut fields = Fields::new(self.endian, body);
        if kind == SIMPLE_PACKET {
            let original_len = fields.u32()?;
            let snap_len = match self.interfaces.first()?.snap_len {
                0 => u32::MAX,
                snap_len => snap_len,
            };
            let data = fields.bytes(original_len.min(snap_len) as usize)?;
            return Some(Frame {
                interface: 0,
                ticks: None,
                original_len,
                data,
            });
        }
        let interface = match kind {
            // The second half of its first word counts drops.
            PACKET => (fields.u16()?, fields.u16()?).0.into(),
            _ => fields.u32()? as usize,
        };
        let ticks = u64::from(fields.u32()?) << 32 | u64::from(fields.u32()?);
        let (len, original_len) = (fields.u32()?, fields.u32()?);
        let data = fields.bytes(len as usize)?;
        Some(Frame {
            interface,
            ticks: Some(ticks),
            original_len,
            data,
        })
    }
}

/// The body of a block of which `len` bytes are still to be read.
fn take_block<R: Read>(
    input: &mut Input<R>,
    len: u32,
    endian: Endian,
) -> Result<&[u8], CaptureError> {
    if len > MAX_BLOCK {
        return Err(input.corrupt("a block longer than any frame"));
    }
    let corrupt = input.corrupt("a block whose two lengths differ");
    let (body, trailer) = input.take(len)?.split_at((len - 4) as usize);
    // What was read before is the type and the length.
    match Fields::new(endian, trailer).u32() {
        Some(total) if total == len + 8 => Ok(body),
        _ => Err(corrupt),
    }
}

fn byte_order(bytes: &[u8]) -> Option<Endian> {
    [Endian::Little, Endian::Big]
        .into_iter()
        .find(|&endian| Fields::new(endian, bytes).u32() == Some(BYTE_ORDER))
}

impl Interface {
    fn parse(mut fields: Fields<'_>) -> Option<Self> {
        let (link_type, _reserved) = (LinkType(fields.u16()?), fields.u16()?);
        let mut interface = Self {
            link_type,
            snap_len: fields.u32()?,
            ticks_per_second: 1_000_000,
            offset_seconds: 0,
        };
        // The end may be left out.
        while let (Some(option), Some(len)) = (fields.u16(), fields.u16()) {
            let value = fields.bytes(usize::from(len).next_multiple_of(4))?;
            match option {
                OPTION_END => break,
                OPTION_RESOLUTION => interface.ticks_per_second = resolution(*value.first()?)?,
                OPTION_OFFSET => {
                    let offset = Fields::new(fields.endian(), value).u64()?;
                    interface.offset_seconds = offset.cast_signed();
                }
                _ => {}
            }
        }
        Some(interface)
    }

    /// Nanoseconds since 1970, as near as their type gets.
    fn nanos(&self, ticks: u64) -> u64 {
        // Below 2^94, whatever the file says.
        let nanos = u128::from(ticks) * 1_000_000_000 / self.ticks_per_second.max(1);
        let offset = i128::from(self.offset_seconds) * 1_000_000_000;
        u64::try_from(nanos.cast_signed().saturating_add(offset).max(0)).unwrap_or(u64::MAX)
    }
}

/// Ticks per second: a power of ten, or of two if the highest bit is set.
fn resolution(value: u8) -> Option<u128> {
    let exponent = u32::from(value & 0x7f);
    if value & 0x80 == 0 {
        10_u128.checked_pow(exponent)
    } else {
        2_u128.checked_pow(exponent)
    }
}
