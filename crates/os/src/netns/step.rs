//! The steps that make a private network.

use std::fmt;
use std::net::IpAddr;

use rustix::process::Pid;

use crate::tun::QueueSetup;

/// One step. A list of them is written down before the fork and taken after it; so whatever a
/// step needs is in it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Leaves the user, network and mount namespaces of the parent.
    Unshare,
    /// Makes the user root in the new user namespace.
    MapRoot,
    /// Asks to be killed when the parent, which is this process, ends.
    DieWithParent(Pid),
    /// Keeps mounts from spreading to other mount namespaces.
    PrivateMounts,
    LoopbackUp,
    /// Covers `/etc/resolv.conf` with these contents.
    ResolvConf(String),
    /// Opens one more queue of the TUN device and hands it to the parent.
    OpenQueue(QueueSetup),
    SetMtu(u32),
    InterfaceUp,
    AddAddress(IpAddr, u8),
    DefaultVia(IpAddr),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unshare => f.write_str("creating user, network and mount namespaces"),
            Self::MapRoot => f.write_str("becoming root in the user namespace"),
            Self::DieWithParent(parent) => {
                write!(f, "tying the command's life to process {parent}")
            }
            Self::PrivateMounts => f.write_str("making mounts private"),
            Self::LoopbackUp => f.write_str("bringing up lo"),
            Self::ResolvConf(_) => f.write_str("covering /etc/resolv.conf"),
            Self::OpenQueue(setup) => write!(f, "opening a queue of {}", setup.name),
            Self::SetMtu(mtu) => write!(f, "setting the MTU to {mtu}"),
            Self::AddAddress(address, len) => write!(f, "adding the address {address}/{len}"),
            Self::InterfaceUp => f.write_str("bringing up the TUN device"),
            Self::DefaultVia(gateway) => write!(f, "adding the default route via {gateway}"),
        }
    }
}
