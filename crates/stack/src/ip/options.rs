//! IPv4 options (RFC 791 section 3.1), as Linux's `ip_options_compile` reads them.
//!
//! Every packet's options are checked before it is routed. An option nobody knows is no fault; one
//! that contradicts itself is answered with a parameter problem whose pointer names the byte. Source
//! routes are dropped without a word, as Linux does unless `accept_source_route` says otherwise,
//! a knob this stack does not have (RFC 6274 section 3.13.2.3 asks for that default).

use core::net::{IpAddr, Ipv4Addr};

use zerocopy::FromBytes;

use crate::core::Context;
use crate::drop::DropReason;
use crate::interface::{Interface, InterfaceAddress};
use crate::ip::icmp::IcmpError;
use crate::packet::{Packet, Refusal};
use crate::time::Instant;
use crate::wire::{Ipv4Header, ipv4};

/// Option types, with the copied flag and class in them.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const RECORD_ROUTE: u8 = 7;
    pub(super) const TIMESTAMP: u8 = 68;
    pub(super) const LOOSE_SOURCE_ROUTE: u8 = 131;
    pub(super) const STRICT_SOURCE_ROUTE: u8 = 137;
    pub(super) const ROUTER_ALERT: u8 = 148;
    /// The option goes into every fragment.
    pub(super) const COPIED: u8 = 0x80;
}

/// What a timestamp option's flag asks for.
mod timestamp {
    /// Times alone.
    pub(super) const ONLY: u8 = 0;
    /// Each time behind the address of who wrote it.
    pub(super) const WITH_ADDRESS: u8 = 1;
    /// Times of the hosts that the sender named.
    pub(super) const PRESPECIFIED: u8 = 3;
}

/// Checks the options of a packet whose header lies in its first buffer.
pub(crate) fn check(packet: &Packet) -> Result<(), Refusal> {
    let Some(header) = header(packet) else {
        return Err(Refusal::silent(DropReason::IpInHdr));
    };
    let mut seen = Seen::default();
    for option in Options::new(header) {
        if let Err(pointer) = option.and_then(|option| seen.check(&option)) {
            let error = IcmpError::ParameterProblem {
                code: 0,
                pointer: pointer as u32,
            };
            return Err(Refusal::told(DropReason::IpOptions, error));
        }
    }
    if seen.source_route {
        return Err(Refusal::silent(DropReason::SourceRoute));
    }
    Ok(())
}

/// Writes this router's address and time where a record-route or timestamp option of a checked
/// packet asks for them; the address is that of the interface by which the packet leaves. What is
/// delivered here stays as it came: no program here reads its options.
pub(crate) fn forward(cx: &Context<'_>, packet: &mut Packet, interface: &Interface) {
    let Some(own) = interface.addresses.iter().find_map(v4) else {
        return;
    };
    let Some(header) = header(packet) else { return };
    let mut written = header.to_vec();
    for option in Options::new(header).flatten() {
        match option.kind {
            kind::RECORD_ROUTE => record_route(&option, &mut written, own),
            kind::TIMESTAMP => record_time(cx, &option, &mut written, own),
            _ => {}
        }
    }
    if written != header
        && let Some(header) = packet.data_mut().get_mut(..written.len())
    {
        header.copy_from_slice(&written);
        ipv4::fill_checksum(header);
    }
}

/// The header of the fragments behind the first: only options with the copied flag are in it
/// (RFC 791 section 3.1).
pub(crate) fn for_further_fragments(header: &[u8]) -> Option<Vec<u8>> {
    let mut further = header.get(..Ipv4Header::LEN)?.to_vec();
    for option in Options::new(header)
        .flatten()
        .filter(|option| option.kind & kind::COPIED != 0)
    {
        further.extend(option.bytes);
    }
    further.resize(further.len().next_multiple_of(4), kind::END);
    let len = further.len();
    let (ip, _) = Ipv4Header::mut_from_prefix(&mut further).ok()?;
    ip.set_header_len(len);
    Some(further)
}

fn header(packet: &Packet) -> Option<&[u8]> {
    let (ip, _) = Ipv4Header::ref_from_prefix(packet.data()).ok()?;
    packet.data().get(..ip.header_len())
}

/// One option of more than one byte.
struct Ipv4Option<'a> {
    kind: u8,
    /// Where it lies in the header.
    at: usize,
    /// All of it: type, length, and what follows.
    bytes: &'a [u8],
}

impl Ipv4Option<'_> {
    /// The pointer of record route and timestamp: 1 for the option's first byte.
    fn pointer(&self) -> Option<usize> {
        self.bytes.get(2).map(|pointer| usize::from(*pointer))
    }

    /// Where in the header a pointer of it leads. Pointers are checked to be at least 4.
    fn place(&self, pointer: usize) -> usize {
        self.at + pointer.saturating_sub(1)
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Walks the options behind a header's fixed part. An option that does not fit ends the walk with
/// the place of its first byte.
struct Options<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    fn new(header: &'a [u8]) -> Self {
        Self {
            header,
            at: Ipv4Header::LEN,
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv4Option<'a>, usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let rest = self.header.get(at..)?;
            let (kind, len) = match *rest {
                [] | [kind::END, ..] => return None,
                [kind::NO_OPERATION, ..] => {
                    self.at += 1;
                    continue;
                }
                [kind, len, ..] => (kind, usize::from(len)),
                [kind] => (kind, 0),
            };
            let Some(bytes) = rest.get(..len).filter(|bytes| bytes.len() >= 2) else {
                self.at = self.header.len();
                return Some(Err(at));
            };
            self.at += len;
            return Some(Ok(Ipv4Option { kind, at, bytes }));
        }
    }
}

/// Options that may come once.
#[derive(Default)]
struct Seen {
    source_route: bool,
    record_route: bool,
    timestamp: bool,
}

impl Seen {
    /// The place of the byte at fault, if one is.
    fn check(&mut self, option: &Ipv4Option<'_>) -> Result<(), usize> {
        match option.kind {
            kind::LOOSE_SOURCE_ROUTE | kind::STRICT_SOURCE_ROUTE => {
                check_pointer(option, 3, 4)?;
                once(&mut self.source_route, option)
            }
            kind::RECORD_ROUTE => {
                once(&mut self.record_route, option)?;
                let pointer = check_pointer(option, 3, 4)?;
                check_room(option, pointer, 4)
            }
            kind::TIMESTAMP => {
                once(&mut self.timestamp, option)?;
                let pointer = check_pointer(option, 4, 5)?;
                check_timestamp(option, pointer)
            }
            kind::ROUTER_ALERT if option.len() < 4 => Err(option.at + 1),
            _ => Ok(()),
        }
    }
}

fn once(seen: &mut bool, option: &Ipv4Option<'_>) -> Result<(), usize> {
    if core::mem::replace(seen, true) {
        Err(option.at)
    } else {
        Ok(())
    }
}

/// The option's pointer, if option and pointer have the sizes they must have at least.
fn check_pointer(option: &Ipv4Option<'_>, min_len: usize, min: usize) -> Result<usize, usize> {
    if option.len() < min_len {
        return Err(option.at + 1);
    }
    option
        .pointer()
        .filter(|pointer| *pointer >= min)
        .ok_or(option.at + 2)
}

/// An option whose pointer lies behind it is full; one that is not full has room for a whole entry.
fn check_room(option: &Ipv4Option<'_>, pointer: usize, entry: usize) -> Result<(), usize> {
    let is_full = pointer > option.len();
    if is_full || pointer + entry - 1 <= option.len() {
        Ok(())
    } else {
        Err(option.at + 2)
    }
}

fn check_timestamp(option: &Ipv4Option<'_>, pointer: usize) -> Result<(), usize> {
    let (overflow, flag) = timestamp_flags(option);
    match flag {
        timestamp::WITH_ADDRESS | timestamp::PRESPECIFIED => check_room(option, pointer, 8)?,
        _ => check_room(option, pointer, 4)?,
    }
    // One more host that finds no room would overflow the count of such hosts.
    let is_full = pointer > option.len();
    if is_full && flag != timestamp::PRESPECIFIED && overflow == 15 {
        return Err(option.at + 3);
    }
    Ok(())
}

/// The two halves of a timestamp option's fourth byte: how many hosts found no room, and the flag.
fn timestamp_flags(option: &Ipv4Option<'_>) -> (u8, u8) {
    let byte = option.bytes.get(3).copied().unwrap_or(0);
    (byte >> 4, byte & 0xf)
}

fn record_route(option: &Ipv4Option<'_>, header: &mut [u8], own: Ipv4Addr) {
    let Some(pointer) = option
        .pointer()
        .filter(|pointer| pointer + 3 <= option.len())
    else {
        return;
    };
    put(header, option.place(pointer), &own.octets());
    advance(header, option, 4);
}

fn record_time(cx: &Context<'_>, option: &Ipv4Option<'_>, header: &mut [u8], own: Ipv4Addr) {
    let Some(pointer) = option.pointer() else {
        return;
    };
    let (overflow, flag) = timestamp_flags(option);
    let time = time_of_day(cx.now);
    let entry = option.place(pointer);
    let has_room = |bytes: usize| pointer + bytes - 1 <= option.len();
    match flag {
        timestamp::ONLY if has_room(4) => {
            put(header, entry, &time);
            advance(header, option, 4);
        }
        timestamp::WITH_ADDRESS if has_room(8) => {
            put(header, entry, &own.octets());
            put(header, entry + 4, &time);
            advance(header, option, 8);
        }
        timestamp::PRESPECIFIED if has_room(8) && is_own(cx, header.get(entry..entry + 4)) => {
            put(header, entry + 4, &time);
            advance(header, option, 8);
        }
        timestamp::PRESPECIFIED => {}
        _ if pointer > option.len() => {
            put(
                header,
                option.at + 3,
                &[overflow.wrapping_add(1) << 4 | flag],
            );
        }
        _ => {}
    }
}

fn advance(header: &mut [u8], option: &Ipv4Option<'_>, entry: u8) {
    if let Some(pointer) = header.get_mut(option.at + 2) {
        *pointer = pointer.wrapping_add(entry);
    }
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = header.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn v4(own: &InterfaceAddress) -> Option<Ipv4Addr> {
    match own.addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    }
}

fn is_own(cx: &Context<'_>, octets: Option<&[u8]>) -> bool {
    let octets: Option<[u8; 4]> = octets.and_then(|octets| octets.try_into().ok());
    let Some(addr) = octets.map(|octets| IpAddr::V4(octets.into())) else {
        return false;
    };
    let mut addresses = cx
        .view
        .interfaces
        .iter()
        .flat_map(|interface| &interface.addresses);
    addresses.any(|own| own.addr == addr)
}

/// Milliseconds, with the bit set that says: not since midnight UT (RFC 791 section 3.1). The stack
/// knows no date.
fn time_of_day(now: Instant) -> [u8; 4] {
    const NOT_SINCE_MIDNIGHT: u32 = 1 << 31;
    (now.as_millis() as u32 | NOT_SINCE_MIDNIGHT).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::bench::{Bench, OWN_V4, v4};
    use crate::wire::{checksum::checksum, protocol};

    fn check_options(options: &[u8]) -> Result<(), Refusal> {
        let mut bench = Bench::new();
        let packet = bench.packet(&v4(protocol::UDP, 1, 0, options, &[0; 8]));
        check(&packet)
    }

    #[test]
    fn faults_are_answered_with_the_place_of_the_byte() {
        const FINE: Result<(), u32> = Ok(());
        let table: &[(&str, &[u8], Result<(), u32>)] = &[
            ("end of list", &[0, 0, 0, 0], FINE),
            ("behind the end anything goes", &[0, 7, 1, 9], FINE),
            ("no-operations", &[1, 1, 1, 1], FINE),
            ("unknown", &[222, 4, 0, 0], FINE),
            ("security", &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], FINE),
            ("router alert", &[148, 4, 0, 0], FINE),
            ("short router alert", &[148, 3, 0, 0], Err(21)),
            ("length 0", &[222, 0, 0, 0], Err(20)),
            ("length 1", &[1, 222, 1, 0], Err(21)),
            ("length beyond the header", &[222, 5, 0, 0], Err(20)),
            ("no room for a length", &[1, 1, 1, 222], Err(23)),
            ("record route", &[7, 7, 4, 0, 0, 0, 0, 0], FINE),
            ("full record route", &[7, 7, 8, 9, 9, 9, 9, 0], FINE),
            (
                "record route, pointer 3",
                &[7, 7, 3, 0, 0, 0, 0, 0],
                Err(22),
            ),
            (
                "record route, pointer between",
                &[7, 7, 5, 0, 0, 0, 0, 0],
                Err(22),
            ),
            ("record route, too short", &[7, 2, 0, 0], Err(21)),
            ("record route, empty", &[7, 3, 4, 0], FINE),
            ("record route twice", &[7, 3, 4, 7, 3, 4, 0, 0], Err(23)),
            ("timestamp", &[68, 8, 5, 0, 0, 0, 0, 0], FINE),
            ("timestamp, pointer 4", &[68, 8, 4, 0, 0, 0, 0, 0], Err(22)),
            (
                "timestamp, pointer between",
                &[68, 8, 6, 0, 0, 0, 0, 0],
                Err(22),
            ),
            ("timestamp, too short", &[68, 3, 5, 0], Err(21)),
            ("timestamp twice", &[68, 4, 5, 0, 68, 4, 5, 0], Err(24)),
            (
                "timestamp with address, no room",
                &[68, 8, 5, 1, 0, 0, 0, 0],
                Err(22),
            ),
            ("timestamp, count full", &[68, 4, 5, 0xf0], Err(23)),
            (
                "timestamp, count full but names its hosts",
                &[68, 4, 5, 0xf3],
                FINE,
            ),
            ("bad source route", &[131, 3, 3, 0], Err(22)),
            ("two source routes", &[131, 3, 4, 137, 3, 4, 0, 0], Err(23)),
        ];
        for (name, options, expected) in table {
            let expected = match *expected {
                Ok(()) => Ok(()),
                Err(pointer) => Err(Refusal::told(
                    DropReason::IpOptions,
                    IcmpError::ParameterProblem { code: 0, pointer },
                )),
            };
            assert_eq!(check_options(options), expected, "{name}");
        }
    }

    #[test]
    fn source_routes_are_dropped_in_silence() {
        for kind in [131, 137] {
            for pointer in [4, 8] {
                let options = [kind, 7, pointer, 10, 0, 0, 9, 0];
                let dropped = Err(Refusal::silent(DropReason::SourceRoute));
                assert_eq!(check_options(&options), dropped);
            }
        }
    }

    #[test]
    fn addresses_and_times_are_written_where_they_are_asked_for() {
        let [a, b, c, d] = OWN_V4;
        // The bench's clock stands at 1,000 ms.
        let [t0, t1, t2, t3] = [0x80, 0, 3, 0xe8];
        let table: &[(&[u8], &[u8])] = &[
            (&[7, 7, 4, 0, 0, 0, 0, 0], &[7, 7, 8, a, b, c, d, 0]),
            (&[7, 7, 8, 9, 9, 9, 9, 0], &[7, 7, 8, 9, 9, 9, 9, 0]),
            (&[68, 8, 5, 0, 0, 0, 0, 0], &[68, 8, 9, 0, t0, t1, t2, t3]),
            (
                &[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
                &[68, 12, 13, 1, a, b, c, d, t0, t1, t2, t3],
            ),
            (
                &[68, 12, 5, 3, a, b, c, d, 0, 0, 0, 0],
                &[68, 12, 13, 3, a, b, c, d, t0, t1, t2, t3],
            ),
            (
                &[68, 12, 5, 3, 9, 9, 9, 9, 0, 0, 0, 0],
                &[68, 12, 5, 3, 9, 9, 9, 9, 0, 0, 0, 0],
            ),
            (&[68, 4, 5, 0x10], &[68, 4, 5, 0x20]),
            (&[148, 4, 0, 0], &[148, 4, 0, 0]),
        ];
        for (before, after) in table {
            let mut bench = Bench::new();
            let mut packet = bench.packet(&v4(protocol::UDP, 1, 0, before, &[0; 8]));
            bench.forward_options(&mut packet);
            let header_len = 20 + before.len();
            assert_eq!(packet.data()[20..header_len], **after);
            assert_eq!(checksum(&packet.data()[..header_len]), 0);
        }
    }

    proptest! {
        #[test]
        fn nonsense_does_not_panic(words in 0_usize..10, mut options: [u8; 40], likely: [u8; 6]) {
            // Now and then a type that is known.
            for (at, kind) in likely.iter().zip([7, 68, 131, 137, 148, 7]) {
                options[usize::from(*at) % 40] = kind;
            }
            let mut bench = Bench::new();
            let bytes = v4(protocol::UDP, 1, 0, &options[..words * 4], &[0; 8]);
            let mut packet = bench.packet(&bytes);
            let verdict = check(&packet);
            bench.forward_options(&mut packet);
            prop_assert_eq!(packet.total_len(), bytes.len());
            if verdict.is_ok() {
                prop_assert_eq!(check(&packet).is_ok(), !overflows(&packet));
            }
            if let Some(further) = for_further_fragments(&packet.data()[..20 + words * 4]) {
                prop_assert!(further.len() <= 20 + words * 4 && further.len() % 4 == 0);
            }
        }
    }

    /// A count that this very host has brought to its end is a fault for the next one.
    fn overflows(packet: &Packet) -> bool {
        let header = header(packet).unwrap();
        Options::new(header).flatten().any(|option| {
            let (overflow, flag) = timestamp_flags(&option);
            option.kind == kind::TIMESTAMP
                && overflow == 15
                && flag != timestamp::PRESPECIFIED
                && option
                    .pointer()
                    .is_some_and(|pointer| pointer > option.len())
        })
    }
}
