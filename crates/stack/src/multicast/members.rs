//! What an interface wants of a group: what any of its members does.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::source_filter::{SourceFilter, SourceMode};

/// The members of a group on an interface, counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    including: u32,
    excluding: u32,
    /// How many include a source, and how many exclude it.
    sources: BTreeMap<IpAddr, (u32, u32)>,
}

impl Members {
    pub(super) fn count(&self) -> u32 {
        self.including.saturating_add(self.excluding)
    }

    pub(super) fn add(&mut self, filter: &SourceFilter) {
        self.change(filter, |count| *count = count.saturating_add(1));
    }

    pub(super) fn remove(&mut self, filter: &SourceFilter) {
        self.change(filter, |count| *count = count.saturating_sub(1));
        self.sources.retain(|_, counts| *counts != (0, 0));
    }

    /// All wishes together (RFC 3376 section 3.2): if somebody wants every source, all but those
    /// that each such member excludes and nobody includes; else those that somebody includes.
    pub(super) fn filter(&self) -> SourceFilter {
        let mode = match self.excluding {
            0 => SourceMode::Include,
            _ => SourceMode::Exclude,
        };
        let listed = self.sources.iter().filter(|(_, counts)| match mode {
            SourceMode::Include => counts.0 > 0,
            SourceMode::Exclude => **counts == (0, self.excluding),
        });
        SourceFilter {
            mode,
            sources: listed.map(|(source, _)| *source).collect(),
        }
    }

    fn change(&mut self, filter: &SourceFilter, change: impl Fn(&mut u32)) {
        match filter.mode {
            SourceMode::Include => change(&mut self.including),
            SourceMode::Exclude => change(&mut self.excluding),
        }
        for source in &filter.sources {
            let (included, excluded) = self.sources.entry(*source).or_default();
            match filter.mode {
                SourceMode::Include => change(included),
                SourceMode::Exclude => change(excluded),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn source(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn filters() -> impl Strategy<Value = SourceFilter> {
        let sources = prop::collection::btree_set((0_u8..5).prop_map(source), 0..4);
        (any::<bool>(), sources).prop_map(|(include, sources)| SourceFilter {
            mode: if include {
                SourceMode::Include
            } else {
                SourceMode::Exclude
            },
            sources,
        })
    }

    proptest! {
        /// The interface lets a source in if a member does, whoever came and went before.
        #[test]
        fn a_source_is_wanted_if_a_member_wants_it(
            stayed in prop::collection::vec(filters(), 0..6),
            gone in prop::collection::vec(filters(), 0..6),
        ) {
            let mut members = Members::default();
            gone.iter().chain(&stayed).for_each(|filter| members.add(filter));
            gone.iter().for_each(|filter| members.remove(filter));
            let together = members.filter();
            for last in 0..6 {
                let wanted = stayed.iter().any(|filter| filter.allows(source(last)));
                prop_assert_eq!(together.allows(source(last)), wanted);
            }
            prop_assert_eq!(members.count() as usize, stayed.len());
        }
    }

    #[test]
    fn members_that_are_gone_leave_nothing() {
        let mut members = Members::default();
        let filter = SourceFilter {
            mode: SourceMode::Exclude,
            sources: BTreeSet::from([source(1)]),
        };
        members.add(&filter);
        assert_eq!(members.filter(), filter);
        members.add(&SourceFilter::only(source(1)));
        assert_eq!(members.filter(), SourceFilter::EVERYTHING);
        members.remove(&filter);
        members.remove(&SourceFilter::only(source(1)));
        assert!(members.filter().is_nothing() && members.sources.is_empty());
    }
}
