//! Which sources of a group are wanted (RFC 3376 section 2).

use core::net::IpAddr;
use std::collections::BTreeSet;

/// How a list of sources is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMode {
    /// These are wanted (`MCAST_INCLUDE`).
    Include,
    /// All but these are wanted (`MCAST_EXCLUDE`).
    Exclude,
}

/// Sources of a group that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFilter {
    pub(crate) mode: SourceMode,
    pub(crate) sources: BTreeSet<IpAddr>,
}

impl SourceFilter {
    /// None: who has not joined the group.
    pub(super) const NOTHING: Self = Self {
        mode: SourceMode::Include,
        sources: BTreeSet::new(),
    };

    /// Any: who has joined the group as such.
    pub(crate) const EVERYTHING: Self = Self {
        mode: SourceMode::Exclude,
        sources: BTreeSet::new(),
    };

    /// This one alone.
    pub(crate) fn only(source: IpAddr) -> Self {
        Self {
            mode: SourceMode::Include,
            sources: BTreeSet::from([source]),
        }
    }

    pub(crate) fn allows(&self, source: IpAddr) -> bool {
        (self.mode == SourceMode::Include) == self.sources.contains(&source)
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.mode == SourceMode::Include && self.sources.is_empty()
    }
}
