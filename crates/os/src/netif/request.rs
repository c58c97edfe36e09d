//! rtnetlink messages, built in place (RFC 3549 describes them).

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::AddressFamily;

use super::{LinkKind, NextHop, Route};
use crate::name::InterfaceName;

// linux/netlink.h
const NLMSG_HDRLEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

// linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

// linux/if.h, linux/if_link.h and linux/if_addr.h
pub(super) const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;

// linux/pkt_sched.h
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;

/// Bytes of the longest message, a new link: a header of 16, a `struct ifinfomsg` of 16, attributes
/// of 20 for its name, of 12 for its address, and for its kind one of 12 in another.
const CAPACITY: usize = 80;

/// One message to the kernel.
pub(super) struct Request {
    buffer: [u8; CAPACITY],
    len: usize,
}

impl Request {
    /// Changes the given flags of a link (all to "on"), and what attributes add to it.
    pub(super) fn link(index: u32, flags: u32) -> Self {
        // struct ifinfomsg
        Self::new(RTM_NEWLINK, NLM_F_ACK)
            .put(&[family_unspecified(), 0, 0, 0])
            .put(&index.to_ne_bytes())
            .put(&flags.to_ne_bytes())
            .put(&flags.to_ne_bytes()) // the mask of those that change
    }

    /// A new link. The kinds of links have names of at most 8 bytes.
    pub(super) fn new_link(name: InterfaceName, kind: LinkKind, address: [u8; 6]) -> Self {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let kind = kind.to_kernel();
        // struct ifinfomsg, in which nothing is said but by attributes
        Self::new(RTM_NEWLINK, flags)
            .put(&[0; 16])
            .attribute(IFLA_IFNAME, &name.to_kernel())
            .attribute(IFLA_ADDRESS, &address)
            .put(&(4 + 4 + kind.len() as u16).to_ne_bytes())
            .put(&IFLA_LINKINFO.to_ne_bytes())
            .attribute(IFLA_INFO_KIND, &kind)
    }

    /// Has a link send at once, without a queue.
    pub(super) fn no_queue(index: u32) -> Self {
        // struct tcmsg
        Self::new(RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .put(&[0; 4])
            .put(&index.to_ne_bytes())
            .put(&[0; 4])
            .put(&TC_H_ROOT.to_ne_bytes())
            .put(&[0; 4])
            .attribute(TCA_KIND, b"noqueue\0")
    }

    pub(super) fn new_address(index: u32, address: IpAddr, prefix_len: u8) -> Self {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        Self::new(RTM_NEWADDR, flags).address(index, address, prefix_len)
    }

    pub(super) fn delete_address(index: u32, address: IpAddr, prefix_len: u8) -> Self {
        Self::new(RTM_DELADDR, NLM_F_ACK).address(index, address, prefix_len)
    }

    fn address(self, index: u32, address: IpAddr, prefix_len: u8) -> Self {
        let address = Address::new(address);
        // struct ifaddrmsg
        self.put(&[address.family, prefix_len, IFA_F_NODAD, RT_SCOPE_UNIVERSE])
            .put(&index.to_ne_bytes())
            .attribute(IFA_LOCAL, address.bytes())
            .attribute(IFA_ADDRESS, address.bytes())
    }

    pub(super) fn new_route(route: &Route) -> Result<Self, Errno> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        Self::new(RTM_NEWROUTE, flags).route(route)
    }

    pub(super) fn delete_route(route: &Route) -> Result<Self, Errno> {
        Self::new(RTM_DELROUTE, NLM_F_ACK).route(route)
    }

    fn route(self, route: &Route) -> Result<Self, Errno> {
        let destination = Address::new(route.destination);
        let scope = match route.next_hop {
            NextHop::Via(_) => RT_SCOPE_UNIVERSE,
            NextHop::Interface(_) => RT_SCOPE_LINK,
        };
        // struct rtmsg
        let request = self
            .put(&[destination.family, route.prefix_len, 0, 0])
            .put(&[RT_TABLE_MAIN, RTPROT_BOOT, scope, RTN_UNICAST])
            .put(&[0; 4])
            .attribute(RTA_DST, destination.bytes());
        match route.next_hop {
            NextHop::Interface(index) => Ok(request.attribute(RTA_OIF, &index.to_ne_bytes())),
            NextHop::Via(gateway) if gateway.is_ipv4() == route.destination.is_ipv4() => {
                Ok(request.attribute(RTA_GATEWAY, Address::new(gateway).bytes()))
            }
            NextHop::Via(_) => Err(Errno::INVAL),
        }
    }

    /// Asks for the route that a packet to `address` would take.
    pub(super) fn get_route(address: IpAddr) -> Self {
        let address = Address::new(address);
        // struct rtmsg
        Self::new(RTM_GETROUTE, 0)
            .put(&[address.family, 8 * address.len as u8, 0, 0])
            .put(&[0; 8])
            .attribute(RTA_DST, address.bytes())
    }

    /// A `struct nlmsghdr`, with its length and sequence number to come.
    fn new(kind: u16, flags: u16) -> Self {
        let empty = Self {
            buffer: [0; CAPACITY],
            len: 0,
        };
        empty
            .put(&[0; 4])
            .put(&kind.to_ne_bytes())
            .put(&(NLM_F_REQUEST | flags).to_ne_bytes())
            .put(&[0; 8])
    }

    /// Appends an attribute (`struct rtattr`); the next one begins at a multiple of four bytes.
    pub(super) fn attribute(self, kind: u16, value: &[u8]) -> Self {
        let len = 4 + value.len();
        let padding = len.next_multiple_of(4) - len;
        self.put(&(len as u16).to_ne_bytes())
            .put(&kind.to_ne_bytes())
            .put(value)
            .put(&[0; 3][..padding])
    }

    /// Appends bytes. Messages have a fixed make-up, so that they fit by construction.
    fn put(mut self, bytes: &[u8]) -> Self {
        self.buffer[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    /// Fills in what the header leaves open.
    pub(super) fn finish(mut self, sequence: u32) -> Self {
        self.buffer[0..4].copy_from_slice(&(self.len as u32).to_ne_bytes());
        self.buffer[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// An address as rtnetlink has it.
struct Address {
    family: u8,
    octets: [u8; 16],
    len: usize,
}

impl Address {
    fn new(address: IpAddr) -> Self {
        let mut octets = [0; 16];
        let (family, len) = match address {
            IpAddr::V4(v4) => {
                octets[..4].copy_from_slice(&v4.octets());
                (AddressFamily::INET, 4)
            }
            IpAddr::V6(v6) => {
                octets = v6.octets();
                (AddressFamily::INET6, 16)
            }
        };
        Self {
            family: family.as_raw() as u8,
            octets,
            len,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

fn family_unspecified() -> u8 {
    AddressFamily::UNSPEC.as_raw() as u8
}

/// The kernel's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Refused(Errno),
    /// The route asked for leads to this host.
    LocalRoute,
    /// The route asked for leads elsewhere.
    OtherRoute,
}

impl Reply {
    /// Reads an answer and the sequence number of its request; `None` if it is something else.
    pub(super) fn parse(message: &[u8]) -> Option<(u32, Self)> {
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let sequence = u32::from_ne_bytes(*message.get(8..)?.first_chunk()?);
        let body = message.get(NLMSG_HDRLEN..)?;
        let reply = match kind {
            NLMSG_ERROR => match i32::from_ne_bytes(*body.first_chunk()?) {
                0 => Self::Done,
                negative => Self::Refused(Errno::from_raw_os_error(negative.wrapping_neg())),
            },
            // The eighth byte of a struct rtmsg is the route's type.
            RTM_NEWROUTE if *body.get(7)? == RTN_LOCAL => Self::LocalRoute,
            RTM_NEWROUTE => Self::OtherRoute,
            _ => return None,
        };
        Some((sequence, reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn the_longest_message_fits_exactly() {
        let name = "a-name-of-15-by".parse().expect("a name");
        let request = Request::new_link(name, LinkKind::Dummy, [2, 0, 0, 0, 0, 1]).finish(7);
        assert_eq!(request.bytes().len(), CAPACITY);
        assert_eq!(request.bytes()[..4], (CAPACITY as u32).to_ne_bytes());
        assert_eq!(request.bytes()[8..12], 7_u32.to_ne_bytes());

        let route = Route::default_via(address("fd09::1"));
        let request = Request::new_route(&route).expect("request");
        assert!(request.bytes().len() <= CAPACITY);
        let request = Request::new_address(1, address("fd09::2"), 64);
        assert!(request.bytes().len() <= CAPACITY);
    }

    #[test]
    fn an_attribute_is_padded_behind_its_length() {
        let name = "near".parse().expect("a name");
        let request = Request::new_link(name, LinkKind::Veth, [2, 0, 0, 0, 0, 1]);
        let attributes = &request.bytes()[NLMSG_HDRLEN + 16..];
        assert_eq!(attributes[20..22], 10_u16.to_ne_bytes());
        assert_eq!(attributes[24..32], [2, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(attributes[32..34], 16_u16.to_ne_bytes());
        assert_eq!(attributes[36..38], 12_u16.to_ne_bytes());
        assert_eq!(&attributes[40..], b"veth\0\0\0\0");
    }

    #[test]
    fn a_gateway_of_another_family_is_refused() {
        let route = Route {
            destination: address("10.0.0.0"),
            prefix_len: 8,
            next_hop: NextHop::Via(address("fd09::1")),
        };
        assert_eq!(Request::new_route(&route).err(), Some(Errno::INVAL));
    }

    #[test]
    fn answers_are_told_from_noise() {
        let mut message = [0; 36];
        message[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        message[8..12].copy_from_slice(&9_u32.to_ne_bytes());
        assert_eq!(Reply::parse(&message), Some((9, Reply::Done)));
        assert_eq!(Reply::parse(&message[..19]), None);

        message[16..20].copy_from_slice(&(-17_i32).to_ne_bytes());
        let refused = Reply::Refused(Errno::EXIST);
        assert_eq!(Reply::parse(&message), Some((9, refused)));

        message[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
        assert_eq!(Reply::parse(&message), Some((9, Reply::OtherRoute)));
        message[23] = RTN_LOCAL;
        assert_eq!(Reply::parse(&message), Some((9, Reply::LocalRoute)));
        assert_eq!(Reply::parse(&message[..23]), None);

        message[4..6].copy_from_slice(&3_u16.to_ne_bytes()); // NLMSG_DONE
        assert_eq!(Reply::parse(&message), None);
    }
}
