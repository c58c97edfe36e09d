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

use request::Request;

/// A socket to the kernel's tables of interfaces, addresses and routes.
///
/// ```no_run
/// use forebay_os::netif::{Netlink, NextHop, Route};
///
/// let mut netlink = Netlink::open()?;
/// let tun = netlink.index("tun0")?;
/// netlink.add_address(tun, "10.9.0.2".parse().unwrap(), 24)?;
/// netlink.set_up(tun)?;
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

    /// Gives an interface an address, with the route to its prefix. An IPv6 address can be used
    /// at once: duplicate address detection (RFC 4862, section 5.4) is left out.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it has the address; `EACCES` for IPv6 where `disable_ipv6` is set.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.transact(Request::new_address(index, address, prefix_len))
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

    /// Sends a request and waits for the kernel's word on it.
    fn transact(&mut self, request: Request) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request.finish(self.sequence);
        rustix::net::send(&self.socket, request.bytes(), SendFlags::empty())?;
        let mut reply = [0; 512];
        loop {
            let (len, _) = rustix::net::recv(&self.socket, &mut reply, RecvFlags::empty())?;
            let reply = reply.get(..len).unwrap_or(&reply);
            match request::parse_acknowledgement(reply) {
                // An answer to a request that was given up on is passed over.
                Some(ack) if ack.sequence != self.sequence => {}
                Some(ack) => return ack.result.map_err(io::Error::from),
                None => return Err(Errno::BADMSG.into()),
            }
        }
    }
}
