//! Quantities as people write them: `"10ms"`, `"1%"`, `"10mbit"`, `"10.9.0.1/24"`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use super::problem::Problem;
use super::reader::{Read, Value, text};

/// An address and the length of a prefix: an interface's address with its network, or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) addr: IpAddr,
    /// 0 to 32 or 128 bits.
    pub(crate) len: u8,
}

/// A probability, written in per cent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Percent {
    /// 0 to 1.
    pub(crate) fraction: f64,
}

/// Bits a second, written as tc(8) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitRate(pub(crate) u64);

const DURATIONS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3_600.0),
];

const BIT_RATES: &[(&str, f64)] = &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];

/// Reads a span of time: a number and a unit, or a bare number of seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let seconds = text.parse().ok().or_else(|| with_unit(text, DURATIONS))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A number and one of the units, multiplied.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let number: f64 = number.trim_end().parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * factor).filter(|product| product.is_finite() && *product >= 0.0)
}

impl Net {
    /// The network alone: the address with what is behind the prefix cleared.
    pub(crate) fn masked(self) -> Self {
        let len = u32::from(self.len);
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let host = u32::MAX.checked_shr(len).unwrap_or(0);
                IpAddr::from(Ipv4Addr::from_bits(addr.to_bits() & !host))
            }
            IpAddr::V6(addr) => {
                let host = u128::MAX.checked_shr(len).unwrap_or(0);
                IpAddr::from(Ipv6Addr::from_bits(addr.to_bits() & !host))
            }
        };
        Self { addr, ..self }
    }

    /// The bits of an address of this family.
    fn bits(addr: IpAddr) -> u8 {
        if addr.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl FromStr for Net {
    type Err = ();

    /// Without a length it is the address alone.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(drop)?;
        let bits = Self::bits(addr);
        let len = len.map_or(Ok(bits), str::parse).map_err(drop)?;
        if len > bits {
            return Err(());
        }
        Ok(Self { addr, len })
    }
}

impl Read for Net {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let expected = "an address and its prefix length, at most 32 (IPv4) or 128 (IPv6): \
                        \"10.9.0.1/24\", \"fd09::1/64\"";
        text(value, expected, |text| text.parse().ok())
    }
}

impl Read for Duration {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let expected = "a time with its unit (\"250us\", \"10ms\", \"1.5s\")";
        text(value, expected, |text| {
            Duration::try_from_secs_f64(with_unit(text, DURATIONS)?).ok()
        })
    }
}

impl Read for Percent {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        text(value, "a share from \"0%\" to \"100%\"", |text| {
            let number: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
            let fraction = number / 100.0;
            (0.0..=1.0).contains(&fraction).then_some(Self { fraction })
        })
    }
}

impl Read for BitRate {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let expected = "bits a second, more than none: \"64kbit\", \"10mbit\", \"2.5gbit\"";
        text(value, expected, |text| {
            let bits = with_unit(text, BIT_RATES)?;
            // Far above any device, and exact as a float.
            let bits = Some(bits.round()).filter(|bits| (1.0..1e15).contains(bits))?;
            Some(Self(bits as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_a_unit_or_are_seconds() {
        let cases = [
            ("2", Some(Duration::from_secs(2))),
            ("0.5", Some(Duration::from_millis(500))),
            ("10ms", Some(Duration::from_millis(10))),
            ("1.5 s", Some(Duration::from_millis(1_500))),
            ("250us", Some(Duration::from_micros(250))),
            ("7ns", Some(Duration::from_nanos(7))),
            ("2min", Some(Duration::from_secs(120))),
            ("1h", Some(Duration::from_secs(3_600))),
            ("", None),
            ("ms", None),
            ("10 parsecs", None),
            ("-1s", None),
            ("-1", None),
            ("1e300h", None),
            ("nan", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn networks_have_lengths_that_fit() {
        for good in ["10.0.0.1/24", "10.0.0.0/0", "::/0", "fd09::1/128"] {
            let net: Net = good.parse().expect(good);
            assert_eq!(net.to_string(), good);
        }
        let host: Net = "10.0.0.1".parse().expect("a host");
        assert_eq!(host.to_string(), "10.0.0.1/32");
        for bad in [
            "",
            "/8",
            "10.0.0.1/33",
            "::/129",
            "10.0.0.1/",
            "10.0.0.1/-1",
            "a/8",
        ] {
            assert!(bad.parse::<Net>().is_err(), "{bad:?}");
        }
    }
}
