//! What hosts and routers tell each other about groups: the same in both families.

use core::net::IpAddr;
use core::time::Duration;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// IGMPv1 (RFC 1112 appendix I).
    V1,
    /// IGMPv2 (RFC 2236) and MLDv1 (RFC 2710).
    V2,
    /// IGMPv3 (RFC 3376) and MLDv2 (RFC 3810).
    V3,
}

/// A router asks who is in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) version: Version,
    /// `None` asks for all groups.
    pub(super) group: Option<IpAddr>,
    /// Only who wants these, if there are any.
    pub(super) sources: Vec<IpAddr>,
    /// The answer may take so long.
    pub(super) max_response: Duration,
    /// How often to repeat what may get lost; 0 says nothing about it.
    pub(super) robustness: u8,
}

/// What a host says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// Version 3.
    Records(Vec<Record>),
    /// Versions 1 and 2: somebody here is in the group.
    Report { version: Version, group: IpAddr },
    /// Version 2: perhaps nobody is any more.
    Leave(IpAddr),
}

/// A group record of a version 3 report (RFC 3376 section 4.2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    pub(super) group: IpAddr,
    pub(super) sources: Vec<IpAddr>,
}

/// The record types of RFC 3376 section 4.2.12, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    ModeIsInclude = 1,
    ModeIsExclude = 2,
    ChangeToInclude = 3,
    ChangeToExclude = 4,
    AllowNewSources = 5,
    BlockOldSources = 6,
}

impl RecordKind {
    /// Whether the record may be spread over several: those that exclude would be taken for a list
    /// that is shorter than it is, each (RFC 3376 section 4.2.16).
    fn is_divisible(self) -> bool {
        !matches!(self, Self::ModeIsExclude | Self::ChangeToExclude)
    }
}

/// What a version 3 report has in front of its records.
const REPORT_HEADER: usize = 8;
/// What a record has in front of its group.
const RECORD_HEADER: usize = 4;

/// Writes version 3 reports, each of at most `room` bytes, their checksums left out.
pub(super) fn write_records(kind: u8, records: &[Record], room: usize) -> Vec<Vec<u8>> {
    let mut reports = Vec::new();
    let (mut body, mut count) = (Vec::new(), 0_u16);
    let room = room.saturating_sub(REPORT_HEADER);
    let finish = |body: &mut Vec<u8>, count: &mut u16| {
        let [high, low] = core::mem::take(count).to_be_bytes();
        let mut report = vec![kind, 0, 0, 0, 0, 0, high, low];
        report.append(body);
        report
    };
    for record in records {
        let address = addr_len(record.group);
        let mut sources = &record.sources[..];
        loop {
            let fixed = RECORD_HEADER + address;
            let len = fixed + sources.len() * address;
            if body.len() + len > room && !body.is_empty() {
                // In a report of its own there is more room.
                reports.push(finish(&mut body, &mut count));
            }
            let fit = room.saturating_sub(body.len() + fixed) / address;
            let (now, later) = sources.split_at(sources.len().min(fit.max(1)));
            write_record(&mut body, record.kind, record.group, now);
            count = count.saturating_add(1);
            sources = later;
            if sources.is_empty() || !record.kind.is_divisible() {
                break;
            }
        }
    }
    if !body.is_empty() {
        reports.push(finish(&mut body, &mut count));
    }
    reports
}

fn write_record(body: &mut Vec<u8>, kind: RecordKind, group: IpAddr, sources: &[IpAddr]) {
    let count = u16::try_from(sources.len()).unwrap_or(u16::MAX);
    body.extend([kind as u8, 0]);
    body.extend(count.to_be_bytes());
    for addr in core::iter::once(&group).chain(sources) {
        write_addr(body, *addr);
    }
}

/// Appends an address.
pub(super) fn write_addr(bytes: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => bytes.extend(addr.octets()),
        IpAddr::V6(addr) => bytes.extend(addr.octets()),
    }
}

fn addr_len(addr: IpAddr) -> usize {
    match addr {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    }
}

/// A number with 3 bits of exponent and `bits` of mantissa once its highest bit is set (RFC 3376
/// section 4.1.1, RFC 3810 section 5.1.3).
pub(super) fn floating(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    if code >> (bits + 3) == 0 {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << (((code >> bits) & 7) + 3)
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn large_numbers_are_rounded() {
        for (code, number) in [(0, 0), (127, 127), (0x80, 128), (0x8f, 248), (0xff, 31_744)] {
            assert_eq!(floating(code, 4), number);
        }
        for (code, number) in [(0x7fff, 32_767), (0x8000, 32_768), (0xffff, 8_387_584)] {
            assert_eq!(floating(code, 12), number);
        }
    }

    fn group(last: u8) -> IpAddr {
        Ipv4Addr::new(239, 0, 0, last).into()
    }

    fn sources(count: u32) -> Vec<IpAddr> {
        (0..count).map(|n| Ipv4Addr::from_bits(n).into()).collect()
    }

    #[test]
    fn a_report_is_written_as_rfc_3376_says() {
        let record = Record {
            kind: RecordKind::AllowNewSources,
            group: group(7),
            sources: sources(2),
        };
        let report = write_records(0x22, &[record], 1_000);
        let expected = [
            &[0x22, 0, 0, 0, 0, 0, 0, 1][..],
            &[5, 0, 0, 2, 239, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        assert_eq!(report, [expected.concat()]);
    }

    /// Records and their sources in every report, by count.
    fn written(reports: &[Vec<u8>], room: usize) -> (usize, usize) {
        let (mut records, mut sources) = (0, 0);
        for report in reports {
            assert!(report.len() <= room, "{} of {room}", report.len());
            let announced = usize::from(report[7]);
            let mut rest = &report[8..];
            for _ in 0..announced {
                let count = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                rest = &rest[8 + 4 * count..];
                records += 1;
                sources += count;
            }
            assert!(rest.is_empty());
        }
        (records, sources)
    }

    #[test]
    fn what_is_too_long_goes_on_in_the_next_report() {
        let record = |kind, last, count| Record {
            kind,
            group: group(last),
            sources: sources(count),
        };
        let many: Vec<_> = (0..100)
            .map(|last| record(RecordKind::ChangeToExclude, last, 0))
            .collect();
        let reports = write_records(0x22, &many, 88);
        assert_eq!((reports.len(), written(&reports, 88)), (10, (100, 0)));

        let long = [record(RecordKind::AllowNewSources, 1, 100)];
        let reports = write_records(0x22, &long, 88);
        assert_eq!((reports.len(), written(&reports, 88)), (6, (6, 100)));

        // What is left out of this one is merely not excluded.
        let excluding = [record(RecordKind::ModeIsExclude, 1, 100)];
        let reports = write_records(0x22, &excluding, 88);
        assert_eq!((reports.len(), written(&reports, 88)), (1, (1, 18)));

        let v6 = [Record {
            kind: RecordKind::ModeIsInclude,
            group: Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into(),
            sources: vec![Ipv6Addr::LOCALHOST.into(); 3],
        }];
        let reports = write_records(143, &v6, 1_000);
        assert_eq!((reports.len(), reports[0].len()), (1, 8 + 4 + 4 * 16));
    }
}
