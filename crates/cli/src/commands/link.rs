//! `forebay link`, in the manner of ip-link(8), and what `addr` shows of interfaces.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::asking::{self, Asking, CommandError, finish};
use super::words::{Words, command};
use crate::control::client::Client;
use crate::control::protocol::{Link, Request};

/// Show and change a running stack's interfaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Words, as in ip-link(8); commands may be cut short:
  show [[dev] X] [up]
  set [dev] X [up|down] [mtu N]

Examples:
  forebay link
  forebay link set tun0 down
  forebay link set dev tun0 up mtu 1400

Exit status: 0, or 1 if the words make no sense, or 2 if the stack refuses.")]
pub(crate) struct LinkArgs {
    /// What to do; see below.
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &LinkArgs) -> Result<(), CommandError> {
    let command = parse(&args.words).map_err(CommandError::Usage)?;
    let mut client = args.asking.client()?;
    match command {
        LinkCommand::Show(which) => {
            let links = select(&mut client, &which)?;
            if args.asking.json {
                asking::print_json(&links.iter().map(json).collect::<Vec<_>>())
            } else {
                asking::print(&links.iter().map(text).collect::<String>())
            }
        }
        LinkCommand::Set { dev, up, mtu } => {
            Ok(client.change(Request::SetLink { dev, up, mtu })?)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkCommand {
    Show(Which),
    Set {
        dev: String,
        up: Option<bool>,
        mtu: Option<u32>,
    },
}

/// Which interfaces to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Which {
    dev: Option<String>,
    up: bool,
}

/// The interfaces that are asked for.
pub(super) fn select(client: &mut Client, which: &Which) -> Result<Vec<Link>, CommandError> {
    let mut links = client.links()?;
    if let Some(dev) = &which.dev {
        links.retain(|link| link.name == *dev);
        if links.is_empty() {
            let why = format!("device {dev:?} does not exist; `forebay link` lists those that do");
            return Err(CommandError::Usage(why));
        }
    }
    links.retain(|link| link.up || !which.up);
    Ok(links)
}

fn parse(words: &[String]) -> Result<LinkCommand, String> {
    let mut words = Words::new(words);
    let word = words.next().unwrap_or("show");
    match command(word, &["set", "show", "lst", "list"]) {
        Some("set") => parse_set(words),
        Some(_) => parse_which(words).map(LinkCommand::Show),
        None => Err(format!(
            "command {word:?} is unknown; try `forebay link --help`"
        )),
    }
}

/// `[[dev] X] [up]`.
pub(super) fn parse_which(mut words: Words) -> Result<Which, String> {
    let mut which = Which::default();
    while let Some(word) = words.next() {
        match word {
            "up" => which.up = true,
            "dev" => which.dev = Some(words.value(word)?.to_owned()),
            name if which.dev.is_none() => which.dev = Some(name.to_owned()),
            _ => return Err(format!("{word:?} is garbage: expected [dev] NAME [up]")),
        }
    }
    Ok(which)
}

fn parse_set(mut words: Words) -> Result<LinkCommand, String> {
    let (mut dev, mut up, mut mtu) = (None, None, None);
    while let Some(word) = words.next() {
        match word {
            "dev" => dev = Some(words.value(word)?.to_owned()),
            "up" => up = Some(true),
            "down" => up = Some(false),
            "mtu" => mtu = Some(words.number(word)?),
            name if dev.is_none() => dev = Some(name.to_owned()),
            _ => {
                return Err(format!(
                    "{word:?} is garbage: expected [dev] NAME [up|down] [mtu N]"
                ));
            }
        }
    }
    let dev = dev.ok_or("`link set` needs the interface's name")?;
    if up.is_none() && mtu.is_none() {
        return Err("`link set` needs `up`, `down` or `mtu N`".to_owned());
    }
    Ok(LinkCommand::Set { dev, up, mtu })
}

/// Two lines, as ip-link(8) begins them.
pub(super) fn text(link: &Link) -> String {
    format!(
        "{}: {}: <{}> mtu {} state {}\n    link/{}\n",
        link.index,
        link.name,
        flags(link).join(","),
        link.mtu,
        state(link),
        kind(link),
    )
}

/// The names are those of `ip -j link`.
#[derive(Debug, Serialize)]
pub(super) struct Json {
    ifindex: u32,
    ifname: String,
    flags: Vec<&'static str>,
    mtu: u32,
    operstate: &'static str,
    link_type: &'static str,
}

pub(super) fn json(link: &Link) -> Json {
    Json {
        ifindex: link.index,
        ifname: link.name.clone(),
        flags: flags(link),
        mtu: link.mtu,
        operstate: state(link),
        link_type: kind(link),
    }
}

fn flags(link: &Link) -> Vec<&'static str> {
    let mut flags = match link.loopback {
        true => vec!["LOOPBACK"],
        false => vec!["POINTOPOINT", "MULTICAST", "NOARP"],
    };
    if link.up {
        flags.extend(["UP", "LOWER_UP"]);
    }
    flags
}

fn state(link: &Link) -> &'static str {
    match (link.up, link.loopback) {
        (false, _) => "DOWN",
        (true, true) => "UNKNOWN",
        (true, false) => "UP",
    }
}

fn kind(link: &Link) -> &'static str {
    if link.loopback { "loopback" } else { "none" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::words::split;

    fn link(name: &str, up: bool) -> Link {
        Link {
            index: 2,
            name: name.to_owned(),
            mtu: 1_500,
            up,
            loopback: name == "lo",
            addresses: Vec::new(),
        }
    }

    #[test]
    fn reads_what_ip_reads() {
        let set = |up, mtu| {
            Ok(LinkCommand::Set {
                dev: "tun0".to_owned(),
                up,
                mtu,
            })
        };
        let show = |dev: Option<&str>, up| {
            Ok(LinkCommand::Show(Which {
                dev: dev.map(str::to_owned),
                up,
            }))
        };
        for (line, expected) in [
            ("", show(None, false)),
            ("show", show(None, false)),
            ("ls up", show(None, true)),
            ("show tun0", show(Some("tun0"), false)),
            ("show dev up up", show(Some("up"), true)),
            ("set tun0 up", set(Some(true), None)),
            ("s dev tun0 down", set(Some(false), None)),
            ("set tun0 mtu 1400 up", set(Some(true), Some(1_400))),
        ] {
            assert_eq!(parse(&split(line)), expected, "{line}");
        }
        for (line, why) in [
            ("frob", "is unknown"),
            ("set", "needs the interface's name"),
            ("set tun0", "needs `up`, `down` or `mtu N`"),
            ("set tun0 mtu", "something must follow"),
            ("set tun0 mtu x", "a number must follow"),
            ("set tun0 up arp on", "\"arp\" is garbage"),
            ("show a b", "is garbage"),
        ] {
            let error = parse(&split(line)).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn prints_what_ip_prints() {
        let expected = "2: tun0: <POINTOPOINT,MULTICAST,NOARP,UP,LOWER_UP> mtu 1500 state UP\n    \
                        link/none\n";
        assert_eq!(text(&link("tun0", true)), expected);
        let expected = "2: lo: <LOOPBACK> mtu 1500 state DOWN\n    link/loopback\n";
        assert_eq!(text(&link("lo", false)), expected);
        let expected = r#"{"ifindex":2,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":1500,"operstate":"UNKNOWN","link_type":"loopback"}"#;
        assert_eq!(
            serde_json::to_string(&json(&link("lo", true))).unwrap(),
            expected
        );
    }
}
