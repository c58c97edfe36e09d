//! One group on one interface, as routers hear of it.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use crate::multicast::message::{Record, RecordKind};
use crate::multicast::source_filter::{SourceFilter, SourceMode};
use crate::time::Instant;

/// A group's state and what is still to be said of it.
#[derive(Debug)]
pub(super) struct Group {
    /// What the interface wants.
    filter: SourceFilter,
    /// Version 3: how often the mode is still to be reported as changed.
    mode_change: u8,
    /// Version 3: how often each source is still to be reported as allowed or blocked.
    source_changes: BTreeMap<IpAddr, u8>,
    /// When a querier is to be answered, or in older versions, when the group is to be reported.
    response: Option<Instant>,
    /// What the querier asked about; empty for the group as such.
    asked: BTreeSet<IpAddr>,
    /// Older versions: how often the group is still to be reported unasked.
    unsolicited: u8,
    /// Older versions: this host was the last to report the group, so that it is the one to say
    /// that it leaves.
    was_last_reporter: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            filter: SourceFilter::NOTHING,
            mode_change: 0,
            source_changes: BTreeMap::new(),
            response: None,
            asked: BTreeSet::new(),
            unsolicited: 0,
            was_last_reporter: false,
        }
    }
}

impl Group {
    /// Takes note of what is to be said, `robustness` times (RFC 3376 section 5.1).
    pub(super) fn change(&mut self, before: &SourceFilter, after: &SourceFilter, robustness: u8) {
        if before.mode != after.mode {
            self.mode_change = robustness;
            self.source_changes.clear();
        } else if self.mode_change > 0 {
            // That record lists all sources.
            self.mode_change = robustness;
        } else {
            let changed = before.sources.symmetric_difference(&after.sources);
            self.source_changes
                .extend(changed.map(|source| (*source, robustness)));
        }
        if before.is_nothing() {
            self.unsolicited = robustness;
            self.response = Some(Instant::ZERO);
            self.asked.clear();
        } else if after.is_nothing() {
            self.unsolicited = 0;
            self.response = None;
        }
        self.filter = after.clone();
    }

    /// Answers a querier at this time, if not before; about some sources only, or all
    /// (RFC 3376 section 5.2, rules 3 to 5).
    pub(super) fn answer_later(&mut self, at: Instant, sources: &[IpAddr]) {
        if self.filter.is_nothing() {
            return;
        }
        let is_about_all = sources.is_empty() || (self.response.is_some() && self.asked.is_empty());
        if is_about_all {
            self.asked.clear();
        } else {
            self.asked.extend(sources);
        }
        self.response = Some(self.response.map_or(at, |sooner| sooner.min(at)));
    }

    /// Another host has reported the group.
    pub(super) fn heard(&mut self) {
        self.unsolicited = 0;
        self.response = None;
        self.was_last_reporter = false;
    }

    /// Forgets what was still to be said.
    pub(super) fn fall_silent(&mut self) {
        self.mode_change = 0;
        self.source_changes.clear();
        self.unsolicited = 0;
        self.response = None;
        self.asked.clear();
    }

    /// Nobody wants anything of it, and there is nothing to say.
    pub(super) fn is_done(&self) -> bool {
        self.filter.is_nothing() && !self.has_changes()
    }

    pub(super) fn has_changes(&self) -> bool {
        self.mode_change > 0 || !self.source_changes.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.response
    }
}

/// Version 3.
impl Group {
    /// What has changed, as it is now; said once more.
    pub(super) fn state_changes(&mut self, addr: IpAddr) -> Vec<Record> {
        // Answering is for queries: what an older version would say unasked, this record says.
        if self.unsolicited > 0 {
            self.unsolicited = 0;
            self.response = None;
        }
        if self.mode_change > 0 {
            self.mode_change -= 1;
            let kind = match self.filter.mode {
                SourceMode::Include => RecordKind::ChangeToInclude,
                SourceMode::Exclude => RecordKind::ChangeToExclude,
            };
            return vec![self.record(kind, addr)];
        }
        let changes = core::mem::take(&mut self.source_changes);
        let (allowed, blocked): (Vec<_>, Vec<_>) = changes
            .keys()
            .copied()
            .partition(|source| self.filter.allows(*source));
        self.source_changes = changes
            .into_iter()
            .filter_map(|(source, times)| times.checked_sub(1).map(|times| (source, times)))
            .filter(|(_, times)| *times > 0)
            .collect();
        [
            (RecordKind::AllowNewSources, allowed),
            (RecordKind::BlockOldSources, blocked),
        ]
        .into_iter()
        .filter(|(_, sources)| !sources.is_empty())
        .map(|(kind, sources)| Record {
            kind,
            group: addr,
            sources,
        })
        .collect()
    }

    /// What the interface wants now.
    pub(super) fn current_state(&self, addr: IpAddr) -> Option<Record> {
        let kind = match self.filter.mode {
            SourceMode::Include => RecordKind::ModeIsInclude,
            SourceMode::Exclude => RecordKind::ModeIsExclude,
        };
        (!self.filter.is_nothing()).then(|| self.record(kind, addr))
    }

    /// The answer to a query about the group, if it is due: of the sources asked about, those that
    /// are wanted.
    pub(super) fn answer(&mut self, now: Instant, addr: IpAddr) -> Option<Record> {
        self.response.take_if(|at| *at <= now)?;
        self.unsolicited = 0;
        let asked = core::mem::take(&mut self.asked);
        if asked.is_empty() {
            return self.current_state(addr);
        }
        let wanted = asked.into_iter();
        let sources: Vec<_> = wanted
            .filter(|source| self.filter.allows(*source))
            .collect();
        (!sources.is_empty()).then_some(Record {
            kind: RecordKind::ModeIsInclude,
            group: addr,
            sources,
        })
    }

    fn record(&self, kind: RecordKind, group: IpAddr) -> Record {
        Record {
            kind,
            group,
            sources: self.filter.sources.iter().copied().collect(),
        }
    }
}

/// Older versions, which know of no sources.
impl Group {
    /// Whether this host has to say that it leaves; it does so once.
    pub(super) fn takes_leave(&mut self) -> bool {
        self.mode_change = 0;
        self.source_changes.clear();
        self.filter.is_nothing() && core::mem::take(&mut self.was_last_reporter)
    }

    /// Whether the group is to be reported now; `again` says when to repeat it, where that is to be.
    pub(super) fn is_report_due(&mut self, now: Instant, again: impl FnOnce() -> Instant) -> bool {
        if self.response.take_if(|at| *at <= now).is_none() {
            return false;
        }
        self.asked.clear();
        self.was_last_reporter = true;
        self.unsolicited = self.unsolicited.saturating_sub(1);
        if self.unsolicited > 0 {
            self.response = Some(again());
        }
        true
    }
}
