//! A running stack, made from a [`Config`].

mod captures;
mod devices;
mod late_tun;
mod report;
mod services;
mod setup;
mod traffic;

use std::thread;
use std::time::Duration;

use anyhow::Context;
use forebay::device::tun::Tun;
use forebay::{Stack, StackBuilder, Workers};

use crate::config::Config;
use crate::control::server::{self, ControlServer};
use devices::{Devices, FarSides};
use late_tun::Plug;
pub(crate) use report::{Report, Totals, delivered};
pub(crate) use setup::Knob;
use setup::set_up;
use traffic::FarEnds;
pub(crate) use traffic::udp_packet;

/// Packets on their way through an embedded wire take a few milliseconds.
const SETTLING: Duration = Duration::from_millis(20);
/// Traffic of others does not end for us: half a second is enough.
const SETTLING_ROUNDS: usize = 25;

/// A stack with its devices, its services and workers that drive it, until this is dropped.
pub(crate) struct Daemon {
    stack: Stack,
    workers: Option<Workers>,
    far_ends: FarEnds,
    exec: Option<Plug>,
    control: Option<ControlServer>,
}

/// Whether a configuration can be carried out, as far as that can be told without touching the
/// system: the same is done to a stack whose devices lead nowhere.
pub(crate) fn rehearse(config: &Config, knobs: &[Knob]) -> anyhow::Result<()> {
    StandIn::new(config, knobs).map(drop)
}

/// A stack whose devices lead nowhere, and whose services don't answer: what a configuration
/// makes of packets can be tried on it.
pub(crate) struct StandIn {
    pub(crate) stack: Stack,
    /// Their sockets stay open.
    _services: Vec<services::Bound>,
}

impl StandIn {
    pub(crate) fn new(config: &Config, knobs: &[Knob]) -> anyhow::Result<Self> {
        let stack = builder(config).build()?;
        let services = set_up(&stack, config, knobs, &mut Devices::nowhere())?;
        Ok(Self {
            stack,
            _services: services,
        })
    }
}

impl Daemon {
    /// Opens devices, sets the stack up, and begins.
    pub(crate) fn start(config: &Config, knobs: &[Knob]) -> anyhow::Result<Self> {
        let stack = builder(config).build()?;
        let mut devices = Devices::real();
        let services = set_up(&stack, config, knobs, &mut devices)?;
        let FarSides { exec, wires } = devices.far_sides();
        let far_ends = FarEnds::start(&stack, config, wires)?;
        let workers = stack.spawn_workers()?;
        services::start(services)?;
        Ok(Self {
            stack,
            workers: Some(workers),
            far_ends,
            exec,
            control: None,
        })
    }

    /// The stack itself.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Lets other commands find the stack under this name.
    pub(crate) fn serve(&mut self, name: &str) -> anyhow::Result<()> {
        let served = server::serve(&self.stack, name);
        self.control = Some(served.context("cannot open the control socket")?);
        Ok(())
    }

    /// Gives the device of kind `exec` its queues.
    pub(crate) fn plug_in(&self, tun: Tun) {
        if let Some(plug) = &self.exec {
            plug.insert(tun);
        }
    }

    /// What has happened so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals::new(&self.stack.inner().counters(), self.far_ends.tally())
    }

    /// Devices that failed for good, and why.
    pub(crate) fn failures(&self) -> Vec<(String, String)> {
        let interfaces = self.stack.inner().interfaces();
        let failure = |name: String| {
            let error = self.stack.device_status(&name)?.error?;
            Some((name, error))
        };
        let names = interfaces.into_iter().map(|interface| interface.name);
        names.filter_map(failure).collect()
    }

    /// Lets no more traffic of our own in, and waits until what is on its way has arrived.
    pub(crate) fn settle(&self) {
        self.far_ends.stop_sending();
        let mut before = self.totals();
        for _ in 0..SETTLING_ROUNDS {
            thread::sleep(SETTLING);
            let now = self.totals();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

impl Drop for Daemon {
    /// Closes the devices, which write down what they have: the stack itself is held by services
    /// that wait for datagrams, until the process ends.
    fn drop(&mut self) {
        drop(self.control.take());
        drop(self.workers.take());
        for interface in self.stack.inner().interfaces() {
            // The loopback is no device.
            let _ = self.stack.remove_device(&interface.name);
        }
        self.stack.poll(self.stack.now());
    }
}

fn builder(config: &Config) -> StackBuilder {
    let settings = &config.stack;
    let mut builder = Stack::builder();
    if let Some(buffers) = settings.buffers {
        builder = builder.buffers(buffers);
    }
    if let Some(reserve) = settings.reserve {
        builder = builder.reserve(reserve);
    }
    if let Some(workers) = settings.workers {
        builder = builder.workers(workers);
    }
    if let Some(seed) = settings.seed {
        builder = builder.seed([seed, 0]);
    }
    builder
}
