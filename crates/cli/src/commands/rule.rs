//! `forebay rule`, in the manner of ip-rule(8).

use std::process::ExitCode;

use clap::Args;
use forebay::fib::TableId;
use serde::Serialize;

use super::asking::{self, Asking, CommandError, finish};
use super::words::{
    self, FamilyArgs, Words, bits, command, common_family, is_everything, is_short_for,
};
use crate::control::protocol::{Family, Network, Request, Rule, RuleAction, RuleSelector};

/// Show and change a running stack's policy rules.
///
/// Rules say which routing table a packet is looked up in. They are tried from the lowest priority
/// to the highest. IPv4's unless -6 or an IPv6 prefix is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Words, as in ip-rule(8); commands may be cut short (`a`, `d`, `s`):
  show
  add|del [from PREFIX|all] [to PREFIX|all] [iif X] [priority|pref N]
          [lookup|table TABLE | blackhole | unreachable | prohibit]

Examples:
  forebay rule
  forebay rule add from 10.2.0.0/16 lookup 100
  forebay rule add iif tun1 priority 50 prohibit
  forebay rule del priority 50

Exit status: 0, or 1 if the words make no sense, or 2 if the stack refuses.")]
pub(crate) struct RuleArgs {
    /// What to do; see below.
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    family: FamilyArgs,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &RuleArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &RuleArgs) -> Result<(), CommandError> {
    let command = parse(&args.words, args.family.family()).map_err(CommandError::Usage)?;
    let mut client = args.asking.client()?;
    match command {
        RuleCommand::Show(family) => {
            let rules = client.rules(family)?;
            if args.asking.json {
                asking::print_json(&rules.iter().map(json).collect::<Vec<_>>())
            } else {
                asking::print(&rules.iter().map(text).collect::<String>())
            }
        }
        RuleCommand::Add(rule) => Ok(client.change(Request::AddRule(rule))?),
        RuleCommand::Delete(rule) => Ok(client.change(Request::DeleteRule(rule))?),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleCommand {
    Show(Family),
    Add(RuleSelector),
    Delete(RuleSelector),
}

fn parse(words: &[String], family: Option<Family>) -> Result<RuleCommand, String> {
    let mut words = Words::new(words);
    let word = words.next().unwrap_or("show");
    match command(word, &["list", "lst", "show", "add", "delete"]) {
        Some("add") => {
            let rule = parse_selector(words, family)?;
            rule.map(RuleCommand::Add)
                .ok_or_else(|| "`rule add` needs words".to_owned())
        }
        Some("delete") => {
            let rule = parse_selector(words, family)?;
            rule.map(RuleCommand::Delete)
                .ok_or_else(|| "`rule del` needs words".to_owned())
        }
        Some(_) => match words.next() {
            None => Ok(RuleCommand::Show(family.unwrap_or(Family::Inet))),
            Some(word) => Err(format!("{word:?} is garbage: `rule show` lists all rules")),
        },
        None => Err(format!(
            "command {word:?} is unknown; try `forebay rule --help`"
        )),
    }
}

/// `None` if there are no words.
fn parse_selector(
    mut words: Words,
    family: Option<Family>,
) -> Result<Option<RuleSelector>, String> {
    let mut rule = RuleSelector {
        family: Family::Inet,
        priority: None,
        from: None,
        to: None,
        iif: None,
        action: None,
    };
    let mut is_empty = true;
    while let Some(word) = words.next() {
        is_empty = false;
        match word {
            "from" => rule.from = prefix(words.value(word)?)?,
            "to" => rule.to = prefix(words.value(word)?)?,
            "iif" | "dev" => rule.iif = Some(words.value(word)?.to_owned()),
            "blackhole" => rule.action = Some(RuleAction::Blackhole),
            "unreachable" => rule.action = Some(RuleAction::Unreachable),
            "prohibit" => rule.action = Some(RuleAction::Prohibit),
            "order" => rule.priority = Some(words.number(word)?),
            _ if is_short_for(word, "preference") || is_short_for(word, "priority") => {
                rule.priority = Some(words.number(word)?);
            }
            _ if is_short_for(word, "table") || is_short_for(word, "lookup") => {
                rule.action = Some(RuleAction::Lookup(words.table(word)?));
            }
            "not"
            | "tos"
            | "dsfield"
            | "fwmark"
            | "oif"
            | "uidrange"
            | "ipproto"
            | "sport"
            | "dport"
            | "goto"
            | "nop"
            | "suppress_prefixlength"
            | "l3mdev" => {
                return Err(format!("{word:?} is not supported"));
            }
            _ => {
                return Err(format!(
                    "{word:?} is garbage; `forebay rule --help` lists the words"
                ));
            }
        }
    }
    let prefixes = rule.from.iter().chain(&rule.to).map(|prefix| prefix.addr);
    rule.family = common_family(family, prefixes)?.unwrap_or(Family::Inet);
    Ok(if is_empty { None } else { Some(rule) })
}

/// A prefix that says something.
fn prefix(word: &str) -> Result<Option<Network>, String> {
    if is_everything(word) {
        return Ok(None);
    }
    let prefix = words::network(word)?;
    Ok(Some(prefix).filter(|prefix| prefix.len > 0))
}

/// As ip-rule(8) prints it: a tab behind the priority.
fn text(rule: &Rule) -> String {
    let print = |prefix: &Network| words::print_prefix(prefix);
    let mut text = format!(
        "{}:\tfrom {}",
        rule.priority,
        rule.from.as_ref().map_or_else(|| "all".to_owned(), print)
    );
    if let Some(to) = &rule.to {
        text += &format!(" to {}", print(to));
    }
    if let Some(iif) = &rule.iif {
        text += &format!(" iif {iif}");
    }
    text += &match rule.action {
        RuleAction::Lookup(table) => format!(" lookup {}\n", TableId(table)),
        RuleAction::Blackhole => " blackhole\n".to_owned(),
        RuleAction::Unreachable => " unreachable\n".to_owned(),
        RuleAction::Prohibit => " prohibit\n".to_owned(),
    };
    text
}

/// The names are those of `ip -j rule`.
#[derive(Debug, Serialize)]
struct Json {
    priority: u32,
    src: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    srclen: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dstlen: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iif: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

fn json(rule: &Rule) -> Json {
    // ip(8) leaves out the length of a whole address.
    let len = |prefix: Network| Some(prefix.len).filter(|len| *len != bits(prefix.addr));
    let (table, action) = match rule.action {
        RuleAction::Lookup(table) => (Some(TableId(table).to_string()), None),
        RuleAction::Blackhole => (None, Some("blackhole")),
        RuleAction::Unreachable => (None, Some("unreachable")),
        RuleAction::Prohibit => (None, Some("prohibit")),
    };
    Json {
        priority: rule.priority,
        src: rule
            .from
            .map_or_else(|| "all".to_owned(), |from| from.addr.to_string()),
        srclen: rule.from.and_then(len),
        dst: rule.to.map(|to| to.addr.to_string()),
        dstlen: rule.to.and_then(len),
        iif: rule.iif.clone(),
        table,
        action,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::words::split;

    fn parsed(line: &str) -> Result<RuleCommand, String> {
        parse(&split(line), None)
    }

    fn network(text: &str) -> Network {
        words::network(text).unwrap()
    }

    #[test]
    fn reads_rules_as_ip_does() {
        let empty = RuleSelector {
            family: Family::Inet,
            priority: None,
            from: None,
            to: None,
            iif: None,
            action: None,
        };
        let with = |change: fn(&mut RuleSelector)| {
            let mut rule = empty.clone();
            change(&mut rule);
            rule
        };
        for (words, expected) in [
            ("from all", empty.clone()),
            (
                "from 0/0 table main",
                with(|r| r.action = Some(RuleAction::Lookup(254))),
            ),
            (
                "from 10/8 lookup 100",
                with(|r| {
                    r.from = Some(network("10/8"));
                    r.action = Some(RuleAction::Lookup(100));
                }),
            ),
            (
                "iif tun0 pref 5 prohibit",
                with(|r| {
                    r.iif = Some("tun0".to_owned());
                    r.priority = Some(5);
                    r.action = Some(RuleAction::Prohibit);
                }),
            ),
            (
                "to fd00::/8 blackhole prio 9",
                with(|r| {
                    r.family = Family::Inet6;
                    r.to = Some(network("fd00::/8"));
                    r.action = Some(RuleAction::Blackhole);
                    r.priority = Some(9);
                }),
            ),
        ] {
            assert_eq!(
                parsed(&format!("add {words}")),
                Ok(RuleCommand::Add(expected.clone()))
            );
            assert_eq!(
                parsed(&format!("d {words}")),
                Ok(RuleCommand::Delete(expected))
            );
        }
        for line in ["", "s", "show", "ls", "list"] {
            assert_eq!(parsed(line), Ok(RuleCommand::Show(Family::Inet)), "{line}");
        }
        let six = parse(&[], Some(Family::Inet6));
        assert_eq!(six, Ok(RuleCommand::Show(Family::Inet6)));
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, why) in [
            ("add", "needs words"),
            ("del", "needs words"),
            ("add from", "something must follow"),
            ("add from x", "neither an address"),
            ("add pref x", "a number must follow"),
            ("add table x", "a table must follow"),
            ("add fwmark 1", "not supported"),
            ("add frob", "is garbage"),
            ("frob", "is unknown"),
            ("show all", "is garbage"),
            ("add from 10/8 to fd00::/8", "is IPv6"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn prints_what_ip_prints() {
        let rule = |priority, from: Option<&str>, to: Option<&str>, action| Rule {
            priority,
            from: from.map(network),
            to: to.map(network),
            iif: None,
            action,
        };
        let iif = Rule {
            iif: Some("lo".to_owned()),
            ..rule(100, Some("10.0.0.0/8"), None, RuleAction::Lookup(100))
        };
        for (rule, expected, expected_json) in [
            (
                rule(0, None, None, RuleAction::Lookup(255)),
                "0:\tfrom all lookup local\n",
                r#"{"priority":0,"src":"all","table":"local"}"#,
            ),
            (
                iif,
                "100:\tfrom 10.0.0.0/8 iif lo lookup 100\n",
                r#"{"priority":100,"src":"10.0.0.0","srclen":8,"iif":"lo","table":"100"}"#,
            ),
            (
                rule(99, None, Some("10.6.0.0/16"), RuleAction::Blackhole),
                "99:\tfrom all to 10.6.0.0/16 blackhole\n",
                r#"{"priority":99,"src":"all","dst":"10.6.0.0","dstlen":16,"action":"blackhole"}"#,
            ),
            (
                rule(7, Some("fd00::1"), None, RuleAction::Prohibit),
                "7:\tfrom fd00::1 prohibit\n",
                r#"{"priority":7,"src":"fd00::1","action":"prohibit"}"#,
            ),
        ] {
            assert_eq!(text(&rule), expected);
            assert_eq!(serde_json::to_string(&json(&rule)).unwrap(), expected_json);
        }
    }
}
