//! What was measured, on one screen.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use forebay::core::trace::EarlyDemux;
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::numbers::{bytes, counted, grouped};
use crate::playback::{Capture, Fate, Measured, STAGES, Told, early_word, median, quartiles};

const EARLY_DEMUX: &str = "net.ipv4.ip_early_demux";
/// Packets are named up to so many ranges.
const NAMED: usize = 8;

/// Everything that is told.
pub(super) struct Report<'c> {
    pub(super) capture: &'c Capture,
    /// Connected sockets, and flows that got none.
    pub(super) sockets: usize,
    pub(super) refused: usize,
    pub(super) clock: Clock,
    /// One, or the two that are compared.
    pub(super) columns: Vec<Column>,
}

/// A setting.
pub(super) struct Column {
    pub(super) knob: Option<(String, String)>,
    pub(super) told: Vec<Told>,
    pub(super) measured: Measured,
}

impl Report<'_> {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        self.write_capture(out)?;
        if let Some((knob, _)) = self.columns.iter().find_map(|column| column.knob.as_ref()) {
            let value = |column: &Column| column.value().to_owned();
            self.row(out, knob, value)?;
        }
        writeln!(out, "\nof one pass, packets")?;
        for (name, count) in self.fates() {
            self.row(out, &format!("  {name}"), |column| {
                grouped(count(column) as u64)
            })?;
        }
        writeln!(out, "\nns a packet")?;
        self.row(out, "  median", |column| format!("{:.1}", column.ns()))?;
        self.row(out, "  quartiles", |column| {
            let [low, _, high] = quartiles(&column.measured.all());
            format!("{low:.1}-{high:.1}")
        })?;
        if self
            .columns
            .iter()
            .any(|column| column.measured.left_out > 0)
        {
            self.row(out, "  interrupted batches, left out", |column| {
                let Measured {
                    left_out, batches, ..
                } = column.measured;
                format!("{} of {}", grouped(left_out), grouped(batches))
            })?;
        }
        for (index, (_, name)) in STAGES.iter().enumerate() {
            self.row(out, &format!("    {name}"), |column| {
                format!("{:.1}", column.stage(index))
            })?;
        }
        if self.clock.cycles(1.0).is_some() {
            self.row(out, "cycles a packet", |column| {
                let cycles = self.clock.cycles(column.ns());
                format!("{:.0}", cycles.unwrap_or_default())
            })?;
        }
        self.row(out, "million packets a second", |column| {
            format!("{:.2}", 1_000.0 / column.ns())
        })?;
        writeln!(out)?;
        if let [first, second] = self.columns.as_slice() {
            self.write_touched(out, first, second)?;
        }
        writeln!(out, "{}", self.sentence())
    }

    /// What is in the file, and who takes it.
    fn write_capture(&self, out: &mut String) -> fmt::Result {
        let frames = &self.capture.frames;
        let packets: Vec<&[u8]> = self.capture.packets().map(|(_, packet)| packet).collect();
        let of_version = |version: u8| {
            let is_it = |packet: &&&[u8]| packet.first().is_some_and(|byte| byte >> 4 == version);
            grouped(packets.iter().filter(is_it).count() as u64)
        };
        let size: usize = packets.iter().map(|packet| packet.len()).sum();
        writeln!(
            out,
            "{}: {} of IP ({} IPv4, {} IPv6), {}",
            self.capture.name,
            counted(packets.len() as u64, "packet"),
            of_version(4),
            of_version(6),
            bytes(size as u64)
        )?;
        let not_ip = frames.len() - packets.len();
        if not_ip > 0 {
            writeln!(
                out,
                "{} without an IP packet: passed over",
                counted(not_ip as u64, "frame")
            )?;
        }
        let cut = frames.iter().filter(|frame| frame.is_cut).count();
        if cut > 0 {
            writeln!(
                out,
                "{} cut by the capture: too short for their headers",
                counted(cut as u64, "packet")
            )?;
        }
        if self.sockets > 0 {
            writeln!(
                out,
                "{} connected for the UDP flows to this host",
                counted(self.sockets as u64, "socket")
            )?;
        }
        if self.refused > 0 {
            writeln!(
                out,
                "{} to this host without a socket: none could be connected so",
                counted(self.refused as u64, "UDP flow")
            )?;
        }
        writeln!(out)
    }

    fn row(&self, out: &mut String, name: &str, cell: impl Fn(&Column) -> String) -> fmt::Result {
        write!(out, "{name:<40}")?;
        for column in &self.columns {
            write!(out, "{:>16}", cell(column))?;
        }
        writeln!(out)
    }

    /// What became of packets under any setting, by name.
    fn fates(&self) -> Vec<(String, impl Fn(&Column) -> usize)> {
        let mut names: Vec<(u8, String)> = Vec::new();
        for told in self.columns.iter().flat_map(|column| &column.told) {
            names.extend(fate_name(told.fate));
            names.extend(told.early_demux().and_then(early_name));
        }
        names.sort();
        names.dedup();
        let counter = |(_, name): (u8, String)| {
            let wanted = name.clone();
            let count = move |column: &Column| {
                let is = |told: &&Told| {
                    let early = told.early_demux().and_then(early_name);
                    let names = [fate_name(told.fate), early];
                    names.iter().flatten().any(|(_, name)| *name == wanted)
                };
                column.told.iter().filter(is).count()
            };
            (name, count)
        };
        names.into_iter().map(counter).collect()
    }

    fn write_touched(&self, out: &mut String, first: &Column, second: &Column) -> fmt::Result {
        let differing = first.differing(second);
        let same = match differing.is_empty() {
            true => "The same became of every packet under both.".to_owned(),
            false => format!(
                "Something else became of {}: {}.",
                counted(differing.len() as u64, "packet"),
                ranges(&differing)
            ),
        };
        writeln!(out, "{same}")?;
        let looked_for = first.looked_for_otherwise(second);
        if !looked_for.is_empty() {
            writeln!(
                out,
                "Their sockets were looked for otherwise: {}.",
                ranges(&looked_for)
            )?;
        }
        if !differing.is_empty() || !looked_for.is_empty() {
            writeln!(out, "(`forebay trace --number N` tells a packet's story.)")?;
        }
        writeln!(out)
    }

    /// All of it in one sentence.
    fn sentence(&self) -> String {
        match self.columns.as_slice() {
            [first, second] => compared(first, second),
            [one, ..] => format!(
                "This traffic takes {:.1} ns a packet (give or take {:.1} %), {:.2} million packets a second on one core.",
                one.ns(),
                one.measured.noise() * 100.0,
                1_000.0 / one.ns()
            ),
            [] => String::new(),
        }
    }

    /// For programs: an object a setting.
    pub(super) fn json(&self) -> String {
        let first = self.columns.first();
        let objects = self.columns.iter().map(|column| {
            let mut object = column.json();
            object.insert("bench".to_owned(), "replay".into());
            object.insert("file".to_owned(), self.capture.name.as_str().into());
            object.insert("sockets".to_owned(), self.sockets.into());
            let cycles = self.clock.cycles(column.ns());
            let cycles = cycles.map(|cycles| rounded(cycles, 1));
            object.insert("cycles".to_owned(), cycles.into());
            if let Some(first) = first.filter(|_| self.columns.len() == 2) {
                let ratio = column.ns() / first.ns();
                object.insert("ratio".to_owned(), rounded(ratio, 4));
                object.insert("differing".to_owned(), column.differing(first).into());
            }
            format!("{}\n", Value::Object(object))
        });
        objects.collect()
    }
}

fn compared(first: &Column, second: &Column) -> String {
    let Some((knob, value)) = &second.knob else {
        return String::new();
    };
    let other = first.value();
    let change = second.ns() / first.ns() - 1.0;
    let noise = first.measured.noise().max(second.measured.noise());
    let percent = |fraction: f64| format!("{:.1} %", fraction.abs() * 100.0);
    let (costs, noise) = (if change < 0.0 { "saves" } else { "costs" }, noise);
    let how = match change.abs() <= noise {
        true => format!("within the noise of {}", percent(noise)),
        false => format!("beyond the noise of {}", percent(noise)),
    };
    let effect = match knob.as_str() {
        EARLY_DEMUX => early_effect([first, second]),
        _ => match first.differing(second).len() {
            0 => "it changes what becomes of no packet".to_owned(),
            differing => format!(
                "it changes what becomes of {} of {}",
                grouped(differing as u64),
                counted(second.packets() as u64, "packet")
            ),
        },
    };
    format!(
        "For this traffic, {knob}={value} {costs} {} against {other} ({how}); {effect}.",
        percent(change)
    )
}

/// Whichever setting looks for sockets.
fn early_effect(columns: [&Column; 2]) -> String {
    let found = |column: &Column| {
        let early = column.told.iter().filter_map(Told::early_demux);
        early
            .filter(|early| matches!(early, EarlyDemux::Hit(_) | EarlyDemux::Stale(_)))
            .count()
    };
    let most = columns.map(found).into_iter().max().unwrap_or(0);
    let packets = counted(columns[0].packets() as u64, "packet");
    match most {
        0 => format!("it finds the socket of none of {packets}"),
        _ => format!(
            "it finds the socket of {} of {packets}",
            grouped(most as u64)
        ),
    }
}

impl Column {
    fn value(&self) -> &str {
        self.knob.as_ref().map_or("", |(_, value)| value)
    }

    fn ns(&self) -> f64 {
        median(&self.measured.all())
    }

    fn stage(&self, index: usize) -> f64 {
        self.measured
            .stages
            .get(index)
            .map_or(0.0, |stage| median(stage))
    }

    fn packets(&self) -> usize {
        let packets = self.told.iter().filter(|told| told.fate != Fate::NotIp);
        packets.count()
    }

    /// Numbers of the packets that something else became of.
    fn differing(&self, other: &Self) -> Vec<usize> {
        let pairs = self.told.iter().zip(&other.told);
        let differing = pairs.filter(|(one, other)| !one.same_outcome(other));
        differing.map(|(told, _)| told.number).collect()
    }

    /// Numbers of the packets whose sockets were looked for otherwise.
    fn looked_for_otherwise(&self, other: &Self) -> Vec<usize> {
        let kind = |told: &Told| told.early_demux().and_then(early_name);
        let pairs = self.told.iter().zip(&other.told);
        let otherwise = pairs.filter(|(one, other)| kind(one) != kind(other));
        otherwise.map(|(told, _)| told.number).collect()
    }

    fn json(&self) -> Map<String, Value> {
        let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut drops: BTreeMap<&str, u64> = BTreeMap::new();
        let mut early: BTreeMap<&str, u64> = BTreeMap::new();
        for told in &self.told {
            *verdicts.entry(told.fate.word()).or_default() += 1;
            if let Some(reason) = told.fate.reason() {
                *drops.entry(reason.name()).or_default() += 1;
            }
            let tried = |look: &EarlyDemux| !matches!(look, EarlyDemux::NotTried(_));
            if let Some(look) = told.early_demux().filter(tried) {
                *early.entry(early_word(look)).or_default() += 1;
            }
        }
        let stages = STAGES
            .iter()
            .enumerate()
            .map(|(index, (_, name))| ((*name).to_owned(), rounded(self.stage(index), 2)));
        let stages: Map<String, Value> = stages.collect();
        let [low, middle, high] = quartiles(&self.measured.all());
        let mut object = Map::new();
        if let Some((knob, value)) = &self.knob {
            object.insert("compare".to_owned(), knob.as_str().into());
            object.insert("value".to_owned(), value.as_str().into());
        }
        for (key, value) in [
            ("packets", self.packets().into()),
            ("measured", self.measured.packets.into()),
            ("batches", self.measured.batches.into()),
            ("left_out", self.measured.left_out.into()),
            ("ns", rounded(middle, 2)),
            ("mpps", rounded(1_000.0 / middle, 3)),
            ("spread", rounded((high - low) / middle, 4)),
            ("noise", rounded(self.measured.noise(), 4)),
            ("stages", stages.into()),
            ("verdicts", json!(verdicts)),
            ("drops", json!(drops)),
            ("early_demux", json!(early)),
        ] {
            object.insert(key.to_owned(), value);
        }
        object
    }
}

fn rounded(number: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    ((number * scale).round() / scale).into()
}

/// What a row is called, and where it stands.
fn fate_name(fate: Fate) -> Option<(u8, String)> {
    Some(match fate {
        Fate::Forwarded => (0, "forwarded".to_owned()),
        Fate::Delivered => (1, "delivered".to_owned()),
        Fate::Held => (2, "held for more fragments".to_owned()),
        Fate::Dropped(reason) => (3, format!("dropped: {}", reason.name())),
        Fate::Rejected(reason) => (4, format!("rejected: {}", reason.name())),
        Fate::NotIp => return None,
    })
}

fn early_name(early: EarlyDemux) -> Option<(u8, String)> {
    let name = match early {
        EarlyDemux::Hit(_) => "early demux: socket and route",
        EarlyDemux::Stale(_) => "early demux: socket, route looked up",
        EarlyDemux::Miss => "early demux: no connected socket",
        EarlyDemux::NotTried(_) => return None,
    };
    Some((5, name.to_owned()))
}

/// `1-3, 7, 9-12 and 40 more`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let named = ranges
        .iter()
        .take(NAMED)
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
    let named: Vec<_> = named.collect();
    let rest: usize = ranges
        .iter()
        .skip(NAMED)
        .map(|(first, last)| last - first + 1)
        .sum();
    match rest {
        0 => named.join(", "),
        rest => format!("{} and {} more", named.join(", "), grouped(rest as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
        let even: Vec<usize> = (1..=20).map(|number| number * 2).collect();
        assert_eq!(ranges(&even), "2, 4, 6, 8, 10, 12, 14, 16 and 12 more");
    }
}
