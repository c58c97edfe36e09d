//! iproute2's words for kinds, scopes, protocols and tables.

use std::fmt;
use std::str::FromStr;

use super::route::{Protocol, RouteKind, Scope, TableId};

const KINDS: &[(RouteKind, &str)] = &[
    (RouteKind::Unicast, "unicast"),
    (RouteKind::Local, "local"),
    (RouteKind::Broadcast, "broadcast"),
    (RouteKind::Multicast, "multicast"),
    (RouteKind::Blackhole, "blackhole"),
    (RouteKind::Unreachable, "unreachable"),
    (RouteKind::Prohibit, "prohibit"),
];

const SCOPES: &[(Scope, &str)] = &[
    (Scope::Universe, "global"),
    (Scope::Site, "site"),
    (Scope::Link, "link"),
    (Scope::Host, "host"),
];

const PROTOCOLS: &[(Protocol, &str)] = &[
    (Protocol::KERNEL, "kernel"),
    (Protocol::BOOT, "boot"),
    (Protocol::STATIC, "static"),
    (Protocol(0), "unspec"),
    (Protocol(1), "redirect"),
    (Protocol(9), "ra"),
    (Protocol(16), "dhcp"),
    (Protocol(186), "bgp"),
    (Protocol(187), "isis"),
    (Protocol(188), "ospf"),
    (Protocol(189), "rip"),
];

const TABLES: &[(TableId, &str)] = &[
    (TableId::LOCAL, "local"),
    (TableId::MAIN, "main"),
    (TableId::DEFAULT, "default"),
];

/// A word that names nothing of the sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {word:?}")]
pub struct UnknownName {
    what: &'static str,
    word: String,
}

fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> Option<&'static str> {
    let found = names.iter().find(|(named, _)| named == value);
    found.map(|(_, name)| *name)
}

fn named<T: Copy>(
    names: &[(T, &'static str)],
    what: &'static str,
    word: &str,
) -> Result<T, UnknownName> {
    let found = names.iter().find(|(_, name)| *name == word);
    found.map(|(value, _)| *value).ok_or_else(|| UnknownName {
        what,
        word: word.to_owned(),
    })
}

impl fmt::Display for RouteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(KINDS, self).unwrap_or_default())
    }
}

impl FromStr for RouteKind {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        named(KINDS, "route type", word)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(SCOPES, self).unwrap_or_default())
    }
}

impl FromStr for Scope {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        named(SCOPES, "scope", word)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(PROTOCOLS, self) {
            Some(name) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for Protocol {
    type Err = UnknownName;

    /// A name or a number from 0 to 255.
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        match word.parse() {
            Ok(number) => Ok(Protocol(number)),
            Err(_) => named(PROTOCOLS, "protocol", word),
        }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(TABLES, self) {
            Some(name) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for TableId {
    type Err = UnknownName;

    /// A name or a number.
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        match word.parse() {
            Ok(number) => Ok(TableId(number)),
            Err(_) => named(TABLES, "table", word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (kind, name) in KINDS {
            assert_eq!(name.parse(), Ok(*kind));
            assert_eq!(kind.to_string(), *name);
        }
        for (table, name) in TABLES {
            assert_eq!(name.parse(), Ok(*table));
            assert_eq!(table.to_string(), *name);
        }
        assert_eq!("100".parse(), Ok(TableId(100)));
        assert_eq!(TableId(100).to_string(), "100");
        assert_eq!("186".parse(), Ok(Protocol(186)));
        assert_eq!(Protocol(186).to_string(), "bgp");
        assert_eq!(Protocol(99).to_string(), "99");
        assert_eq!("global".parse(), Ok(Scope::Universe));
        let error = "nowhere"
            .parse::<Scope>()
            .map_err(|error| error.to_string());
        assert_eq!(error, Err("unknown scope \"nowhere\"".to_owned()));
    }
}
