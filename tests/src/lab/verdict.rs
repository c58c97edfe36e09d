//! What can become of a packet, and how it is written in a table.

use std::fmt;
use std::str::FromStr;

use forebay_stack::drop::DropReason;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It left by the other interface, one hop older: unchanged otherwise if in one piece, or else
    /// in so many.
    Forwarded(usize),
    /// A socket has so many bytes of it.
    Delivered(usize),
    /// It was a request, and this is the answer.
    Answered(Told),
    /// It waits for the other fragments of its datagram.
    Held,
    /// It has done its work, and nothing is to be seen of it.
    Consumed,
    /// It was dropped, and as many other fragments with it as this number says.
    Dropped(DropReason, u64),
    /// The same, and its sender was told.
    Rejected(DropReason, u64, Told),
}

/// What its sender was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// An ICMP or ICMPv6 message of this type and code.
    Icmp(u8, u8),
    /// A TCP reset.
    Reset,
}

/// Text that names no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVerdict(String);

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |n: u64| {
            if n == 1 {
                String::new()
            } else {
                format!(" x{n}")
            }
        };
        match self {
            Self::Forwarded(1) => f.write_str("forwarded"),
            Self::Forwarded(pieces) => write!(f, "forwarded x{pieces}"),
            Self::Delivered(len) => write!(f, "delivered {len}"),
            Self::Answered(told) => write!(f, "answered {told}"),
            Self::Held => f.write_str("held"),
            Self::Consumed => f.write_str("consumed"),
            Self::Dropped(reason, n) => write!(f, "dropped {}{}", reason.name(), times(*n)),
            Self::Rejected(reason, n, told) => {
                write!(f, "rejected {}{} {told}", reason.name(), times(*n))
            }
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Icmp(kind, code) => write!(f, "icmp {kind}/{code}"),
            Self::Reset => f.write_str("reset"),
        }
    }
}

impl FromStr for Verdict {
    type Err = UnknownVerdict;

    fn from_str(text: &str) -> Result<Self, UnknownVerdict> {
        parse(text).ok_or_else(|| UnknownVerdict(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Verdict> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(match words[..] {
        ["forwarded"] => Verdict::Forwarded(1),
        ["forwarded", pieces] => Verdict::Forwarded(pieces.strip_prefix('x')?.parse().ok()?),
        ["delivered", len] => Verdict::Delivered(len.parse().ok()?),
        ["answered", ref told @ ..] => Verdict::Answered(parse_told(told)?),
        ["held"] => Verdict::Held,
        ["consumed"] => Verdict::Consumed,
        ["dropped", reason, ref times @ ..] => {
            Verdict::Dropped(parse_reason(reason)?, parse_times(times.first())?)
        }
        ["rejected", reason, ref rest @ ..] => {
            let times = rest.first().filter(|word| word.starts_with('x'));
            let told = &rest[usize::from(times.is_some())..];
            Verdict::Rejected(
                parse_reason(reason)?,
                parse_times(times)?,
                parse_told(told)?,
            )
        }
        _ => return None,
    })
}

fn parse_reason(name: &str) -> Option<DropReason> {
    let mut reasons = DropReason::ALL.iter();
    reasons.find(|reason| reason.name() == name).copied()
}

fn parse_times(word: Option<&&str>) -> Option<u64> {
    word.map_or(Some(1), |word| word.strip_prefix('x')?.parse().ok())
}

fn parse_told(words: &[&str]) -> Option<Told> {
    match words {
        ["reset"] => Some(Told::Reset),
        ["icmp", message] => {
            let (kind, code) = message.split_once('/')?;
            Some(Told::Icmp(kind.parse().ok()?, code.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_as_they_are_written() {
        for text in [
            "forwarded",
            "forwarded x5",
            "delivered 0",
            "answered icmp 129/0",
            "held",
            "consumed",
            "dropped FragOverlap x4",
            "dropped IpCsum",
            "rejected IpNoProto icmp 3/2",
            "rejected TcpNoSocket reset",
            "rejected FragTimeout x5 icmp 11/1",
        ] {
            let verdict: Verdict = text.parse().expect(text);
            assert_eq!(verdict.to_string(), text);
        }
        for text in [
            "",
            "dropped",
            "dropped Whim",
            "rejected IpCsum",
            "answered",
            "held x2",
        ] {
            assert!(text.parse::<Verdict>().is_err(), "{text}");
        }
    }
}
