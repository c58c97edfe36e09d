//! A stack with its devices.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use forebay_stack::StackConfig;
use forebay_stack::interface::{InterfaceConfig, LOOPBACK};
use forebay_stack::packet::PacketQueue;
use forebay_stack::steer::{MAX_CPUS, RxId};
use forebay_stack::time::Instant;
use forebay_sync::static_key::StaticKey;

use crate::cpu;
use crate::device::Device;
use crate::driver::{Attached, DeviceStatus, SharedStatus};
use crate::seat::{Seat, Seats};
use crate::worker::Workers;

/// A router and a host in this process. Clones share it.
///
/// Devices bring packets; either [`Workers`] drive it ([`spawn_workers`](Self::spawn_workers)), or
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
/// let _workers = (left.spawn_workers()?, right.spawn_workers()?);
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
    pub(crate) seats: Seats,
    /// Somebody wants to know what the stages take.
    pub(crate) watched: Arc<StaticKey>,
    pub(crate) devices: Mutex<Vec<Known>>,
}

/// A device as the outside knows it.
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    /// Of each queue.
    pub(crate) statuses: Vec<Arc<SharedStatus>>,
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
    workers: u16,
    seed: Option<[u64; 2]>,
    manual_clock: bool,
}

impl StackBuilder {
    /// Workers that the stack has places for, up to [`MAX_CPUS`]: 1 unless said. With more than one,
    /// each is kept on a processor of its own, the queues of devices are spread over them, and
    /// packets can be steered between them (`rps_cpus`, `net.core.rps_sock_flow_entries`).
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers.clamp(1, MAX_CPUS);
        self
    }

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
    /// If the system has no entropy to give, or does not say what processors there are.
    pub fn build(self) -> io::Result<Stack> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => entropy()?,
        };
        cpu::look_around()?;
        let stack = forebay_stack::Stack::new(&StackConfig {
            seed,
            current_cpu: cpu::current_worker,
            ..self.config
        });
        let watched = Arc::new(StaticKey::new());
        let seat = |number| Seat::new(number, stack.core_on(number), Arc::clone(&watched));
        let seats = (0..self.workers).map(seat).map(Arc::new).collect();
        let clock = match self.manual_clock {
            true => Clock::Manual(AtomicU64::new(0)),
            false => Clock::Machine(std::time::Instant::now()),
        };
        let shared = Shared {
            stack,
            clock,
            seats,
            watched,
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
            workers: 1,
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
        let (mtu, offload, follows_flows) =
            (device.mtu(), device.offload(), device.follows_flows());
        let devices = self.shared.queues_of(device);
        let queues = devices.len();
        let config = InterfaceConfig {
            mtu,
            offload,
            queues: u16::try_from(queues).unwrap_or(u16::MAX),
            affinity: follows_flows.then(Arc::default),
            ..InterfaceConfig::new(name)
        };
        let ifindex = self
            .shared
            .stack
            .add_interface(config)
            .map_err(crate::error::interface)?;
        let statuses: Vec<_> = devices.iter().map(|_| Arc::default()).collect();
        lock(&self.shared.devices).push(Known {
            name: name.to_owned(),
            ifindex,
            statuses: statuses.clone(),
        });
        // Somebody may have removed the interface again, by its index.
        let waiting = self.shared.stack.transmit_queues(ifindex);
        if waiting.len() != queues {
            return Err(io::ErrorKind::NotFound.into());
        }
        let parts = devices.into_iter().zip(waiting).zip(statuses).zip(0..);
        for (((device, waiting), status), queue) in parts {
            self.shared
                .seat_of(ifindex, queue, queues)
                .attach(Attached {
                    rx: RxId { ifindex, queue },
                    device,
                    waiting,
                    unsent: PacketQueue::new(),
                    status,
                });
        }
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
        let seats = self.shared.seats.iter();
        seats.for_each(|seat| seat.detach(known.ifindex));
        self.shared
            .stack
            .remove_interface(known.ifindex)
            .map_err(crate::error::interface)
    }

    /// What is known of a device: its counts, over all of its queues, and why it was given up if it
    /// was.
    pub fn device_status(&self, name: &str) -> Option<DeviceStatus> {
        let devices = lock(&self.shared.devices);
        let known = devices.iter().find(|known| known.name == name)?;
        let queues = known.statuses.iter().map(|status| lock(status).clone());
        Some(queues.fold(DeviceStatus::default(), DeviceStatus::with))
    }

    /// Drives the stack by hand: takes packets from the devices, does what is due, hands packets to
    /// the devices. Returns when it wants to be called again at the latest; `now` or earlier says
    /// at once.
    ///
    /// While workers drive the stack, this waits until they are stopped.
    pub fn poll(&self, now: Instant) -> Option<Instant> {
        if let Clock::Manual(nanos) = &self.shared.clock {
            nanos.store(now.as_nanos(), Ordering::Relaxed);
        }
        let turns = self.shared.seats.iter().map(|seat| {
            let mut driver = seat.driver();
            seat.obey(&mut driver);
            let turn = driver.turn(&self.shared.stack, now);
            if turn.busy { Some(now) } else { turn.deadline }
        });
        // Each has its turn, whatever the others want.
        let wishes: Vec<_> = turns.collect();
        wishes.into_iter().flatten().min()
    }

    /// Starts the threads that drive the stack, as many as it has [places](StackBuilder::workers)
    /// for: each polls while there is work and sleeps when there is none.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if workers drive it already, [`io::ErrorKind::Unsupported`]
    /// with a manual clock, and what starting a thread can give.
    pub fn spawn_workers(&self) -> io::Result<Workers> {
        if matches!(self.shared.clock, Clock::Manual(_)) {
            let why = "a stack with a manual clock is driven by hand";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Workers::spawn(self)
    }
}

impl Shared {
    /// A device, taken apart into its queues where there is more than one worker to drive them, or
    /// where it matters by which of them a packet leaves.
    fn queues_of(&self, mut device: impl Device + 'static) -> Vec<Box<dyn Device>> {
        let comes_apart = self.seats.len() > 1 || device.follows_flows();
        let mut queues = Vec::new();
        while comes_apart && let Some(queue) = device.take_queue() {
            queues.push(queue);
        }
        queues.insert(0, Box::new(device));
        queues
    }

    /// Who drives a queue. Where there are as many as workers, each has the queue of its number: it
    /// sends by that one (`enqueue_by_queue`), so that what it forwards never leaves its core.
    /// Devices with fewer begin at different workers.
    pub(crate) fn seat_of(&self, ifindex: u32, queue: u16, queues: usize) -> &Seat {
        let seats = self.seats.len();
        let first = match queues < seats {
            true => ifindex.saturating_sub(LOOPBACK + 1) as usize,
            false => 0,
        };
        &self.seats[(first + usize::from(queue)) % seats]
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entropy() -> io::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let (a, b) = bytes.split_at(8);
    let word = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
    Ok([word(a), word(b)])
}
