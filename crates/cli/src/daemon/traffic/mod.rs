//! The far ends of wires, in this process: the hosts there send generated traffic, and count what
//! comes back.

mod arrival;
mod generator;
mod packets;
mod tally;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay::Stack;
use forebay::device::port::Port;

use crate::config::Config;
use generator::Generator;
pub(crate) use packets::udp as udp_packet;
pub(crate) use tally::Tally;

/// How often the hosts send and look: short enough for smooth traffic, long enough to sleep.
const TICK: Duration = Duration::from_millis(2);

/// Room for the longest packet.
const LONGEST: usize = 65_536;

/// All far ends, and the thread that is their hosts; it ends when this is dropped.
pub(super) struct FarEnds {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    quiet: AtomicBool,
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

impl FarEnds {
    /// Begins to send and to count.
    pub(super) fn start(
        stack: &Stack,
        config: &Config,
        ports: BTreeMap<String, Port>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut generators = Vec::new();
        for traffic in &config.traffic {
            let device = config
                .devices
                .iter()
                .find(|device| device.name == traffic.device);
            let port = ports.get(traffic.device.get_ref());
            // The configuration was checked: both are there.
            if let (Some(device), Some(port)) = (device, port) {
                generators.push(Generator::new(stack, device, traffic, port.clone())?);
            }
        }
        let ports: Vec<_> = ports.into_values().collect();
        if ports.is_empty() {
            return Ok(Self {
                shared,
                thread: None,
            });
        }
        let its_shared = Arc::clone(&shared);
        let body = move || run(&its_shared, &ports, generators);
        let thread = thread::Builder::new()
            .name("forebay-far-end".to_owned())
            .spawn(body)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// No more packets; what comes back is counted still.
    pub(super) fn stop_sending(&self) {
        self.shared.quiet.store(true, Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        *self
            .shared
            .tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FarEnds {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, ports: &[Port], mut generators: Vec<Generator>) {
    let mut tally = Tally::default();
    let mut buf = vec![0; LONGEST];
    while !shared.stop.load(Relaxed) {
        let mut more_is_due = false;
        for generator in &mut generators {
            if !shared.quiet.load(Relaxed) {
                more_is_due |= generator.send_due(Instant::now(), &mut tally);
            }
            generator.read_sockets(&mut buf, &mut tally);
        }
        for port in ports {
            while let Ok(len) = port.try_recv(&mut buf) {
                arrival::count(buf.get(..len).unwrap_or_default(), &mut tally);
            }
        }
        *shared.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
        if !more_is_due {
            thread::sleep(TICK);
        }
    }
}
