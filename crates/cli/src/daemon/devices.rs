//! Opens the devices of a configuration.

use std::net::IpAddr;

use forebay::device::Device;
use forebay::device::port::{Port, PortConfig, PortDevice, port};
use forebay::device::tun::{Tun, TunConfig, TunDevice};

use crate::config::{self, Kind, Problem};

/// The MTU of a device whose configuration names none: Ethernet's, and that of the kernel's TUN
/// devices.
const MTU: u32 = 1_500;

/// What devices are made of.
pub(super) enum Devices {
    /// Stand-ins that lead nowhere.
    Nowhere,
    /// The devices themselves.
    Real {
        /// The device of a private network, which was opened there.
        exec: Option<Tun>,
        /// The far ends of wires, by the devices' names.
        ports: Vec<(String, Port)>,
    },
}

impl Devices {
    pub(super) fn nowhere() -> Self {
        Self::Nowhere
    }

    pub(super) fn real(exec: Option<Tun>) -> Self {
        Self::Real {
            exec,
            ports: Vec::new(),
        }
    }

    /// The far ends of the wires that were opened.
    pub(super) fn into_ports(self) -> Vec<(String, Port)> {
        match self {
            Self::Nowhere => Vec::new(),
            Self::Real { ports, .. } => ports,
        }
    }

    pub(super) fn open(&mut self, device: &config::Device) -> Result<Box<dyn Device>, Problem> {
        let mtu = device.mtu.unwrap_or(MTU);
        let Self::Real { exec, ports } = self else {
            return Ok(Box::new(wire(mtu).0));
        };
        let opened: Box<dyn Device> = match &device.kind {
            Kind::Wire(_) => {
                let (near, far) = wire(mtu);
                ports.push((device.name.get_ref().clone(), far));
                Box::new(near)
            }
            Kind::Tun(tun) => Box::new(open_tun(device, tun, mtu)?),
            Kind::Exec(tun) => {
                let refusal = || {
                    let what = "only `forebay exec` has a device of kind \"exec\"";
                    Problem::new(device.name.span(), what)
                };
                Box::new(TunDevice::new(exec.take().ok_or_else(refusal)?, mtu, tun.offload))
            }
        };
        Ok(opened)
    }
}

/// A wire's two ends: the far one in the hands of this process.
fn wire(mtu: u32) -> (PortDevice, Port) {
    port(PortConfig {
        mtu,
        ..PortConfig::default()
    })
}
