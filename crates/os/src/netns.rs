//! Private networks: a command that sees no network but the one made for it.
//!
//! The command runs in user, network and mount namespaces of its own, as root there, with
//! nothing but a loopback interface and, if wanted, a TUN device whose queues are in the hands
//! of the process that started it. No privileges are needed where the system allows user
//! namespaces; the user's own rights on files stay what they were.

mod child;
mod enter;
mod hint;
mod report;
mod step;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

pub use enter::enter_new;
use report::Failure;
use step::Step;

use crate::tun::{Queue, QueueSetup, Tun, TunConfig, TunError};

/// A private network to be made, for one command at a time.
///
/// The command is killed when the *thread* that started it ends (`PR_SET_PDEATHSIG`), so that it
/// doesn't outlive the process that is its network. What it starts in turn is not: it loses its
/// network, and lives on.
///
/// ```no_run
/// use forebay_os::netns::{Interface, PrivateNetwork};
/// use forebay_os::tun::TunConfig;
/// use std::process::Command;
///
/// let tun = TunConfig { name: "tun0".into(), queues: 1, offload: true };
/// let interface = Interface::new(tun)
///     .address("10.9.0.2".parse()?, 24)
///     .default_via("10.9.0.1".parse()?);
/// let mut ping = Command::new("ping");
/// ping.args(["-c", "3", "10.9.0.1"]);
/// let network = PrivateNetwork::new().resolv_conf("nameserver 10.9.0.1\n");
/// let (child, tun) = network.spawn_with(ping, &interface)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PrivateNetwork {
    resolv_conf: Option<String>,
}

/// A TUN device of a private network, and how it looks from inside.
#[derive(Clone, Debug)]
pub struct Interface {
    tun: TunConfig,
    mtu: Option<u32>,
    addresses: Vec<(IpAddr, u8)>,
    gateways: Vec<IpAddr>,
}

impl Interface {
    /// An interface with the kernel's MTU for TUN devices (1,500 bytes) and no addresses.
    pub fn new(tun: TunConfig) -> Self {
        Self {
            tun,
            mtu: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
        }
    }

    /// Sets the MTU in bytes: 68 to 65,535, and at least 1,280 if IPv6 is wanted.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// Adds an address, and with it the route to its prefix.
    #[must_use]
    pub fn address(mut self, address: IpAddr, prefix_len: u8) -> Self {
        self.addresses.push((address, prefix_len));
        self
    }

    /// Adds a default route of the gateway's family; the gateway must lie in the prefix of an
    /// address.
    #[must_use]
    pub fn default_via(mut self, gateway: IpAddr) -> Self {
        self.gateways.push(gateway);
        self
    }
}

impl PrivateNetwork {
    /// A network with nothing but a loopback interface.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the command see `contents` as `/etc/resolv.conf`. Where the system has no such file
    /// there is none in the private network, either.
    #[must_use]
    pub fn resolv_conf(mut self, contents: impl Into<String>) -> Self {
        self.resolv_conf = Some(contents.into());
        self
    }

    /// Starts `command` in a network that has only a loopback interface. Being root in it, the
    /// command can make interfaces of its own.
    ///
    /// # Errors
    ///
    /// See [`PrivateNetworkError`].
    pub fn spawn(&self, command: Command) -> Result<Child, PrivateNetworkError> {
        let (child, _) = start(command, self.steps())?;
        Ok(child)
    }

    /// Starts `command` in a network with a TUN device, and returns the other end of that device.
    /// It exists as long as the returned [`Tun`] and the command's network both do.
    ///
    /// # Errors
    ///
    /// See [`PrivateNetworkError`].
    pub fn spawn_with(
        &self,
        command: Command,
        interface: &Interface,
    ) -> Result<(Child, Tun), PrivateNetworkError> {
        let setup = QueueSetup::new(&interface.tun)?;
        let mut name = setup.name;
        let mut steps = self.steps();
        steps.extend(vec![Step::OpenQueue(setup.clone()); interface.tun.queues]);
        steps.extend(interface.mtu.map(Step::SetMtu));
        steps.push(Step::InterfaceUp);
        let addresses = interface.addresses.iter();
        steps.extend(addresses.map(|&(address, len)| Step::AddAddress(address, len)));
        steps.extend(interface.gateways.iter().copied().map(Step::DefaultVia));

        let (child, received) = start(command, steps)?;
        let mut queues = Vec::with_capacity(received.len());
        for (given, queue) in received {
            name = given;
            queues.push(Queue::from_fd(queue));
        }
        let tun = Tun::from_parts(name, queues, &setup)?;
        Ok((child, tun))
    }

    /// What every private network begins with, in this order.
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![
            Step::Unshare,
            Step::MapRoot,
            Step::DieWithParent(rustix::process::getpid()),
            Step::PrivateMounts,
            Step::LoopbackUp,
        ];
        steps.extend(self.resolv_conf.clone().map(Step::ResolvConf));
        steps
    }
}

/// Forks, takes the steps in the child, and executes `command` there.
///
/// By the time that `Command::spawn` returns the child has executed the command or failed, so
/// that all it had to say is there to be read.
fn start(
    mut command: Command,
    steps: Vec<Step>,
) -> Result<(Child, Vec<report::NamedQueue>), PrivateNetworkError> {
    let (ours, theirs) = report::channel().map_err(PrivateNetworkError::Channel)?;
    let steps: Arc<[Step]> = steps.into();
    let childs_steps = Arc::clone(&steps);
    let take_steps =
        move || child::take_steps(&childs_steps, theirs.as_fd()).map_err(io::Error::from);
    // SAFETY: between `fork` and `exec` only what is async-signal-safe may be done, as other
    // threads may have held any lock when the process was forked. `take_steps` makes system
    // calls on memory that was prepared before the fork or lies on the stack; it allocates
    // nothing, takes no lock and does not panic.
    unsafe { command.pre_exec(take_steps) };
    let spawned = command.spawn();
    let program = command.get_program().to_string_lossy().into_owned();
    drop(command); // and with it our copy of their end

    match (spawned, report::receive(ours.as_fd())) {
        (Ok(child), Ok(received)) => Ok((child, received.queues)),
        (Err(error), Ok(received)) => match received.failure {
            Some(failure) => Err(PrivateNetworkError::new(&steps, failure)),
            None => Err(PrivateNetworkError::Command { program, error }),
        },
        (spawned, Err(error)) => {
            // Without its queues the command would have a network that leads nowhere.
            if let Ok(mut child) = spawned {
                let _ = child.kill();
                let _ = child.wait();
            }
            Err(PrivateNetworkError::Channel(error))
        }
    }
}

/// Why a command does not run in a private network, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateNetworkError {
    /// The TUN device could not be asked for or made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The network was made, but the command could not be executed in it (or there was no
    /// forking in the first place).
    #[error("cannot run {program}: {error}")]
    Command {
        /// The command's name or path.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// One of the steps that make the network failed.
    #[error("cannot make a private network: {step}: {error}{hint}")]
    Step {
        /// What was being done.
        step: String,
        /// What the kernel said.
        error: io::Error,
        /// What to do about it, if that is known: begins with `"; "`, or is empty.
        hint: String,
    },
    /// The socket between the two processes failed.
    #[error("cannot make a private network: socket to the new process: {0}")]
    Channel(io::Error),
}

impl PrivateNetworkError {
    fn new(steps: &[Step], failure: Failure) -> Self {
        let error = io::Error::from(failure.errno);
        match (steps.get(failure.step), failure.tun()) {
            (Some(Step::OpenQueue(setup)), Some(failure)) => {
                Self::Tun(TunError::new(setup.name, failure))
            }
            (Some(step), _) => Self::Step {
                step: step.to_string(),
                hint: hint::what_to_do(step, failure.errno),
                error,
            },
            (None, _) => Self::Channel(error),
        }
    }
}
