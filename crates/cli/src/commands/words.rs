//! The words of ip(8)'s command lines: keywords that may be cut short, addresses, prefixes.

use std::net::{IpAddr, Ipv4Addr};
use std::slice;

use clap::Args;

use crate::control::protocol::{Family, Network};

/// `-4` and `-6`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct FamilyArgs {
    /// IPv4.
    #[arg(short = '4', long = "ipv4", conflicts_with = "inet6")]
    inet: bool,

    /// IPv6.
    #[arg(short = '6', long = "ipv6")]
    inet6: bool,
}

impl FamilyArgs {
    /// The family asked for, if any.
    pub(crate) fn family(self) -> Option<Family> {
        match (self.inet, self.inet6) {
            (true, _) => Some(Family::Inet),
            (_, true) => Some(Family::Inet6),
            _ => None,
        }
    }
}

/// What is left of a command line.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a> {
    rest: slice::Iter<'a, String>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Self {
        Self { rest: words.iter() }
    }

    /// The next word.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    /// The word behind `keyword`.
    pub(crate) fn value(&mut self, keyword: &str) -> Result<&'a str, String> {
        self.next()
            .ok_or_else(|| format!("something must follow {keyword:?}"))
    }

    /// The number behind `keyword`.
    pub(crate) fn number(&mut self, keyword: &str) -> Result<u32, String> {
        let word = self.value(keyword)?;
        word.parse()
            .map_err(|_| format!("a number must follow {keyword:?}, not {word:?}"))
    }

    /// The address behind `keyword`.
    pub(crate) fn address(&mut self, keyword: &str) -> Result<IpAddr, String> {
        let word = self.value(keyword)?;
        word.parse()
            .map_err(|_| format!("an address must follow {keyword:?}, not {word:?}"))
    }

    /// The name of a table or its number behind `keyword`.
    pub(crate) fn table(&mut self, keyword: &str) -> Result<u32, String> {
        let word = self.value(keyword)?;
        let table = word.parse::<forebay::fib::TableId>();
        table.map(|table| table.0).map_err(|_| {
            format!(
                "a table must follow {keyword:?}: local, main, default or a number, not {word:?}"
            )
        })
    }
}

/// Which of `commands` is meant: the first that begins with `word`, as in ip(8).
pub(crate) fn command(word: &str, commands: &[&'static str]) -> Option<&'static str> {
    commands
        .iter()
        .find(|command| is_short_for(word, command))
        .copied()
}

/// Whether `word` is `whole` or its beginning.
pub(crate) fn is_short_for(word: &str, whole: &str) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

/// ADDRESS or ADDRESS/LENGTH. An IPv4 address before a length may leave out octets: `10/8`.
pub(crate) fn network(word: &str) -> Result<Network, String> {
    let invalid = || format!("{word:?} is neither an address nor ADDRESS/LENGTH");
    let Some((addr, len)) = word.split_once('/') else {
        let addr: IpAddr = word.parse().map_err(|_| invalid())?;
        return Ok(Network {
            addr,
            len: bits(addr),
        });
    };
    let addr = match addr.parse() {
        Ok(addr) => addr,
        Err(_) => short_ipv4(addr).map(IpAddr::V4).ok_or_else(invalid)?,
    };
    let len = len
        .parse()
        .ok()
        .filter(|len| *len <= bits(addr))
        .ok_or_else(|| {
            format!(
                "the length in {word:?} must be a number from 0 to {}",
                bits(addr)
            )
        })?;
    Ok(Network { addr, len })
}

/// The words for the prefix of everything.
pub(crate) fn is_everything(word: &str) -> bool {
    matches!(word, "default" | "all" | "any")
}

/// A prefix as iproute2 prints it.
pub(crate) fn print_prefix(prefix: &Network) -> String {
    match prefix.len {
        0 => "default".to_owned(),
        len if len == bits(prefix.addr) => prefix.addr.to_string(),
        len => format!("{}/{len}", prefix.addr),
    }
}

/// The family of all these addresses, or which disagree.
pub(crate) fn common_family(
    asked: Option<Family>,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<Option<Family>, String> {
    let mut family = asked;
    for addr in addresses {
        match (family, Family::of(addr)) {
            (Some(Family::Inet), Family::Inet6) => {
                return Err(format!("{addr} is IPv6, and the rest is IPv4"));
            }
            (Some(Family::Inet6), Family::Inet) => {
                return Err(format!("{addr} is IPv4, and the rest is IPv6"));
            }
            (_, found) => family = Some(found),
        }
    }
    Ok(family)
}

pub(crate) const fn bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn short_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut given = text.split('.');
    for octet in &mut octets {
        match given.next() {
            Some(number) => *octet = number.parse().ok()?,
            None => break,
        }
    }
    given.next().is_none().then(|| octets.into())
}

#[cfg(test)]
pub(crate) fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_be_cut_short() {
        let commands = ["list", "show", "add", "append", "delete"];
        for (word, expected) in [
            ("l", Some("list")),
            ("s", Some("show")),
            ("sh", Some("show")),
            ("a", Some("add")),
            ("ap", Some("append")),
            ("del", Some("delete")),
            ("delete", Some("delete")),
            ("deletes", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(command(word, &commands), expected, "{word:?}");
        }
    }

    #[test]
    fn networks_are_addresses_with_lengths() {
        for (word, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1/24", "10.0.0.1/24"),
            ("10/8", "10.0.0.0/8"),
            ("10.1/16", "10.1.0.0/16"),
            ("0/0", "default"),
            ("::/0", "default"),
            ("fd00::1", "fd00::1"),
            ("fd00::/8", "fd00::/8"),
            ("fd00::1/128", "fd00::1"),
        ] {
            assert_eq!(print_prefix(&network(word).unwrap()), expected, "{word:?}");
        }
        for bad in [
            "",
            "/",
            "10",
            "10/33",
            "10/-1",
            "1.2.3.4.5/8",
            "256/8",
            "::/129",
            "x/8",
            "10/",
        ] {
            network(bad).expect_err(bad);
        }
    }

    #[test]
    fn families_do_not_mix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(common_family(None, []), Ok(None));
        assert_eq!(common_family(None, [ip("::1")]), Ok(Some(Family::Inet6)));
        assert!(common_family(None, [ip("::1"), ip("10.0.0.1")]).is_err());
        assert!(common_family(Some(Family::Inet), [ip("::1")]).is_err());
    }
}
