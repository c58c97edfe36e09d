//! A stack: what all cores share, and how it is changed.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::task::Waker;
use std::sync::{Mutex, PoisonError};

use forebay_sync::packet::STRIDE;
use forebay_sync::rcu::{Domain, Guard, Rcu};

use crate::core::{Context, Core, Local};
use crate::counters::{Counters, Snapshot};
use crate::demux::Demux;
use crate::family::{V4, V6};
use crate::fib::{self, Fib, Prefix, Route, RouteKind};
use crate::interface::{Interface, InterfaceAddress, InterfaceConfig, Interfaces, LOOPBACK};
use crate::ip::icmp::RateLimiter;
use crate::ip::reassembly::Reassembler;
use crate::packet::{PacketPool, PacketQueue};
use crate::random::Random;
use crate::sysctl::{SysctlError, Sysctls};
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
}

impl Default for StackConfig {
    fn default() -> Self {
        Self { buffers: 16_384, reserve: 4_096, seed: [0, 0] }
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
    pub(crate) reassembly4: Reassembler<V4>,
    pub(crate) reassembly6: Reassembler<V6>,
    pub(crate) icmp_limiter: RateLimiter,
    counters: Counters,
    /// Serialises changes of interfaces and addresses, which touch several tables.
    control: Mutex<()>,
    /// Cores that application threads borrow for the length of a call.
    idle_cores: Mutex<Vec<Core>>,
    seeds: Mutex<Random>,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("buffers", &self.pool.capacity()).finish_non_exhaustive()
    }
}

/// What the stack looked like when a guard was taken.
pub struct View<'g> {
    pub(crate) sysctls: &'g Sysctls,
    pub(crate) interfaces: &'g Interfaces,
    pub(crate) fib4: fib::View<'g, Ipv4Addr>,
    pub(crate) fib6: fib::View<'g, Ipv6Addr>,
}

/// Why an interface or address could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    /// EEXIST for a name.
    #[error("an interface is called {0:?} already")]
    NameTaken(String),
    /// EINVAL for a name.
    #[error("{0:?} is no interface name: 1 to 15 bytes, no space, no slash")]
    BadName(String),
    /// EINVAL for an MTU.
    #[error("MTU {0} is out of range: 68 to 65535")]
    BadMtu(u32),
    /// ENODEV.
    #[error("there is no such interface")]
    NotFound,
    /// EEXIST for an address.
    #[error("the interface has the address {0} already")]
    AddressExists(IpAddr),
    /// EADDRNOTAVAIL.
    #[error("the interface has no address {0}")]
    AddressNotFound(IpAddr),
    /// EINVAL for an address.
    #[error("{0} can't be an interface's address")]
    BadAddress(IpAddr),
    /// EINVAL for a prefix length.
    #[error("/{0} is longer than the address")]
    BadPrefix(u8),
    /// RFC 8200 section 5.
    #[error("IPv6 needs an MTU of at least 1280 bytes, and the interface has {0}")]
    MtuTooSmallForIpv6(u32),
}

impl Stack {
    /// A stack with a loopback interface (127.0.0.1/8, ::1/128) and nothing else.
    pub fn new(config: &StackConfig) -> Self {
        let domain = Domain::new();
        let mut seeds = Random::new(config.seed[0] ^ config.seed[1].rotate_left(32));
        let socket_memory = config.buffers.saturating_sub(config.reserve) * STRIDE;
        let stack = Self {
            pool: PacketPool::new(config.buffers),
            sysctls: Rcu::new(&domain, Sysctls::default()),
            interfaces: Rcu::new(&domain, Interfaces::default()),
            fib4: Fib::new(&domain),
            fib6: Fib::new(&domain),
            demux: Demux::new(&domain, config.seed, socket_memory),
            reassembly4: Reassembler::new(config.seed),
            reassembly6: Reassembler::new(config.seed),
            icmp_limiter: RateLimiter::new(config.seed),
            counters: Counters::default(),
            control: Mutex::new(()),
            idle_cores: Mutex::default(),
            seeds: Mutex::new(Random::new(seeds.next_u64())),
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
        let seed = self.seeds.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
        let local = Local::new(self.pool.cache(), self.counters.shard(), Random::new(seed));
        Core { reader: self.domain.reader(), local }
    }

    /// The SNMP and drop counters, summed over all cores.
    pub fn counters(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// What the stack looks like now, for as long as the guard is held.
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard<'_>) -> View<'g> {
        View {
            sysctls: self.sysctls.read(guard),
            interfaces: self.interfaces.read(guard),
            fib4: self.fib4.view(guard),
            fib6: self.fib6.view(guard),
        }
    }

    /// Runs `f` with a context of its own, for a call from an application thread.
    pub(crate) fn with_context<R>(&self, now: Instant, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let idle = self.idle_cores.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut core = idle.unwrap_or_else(|| self.core());
        let result = self.with_core(&mut core, now, f);
        self.idle_cores.lock().unwrap_or_else(PoisonError::into_inner).push(core);
        result
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
        let result = f(&mut Context { stack: self, view: &view, core: local, now });
        local.flush_tx(view.interfaces);
        result
    }

    /// Gives the buffers back that application threads' caches hold.
    pub fn flush_caches(&self) {
        for core in self.idle_cores.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            core.local.flush_cache();
        }
    }
}

/// Knobs.
impl Stack {
    /// Reads a knob, as `sysctl NAME` prints it.
    ///
    /// # Errors
    ///
    /// [`SysctlError::NotFound`].
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        self.with_sysctls(|sysctls| sysctls.read(name))
    }

    /// Writes a knob; in force for the next packet.
    ///
    /// # Errors
    ///
    /// [`SysctlError`], with nothing changed.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        let mut result = Ok(());
        self.sysctls.update(|sysctls| {
            let mut changed = sysctls.clone();
            result = changed.write(name, value);
            changed
        });
        self.bump_input_generation();
        result
    }

    /// Every knob with its value.
    pub fn sysctls(&self) -> Vec<(String, String)> {
        self.with_sysctls(Sysctls::list)
    }

    fn with_sysctls<R>(&self, f: impl FnOnce(&Sysctls) -> R) -> R {
        let reader = self.domain.reader();
        let guard = reader.guard();
        f(self.sysctls.read(&guard))
    }

    /// Input routes cached on sockets are void: something that input routing reads has changed.
    fn bump_input_generation(&self) {
        self.fib4.bump_input_generation();
        self.fib6.bump_input_generation();
    }
}

/// Interfaces and addresses.
impl Stack {
    /// Adds an interface, up, without addresses.
    ///
    /// # Errors
    ///
    /// A name or MTU that Linux would not take either, or a name in use.
    pub fn add_interface(&self, config: InterfaceConfig) -> Result<u32, InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        check_name(&config.name)?;
        check_mtu(config.mtu)?;
        if self.interface_named(&config.name).is_some() {
            return Err(InterfaceError::NameTaken(config.name));
        }
        Ok(self.publish_interface(config))
    }

    /// Removes an interface with its addresses and the routes through it.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::NotFound`]; the loopback can't be removed.
    pub fn remove_interface(&self, ifindex: u32) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let interface = self.interface(ifindex).filter(|_| ifindex != LOOPBACK);
        let interface = interface.ok_or(InterfaceError::NotFound)?;
        for own in &interface.addresses {
            self.withdraw_address(own.addr);
        }
        self.fib4.flush_oif(ifindex);
        self.fib6.flush_oif(ifindex);
        self.change_interfaces(|interfaces| drop(interfaces.remove(ifindex)));
        self.sysctls.update(|sysctls| {
            let mut changed = sysctls.clone();
            changed.remove_interface(ifindex);
            changed
        });
        Ok(())
    }

    /// Sets an interface up or down. Down, it neither receives nor sends.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::NotFound`].
    pub fn set_interface_up(&self, ifindex: u32, up: bool) -> Result<(), InterfaceError> {
        self.change_interface(ifindex, |interface| interface.up = up)
    }

    /// Sets an interface's MTU.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::BadMtu`], [`InterfaceError::NotFound`].
    pub fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<(), InterfaceError> {
        check_mtu(mtu)?;
        self.change_interface(ifindex, |interface| interface.mtu = mtu)
    }

    /// Gives an interface an address: it becomes local, its prefix on-link, its directed broadcast
    /// known.
    ///
    /// # Errors
    ///
    /// What Linux refuses: groups, unspecified and broadcast addresses, an address twice, IPv6
    /// below an MTU of 1,280.
    pub fn add_address(
        &self,
        ifindex: u32,
        addr: IpAddr,
        prefix_len: u8,
    ) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let interface = self.interface(ifindex).ok_or(InterfaceError::NotFound)?;
        check_address(&interface, addr, prefix_len)?;
        let own = InterfaceAddress { addr, prefix_len };
        self.change_interfaces(|interfaces| {
            if let Some(interface) = interfaces.get_mut(ifindex) {
                interface.addresses.push(own);
            }
        });
        self.announce_address(ifindex, own);
        Ok(())
    }

    /// Takes an address from an interface, with the routes that prefer it as their source.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::NotFound`], [`InterfaceError::AddressNotFound`].
    pub fn remove_address(
        &self,
        ifindex: u32,
        addr: IpAddr,
        prefix_len: u8,
    ) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let interface = self.interface(ifindex).ok_or(InterfaceError::NotFound)?;
        let own = InterfaceAddress { addr, prefix_len };
        if !interface.addresses.contains(&own) {
            return Err(InterfaceError::AddressNotFound(addr));
        }
        self.change_interfaces(|interfaces| {
            if let Some(interface) = interfaces.get_mut(ifindex) {
                interface.addresses.retain(|other| *other != own);
            }
        });
        // What is left is announced anew: another address may share the prefix or be the same.
        self.withdraw_address(addr);
        self.withdraw_prefix(ifindex, own);
        for interface in self.interfaces() {
            for other in &interface.addresses {
                self.announce_address(interface.index, *other);
            }
        }
        Ok(())
    }

    /// All interfaces at this moment.
    pub fn interfaces(&self) -> Vec<Interface> {
        let reader = self.domain.reader();
        let guard = reader.guard();
        self.interfaces.read(&guard).iter().cloned().collect()
    }

    /// The interface with this index.
    pub fn interface(&self, ifindex: u32) -> Option<Interface> {
        let reader = self.domain.reader();
        let guard = reader.guard();
        self.interfaces.read(&guard).get(ifindex).cloned()
    }

    /// The interface with this name.
    pub fn interface_named(&self, name: &str) -> Option<Interface> {
        let reader = self.domain.reader();
        let guard = reader.guard();
        self.interfaces.read(&guard).by_name(name).cloned()
    }

    fn add_loopback(&self) {
        let config =
            InterfaceConfig { mtu: 65_535, ..InterfaceConfig::new("lo") };
        let ifindex = self.publish_interface(config);
        debug_assert_eq!(ifindex, LOOPBACK);
        let addresses =
            [(IpAddr::V4(Ipv4Addr::LOCALHOST), 8), (IpAddr::V6(Ipv6Addr::LOCALHOST), 128)];
        for (addr, prefix_len) in addresses {
            let added = self.add_address(ifindex, addr, prefix_len);
            debug_assert!(added.is_ok(), "a fresh stack takes its loopback addresses");
        }
    }

    fn publish_interface(&self, config: InterfaceConfig) -> u32 {
        let name = config.name.clone();
        let mut ifindex = 0;
        self.change_interfaces(|interfaces| ifindex = interfaces.add(config));
        self.sysctls.update(|sysctls| {
            let mut changed = sysctls.clone();
            changed.add_interface(ifindex, &name);
            changed
        });
        ifindex
    }

    fn change_interface(
        &self,
        ifindex: u32,
        change: impl FnOnce(&mut Interface),
    ) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Err(InterfaceError::NotFound);
        self.change_interfaces(|interfaces| {
            if let Some(interface) = interfaces.get_mut(ifindex) {
                change(interface);
                result = Ok(());
            }
        });
        result
    }

    fn change_interfaces(&self, change: impl FnOnce(&mut Interfaces)) {
        self.interfaces.update(|interfaces| {
            let mut changed = interfaces.clone();
            change(&mut changed);
            changed
        });
        self.bump_input_generation();
    }

    fn announce_address(&self, ifindex: u32, own: InterfaceAddress) {
        match own.addr {
            IpAddr::V4(addr) => {
                announce(&self.fib4, ifindex, addr, own.prefix_len);
                if let Some(broadcast) = own.broadcast().filter(|_| ifindex != LOOPBACK) {
                    let route = Route::local(RouteKind::Broadcast, Prefix::host(broadcast), ifindex);
                    let _ = self.fib4.replace(route);
                }
            }
            IpAddr::V6(addr) => announce(&self.fib6, ifindex, addr, own.prefix_len),
        }
    }

    fn withdraw_address(&self, addr: IpAddr) {
        match addr {
            IpAddr::V4(addr) => self.fib4.flush_address(addr),
            IpAddr::V6(addr) => self.fib6.flush_address(addr),
        }
    }

    fn withdraw_prefix(&self, ifindex: u32, own: InterfaceAddress) {
        match own.addr {
            IpAddr::V4(addr) => {
                self.fib4.withdraw_connected(ifindex, addr, own.prefix_len);
                if let Some(broadcast) = own.broadcast() {
                    self.fib4.withdraw_connected_broadcast(ifindex, broadcast);
                }
            }
            IpAddr::V6(addr) => self.fib6.withdraw_connected(ifindex, addr, own.prefix_len),
        }
    }
}

/// Who drives the devices.
impl Stack {
    /// Moves the packets that wait for an interface's device to `out`.
    pub fn take_transmit(&self, ifindex: u32, out: &mut PacketQueue) {
        if let Some(interface) = self.interface(ifindex) {
            interface.tx.take(out);
        }
    }

    /// Has `waker` woken whenever packets begin to wait for the interface's device.
    pub fn set_transmit_waker(&self, ifindex: u32, waker: Waker) {
        if let Some(interface) = self.interface(ifindex) {
            interface.tx.set_waker(waker);
        }
    }
}

fn check_name(name: &str) -> Result<(), InterfaceError> {
    let is_name = (1..=15).contains(&name.len())
        && !matches!(name, "." | ".." | "all" | "default")
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if is_name { Ok(()) } else { Err(InterfaceError::BadName(name.to_owned())) }
}

fn check_mtu(mtu: u32) -> Result<(), InterfaceError> {
    if (68..=65_535).contains(&mtu) { Ok(()) } else { Err(InterfaceError::BadMtu(mtu)) }
}

fn check_address(
    interface: &Interface,
    addr: IpAddr,
    prefix_len: u8,
) -> Result<(), InterfaceError> {
    let (bits, is_host_address) = match addr {
        IpAddr::V4(v4) => (32, !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast()),
        IpAddr::V6(v6) => (128, !v6.is_unspecified() && !v6.is_multicast()),
    };
    if !is_host_address {
        return Err(InterfaceError::BadAddress(addr));
    }
    if prefix_len > bits {
        return Err(InterfaceError::BadPrefix(prefix_len));
    }
    if addr.is_ipv6() && !interface.carries_ipv6() {
        return Err(InterfaceError::MtuTooSmallForIpv6(interface.mtu));
    }
    if interface.addresses.iter().any(|own| own.addr == addr && own.prefix_len == prefix_len) {
        return Err(InterfaceError::AddressExists(addr));
    }
    Ok(())
}

fn announce<A: fib::Address>(fib: &Fib<A>, ifindex: u32, addr: A, prefix_len: u8) {
    let _ = (fib, ifindex, addr, prefix_len);
}
