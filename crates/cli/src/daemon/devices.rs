//! Opens the devices of a configuration.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;

use forebay::device::Device;
use forebay::device::impair::{ImpairConfig, Impaired, Impairment};
use forebay::device::pcap::{Pace, PcapConfig, PcapDevice, PcapOpenError};
use forebay::device::port::{Port, PortConfig, PortDevice, port};
use forebay::device::tun::{TunConfig, TunDevice};
use forebay::netif::Netlink;

use toml::Spanned;

use super::late_tun::{LateTun, Plug};
use crate::config::{self, Impair, Kind, Pcap, Problem, Speed};

/// Bytes that a wire holds in each direction: what comes in a tenth of a second at 300 Mbit/s, as the
/// worker may have to wait that long for its turn on a busy machine.
const WIRE_QUEUE: usize = 4 << 20;

/// What devices are made of.
pub(super) enum Devices {
    /// Stand-ins that lead nowhere.
    Nowhere,
    /// The devices themselves.
    Real(FarSides),
}

/// What is on the other side of devices, in this process.
#[derive(Default)]
pub(super) struct FarSides {
    /// Where the device of a private network is plugged in.
    pub(super) exec: Option<Plug>,
    /// The far ends of wires, by the devices' names.
    pub(super) wires: BTreeMap<String, Port>,
}

impl Devices {
    pub(super) fn nowhere() -> Self {
        Self::Nowhere
    }

    pub(super) fn real() -> Self {
        Self::Real(FarSides::default())
    }

    /// The other sides of the devices that were opened.
    pub(super) fn far_sides(self) -> FarSides {
        match self {
            Self::Nowhere => FarSides::default(),
            Self::Real(far_sides) => far_sides,
        }
    }

    pub(super) fn open(&mut self, device: &config::Device) -> Result<Box<dyn Device>, Problem> {
        let mtu = device.mtu.unwrap_or_else(|| default_mtu(&device.kind));
        let Self::Real(far_sides) = self else {
            return Ok(Box::new(wire(mtu).0));
        };
        let opened: Box<dyn Device> = match &device.kind {
            Kind::Tun(tun) => Box::new(open_tun(device, tun, mtu)?),
            Kind::Exec(tun) => {
                let (late, plug) = LateTun::new(mtu, tun.offload);
                far_sides.exec = Some(plug);
                Box::new(late)
            }
            Kind::Wire(_) => {
                let (near, far) = wire(mtu);
                far_sides.wires.insert(device.name.get_ref().clone(), far);
                Box::new(near)
            }
            Kind::Pcap(pcap) => Box::new(open_pcap(device, pcap, mtu)?),
        };
        Ok(match &device.impair {
            Some(impair) => Box::new(Impaired::new(opened, &impairment(impair))),
            None => opened,
        })
    }
}

/// The same in both directions.
fn impairment(impair: &Impair) -> ImpairConfig {
    let impairment = Impairment {
        loss: impair.loss.fraction,
        delay: impair.delay,
        jitter: impair.jitter,
        reorder: impair.reorder.fraction,
        duplicate: impair.duplicate.fraction,
        corrupt: impair.corrupt.fraction,
        rate: impair.rate.and_then(|rate| NonZeroU64::new(rate.0)),
        ..Impairment::default()
    };
    ImpairConfig {
        receive: impairment,
        transmit: impairment,
        seed: impair.seed,
    }
}

/// The MTU of a device whose configuration names none.
fn default_mtu(kind: &Kind) -> u32 {
    match kind {
        // Captures have packets that were still to be segmented.
        Kind::Pcap(_) => 65_535,
        // Ethernet's, and that of the kernel's TUN devices.
        Kind::Tun(_) | Kind::Exec(_) | Kind::Wire(_) => 1_500,
    }
}

fn open_tun(device: &config::Device, tun: &config::Tun, mtu: u32) -> Result<TunDevice, Problem> {
    let config = TunConfig {
        name: device.name.get_ref().clone(),
        queues: tun.queues,
        offload: tun.offload,
    };
    let opened = TunDevice::open(&config, mtu).map_err(|error| cannot_open(device, error))?;
    if !tun.peer_addresses.is_empty() {
        let set_up = set_up_peer(opened.name(), tun, mtu);
        set_up.map_err(|error| cannot_open(device, format!("the kernel's end: {error}")))?;
    }
    Ok(opened)
}

/// Brings the kernel's end up. Without addresses for it that is left to who looks after the
/// kernel.
fn set_up_peer(name: &str, tun: &config::Tun, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?;
    netlink.set_mtu(index, mtu)?;
    netlink.set_up(index)?;
    for address in &tun.peer_addresses {
        netlink.add_address(index, address.get_ref().addr, address.get_ref().len)?;
    }
    Ok(())
}

fn path(file: &Option<Spanned<PathBuf>>) -> Option<PathBuf> {
    file.as_ref().map(|path| path.get_ref().clone())
}

fn open_pcap(device: &config::Device, pcap: &Pcap, mtu: u32) -> Result<PcapDevice, Problem> {
    let config = PcapConfig {
        input: path(&pcap.read),
        output: path(&pcap.write),
        pace: match pcap.speed {
            Speed::Times(speed) => Pace::Recorded { speed },
            Speed::Max => Pace::Unpaced,
        },
        passes: if pcap.repeat { None } else { Some(1) },
        mtu,
    };
    PcapDevice::open(&config).map_err(|error| {
        let (key, file) = match &error {
            PcapOpenError::Input(_) => ("read", &pcap.read),
            PcapOpenError::Output(_) => ("write", &pcap.write),
            _ => return cannot_open(device, error),
        };
        let span = file.as_ref().map(Spanned::span);
        let what = format!("`{key}`: cannot open {}: {error}", device.name.get_ref());
        Problem::new(span.unwrap_or(device.name.span()), what)
    })
}

fn cannot_open(device: &config::Device, error: impl Display) -> Problem {
    let name = &device.name;
    Problem::new(
        name.span(),
        format!("cannot open {}: {error}", name.get_ref()),
    )
}

/// A wire's two ends: the far one in the hands of this process.
fn wire(mtu: u32) -> (PortDevice, Port) {
    port(PortConfig {
        mtu,
        queue: WIRE_QUEUE,
        ..PortConfig::default()
    })
}
