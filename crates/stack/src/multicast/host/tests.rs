//! A host's words under a simulated clock.

use core::net::Ipv4Addr;
use std::collections::BTreeSet;

use super::*;
use crate::multicast::message::Record;
use crate::multicast::message::RecordKind::{self, *};
use crate::multicast::source_filter::SourceMode;
use crate::siphash::Key;

const LINK: u32 = 2;

fn group(last: u8) -> IpAddr {
    Ipv4Addr::new(239, 0, 0, last).into()
}

fn source(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn including(sources: &[u8]) -> SourceFilter {
    SourceFilter {
        mode: SourceMode::Include,
        sources: sources.iter().copied().map(source).collect(),
    }
}

fn excluding(sources: &[u8]) -> SourceFilter {
    SourceFilter {
        mode: SourceMode::Exclude,
        ..including(sources)
    }
}

/// A host, its clock, and what it has been told.
struct World {
    host: Host,
    now: Instant,
    random: SecretRandom,
    settings: Settings,
    filters: BTreeMap<IpAddr, SourceFilter>,
}

impl World {
    fn new() -> Self {
        Self {
            host: Host::new(),
            now: Instant::ZERO + Duration::from_secs(1_000),
            random: SecretRandom::new(Key([1, 2]), 0),
            settings: Settings {
                is_silent: false,
                robustness: 2,
                forced: None,
                interval: Duration::from_secs(1),
                old_interval: Duration::from_secs(10),
                link_local: true,
            },
            filters: BTreeMap::new(),
        }
    }

    fn want(&mut self, group: IpAddr, filter: SourceFilter) {
        let before = self.filters.remove(&group);
        let before = before.unwrap_or(SourceFilter::NOTHING);
        self.host
            .changed(&self.settings, (LINK, group), &before, &filter);
        self.filters.insert(group, filter);
    }

    fn ask(&mut self, query: &Query) {
        let (now, random) = (self.now, &mut self.random);
        self.host.asked(now, random, &self.settings, LINK, query);
    }

    /// What is said within a time, and when.
    fn hear(&mut self, time: Duration) -> Vec<(Duration, Message)> {
        let (start, end) = (self.now, self.now + time);
        let mut heard = Vec::new();
        while let Some(next) = self.host.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let mut messages = Vec::new();
            let settings = self.settings;
            let (now, random) = (self.now, &mut self.random);
            self.host.due(now, random, |_| settings, &mut messages);
            let said = messages
                .into_iter()
                .inspect(|(link, _)| assert_eq!(*link, LINK));
            heard.extend(said.map(|(_, message)| (now - start, message)));
        }
        self.now = end;
        heard
    }

    fn said(&mut self, seconds: u64) -> Vec<Message> {
        let heard = self.hear(Duration::from_secs(seconds));
        heard.into_iter().map(|(_, message)| message).collect()
    }
}

fn record(kind: RecordKind, last: u8, sources: &[u8]) -> Record {
    Record {
        kind,
        group: group(last),
        sources: sources.iter().copied().map(source).collect(),
    }
}

fn records<const N: usize>(records: [Record; N]) -> Message {
    Message::Records(records.into())
}

fn query(version: Version, about: Option<IpAddr>, sources: &[u8], seconds: u64) -> Query {
    Query {
        version,
        group: about,
        sources: sources.iter().copied().map(source).collect(),
        max_response: Duration::from_secs(seconds),
        robustness: if version == Version::V3 { 2 } else { 0 },
    }
}

#[test]
fn a_change_is_reported_at_once_and_again_within_a_second() {
    let mut world = World::new();
    world.want(group(1), excluding(&[]));
    let heard = world.hear(Duration::from_secs(100));
    let joined = records([record(ChangeToExclude, 1, &[])]);
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0], (Duration::ZERO, joined.clone()));
    assert!(heard[1].1 == joined && heard[1].0 <= Duration::from_secs(1));

    world.want(group(1), excluding(&[7]));
    assert_eq!(
        world.said(9),
        vec![records([record(BlockOldSources, 1, &[7])]); 2]
    );
    world.want(group(1), excluding(&[8]));
    let both = [
        record(AllowNewSources, 1, &[7]),
        record(BlockOldSources, 1, &[8]),
    ];
    assert_eq!(world.said(9), vec![records(both); 2]);
    world.want(group(1), including(&[9]));
    assert_eq!(
        world.said(9),
        vec![records([record(ChangeToInclude, 1, &[9])]); 2]
    );
    world.want(group(1), including(&[]));
    assert_eq!(
        world.said(9),
        vec![records([record(BlockOldSources, 1, &[9])]); 2]
    );
    assert_eq!((world.host.deadline(), world.said(10_000)), (None, vec![]));
    assert!(world.host.links[&LINK].groups.is_empty(), "nothing is kept");
}

#[test]
fn changes_that_follow_each_other_are_reported_together() {
    let mut world = World::new();
    world.want(group(1), including(&[1]));
    world.want(group(2), excluding(&[]));
    let first = [
        record(AllowNewSources, 1, &[1]),
        record(ChangeToExclude, 2, &[]),
    ];
    assert_eq!(world.said(0), [records(first)]);
    // The second report of what went before goes with the first of what comes now.
    world.want(group(1), including(&[1, 2]));
    let second = [
        record(AllowNewSources, 1, &[1, 2]),
        record(ChangeToExclude, 2, &[]),
    ];
    assert_eq!(world.said(0), [records(second)]);
    assert_eq!(world.said(2), [records([record(AllowNewSources, 1, &[2])])]);
    // Gone before anybody heard of it: as it is now.
    world.want(group(3), excluding(&[]));
    world.want(group(3), including(&[]));
    assert_eq!(
        world.said(2),
        vec![records([record(ChangeToInclude, 3, &[])]); 2]
    );
}

#[test]
fn a_querier_is_answered_within_the_time_it_gives() {
    let mut world = World::new();
    world.want(group(1), excluding(&[3]));
    world.want(group(2), including(&[4]));
    world.said(10);
    let mut times = BTreeSet::new();
    for _ in 0..50 {
        world.ask(&query(Version::V3, None, &[], 10));
        let heard = world.hear(Duration::from_secs(10));
        let all = [
            record(ModeIsExclude, 1, &[3]),
            record(ModeIsInclude, 2, &[4]),
        ];
        let [(time, message)] = &heard[..] else {
            panic!("one answer: {heard:?}");
        };
        assert_eq!(*message, records(all));
        times.insert(time.as_secs());
    }
    assert!(times.len() > 5, "at random: {times:?}");

    world.ask(&query(Version::V3, Some(group(1)), &[], 10));
    assert_eq!(world.said(10), [records([record(ModeIsExclude, 1, &[3])])]);
    world.ask(&query(Version::V3, Some(group(9)), &[], 10));
    assert_eq!(world.said(10), []);
    // Of the sources asked about, those that are wanted.
    world.ask(&query(Version::V3, Some(group(1)), &[3], 10));
    assert_eq!(world.said(10), []);
    world.ask(&query(Version::V3, Some(group(1)), &[3, 5], 10));
    assert_eq!(world.said(10), [records([record(ModeIsInclude, 1, &[5])])]);
    world.ask(&query(Version::V3, Some(group(2)), &[4, 5], 10));
    assert_eq!(world.said(10), [records([record(ModeIsInclude, 2, &[4])])]);
}

#[test]
fn queries_that_follow_each_other_get_one_answer() {
    let mut world = World::new();
    world.want(group(1), excluding(&[]));
    world.said(10);
    // One for everything that is to come sooner answers this as well.
    world.ask(&query(Version::V3, None, &[], 1));
    world.ask(&query(Version::V3, Some(group(1)), &[], 100_000));
    assert_eq!(
        world.said(200_000),
        [records([record(ModeIsExclude, 1, &[])])]
    );
    // Sources add up; the whole group goes before any.
    world.ask(&query(Version::V3, Some(group(1)), &[1], 10));
    world.ask(&query(Version::V3, Some(group(1)), &[2], 10));
    assert_eq!(
        world.said(10),
        [records([record(ModeIsInclude, 1, &[1, 2])])]
    );
    world.ask(&query(Version::V3, Some(group(1)), &[], 10));
    world.ask(&query(Version::V3, Some(group(1)), &[2], 10));
    assert_eq!(world.said(10), [records([record(ModeIsExclude, 1, &[])])]);
}

#[test]
fn the_querier_says_how_often() {
    let mut world = World::new();
    world.ask(&Query {
        robustness: 5,
        ..query(Version::V3, None, &[], 1)
    });
    world.said(1);
    world.want(group(1), excluding(&[]));
    assert_eq!(
        world.said(10),
        vec![records([record(ChangeToExclude, 1, &[])]); 5]
    );
}

fn report(version: Version, last: u8) -> Message {
    Message::Report {
        version,
        group: group(last),
    }
}

#[test]
fn with_a_version_2_querier_version_2_is_spoken() {
    let mut world = World::new();
    world.want(group(1), excluding(&[]));
    assert_eq!(world.said(0).len(), 1);
    // The rest of what was begun in version 3 is not said.
    world.ask(&query(Version::V2, None, &[], 10));
    assert_eq!(world.said(10), [report(Version::V2, 1)]);
    world.want(group(2), including(&[1]));
    let heard = world.hear(Duration::from_secs(30));
    assert_eq!(heard[0], (Duration::ZERO, report(Version::V2, 2)));
    assert_eq!((heard.len(), &heard[1].1), (2, &report(Version::V2, 2)));
    // Another member was the last to report, and will be the one to leave.
    world.ask(&query(Version::V2, Some(group(2)), &[], 10));
    world.host.heard((LINK, group(2)));
    world.want(group(2), including(&[]));
    world.want(group(1), including(&[]));
    assert_eq!(world.said(20), [Message::Leave(group(1))]);

    // The querier is gone: 2 * 125 + 10 seconds.
    world.said(260);
    world.want(group(3), excluding(&[]));
    assert_eq!(
        world.said(5),
        vec![records([record(ChangeToExclude, 3, &[])]); 2]
    );
}

#[test]
fn with_a_version_1_querier_nobody_says_that_he_leaves() {
    let mut world = World::new();
    world.ask(&query(Version::V1, None, &[], 10));
    world.ask(&query(Version::V2, None, &[], 10));
    world.want(group(1), excluding(&[]));
    assert_eq!(world.said(20), vec![report(Version::V1, 1); 2]);
    world.want(group(1), including(&[]));
    assert_eq!(world.said(20), []);
    assert!(world.host.links[&LINK].groups.is_empty());
}

#[test]
fn a_version_can_be_forced() {
    let mut world = World::new();
    world.settings.forced = Some(Version::V3);
    world.ask(&query(Version::V1, None, &[], 10));
    world.want(group(1), excluding(&[]));
    assert_eq!(world.said(0), [records([record(ChangeToExclude, 1, &[])])]);
    world.settings.forced = Some(Version::V2);
    world.want(group(2), excluding(&[]));
    assert_eq!(world.said(0), [report(Version::V2, 2)]);
}

#[test]
fn some_groups_are_nobodys_business() {
    let mut settings = World::new().settings;
    let reported =
        |settings: &Settings, group: &str| settings.reports(group.parse().expect("an address"));
    for group in ["224.0.0.1", "ff02::1", "ff01::7", "ff00::7"] {
        assert!(!reported(&settings, group), "{group}");
    }
    for group in ["224.0.0.251", "239.1.2.3", "ff02::fb", "ff05::2", "ff0e::1"] {
        assert!(reported(&settings, group), "{group}");
    }
    settings.link_local = false;
    assert!(!reported(&settings, "224.0.0.251") && reported(&settings, "224.0.1.1"));
    settings.is_silent = true;
    assert!(!reported(&settings, "239.1.2.3") && !reported(&settings, "ff0e::1"));
}

#[test]
fn an_interface_that_went_down_has_nothing_to_say() {
    let mut world = World::new();
    world.want(group(1), excluding(&[]));
    world.host.hush(LINK);
    assert_eq!(world.said(10), []);
}
