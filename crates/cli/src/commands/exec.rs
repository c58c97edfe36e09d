//! `forebay exec`: a command in a private network whose only gateway is a stack.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::Receiver;
use std::thread;

use anyhow::{Context, bail};
use clap::Args;
use forebay::device::tun::TunConfig;
use forebay::netns::{Interface, PrivateNetwork, PrivateNetworkError};
use forebay::steer::MAX_CPUS;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use toml::Spanned;

use super::{complain, signals};
use crate::config::{Config, Device, Kind, Net, Problem, Tun};
use crate::control::{OVERRIDE, RuntimeDir, client};
use crate::daemon::{self, Daemon, Knob};

/// What the network is like without a file.
pub(super) const NETWORK: &str = include_str!("../../../../examples/exec.toml");

/// RFC 8200 section 5.
const IPV6_MIN_MTU: u32 = 1_280;

/// Exit statuses as env(1) and timeout(1) have them.
const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a command in a private network whose only gateway is a Forebay stack.
///
/// The command sees no interface but `lo` and `tun0`, with the addresses 10.9.0.2/24 and
/// fd09::2/64. The stack at the other end is 10.9.0.1 and fd09::1; it answers pings, forwards, and
/// echoes what comes to its UDP port 7. No root is needed where the system allows user namespaces.
///
/// The exit status is the command's, or 128 and the signal's number if one killed it; 125 if the
/// network could not be made, 126 if the command could not be run, 127 if it was not found.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ExecArgs {
    /// Set a knob, whatever the configuration says; may be repeated
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Knob>,

    /// Configuration of the stack, with one device of kind "exec" (docs/config.md describes it)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Workers, each on a processor of its own [default: the configuration's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_CPUS.into()))]
    workers: Option<u16>,

    /// Largest IP packet between the command and the stack, in bytes: 68 to 65535; below 1280
    /// there is no IPv6
    #[arg(long, value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: Option<u32>,

    /// Let the kernel segment and checksum packets before the stack gets them
    #[arg(long)]
    no_offload: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  forebay exec -- ping -c 3 10.9.0.1
  forebay exec -- bash                              look around: ip address, ip route
  forebay exec --set net.ipv4.icmp_echo_ignore_all=1 -- ping -c 3 10.9.0.1
  forebay exec -c lossy.toml -- ./my-tests          with impairments, routes and rules of your own";

pub(crate) fn run(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    let status = exec(args).unwrap_or_else(|error| {
        complain(&error);
        failure_status(&error)
    });
    Ok(ExitCode::from(status))
}

fn failure_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(PrivateNetworkError::Command { error, .. }) => match error.kind() {
            ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        },
        _ => FAILED,
    }
}

fn exec(args: &ExecArgs) -> anyhow::Result<u8> {
    let mut config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::parse("examples/exec.toml", NETWORK)?,
    };
    config.stack.workers = args.workers.or(config.stack.workers);
    for device in &mut config.devices {
        adapt(device, args);
    }
    let network = Network::of(&config)?;
    daemon::rehearse(&config, &args.set)?;

    let [program, arguments @ ..] = args.command.as_slice() else {
        bail!("there is no command to run");
    };
    let signals = signals::to_hand_on()?;
    let mut daemon = Daemon::start(&config, &args.set)?;
    let name = super::serve(&mut daemon, config.stack.name.as_ref(), "exec")?;
    let mut command = Command::new(program);
    command.args(arguments);
    // So that `forebay sysctl` and others, run by the command, find this stack.
    command.env(client::STACK, &name);
    command.env(OVERRIDE, RuntimeDir::path_for_this_user());

    // From this thread, which lives until the end: the command is killed when the thread that
    // started it ends.
    let mut child = network.spawn(command, &daemon)?;
    Ok(exit_status(wait(&mut child, signals)?))
}

/// What the command line says about the command's device.
fn adapt(device: &mut Device, args: &ExecArgs) {
    let Kind::Exec(tun) = &mut device.kind else {
        return;
    };
    tun.offload &= !args.no_offload;
    device.mtu = args.mtu.or(device.mtu);
    // A file that asks for IPv6 on such a link is refused; nobody has asked for these addresses.
    if args.config.is_none() && device.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU) {
        let is_ipv4 = |address: &Spanned<Net>| address.get_ref().addr.is_ipv4();
        device.addresses.retain(is_ipv4);
        tun.peer_addresses.retain(is_ipv4);
    }
}

/// The private network that a configuration asks for.
pub(super) struct Network {
    make: PrivateNetwork,
    interface: Interface,
}

impl Network {
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        let is_exec = |device: &&Device| matches!(device.kind, Kind::Exec(_));
        let mut devices = config.devices.iter().filter(is_exec);
        let Some((device, tun)) = devices.next().and_then(|device| match &device.kind {
            Kind::Exec(tun) => Some((device, tun)),
            _ => None,
        }) else {
            bail!("the configuration has no device of kind \"exec\", which the command would see");
        };
        if let Some(second) = devices.next() {
            let what = "a second device of kind \"exec\": a command has one";
            bail!(
                config
                    .source
                    .explain(Problem::new(second.name.span(), what))
            );
        }
        Ok(Self {
            make: PrivateNetwork::new().resolv_conf(resolv_conf(device)),
            interface: interface(device, tun),
        })
    }

    /// Starts a command there, and joins the network to the daemon's stack.
    pub(super) fn spawn(
        &self,
        command: Command,
        daemon: &Daemon,
    ) -> Result<Child, PrivateNetworkError> {
        let (child, tun) = self.make.spawn_with(command, &self.interface)?;
        daemon.plug_in(tun);
        Ok(child)
    }
}

/// The device as the command sees it: everything goes to the stack.
fn interface(device: &Device, tun: &Tun) -> Interface {
    let mut interface = Interface::new(TunConfig {
        name: device.name.get_ref().clone(),
        queues: tun.queues,
        offload: tun.offload,
    });
    if let Some(mtu) = device.mtu {
        interface = interface.mtu(mtu);
    }
    for address in &tun.peer_addresses {
        interface = interface.address(address.get_ref().addr, address.get_ref().len);
    }
    for is_ipv4 in [true, false] {
        let gateways = device
            .addresses
            .iter()
            .map(|address| address.get_ref().addr);
        let gateway = gateways.clone().find(|addr| addr.is_ipv4() == is_ipv4);
        let peers = &tun.peer_addresses;
        let is_peer = peers
            .iter()
            .any(|peer| peer.get_ref().addr.is_ipv4() == is_ipv4);
        if let Some(gateway) = gateway.filter(|_| is_peer) {
            interface = interface.default_via(gateway);
        }
    }
    interface
}

/// Names are asked for at the stack, which refuses at once unless something serves there: better
/// than a wait for servers that cannot be reached from there.
fn resolv_conf(device: &Device) -> String {
    let addresses = device
        .addresses
        .iter()
        .map(|address| address.get_ref().addr);
    addresses
        .map(|addr| format!("nameserver {addr}\n"))
        .collect()
}

/// Waits for the command, and hands signals on to it meanwhile.
fn wait(child: &mut Child, signals: Receiver<i32>) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot hand signals on")?;
    thread::Builder::new()
        .name("forebay-hand-on".to_owned())
        .spawn(move || hand_on(&signals, &pidfd))?;
    Ok(child.wait()?)
}

fn hand_on(signals: &Receiver<i32>, pidfd: &OwnedFd) {
    for signal in signals {
        let Some(signal) = Signal::from_named_raw(signal) else {
            continue;
        };
        let from_keyboard = matches!(signal, Signal::INT | Signal::QUIT);
        if !(from_keyboard && is_in_foreground()) {
            // It fails if the command has just ended.
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

/// Whether the terminal sends what its keys mean to this process's group, and so to the command
/// as well.
fn is_in_foreground() -> bool {
    let foreground = rustix::termios::tcgetpgrp(io::stdin());
    foreground.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The status as a shell tells it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_without_a_file_can_be_made() {
        let config = Config::parse("exec.toml", NETWORK).unwrap();
        daemon::rehearse(&config, &[]).unwrap();
        assert!(Network::of(&config).is_ok());
    }

    #[test]
    fn a_command_has_exactly_one_device() {
        let device = |name: &str| format!("[[device]]\nkind = \"exec\"\nname = \"{name}\"\n");
        let cases = [
            (String::new(), "has no device of kind"),
            (
                device("a") + &device("b"),
                "x.toml:6:8: a second device of kind",
            ),
        ];
        for (text, expected) in cases {
            let config = Config::parse("x.toml", text).unwrap();
            let error = Network::of(&config).err().expect("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
