//! What packets find their tables through: rules, tables and own prefixes at one moment.

use std::sync::Arc;

use super::address::Address;
use super::own::OwnPrefixes;
use super::route::TableId;
use super::rules::{Rule, RuleAction, Rules};
use super::trie::Trie;

/// Published as a whole when rules, own prefixes or the set of tables change. Routes change in
/// place, inside the tries.
pub(super) struct Snapshot<A> {
    pub(super) policy: Policy<A>,
    pub(super) own: Arc<OwnPrefixes<A>>,
    /// Whether table local has nothing for destinations that are not our own.
    pub(super) local_is_own: bool,
}

/// Which tables to look in.
pub(super) enum Policy<A> {
    /// Nobody has changed the rules. A table without routes may not exist yet.
    Default {
        local: Option<Arc<Trie>>,
        main: Option<Arc<Trie>>,
        default: Option<Arc<Trie>>,
    },
    /// Rule by rule.
    Rules(Vec<(Rule<A>, Verdict)>),
}

/// A rule's action with its table found.
pub(super) enum Verdict {
    /// Look here and go on; `is_local` marks table local.
    Lookup {
        trie: Arc<Trie>,
        is_local: bool,
    },
    /// The table has never had a route: go on.
    Skip,
    Blackhole,
    Unreachable,
    Prohibit,
}

impl<A: Address> Snapshot<A> {
    pub(super) fn new(
        rules: &Rules<A>,
        trie: impl Fn(TableId) -> Option<Arc<Trie>>,
        own: Arc<OwnPrefixes<A>>,
        local_is_own: bool,
    ) -> Self {
        let policy = if rules.are_default() {
            Policy::Default {
                local: trie(TableId::LOCAL),
                main: trie(TableId::MAIN),
                default: trie(TableId::DEFAULT).filter(|_| A::HAS_TABLE_DEFAULT),
            }
        } else {
            let rules = rules.list().iter();
            Policy::Rules(rules.map(|rule| (*rule, verdict(rule, &trie))).collect())
        };
        Snapshot {
            policy,
            own,
            local_is_own,
        }
    }
}

fn verdict<A>(rule: &Rule<A>, trie: impl Fn(TableId) -> Option<Arc<Trie>>) -> Verdict {
    match rule.action {
        RuleAction::Lookup(id) => trie(id).map_or(Verdict::Skip, |trie| Verdict::Lookup {
            trie,
            is_local: id == TableId::LOCAL,
        }),
        RuleAction::Blackhole => Verdict::Blackhole,
        RuleAction::Unreachable => Verdict::Unreachable,
        RuleAction::Prohibit => Verdict::Prohibit,
    }
}
