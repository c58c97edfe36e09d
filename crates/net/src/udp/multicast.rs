//! Multicast groups.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_stack::packet::IpVersion;
use forebay_stack::socket::MulticastOptions;
use forebay_stack::udp::{MulticastOption, SourceChange};

use super::UdpSocket;
use crate::error;

/// Membership: which groups' datagrams are received.
///
/// A socket receives a group's datagrams by the interfaces on which it has joined the group. It
/// must also be bound to their port, on every address or on the group's.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use forebay::{Stack, UdpSocket};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let group = Ipv4Addr::new(239, 1, 2, 3);
/// let member = UdpSocket::bind(&stack, "0.0.0.0:5353")?;
/// member.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
///
/// let sender = UdpSocket::bind(&stack, "127.0.0.1:0")?;
/// sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
/// sender.send_to(b"to all of you", (group, 5353))?;
/// let mut buf = [0; 64];
/// assert_eq!(member.recv(&mut buf)?, 13);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Errors are those of `setsockopt`: [`io::ErrorKind::InvalidInput`] for what is no group or not of
/// the socket's family, or where sources are named in both ways; [`io::ErrorKind::NotFound`] for an
/// unknown interface; [`io::ErrorKind::AddrInUse`] for a second membership of one group on one
/// interface; [`io::ErrorKind::AddrNotAvailable`] where there is no such membership or source, or
/// the source is named already; [`io::ErrorKind::OutOfMemory`] for more than
/// `net.ipv4.igmp_max_memberships` groups, or than `igmp_max_msf` or `mld_max_msf` sources.
impl UdpSocket {
    /// Joins a group on the interface that has this address; on the one where a route to the group
    /// leads if it is unspecified (`IP_ADD_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.join(IpAddr::V4(*multiaddr), self.index_of(interface)?)
    }

    /// Joins a group on the interface with this index; 0 is the one where a route to the group leads
    /// (`IPV6_JOIN_GROUP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.join(IpAddr::V6(*multiaddr), some_index(interface))
    }

    /// Leaves a group (`IP_DROP_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.leave(IpAddr::V4(*multiaddr), self.index_of(interface)?)
    }

    /// Leaves a group (`IPV6_LEAVE_GROUP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.leave(IpAddr::V6(*multiaddr), some_index(interface))
    }

    /// Joins a group for the datagrams of one source; may be called for several
    /// (`IP_ADD_SOURCE_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn join_ssm_v4(
        &self,
        source: &Ipv4Addr,
        group: &Ipv4Addr,
        interface: &Ipv4Addr,
    ) -> io::Result<()> {
        let interface = self.index_of(interface)?.unwrap_or(0);
        self.join_source_group((*group).into(), (*source).into(), interface)
    }

    /// Leaves a group for one source (`IP_DROP_SOURCE_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn leave_ssm_v4(
        &self,
        source: &Ipv4Addr,
        group: &Ipv4Addr,
        interface: &Ipv4Addr,
    ) -> io::Result<()> {
        let interface = self.index_of(interface)?.unwrap_or(0);
        self.leave_source_group((*group).into(), (*source).into(), interface)
    }

    /// As [`join_ssm_v4`](Self::join_ssm_v4), in either family, by the interface's index
    /// (`MCAST_JOIN_SOURCE_GROUP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn join_source_group(
        &self,
        group: IpAddr,
        source: IpAddr,
        interface: u32,
    ) -> io::Result<()> {
        self.change_source(group, source, interface, SourceChange::Join)
    }

    /// As [`leave_ssm_v4`](Self::leave_ssm_v4), in either family (`MCAST_LEAVE_SOURCE_GROUP`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn leave_source_group(
        &self,
        group: IpAddr,
        source: IpAddr,
        interface: u32,
    ) -> io::Result<()> {
        self.change_source(group, source, interface, SourceChange::Leave)
    }

    /// Of a group that was joined with all sources, receives this one's no more
    /// (`MCAST_BLOCK_SOURCE`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn block_source(&self, group: IpAddr, source: IpAddr, interface: u32) -> io::Result<()> {
        self.change_source(group, source, interface, SourceChange::Block)
    }

    /// Receives a blocked source's again (`MCAST_UNBLOCK_SOURCE`).
    ///
    /// # Errors
    ///
    /// See above.
    pub fn unblock_source(&self, group: IpAddr, source: IpAddr, interface: u32) -> io::Result<()> {
        self.change_source(group, source, interface, SourceChange::Unblock)
    }

    fn join(&self, group: IpAddr, interface: Option<u32>) -> io::Result<()> {
        self.inner()
            .udp_join_group(self.shared.id, group, interface)
            .map_err(error::membership)
    }

    fn leave(&self, group: IpAddr, interface: Option<u32>) -> io::Result<()> {
        self.inner()
            .udp_leave_group(self.shared.id, group, interface)
            .map_err(error::membership)
    }

    fn change_source(
        &self,
        group: IpAddr,
        source: IpAddr,
        interface: u32,
        what: SourceChange,
    ) -> io::Result<()> {
        self.inner()
            .udp_change_source(self.shared.id, group, source, some_index(interface), what)
            .map_err(error::membership)
    }

    /// The interface that has the address; `None` if it is unspecified.
    fn index_of(&self, address: &Ipv4Addr) -> io::Result<Option<u32>> {
        if address.is_unspecified() {
            return Ok(None);
        }
        let address = IpAddr::V4(*address);
        let interfaces = self.inner().interfaces();
        let mut interfaces = interfaces.iter();
        let found = interfaces.find(|interface| {
            let mut own = interface.addresses.iter();
            own.any(|own| own.addr == address)
        });
        let no_device = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no interface has the address {address}"),
            )
        };
        found
            .map(|interface| Some(interface.index))
            .ok_or_else(no_device)
    }
}

/// Options about groups: how datagrams to them are sent, and whether those are received that other
/// sockets have joined.
impl UdpSocket {
    /// TTL of datagrams to IPv4 groups, 0 to 255; 1 unless set. 0 stays on this host
    /// (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`].
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.set(IpVersion::V4, ttl_option(ttl)?)
    }

    /// What was set by [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(self.multicast(IpVersion::V4)?.ttl.into())
    }

    /// Hop limit of datagrams to IPv6 groups, 0 to 255; 1 unless set (`IPV6_MULTICAST_HOPS`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`].
    pub fn set_multicast_hops_v6(&self, hops: u32) -> io::Result<()> {
        self.set(IpVersion::V6, ttl_option(hops)?)
    }

    /// What was set by [`set_multicast_hops_v6`](Self::set_multicast_hops_v6).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_hops_v6(&self) -> io::Result<u32> {
        Ok(self.multicast(IpVersion::V6)?.ttl.into())
    }

    /// Whether members on this host, this socket included, get what is sent to IPv4 groups; they do
    /// unless set (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.set(IpVersion::V4, MulticastOption::Loop(on))
    }

    /// What was set by [`set_multicast_loop_v4`](Self::set_multicast_loop_v4).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        Ok(self.multicast(IpVersion::V4)?.loops)
    }

    /// The same for IPv6 (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set(IpVersion::V6, MulticastOption::Loop(on))
    }

    /// What was set by [`set_multicast_loop_v6`](Self::set_multicast_loop_v6).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        Ok(self.multicast(IpVersion::V6)?.loops)
    }

    /// Sends to IPv4 groups by the interface that has this address; unspecified leaves it to the
    /// routes (`IP_MULTICAST_IF`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrNotAvailable`].
    pub fn set_multicast_if_v4(&self, interface: &Ipv4Addr) -> io::Result<()> {
        let index = self
            .index_of(interface)
            .map_err(|error| io::Error::new(io::ErrorKind::AddrNotAvailable, error))?;
        self.set(
            IpVersion::V4,
            MulticastOption::Interface(index.unwrap_or(0)),
        )
    }

    /// The first address of the interface by which IPv4 groups are sent to; unspecified if that is
    /// left to the routes.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        let index = self.multicast(IpVersion::V4)?.interface;
        let interface = self.inner().interface(index);
        let mut addresses = interface.iter().flat_map(|interface| &interface.addresses);
        let first = addresses.find_map(|own| match own.addr {
            IpAddr::V4(addr) => Some(addr),
            IpAddr::V6(_) => None,
        });
        Ok(first.unwrap_or(Ipv4Addr::UNSPECIFIED))
    }

    /// Sends to IPv6 groups by this interface; 0 leaves it to the routes (`IPV6_MULTICAST_IF`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`].
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        self.set(IpVersion::V6, MulticastOption::Interface(interface))
    }

    /// What was set by [`set_multicast_if_v6`](Self::set_multicast_if_v6).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_if_v6(&self) -> io::Result<u32> {
        Ok(self.multicast(IpVersion::V6)?.interface)
    }

    /// Whether datagrams are received to IPv4 groups that this socket has not joined and another on
    /// this host has; they are unless set (`IP_MULTICAST_ALL`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_multicast_all_v4(&self, on: bool) -> io::Result<()> {
        self.set(IpVersion::V4, MulticastOption::All(on))
    }

    /// What was set by [`set_multicast_all_v4`](Self::set_multicast_all_v4).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_all_v4(&self) -> io::Result<bool> {
        Ok(self.multicast(IpVersion::V4)?.all)
    }

    /// The same for IPv6 (`IPV6_MULTICAST_ALL`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_multicast_all_v6(&self, on: bool) -> io::Result<()> {
        self.set(IpVersion::V6, MulticastOption::All(on))
    }

    /// What was set by [`set_multicast_all_v6`](Self::set_multicast_all_v6).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn multicast_all_v6(&self) -> io::Result<bool> {
        Ok(self.multicast(IpVersion::V6)?.all)
    }

    fn set(&self, version: IpVersion, option: MulticastOption) -> io::Result<()> {
        self.inner()
            .udp_set_multicast(self.shared.id, version, option)
            .map_err(error::membership)
    }

    fn multicast(&self, version: IpVersion) -> io::Result<MulticastOptions> {
        let options = self.inner().udp_multicast(self.shared.id, version);
        options.map_err(error::not_open)
    }
}

fn ttl_option(ttl: u32) -> io::Result<MulticastOption> {
    let ttl = u8::try_from(ttl).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(MulticastOption::Ttl(ttl))
}

fn some_index(interface: u32) -> Option<u32> {
    Some(interface).filter(|index| *index != 0)
}
