//! The table of expected verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use forebay_tests::lab::{Role, Verdict};

/// Which packet of a capture a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The first is 1, as tools that show captures count.
    Packet(usize),
    /// Behind the last, when the fragments that are left over time out.
    End,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(number) => write!(f, "packet {number}"),
            Self::End => f.write_str("at the end"),
        }
    }
}

/// What is to become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The stack's verdict.
    Verdict(Verdict),
    /// No packet comes so far, and why.
    NotIp(String),
    /// At the end, nothing is left over.
    Nothing,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::NotIp(why) => write!(f, "not ip: {why}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// All lines: capture, place, and what a router and a host make of it.
pub(crate) struct Table<'a>(BTreeMap<&'a str, BTreeMap<Place, [Expected; 2]>>);

impl<'a> Table<'a> {
    /// Reads the text of the table.
    pub(crate) fn read(text: &'a str) -> Self {
        let mut captures: BTreeMap<&str, BTreeMap<Place, [Expected; 2]>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split("  ").map(str::trim).collect();
            let columns: Vec<&str> = columns
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
            let (capture, places, verdicts) = match columns[..] {
                [] => continue,
                [capture, places, router, host] => (capture, places, [router, host]),
                [capture, places, both] => {
                    let both = both.strip_prefix("= ").expect(line);
                    (capture, places, [both, both])
                }
                _ => panic!("{line:?} has not the columns of the table"),
            };
            let lines = captures.entry(capture).or_default();
            for place in read_places(places) {
                let again = lines.insert(place, verdicts.map(read_expected));
                assert!(again.is_none(), "{capture}: {place} stands twice");
            }
        }
        Self(captures)
    }

    /// The captures that the table knows.
    pub(crate) fn captures(&self) -> BTreeSet<&'a str> {
        self.0.keys().copied().collect()
    }

    /// How many packets a router passes on.
    pub(crate) fn forwarded(&self) -> u64 {
        let verdicts = self.0.values().flat_map(BTreeMap::values);
        let forwarded =
            verdicts.filter(|[router, _]| *router == Expected::Verdict(Verdict::Forwarded(1)));
        forwarded.count() as u64
    }

    /// What is to become of a capture's packets.
    pub(crate) fn of(&self, capture: &str, role: Role) -> BTreeMap<Place, Expected> {
        let column = match role {
            Role::Router => 0,
            Role::Host => 1,
        };
        let lines = self.0[capture].iter();
        lines
            .map(|(place, verdicts)| (*place, verdicts[column].clone()))
            .collect()
    }
}

/// Numbers and ranges of numbers, separated by commas; or `end`.
fn read_places(text: &str) -> Vec<Place> {
    if text == "end" {
        return vec![Place::End];
    }
    let number = |text: &str| -> usize { text.parse().expect(text) };
    text.split(',')
        .flat_map(|part| match part.split_once('-') {
            Some((first, last)) => number(first)..=number(last),
            None => number(part)..=number(part),
        })
        .map(Place::Packet)
        .collect()
}

fn read_expected(text: &str) -> Expected {
    match text.strip_prefix("not ip: ") {
        Some(why) => Expected::NotIp(why.to_owned()),
        None if text == "nothing" => Expected::Nothing,
        None => Expected::Verdict(text.parse().unwrap_or_else(|error| panic!("{error:?}"))),
    }
}
