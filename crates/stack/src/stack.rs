//! A stack: what all cores share, and how it is changed.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU16, Ordering};
use core::task::Waker;
use std::sync::{Arc, Mutex};

use forebay_sync::packet::STRIDE;
use forebay_sync::rcu::{Domain, Guard, Rcu};

use crate::core::{Context, Core, Local};
use crate::counters::{Counters, Snapshot};
use crate::demux::Demux;
use crate::family::{V4, V6};
use crate::fib::{self, Fib};
use crate::idle::IdleCores;
use crate::interface::{Interfaces, TransmitQueue};
use crate::ip::icmp::RateLimiter;
use crate::ip::path_mtu::PathMtus;
use crate::ip::reassembly::Reassembler;
use crate::multicast::Multicast;
use crate::packet::PacketPool;
use crate::random::SecretRandom;
use crate::siphash::Key;
use crate::steer::{Backlog, SoftnetStats, Steering};
use crate::sysctl::{Knob, Sysctls};
use crate::tcp::Tcp;
use crate::time::Instant;

/// What a new stack is made of.
#[derive(Debug, Clone)]
pub struct StackConfig {
    /// Packet buffers in the pool; each takes 2,112 bytes once it was used.
    pub buffers: usize,
    /// Buffers of the pool that sockets together may never hold: they stay for receiving and
    /// forwarding.
    pub reserve: usize,
    /// Seed of hash keys, identifiers and jitter. From the system's entropy in production, fixed
    /// when a run is to be repeated.
    pub seed: [u64; 2],
    /// The core that the calling thread runs on, by the number under which packets are steered to
    /// it ([`Stack::core_on`]); `None` if none is. Who reads on it has its flows' packets steered
    /// there.
    pub current_cpu: fn() -> Option<u16>,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            buffers: 16_384,
            reserve: 4_096,
            seed: [0, 0],
            current_cpu: || None,
        }
    }
}

/// A router and a host: shared by all cores and application threads.
pub struct Stack {
    pub(crate) domain: Domain,
    pub(crate) pool: PacketPool,
    pub(crate) sysctls: Rcu<Sysctls>,
    pub(crate) interfaces: Rcu<Interfaces>,
    pub(crate) fib4: Fib<Ipv4Addr>,
    pub(crate) fib6: Fib<Ipv6Addr>,
    pub(crate) demux: Demux,
    pub(crate) multicast: Multicast,
    pub(crate) reassembly4: Reassembler<V4>,
    pub(crate) reassembly6: Reassembler<V6>,
    pub(crate) icmp_limiter: RateLimiter,
    pub(crate) path_mtus: PathMtus,
    pub(crate) steering: Steering,
    pub(crate) tcp: Tcp,
    counters: Counters,
    /// Serialises changes of interfaces and addresses, which touch several tables.
    pub(crate) control: Mutex<()>,
    /// Cores that application threads borrow for the length of a call.
    idle_cores: IdleCores,
    /// What strangers must not know.
    key: Key,
    /// Cores made so far: each has random numbers of its own.
    cores: AtomicU16,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("buffers", &self.pool.capacity())
            .finish_non_exhaustive()
    }
}

/// What the stack looked like when a guard was taken.
pub struct View<'g> {
    /// What it is read under: for what only some packets ask for.
    pub(crate) guard: &'g Guard<'g>,
    pub(crate) sysctls: &'g Sysctls,
    pub(crate) interfaces: &'g Interfaces,
    pub(crate) fib4: fib::View<'g, Ipv4Addr>,
    pub(crate) fib6: fib::View<'g, Ipv6Addr>,
    /// The routes' generations, read before anything else was: what is kept longer than the view
    /// is stamped with them.
    pub(crate) generations4: Generations,
    pub(crate) generations6: Generations,
}

/// How often routing has changed (see [`crate::fib`], Generations).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generations {
    pub(crate) input: u64,
    pub(crate) all: u64,
}

impl Generations {
    fn of<A: fib::Address>(fib: &Fib<A>) -> Self {
        Self {
            input: fib.input_generation(),
            all: fib.generation(),
        }
    }
}

impl Stack {
    /// A stack with a loopback interface (127.0.0.1/8, ::1/128) and nothing else.
    pub fn new(config: &StackConfig) -> Self {
        let domain = Domain::new();
        let socket_memory = config.buffers.saturating_sub(config.reserve) * STRIDE;
        let demux = Demux::new(&domain, config.seed, socket_memory);
        let mut sysctls = Sysctls::default();
        sysctls.set_udp_mem(demux.memory().pages());
        let tcp_mem = sysctls.tcp_mem();
        let stack = Self {
            pool: PacketPool::new(config.buffers),
            sysctls: Rcu::new(&domain, sysctls),
            interfaces: Rcu::new(&domain, Interfaces::default()),
            fib4: Fib::new(&domain),
            fib6: Fib::new(&domain),
            demux,
            multicast: Multicast::new(&domain),
            reassembly4: Reassembler::new(config.seed),
            reassembly6: Reassembler::new(config.seed),
            icmp_limiter: RateLimiter::new(config.seed),
            path_mtus: PathMtus::new(config.seed),
            tcp: Tcp::new(&domain, Key(config.seed), tcp_mem),
            steering: Steering::new(&domain, Key(config.seed), config.current_cpu),
            counters: Counters::default(),
            control: Mutex::new(()),
            idle_cores: IdleCores::default(),
            key: Key(config.seed),
            cores: AtomicU16::new(0),
            domain,
        };
        stack.add_loopback();
        stack
    }

    /// The packet pool, for who reads packets from devices.
    pub fn pool(&self) -> &PacketPool {
        &self.pool
    }

    /// IPv4 routes and rules.
    pub fn fib4(&self) -> &Fib<Ipv4Addr> {
        &self.fib4
    }

    /// IPv6 routes and rules.
    pub fn fib6(&self) -> &Fib<Ipv6Addr> {
        &self.fib6
    }

    /// A core for a worker.
    pub fn core(&self) -> Core {
        self.new_core(None)
    }

    fn new_core(&self, cpu: Option<u16>) -> Core {
        let number = self.cores.fetch_add(1, Ordering::Relaxed);
        let random = SecretRandom::new(self.key, number);
        let local = Local::new(
            number,
            cpu,
            self.pool.cache(),
            self.counters.shard(cpu),
            self.demux.memory().allowance(),
            self.tcp.memory.chunks(),
            random,
        );
        Core {
            reader: self.domain.reader(),
            local,
        }
    }

    /// A core for the worker that packets are steered to under the number `cpu`, which is below
    /// [`MAX_CPUS`](crate::steer::MAX_CPUS). There should be one at a time.
    pub fn core_on(&self, cpu: u16) -> Core {
        let core = self.new_core(Some(cpu));
        self.steering.bring_online(cpu);
        core
    }

    /// The SNMP and drop counters, summed over all cores.
    pub fn counters(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// What the core that packets are steered to under the number `cpu` has counted.
    pub fn counters_of(&self, cpu: u16) -> Snapshot {
        self.counters.snapshot_of(cpu)
    }

    /// What the stack looks like now, for as long as the guard is held.
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard<'_>) -> View<'g> {
        View {
            guard,
            generations4: Generations::of(&self.fib4),
            generations6: Generations::of(&self.fib6),
            sysctls: self.sysctls.read(guard),
            interfaces: self.interfaces.read(guard),
            fib4: self.fib4.view(guard),
            fib6: self.fib6.view(guard),
        }
    }

    /// Runs `f` with a context of its own, for a call from an application thread.
    pub(crate) fn with_context<R>(&self, now: Instant, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        self.with_idle_core(|core| self.with_core(core, now, f))
    }

    /// Runs `f` with what a core has for itself, for a call that looks at nothing else.
    #[inline]
    pub(crate) fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        self.with_idle_core(|core| f(&mut core.local))
    }

    #[inline]
    pub(crate) fn with_idle_core<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        self.idle_cores.borrow(|| self.core(), f)
    }

    /// Runs `f` under one guard, then hands what it sent to the interfaces.
    pub(crate) fn with_core<R>(
        &self,
        core: &mut Core,
        now: Instant,
        f: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let Core { reader, local } = core;
        let guard = reader.guard();
        let view = self.view(&guard);
        let result = f(&mut Context::new(self, &view, local, now));
        local.flush_tx(self, view.interfaces, now);
        result
    }

    /// Gives the buffers back that application threads' caches hold: those of threads that are still
    /// about when they call the next time.
    pub fn flush_caches(&self) {
        self.idle_cores.flush_caches();
    }
}

/// Who drives the devices.
impl Stack {
    /// The packets that wait for an interface's device, at the first of its queues.
    pub fn transmit_queue(&self, ifindex: u32) -> Option<Arc<TransmitQueue>> {
        self.transmit_queues(ifindex).into_iter().next()
    }

    /// The same, at each of its queues; at none if there is no such interface.
    pub fn transmit_queues(&self, ifindex: u32) -> Vec<Arc<TransmitQueue>> {
        self.with_interfaces(|interfaces| {
            let interface = interfaces.get(ifindex);
            interface.map_or(Vec::new(), |interface| interface.tx.clone())
        })
    }

    /// Packets that a worker takes in before it looks at anything else (`net.core.netdev_budget`).
    pub fn netdev_budget(&self, core: &Core) -> usize {
        let guard = core.reader.guard();
        let budget = self.sysctls.read(&guard).get(Knob::NetdevBudget);
        usize::try_from(budget).unwrap_or(0).max(1)
    }

    /// Has `waker` woken when packets are steered to core `cpu`.
    pub fn set_backlog_waker(&self, cpu: u16, waker: Waker) {
        if let Some(backlog) = self.steering.backlog(cpu) {
            backlog.set_waker(waker);
        }
    }

    /// What a core has taken in, by itself and from others; `None` for one that there is not.
    pub fn softnet_stats(&self, cpu: u16) -> Option<SoftnetStats> {
        self.steering.backlog(cpu).map(Backlog::stats)
    }

    /// Flows of which the stack remembers, at `now`, by which of a device's queues they come in.
    pub fn remembered_flows(&self, ifindex: u32, now: Instant) -> usize {
        self.with_interfaces(|interfaces| {
            let affinity = interfaces
                .get(ifindex)
                .and_then(|interface| interface.affinity.as_ref());
            affinity.map_or(0, |affinity| affinity.flows(now))
        })
    }

    pub(crate) fn with_interfaces<R>(&self, f: impl FnOnce(&Interfaces) -> R) -> R {
        let reader = self.domain.reader();
        let guard = reader.guard();
        f(self.interfaces.read(&guard))
    }
}
