//! The header that Linux's packet generator puts at the front of what it sends: a magic number, a
//! sequence number, and the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde::Serialize;

/// Length of the header in bytes.
pub(crate) const LEN: usize = 16;

const MAGIC: [u8; 4] = 0xbe9b_e955_u32.to_be_bytes();

/// Fills a datagram with headers, one after the other; the last one may be cut.
pub(super) fn fill(datagram: &mut [u8], sequence: u32, now: SystemTime) {
    let header = header(sequence, now.duration_since(UNIX_EPOCH).unwrap_or_default());
    for piece in datagram.chunks_mut(LEN) {
        let (part, _) = header.split_at(piece.len());
        piece.copy_from_slice(part);
    }
}

fn header(sequence: u32, since_epoch: Duration) -> [u8; LEN] {
    // 32 bits have room for the seconds until 2106, and wrap then.
    let [.., a, b, c, d] = since_epoch.as_secs().to_be_bytes();
    let [e, f, g, h] = since_epoch.subsec_micros().to_be_bytes();
    let [m, n, o, p] = MAGIC;
    let [q, r, s, t] = sequence.to_be_bytes();
    [m, n, o, p, q, r, s, t, a, b, c, d, e, f, g, h]
}

/// How closely headers are looked at; each level adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    /// Magic and order
    #[value(name = "1")]
    Header,
    /// Also that the header is repeated to the end of the datagram
    #[value(name = "2")]
    Repeat,
    /// Also end at the first fault or gap
    #[value(name = "3")]
    Strict,
}

/// What was found out by the headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    /// Came after a later one, or twice.
    pub(crate) out_of_order: u64,
    pub(crate) wrong_magic: u64,
    /// The rest of the datagram is not the header again.
    pub(crate) bad_repeat: u64,
    /// Sequence numbers that were passed over: datagrams lost, as a flood loses them, or late.
    pub(crate) lost: u64,
}

/// Looks at one datagram after the other.
#[derive(Debug, Clone)]
pub(super) struct Check {
    level: Level,
    last: Option<Sequence>,
    findings: Findings,
}

/// A sequence number, and its byte order once two numbers have told it.
///
/// Linux's pktgen writes it in network order, other programs in that of their host.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    bytes: [u8; 4],
    read: Option<fn([u8; 4]) -> u32>,
}

impl Check {
    pub(super) fn new(level: Level) -> Self {
        Self {
            level,
            last: None,
            findings: Findings::default(),
        }
    }

    pub(super) fn findings(&self) -> Findings {
        self.findings
    }

    /// Looks at the next datagram, and says whether to go on.
    pub(super) fn look(&mut self, datagram: &[u8]) -> bool {
        let before = self.findings;
        match datagram.first_chunk::<LEN>() {
            Some(header @ [m, n, o, p, q, r, s, t, ..]) if [*m, *n, *o, *p] == MAGIC => {
                self.order([*q, *r, *s, *t]);
                if self.level >= Level::Repeat && !is_repeated(header, datagram) {
                    self.findings.bad_repeat += 1;
                }
            }
            _ => self.findings.wrong_magic += 1,
        }
        self.level < Level::Strict || self.findings == before
    }

    fn order(&mut self, bytes: [u8; 4]) {
        let Some(last) = self.last else {
            self.last = Some(Sequence { bytes, read: None });
            return;
        };
        let step = |read: fn([u8; 4]) -> u32| read(bytes).wrapping_sub(read(last.bytes));
        let distance = |read| step(read).min(step(read).wrapping_neg());
        // In the wrong byte order, the way from one to the next is 16 million.
        let (network, other) = (distance(u32::from_be_bytes), distance(u32::from_le_bytes));
        let read = last.read.unwrap_or(match network <= other {
            true => u32::from_be_bytes,
            false => u32::from_le_bytes,
        });
        // Numbers wrap: the half of them in front of the last one is later (RFC 1982).
        let step = step(read);
        if step == 0 || step >= 1 << 31 {
            self.findings.out_of_order += 1;
            return;
        }
        self.findings.lost += u64::from(step - 1);
        let read = last.read.or((network != other).then_some(read));
        self.last = Some(Sequence { bytes, read });
    }
}

fn is_repeated(header: &[u8; LEN], datagram: &[u8]) -> bool {
    datagram.chunks(LEN).all(|piece| header.starts_with(piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(len: usize, sequence: u32) -> Vec<u8> {
        let mut datagram = vec![0; len];
        fill(
            &mut datagram,
            sequence,
            UNIX_EPOCH + Duration::from_micros(3_000_007),
        );
        datagram
    }

    fn in_host_order(sequence: u32) -> Vec<u8> {
        let mut datagram = datagram(18, 0);
        datagram[4..8].copy_from_slice(&sequence.to_le_bytes());
        datagram
    }

    fn findings(level: Level, datagrams: &[Vec<u8>]) -> Findings {
        let mut check = Check::new(level);
        for datagram in datagrams {
            check.look(datagram);
        }
        check.findings()
    }

    #[test]
    fn the_header_is_that_of_pktgen() {
        assert_eq!(
            datagram(18, 0x0102_0304),
            [
                0xbe, 0x9b, 0xe9, 0x55, 1, 2, 3, 4, 0, 0, 0, 3, 0, 0, 0, 7, 0xbe, 0x9b
            ]
        );
    }

    #[test]
    fn order_and_gaps_are_told_apart() {
        let cases: [(&[u32], u64, u64); 7] = [
            (&[0, 1, 2], 0, 0),
            (&[7, 9, 12], 0, 3),
            (&[1, 2, 2, 3], 1, 0),
            (&[1, 4, 2, 5], 1, 2),
            (&[5, 4, 6, 7], 1, 0),
            (&[u32::MAX, 0, 1], 0, 0),
            (&[255, 256, 257], 0, 0),
        ];
        for (sequence, out_of_order, lost) in cases {
            let expected = Findings {
                out_of_order,
                lost,
                ..Findings::default()
            };
            let network: Vec<_> = sequence
                .iter()
                .map(|number| datagram(18, *number))
                .collect();
            assert_eq!(findings(Level::Repeat, &network), expected, "{sequence:?}");
            let host: Vec<_> = sequence.iter().copied().map(in_host_order).collect();
            assert_eq!(findings(Level::Header, &host), expected, "{sequence:?}");
        }
    }

    #[test]
    fn faults_are_counted_by_kind() {
        let mut foreign = datagram(18, 1);
        foreign[0] ^= 1;
        let mut torn = datagram(40, 2);
        torn[39] ^= 1;
        let datagrams = [datagram(40, 0), foreign, torn, vec![], vec![0xbe; 15]];
        let expected = Findings {
            wrong_magic: 3,
            bad_repeat: 1,
            lost: 1,
            ..Findings::default()
        };
        assert_eq!(findings(Level::Repeat, &datagrams), expected);
        let lenient = Findings {
            bad_repeat: 0,
            ..expected
        };
        assert_eq!(findings(Level::Header, &datagrams), lenient);
    }

    #[test]
    fn the_strictest_level_ends_at_the_first_fault_or_gap() {
        for (level, goes_on) in [(Level::Repeat, true), (Level::Strict, false)] {
            let mut check = Check::new(level);
            assert!(check.look(&datagram(18, 0)));
            assert!(check.look(&datagram(18, 1)));
            assert_eq!(check.clone().look(&datagram(18, 3)), goes_on);
            assert_eq!(check.look(b"x"), goes_on);
        }
    }
}
