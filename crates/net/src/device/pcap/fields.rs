//! Numbers in the byte order of the machine that wrote the capture.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Endian {
    #[default]
    Little,
    Big,
}

/// Takes fields from the front of some bytes.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    endian: Endian,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(endian: Endian, bytes: &'a [u8]) -> Self {
        Self {
            endian,
            rest: bytes,
        }
    }

    pub(super) fn endian(&self) -> Endian {
        self.endian
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let bytes = self.array()?;
        Some(match self.endian {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        Some(match self.endian {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        Some(match self.endian {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        })
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }
}
