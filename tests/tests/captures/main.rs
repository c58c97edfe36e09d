//! Public captures through the stack: every packet's verdict and reason, in a router and in a host.
//!
//! The captures are not part of this repository. The environment variable `FOREBAY_CAPTURES` names
//! the directory that has them; without it there is nothing to test. What is right for each packet
//! stands in `verdicts.txt`, with the reasons; the packets that are worth it are built by
//! hand in the tests called `distinctive`.

#![allow(clippy::panic, reason = "a test that cannot go on panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use forebay::device::pcap::{CaptureReader, NotIp, strip_link_header};
use forebay_tests::lab::{Lab, Role, Verdict};

mod table;
mod through_tun;

use table::{Expected, Place, Table};

/// The captures of the directory that the environment names, by name.
fn captures() -> Option<Vec<PathBuf>> {
    let Some(directory) = env::var_os("FOREBAY_CAPTURES") else {
        eprintln!("not tested: FOREBAY_CAPTURES names no directory of captures");
        return None;
    };
    let entries = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("FOREBAY_CAPTURES={}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect();
    paths.sort();
    Some(paths)
}

fn table() -> Table<'static> {
    Table::read(include_str!("verdicts.txt"))
}

fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("a capture's name is plain text")
}

/// The packets of a capture, or why a frame has none.
fn packets(path: &Path) -> Vec<Result<Vec<u8>, NotIp>> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut packets = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole capture") {
        packets.push(strip_link_header(record.link_type, record.data).map(<[u8]>::to_vec));
    }
    packets
}

#[test]
fn every_packet_meets_the_verdict_that_is_right() {
    let table = table();
    let Some(paths) = captures() else { return };
    let there: BTreeSet<&str> = paths.iter().map(|path| name_of(path)).collect();
    assert_eq!(there, table.captures(), "captures there, and in the table");

    let mut wrong = String::new();
    for role in Role::ALL {
        for early_demux in [0, 1] {
            for path in &paths {
                let expected = table.of(name_of(path), role);
                for (place, expected, found) in judge(role, early_demux, path, expected) {
                    let name = name_of(path);
                    let _ = writeln!(
                        wrong,
                        "{name} {place} {role:?} (early demux {early_demux}): {found}, not {expected}"
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Where a capture comes out otherwise than expected: expected, and found.
fn judge(
    role: Role,
    early_demux: i64,
    path: &Path,
    mut expected: BTreeMap<Place, Expected>,
) -> Vec<(Place, String, String)> {
    let mut lab = Lab::new(role);
    lab.rig.set("net.ipv4.ip_early_demux", early_demux);
    let mut found: BTreeMap<Place, Expected> = BTreeMap::new();
    let mut last = Vec::new();
    for (packet, number) in packets(path).into_iter().zip(1..) {
        let verdict = match packet {
            Ok(packet) => {
                let verdict = lab.meet(&packet);
                if verdict == Verdict::Held {
                    last = packet;
                }
                Expected::Verdict(verdict)
            }
            Err(reason) => Expected::NotIp(reason.to_string()),
        };
        found.insert(Place::Packet(number), verdict);
    }
    if let Some(verdict) = lab.time_out(&last) {
        found.insert(Place::End, Expected::Verdict(verdict));
    }
    lab.close();
    expected.retain(|place, verdict| *verdict != Expected::Nothing || found.contains_key(place));

    let places: BTreeSet<Place> = found.keys().chain(expected.keys()).copied().collect();
    let text =
        |verdict: Option<&Expected>| verdict.map_or("nothing".to_owned(), Expected::to_string);
    places
        .into_iter()
        .filter(|place| found.get(place) != expected.get(place))
        .map(|place| (place, text(expected.get(&place)), text(found.get(&place))))
        .collect()
}
