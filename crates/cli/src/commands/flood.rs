//! `forebay flood`: send datagrams as fast as they go, and say what each one took, as udp_flood does.

use std::io::{self, ErrorKind, Stdout};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use forebay::Stack;
use forebay::drop::DropReason;

use super::run::refuse_exec_devices;
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::{self, Daemon, Knob};
use crate::datagrams::pktgen;
use crate::datagrams::{
    BATCH, Background, Family, Flood, FloodRow, Host, Limits, PAYLOAD, PORT, Place, ReceiveCall,
    Receiver, Rig, SendCall, Table, Test,
};

/// Datagrams that the sink of this process takes between two looks whether it is to end, and how long
/// it waits for one.
const GULP: Limits = Limits {
    count: 64,
    silence: Some(Duration::from_millis(100)),
    dontwait: false,
    batch: 1,
};

/// Send UDP datagrams as fast as they go, and say how long each took.
///
/// Without an address, all happens in this process: over a wire between two stacks, to a sink that
/// reads what it can. With --kernel, a socket of the kernel sends to ADDR, and with --config, one of
/// a stack with that configuration.
///
/// Rows are those of udp_flood: datagrams, nanoseconds and cycles of the time-stamp counter for each, datagrams a
/// second, bytes of payload; behind them `c` (connected, which the socket always is) and, unless
/// zero, `full` (how often there was no room and it was tried again), `refused` (how often the peer
/// said that nobody listens) and `dropped` (packets for which the stack's device had no room).
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct FloodArgs {
    /// Host to send to, with --kernel or --config: an address or a name
    addr: Option<String>,

    /// Send with send(2), or send
    #[arg(long, help_heading = TESTS)]
    send: bool,

    /// Send with sendto(2), or send_to
    #[arg(short = 't', long, help_heading = TESTS)]
    sendto: bool,

    /// Send with sendmsg(2), or send_message
    #[arg(short = 'u', long, help_heading = TESTS)]
    sendmsg: bool,

    /// Send with sendmmsg(2), or send_batch
    #[arg(short = 'U', long, help_heading = TESTS)]
    sendmmsg: bool,

    /// Send with write(2); needs --kernel
    #[arg(short = 'T', long, requires = "kernel", help_heading = TESTS)]
    write: bool,

    /// Datagrams of a test
    #[arg(short, long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Datagrams that a call of --sendmmsg sends
    #[arg(short, long, value_name = "N", default_value_t = BATCH, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    batch: u16,

    /// Port to send to
    #[arg(short, long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Bytes of a datagram
    #[arg(short = 'm', long, value_name = "BYTES", default_value_t = PAYLOAD, value_parser = clap::value_parser!(u16).range(..=65_507))]
    payload: u16,

    /// Fill datagrams with headers as the kernel's pktgen writes them, for `sink --check-pktgen`
    #[arg(short = 'P', long)]
    pktgen_header: bool,

    /// IPv4; of a name, its IPv4 address
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// IPv6; of a name, its IPv6 address
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Print JSON: an object a row
    #[arg(short, long)]
    json: bool,

    /// Send from a socket of the kernel
    #[arg(long, requires = "addr", conflicts_with_all = ["config", "set"])]
    kernel: bool,

    /// Send from a stack with this configuration (docs/config.md describes it)
    #[arg(long, value_name = "FILE", requires = "addr")]
    config: Option<PathBuf>,

    /// Set a knob of the stack that sends; may be repeated
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Knob>,
}

const TESTS: &str = "Tests (all, unless some are named; always in this order)";

const AFTER_HELP: &str = "\
Examples:
  forebay flood                                   Forebay to Forebay, in this process
  forebay flood --kernel 127.0.0.1 -c 100000      from the kernel's sockets, to `sink --kernel`
  forebay sink -- forebay flood --kernel fd09::1  from the kernel to Forebay, over a TUN device";

impl FloodArgs {
    fn calls(&self) -> Vec<SendCall> {
        let is_named = |call: &SendCall| match call {
            SendCall::Send => self.send,
            SendCall::Sendto => self.sendto,
            SendCall::Sendmsg => self.sendmsg,
            SendCall::SendMmsg => self.sendmmsg,
            SendCall::Write => self.write,
        };
        let all = SendCall::ALL.into_iter();
        let named: Vec<_> = all.clone().filter(is_named).collect();
        if !named.is_empty() {
            return named;
        }
        all.filter(|call| self.kernel || !call.is_kernels())
            .collect()
    }

    /// Where to send to.
    fn target(&self, addr: &str) -> anyhow::Result<SocketAddr> {
        let cannot = || format!("cannot find {addr}");
        let mut found = (addr, self.port).to_socket_addrs().with_context(cannot)?;
        let is_wanted = |found: &SocketAddr| match Family::of(found.ip()) {
            Family::V4 => !self.ipv6,
            Family::V6 => !self.ipv4,
        };
        let wanted = found.find(is_wanted);
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        wanted.with_context(|| format!("{addr} has no {family} address"))
    }
}

pub(crate) fn run(args: &FloodArgs) -> anyhow::Result<ExitCode> {
    if args.pktgen_header && usize::from(args.payload) < pktgen::LEN {
        let (payload, header) = (args.payload, pktgen::LEN);
        bail!("--payload {payload}: a pktgen header has {header} bytes");
    }
    let Setting { host, peer, far } = Setting::new(args)?;
    let family = Family::of(peer.ip());
    let socket = host.bind(SocketAddr::new(family.unspecified(), 0))?;
    let payload = usize::from(args.payload);
    let flood = Flood::new(socket, peer, payload, args.pktgen_header, args.batch.into());
    let mut flood = flood.with_context(|| format!("cannot connect to {peer}"))?;
    let place = Place {
        kernel: args.kernel,
        family: family.version(),
    };
    let mut table = Table::new(io::stdout(), args.json, place, &Clock::new());
    for call in args.calls() {
        let before = dropped(&host);
        let sent = flood.run(call, args.count);
        let row = FloodRow {
            test: Test {
                name: call.name(),
                batch: (call == SendCall::SendMmsg).then_some(args.batch),
            },
            sent: sent.with_context(|| format!("cannot {} to {peer}", call.name()))?,
            dropped: dropped(&host) - before,
        };
        if !print(&mut table, &row)? {
            break;
        }
    }
    if let Far::Network(daemon) = far {
        daemon.settle();
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a row, and says whether anybody reads.
fn print(table: &mut Table<Stdout>, row: &FloodRow) -> io::Result<bool> {
    match table.flood(row) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        printed => printed.map(|()| true),
    }
}

/// What the stack has dropped because a device's queue was full.
fn dropped(host: &Host) -> u64 {
    match host {
        Host::Kernel => 0,
        Host::Forebay(stack) => stack.inner().counters().dropped(DropReason::TxQueueFull),
    }
}

/// From where to where.
struct Setting {
    host: Host,
    peer: SocketAddr,
    far: Far,
}

/// What has to live as long as the flood.
enum Far {
    /// A sink in this process.
    Own {
        _sink: Background,
        _rig: Rig,
    },
    Network(Box<Daemon>),
    Anywhere,
}

impl Setting {
    fn new(args: &FloodArgs) -> anyhow::Result<Self> {
        match (&args.addr, &args.config) {
            (Some(addr), None) if args.kernel => Ok(Self {
                host: Host::Kernel,
                peer: args.target(addr)?,
                far: Far::Anywhere,
            }),
            (Some(addr), Some(path)) => {
                let config = Config::load(path)?;
                refuse_exec_devices(&config)?;
                daemon::rehearse(&config, &args.set)?;
                let peer = args.target(addr)?;
                let daemon = Box::new(Daemon::start(&config, &args.set)?);
                Ok(Self {
                    host: Host::Forebay(daemon.stack().clone()),
                    peer,
                    far: Far::Network(daemon),
                })
            }
            (Some(addr), None) => bail!(
                "{addr}: add --kernel to send there from the kernel's sockets, or --config FILE to \
                 send from a stack; without an address the flood stays in this process"
            ),
            (None, _) => Self::wire(args),
        }
    }

    fn wire(args: &FloodArgs) -> anyhow::Result<Self> {
        let rig = Rig::new()?;
        args.set.iter().try_for_each(|knob| knob.set(rig.flood()))?;
        let family = if args.ipv6 { Family::V6 } else { Family::V4 };
        let peer = SocketAddr::new(Rig::sink_addr(family), args.port);
        let sink = sink(rig.sink(), peer).context("cannot start the sink")?;
        Ok(Self {
            host: Host::Forebay(rig.flood().clone()),
            peer,
            far: Far::Own {
                _sink: sink,
                _rig: rig,
            },
        })
    }
}

fn sink(stack: &Stack, addr: SocketAddr) -> io::Result<Background> {
    let socket = Host::Forebay(stack.clone()).bind(addr)?;
    let mut receiver = Receiver::new(socket, GULP, None);
    Background::start("forebay-sink", move || {
        receiver.run(ReceiveCall::Recv).map(drop)
    })
}
