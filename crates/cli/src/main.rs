//! The `forebay` command: a contents page. What a subcommand does stands in its file in `commands`.

#![forbid(unsafe_code)]
// They panic if nobody listens any more.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod clock;
mod commands;
mod config;
mod control;
mod daemon;
mod datagrams;
mod numbers;
mod playback;
mod random;
mod text_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{
    addr, bench as benches, exec, flood, link, maddr, nstat, replay, route, rule, run, sink, ss,
    sysctl, top, trace,
};

/// An IP router and a host in one process, in user space.
///
/// Forebay routes and serves IPv4 and IPv6 by itself: its routes, addresses, sockets, knobs and
/// counters are its own, and have the names that they have on Linux. No root is needed but for
/// devices of the kernel.
#[derive(Parser)]
#[command(name = "forebay", version, after_help = AFTER_HELP, propagate_version = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  forebay run                            a router with traffic of its own; Ctrl-C ends it
  forebay exec -- ping -c 3 10.9.0.1     ping a stack from a network made for the occasion
  forebay trace FILE.pcap                what becomes of each packet of a capture, and why
  forebay help run                       what a command does, with examples";

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Exec(exec::ExecArgs),
    Sysctl(sysctl::SysctlArgs),
    Addr(addr::AddrArgs),
    Link(link::LinkArgs),
    Maddr(maddr::MaddrArgs),
    Route(route::RouteArgs),
    Rule(rule::RuleArgs),
    Nstat(nstat::NstatArgs),
    Ss(ss::SsArgs),
    Top(top::TopArgs),
    Sink(sink::SinkArgs),
    Flood(flood::FloodArgs),
    Replay(replay::ReplayArgs),
    Trace(trace::TraceArgs),
    Bench(benches::BenchArgs),
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(instead) => return show(&instead),
    };
    let result = match args.command {
        Command::Run(args) => run::run(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Sysctl(args) => sysctl::run(&args),
        Command::Addr(args) => addr::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Maddr(args) => maddr::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Rule(args) => rule::run(&args),
        Command::Nstat(args) => nstat::run(&args),
        Command::Ss(args) => ss::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Sink(args) => sink::run(&args),
        Command::Flood(args) => flood::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => benches::run(&args),
    };
    result.unwrap_or_else(|error| {
        commands::complain(&error);
        ExitCode::FAILURE
    })
}

/// Help that was asked for, or what is wrong with the command line.
fn show(instead: &clap::Error) -> ExitCode {
    // Nobody is left to be told if that fails.
    let _ = instead.print();
    if instead.use_stderr() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
