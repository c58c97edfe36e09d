//! A running stack, made from a [`Config`].

mod devices;
mod report;
mod services;
mod setup;
mod traffic;

use forebay::device::tun::Tun;
use forebay::{Stack, StackBuilder, Worker};

use crate::config::Config;
use devices::Devices;
pub(crate) use report::{Report, Totals};
pub(crate) use setup::Knob;
use setup::set_up;
use traffic::FarEnds;

/// A stack with its devices, its services and a worker that drives it, until this is dropped.
pub(crate) struct Daemon {
    stack: Stack,
    far_ends: FarEnds,
    _worker: Worker,
}

/// Whether a configuration can be carried out, as far as that can be told without touching the
/// system: the same is done to a stack whose devices lead nowhere.
pub(crate) fn rehearse(config: &Config, knobs: &[Knob]) -> anyhow::Result<()> {
    let stack = builder(config).build()?;
    set_up(&stack, config, knobs, &mut Devices::nowhere())?;
    Ok(())
}

impl Daemon {
    /// Opens devices, sets the stack up, and begins. The device of kind `exec` was opened by who
    /// made its network.
    pub(crate) fn start(
        config: &Config,
        knobs: &[Knob],
        exec: Option<Tun>,
    ) -> anyhow::Result<Self> {
        let stack = builder(config).build()?;
        let mut devices = Devices::real(exec);
        let services = set_up(&stack, config, knobs, &mut devices)?;
        let far_ends = FarEnds::start(&stack, config, devices.into_ports())?;
        let worker = stack.spawn_worker()?;
        services::start(services)?;
        Ok(Self {
            stack,
            far_ends,
            _worker: worker,
        })
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
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
            std::thread::sleep(SETTLING);
            let now = self.totals();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

/// Packets on their way through an embedded wire take a few milliseconds.
const SETTLING: std::time::Duration = std::time::Duration::from_millis(20);
/// Traffic of others does not end for us: half a second is enough.
const SETTLING_ROUNDS: usize = 25;

fn builder(config: &Config) -> StackBuilder {
    let settings = &config.stack;
    let mut builder = Stack::builder();
    if let Some(buffers) = settings.buffers {
        builder = builder.buffers(buffers);
    }
    if let Some(reserve) = settings.reserve {
        builder = builder.reserve(reserve);
    }
    if let Some(seed) = settings.seed {
        builder = builder.seed([seed, 0]);
    }
    builder
}
