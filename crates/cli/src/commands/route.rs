//! `forebay route`, in the manner of ip-route(8).

use std::process::ExitCode;

use clap::Args;

use super::asking::{self, Asking, CommandError, finish};
use super::words::FamilyArgs;
use crate::control::client::Client;
use crate::control::protocol::{Family, Request};

mod grammar;
mod show;

use grammar::{Filter, RouteCommand};

/// Show and change a running stack's routes.
///
/// Without words, lists the routes of table main; IPv4 unless -6 is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Words, as in ip-route(8); commands may be cut short (`a`, `d`, `r`, `s`):
  show [PREFIX] [root|match|exact PREFIX] [table TABLE|all] [dev X] [via ADDRESS]
       [proto P] [scope S] [type TYPE] [src ADDRESS]
  add|append|replace|del [TYPE] PREFIX [via ADDRESS] [dev X] [metric N] [table TABLE]
       [src ADDRESS] [mtu N] [proto P] [scope S] [onlink]
  get ADDRESS [from ADDRESS] [iif X] [oif X]
TYPE is unicast, local, broadcast, multicast, blackhole, unreachable or prohibit.

Examples:
  forebay route
  forebay route add default via 10.9.0.2
  forebay route add 10.1.0.0/16 dev tun1 metric 100
  forebay route add local 0.0.0.0/0 dev lo table 100
  forebay route get 10.1.2.3
  forebay route show table all --json

Exit status: 0, or 1 if the words make no sense, or 2 if the stack refuses.")]
pub(crate) struct RouteArgs {
    /// What to do; see below.
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    family: FamilyArgs,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &RouteArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &RouteArgs) -> Result<(), CommandError> {
    let command = grammar::parse(&args.words, args.family.family()).map_err(CommandError::Usage)?;
    let mut client = args.asking.client()?;
    match command {
        RouteCommand::Show(filter) => list(&mut client, &filter, args.asking.json),
        RouteCommand::Get(lookup) => {
            let path = client.look_up(lookup.clone())?;
            if args.asking.json {
                asking::print_json(&[show::path_json(&lookup, &path)])
            } else {
                asking::print(&show::path_text(&lookup, &path))
            }
        }
        RouteCommand::Add { route, conflict } => {
            Ok(client.change(Request::AddRoute { route, conflict })?)
        }
        RouteCommand::Delete(selector) => Ok(client.change(Request::DeleteRoute(selector))?),
    }
}

fn list(client: &mut Client, filter: &Filter, json: bool) -> Result<(), CommandError> {
    let families = match filter.family {
        Some(family) => vec![family],
        None => vec![Family::Inet, Family::Inet6],
    };
    let mut routes = Vec::new();
    for family in families {
        let all = client.routes(family, filter.table)?.into_iter();
        routes.extend(all.filter(|route| filter.matches(route)));
    }
    if json {
        asking::print_json(&routes.iter().map(show::json).collect::<Vec<_>>())
    } else {
        asking::print(
            &routes
                .iter()
                .map(|route| show::text(route, filter))
                .collect::<String>(),
        )
    }
}
