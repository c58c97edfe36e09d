//! How values are written.

use core::fmt::Write as _;

use super::{Definition, Knob, Place, port_range, unpack_ports};
use crate::tcp::Algorithm;

/// The algorithms, by their number in a knob's value.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr];

/// How a value is written.
enum Format {
    Number,
    PortRange,
    Algorithm,
}

impl Place {
    /// What is kept of a number that was written.
    fn round(&self, value: i64) -> i64 {
        match self {
            // No more than 2^29, so there is a power of two.
            Self::Stack(Knob::RpsSockFlowEntries) if value > 0 => {
                value.unsigned_abs().next_power_of_two().cast_signed()
            }
            _ => value,
        }
    }

    fn format(&self) -> Format {
        match self {
            Self::Stack(Knob::IpLocalPortRange) => Format::PortRange,
            Self::Stack(Knob::TcpCongestionControl) => Format::Algorithm,
            _ => Format::Number,
        }
    }

    pub(super) fn parse(&self, text: &str) -> Option<i64> {
        match self.format() {
            Format::PortRange => {
                let mut ports = text.split_whitespace().map(str::parse::<u16>);
                let (first, last) = (ports.next()?.ok()?, ports.next()?.ok()?);
                let is_range = first >= 1 && first <= last && ports.next().is_none();
                is_range.then(|| port_range(first, last))
            }
            Format::Algorithm => {
                let mut numbered = (0..).zip(ALGORITHMS);
                let found = numbered.find(|(_, algorithm)| algorithm.name() == text.trim());
                found.map(|(number, _)| number)
            }
            Format::Number => {
                let Definition { min, max, .. } = *self.definition();
                text.trim()
                    .parse()
                    .ok()
                    .filter(|value| (min..=max).contains(value))
                    .map(|value| self.round(value))
            }
        }
    }

    pub(super) fn print(&self, value: i64) -> String {
        match self.format() {
            Format::PortRange => {
                let (first, last) = unpack_ports(value);
                format!("{first}\t{last}")
            }
            Format::Algorithm => algorithm(value).name().to_owned(),
            Format::Number => value.to_string(),
        }
    }

    pub(super) fn expected(&self) -> String {
        match self.format() {
            Format::PortRange => {
                return "two ports, the first not above the last (\"32768 60999\")".to_owned();
            }
            Format::Algorithm => {
                let names = ALGORITHMS.map(Algorithm::name);
                return format!("one of {}", names.join(", "));
            }
            Format::Number => {}
        }
        let Definition { min, max, .. } = *self.definition();
        let mut text = format!("a number from {min}");
        let _ = match max {
            i64::MAX => write!(text, " up"),
            _ => write!(text, " to {max}"),
        };
        text
    }
}

/// The algorithm of that number.
pub(super) fn algorithm(value: i64) -> Algorithm {
    let index = usize::try_from(value).unwrap_or_default();
    ALGORITHMS.get(index).copied().unwrap_or_default()
}

/// The names of all algorithms.
pub(super) fn available_algorithms() -> String {
    ALGORITHMS.map(Algorithm::name).join(" ")
}
