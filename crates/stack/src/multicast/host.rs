//! What a host tells routers, and when: IGMPv3 and MLDv2, and their older versions (RFC 3376
//! sections 5 and 7, RFC 3810 sections 6 and 8).

mod group;
mod settings;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use self::group::Group;
pub(super) use self::settings::Settings;
use super::Place;
use super::message::{Message, Query, Version};
use super::source_filter::SourceFilter;
use crate::random::SecretRandom;
use crate::time::Instant;

/// What version 1 and 2 queriers ask for between queries and answers (RFC 2236 section 8).
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
const QUERY_RESPONSE_INTERVAL: Duration = Duration::from_secs(10);

/// All interfaces of one family.
#[derive(Debug)]
pub(super) struct Host {
    links: BTreeMap<u32, Link>,
}

/// An interface.
#[derive(Debug, Default)]
struct Link {
    /// Until when a querier of version 1, and one of version 2, counts as present.
    v1_until: Option<Instant>,
    v2_until: Option<Instant>,
    /// What the querier said of it; 0 leaves it to the knob.
    robustness: u8,
    /// When all groups are to be reported.
    response: Option<Instant>,
    /// When changes are to be reported, again.
    changes: Option<Instant>,
    groups: BTreeMap<IpAddr, Group>,
}

impl Host {
    pub(super) const fn new() -> Self {
        Self {
            links: BTreeMap::new(),
        }
    }

    /// The interface wants other packets of a group than before. What there is to say about it is
    /// due at once.
    pub(super) fn changed(
        &mut self,
        settings: &Settings,
        (ifindex, group): Place,
        before: &SourceFilter,
        after: &SourceFilter,
    ) {
        if !settings.reports(group) {
            return;
        }
        let link = self.links.entry(ifindex).or_default();
        let robustness = link.robustness(settings);
        let state = link.groups.entry(group).or_default();
        state.change(before, after, robustness);
        link.changes = Some(Instant::ZERO);
    }

    /// A router asks.
    pub(super) fn asked(
        &mut self,
        now: Instant,
        random: &mut SecretRandom,
        settings: &Settings,
        ifindex: u32,
        query: &Query,
    ) {
        let link = self.links.entry(ifindex).or_default();
        link.note_querier(now, settings, query);
        match link.version(now, settings) {
            Version::V3 => link.answer_later(now, random, query),
            Version::V1 | Version::V2 => link.answer_groups_later(now, random, query),
        }
    }

    /// Another host reports a group: nobody needs to hear it twice (RFC 2236 section 3).
    pub(super) fn heard(&mut self, (ifindex, group): Place) {
        let link = self.links.get_mut(&ifindex);
        if let Some(group) = link.and_then(|link| link.groups.get_mut(&group)) {
            group.heard();
        }
    }

    /// Nothing is said any more on an interface.
    pub(super) fn hush(&mut self, ifindex: u32) {
        self.links.remove(&ifindex);
    }

    /// Appends what is due, by interface.
    pub(super) fn due(
        &mut self,
        now: Instant,
        random: &mut SecretRandom,
        settings: impl Fn(u32) -> Settings,
        messages: &mut Vec<(u32, Message)>,
    ) {
        for (ifindex, link) in &mut self.links {
            let settings = settings(*ifindex);
            let mut said = Vec::new();
            match link.version(now, &settings) {
                Version::V3 => link.due_records(now, random, &settings, &mut said),
                version => link.due_reports(now, random, &settings, version, &mut said),
            }
            link.groups.retain(|_, group| !group.is_done());
            messages.extend(said.into_iter().map(|message| (*ifindex, message)));
        }
    }

    /// When something is due next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let links = self.links.values();
        links.filter_map(Link::deadline).min()
    }
}

impl Link {
    fn robustness(&self, settings: &Settings) -> u8 {
        match self.robustness {
            0 => settings.robustness,
            said => said,
        }
    }

    /// The oldest version that a querier here speaks, unless a knob says which one to speak.
    fn version(&self, now: Instant, settings: &Settings) -> Version {
        let is_present = |until: Option<Instant>| until.is_some_and(|until| now < until);
        match settings.forced {
            Some(version) => version,
            None if is_present(self.v1_until) => Version::V1,
            None if is_present(self.v2_until) => Version::V2,
            None => Version::V3,
        }
    }

    fn note_querier(&mut self, now: Instant, settings: &Settings, query: &Query) {
        let before = self.version(now, settings);
        let robustness = u32::from(self.robustness(settings));
        let present = now + QUERY_INTERVAL * robustness + QUERY_RESPONSE_INTERVAL;
        match query.version {
            Version::V1 => self.v1_until = Some(present),
            Version::V2 => self.v2_until = Some(present),
            Version::V3 => self.robustness = query.robustness,
        }
        if self.version(now, settings) != before {
            // Who speaks another version now has nothing to add to what it began to say
            // (RFC 3376 section 7.2.1).
            self.response = None;
            self.changes = None;
            self.groups.values_mut().for_each(Group::fall_silent);
        }
    }

    /// Version 3: one answer for all groups, or one for this group (RFC 3376 section 5.2).
    fn answer_later(&mut self, now: Instant, random: &mut SecretRandom, query: &Query) {
        let at = now + random_below(random, query.max_response);
        if self.response.is_some_and(|all| all <= at) {
            return;
        }
        match query.group {
            None => self.response = Some(at),
            Some(group) => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.answer_later(at, &query.sources);
                }
            }
        }
    }

    /// Versions 1 and 2: each group answers for itself.
    fn answer_groups_later(&mut self, now: Instant, random: &mut SecretRandom, query: &Query) {
        let is_asked = |group: &IpAddr| query.group.is_none_or(|asked| asked == *group);
        for (_, group) in self.groups.iter_mut().filter(|(group, _)| is_asked(group)) {
            group.answer_later(now + random_below(random, query.max_response), &[]);
        }
    }

    fn due_records(
        &mut self,
        now: Instant,
        random: &mut SecretRandom,
        settings: &Settings,
        messages: &mut Vec<Message>,
    ) {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.changes) {
            let groups = self.groups.iter_mut();
            let records: Vec<_> = groups
                .flat_map(|(addr, group)| group.state_changes(*addr))
                .collect();
            if self.groups.values().any(Group::has_changes) {
                self.changes = Some(now + random_below(random, settings.interval));
            }
            messages.push(Message::Records(records));
        }
        if is_due(&mut self.response) {
            let groups = self.groups.iter();
            let records = groups.filter_map(|(addr, group)| group.current_state(*addr));
            messages.push(Message::Records(records.collect()));
        }
        for (addr, group) in &mut self.groups {
            let record = group.answer(now, *addr);
            messages.extend(record.map(|record| Message::Records(vec![record])));
        }
        messages.retain(|message| !matches!(message, Message::Records(none) if none.is_empty()));
    }

    fn due_reports(
        &mut self,
        now: Instant,
        random: &mut SecretRandom,
        settings: &Settings,
        version: Version,
        messages: &mut Vec<Message>,
    ) {
        self.changes = None;
        self.response = None;
        for (addr, group) in &mut self.groups {
            if group.takes_leave() && version == Version::V2 {
                messages.push(Message::Leave(*addr));
            }
            let again = || now + random_below(random, settings.old_interval);
            if group.is_report_due(now, again) {
                messages.push(Message::Report {
                    version,
                    group: *addr,
                });
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let own = [self.response, self.changes].into_iter().flatten();
        own.chain(self.groups.values().filter_map(Group::deadline))
            .min()
    }
}

/// A time of at most `bound`.
fn random_below(random: &mut SecretRandom, bound: Duration) -> Duration {
    let fraction = f64::from(random.next_u32()) / f64::from(u32::MAX);
    bound.mul_f64(fraction)
}

#[cfg(test)]
mod tests;
