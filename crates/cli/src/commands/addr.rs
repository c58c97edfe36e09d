//! `forebay addr`, in the manner of ip-address(8).

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::asking::{self, Asking, CommandError, finish};
use super::link::{self, Which};
use super::words::{self, FamilyArgs, Words, command, common_family};
use crate::control::protocol::{Family, Link, LinkAddress, Network, Request};

/// Show and change the addresses of a running stack's interfaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Words, as in ip-address(8); commands may be cut short (`a`, `d`, `s`):
  show [[dev] X] [up]
  add|del ADDRESS/LENGTH dev X

Examples:
  forebay addr
  forebay addr add 10.9.0.1/24 dev tun0
  forebay addr del fd09::1/64 dev tun0
  forebay addr show tun0 -4 --json

Exit status: 0, or 1 if the words make no sense, or 2 if the stack refuses.")]
pub(crate) struct AddrArgs {
    /// What to do; see below.
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    family: FamilyArgs,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &AddrArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &AddrArgs) -> Result<(), CommandError> {
    let family = args.family.family();
    let command = parse(&args.words, family).map_err(CommandError::Usage)?;
    let mut client = args.asking.client()?;
    match command {
        AddrCommand::Show(which) => {
            let mut links = link::select(&mut client, &which)?;
            for link in &mut links {
                let is_wanted = |own: &LinkAddress| {
                    family.is_none_or(|family| family == Family::of(own.network.addr))
                };
                link.addresses.retain(is_wanted);
            }
            if args.asking.json {
                asking::print_json(&links.iter().map(json).collect::<Vec<_>>())
            } else {
                asking::print(&links.iter().map(text).collect::<String>())
            }
        }
        AddrCommand::Add { dev, address } => {
            Ok(client.change(Request::AddAddress { dev, address })?)
        }
        AddrCommand::Delete { dev, address } => {
            Ok(client.change(Request::DeleteAddress { dev, address })?)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AddrCommand {
    Show(Which),
    Add { dev: String, address: Network },
    Delete { dev: String, address: Network },
}

fn parse(words: &[String], family: Option<Family>) -> Result<AddrCommand, String> {
    let mut words = Words::new(words);
    let word = words.next().unwrap_or("show");
    match command(word, &["add", "delete", "show", "lst", "list"]) {
        Some("add") => {
            let (dev, address) = parse_address(words, family)?;
            Ok(AddrCommand::Add { dev, address })
        }
        Some("delete") => {
            let (dev, address) = parse_address(words, family)?;
            Ok(AddrCommand::Delete { dev, address })
        }
        Some(_) => link::parse_which(words).map(AddrCommand::Show),
        None => Err(format!(
            "command {word:?} is unknown; try `forebay addr --help`"
        )),
    }
}

fn parse_address(mut words: Words, family: Option<Family>) -> Result<(String, Network), String> {
    let (mut dev, mut address) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "dev" => dev = Some(words.value(word)?.to_owned()),
            "local" => address = Some(words.value(word)?),
            "brd" | "broadcast" => match words.value(word)? {
                // Every IPv4 network that has a broadcast address gets it.
                "+" => {}
                _ => return Err("only `brd +` is supported, which is the default".to_owned()),
            },
            "peer" | "anycast" | "label" | "scope" | "valid_lft" | "preferred_lft" | "metric" => {
                return Err(format!("{word:?} is not supported"));
            }
            _ if address.is_none() => address = Some(word),
            _ => {
                return Err(format!(
                    "{word:?} is garbage: expected ADDRESS/LENGTH dev NAME"
                ));
            }
        }
    }
    let address = words::network(address.ok_or("an address is needed: ADDRESS/LENGTH dev NAME")?)?;
    common_family(family, [address.addr])?;
    let dev = dev.ok_or("`dev` and the interface's name are needed")?;
    Ok((dev, address))
}

fn text(link: &Link) -> String {
    let addresses = link.addresses.iter().map(|own| {
        let broadcast = own
            .broadcast
            .map(|addr| format!(" brd {addr}"))
            .unwrap_or_default();
        let Network { addr, len } = own.network;
        let label = if addr.is_ipv4() {
            format!(" {}", link.name)
        } else {
            String::new()
        };
        format!(
            "    {} {addr}/{len}{broadcast} scope {}{label}\n",
            family(addr),
            scope(addr)
        )
    });
    link::text(link) + &addresses.collect::<String>()
}

/// The names are those of `ip -j addr`.
#[derive(Debug, Serialize)]
struct Json {
    #[serde(flatten)]
    link: link::Json,
    addr_info: Vec<AddrInfo>,
}

#[derive(Debug, Serialize)]
struct AddrInfo {
    family: &'static str,
    local: IpAddr,
    prefixlen: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    broadcast: Option<IpAddr>,
    scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

fn json(link: &Link) -> Json {
    let addr_info = link.addresses.iter().map(|own| AddrInfo {
        family: family(own.network.addr),
        local: own.network.addr,
        prefixlen: own.network.len,
        broadcast: own.broadcast,
        scope: scope(own.network.addr),
        label: own.network.addr.is_ipv4().then(|| link.name.clone()),
    });
    Json {
        link: link::json(link),
        addr_info: addr_info.collect(),
    }
}

fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "inet" } else { "inet6" }
}

/// How far the address is good for (Linux's `inet_addr_type`, RFC 4007).
fn scope(addr: IpAddr) -> &'static str {
    match addr {
        addr if addr.is_loopback() => "host",
        IpAddr::V6(addr) if addr.is_unicast_link_local() => "link",
        _ => "global",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::words::split;

    #[test]
    fn reads_what_ip_reads() {
        let parsed = |line: &str| parse(&split(line), None);
        let address = |text: &str| (words::network(text).unwrap(), "tun0".to_owned());
        for (words, expected) in [
            ("10.0.0.1/24 dev tun0", "10.0.0.1/24"),
            ("dev tun0 local 10.0.0.1/24 brd +", "10.0.0.1/24"),
            ("fd00::1 dev tun0", "fd00::1/128"),
        ] {
            let (address, dev) = address(expected);
            let added = AddrCommand::Add {
                dev: dev.clone(),
                address,
            };
            assert_eq!(parsed(&format!("a {words}")), Ok(added));
            assert_eq!(
                parsed(&format!("del {words}")),
                Ok(AddrCommand::Delete { dev, address })
            );
        }
        for line in ["", "s", "show", "ls"] {
            assert_eq!(
                parsed(line),
                Ok(AddrCommand::Show(Which::default())),
                "{line}"
            );
        }
        for (line, why) in [
            ("frob", "is unknown"),
            ("add", "an address is needed"),
            ("add 10.0.0.1/24", "`dev` and the interface's name"),
            ("add 10.0.0.1/99 dev a", "from 0 to 32"),
            ("add x dev a", "neither an address"),
            ("add 10.0.0.1/24 dev a brd 10.0.0.9", "only `brd +`"),
            ("add 10.0.0.1/24 dev a peer 10.0.0.2", "not supported"),
            ("add 10.0.0.1/24 10.0.0.2/24 dev a", "is garbage"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
        assert!(parse(&split("add fd00::1/64 dev a"), Some(Family::Inet)).is_err());
    }

    #[test]
    fn prints_what_ip_prints() {
        let own = |text: &str, broadcast: Option<&str>| LinkAddress {
            network: words::network(text).unwrap(),
            broadcast: broadcast.map(|addr| addr.parse().unwrap()),
        };
        let link = Link {
            index: 2,
            name: "tun0".to_owned(),
            mtu: 1_500,
            up: true,
            loopback: false,
            addresses: vec![
                own("10.9.0.1/24", Some("10.9.0.255")),
                own("fd09::1/64", None),
                own("fe80::1/64", None),
            ],
        };
        let expected = "\
2: tun0: <POINTOPOINT,MULTICAST,NOARP,UP,LOWER_UP> mtu 1500 state UP
    link/none
    inet 10.9.0.1/24 brd 10.9.0.255 scope global tun0
    inet6 fd09::1/64 scope global
    inet6 fe80::1/64 scope link
";
        assert_eq!(text(&link), expected);
        let expected = concat!(
            r#"{"ifindex":2,"ifname":"tun0","flags":["POINTOPOINT","MULTICAST","NOARP","UP","LOWER_UP"],"#,
            r#""mtu":1500,"operstate":"UP","link_type":"none","addr_info":["#,
            r#"{"family":"inet","local":"10.9.0.1","prefixlen":24,"broadcast":"10.9.0.255","scope":"global","label":"tun0"},"#,
            r#"{"family":"inet6","local":"fd09::1","prefixlen":64,"scope":"global"},"#,
            r#"{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}"#,
        );
        assert_eq!(serde_json::to_string(&json(&link)).unwrap(), expected);
    }
}
