//! TCP options (RFC 9293 section 3.2, RFC 7323, RFC 2018).

use super::seq::{Seq, SeqRange};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Most bytes of options that a header has room for.
pub(crate) const MAX_OPTIONS: usize = 40;
/// The largest shift of a window; larger ones mean it (RFC 7323 section 2.3).
const MAX_SCALE: u8 = 14;
/// Bytes of a SACK block, and of the option's head with the padding in front.
const BLOCK: usize = 8;
const SACK_HEAD: usize = 4;
/// Bytes of the timestamps with the padding in front.
const TIMESTAMPS_LEN: usize = 12;

/// The options of a segment that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TcpOptions {
    /// Largest payload that the sender takes in one segment. On a SYN.
    pub(crate) mss: Option<u16>,
    /// Shift of the sender's windows, at most 14. On a SYN.
    pub(crate) window_scale: Option<u8>,
    /// The sender understands SACK blocks. On a SYN.
    pub(crate) sack_permitted: bool,
    pub(crate) timestamps: Option<Timestamps>,
    /// What the sender has beyond its acknowledgement.
    pub(crate) sack: SackBlocks,
}

/// The timestamps option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamps {
    /// The sender's clock (`TSval`).
    pub(crate) value: u32,
    /// What the other end's clock said, as last heard (`TSecr`).
    pub(crate) echo: u32,
}

/// Up to four SACK blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SackBlocks {
    blocks: [SeqRange; Self::MOST],
    len: u8,
}

impl SackBlocks {
    const MOST: usize = 4;

    /// None.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a block behind the others; if there are four already, nothing happens.
    pub(crate) fn push(&mut self, block: SeqRange) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// The blocks, first to last.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.blocks.iter().take(usize::from(self.len)).copied()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl TcpOptions {
    /// Reads options, as far as they are well-formed; unknown ones are passed over, and known ones
    /// of a wrong length.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        // What most segments have, as most senders write it (RFC 7323 appendix A).
        if let &[NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] = bytes {
            return Self {
                timestamps: Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                }),
                ..Self::default()
            };
        }
        let mut options = Self::default();
        options.read(bytes);
        options
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while let [kind, rest @ ..] = bytes {
            match *kind {
                END => return,
                NOP => bytes = rest,
                kind => {
                    let Some(len) = rest.first().map(|len| usize::from(*len)) else {
                        return;
                    };
                    let Some(body) = bytes.get(2..len.max(2)).filter(|_| len >= 2) else {
                        return;
                    };
                    self.read_one(kind, body);
                    bytes = bytes.get(len..).unwrap_or_default();
                }
            }
        }
    }

    fn read_one(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            // 0 says nothing.
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])).filter(|mss| *mss > 0),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            (SACK, blocks) if blocks.len() % BLOCK == 0 => {
                for block in blocks.chunks_exact(BLOCK) {
                    let &[a, b, c, d, e, f, g, h] = block else {
                        continue;
                    };
                    self.sack.push(SeqRange {
                        start: Seq(u32::from_be_bytes([a, b, c, d])),
                        end: Seq(u32::from_be_bytes([e, f, g, h])),
                    });
                }
            }
            _ => {}
        }
    }

    /// Bytes that they take in a header: a multiple of 4, at most 40.
    pub(crate) fn len(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            len += TIMESTAMPS_LEN;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        match self.blocks_that_fit(len) {
            0 => len,
            blocks => len + SACK_HEAD + blocks * BLOCK,
        }
    }

    fn blocks_that_fit(&self, len: usize) -> usize {
        let room = MAX_OPTIONS.saturating_sub(len + SACK_HEAD) / BLOCK;
        self.sack.len().min(room)
    }

    /// Writes them to the front of `buf`, each aligned for who reads words, with as many SACK blocks
    /// as fit. Returns their length. `buf` has room for [`MAX_OPTIONS`].
    pub(crate) fn write(&self, buf: &mut [u8]) -> usize {
        let mut writer = Writer { buf, len: 0 };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            writer.put(&[MSS, 4, a, b]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            let front = match self.sack_permitted {
                true => [SACK_PERMITTED, 2, TIMESTAMPS, 10],
                false => [NOP, NOP, TIMESTAMPS, 10],
            };
            writer.put(&front);
            writer.put(&value.to_be_bytes());
            writer.put(&echo.to_be_bytes());
        } else if self.sack_permitted {
            writer.put(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            writer.put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.blocks_that_fit(writer.len);
        if blocks > 0 {
            // At most 4 blocks: the length fits a byte.
            writer.put(&[NOP, NOP, SACK, (2 + blocks * BLOCK) as u8]);
            for block in self.sack.iter().take(blocks) {
                writer.put(&block.start.0.to_be_bytes());
                writer.put(&block.end.0.to_be_bytes());
            }
        }
        writer.len
    }
}

struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.buf.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Timestamps = Timestamps {
        value: 0x0102_0304,
        echo: 0xfffe_fdfc,
    };

    fn blocks(n: u32) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        for i in 0..n {
            let start = Seq(u32::MAX - 5) + i * 10;
            blocks.push(SeqRange {
                start,
                end: start + 5,
            });
        }
        blocks
    }

    #[test]
    fn what_is_written_is_read() {
        for mss in [None, Some(1), Some(1_460), Some(u16::MAX)] {
            for window_scale in [None, Some(0), Some(14)] {
                for sack_permitted in [false, true] {
                    for timestamps in [None, Some(STAMP)] {
                        for n in 0..5 {
                            let options = TcpOptions {
                                mss,
                                window_scale,
                                sack_permitted,
                                timestamps,
                                sack: blocks(n),
                            };
                            let mut buf = [0xaa; MAX_OPTIONS];
                            let len = options.write(&mut buf);
                            assert_eq!(len, options.len());
                            assert!(len.is_multiple_of(4) && len <= MAX_OPTIONS);
                            let read = TcpOptions::parse(&buf[..len]);
                            let fit = options.blocks_that_fit(
                                TcpOptions {
                                    sack: SackBlocks::new(),
                                    ..options
                                }
                                .len(),
                            );
                            let expected: Vec<_> = options.sack.iter().take(fit).collect();
                            assert_eq!(read.sack.iter().collect::<Vec<_>>(), expected);
                            assert_eq!(
                                TcpOptions {
                                    sack: options.sack,
                                    ..read
                                },
                                options
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn three_blocks_fit_beside_timestamps_and_four_alone() {
        let options = TcpOptions {
            timestamps: Some(STAMP),
            sack: blocks(4),
            ..TcpOptions::default()
        };
        assert_eq!(options.len(), 12 + 4 + 24);
        let alone = TcpOptions {
            timestamps: None,
            ..options
        };
        assert_eq!(alone.len(), 4 + 32);
    }

    #[test]
    fn what_is_malformed_ends_or_is_passed_over() {
        let with_mss = TcpOptions {
            mss: Some(1_460),
            ..TcpOptions::default()
        };
        let nothing = TcpOptions::default();
        let cases: [(&[u8], TcpOptions); 14] = [
            (&[], nothing),
            (&[MSS], nothing),
            (&[MSS, 4, 5], nothing),
            (&[MSS, 0, 5, 0xb4], nothing),
            (&[MSS, 1, 5, 0xb4], nothing),
            (&[MSS, 4, 0, 0], nothing),
            (&[MSS, 3, 5, MSS, 4, 5, 0xb4], with_mss),
            (&[MSS, 4, 5, 0xb4, END, MSS, 4, 1, 1], with_mss),
            (&[NOP, NOP, NOP, MSS, 4, 5, 0xb4], with_mss),
            (&[254, 6, 1, 2, 3, 4, MSS, 4, 5, 0xb4], with_mss),
            (&[254, 40, 1, 2, MSS, 4, 5, 0xb4], nothing),
            (&[SACK, 9, 0, 0, 0, 0, 0, 0, 0, MSS, 4, 5, 0xb4], with_mss),
            (
                &[TIMESTAMPS, 9, 0, 0, 0, 0, 0, 0, 0, MSS, 4, 5, 0xb4],
                with_mss,
            ),
            (&[END, MSS, 4, 5, 0xb4], nothing),
        ];
        for (bytes, expected) in cases {
            assert_eq!(TcpOptions::parse(bytes), expected, "{bytes:?}");
        }
        let too_far = TcpOptions::parse(&[WINDOW_SCALE, 3, 200]);
        assert_eq!(too_far.window_scale, Some(MAX_SCALE));
    }
}
