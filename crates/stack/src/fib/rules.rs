//! Policy rules: which tables a packet's destination is looked up in, and in what order.

use super::address::Address;
use super::prefix::Prefix;
use super::route::TableId;

/// One rule: packets that match in every field given get the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<A> {
    /// Rules are tried from low to high; equals in the order they were added.
    pub priority: u32,
    /// The packet's source.
    pub from: Option<Prefix<A>>,
    /// The packet's destination.
    pub to: Option<Prefix<A>>,
    /// Index of the interface that it came in by; that of `lo` for packets of our own.
    pub iif: Option<u32>,
    /// What to do with it.
    pub action: RuleAction,
}

/// What a rule does with the packets that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// Look in a table; if that has no route, go on to the next rule.
    Lookup(TableId),
    /// Drop in silence.
    Blackhole,
    /// Drop, as if there were no route.
    Unreachable,
    /// Drop and say that it is forbidden.
    Prohibit,
}

impl<A: Address> Rule<A> {
    /// A rule for all packets.
    pub fn all(priority: u32, action: RuleAction) -> Self {
        Rule {
            priority,
            from: None,
            to: None,
            iif: None,
            action,
        }
    }

    /// Whether a packet is meant.
    #[inline]
    pub fn matches(&self, src: A, dst: A, iif: u32) -> bool {
        self.from.is_none_or(|from| from.contains(src))
            && self.to.is_none_or(|to| to.contains(dst))
            && self.iif.is_none_or(|rule_iif| rule_iif == iif)
    }
}

/// Which rule to delete: the first that agrees in every field given.
#[derive(Debug, Clone, Copy)]
pub struct RuleMatch<A> {
    /// See [`Rule::priority`].
    pub priority: Option<u32>,
    /// See [`Rule::from`].
    pub from: Option<Prefix<A>>,
    /// See [`Rule::to`].
    pub to: Option<Prefix<A>>,
    /// See [`Rule::iif`].
    pub iif: Option<u32>,
    /// See [`Rule::action`].
    pub action: Option<RuleAction>,
}

impl<A: Address> RuleMatch<A> {
    /// Matches every rule of this priority.
    pub fn priority(priority: u32) -> Self {
        RuleMatch {
            priority: Some(priority),
            from: None,
            to: None,
            iif: None,
            action: None,
        }
    }

    fn matches(&self, rule: &Rule<A>) -> bool {
        self.priority
            .is_none_or(|priority| priority == rule.priority)
            && (self.from.is_none() || self.from == rule.from)
            && (self.to.is_none() || self.to == rule.to)
            && (self.iif.is_none() || self.iif == rule.iif)
            && self.action.is_none_or(|action| action == rule.action)
    }
}

/// Why a rule was not added or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The same rule is there already (EEXIST).
    #[error("File exists: the same rule is there already")]
    Exists,
    /// No rule matches (ENOENT).
    #[error("No such file or directory: no rule matches")]
    NotFound,
}

/// The rules in the order in which they are tried.
pub(super) struct Rules<A> {
    rules: Vec<Rule<A>>,
}

impl<A: Address> Rules<A> {
    /// The rules of a fresh stack: table local, main, and in IPv4 default.
    pub(super) fn new() -> Self {
        let mut rules = vec![
            Rule::all(0, RuleAction::Lookup(TableId::LOCAL)),
            Rule::all(32766, RuleAction::Lookup(TableId::MAIN)),
        ];
        if A::HAS_TABLE_DEFAULT {
            rules.push(Rule::all(32767, RuleAction::Lookup(TableId::DEFAULT)));
        }
        Rules { rules }
    }

    pub(super) fn list(&self) -> &[Rule<A>] {
        &self.rules
    }

    /// Whether these are the rules of a fresh stack.
    pub(super) fn are_default(&self) -> bool {
        self.rules == Self::new().rules
    }

    pub(super) fn add(&mut self, rule: Rule<A>) -> Result<(), RuleError> {
        if self.rules.contains(&rule) {
            return Err(RuleError::Exists);
        }
        let place = self
            .rules
            .partition_point(|other| other.priority <= rule.priority);
        self.rules.insert(place, rule);
        Ok(())
    }

    pub(super) fn delete(&mut self, what: &RuleMatch<A>) -> Result<(), RuleError> {
        let found = self.rules.iter().position(|rule| what.matches(rule));
        self.rules.remove(found.ok_or(RuleError::NotFound)?);
        Ok(())
    }

    /// The priority that puts a rule before all but the very first: what Linux gives a rule whose
    /// author names none (`fib_default_rule_pref`).
    pub(super) fn unspecified_priority(&self) -> u32 {
        let second = self.rules.get(1).map_or(0, |rule| rule.priority);
        second.saturating_sub(1)
    }
}
