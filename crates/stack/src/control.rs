//! Changing a stack: knobs, interfaces, addresses. A change is in force when its call returns.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::PoisonError;

use crate::address_routes;
use crate::drop::DropReason;
use crate::interface::{Interface, InterfaceAddress, InterfaceConfig, Interfaces, LOOPBACK};
use crate::packet::PacketQueue;
use crate::stack::Stack;
use crate::steer::CpuMask;
use crate::sysctl::{self, Knob, SysctlError, Sysctls};
use crate::time::Instant;

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

/// Knobs.
impl Stack {
    /// Reads a knob, as `sysctl NAME` prints it.
    ///
    /// # Errors
    ///
    /// [`SysctlError::NotFound`].
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        if Self::is_queue_knob(name) {
            return self.queue_knob(name);
        }
        self.with_sysctls(|sysctls| sysctls.read(name))
    }

    /// A knob's value.
    pub fn knob(&self, knob: Knob) -> i64 {
        self.with_idle_core(|core| {
            let guard = core.reader.guard();
            self.sysctls.read(&guard).get(knob)
        })
    }

    /// Writes a knob; in force for the next packet.
    ///
    /// # Errors
    ///
    /// [`SysctlError`], with nothing changed.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        if Self::is_queue_knob(name) {
            return self.set_queue_knob(name, value);
        }
        let mut result = Ok(());
        self.sysctls.update(|sysctls| {
            let mut changed = sysctls.clone();
            result = changed.write(name, value);
            changed
        });
        match sysctl::knob_called(name) {
            // Where packets end does not depend on what is looked for early, nor on what is fetched.
            Some(
                Knob::IpEarlyDemux | Knob::TcpEarlyDemux | Knob::UdpEarlyDemux | Knob::PrefetchRmem,
            ) => {}
            Some(knob @ Knob::RpsSockFlowEntries) if result.is_ok() => {
                let entries = u32::try_from(self.knob(knob)).unwrap_or(u32::MAX);
                self.steering.set_sock_flow_entries(entries);
            }
            _ => {
                let tcp_mem = self.with_sysctls(Sysctls::tcp_mem);
                self.tcp.memory.set_limits(tcp_mem);
                self.bump_input_generation();
            }
        }
        result
    }

    /// Every knob with its value.
    pub fn sysctls(&self) -> Vec<(String, String)> {
        let mut all = self.with_sysctls(Sysctls::list);
        all.extend(self.queue_knobs());
        all.sort();
        all
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
        self.change_interfaces(|interfaces| drop(interfaces.remove(ifindex)));
        let mut unsent = PacketQueue::new();
        interface.close(&mut unsent);
        self.drop_unsent(unsent);
        for queue in &interface.rx {
            self.steering.mask_changed(&queue.cpus, &CpuMask::default());
        }
        for own in &interface.addresses {
            address_routes::remove(self, ifindex, *own);
        }
        self.hush_groups(ifindex);
        self.fib4.flush_oif(ifindex);
        self.fib6.flush_oif(ifindex);
        self.sysctls.update(|sysctls| {
            let mut changed = sysctls.clone();
            changed.remove_interface(ifindex);
            changed
        });
        Ok(())
    }

    /// Sets an interface up or down. Down, it neither receives nor sends, and the routes through it
    /// are gone but for those to its addresses, which stay ours. Up again, its prefixes are on-link
    /// again; other routes are for whoever added them to add anew.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::NotFound`].
    pub fn set_interface_up(&self, ifindex: u32, up: bool) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let interface = self.interface(ifindex).ok_or(InterfaceError::NotFound)?;
        if interface.up == up {
            return Ok(());
        }
        let mut unsent = PacketQueue::new();
        match up {
            true => interface.open(),
            false => interface.close(&mut unsent),
        }
        self.change_interfaces(|interfaces| {
            interfaces.change(ifindex, |interface| interface.up = up);
        });
        if up {
            self.announce_groups(ifindex);
            for own in &interface.addresses {
                address_routes::add(self, ifindex, *own, up);
            }
        } else {
            self.hush_groups(ifindex);
            self.fib4.flush_link(ifindex);
            self.fib6.flush_link(ifindex);
        }
        self.drop_unsent(unsent);
        Ok(())
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
            interfaces.change(ifindex, |interface| interface.addresses.push(own));
        });
        address_routes::add(self, ifindex, own, interface.up);
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
            let forget = |interface: &mut Interface| interface.addresses.retain(|a| *a != own);
            interfaces.change(ifindex, forget);
        });
        address_routes::remove(self, ifindex, own);
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

    pub(crate) fn add_loopback(&self) {
        let config = InterfaceConfig {
            mtu: 65_535,
            ..InterfaceConfig::new("lo")
        };
        let ifindex = self.publish_interface(config);
        debug_assert_eq!(ifindex, LOOPBACK);
        let addresses = [
            (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ];
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

    pub(crate) fn change_interface(
        &self,
        ifindex: u32,
        change: impl FnOnce(&mut Interface),
    ) -> Result<(), InterfaceError> {
        let _serial = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        self.change_interfaces(|interfaces| found = interfaces.change(ifindex, change));
        if found {
            Ok(())
        } else {
            Err(InterfaceError::NotFound)
        }
    }

    /// Packets that an interface had not sent when it went: Linux's queues are emptied as well.
    fn drop_unsent(&self, mut unsent: PacketQueue) {
        self.with_context(Instant::ZERO, |cx| {
            while let Some(packet) = unsent.pop() {
                cx.drop(packet, DropReason::DevReady);
            }
        });
    }

    fn change_interfaces(&self, change: impl FnOnce(&mut Interfaces)) {
        self.interfaces.update(|interfaces| {
            let mut changed = interfaces.clone();
            change(&mut changed);
            changed
        });
        self.bump_input_generation();
    }
}

fn check_name(name: &str) -> Result<(), InterfaceError> {
    let is_name = (1..=15).contains(&name.len())
        && !matches!(name, "." | ".." | "all" | "default")
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if is_name {
        Ok(())
    } else {
        Err(InterfaceError::BadName(name.to_owned()))
    }
}

fn check_mtu(mtu: u32) -> Result<(), InterfaceError> {
    if (68..=65_535).contains(&mtu) {
        Ok(())
    } else {
        Err(InterfaceError::BadMtu(mtu))
    }
}

fn check_address(
    interface: &Interface,
    addr: IpAddr,
    prefix_len: u8,
) -> Result<(), InterfaceError> {
    let (bits, is_host_address) = match addr {
        IpAddr::V4(v4) => (
            32,
            !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        ),
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
    if interface
        .addresses
        .iter()
        .any(|own| own.addr == addr && own.prefix_len == prefix_len)
    {
        return Err(InterfaceError::AddressExists(addr));
    }
    Ok(())
}
