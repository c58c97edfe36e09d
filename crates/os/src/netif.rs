//! The kernel's network interfaces: link state, addresses and routes, over rtnetlink(7).
//!
//! What `ip link`, `ip address` and `ip route` do, for the few things that Forebay needs, in the
//! network namespace of the calling thread. Nothing here allocates, as the same functions set
//! up a private network between `fork` and `exec`; that is why the messages are written by hand.

mod request;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::Timespec;

use request::{Reply, Request};

use crate::name::InterfaceName;

/// How long an address may take to be completed.
const PATIENCE_MS: u32 = 2_000;
const ONE_MS: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// A socket to the kernel's tables of interfaces, addresses and routes.
///
/// ```no_run
/// use forebay_os::netif::{Netlink, NextHop, Route};
///
/// let mut netlink = Netlink::open()?;
/// let tun = netlink.index("tun0")?;
/// netlink.set_up(tun)?;
/// netlink.add_address(tun, "10.9.0.2".parse().unwrap(), 24)?;
/// netlink.add_route(&Route::default_via("10.9.0.1".parse().unwrap()))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// Where packets to a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix's address; bits beyond the length must be zero.
    pub destination: IpAddr,
    /// The prefix's length in bits: 0 to 32 or 128.
    pub prefix_len: u8,
    /// The next hop.
    pub next_hop: NextHop,
}

impl Route {
    /// The default route of the gateway's own family.
    pub fn default_via(gateway: IpAddr) -> Self {
        let unspecified = match gateway {
            IpAddr::V4(_) => IpAddr::from([0_u8; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
        };
        Self {
            destination: unspecified,
            prefix_len: 0,
            next_hop: NextHop::Via(gateway),
        }
    }
}

/// The next hop of a [`Route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A gateway, itself reachable over an attached network, of the family of the destination.
    Via(IpAddr),
    /// An interface, given by its index, behind which the destinations are.
    Interface(u32),
}

/// What kind of interface to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// veth(4): one end of a cable between two interfaces. The kernel makes the other one, too, with
    /// a name of its own choice (the first free one of `veth0`, `veth1` and so on).
    Veth,
    /// An interface that drops all that is sent by it, and counts it as sent.
    Dummy,
    /// An intermediate functional block. It drops all that is sent by it and was not redirected to
    /// it, and counts it as received.
    Ifb,
}

impl LinkKind {
    /// The name of the driver (`rtnl_link_ops`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Dummy => "dummy",
            Self::Ifb => "ifb",
        }
    }

    fn to_kernel(self) -> [u8; 8] {
        let mut name = [0; 8];
        name[..self.name().len()].copy_from_slice(self.name().as_bytes());
        name
    }
}

impl Netlink {
    /// Opens a socket to the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// What `socket(2)` says.
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE, which is 0
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// The index of the interface `name`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none.
    pub fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, name)?)
    }

    /// Makes an interface with this hardware address.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one of this name; `EOPNOTSUPP` if the kernel does not know the kind;
    /// `EINVAL` if no interface can have the name; `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_link(&mut self, name: &str, kind: LinkKind, address: [u8; 6]) -> io::Result<()> {
        let name = name.parse::<InterfaceName>().map_err(|_| Errno::INVAL)?;
        self.transact(Request::new_link(name, kind, address))
    }

    /// Lets an interface send at once, without a queue in front of it: the queueing discipline
    /// `noqueue` of tc(8).
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` without such an interface.
    pub fn set_no_queue(&mut self, index: u32) -> io::Result<()> {
        self.transact(Request::no_queue(index))
    }

    /// Brings an interface up.
    ///
    /// # Errors
    ///
    /// What the kernel says, as with all that follow: `EPERM` without `CAP_NET_ADMIN`, `ENODEV`
    /// without such an interface.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.transact(Request::link(index, request::IFF_UP))
    }

    /// Sets an interface's MTU in bytes, 68 to 65,535; below 1,280 it loses IPv6.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a size that the device does not support.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let request = Request::link(index, 0);
        self.transact(request.attribute(request::IFLA_MTU, &mtu.to_ne_bytes()))
    }

    /// Gives an interface, which should be up, an address and the route to its prefix.
    ///
    /// The address can be used when this returns: duplicate address detection (RFC 4862, section
    /// 5.4) is left out, and the kernel's worker that completes an IPv6 address is waited for.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it has the address; `EACCES` for IPv6 where `disable_ipv6` is set;
    /// `ETIMEDOUT` if the kernel does not complete the address.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.transact(Request::new_address(index, address, prefix_len))?;
        self.wait_until_local(address)
    }

    /// Takes an address away from an interface.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` if it does not have it.
    pub fn delete_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        self.transact(Request::delete_address(index, address, prefix_len))
    }

    /// Adds a route to the main table.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is such a route; `ENETUNREACH` or `EHOSTUNREACH` if the gateway is not
    /// reachable directly; `EINVAL` for a gateway of another family.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.transact(Request::new_route(route)?)
    }

    /// Deletes a route from the main table.
    ///
    /// # Errors
    ///
    /// `ESRCH` if there is none; `EINVAL` for a gateway of another family.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        self.transact(Request::delete_route(route)?)
    }

    /// Waits until packets to `address` are taken in. For IPv6, Linux's `addrconf_dad_work()`
    /// adds the local route a little later than the address; a packet that arrives in between
    /// is dropped.
    fn wait_until_local(&mut self, address: IpAddr) -> io::Result<()> {
        for _ in 0..PATIENCE_MS {
            if self.ask(Request::get_route(address))? == Reply::LocalRoute {
                return Ok(());
            }
            // An interrupted sleep is a short one.
            let _ = rustix::thread::nanosleep(&ONE_MS);
        }
        Err(Errno::TIMEDOUT.into())
    }

    /// Sends a request to which the kernel says only yes or no.
    fn transact(&mut self, request: Request) -> io::Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            Reply::Refused(errno) => Err(errno.into()),
            Reply::LocalRoute | Reply::OtherRoute => Err(Errno::BADMSG.into()),
        }
    }

    /// Sends a request and waits for the kernel's word on it.
    fn ask(&mut self, request: Request) -> io::Result<Reply> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request.finish(self.sequence);
        rustix::net::send(&self.socket, request.bytes(), SendFlags::empty())?;
        let mut buffer = [0; 1_024];
        loop {
            let (len, _) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty())?;
            match Reply::parse(buffer.get(..len).unwrap_or(&buffer)) {
                // An answer to a request that was given up on is passed over.
                Some((sequence, _)) if sequence != self.sequence => {}
                Some((_, reply)) => return Ok(reply),
                None => return Err(Errno::BADMSG.into()),
            }
        }
    }
}
