//! `forebay maddr`, in the manner of ip-maddress(8).

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::asking::{self, Asking, CommandError, finish};
use super::link::{self, Which};
use super::words::{FamilyArgs, Words, command};
use crate::control::protocol::{Family, Group, Link, SourceMode};

/// Show the multicast groups that a running stack has joined.
#[derive(Debug, Args)]
#[command(after_help = "\
Words, as in ip-maddress(8); commands may be cut short:
  show [[dev] X] [up]

Sockets join groups; there is nothing to add by hand.

Examples:
  forebay maddr
  forebay maddr show tun0 -4 --json

Exit status: 0, or 1 if the words make no sense, or 2 if the stack refuses.")]
pub(crate) struct MaddrArgs {
    /// What to do; see below.
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    family: FamilyArgs,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &MaddrArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &MaddrArgs) -> Result<(), CommandError> {
    let which = parse(&args.words).map_err(CommandError::Usage)?;
    let family = args.family.family();
    let mut client = args.asking.client()?;
    let links = link::select(&mut client, &which)?;
    let mut groups = client.groups()?;
    groups.retain(|group| family.is_none_or(|family| family == Family::of(group.addr)));
    let here = |link: &Link| {
        let groups = groups.iter().filter(|group| group.ifindex == link.index);
        groups.cloned().collect::<Vec<_>>()
    };
    if args.asking.json {
        let links = links.iter().map(|link| json(link, &here(link)));
        asking::print_json(&links.collect::<Vec<_>>())
    } else {
        let links = links.iter().map(|link| text(link, &here(link)));
        asking::print(&links.collect::<String>())
    }
}

fn parse(words: &[String]) -> Result<Which, String> {
    let mut words = Words::new(words);
    let word = words.next().unwrap_or("show");
    match command(word, &["show", "lst", "list", "add", "delete"]) {
        Some("add" | "delete") => Err("groups are joined by sockets, not by hand".to_owned()),
        Some(_) => link::parse_which(words),
        None => Err(format!(
            "command {word:?} is unknown; try `forebay maddr --help`"
        )),
    }
}

/// As ip-maddress(8), with the sources behind it that only some groups have.
fn text(link: &Link, groups: &[Group]) -> String {
    let groups = groups.iter().map(|group| {
        let Group { addr, users, .. } = group;
        let users = match users {
            0 | 1 => String::new(),
            users => format!(" users {users}"),
        };
        let sources = match group.sources.is_empty() {
            true => String::new(),
            false => {
                let sources: Vec<_> = group.sources.iter().map(ToString::to_string).collect();
                format!(" {} {}", mode(group.mode), sources.join(","))
            }
        };
        format!("\t{:<5} {addr}{users}{sources}\n", family(*addr))
    });
    format!(
        "{}:\t{}\n{}",
        link.index,
        link.name,
        groups.collect::<String>()
    )
}

/// The names are those of `ip -j maddr`.
#[derive(Debug, Serialize)]
struct Json {
    ifindex: u32,
    ifname: String,
    maddr: Vec<Maddr>,
}

#[derive(Debug, Serialize)]
struct Maddr {
    family: &'static str,
    address: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<IpAddr>,
}

fn json(link: &Link, groups: &[Group]) -> Json {
    let maddr = groups.iter().map(|group| Maddr {
        family: family(group.addr),
        address: group.addr,
        users: Some(group.users).filter(|users| *users > 1),
        mode: (!group.sources.is_empty()).then(|| mode(group.mode)),
        sources: group.sources.clone(),
    });
    Json {
        ifindex: link.index,
        ifname: link.name.clone(),
        maddr: maddr.collect(),
    }
}

fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "inet" } else { "inet6" }
}

fn mode(mode: SourceMode) -> &'static str {
    match mode {
        SourceMode::Include => "include",
        SourceMode::Exclude => "exclude",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::words::split;

    #[test]
    fn reads_what_ip_reads() {
        for line in ["", "s", "show", "ls"] {
            assert_eq!(parse(&split(line)), Ok(Which::default()), "{line}");
        }
        for (line, why) in [("frob", "is unknown"), ("add 239.0.0.1", "by sockets")] {
            let error = parse(&split(line)).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn prints_what_ip_prints() {
        let link = Link {
            index: 2,
            name: "tun0".to_owned(),
            mtu: 1_500,
            up: true,
            loopback: false,
            addresses: Vec::new(),
        };
        let group = |addr: &str, users, sources: &[&str]| Group {
            ifindex: 2,
            addr: addr.parse().unwrap(),
            users,
            mode: SourceMode::Include,
            sources: sources.iter().map(|addr| addr.parse().unwrap()).collect(),
        };
        let groups = [
            group("224.0.0.1", 1, &[]),
            group("239.1.2.3", 2, &["10.9.0.2", "10.9.0.3"]),
            group("ff02::1", 1, &[]),
        ];
        let expected = "2:\ttun0\n\tinet  224.0.0.1\n\
            \tinet  239.1.2.3 users 2 include 10.9.0.2,10.9.0.3\n\tinet6 ff02::1\n";
        assert_eq!(text(&link, &groups), expected);
        let expected = concat!(
            r#"{"ifindex":2,"ifname":"tun0","maddr":[{"family":"inet","address":"224.0.0.1"},"#,
            r#"{"family":"inet","address":"239.1.2.3","users":2,"mode":"include","#,
            r#""sources":["10.9.0.2","10.9.0.3"]},{"family":"inet6","address":"ff02::1"}]}"#,
        );
        assert_eq!(
            serde_json::to_string(&json(&link, &groups)).unwrap(),
            expected
        );
    }
}
