//! Where the sink is, and who sends to it.

use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::thread;

use anyhow::{Context, bail};

use super::SinkArgs;
use crate::commands::{exec, run};
use crate::config::Config;
use crate::daemon::{self, Daemon};
use crate::datagrams::{Background, Flood, Host, Rig, SendCall};

/// Datagrams that the sink's own flood sends between two looks whether it is to end.
const BURST: u64 = 64;

/// Packets that may wait for the wire when it sends more; the queue holds a thousand.
const ROOM: usize = 256;

/// The host of the sink's socket, and who is going to send.
pub(super) struct Setting {
    pub(super) host: Host,
    pub(super) sender: Sender,
}

/// Who is going to send, once the socket is there.
pub(super) enum Sender {
    /// This process.
    Own(Rig),
    /// A command in a private network.
    Command(Box<Daemon>, exec::Network),
    /// Whoever can reach the stack.
    Network(Box<Daemon>),
    /// Whoever can reach the kernel.
    Anybody,
}

/// Who sends.
pub(super) enum Source {
    Own {
        flood: Background,
        _rig: Rig,
    },
    Command {
        child: Running,
        _daemon: Box<Daemon>,
    },
    Network {
        _daemon: Box<Daemon>,
    },
    Anybody,
}

/// A command that is ended when it is needed no more.
pub(super) struct Running(Child);

impl Setting {
    pub(super) fn new(args: &SinkArgs) -> anyhow::Result<Self> {
        if args.kernel {
            return Ok(Self {
                host: Host::Kernel,
                sender: Sender::Anybody,
            });
        }
        let config = match &args.config {
            Some(path) => Config::load(path)?,
            None if args.command.is_empty() => return Self::wire(args),
            None => Config::parse("examples/exec.toml", exec::NETWORK)?,
        };
        let network = match args.command.as_slice() {
            [] => None,
            _ => Some(exec::Network::of(&config)?),
        };
        if network.is_none() {
            run::refuse_exec_devices(&config)?;
        }
        daemon::rehearse(&config, &args.set)?;
        let daemon = Box::new(Daemon::start(&config, &args.set)?);
        Ok(Self {
            host: Host::Forebay(daemon.stack().clone()),
            sender: match network {
                Some(network) => Sender::Command(daemon, network),
                None => Sender::Network(daemon),
            },
        })
    }

    fn wire(args: &SinkArgs) -> anyhow::Result<Self> {
        let rig = Rig::new()?;
        args.set.iter().try_for_each(|knob| knob.set(rig.sink()))?;
        Ok(Self {
            host: Host::Forebay(rig.sink().clone()),
            sender: Sender::Own(rig),
        })
    }
}

impl Sender {
    pub(super) fn start(self, args: &SinkArgs, payload: usize) -> anyhow::Result<Source> {
        Ok(match self {
            Self::Own(rig) => Source::Own {
                flood: flood(&rig, args, payload).context("cannot start the flood")?,
                _rig: rig,
            },
            Self::Command(daemon, network) => {
                let [program, arguments @ ..] = args.command.as_slice() else {
                    bail!("there is no command to run");
                };
                let mut command = Command::new(program);
                command.args(arguments);
                Source::Command {
                    child: Running(network.spawn(command, &daemon)?),
                    _daemon: daemon,
                }
            }
            Self::Network(daemon) => Source::Network { _daemon: daemon },
            Self::Anybody => Source::Anybody,
        })
    }
}

fn flood(rig: &Rig, args: &SinkArgs, payload: usize) -> io::Result<Background> {
    let family = args.family();
    let from = SocketAddr::new(family.unspecified(), 0);
    let to = SocketAddr::new(Rig::sink_addr(family), args.port);
    let socket = Host::Forebay(rig.flood().clone()).bind(from)?;
    let mut flood = Flood::new(socket, to, payload, args.check_pktgen.is_some(), 1)?;
    let queue = rig.flood_queue();
    Background::start("forebay-flood", move || {
        // Packets that a full queue drops would take time from those who work on the others.
        if queue.len() > ROOM {
            thread::yield_now();
            return Ok(());
        }
        flood.run(SendCall::Send, BURST).map(drop)
    })
}

impl Source {
    /// Whether nobody is there any more who could send.
    ///
    /// # Errors
    ///
    /// What the flood of this process ended by.
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        match self {
            Self::Own { flood, .. } => flood.is_over(),
            Self::Command { child, .. } => Ok(child.0.try_wait()?.is_some()),
            Self::Network { .. } | Self::Anybody => Ok(false),
        }
    }

    /// Why nothing comes, as far as it is known: to be put behind those words.
    pub(super) fn reason(&mut self) -> io::Result<String> {
        let Self::Command { child, .. } = self else {
            return Ok(String::new());
        };
        let status = child.0.try_wait()?;
        Ok(status.map_or_else(String::new, |status| {
            format!(": the command ended ({status})")
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended by itself if that fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
