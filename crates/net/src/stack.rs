//! A stack with its devices.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::SystemTime;

use forebay_stack::StackConfig;
use forebay_stack::interface::{InterfaceConfig, LOOPBACK};
use forebay_stack::packet::PacketQueue;
use forebay_stack::time::Instant;

use crate::device::Device;
use crate::driver::{Attached, DeviceStatus, Driver};
use crate::worker::Worker;

/// A router and a host in this process. Clones share it.
///
/// Devices bring packets; either a [`Worker`] drives it ([`spawn_worker`](Self::spawn_worker)), or
/// the program does, by [`poll`](Self::poll). Addresses, routes and knobs are reached through
/// [`inner`](Self::inner).
///
/// ```
/// use forebay::device::wire::{WireConfig, wire};
/// use forebay::{Stack, UdpSocket};
///
/// let (near, far) = wire(WireConfig::default());
/// let (left, right) = (Stack::builder().build()?, Stack::builder().build()?);
/// for (stack, end, addr) in [(&left, near, "10.0.0.1"), (&right, far, "10.0.0.2")] {
///     let ifindex = stack.add_device("w0", end)?;
///     stack.inner().add_address(ifindex, addr.parse()?, 24)?;
/// }
/// let _workers = (left.spawn_worker()?, right.spawn_worker()?);
///
/// let server = UdpSocket::bind(&right, "10.0.0.2:53")?;
/// let client = UdpSocket::bind(&left, "0.0.0.0:0")?;
/// client.send_to(b"hello", "10.0.0.2:53")?;
/// let mut buf = [0; 64];
/// let (len, from) = server.recv_from(&mut buf)?;
/// assert_eq!((&buf[..len], from.ip()), (&b"hello"[..], "10.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) stack: forebay_stack::Stack,
    pub(crate) clock: Clock,
    driver: Mutex<Driver>,
    /// What the driver is to do before its next turn. The driver may be asleep, with its lock held.
    commands: Mutex<Vec<Command>>,
    /// Wakes the worker, if there is one.
    waker: Mutex<Option<Waker>>,
    devices: Mutex<Vec<Known>>,
}

/// A device as the outside knows it.
struct Known {
    name: String,
    ifindex: u32,
    status: Arc<Mutex<DeviceStatus>>,
}

enum Command {
    Attach(Attached),
    Detach(u32),
    SetWaker(Waker),
}

/// Where `now` comes from.
pub(crate) enum Clock {
    /// The machine's monotonic clock, since this moment.
    Machine(std::time::Instant),
    /// What the last poll said, in nanoseconds.
    Manual(AtomicU64),
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Machine(origin) => {
                Instant::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Self::Manual(nanos) => Instant::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }
}

/// Builds a [`Stack`].
#[derive(Debug, Clone)]
pub struct StackBuilder {
    config: StackConfig,
    seed: Option<[u64; 2]>,
    manual_clock: bool,
}

impl StackBuilder {
    /// Packet buffers in the pool; each takes 2,112 bytes once it was used. 16,384 unless said.
    pub fn buffers(mut self, buffers: usize) -> Self {
        self.config.buffers = buffers;
        self.config.reserve = buffers / 4;
        self
    }

    /// Buffers that sockets together may never hold: a quarter unless said.
    pub fn reserve(mut self, reserve: usize) -> Self {
        self.config.reserve = reserve;
        self
    }

    /// Seed of hash keys and identifiers, to repeat a run; from the system's entropy unless said.
    pub fn seed(mut self, seed: [u64; 2]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Time is what [`Stack::poll`] is told, as simulations need it.
    pub fn manual_clock(mut self) -> Self {
        self.manual_clock = true;
        self
    }

    /// The stack.
    ///
    /// # Errors
    ///
    /// If the system has no entropy to give.
    pub fn build(self) -> io::Result<Stack> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => entropy()?,
        };
        let stack = forebay_stack::Stack::new(&StackConfig {
            seed,
            ..self.config
        });
        let driver = Mutex::new(Driver::new(stack.core()));
        let clock = match self.manual_clock {
            true => Clock::Manual(AtomicU64::new(0)),
            false => Clock::Machine(std::time::Instant::now()),
        };
        let shared = Shared {
            stack,
            clock,
            driver,
            commands: Mutex::default(),
            waker: Mutex::default(),
            devices: Mutex::default(),
        };
        Ok(Stack {
            shared: Arc::new(shared),
        })
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stack").field(&self.shared.stack).finish()
    }
}

impl Stack {
    /// A stack to be built.
    pub fn builder() -> StackBuilder {
        StackBuilder {
            config: StackConfig::default(),
            seed: None,
            manual_clock: false,
        }
    }

    /// Addresses, routes, rules, knobs, counters.
    pub fn inner(&self) -> &forebay_stack::Stack {
        &self.shared.stack
    }

    /// The stack's clock.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// What the machine's clock said at a time of the stack's clock, such as the arrival of a
    /// datagram; by a clock that is set by hand, the difference to now is right.
    pub fn system_time(&self, at: Instant) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.now() - at).unwrap_or(now)
    }

    /// Adds a device under a new interface, which is up and has no addresses. Returns the
    /// interface's index.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a name or MTU that no interface can have,
    /// [`io::ErrorKind::AlreadyExists`] for a name in use.
    pub fn add_device(&self, name: &str, device: impl Device + 'static) -> io::Result<u32> {
        let config = InterfaceConfig {
            mtu: device.mtu(),
            offload: device.offload(),
            ..InterfaceConfig::new(name)
        };
        let ifindex = self
            .shared
            .stack
            .add_interface(config)
            .map_err(crate::error::interface)?;
        let status = Arc::default();
        let known = Known {
            name: name.to_owned(),
            ifindex,
            status: Arc::clone(&status),
        };
        lock(&self.shared.devices).push(known);
        // Somebody may have removed the interface again, by its index.
        let waiting = self.shared.stack.transmit_queue(ifindex);
        self.shared.command(Command::Attach(Attached {
            ifindex,
            device: Box::new(device),
            waiting: waiting.ok_or(io::ErrorKind::NotFound)?,
            unsent: PacketQueue::new(),
            status,
        }));
        Ok(ifindex)
    }

    /// Removes a device with its interface, addresses and routes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`].
    pub fn remove_device(&self, name: &str) -> io::Result<()> {
        let mut devices = lock(&self.shared.devices);
        let index = devices.iter().position(|known| known.name == name);
        let known = devices.remove(index.ok_or(io::ErrorKind::NotFound)?);
        drop(devices);
        self.shared.command(Command::Detach(known.ifindex));
        self.shared
            .stack
            .remove_interface(known.ifindex)
            .map_err(crate::error::interface)
    }

    /// What is known of a device: its counts, and why it was given up if it was.
    pub fn device_status(&self, name: &str) -> Option<DeviceStatus> {
        let devices = lock(&self.shared.devices);
        let known = devices.iter().find(|known| known.name == name)?;
        Some(lock(&known.status).clone())
    }

    /// Drives the stack by hand: takes packets from the devices, does what is due, hands packets to
    /// the devices. Returns when it wants to be called again at the latest; `now` or earlier says
    /// at once.
    ///
    /// While a worker drives the stack, this waits until the worker is stopped.
    pub fn poll(&self, now: Instant) -> Option<Instant> {
        if let Clock::Manual(nanos) = &self.shared.clock {
            nanos.store(now.as_nanos(), Ordering::Relaxed);
        }
        let mut driver = lock(&self.shared.driver);
        self.shared.obey(&mut driver);
        let turn = driver.turn(&self.shared.stack, now);
        if turn.busy { Some(now) } else { turn.deadline }
    }

    /// Starts a thread that drives the stack: it polls while there is work and sleeps when there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if a worker drives it already, [`io::ErrorKind::Unsupported`]
    /// with a manual clock, and what starting a thread can give.
    pub fn spawn_worker(&self) -> io::Result<Worker> {
        if matches!(self.shared.clock, Clock::Manual(_)) {
            let why = "a stack with a manual clock is driven by hand";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Worker::spawn(self)
    }
}

impl Shared {
    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        lock(&self.driver)
    }

    /// Carries out what was asked for since the last turn.
    pub(crate) fn obey(&self, driver: &mut Driver) {
        for command in core::mem::take(&mut *lock(&self.commands)) {
            match command {
                Command::Attach(attached) => driver.attach(attached, lock(&self.waker).clone()),
                Command::Detach(ifindex) => driver.detach(ifindex),
                Command::SetWaker(waker) => driver.set_waker(&waker),
            }
        }
    }

    /// Says whom to wake when there is work. `None` if somebody is there already.
    pub(crate) fn claim(&self, waker: &Waker) -> Option<()> {
        let mut claimed = lock(&self.waker);
        if claimed.is_some() {
            return None;
        }
        *claimed = Some(waker.clone());
        drop(claimed);
        if let Some(loopback) = self.stack.transmit_queue(LOOPBACK) {
            loopback.set_waker(waker.clone());
        }
        self.command(Command::SetWaker(waker.clone()));
        Some(())
    }

    pub(crate) fn release(&self) {
        *lock(&self.waker) = None;
    }

    fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entropy() -> io::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let (a, b) = bytes.split_at(8);
    let word = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
    Ok([word(a), word(b)])
}
