//! `forebay sink`: receive datagrams and say what each one took, as udp_sink does.

mod source;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use crate::clock::Clock;
use crate::config;
use crate::daemon::Knob;
use crate::datagrams::pktgen::{self, Level};
use crate::datagrams::{
    BATCH, End, Family, Host, Limits, PAYLOAD, PORT, Place, ReceiveCall, Receiver, Sharing,
    SinkRow, Table, Test,
};
use source::{Setting, Source};

/// Receive UDP datagrams, and say how long each took.
///
/// Without further words, all happens in this process: `forebay sink` floods itself over a wire
/// between two stacks. With a command behind `--`, that is run in a private network as
/// `forebay exec` makes it, and is expected to send to 10.9.0.1 or fd09::1. With --config the sink
/// is a socket on that stack, and with --kernel one of the kernel; then anybody may send.
///
/// Each test waits for a first datagram, which is not counted, and then makes its runs. Rows are
/// those of udp_sink: nanoseconds and cycles of the time-stamp counter for each datagram, datagrams a second, mean
/// payload in bytes; behind them, unless zero, `demux` (net.ipv4.ip_early_demux), `c` (connected)
/// and `emptyq` (how often the queue was empty with --dontwait). A run that gets too little ends by
/// --sk-timeout; its row counts what came, and the time until then.
///
/// The exit status is 1 if nothing came, or if a check found a fault and was to stop there.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SinkArgs {
    /// Receive with recvmmsg(2), as many as are there; on Forebay's sockets, with recv_batch
    #[arg(short = 'U', long, help_heading = TESTS)]
    recvmmsg: bool,

    /// Receive with recvmsg(2); on Forebay's sockets, with recv_vectored
    #[arg(short = 'u', long, help_heading = TESTS)]
    recvmsg: bool,

    /// Receive with read(2); needs --kernel
    #[arg(short = 'T', long, requires = "kernel", help_heading = TESTS)]
    read: bool,

    /// Receive with recvfrom(2), or recv_from
    #[arg(short = 't', long, help_heading = TESTS)]
    recvfrom: bool,

    /// Receive with recv(2), or recv
    #[arg(long, help_heading = TESTS)]
    recv: bool,

    /// Datagrams of a run
    #[arg(short, long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Runs of each test
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Datagrams that a call of --recvmmsg takes at most
    #[arg(short, long, value_name = "N", default_value_t = BATCH, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    batch: u16,

    /// Port to receive at, on any address
    #[arg(short = 'l', long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// IPv4, which it is anyway
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// IPv6
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Connect the socket to the sender of the first datagram, so that early demux finds it
    #[arg(short = 'C', long)]
    connect: bool,

    /// Share the port with others that say so, too: a flow goes to one of them
    #[arg(short = 's', long)]
    reuse_port: bool,

    /// Have a program choose among those that share the port: by the number of the core that
    /// receives the datagram
    #[arg(long, requires = "reuse_port")]
    use_bpf: bool,

    /// Ask again and again rather than wait
    #[arg(short, long)]
    dontwait: bool,

    /// End a run when nothing has come for so many seconds, or a time with a unit; 0: never
    #[arg(short = 'I', long, value_name = "SECS", default_value = "2", value_parser = parse_duration)]
    sk_timeout: Duration,

    /// Check the headers of the kernel's pktgen, or of `flood --pktgen-header`, and print a line
    /// with the faults
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    check_pktgen: Option<Level>,

    /// Bytes of the datagrams with which the sink floods itself [default: 18]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(..=65_507), conflicts_with_all = ["kernel", "config", "command"])]
    payload: Option<u16>,

    /// Print JSON: an object a row
    #[arg(short, long)]
    json: bool,

    /// Receive on a socket of the kernel
    #[arg(long, conflicts_with_all = ["config", "set", "command"])]
    kernel: bool,

    /// Receive on a stack with this configuration (docs/config.md describes it)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set a knob of the stack that receives; may be repeated
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Knob>,

    /// A command that sends, run in a private network; it is ended when all has been received
    #[arg(last = true)]
    command: Vec<OsString>,
}

const TESTS: &str = "Tests (all, unless some are named; always in this order)";

const AFTER_HELP: &str = "\
Examples:
  forebay sink                                            Forebay to Forebay, in this process
  forebay sink --connect --set net.ipv4.ip_early_demux=0  the same without early demux
  forebay sink --connect -- forebay flood --kernel 10.9.0.1
                                                          the kernel sends, over a TUN device
  forebay sink --kernel --check-pktgen=2                  sockets of the kernel; from elsewhere:
  forebay flood --kernel --pktgen-header 127.0.0.1";

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    config::duration(text).ok_or("expected seconds, or a number with ns, us, ms, s, min or h")
}

impl SinkArgs {
    fn family(&self) -> Family {
        if self.ipv6 { Family::V6 } else { Family::V4 }
    }

    /// How long nothing may come.
    fn silence(&self) -> Option<Duration> {
        (!self.sk_timeout.is_zero()).then_some(self.sk_timeout)
    }

    fn calls(&self) -> Vec<ReceiveCall> {
        let is_named = |call: &ReceiveCall| match call {
            ReceiveCall::RecvMmsg => self.recvmmsg,
            ReceiveCall::Recvmsg => self.recvmsg,
            ReceiveCall::Read => self.read,
            ReceiveCall::Recvfrom => self.recvfrom,
            ReceiveCall::Recv => self.recv,
        };
        let all = ReceiveCall::ALL.into_iter();
        let named: Vec<_> = all.clone().filter(is_named).collect();
        if !named.is_empty() {
            return named;
        }
        all.filter(|call| self.kernel || !call.is_kernels())
            .collect()
    }

    fn sharing(&self) -> Sharing {
        match (self.reuse_port, self.use_bpf) {
            (false, _) => Sharing::No,
            (true, false) => Sharing::ReusePort,
            (true, true) => Sharing::ByCore,
        }
    }

    fn payload(&self) -> anyhow::Result<usize> {
        let payload = usize::from(self.payload.unwrap_or(PAYLOAD));
        if self.check_pktgen.is_some() && payload < pktgen::LEN {
            let header = pktgen::LEN;
            bail!(
                "--payload {payload}: a pktgen header, which is to be checked, has {header} bytes"
            );
        }
        Ok(payload)
    }
}

pub(crate) fn run(args: &SinkArgs) -> anyhow::Result<ExitCode> {
    let payload = args.payload()?;
    let Setting { host, sender } = Setting::new(args)?;
    let any = SocketAddr::new(args.family().unspecified(), args.port);
    let socket = host.bind_shared(any, args.sharing());
    let socket = socket.with_context(|| format!("cannot receive at UDP port {}", args.port))?;
    let limits = Limits {
        count: args.count,
        silence: args.silence(),
        dontwait: args.dontwait,
        batch: args.batch.into(),
    };
    let place = Place {
        kernel: args.kernel,
        family: args.family().version(),
    };
    // It takes its time to look at the clock, so nobody sends yet.
    let table = Table::new(io::stdout(), args.json, place, &Clock::new());
    let mut sink = Sink {
        args,
        host,
        source: sender.start(args, payload)?,
        receiver: Receiver::new(socket, limits, args.check_pktgen),
        table,
        runs: 0,
    };
    match sink.tests() {
        Ok(end) => sink.outcome(end),
        // Nobody reads any more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

/// A sink at work.
struct Sink<'a> {
    args: &'a SinkArgs,
    host: Host,
    source: Source,
    receiver: Receiver,
    table: Table<Stdout>,
    /// Runs that were made and printed.
    runs: usize,
}

impl Sink<'_> {
    /// Makes all runs, or as many as there are datagrams for, and says how it ended.
    fn tests(&mut self) -> io::Result<End> {
        for call in self.args.calls() {
            let Some(sender) = self.first()? else {
                return Ok(End::Silence);
            };
            if self.args.connect {
                self.receiver.connect(sender)?;
            }
            for run in 0..self.args.repeat {
                let end = self.run(call, run)?;
                if end != End::Complete {
                    return Ok(end);
                }
            }
        }
        Ok(End::Complete)
    }

    /// Waits for a sender: the first one may take its time.
    fn first(&mut self) -> io::Result<Option<SocketAddr>> {
        let start = Instant::now();
        let silence = self.args.silence().filter(|_| self.runs > 0);
        let source = &mut self.source;
        self.receiver.first(|| {
            let is_late = silence.is_some_and(|silence| start.elapsed() >= silence);
            Ok(is_late || source.is_over()?)
        })
    }

    fn run(&mut self, call: ReceiveCall, run: u32) -> io::Result<End> {
        let received = self.receiver.run(call)?;
        if received.amount.packets > 0 {
            self.runs += 1;
            self.table.sink(&SinkRow {
                test: Test {
                    name: call.name(),
                    batch: (call == ReceiveCall::RecvMmsg).then_some(self.args.batch),
                },
                run,
                received,
                ip_early_demux: self.host.ip_early_demux(),
                connect: self.args.connect,
            })?;
        }
        Ok(received.end)
    }

    fn outcome(mut self, end: End) -> anyhow::Result<ExitCode> {
        if end == End::Fault {
            bail!("--check-pktgen=3: ended at the first fault or gap");
        }
        let reason = self.source.reason()?;
        if self.runs == 0 {
            bail!("nothing came{reason}");
        }
        let all = self.args.calls().len() * self.args.repeat as usize;
        if self.runs < all {
            let made = self.runs;
            super::warn(format_args!(
                "nothing came any more{reason}; {made} of {all} runs were made"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}
