//! Options of the library's sockets that others than std's have: each does what it says, in the
//! family that it says.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay::device::wire::{WireConfig, wire};
use forebay::filter::{Instruction, code};
use forebay::{Stack, UdpOptions, UdpSocket};

const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 7;

/// Two stacks on a wire, driven by hand.
struct Link {
    stacks: [Stack; 2],
    /// Of the wire, in both.
    ifindex: u32,
}

impl Link {
    fn new() -> Self {
        let (left, right) = wire(WireConfig::default());
        let host = |device, number: u16| {
            let stack = Stack::builder().build().expect("a stack");
            let ifindex = stack.add_device("wire0", device).expect("a device");
            let v4 = IpAddr::from([10, 0, 0, number as u8]);
            let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]);
            for (addr, len) in [(v4, 24), (v6, 64)] {
                let added = stack.inner().add_address(ifindex, addr, len);
                added.expect("an address");
            }
            (stack, ifindex)
        };
        let ((left, ifindex), (right, _)) = (host(left, 1), host(right, 2));
        Self {
            stacks: [left, right],
            ifindex,
        }
    }

    fn bind(&self, host: usize, addr: impl Into<SocketAddr>) -> UdpSocket {
        let socket = UdpSocket::bind(&self.stacks[host], addr.into()).expect("a free address");
        socket.set_nonblocking(true).expect("an open socket");
        socket
    }

    /// Sends to an address and says whether `receiver` got it.
    fn gets(&self, sender: &UdpSocket, to: impl Into<SocketAddr>, receiver: &UdpSocket) -> bool {
        sender.send_to(b"hello", to.into()).expect("a way");
        for _ in 0..8 {
            for stack in &self.stacks {
                stack.poll(stack.now());
            }
        }
        match receiver.recv_from(&mut [0; 16]) {
            Ok((len, _)) => len == 5,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }
}

#[test]
fn what_is_set_is_read_back() {
    let link = Link::new();
    let v4 = link.bind(0, (OWN4, 0));
    v4.set_multicast_ttl_v4(7).expect("a TTL");
    v4.set_multicast_loop_v4(false).expect("a switch");
    v4.set_multicast_if_v4(&OWN4).expect("an interface");
    v4.set_multicast_all_v4(false).expect("a switch");
    assert_eq!(v4.multicast_ttl_v4().expect("a TTL"), 7);
    assert_eq!(v4.multicast_if_v4().expect("an interface"), OWN4);
    assert!(!v4.multicast_all_v4().expect("a switch"));
    assert!(!v4.multicast_loop_v4().expect("a switch"));

    let v6 = link.bind(0, (Ipv6Addr::UNSPECIFIED, 0));
    v6.set_multicast_hops_v6(9).expect("a hop limit");
    v6.set_multicast_loop_v6(false).expect("a switch");
    assert_eq!(v6.multicast_hops_v6().expect("a hop limit"), 9);
    assert!(!v6.multicast_loop_v6().expect("a switch"));

    // Linux's doubling; only the forced kind passes rmem_max.
    assert_eq!(v4.set_recv_buffer_size(10_000).expect("a size"), 20_000);
    let largest = v4.set_recv_buffer_size(10_000_000).expect("a size");
    assert_eq!(largest, 2 * 212_992);
    let forced = v4.force_recv_buffer_size(10_000_000).expect("a size");
    assert_eq!(forced, 20_000_000);
}

#[test]
fn a_filter_holds_until_it_is_detached() {
    let link = Link::new();
    let (sender, receiver) = (link.bind(0, (OWN4, 0)), link.bind(1, (PEER4, PORT)));
    let to = (PEER4, PORT);
    assert!(link.gets(&sender, to, &receiver));
    let nothing = [Instruction::stmt(code::RET | code::K, 0)];
    receiver.attach_filter(&nothing).expect("a program");
    assert!(!link.gets(&sender, to, &receiver));
    receiver.detach_filter().expect("there is one");
    assert!(link.gets(&sender, to, &receiver));
}

#[test]
fn a_blocked_source_is_heard_again() {
    let link = Link::new();
    let groups: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::new(239, 1, 2, 3).into(), OWN4.into()),
        (
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x1234).into(),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    for (group, source) in groups {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let sender = link.bind(0, (source, 0));
        let receiver = link.bind(1, (any, PORT));
        match group {
            IpAddr::V4(group) => {
                sender.set_multicast_if_v4(&OWN4).expect("an interface");
                receiver.join_multicast_v4(&group, &PEER4).expect("a group");
            }
            IpAddr::V6(group) => {
                sender.set_multicast_if_v6(link.ifindex).expect("one");
                let joined = receiver.join_multicast_v6(&group, link.ifindex);
                joined.expect("a group");
            }
        }
        let to = (group, PORT);
        assert!(link.gets(&sender, to, &receiver), "{group}");
        let block = |on: bool| match on {
            true => receiver.block_source(group, source, link.ifindex),
            false => receiver.unblock_source(group, source, link.ifindex),
        };
        block(true).expect("a member");
        assert!(!link.gets(&sender, to, &receiver), "{group}");
        block(false).expect("a blocked source");
        assert!(link.gets(&sender, to, &receiver), "{group}");

        // A socket that has joined nothing gets what others' membership brings, unless it says no.
        drop(receiver);
        let member = link.bind(1, (any, PORT + 1));
        let other = link.bind(1, (any, PORT));
        let joined = match group {
            IpAddr::V4(group) => member.join_multicast_v4(&group, &PEER4),
            IpAddr::V6(group) => member.join_multicast_v6(&group, link.ifindex),
        };
        joined.expect("a group");
        assert!(link.gets(&sender, to, &other), "{group}");
        let said_no = match group {
            IpAddr::V4(_) => other.set_multicast_all_v4(false),
            IpAddr::V6(_) => other.set_multicast_all_v6(false),
        };
        said_no.expect("a switch");
        assert!(!link.gets(&sender, to, &other), "{group}");
    }
}

/// An address that comes later: a service may be there before its address is.
#[test]
fn a_socket_may_wait_for_its_address() {
    let link = Link::new();
    let addresses: [(IpAddr, IpAddr); 2] = [
        (OWN4.into(), Ipv4Addr::new(10, 0, 0, 9).into()),
        (
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9).into(),
        ),
    ];
    for (own, to_come) in addresses {
        let stack = &link.stacks[1];
        let to = SocketAddr::new(to_come, PORT);
        let refused = UdpSocket::bind(stack, to).expect_err("nobody's address");
        assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
        let receiver = UdpOptions::new().freebind(true).bind(stack, to);
        let receiver = receiver.expect("leave for any address");
        receiver.set_nonblocking(true).expect("an open socket");
        let sender = link.bind(0, (own, 0));
        assert!(!link.gets(&sender, to, &receiver), "{to}");
        let ifindex = link.ifindex;
        let len = if to_come.is_ipv4() { 24 } else { 64 };
        let added = stack.inner().add_address(ifindex, to_come, len);
        added.expect("a new address");
        assert!(link.gets(&sender, to, &receiver), "{to}");
    }
}

#[test]
fn a_socket_can_be_bound_to_a_device_and_freed_of_it() {
    let link = Link::new();
    for (own, peer) in [
        (IpAddr::from(OWN4), IpAddr::from(PEER4)),
        (
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
        ),
    ] {
        let (sender, receiver) = (link.bind(0, (own, 0)), link.bind(1, (peer, PORT)));
        let to = SocketAddr::new(peer, PORT);
        for (name, gets) in [(Some("lo"), false), (Some("wire0"), true), (None, true)] {
            receiver.bind_device(name).expect("a device");
            let device = receiver.device().expect("a device that is there");
            assert_eq!(device.as_deref(), name);
            assert_eq!(link.gets(&sender, to, &receiver), gets, "{name:?}");
        }
        let unknown = receiver.bind_device(Some("none0")).expect_err("no device");
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_socket_knows_how_many_datagrams_it_did_not_keep() {
    let link = Link::new();
    let (sender, receiver) = (link.bind(0, (OWN4, 0)), link.bind(1, (PEER4, PORT)));
    receiver.set_recv_buffer_size(1).expect("a size");
    assert_eq!(receiver.drops().expect("a number"), 0);
    for _ in 0..4 {
        sender.send_to(b"hello", (PEER4, PORT)).expect("a way");
    }
    assert!(link.gets(&sender, (PEER4, PORT), &receiver));
    assert_eq!(receiver.drops().expect("a number"), 4);
}
