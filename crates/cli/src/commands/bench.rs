//! `forebay bench`.

use std::io;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::bench::{
    self, CoresArgs, DemuxArgs, FibArgs, GrowArgs, OpenArgs, PartsArgs, RfsArgs, RouteArgs, UdpArgs,
};

/// Measure the path in memory, on this machine.
///
/// No device and no privilege is needed. Settings take turns in random order, so that what else the
/// machine does hits them alike; each packet is checked where it comes out.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,

    /// Ask the kernel of this machine the same, and print its rows above Forebay's: `route` and
    /// `udp` only, by root.
    #[arg(long, global = true)]
    kernel: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum Bench {
    Route(RouteArgs),
    Demux(DemuxArgs),
    Fib(FibArgs),
    Grow(GrowArgs),
    Open(OpenArgs),
    Udp(UdpArgs),
    Rfs(RfsArgs),
    Cores(CoresArgs),
    Parts(PartsArgs),
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match measure(args) {
        // Nobody reads any more.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        measured => measured,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn measure(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.bench {
        Bench::Route(route) if args.kernel => bench::kernel_route(route),
        Bench::Udp(udp) if args.kernel => bench::kernel_udp(udp),
        _ if args.kernel => bail!("only `bench route` and `bench udp` can ask the kernel"),
        Bench::Route(args) => bench::route(args),
        Bench::Demux(args) => bench::demux(args),
        Bench::Fib(args) => bench::fib(args),
        Bench::Grow(args) => bench::grow(args),
        Bench::Open(args) => bench::open(args),
        Bench::Udp(args) => bench::udp(args),
        Bench::Rfs(args) => bench::rfs(args),
        Bench::Cores(args) => bench::cores(args),
        Bench::Parts(args) => bench::parts(args),
    }
}
